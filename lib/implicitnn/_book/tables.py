"""Tables shown on the pages, from one content in HTML, in Markdown and as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from implicitnn._book import words as _words
from implicitnn.claims import Line, Verdict

STATUSES = (
    "reproduced",
    "partly reproduced",
    "not reproduced",
    "not attempted",
    "stale",
)


@dataclass(frozen=True)
class Cell:
    """Text of a table cell; ``status`` makes it a coloured badge, ``lead`` is bold before it."""

    text: str
    status: str = ""
    lead: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a class for the style sheet, a caption, a head and rows.

    A row of one cell heads the rows below it and spans the table.
    """

    kind: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def bundle(self) -> dict[str, str]:
        """Return the table for each kind of output."""
        return {
            "text/html": self.html(),
            "text/markdown": self.markdown(),
            "text/plain": self.plain(),
        }

    def html(self) -> str:
        """Return the table as HTML that scrolls sideways on a narrow screen."""
        heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in self.head)
        body = "".join(self._html_row(row) for row in self.rows)
        label = escape(self.caption, quote=True)
        return (
            f'<div class="inn-table" tabindex="0" role="region" aria-label="{label}">'
            f'<table class="inn-{self.kind}"><caption>{_words.symbols(self.caption)}</caption>'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = [[_markdown_cell(cell) for cell in row] for row in self.rows]
        rows = [row + [""] * (len(self.head) - len(row)) for row in rows]
        lines = [[_markdown(text) for text in self.head], ["---"] * len(self.head), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def plain(self) -> str:
        """Return the table as text, one row a line."""
        rows = ["; ".join(cell.lead + cell.text for cell in row) for row in self.rows]
        return "\n".join([self.caption, *rows])

    def _html_row(self, row: tuple[Cell, ...]) -> str:
        if len(row) > 1:
            return f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>"
        span = f'<th scope="rowgroup" colspan="{len(self.head)}">{_html(row[0])}</th>'
        return f'<tr class="inn-part">{span}</tr>'


def _html(cell: Cell) -> str:
    lead = f"<strong>{_words.symbols(cell.lead)}</strong>" if cell.lead else ""
    badge = badge_html(cell.status, cell.text) if cell.status else ""
    return lead + (badge or _words.symbols(cell.text))


def _markdown_cell(cell: Cell) -> str:
    return (f"**{_markdown(cell.lead)}**" if cell.lead else "") + _markdown(cell.text)


def badge_html(status: str, text: str) -> str:
    """Return a badge whose words, not its colour alone, carry the status."""
    if status not in STATUSES:
        raise ValueError(f"status must be one of {STATUSES}, got {status!r}")
    return f'<span class="inn-badge inn-{status.replace(" ", "-")}">{escape(text)}</span>'


def _markdown(text: str) -> str:
    for mark in "\\|_*`$[]<":
        text = text.replace(mark, "\\" + mark)
    return text


def pairs(kind: str, caption: str, items: Iterable[tuple[str, str]]) -> Table:
    """Return a table of two columns."""
    rows = tuple((Cell(key), Cell(text)) for key, text in items)
    return Table(kind, caption, ("Item", "Value"), rows)


def verdict(item: Verdict) -> Table:
    """Return the table of one claim: under each part, with its rule, the outcome of every line."""
    head = ("Group", "Value [interval]", "Outcome")
    rules = {
        part.name: f": {_words.statistic(part.statistic)}; {_words.rule(part.rule)}"
        for part in item.claim.parts
    }
    rows: list[tuple[Cell, ...]] = []
    above = ""
    for line in item.lines:
        if line.part != above:
            lead = line.part + (" (shown, not counted)" if line.informative else "")
            rows.append((Cell(rules[line.part], lead=lead),))
        texts = (_words.group(line.group), measured(line), _outcome(line))
        rows.append(tuple(map(Cell, texts)))
        above = line.part
    caption = f"Claim {item.claim.id}, {item.claim.place}: {_evidence(item)}"
    return Table("verdicts", caption, head, tuple(rows))


def verdicts(items: Sequence[Verdict]) -> dict[str, str]:
    """Return one table for each claim, under verdict, statement and comment, for each output."""
    bundle: dict[str, list[str]] = {"text/html": [], "text/markdown": [], "text/plain": []}
    for item in items:
        name, text, why = f"{item.claim.id}: {item.status}", item.claim.statement, item.claim.why
        heads = {
            "text/html": f"<p>{badge_html(item.status, name)} {_words.symbols(text)}</p>"
            f"<p>{_words.symbols(why)}</p>",
            "text/markdown": f"**{_markdown(name)}.** {_markdown(text)}\n\n{_markdown(why)}\n",
            "text/plain": f"{name}. {text}\n{why}",
        }
        body = verdict(item).bundle()
        for kind, head in heads.items():
            bundle[kind] += [head, body[kind]]
    return {kind: "\n".join(parts) for kind, parts in bundle.items()}


def _evidence(item: Verdict) -> str:
    if not any(line.rows for line in item.lines):
        return "no rows of tier paper are stored"
    seeds = sorted({line.seeds for line in item.lines})
    span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "seed" if seeds == [1] else "seeds"
    state = "some of them stale" if item.stale else "all up to date"
    rows = max(line.rows for line in item.lines)
    return (
        f"{held(item)} lines hold, from stored rows of tier paper "
        f"(up to {rows} rows a line, {span} {noun}, {state})"
    )


def measured(line: Line) -> str:
    """Return a line's value and interval, or why there is none."""
    if line.estimate is None:
        return line.problem
    found = line.estimate
    if not line.interval:
        return _words.number(found.value)
    return _words.interval(found.value, found.low, found.high)


def _outcome(line: Line) -> str:
    return {True: "holds", False: "fails", None: "no evidence"}[line.passed]


def held(item: Verdict) -> str:
    """Return how many of a verdict's counted lines hold, such as '4 of 5'."""
    counted = [line.passed for line in item.lines if not line.informative]
    return f"{sum(passed is True for passed in counted)} of {len(counted)}"


def _place(item: Verdict) -> str:
    # Claims of the book itself stand in no paper; the file of claims marks them X.
    paper = "" if item.claim.paper == "X" else f"Paper {item.claim.paper}, "
    return f"{paper}{item.claim.place}"


def ledger(items: Sequence[Verdict]) -> Table:
    """Return the overview of all claims: place and kind, statement, verdict with its lines."""
    head = ("Claim", "Place and kind", "Statement", "Verdict", "Lines that hold")
    rows = tuple(
        (
            Cell(item.claim.id),
            Cell(f"{_place(item)} ({item.claim.kind})"),
            Cell(item.claim.statement),
            Cell(item.status, item.status),
            Cell(held(item)),
        )
        for item in items
    )
    return Table("ledger", "Every claim with its verdict", head, rows)
