"""Judge the claims of book/claims.yml by stored rows.

The file holds ``schema: 1`` and a list ``claims``. A claim has ``id``, ``paper``, ``place``,
``statement``, ``kind`` (identity, asymptotic, numeric, empirical), ``hypotheses`` (a list),
``notebook`` (file stem), ``expected`` (``verdict`` and ``why``) and ``parts``. A part has

``name``
    Text shown in the table of verdicts.
``study``, ``where``
    The rows: those of the study in which each column named in ``where`` equals a value, is in a
    list, or lies between ``at_least`` and ``at_most``. Settings, seed and values are columns.
``by``, ``require``
    One line of the table per combination of the ``by`` columns; ``require`` lists values that must
    occur, as groups for a ``by`` column and within every group for another.
``seeds``
    Least number of different seeds behind a line: 2 unless given, 1 for a maximum or minimum.
``statistic``
    ``name`` and its columns, see the table. ``at: {n: largest}`` keeps, within a line, the rows of
    the largest (``smallest``, or a given) value of a column. ``confidence`` is 0.95 unless given.
``rule``
    One or more conditions, all needed: ``value_at_most``, ``value_at_least``, ``low_at_least``,
    ``low_at_most``, ``high_at_most``, ``high_at_least``, ``interval_contains``,
    ``interval_excludes`` (a number), ``value_within``, ``interval_within`` ([low, high]). Two
    one-sided tests at 5 % are ``confidence: 0.9`` with ``interval_within``.
``informative``
    True: shown, not counted.

=================  =======================  ==================================================
statistic          keys                     value and interval
=================  =======================  ==================================================
loglog_slope       x, y, [span]             :func:`implicitnn.statistics.loglog_slope`
median, mean       y, [at]                  median (bootstrap over seeds), mean (t interval)
paired_ratio       first, second, [at]      columns of one row; geometric mean of the ratio
paired_difference  first, second, [at]      columns of one row; mean difference
both paired        y, column, first,        column y in rows that differ in one setting,
                   second, [at]             ``column`` = first against second
group_ratio        y, column, [at]          largest over smallest median over values of column
maximum, minimum   y, [at]                  over all rows; no interval
=================  =======================  ==================================================

Verdicts: every counted line passes, *reproduced*; some, *partly reproduced*; none, *not
reproduced*. A line without all its rows makes the claim *not attempted*. Rows whose code or rule
has changed since make it *stale*; the lines are shown all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from implicitnn import statistics, sweeps
from implicitnn._book import words as _words
from implicitnn._book.ledger import PAIRED, Claim, LedgerError, Part, read
from implicitnn._runs import project as _project
from implicitnn._runs import provenance as _provenance
from implicitnn.statistics import Estimate

__all__ = ["Claim", "Evidence", "LedgerError", "Line", "Part", "Verdict", "gather", "judge",
           "judge_all", "load"]  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """What is known of a study: its stored rows, its current code hash, the cells of its grid."""

    rows: Sequence[sweeps.Row]
    code: str
    cells: Sequence[tuple[dict[str, Any], int]]


@dataclass(frozen=True)
class Line:
    """One line of a verdict: a group of rows, its statistic, and whether it meets the rule.

    ``passed`` is None when the rows do not suffice; ``problem`` then says why.
    """

    part: str
    group: dict[str, Any]
    rows: int
    seeds: int
    estimate: Estimate | None
    interval: bool
    rule: str
    passed: bool | None
    informative: bool
    problem: str = ""
    stale: bool = False


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the lines it rests on."""

    claim: Claim
    status: str
    lines: tuple[Line, ...]
    stale: bool
    rule_text: str

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the ledger explains."""
        return self.status == self.claim.expected


def load(path: str | Path | None = None) -> list[Claim]:
    """Return the claims of a file, by default the project's book/claims.yml.

    Raises
    ------
    LedgerError
        An unknown key, a missing one, a wrong type, a number that is not finite or beyond float64,
        a range that holds no number, an id used twice; the place is named.
    """
    return read(_project.ledger() if path is None else Path(path))


def gather(claim: Claim, studies: Mapping[str, sweeps.Study] | None = None) -> dict[str, Evidence]:
    """Return the stored paper-tier evidence of a claim; a study that does not exist is left out."""
    if studies is None:
        from implicitnn.studies import STUDIES

        studies = STUDIES
    found = {}
    for name in sorted({part.study for part in claim.parts}):
        if name in studies and "paper" in studies[name].grids:
            study = studies[name]
            code = _provenance.code_hash(study.row)
            found[name] = Evidence(sweeps.study_rows(study), code, study.cells("paper"))
    return found


def judge(claim: Claim, evidence: Mapping[str, Evidence] | None = None) -> Verdict:
    """Return the verdict on a claim, by default from the stored paper-tier rows."""
    if evidence is None:
        evidence = gather(claim)
    lines: list[Line] = []
    stale = False
    for part in claim.parts:
        known = evidence.get(part.study, Evidence([], "", []))
        kept = [row for row in known.rows if _matches(row.flat(), part)]
        changed = any(
            row.code != known.code or row.rules.get(claim.id) != claim.rule_hash for row in kept
        )
        stale = stale or (changed and not part.informative)
        try:
            lines += [replace(line, stale=changed) for line in _lines(part, kept, known)]
        except (KeyError, ValueError) as error:
            reason = error.args[0] if isinstance(error, KeyError) else error
            raise LedgerError(f"claim {claim.id}, part {part.name!r}: {reason}") from error
    status = _status([line.passed for line in lines if not line.informative], stale)
    texts = [f"{part.name}: {_words.part(part)}" for part in claim.parts]
    return Verdict(claim, status, tuple(lines), stale, "; ".join(texts))


def judge_all(claims: Iterable[Claim] | None = None) -> dict[str, Verdict]:
    """Return the verdict on every claim, by its id."""
    return {claim.id: judge(claim) for claim in (load() if claims is None else claims)}


def _status(passed: Sequence[bool | None], stale: bool) -> str:
    if not passed or None in passed:
        return "not attempted"
    if stale:
        return "stale"
    if all(passed):
        return "reproduced"
    return "partly reproduced" if any(passed) else "not reproduced"


def _matches(flat: Mapping[str, Any], part: Part, settings_only: bool = False) -> bool:
    """Return whether a row (or a cell, by its settings only) is among those the part asks for."""
    for column, wanted in part.where.items():
        if column not in flat:
            if settings_only:
                continue
            raise LedgerError(f"the rows of study {part.study!r} have no column {column!r}")
        value = flat[column]
        if isinstance(wanted, dict):
            low, high = wanted.get("at_least", value), wanted.get("at_most", value)
            if not low <= value <= high:
                return False
        elif value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def _lines(part: Part, rows: list[sweeps.Row], known: Evidence) -> list[Line]:
    present = {row.key for row in rows}
    cells = [{**settings, "seed": seed} for settings, seed in known.cells]
    expected = sum(_matches(cell, part, settings_only=True) for cell in cells)
    if not rows or (len(present) < expected and not _selects_values(part, cells)):
        return [_absent(part, {}, len(rows), f"{len(rows)} of {expected} cells are stored")]
    table = sweeps.frame(rows)
    settings = sorted({name for row in rows for name in row.settings})
    if part.by:
        grouped = table.groupby(_columns(table, part.by), sort=True)
        groups = [(dict(zip(part.by, key, strict=True)), own) for key, own in grouped]
    else:
        groups = [({}, table)]
    lines = [
        _absent(part, {column: value}, 0, "no rows")
        for column in part.by
        for value in part.require.get(column, [])
        if all(group[column] != value for group, _ in groups)
    ]
    for group, own in groups:
        gaps = _gaps(part, own)
        problem = f"no rows at {', '.join(gaps)}"
        lines.append(
            _absent(part, group, len(own), problem) if gaps else _line(part, group, own, settings)
        )
    return lines


def _gaps(part: Part, table: pd.DataFrame) -> list[str]:
    """Return the required values that a group's rows lack, in columns that do not make groups."""
    return [
        f"{column} = {value}"
        for column in _columns(table, set(part.require) - set(part.by))
        for value in part.require[column]
        if not (table[column] == value).any()
    ]


def _selects_values(part: Part, cells: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the part filters on a computed column, so that the grid fixes no count."""
    return any(column not in cell for column in part.where for cell in cells[:1])


def _columns(table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    for name in names:
        if name not in table:
            raise LedgerError(f"the rows have no column {name!r}, only {list(table)}")
    return list(names)


def _absent(part: Part, group: dict[str, Any], rows: int, problem: str) -> Line:
    text = _words.rule(part.rule)
    single = part.statistic["name"] in ("maximum", "minimum")
    return Line(part.name, group, rows, 0, None, not single, text, None, part.informative, problem)


def _line(part: Part, group: dict[str, Any], table: pd.DataFrame, settings: Sequence[str]) -> Line:
    stat = part.statistic
    for column, wanted in stat.get("at", {}).items():
        values = table[_columns(table, [column])[0]]
        chosen = {"largest": values.max, "smallest": values.min}.get(wanted, lambda w=wanted: w)()
        table = table[values == chosen]
    seeds = int(table["seed"].nunique())
    if seeds < part.seeds:
        return _absent(part, group, len(table), f"{seeds} seeds, {part.seeds} needed")
    if "span" in stat:
        xs = table[_columns(table, [stat["x"]])[0]]
        if xs.max() < stat["span"] * xs.min():
            problem = f"{stat['x']} spans {xs.min()} to {xs.max()}, a factor {stat['span']} needed"
            return _absent(part, group, len(table), problem)
    single = stat["name"] in ("maximum", "minimum")
    text = _words.rule(part.rule)
    blank = [c for c in _measured(part) if table[_columns(table, [c])[0]].isna().any()]
    if blank:
        problem = f"some rows hold no number in {', '.join(blank)}"
        return Line(part.name, group, len(table), seeds, None, not single, text, False,
                    part.informative, problem)  # fmt: skip
    estimate = _estimate(stat, table, settings)
    passed = all(_meets(estimate, key, value) for key, value in part.rule.items())
    return Line(part.name, group, len(table), seeds, estimate, not single, text, passed,
                part.informative)  # fmt: skip


def _measured(part: Part) -> list[str]:
    stat = part.statistic
    return [stat["y"]] if "y" in stat else [stat["first"], stat["second"]]


def _estimate(stat: Mapping[str, Any], table: pd.DataFrame, settings: Sequence[str]) -> Estimate:
    name, level = stat["name"], float(stat.get("confidence", 0.95))
    if name in PAIRED:
        first, second, seeds = _pairs(stat, table, settings)
        paired = {
            "paired_ratio": statistics.paired_ratio,
            "paired_difference": statistics.paired_difference,
        }
        return paired[name](first, second, seeds, confidence=level)
    y, seeds = table[stat["y"]].to_numpy(dtype=float), table["seed"].to_numpy()
    if name == "loglog_slope":
        return statistics.loglog_slope(table[stat["x"]], y, seeds, confidence=level)
    if name == "group_ratio":
        groups = table[_columns(table, [stat["column"]])[0]].to_numpy()
        return statistics.group_ratio(y, groups, seeds, confidence=level)
    if name in ("maximum", "minimum"):
        value = float(y.max() if name == "maximum" else y.min())
        return Estimate(value, value, value, int(table["seed"].nunique()))
    plain = {"median": statistics.median, "mean": statistics.mean}
    return plain[name](y, seeds, confidence=level)


def _pairs(
    stat: Mapping[str, Any], table: pd.DataFrame, settings: Sequence[str]
) -> tuple[Any, Any, Any]:
    """Return (first, second, seeds), matched row by row.

    Both rows of a pair agree in every setting but the column and those that change along with it.
    """
    if "y" not in stat:
        names = _columns(table, [stat["first"], stat["second"]])
        return table[names[0]], table[names[1]], table["seed"]
    column = _columns(table, [stat["column"]])[0]
    halves = [table[table[column] == stat[side]] for side in ("first", "second")]
    others = [c for c in settings if c not in (column, *stat.get("along", []))]
    a, b = (
        half.assign(**{c: half[c].map(repr) for c in others}).set_index([*others, "seed"])[
            stat["y"]
        ]
        for half in halves
    )
    if a.empty or set(a.index) != set(b.index) or a.index.has_duplicates:
        raise ValueError(
            f"rows with {column} = {stat['first']!r} and {stat['second']!r} do not pair: "
            f"{len(a)} and {len(b)} rows"
        )
    b = b.loc[a.index]
    return a.to_numpy(), b.to_numpy(), a.index.get_level_values("seed").to_numpy()


def _meets(estimate: Estimate, key: str, bound: Any) -> bool:
    if key == "interval_contains":
        return bool(estimate.low <= bound <= estimate.high)
    if key == "interval_excludes":
        return not estimate.low <= bound <= estimate.high
    if key == "interval_within":
        return bool(bound[0] <= estimate.low and estimate.high <= bound[1])
    if key == "value_within":
        return bool(bound[0] <= estimate.value <= bound[1])
    quantity, direction = key.split("_", 1)
    number = float(getattr(estimate, quantity))
    return bool(number <= bound if direction == "at_most" else number >= bound)
