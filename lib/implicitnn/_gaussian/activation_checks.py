"""Checks that f, df and the declared kinks of an activation are consistent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from implicitnn._gaussian.quadrature import IntArray, Panels, integrate
from implicitnn.errors import AccuracyError, InvalidActivationError

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]

RANGE = 21.0
JUMP = 1e-6
FLOOR = 1e-7
MARGIN = 1e-12
GRID = 2000
ZOOM = 16
ZOOMS = 40


@np.errstate(all="ignore")  # what is not finite is reported, underflow to zero is right
def check(
    name: str, f: Function, df: Function, kinks: tuple[float, ...], homogeneous: bool
) -> None:
    """Raise InvalidActivationError, naming what is wrong and where, unless all is consistent."""
    for label, function in (("f", f), ("df", df)):
        _check_vectorised(name, label, function)
    pieces = _pieces(kinks)
    steepest = max(_check_no_jump(name, "f", f, piece, 0.0) for piece in pieces)
    for piece in pieces:
        _check_no_jump(name, "df", df, piece, steepest)
    _check_continuous(name, f, df, kinks)
    for piece in pieces:
        _check_derivative(name, f, df, piece)
    if homogeneous:
        _check_homogeneous(name, f)


def _values(name: str, label: str, function: Function, t: FloatArray) -> FloatArray:
    returned = function(t)
    if isinstance(returned, np.ma.MaskedArray):
        raise InvalidActivationError(f"{name}: {label} must not return a masked array")
    values = np.asarray(returned)
    if values.shape != t.shape:
        raise InvalidActivationError(
            f"{name}: {label} must be vectorised, for shape {t.shape} it returned {values.shape}"
        )
    if values.dtype.kind not in "fiub":
        raise InvalidActivationError(
            f"{name}: {label} must return real numbers, got dtype {values.dtype}"
        )
    values = values.astype(np.float64, copy=False)
    bad = ~np.isfinite(values)
    if bad.any():
        raise InvalidActivationError(
            f"{name}: {label} is not finite at t = {t[bad][0]:.6g} (value {values[bad][0]})"
        )
    return values


def _check_vectorised(name: str, label: str, function: Function) -> None:
    if not callable(function):
        raise InvalidActivationError(f"{name}: {label} must be callable, got {function!r}")
    if type(function).__hash__ is None:
        raise InvalidActivationError(f"{name}: {label} must be hashable, got {function!r}")
    t = np.linspace(-3.1, 2.9, 12)
    given = t.copy()
    try:
        values = _values(name, label, function, t)
        table = _values(name, label, function, t.reshape(3, 4))
        part = _values(name, label, function, t[::-2].copy())
    except InvalidActivationError:
        raise
    except Exception as problem:  # whatever the reader's function does, its name must be said
        raise InvalidActivationError(
            f"{name}: {label} must accept numpy arrays (is it vectorised?), it raised "
            f"{type(problem).__name__}: {problem}"
        ) from problem
    if not np.array_equal(t, given):
        raise InvalidActivationError(f"{name}: {label} must not change the array it is given")
    for other, same in ((table.ravel(), values), (part, values[::-2])):
        if not np.allclose(other, same, rtol=1e-12, atol=1e-12):
            raise InvalidActivationError(f"{name}: {label} must act elementwise on arrays")


def _pieces(kinks: tuple[float, ...]) -> list[FloatArray]:
    """Return a grid for each piece between kinks: uniform, and graded towards its ends and 0."""
    reach = max([RANGE, *(2.0 * abs(kink) for kink in kinks)])
    bounds = [-reach, *kinks, reach]
    pieces = []
    for left, right in pairwise(bounds):
        width = right - left
        inside = MARGIN * max(abs(left), abs(right), width)
        if width <= 8.0 * inside:
            continue
        share = max(32, int(GRID * width / (2.0 * reach)))
        graded = width * np.logspace(-9, -1, 33)
        small = np.logspace(-6, 0, 25)
        nodes = np.concatenate(
            [np.linspace(left, right, share), left + graded, right - graded, small, -small, [0.0]]
        )
        nodes = nodes[(nodes > left + inside) & (nodes < right - inside)]
        pieces.append(np.unique(np.concatenate([[left + inside], nodes, [right - inside]])))
    return pieces


def _check_no_jump(
    name: str, label: str, function: Function, grid: FloatArray, least: float
) -> float:
    """Zoom into every place where the function bends; a jump is what does not go away.

    The measure is the third difference over four equally spaced points. It falls like the cube of
    the spacing where the function is smooth, and keeps the size of the jump where it is not. Jumps
    far below ``least`` or the function's own size are rounding. Returns the steepest slope met.
    """
    left, right = grid[:-1], grid[1:]
    size = max(least, float(np.abs(_values(name, label, function, grid)).max()))
    steepest = 0.0
    fractions = np.linspace(0.0, 1.0, ZOOM + 1)
    for _ in range(ZOOMS):
        t = left[:, None] + (right - left)[:, None] * fractions
        values = _values(name, label, function, t.ravel()).reshape(t.shape)
        steps = (np.abs(np.diff(values, axis=1)) * (ZOOM / (right - left))[:, None]).max()
        steepest = max(steepest, float(steps))
        bend = np.abs(np.diff(values, n=3, axis=1))
        best = bend.argmax(axis=1)
        rows = np.arange(left.size)
        local = np.abs(values).max(axis=1)
        live = bend[rows, best] > JUMP * local + FLOOR * size
        if not live.any():
            break
        fine = right - left <= 1e-13 * np.maximum(1.0, np.abs(left)) * ZOOM
        found = live & fine
        if found.any():
            place = 0.5 * (left + right)[found][0]
            raise InvalidActivationError(_jump_message(name, label, place))
        rows, best = rows[live], best[live]
        left, right = t[rows, best], t[rows, best + 3]
    return steepest


def _jump_message(name: str, label: str, place: float) -> str:
    place = 0.0 if abs(place) < 1e-12 else place
    if label == "f":
        return (
            f"{name}: f must be continuous, it jumps near t = {place:.9g} "
            "(a jump carries mass that Stein's identities miss)"
        )
    return (
        f"{name}: df jumps near t = {place:.9g}, which is not among the declared kinks: "
        "add the kink, or correct df"
    )


def _check_continuous(name: str, f: Function, df: Function, kinks: tuple[float, ...]) -> None:
    for kink in kinks:
        step = MARGIN * max(abs(kink), 1e-3)
        t = np.array([kink - 2 * step, kink - step, kink, kink + step, kink + 2 * step])
        values = _values(name, "f", f, t)
        slopes = _values(name, "df", df, t[[0, 1, 3, 4]])
        allowed = 10.0 * step * np.abs(slopes).max() + 1e-9 * np.abs(values).max()
        if np.ptp(values) > allowed:
            raise InvalidActivationError(_jump_message(name, "f", kink))


def _check_derivative(name: str, f: Function, df: Function, grid: FloatArray) -> None:
    """Compare f(b) - f(a) with the integral of df, on a few hundred intervals of the grid."""
    # Not at the very ends: a numerical derivative is wrong within its step of a kink, harmlessly.
    clear = 1e-6 * (grid[-1] - grid[0])
    grid = grid[(grid > grid[0] + clear) & (grid < grid[-1] - clear)]
    edges = np.unique(np.concatenate([grid[:40:3], grid[40:-40:7], grid[-40::3], grid[-1:]]))

    def integrand(x: FloatArray, owner: IntArray) -> FloatArray:
        # f rides along: where it is steep the panels of its derivative are refined too.
        t = x.ravel()
        rows = [_values(name, "df", df, t), _values(name, "f", f, t)]
        return np.stack(rows).reshape(2, *x.shape)

    values = _values(name, "f", f, edges)
    count = edges.size - 1
    small = np.diff(edges) * np.abs(_values(name, "df", df, grid)).mean()
    height = np.diff(edges) * np.abs(values).max()
    scale = np.stack([small, height])
    panels = Panels(edges[:-1], edges[1:], np.arange(count))
    try:
        integrals, masses = integrate(
            integrand, panels, count, components=2, scale=scale, rtol=1e-8
        )
    except AccuracyError as problem:
        raise InvalidActivationError(f"{name}: df cannot be integrated: {problem}") from problem
    rise = np.diff(values)
    noise = 1e-13 * np.maximum(np.abs(values[:-1]), np.abs(values[1:]))
    allowed = 1e-6 * np.maximum(np.abs(rise), masses[0]) + noise + 1e-8 * small
    wrong = np.abs(rise - integrals[0]) > allowed
    if wrong.any():
        worst = int(np.argmax(np.where(wrong, np.abs(rise - integrals[0]) / np.diff(edges), -1.0)))
        a, b = edges[worst], edges[worst + 1]
        raise InvalidActivationError(
            f"{name}: df is not the derivative of f near t = {0.5 * (a + b):.6g}: over "
            f"[{a:.6g}, {b:.6g}] f changes at rate {rise[worst] / (b - a):.9g}, "
            f"df averages {integrals[0][worst] / (b - a):.9g}"
        )


def _check_homogeneous(name: str, f: Function) -> None:
    t = np.concatenate([-np.logspace(-3, 1, 17), [0.0], np.logspace(-3, 1, 17)])
    base = _values(name, "f", f, t)
    for factor in (0.125, 0.7, 3.0):
        scaled = _values(name, "f", f, factor * t)
        wrong = np.abs(scaled - factor * base) > 1e-12 * np.maximum(np.abs(scaled), 1e-12)
        if wrong.any():
            raise InvalidActivationError(
                f"{name}: declared homogeneous, but f({factor} t) differs from {factor} f(t) "
                f"at t = {t[wrong][0]:.6g}"
            )
