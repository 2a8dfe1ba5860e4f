"""What a run of tasks shows: a bar over the notebooks, and one line for each task."""

import sys
import time

from doit.exceptions import UnmetDependency
from tqdm import tqdm

WHAT = {
    "compile": "compiling the kernels (once for this machine and these sources)",
    "html": "building the HTML pages (warnings are errors)",
    "lint": "linter (ruff)",
    "types": "types (mypy)",
    "unit": "unit tests and doctests (pytest)",
    "pages": "page tests in Chromium (pytest)",
}


class Progress:
    """Reporter for doit."""

    desc = "bar over notebooks, a line for each task"

    def __init__(self, outstream, options):
        self.out = outstream
        self.failed = []
        self.started = {}
        self.bar = None

    def initialize(self, tasks, selected_tasks):
        self.begin = time.monotonic()
        wanted, seen = list(selected_tasks), set()
        while wanted:
            name = wanted.pop()
            if name not in seen:
                seen.add(name)
                wanted += tasks[name].task_dep
        self.total = sum(name.startswith("execute:") for name in seen)
        self.done = 0
        self.skipped = 0
        if self.total:
            self.say(f"Executing notebooks at tier quick ({self.total}; unchanged ones are kept)")
            style = "{desc} {bar:24} {n_fmt}/{total_fmt} [{elapsed}]"
            self.bar = tqdm(
                total=self.total,
                desc="Notebooks",
                bar_format=style,
                disable=None,
                file=sys.__stdout__,
            )

    def say(self, text):
        """Print a line without breaking the bar."""
        tqdm.write(text, file=sys.__stdout__)
        sys.__stdout__.flush()

    def get_status(self, task):
        pass

    def execute_task(self, task):
        self.started[task.name] = time.monotonic()
        if task.name in WHAT and task.name != "compile":
            self.close_bar()
        if task.name in WHAT:
            self.say(f"{task.name}: {WHAT[task.name]}")

    def close_bar(self):
        """End the bar once the notebooks are done."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
            if self.skipped:
                self.say(f"{self.skipped} of {self.total} notebooks unchanged")

    def count(self):
        """Advance the bar by one notebook."""
        self.done += 1
        if self.bar is not None:
            self.bar.update()

    def add_success(self, task):
        spent = time.monotonic() - self.started.get(task.name, time.monotonic())
        if task.name.startswith("execute:"):
            self.count()
            name = task.name.split(":", 1)[1]
            self.say(f"[{self.done:2d}/{self.total}] {name:<28} {spent:6.1f} s")
        elif task.name in WHAT:
            self.say(f"{task.name}: done in {spent:.1f} s")

    def skip_uptodate(self, task):
        if task.name.startswith("execute:"):
            self.skipped += 1
            self.count()
        elif task.name in WHAT and task.name != "compile":
            self.close_bar()
            self.say(f"{task.name}: nothing changed since it passed{self.before(task)}")

    def before(self, task):
        """Closing line that a checker printed when it last passed."""
        for target in task.targets:
            if target.endswith(f"passed/{task.name}.txt"):
                with open(target, encoding="utf-8") as file:
                    return f" ({file.read().strip().strip('=').strip()})"
        return ""

    def skip_ignore(self, task):
        pass

    def add_failure(self, task, fail):
        if isinstance(fail, UnmetDependency):
            self.say(f"{task.name}: not run, because something before it failed")
            return
        self.failed.append((task.name, fail))
        self.say(f"{task.name}: FAILED")

    def cleanup_error(self, exception):
        self.say(f"clean-up error: {exception}")

    def runtime_error(self, message):
        self.say(f"error: {message}")

    def teardown_task(self, task):
        pass

    def complete_run(self):
        self.close_bar()
        for name, fail in self.failed:
            print(f"\n--- {name} ---\n{fail.get_msg()}", file=sys.stderr)
