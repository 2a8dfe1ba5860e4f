"""Every page of a claim has its sections in one order, under one name each."""

import re

import pytest

from implicitnn._runs import project

ORDER = ("Statement", "Derivation", "Verdict", "What breaks", "Exercises", "Provenance")
PAGES = sorted((project.root() / "notebooks").glob("[0-8][0-9]_*.md"))


def headings(text):
    """Second-level headings outside code cells."""
    prose = re.sub(r"^```\{code-cell\}.*?^```$", "", text, flags=re.M | re.S)
    return re.findall(r"^## (.+)$", prose, flags=re.M)


def known(names):
    """Sections of the common order, by the first word of their heading."""
    found = [("Verdict" if name == "Verdicts" else name) for name in names]
    return [name for name in found if name in ORDER]


def test_there_are_pages():
    assert len(PAGES) >= 20


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_sections_come_in_one_order_under_one_name(path):
    names = headings(path.read_text(encoding="utf-8"))
    seen = known(names)
    assert seen == sorted(seen, key=ORDER.index)
    assert names[-1] == "Provenance"
    breaks = [name for name in names if name.startswith("What breaks")]
    assert set(breaks) <= {"What breaks"}
    if "Verdict" in seen:
        assert {"What breaks", "Exercises"} <= set(seen)


def test_a_page_out_of_order_is_seen():
    names = headings(
        "## Exercises\n```{code-cell} x\n## Statement\n```\n## Provenance\n## Verdicts\n"
    )
    assert known(names) == ["Exercises", "Provenance", "Verdict"]
    assert known(names) != sorted(known(names), key=ORDER.index)
