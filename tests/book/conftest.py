"""A browser for the page tests; the build makes the pages first (`make test`)."""

import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.book.site import HTML, ROOT

sys.path.insert(0, str(ROOT / "book"))
import browser as chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium with everything switched off that reaches for the network by itself."""
    path = chromium.find()
    assert path is not None, chromium.MISSING
    assert (HTML / "index.html").is_file(), "no book: run `make book`"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, headless=True, args=list(chromium.FLAGS[1:])
        )
        yield running
        running.close()
