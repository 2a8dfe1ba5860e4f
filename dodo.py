"""Tasks of the book and the tests: each runs again only when something it read has changed."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "book"))

from doit.exceptions import TaskFailed  # noqa: E402
from doit.tools import config_changed  # noqa: E402

import build_book  # noqa: E402
import dependencies  # noqa: E402
from progress import Progress  # noqa: E402

BUILD = ROOT / "_build"
BUILD.mkdir(exist_ok=True)
FINGERPRINT = BUILD / "html.sha256"
DOIT_CONFIG = {
    "default_tasks": ["html"],
    "dep_file": str(BUILD / "doit.db"),
    "reporter": Progress,
    "verbosity": 2,
}
SCRIPTS = [str(ROOT / "book" / name) for name in ("build_book.py", "transform.py")]


def files(*patterns: str) -> list[str]:
    """Committed files matching glob patterns below the root."""
    found = (path for pattern in patterns for path in ROOT.glob(pattern))
    skip = {"__pycache__", "_build", ".ipynb_checkpoints"}
    return sorted(
        str(p) for p in found if p.is_file() and not skip & set(p.parts) and p.suffix != ".lock"
    )


def failing(problem: str | None) -> TaskFailed | None:
    """Doit's failure for a step that returns what went wrong."""
    return TaskFailed(problem) if problem else None


def compile_kernels() -> TaskFailed | None:
    """Compile once what every notebook and every test would compile for itself."""
    code = "from implicitnn import kernels; kernels.compile_seconds()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=build_book.environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return failing(done.stderr if done.returncode else None)


def task_compile():
    """Compile the kernels into a cache that follows their sources."""
    return {
        "actions": [compile_kernels],
        "file_dep": [*files("lib/implicitnn/_kernels/*.py"), str(ROOT / "requirements.lock")],
        "uptodate": [build_book.compiled_cache().is_dir],
    }


def execute(name: str) -> TaskFailed | None:
    """Execute one notebook."""
    return failing(build_book.execute(name))


def task_execute():
    """Execute each notebook at tier quick."""
    names = build_book.names()
    early = [name for name in names if name not in build_book.LAST]
    for name in names:
        inputs = {str(path) for path in dependencies.of_notebook(ROOT / "notebooks" / f"{name}.md")}
        if name in build_book.LAST:
            before = [*early, *build_book.LAST[: build_book.LAST.index(name)]]
            inputs |= {
                str(build_book.EXECUTED / f"{other}.ipynb") for other in before if other in names
            }
            inputs |= set(files("data/results/**/*"))
        yield {
            "name": name,
            "actions": [(execute, [name])],
            "file_dep": sorted(inputs | {str(dependencies.PACKAGE / "_cli" / "notebook.py")}),
            "targets": [str(build_book.EXECUTED / f"{name}.ipynb")],
            "task_dep": ["compile"],
        }


def fingerprint() -> None:
    """Write a hash of every page: a page test is stale when any of them changed."""
    total = hashlib.sha256()
    for path in sorted(build_book.HTML.rglob("*.html")):
        total.update(str(path.relative_to(build_book.HTML)).encode() + path.read_bytes())
    FINGERPRINT.write_text(total.hexdigest() + "\n")


def task_html():
    """Build the HTML pages from prose and executed notebooks."""
    executed = [str(build_book.EXECUTED / f"{name}.ipynb") for name in build_book.names()]
    return {
        "actions": [lambda: failing(build_book.html()), fingerprint],
        "file_dep": executed + SCRIPTS + files("book/**/*", "notebooks/*.md", "lib/**/*.py"),
        "targets": [str(build_book.HTML / "index.html"), str(FINGERPRINT)],
    }


def command(task: str, *arguments: str):
    """Run a checker, showing its output, and keep its closing line for the next time."""

    def action() -> TaskFailed | None:
        start = time.monotonic()
        environment = {**build_book.environment(), "PYTHONUNBUFFERED": "1"}
        # Tests compare one thread with two.
        del environment["NUMBA_NUM_THREADS"]
        lines = []
        with subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            for line in process.stdout:
                lines.append(line)
                print(line, end="", flush=True)
        if process.returncode:
            return TaskFailed(f"{task} failed ({time.monotonic() - start:.0f} s)")
        passed = BUILD / "passed" / f"{task}.txt"
        passed.parent.mkdir(exist_ok=True)
        passed.write_text(lines[-1] if lines else "passed\n")
        return None

    return action


def check(task: str, inputs: list[str], *commands: tuple[str, ...]) -> dict:
    """Return a task of checkers that runs again when one of its inputs changed."""
    settings = {"data": os.environ.get("IMPLICITNN_DATA", ""), "python": sys.version}
    return {
        "actions": [command(task, *arguments) for arguments in commands],
        "file_dep": [*inputs, str(ROOT / "pyproject.toml"), str(ROOT / "requirements.lock")],
        "targets": [str(BUILD / "passed" / f"{task}.txt")],
        "uptodate": [config_changed(settings)],
    }


def task_lint():
    """Check style and formatting of every Python file."""
    places = ("lib", "tests", "book", "benchmarks", "data")
    inputs = files("*.py", *(f"{place}/**/*.py" for place in places))
    return check("lint", inputs, ("ruff", "check", "."), ("ruff", "format", "--check", "."))


def task_types():
    """Check the types of the library."""
    return check("types", files("lib/**/*.py"), ("mypy",))


def task_unit():
    """Run unit tests, doctests and repository tests; needs no browser and no book."""
    inputs = files(
        "lib/**/*",
        "tests/*.py",
        "data/**/*",
        "book/*",
        "notebooks/*.md",
        "benchmarks/*.py",
        "*.*",
        "Makefile",
        "LICENSE*",
        ".ci/run",
    )
    arguments = (
        "pytest",
        "-q",
        "-n",
        "2",
        "--doctest-glob=README.md",
        "--ignore=tests/book",
        "--ignore=tests/peers",
    )
    task = check("unit", inputs, (*arguments, "README.md", "tests", "lib"))
    return {**task, "task_dep": ["compile"]}


def task_pages():
    """Test the rendered pages in a browser."""
    inputs = [str(FINGERPRINT), *files("tests/book/*", "book/*")]
    return check("pages", inputs, ("pytest", "-q", "tests/book"))
