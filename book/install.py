"""Fill the virtual environment, saying what is going on. Standard library only: it runs first.

Usage: python book/install.py check | lock [pip args] | project [pip args]
"""

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTED = (3, 11)
STEP = re.compile(r"^(Collecting|Downloading|Using cached|Installing collected|Successfully)")


def check() -> int:
    """Refuse an interpreter that the lock was not made for."""
    if sys.version_info[:2] == TESTED:
        return 0
    found = ".".join(map(str, sys.version_info[:3]))
    print(
        f"Python 3.11 is needed and {sys.executable} is {found}.\n"
        "Install it and name it: make book PYTHON=/path/to/python3.11",
        file=sys.stderr,
    )
    return 1


def pip(arguments: list[str], total: int) -> int:
    """Run pip install and show one changing line; print everything when it fails."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    process = subprocess.Popen(
        [*command, "--progress-bar", "off", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    log, seen = [], 0
    for line in process.stdout:
        log.append(line)
        seen += line.startswith(("Collecting", "Requirement already"))
        if STEP.match(line) and sys.stdout.isatty():
            short = line.strip()[:70]
            print(f"\r[{min(seen, total):3d}/{total}] {short:<72}", end="", flush=True)
    code = process.wait()
    if sys.stdout.isatty():
        print("\r" + " " * 84 + "\r", end="")
    if code:
        sys.stdout.writelines(log)
    return code


def lock(arguments: list[str]) -> int:
    """Install the pinned packages."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    total = sum("==" in line for line in lines)
    print(f"Installing {total} pinned packages into .venv (about 2 GB; some minutes)", flush=True)
    start = time.monotonic()
    code = pip(["-r", "requirements.lock", *arguments], total)
    if code == 0:
        print(f"Installed in {time.monotonic() - start:.0f} s", flush=True)
    return code


def project(arguments: list[str]) -> int:
    """Install implicitnn itself, editable, with the pinned packages it finds."""
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    return pip(["-e", ".", *offline, *arguments], 1)


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    sys.exit({"check": lambda _: check(), "lock": lock, "project": project}[what](rest))
