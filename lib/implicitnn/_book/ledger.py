"""The form of book/claims.yml: read it strictly and turn it into claims."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from implicitnn._runs.provenance import digest

KINDS = ("identity", "asymptotic", "numeric", "empirical")
VERDICTS = ("reproduced", "partly reproduced", "not reproduced", "not attempted")
NUMBER_RULES = (
    "value_at_most", "value_at_least", "low_at_least", "low_at_most", "high_at_most",
    "high_at_least", "interval_contains", "interval_excludes",
)  # fmt: skip
RANGE_RULES = ("value_within", "interval_within")
PAIRED = ("paired_ratio", "paired_difference")
# Keys of each statistic: those that must be there, those that may.
STATISTICS: dict[str, tuple[set[str], set[str]]] = {
    "loglog_slope": ({"x", "y"}, {"span", "confidence"}),
    "median": ({"y"}, {"at", "confidence"}),
    "mean": ({"y"}, {"at", "confidence"}),
    "paired_ratio": ({"first", "second"}, {"y", "column", "along", "at", "confidence"}),
    "paired_difference": ({"first", "second"}, {"y", "column", "along", "at", "confidence"}),
    "group_ratio": ({"y", "column"}, {"at", "confidence"}),
    "maximum": ({"y"}, {"at"}),
    "minimum": ({"y"}, {"at"}),
}
Scalar = str | int | float | bool


@dataclass(frozen=True)
class Part:
    """One statistic of one study with the rule that each of its groups must meet."""

    name: str
    study: str
    where: Mapping[str, Any]
    by: tuple[str, ...]
    require: Mapping[str, Sequence[Scalar]]
    seeds: int
    statistic: Mapping[str, Any]
    rule: Mapping[str, Any]
    informative: bool


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, where it stands, and how it is judged."""

    id: str
    paper: str
    place: str
    statement: str
    kind: str
    hypotheses: tuple[str, ...]
    notebook: str
    expected: str
    why: str
    parts: tuple[Part, ...]

    @property
    def rule_hash(self) -> str:
        """Hash of everything that decides the verdict; prose is no part of it."""
        decisive = [
            [p.study, p.where, p.by, p.require, p.seeds, p.statistic, p.rule, p.informative]
            for p in self.parts
        ]
        return digest([json.dumps(decisive, sort_keys=True)])


class LedgerError(ValueError):
    """The file of claims is not of the form it must have; the message names the place."""


# The parser in C reads the ledger ten times as fast, where PyYAML was built with it.
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]
    """YAML in which a key given twice is an error, not a silent override."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = loader.construct_pairs(node, deep=True)
    keys = [key for key, _ in pairs]
    if not all(isinstance(key, str | int | float) for key in keys):
        raise LedgerError(f"keys must be texts, near line {node.start_mark.line + 1}")
    for key in keys:
        if keys.count(key) > 1:
            raise LedgerError(f"key {key!r} is given twice near line {node.start_mark.line + 1}")
    return dict(pairs)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(path: Path) -> list[Claim]:
    """Return the claims of a file; any departure from the form raises LedgerError."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} is not valid YAML in UTF-8: {error}") from error
    top = _keys(data, str(path), {"schema", "claims"})
    if isinstance(top["schema"], bool) or top["schema"] != 1:
        raise LedgerError(f"{path}: schema must be 1, got {top['schema']!r}")
    claims = [_claim(item, i) for i, item in enumerate(_list(top["claims"], "claims"))]
    ids = [claim.id for claim in claims]
    for name in ids:
        if ids.count(name) > 1:
            raise LedgerError(f"the id {name!r} is used {ids.count(name)} times")
    return claims


def _claim(data: Any, index: int) -> Claim:
    name = data.get("id") if isinstance(data, dict) else None
    place = f"claim {name}" if isinstance(name, str) else f"claims[{index}]"
    texts = {"id", "paper", "place", "statement", "kind", "notebook"}
    d = _keys(data, place, texts | {"hypotheses", "expected", "parts"})
    for key in sorted(texts):
        _text(d[key], f"{place}.{key}")
    _choice(d["kind"], f"{place}.kind", KINDS)
    expected = _keys(d["expected"], f"{place}.expected", {"verdict", "why"})
    _choice(expected["verdict"], f"{place}.expected.verdict", VERDICTS)
    parts = [_part(p, f"{place}.parts[{i}]") for i, p in enumerate(_list(d["parts"], place))]
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise LedgerError(f"{place}: two parts have the same name, among {names}")
    hypotheses = _list(d["hypotheses"], f"{place}.hypotheses")
    return Claim(
        d["id"], d["paper"], d["place"], d["statement"].strip(), d["kind"],
        tuple(_text(h, f"{place}.hypotheses") for h in hypotheses), d["notebook"],
        expected["verdict"], _text(expected["why"], f"{place}.expected.why"), tuple(parts),
    )  # fmt: skip


def _part(data: Any, place: str) -> Part:
    needed = {"name", "study", "statistic", "rule"}
    d = _keys(data, place, needed, {"where", "by", "require", "seeds", "informative"})
    by = tuple(_text(b, f"{place}.by") for b in _list(d.get("by", []), f"{place}.by"))
    require = _keys(d.get("require", {}), f"{place}.require", set(), None)
    for column, values in require.items():
        for value in _list(values, f"{place}.require.{column}"):
            _scalar(value, f"{place}.require.{column}")
    statistic = _statistic(d["statistic"], f"{place}.statistic")
    single = statistic["name"] in ("maximum", "minimum")
    seeds = d.get("seeds", 1 if single else 2)
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < (1 if single else 2):
        raise LedgerError(
            f"{place}.seeds must be an integer, at least 2 for an interval; got {seeds!r}"
        )
    informative = d.get("informative", False)
    if not isinstance(informative, bool):
        raise LedgerError(f"{place}.informative must be true or false, got {informative!r}")
    return Part(
        _text(d["name"], f"{place}.name"), _text(d["study"], f"{place}.study"),
        _where(d.get("where", {}), f"{place}.where"), by, require, seeds, statistic,
        _rule(d["rule"], f"{place}.rule", single), informative,
    )  # fmt: skip


def _statistic(data: Any, place: str) -> dict[str, Any]:
    name = data.get("name") if isinstance(data, dict) else None
    _choice(name, f"{place}.name", tuple(STATISTICS))
    needed, optional = STATISTICS[str(name)]
    d = _keys(data, place, {"name"} | needed, optional)
    if name in PAIRED and ("y" in d) != ("column" in d):
        raise LedgerError(f"{place}: y and column go together; without them first and second "
                          "are columns")  # fmt: skip
    if name not in PAIRED or "y" not in d:
        for key in ("x", "y", "column", "first", "second"):
            if key in d:
                _text(d[key], f"{place}.{key}")
    if "along" in d and "column" not in d:
        raise LedgerError(f"{place}.along names settings that change with column: give column")
    for value in _list(d.get("along", []), f"{place}.along"):
        _text(value, f"{place}.along")
    if "span" in d and _number(d["span"], f"{place}.span") < 1:
        raise LedgerError(f"{place}.span must be at least 1, got {d['span']!r}")
    if "confidence" in d and not 0 < _number(d["confidence"], f"{place}.confidence") < 1:
        raise LedgerError(f"{place}.confidence must lie between 0 and 1, got {d['confidence']!r}")
    for column, value in _keys(d.get("at", {}), f"{place}.at", set(), None).items():
        _scalar(value, f"{place}.at.{column}")
    return d


def _rule(data: Any, place: str, single: bool) -> dict[str, Any]:
    d = _keys(data, place, set(), {*NUMBER_RULES, *RANGE_RULES})
    if not d:
        raise LedgerError(f"{place} must hold at least one condition")
    for key, value in d.items():
        if single and not key.startswith("value"):
            raise LedgerError(f"{place}.{key}: a maximum or minimum has no interval")
        if key in NUMBER_RULES:
            _number(value, f"{place}.{key}")
            continue
        ends = [_number(v, f"{place}.{key}") for v in _list(value, f"{place}.{key}")]
        if len(ends) != 2 or ends[0] > ends[1]:
            raise LedgerError(f"{place}.{key} must be [low, high], got {value!r}")
    return d


def _where(data: Any, place: str) -> dict[str, Any]:
    d = _keys(data, place, set(), None)
    for column, wanted in d.items():
        if isinstance(wanted, dict):
            bounds = _keys(wanted, f"{place}.{column}", set(), {"at_least", "at_most"})
            ends = {key: _number(bound, f"{place}.{column}") for key, bound in bounds.items()}
            if ends.get("at_least", -math.inf) > ends.get("at_most", math.inf):
                raise LedgerError(f"{place}.{column} holds no number, got {wanted!r}")
        elif wanted == []:
            raise LedgerError(f"{place}.{column} must name at least one value")
        else:
            for value in wanted if isinstance(wanted, list) else [wanted]:
                _scalar(value, f"{place}.{column}")
    return d


def _keys(
    data: Any, place: str, needed: set[str], optional: Iterable[str] | None = ()
) -> dict[str, Any]:
    """Return a mapping with every needed key and no unknown one (optional None: any key)."""
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise LedgerError(f"{place} must be a mapping with text keys, got {data!r}")
    missing = sorted(needed - set(data))
    unknown = [] if optional is None else sorted(set(data) - needed - set(optional))
    if missing or unknown:
        what = [f"lacks {missing}"] * bool(missing) + [f"has unknown {unknown}"] * bool(unknown)
        raise LedgerError(f"{place} {' and '.join(what)}")
    return data


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise LedgerError(f"{place} must be a list, got {value!r}")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise LedgerError(f"{place} must be a text, got {value!r}")
    return value


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = " (YAML reads 1e-12 as text: write 1.0e-12)" if isinstance(value, str) else ""
        raise LedgerError(f"{place} must be a number, got {value!r}{hint}")
    try:
        number = float(value)
    except OverflowError:
        raise LedgerError(f"{place} must lie within float64, got an integer beyond it") from None
    if not math.isfinite(number):
        raise LedgerError(f"{place} must be finite, got {value!r}")
    return number


def _scalar(value: Any, place: str) -> None:
    if not isinstance(value, str | int | float):
        raise LedgerError(f"{place} must be a text, a number or a truth value, got {value!r}")
    if not isinstance(value, str | bool):
        _number(value, place)


def _choice(value: Any, place: str, options: Sequence[str]) -> None:
    if value not in options:
        raise LedgerError(f"{place} must be one of {', '.join(options)}; got {value!r}")
