"""Steps of the book build: execute a notebook, stage the sources, write the HTML, report.

Usage (each step is a task of dodo.py; by hand they serve while writing a page):

    python book/build_book.py execute NAME [--tier quick] [--seed 0]
    python book/build_book.py html [--partial]
    python book/build_book.py report
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import yaml

from transform import complaints, with_figures, with_links_and_tex

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "_build"
EXECUTED = BUILD / "executed"
STAGE = BUILD / "book"
HTML = BUILD / "html"
# These read what all other pages recorded, in this order.
LAST = ("90_ledger", "91_reproducibility")
# What papermill and the kernel print whether or not anything is wrong.
NOISE = re.compile(r"^\s*$|^Executing:|^\[IPKernelApp\]")


def names() -> list[str]:
    """Notebooks in reading order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.md"))


def compiled_cache() -> Path:
    """Folder of compiled kernels for the sources as they are.

    Numba looks at the file of the function it compiles, not at those of the functions it calls, so
    an edit could leave old code in use.
    """
    digest = hashlib.sha256()
    for path in sorted((ROOT / "lib" / "implicitnn" / "_kernels").rglob("*.py")):
        digest.update(path.read_bytes())
    return ROOT / ".cache" / "numba" / digest.hexdigest()[:16]


def environment() -> dict[str, str]:
    """Environment of one notebook: one thread, this interpreter's kernel, nothing of the user's."""
    threads = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM")
    return {
        **os.environ,
        **{f"{name}_NUM_THREADS": "1" for name in threads},
        "NUMBA_CACHE_DIR": str(compiled_cache()),
        "IMPLICITNN_ROOT": str(ROOT),
        "IMPLICITNN_BUILD": str(BUILD),
        "PYTHONPATH": str(ROOT / "lib"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(BUILD / "ipython"),
        "MPLCONFIGDIR": str(BUILD / "matplotlib"),
        # Figures reach a page through page.figure only, never by being left open.
        "MPLBACKEND": "agg",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
    }


def execute(name: str, tier: str = "quick", seed: int = 0, build: Path = BUILD) -> str | None:
    """Execute one notebook in a process of its own; None, or what went wrong."""
    partial, target = build / "partial" / f"{name}.ipynb", build / "executed" / f"{name}.ipynb"
    for folder in (partial.parent, target.parent):
        folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "implicitnn", "notebook", name, "--tier", tier]
    command += ["--seed", str(seed), "--output", str(partial)]
    variables = {**environment(), "IMPLICITNN_BUILD": str(build)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not NOISE.match(line)]
        return f"{plain(chr(10).join(lines))[-6000:]}\n{traceback_of(partial)}"
    partial.replace(target)
    return None


def traceback_of(executed: Path) -> str:
    """Traceback of the cell that failed, when there is one."""
    if not executed.is_file():
        return ""
    cells = nbformat.read(executed, as_version=4).cells
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    errors = [output for output in outputs if output.output_type == "error"]
    return plain("\n".join(line for error in errors for line in error.traceback))[-4000:]


def stage_notebook(name: str) -> list[str]:
    """Put one executed notebook and its source among the book's sources."""
    notebook = nbformat.read(EXECUTED / f"{name}.ipynb", as_version=4)
    target = STAGE / "notebooks" / f"{name}.ipynb"
    source = target.parent / "source" / f"{name}.md"
    source.parent.mkdir(parents=True, exist_ok=True)
    claims = yaml.safe_load((BOOK / "claims.yml").read_text())["claims"]
    nbformat.write(with_links_and_tex(with_figures(name, notebook), claims), target)
    shutil.copyfile(NOTEBOOKS / f"{name}.md", source)
    return complaints(name, notebook)


def documents(toc: dict) -> list[str]:
    """Documents of a table of contents, in order."""
    parts = toc.get("parts", [toc])
    return [toc["root"], *(entry["file"] for part in parts for entry in part["chapters"])]


def existing(toc: dict) -> dict:
    """Return the same table of contents without the pages that are not there (while writing)."""
    there = {path.relative_to(STAGE).with_suffix("").as_posix() for path in STAGE.rglob("*.md")}
    there |= {path.relative_to(STAGE).with_suffix("").as_posix() for path in STAGE.rglob("*.ipynb")}
    for part in toc.get("parts", [toc]):
        part["chapters"] = [entry for entry in part["chapters"] if entry["file"] in there]
    toc["parts"] = [part for part in toc["parts"] if part["chapters"]]
    if toc["root"] not in there:
        (STAGE / f"{toc['root']}.md").write_text("# Draft\n\nPages written so far.\n")
    return toc


def stage(partial: bool = False) -> list[str]:
    """Collect every source of the book under _build/book; return complaints."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(BOOK, STAGE, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for script in STAGE.glob("*.py"):
        script.unlink()
    found = []
    for name in names():
        if (EXECUTED / f"{name}.ipynb").is_file() or not partial:
            found += stage_notebook(name)
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text())
    if partial:
        (STAGE / "_toc.yml").write_text(yaml.safe_dump(existing(toc), sort_keys=False))
    return found


def plain(text: str) -> str:
    """Text without terminal colours, with paths relative to the root."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"{ROOT}/", "")


def html(partial: bool = False) -> str | None:
    """Build the HTML from nothing with warnings as errors; None, or what went wrong."""
    found = stage(partial)
    if found and not partial:
        return "Executed notebooks carry warnings:\n" + "\n".join(found)
    # A fresh environment: an incremental Sphinx run reports only the warnings of changed pages.
    for stale in (HTML, BUILD / ".doctrees"):
        shutil.rmtree(stale, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(STAGE)]
    command += ["--path-output", str(ROOT), "-n", "--keep-going", "-q"]
    command += [] if partial else ["-W"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return f"The book build failed:\n{plain(done.stdout)[-2000:]}\n{plain(done.stderr)[-9000:]}"
    if partial:
        print("\n".join(found), plain(done.stderr))
    toc = yaml.safe_load((STAGE / "_toc.yml").read_text())
    missing = [name for name in documents(toc) if not (HTML / f"{name}.html").is_file()]
    return f"Pages missing from the site: {missing}" if missing else None


def seconds(name: str) -> float:
    """Seconds that one executed notebook took."""
    notebook = json.loads((EXECUTED / f"{name}.ipynb").read_text())
    return float(notebook["metadata"]["papermill"]["duration"])


def report(since: int | None = None) -> str:
    """Where the book is, what its notebooks cost, and how long this command took."""
    page = HTML / "index.html"
    if not page.is_file():
        return "There is no book yet: run `make book`."
    done = [name for name in names() if (EXECUTED / f"{name}.ipynb").is_file()]
    total = sum(map(seconds, done))
    wall = "" if since is None else f"Wall time of this command: {time.time() - since:.0f} s\n"
    return f"{wall}{len(done)} notebooks, {total:.0f} s of execution in all\nBook: {page.as_uri()}"


def main() -> int:
    """Command line of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("execute", help="execute one notebook")
    one.add_argument("name")
    one.add_argument("--tier", default="quick", choices=("quick", "paper"))
    one.add_argument("--seed", type=int, default=0)
    commands.add_parser("html", help="build").add_argument("--partial", action="store_true")
    where = commands.add_parser("report", help="where the book is")
    where.add_argument("--since", type=int, help="start of the command, in seconds")
    arguments = parser.parse_args()
    if arguments.command == "execute":
        problem = execute(arguments.name, arguments.tier, arguments.seed)
        print(problem or f"{arguments.name}: {seconds(arguments.name):.1f} s")
        return int(problem is not None)
    if arguments.command == "html":
        problem = html(arguments.partial)
        print(problem or report())
        return int(problem is not None)
    print(report(arguments.since))
    return 0


if __name__ == "__main__":
    sys.exit(main())
