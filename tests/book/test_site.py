"""The files of the built site: complete, small, linked, captioned; no browser needed."""

import re

import pytest
import yaml

from tests.book.site import (
    GENERATED,
    HTML,
    ROOT,
    anchors,
    article,
    broken,
    file_of,
    is_remote,
    pages,
    soup,
    toc_documents,
)

LIMIT = 3_000_000
DOCUMENTS = toc_documents()


def test_every_notebook_is_in_the_table_of_contents():
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.md")}
    listed = {name for name in DOCUMENTS if name.startswith("notebooks/")}
    assert notebooks == listed


def test_every_prose_page_is_in_the_table_of_contents():
    prose = {path.stem for path in (ROOT / "book").glob("*.md")}
    assert prose == {name for name in DOCUMENTS if "/" not in name}


def test_the_site_has_exactly_the_listed_pages():
    assert set(pages()) == set(DOCUMENTS) | GENERATED


@pytest.mark.parametrize("document", DOCUMENTS)
def test_page_has_a_title_and_text(document):
    title = article(document).find("h1")
    assert title is not None and title.get_text(strip=True)
    assert len(article(document).get_text()) > 300


@pytest.mark.parametrize("document", DOCUMENTS)
def test_page_with_what_it_shows_is_under_three_megabytes(document):
    images = {tag["src"] for tag in article(document).find_all("img")}
    sizes = [(file_of(document).parent / source).stat().st_size for source in images]
    assert file_of(document).stat().st_size + sum(sizes) < LIMIT


@pytest.mark.parametrize("document", [*DOCUMENTS, *sorted(GENERATED)])
def test_every_internal_link_resolves(document):
    links = {tag["href"] for tag in soup(file_of(document)).find_all("a", href=True)}
    problems = [broken(document, url) for url in sorted(links) if url and not is_remote(url)]
    assert [problem for problem in problems if problem] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, *sorted(GENERATED)])
def test_nothing_loaded_by_a_page_is_remote(document):
    page = soup(file_of(document))
    loaded = [tag["src"] for tag in page.find_all(["script", "img", "iframe"], src=True)]
    loaded += [tag["href"] for tag in page.find_all("link", href=True)]
    assert [url for url in loaded if is_remote(url) and not url.startswith("data:")] == []
    scripts = " ".join(tag.get_text() for tag in page.find_all("script"))
    assert not re.search(r"https?://", scripts)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_image_has_a_description(document):
    alts = [tag.get("alt", "").strip() for tag in article(document).find_all("img")]
    assert all(len(alt) >= 40 and " " in alt for alt in alts), alts


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_image_stands_in_a_numbered_figure_with_a_caption(document):
    for image in article(document).find_all("img"):
        figure = image.find_parent("figure")
        assert figure is not None, image["src"]
        number = figure.find(class_="caption-number").get_text()
        assert re.match(r"Fig\. \d+", number)
        assert len(figure.find(class_="caption-text").get_text()) > 40


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.startswith("notebooks/")])
def test_every_figure_of_a_notebook_leads_to_its_source(document):
    for figure in article(document).find_all("figure"):
        link = figure.find("a", class_="download")
        assert link is not None, figure.get("id")
        source = (file_of(document).parent / link["href"]).resolve()
        original = ROOT / "notebooks" / f"{document.split('/')[1]}.md"
        assert source.read_bytes() == original.read_bytes()
        assert re.search(r"[Tt]ier (quick|paper)", figure.find(class_="caption-text").get_text())


def test_figures_are_in_the_book():
    figures = [figure for name in DOCUMENTS for figure in article(name).find_all("figure")]
    assert len(figures) >= 8


def test_figure_numbers_are_unique():
    captions = [
        tag for name in DOCUMENTS for tag in article(name).find_all(class_="caption-number")
    ]
    figures = [text for tag in captions if (text := tag.get_text().strip()).startswith("Fig.")]
    assert len(figures) == len(set(figures))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_unfinished_words(document):
    text = article(document).get_text()
    assert not re.search(r"\b(TODO|FIXME|TBD|lorem ipsum)\b", text, re.IGNORECASE)
    assert "??" not in text and "Traceback" not in text


def claims() -> list[dict]:
    return yaml.safe_load((ROOT / "book" / "claims.yml").read_text())["claims"]


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim["id"])
def test_every_claim_has_a_verdict_on_its_page_and_in_the_ledger(claim):
    links = article("notebooks/90_ledger").select("table.inn-ledger a")
    targets = {link.get_text(): link["href"] for link in links}
    assert targets[claim["id"]] == f"{claim['notebook']}.html"
    page = article(f"notebooks/{claim['notebook']}")
    tables = page.select(".inn-badge, table.inn-verdicts")
    texts = [tag.find_parent(class_="inn-table") or tag.parent for tag in tables]
    assert any(re.search(rf"\b{claim['id']}\b", tag.get_text()) for tag in texts)
    statuses = "reproduced|partly reproduced|not reproduced|not attempted"
    assert any(re.search(statuses, tag.get_text()) for tag in tables)


def test_no_claim_is_shown_as_stale():
    stale = [name for name in DOCUMENTS if article(name).select(".inn-stale")]
    assert stale == []


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.startswith("notebooks/")])
def test_every_notebook_page_ends_with_its_provenance(document):
    tables = article(document).select("table.inn-provenance")
    assert len(tables) == 1
    text = tables[0].get_text(" ")
    assert "quick" in text and "seed" in text.lower()


def test_anchors_are_found():
    assert "search" not in anchors(HTML / "index.html")
    assert len(anchors(HTML / "index.html")) > 3
