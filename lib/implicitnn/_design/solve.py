"""Which solver serves a family, a number of layers and a kernel; the order that `auto` tries."""

from __future__ import annotations

from implicitnn import _validate
from implicitnn._design import leaky as _design_leaky
from implicitnn._design import leaky_ntk as _design_leaky_ntk
from implicitnn._design import single as _design_single
from implicitnn._design import two as _design_two
from implicitnn._design.targets import TOLERANCE, Solution, Wanted
from implicitnn.errors import UnsupportedSpecError

FAMILIES = ("hard_tanh", "leaky_relu", "quadratic", "cubic_hermite", "auto")

_CK_DEPTHS = {
    "hard_tanh": (1,),
    "leaky_relu": tuple(range(1, _design_leaky.MAX_LAYERS + 1)),
    "quadratic": (2,),
    "cubic_hermite": (1, 2, 3, 4),
}
_NTK_DEPTHS = {
    "hard_tanh": (1,),
    "leaky_relu": (2, 3),
    "quadratic": (2,),
    "cubic_hermite": (1, 2, 3),
}
_ORDER = (
    ("leaky_relu", 1),
    ("hard_tanh", 1),
    ("cubic_hermite", 1),
    ("leaky_relu", 2),
    ("quadratic", 2),
    ("cubic_hermite", 2),
    ("leaky_relu", 3),
    ("cubic_hermite", 3),
    ("leaky_relu", 4),
    ("cubic_hermite", 4),
    *(("leaky_relu", depth) for depth in range(5, _design_leaky.MAX_LAYERS + 1)),
)


def check_layers(family: str, ntk: bool, layers: object) -> int | None:
    """Return the number of layers, refused where the family has no solver for it."""
    if layers is None:
        return None
    count = _validate.integer(layers, "layers", 1)
    depths = _NTK_DEPTHS if ntk else _CK_DEPTHS
    known = depths[family] if family != "auto" else tuple(sorted({d for _, d in _candidates(ntk)}))
    if count not in known:
        kernel = "tangent" if ntk else "conjugate"
        raise UnsupportedSpecError(
            f"layers must be one of {', '.join(map(str, known))} for family {family!r} and the "
            f"{kernel} kernel, got {count}"
        )
    return count


def _candidates(ntk: bool) -> list[tuple[str, int]]:
    depths = _NTK_DEPTHS if ntk else _CK_DEPTHS
    return [(family, depth) for family, depth in _ORDER if depth in depths[family]]


def solve(wanted: Wanted, family: str, layers: int | None) -> tuple[str, Solution]:
    """Return the family that was used and its solution."""
    if family == "auto":
        return _auto(wanted, layers)
    return family, _with_depth(wanted, family, layers)


def _applies(wanted: Wanted, family: str) -> bool:
    """L-ReLU and quadratic layers need a part they can carry."""
    if family not in ("leaky_relu", "quadratic"):
        return True
    part = wanted.first if wanted.hidden else wanted.first + wanted.second
    return part > TOLERANCE


def _with_depth(wanted: Wanted, family: str, layers: int | None) -> Solution:
    ntk = bool(wanted.hidden)
    if not _applies(wanted, family):
        raise UnsupportedSpecError(
            f"family {family!r} has no solver for a kernel whose {wanted.names[0]} vanishes "
            "(use 'cubic_hermite' or 'auto')"
        )
    if family == "hard_tanh":
        return _design_single.solve_hard_tanh(wanted)
    if family == "quadratic":
        return _design_two.solve_quadratic(wanted)
    if family == "leaky_relu":
        if not ntk:
            return _design_leaky.solve(wanted, layers)
        return _fewest(wanted, family, layers, (2, 3))
    return _fewest(wanted, family, layers, _NTK_DEPTHS[family] if ntk else _CK_DEPTHS[family])


def _fewest(wanted: Wanted, family: str, layers: int | None, depths: tuple[int, ...]) -> Solution:
    """Smallest depth that serves; the nearest attempt when none does."""
    attempts = []
    for depth in depths if layers is None else (layers,):
        attempts.append(_one(wanted, family, depth))
        if attempts[-1].exact:
            break
    return min(attempts, key=lambda found: gap(wanted, found))


def _one(wanted: Wanted, family: str, depth: int) -> Solution:
    if family == "leaky_relu":
        return _design_leaky_ntk.solve(wanted, depth)
    if depth == 1:
        return _design_single.solve_cubic(wanted)
    return _design_two.solve_cubic(wanted, depth)


def _auto(wanted: Wanted, layers: int | None) -> tuple[str, Solution]:
    best: tuple[str, Solution] | None = None
    for family, depth in _candidates(bool(wanted.hidden)):
        if layers not in (None, depth) or not _applies(wanted, family):
            continue
        found = _with_depth(wanted, family, depth)
        if found.exact:
            return family, found
        if best is None or gap(wanted, found) < gap(wanted, best[1]):
            best = (family, found)
    if best is None:
        raise UnsupportedSpecError(f"no family has {layers} layers")
    return best


def gap(wanted: Wanted, found: Solution) -> float:
    """Largest miss, relative to what was wanted."""
    aims = dict(zip(wanted.names, (wanted.first, wanted.second, wanted.third, 1.0), strict=True))
    gaps = []
    for name, value in found.misses:
        aim = wanted.value(name, aims[name])
        gaps.append(abs(value - aim) / abs(aim))
    return max(gaps, default=0.0)
