"""Every page opened from file:// in headless Chromium."""

import re
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page

from tests.book.site import HTML, file_of, toc_documents

DOCUMENTS = toc_documents()
# TeX that a reader must never see, outside code.
RAW = re.compile(
    r"\$\$|\\\(|\\\[|\\(alpha|beta|tau|sigma|frac|sqrt|mathbb|operatorname|begin|left)\b"
)
VISIBLE = """
() => {
  const copy = document.querySelector('article.bd-article').cloneNode(true);
  copy.querySelectorAll('mjx-container, pre, code, script, style').forEach(e => e.remove());
  return copy.textContent;
}
"""
TYPESET = "() => window.MathJax && MathJax.startup && MathJax.startup.promise.then(() => true)"


@dataclass
class Visit:
    """What a page did while it was open."""

    page: Page
    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def visit(browser: Browser, url: str, width: int = 1280) -> Visit:
    """Open a page and wait until its formulas are set."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    seen = Visit(page)
    page.on("request", lambda r: None if local(r.url) else seen.outside.append(r.url))
    page.on("requestfailed", lambda r: seen.failed.append(r.url))
    page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.goto(url, wait_until="load")
    page.wait_for_function(TYPESET)
    return seen


def local(url: str) -> bool:
    """Whether a request stays on this machine's files."""
    return url.startswith(("file://", "data:", "blob:", "about:"))


@pytest.fixture(scope="module", params=DOCUMENTS)
def visited(browser: Browser, request):
    """One page after loading, at the width of a laptop."""
    seen = visit(browser, file_of(request.param).as_uri())
    yield seen
    seen.page.close()


def test_no_request_leaves_the_machine(visited):
    assert visited.outside == []


def test_everything_a_page_asks_for_is_there(visited):
    assert visited.failed == []


def test_no_error_in_the_console(visited):
    assert visited.errors == []


def test_no_raw_tex_is_visible(visited):
    assert RAW.findall(visited.page.evaluate(VISIBLE)) == []


def test_formulas_are_set_without_errors(visited):
    assert visited.page.locator("mjx-merror").count() == 0
    assert visited.page.locator(".math:not(:has(mjx-container))").count() == 0


def test_every_image_is_drawn(visited):
    widths = "() => [...document.querySelectorAll('article img')].map(i => i.naturalWidth)"
    assert all(width > 0 for width in visited.page.evaluate(widths))


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_scrolls_sideways(visited, width):
    visited.page.set_viewport_size({"width": width, "height": 900})
    overflow = visited.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0


def test_formulas_exist_in_the_book(browser):
    seen = visit(browser, file_of("notation").as_uri())
    assert seen.page.locator("mjx-container").count() > 10
    seen.page.close()


@pytest.mark.parametrize("word", ["kernel", "errata", "mixture"])
def test_search_finds_pages(browser, word):
    seen = visit(browser, f"{(HTML / 'search.html').as_uri()}?q={word}")
    results = seen.page.locator("#search-results ul.search li")
    results.first.wait_for(timeout=20_000)
    links = seen.page.locator("#search-results ul.search li a").evaluate_all(
        "all => all.map(a => a.href.split(/[?#]/)[0])"
    )
    assert len(links) >= 1
    names = {f"{document}.html" for document in DOCUMENTS}
    assert all(link.removeprefix(HTML.as_uri() + "/") in names for link in links)
    assert seen.errors == [] and seen.outside == []
    seen.page.close()


def test_search_says_when_it_finds_nothing(browser):
    seen = visit(browser, f"{(HTML / 'search.html').as_uri()}?q=zyxwvut")
    seen.page.locator("#search-results p.search-summary").wait_for(timeout=20_000)
    seen.page.wait_for_function(
        "() => document.querySelector('#search-results').innerText.includes('did not match')"
    )
    assert seen.page.locator("#search-results ul.search li").count() == 0
    seen.page.close()


def test_dark_mode_keeps_figures_on_a_light_sheet(browser):
    seen = visit(browser, file_of("notebooks/03_theorem_1").as_uri())
    seen.page.evaluate("() => document.documentElement.setAttribute('data-theme', 'dark')")
    image = seen.page.locator("article figure img").first
    assert image.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.close()
