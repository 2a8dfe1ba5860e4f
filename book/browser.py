"""Find the Chromium that the page tests drive, or say how to install one."""

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = (
    "The page tests need Chromium and none was found.\n"
    "  Debian, Ubuntu:  sudo apt-get install chromium   (Ubuntu: chromium-browser)\n"
    "  macOS:           brew install --cask chromium\n"
    "or name one: make test CHROMIUM=/path/to/chromium\n"
    "Without a browser, `make test-lib` runs all other tests."
)


def find() -> str | None:
    """Path of the browser: $CHROMIUM when set, else the first known name on PATH."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


if __name__ == "__main__":
    if find() is None:
        sys.exit(MISSING)
