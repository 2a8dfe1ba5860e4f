"""Statistics and rules of the ledger in plain words, and numbers as they are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from html import escape, unescape
from typing import Any

from implicitnn._book.ledger import Part

_QUANTITY = {
    "value": "value", "low": "lower end of the interval", "high": "upper end of the interval",
}  # fmt: skip

_GREEK = [
    "alpha", "beta", "gamma", "eta", "kappa", "lambda", "mu", "phi", "psi", "rho", "sigma", "tau",
    "theta", "Phi",
]  # fmt: skip
_NAME = rf"({'|'.join(_GREEK)}|[A-Za-z])"
# A Greek letter with an optional index, or a Latin letter with an index: tau0, sigma_a2, C_0.
_INDEXED = re.compile(rf"(?<![\w&]){_NAME}(_?)([A-Za-z]?\d?|all|min|max)(?!\w)")
# Names in the code of squares.
_SQUARES = ("sigma_a2", "sigma_b2", "sigma_c2", "gamma2", "kappa2")
_POWER = re.compile(r"\^(?:\{([^{}]+)\}|\(([^()]+)\)|([A-Za-z0-9]+))")


def symbols(text: str) -> str:
    """Return a text with formulas written in ASCII as HTML with letters, indices and powers.

    Names of columns, which have more than one letter before an underscore, stay as they are.

    Examples
    --------
    >>> symbols("O(n^{-1/2}), tau0^2 = tr C_0/p, log ck_absolute")
    'O(n<sup>\u22121/2</sup>), \u03c4<sub>0</sub><sup>2</sup> = tr C<sub>0</sub>/p, log ck_absolute'
    >>> symbols("sigma_min(Phi), rho_b, theta")
    '\u03c3<sub>min</sub>(\u03a6), \u03c1<sub>b</sub>, \u03b8'
    """
    text = _POWER.sub(lambda m: f"<sup>{m[1] or m[2] or m[3]}</sup>", escape(text))
    text = _INDEXED.sub(_index, text).replace("sqrt", "\u221a")
    return re.sub(r"(?<![\w.)-])-(?=[\d\u03b1-\u03c9])", "\u2212", text)


def _index(match: re.Match[str]) -> str:
    name, mark, index = match.groups()
    if name not in _GREEK and not mark:
        return match[0]
    letter = f"&{name};" if name in _GREEK else name
    if match[0] in _SQUARES:
        return unescape(letter) + (f"<sub>{index[0]}</sub>" if mark else "") + "<sup>2</sup>"
    return unescape(letter) + (f"<sub>{index}</sub>" if index else mark)


def number(value: float) -> str:
    """Return a number with four significant digits, or more where it would read as one.

    A number beside one keeps two digits of its distance from one, up to twelve decimals.

    Examples
    --------
    >>> number(-0.53119), number(1.5e-13), number(1600.0)
    ('-0.5312', '1.5e-13', '1600')
    >>> number(0.99999876), number(1.0), number(0.9999999999)
    ('0.9999988', '1', '0.9999999999')
    """
    beside = _beside_one(value)
    if beside is not None:
        text = f"{value:.{beside}f}"
        return text.rstrip("0") if float(text) == value else text
    return _exponent(f"{value:.4g}")


def interval(value: float, low: float, high: float) -> str:
    """Return a value and its interval, ``value [low, high]``, all to the same decimal place.

    Four significant digits of the value are shown, or as many as tell the value from both ends,
    and from one. Fifteen are the most.

    Examples
    --------
    >>> interval(17.0, 15.41, 18.59), interval(0.99999876, 0.9999984, 0.9999991)
    ('17.00 [15.41, 18.59]', '0.9999988 [0.9999984, 0.9999991]')
    >>> interval(9.928e-5, 9.619e-5, 1.024e-4), interval(1.0, 1.0, 1.0)
    ('9.928e-5 [9.619e-5, 1.0240e-4]', '1 [1, 1]')
    """
    triple = (value, low, high)
    size = max(map(abs, triple))
    if not math.isfinite(size) or size == 0 or value == low == high == round(value):
        return "{} [{}, {}]".format(*map(number, triple))
    gaps = [-_order(gap) for gap in (value - low, high - value) if gap]
    wanted = [3 - _order(value or size), *gaps, _beside_one(value)]
    places = max(places for places in wanted if places is not None)
    places = min(places, 14 - _order(size))
    texts = (_fixed(x, places, scientific=not -5 < _order(value or size) < 6) for x in triple)
    return "{} [{}, {}]".format(*texts)


def _order(value: float) -> int:
    """Return the power of ten of the leading digit."""
    return math.floor(math.log10(abs(value)))


def _beside_one(value: float) -> int | None:
    """Return the decimals of a number that four digits would show as one, else None."""
    gap = abs(abs(value) - 1)
    return min(1 - _order(gap), 12) if 0 < gap < 5e-4 else None


def _fixed(value: float, places: int, *, scientific: bool) -> str:
    """Return a number to so many decimal places."""
    if scientific and value:
        return _exponent(f"{value:.{max(places + _order(value), 0)}e}")
    return f"{value:.{max(places, 0)}f}"


def _exponent(text: str) -> str:
    """Return the text of a number with its exponent as short as it can be."""
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def rule(conditions: Mapping[str, Any]) -> str:
    """Return the conditions of a rule as one phrase.

    Examples
    --------
    >>> rule({"high_at_most": -0.4})
    'upper end of the interval at most -0.4'
    >>> rule({"interval_within": [-0.5, 0.5]})
    'interval within [-0.5, 0.5]'
    """
    phrases = []
    for key, bound in conditions.items():
        quantity, relation = key.split("_", 1)
        if isinstance(bound, list):
            target = f"[{number(bound[0])}, {number(bound[1])}]"
        else:
            target = number(bound)
        name = "interval" if quantity == "interval" else _QUANTITY[quantity]
        phrases.append(f"{name} {relation.replace('_', ' ')} {target}")
    return " and ".join(phrases)


def statistic(stat: Mapping[str, Any]) -> str:
    """Return what a statistic is, in words.

    Examples
    --------
    >>> statistic({"name": "median", "y": "error", "at": {"n": "largest"}})
    'median of error at the largest n (95 % bootstrap interval over seeds)'
    """
    name, y = stat["name"], stat.get("y")
    level = f"{100 * stat.get('confidence', 0.95):g} %"
    if name == "loglog_slope":
        text = f"slope of log {y} on log {stat['x']}, one per seed ({level} t interval over seeds)"
    elif name in ("paired_ratio", "paired_difference"):
        joint, what = (" / ", "ratio") if name == "paired_ratio" else (" - ", "difference")
        pair = f"{stat['first']}{joint}{stat['second']}"
        along = "".join(f" with its {other}" for other in stat.get("along", []))
        where = f" of {y}, {stat['column']}{along} =" if y else ""
        text = f"paired {what}{where} {pair} ({level} t interval over seeds)"
    elif name == "group_ratio":
        text = f"largest over smallest median of {y} over {stat['column']} "
        text += f"({level} bootstrap interval over seeds)"
    elif name in ("maximum", "minimum"):
        text = f"{name} of {y} over all rows"
    else:
        kind = "bootstrap" if name == "median" else "t"
        text = f"{name} of {y} ({level} {kind} interval over seeds)"
    for column, wanted in stat.get("at", {}).items():
        at = f"at the {wanted} {column}" if isinstance(wanted, str) else f"at {column} = {wanted}"
        head, mark, tail = text.partition(" (")
        text = f"{head} {at}{mark}{tail}"
    return text


def part(item: Part) -> str:
    """Return a part's statistic and rule in words, with the groups it must hold for."""
    groups = f", for each {' and '.join(item.by)}" if item.by else ""
    return f"{statistic(item.statistic)}: {rule(item.rule)}{groups}"


def group(values: Mapping[str, Any]) -> str:
    """Return a group as text, such as ``activation = relu``; 'all' when there is one group only."""
    return ", ".join(f"{key} = {value}" for key, value in values.items()) or "all"
