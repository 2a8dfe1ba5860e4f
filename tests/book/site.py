"""The built site as the page tests see it: parsed HTML and where its links lead."""

from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
# Pages that Sphinx writes by itself.
GENERATED = {"genindex", "search", "prf-prf"}


def toc_documents() -> list[str]:
    """Documents of the table of contents, in reading order."""
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
    chapters = (entry["file"] for part in toc["parts"] for entry in part["chapters"])
    return [toc["root"], *chapters]


def pages() -> list[str]:
    """Every page of the site, as document names."""
    files = (path.relative_to(HTML).with_suffix("") for path in HTML.rglob("*.html"))
    return sorted(name.as_posix() for name in files if name.parts[0] not in {"_static", "_sources"})


def file_of(document: str) -> Path:
    """File of a page."""
    return HTML / f"{document}.html"


@cache
def soup(path: Path) -> BeautifulSoup:
    """Parsed page."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    """Every id and name a link can point at."""
    found = soup(path).find_all(True)
    ids = {tag["id"] for tag in found if tag.has_attr("id")}
    return frozenset(
        ids | {tag["name"] for tag in found if tag.name == "a" and tag.has_attr("name")}
    )


def article(document: str) -> BeautifulSoup:
    """Return the part of a page that its author wrote."""
    found = soup(file_of(document)).find("article", class_="bd-article")
    assert found is not None, f"{document} has no article"
    return found


def is_remote(url: str) -> bool:
    """Whether a link leaves the site."""
    return bool(urlsplit(url).scheme or urlsplit(url).netloc)


def broken(document: str, url: str) -> str | None:
    """What is wrong with a link of a page, None when it leads somewhere."""
    parts = urlsplit(url)
    here = file_of(document)
    target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
    if not target.is_file():
        return f"{document}: {url} does not exist"
    if (
        parts.fragment
        and target.suffix == ".html"
        and unquote(parts.fragment) not in anchors(target)
    ):
        return f"{document}: {url} has no such anchor"
    return None
