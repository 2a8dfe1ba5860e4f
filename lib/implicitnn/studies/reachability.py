r"""Study of what two hidden layers can reach (claims X3 and A17).

One row is one activation of a one-parameter family; it holds a map over sigma_a^2, as text with one
letter for each value (see ``LETTERS``). Where no family of `design` serves with two layers, two
layers of *any* activations are decided by the least curvature of a layer with linear share u,

.. math::
    k_{min}(u) = \min\{ \tfrac12(E\xi^2 s^2 - 1) : E s^2 = 1,\ (E\xi s)^2 = u \},
    \qquad s(\xi) \propto \frac{\xi}{\xi^2 + \lambda} .

With :math:`A = \alpha_1\tau_0^2/\gamma^2`, :math:`C = \alpha_3\tau_0^4/\gamma^2` and
:math:`q^2 = 2\alpha_2/\alpha_3 < 1`, let u* be the share where :math:`k_{min}(u) = qu`. A net
exists when :math:`A/u_* + C/u_*^2 \le 1`, and none when :math:`A > u_*`. Derived on the page
"Which networks can be compressed".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from implicitnn import activations, design, equivalents
from implicitnn._validate import FloatArray, integer, real
from implicitnn.activations import Activation
from implicitnn.specs import DEQ
from implicitnn.sweeps import Study

LETTERS = {
    ".": "not well posed",
    "T": "hard tanh, one layer",
    "H": "cubic Hermite, one layer",
    "L": "L-ReLU, two layers",
    "Q": "quadratic, two layers",
    "C": "cubic Hermite, two layers",
    "R": "rational, two layers",
    "X": "no two layers (proved)",
    "U": "two layers undecided",
}
TWO = "THLQCR"
GAIN_KNEE = 4.0


def leaky(slope: float) -> Activation:
    """Leaky ReLU of this slope."""
    return activations.leaky_relu(slope)


def swish(beta: float) -> Activation:
    """Swish of this steepness: t sigmoid(beta t)."""

    def f(t: FloatArray) -> FloatArray:
        return np.asarray(t * special.expit(beta * t))

    def df(t: FloatArray) -> FloatArray:
        rise = special.expit(beta * t)
        return np.asarray(rise + beta * t * rise * special.expit(-beta * t))

    return Activation(f"swish, steepness {beta:g}", f, df)


def softplus(beta: float) -> Activation:
    """Softplus of this steepness: log(1 + exp(beta t))/beta."""
    return Activation(
        f"softplus, steepness {beta:g}",
        lambda t: np.logaddexp(0.0, beta * t) / beta,
        lambda t: special.expit(beta * t),
    )


def elu(alpha: float) -> Activation:
    """ELU: t for t > 0, alpha (e^t - 1) for t < 0."""
    return Activation(
        f"ELU, alpha {alpha:g}",
        lambda t: np.where(t > 0, t, alpha * np.expm1(np.minimum(t, 0.0))),
        lambda t: np.where(t > 0, 1.0, alpha * np.exp(np.minimum(t, 0.0))),
        () if alpha == 1.0 else (0.0,),
    )


def bump(shift: float) -> Activation:
    """Gaussian bump: exp(-(t - shift)^2/2)."""
    return Activation(
        f"bump at {shift:g}",
        lambda t: np.exp(-0.5 * (t - shift) ** 2),
        lambda t: -(t - shift) * np.exp(-0.5 * (t - shift) ** 2),
    )


def gain(factor: float) -> Activation:
    """Nearly linear: 4 factor tanh((t + 1/2)/4)."""

    def df(t: FloatArray) -> FloatArray:
        return factor / np.cosh(np.clip((t + 0.5) / GAIN_KNEE, -300.0, 300.0)) ** 2

    return Activation(
        f"soft line, gain {factor:g}",
        lambda t: factor * GAIN_KNEE * np.tanh((t + 0.5) / GAIN_KNEE),
        df,
    )


FAMILIES: dict[str, tuple[str, Callable[[float], Activation], float, float]] = {
    "leaky": ("slope", leaky, -0.95, 0.95),
    "swish": ("steepness", swish, 0.25, 8.0),
    "softplus": ("steepness", softplus, 0.25, 8.0),
    "elu": ("alpha", elu, 0.1, 3.0),
    "bump": ("shift", bump, 0.05, 2.5),
    "gain": ("gain", gain, 0.6, 2.0),
}
"""Name: meaning of its parameter, factory, smallest and largest value."""


def sigmas(count: int) -> tuple[float, ...]:
    """Return values of sigma_a^2, evenly from 0.01 to 0.99."""
    return tuple(float(value) for value in np.linspace(0.01, 0.99, count))


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return the map of one activation as text, and how many cells are reached; no randomness."""
    value, count = real(settings["value"], "value"), integer(settings["count"], "count", 1)
    activation = FAMILIES[str(settings["family"])][1](value)
    letters = conjugate(activation, sigmas(count))
    posed = count - letters.count(".")
    tangent = sigmas(count)[::3]
    maps = {name: ntk(activation, tangent, name) for name in ("all", "published")}
    return {
        "letters": letters,
        "well_posed": posed,
        "two_layers": sum(letters.count(letter) for letter in TWO),
        "cubic_share": _share(letters, "THLQC", posed),
        "two_share": _share(letters, TWO, posed),
        "impossible": letters.count("X"),
        "undecided": letters.count("U"),
        "ntk_letters_all": maps["all"],
        "ntk_letters_published": maps["published"],
        "ntk_share_all": _share(maps["all"], "y", len(tangent) - maps["all"].count(".")),
        "ntk_share_published": _share(
            maps["published"], "y", len(tangent) - maps["published"].count(".")
        ),
    }


def _share(letters: str, wanted: str, total: int) -> float:
    return sum(letters.count(letter) for letter in wanted) / total if total else 1.0


def conjugate(activation: Activation, values: tuple[float, ...]) -> str:
    """Return the simplest net of at most two layers for each sigma_a^2, as letters."""
    grid = design.Grid((activation,), values)
    every = design.reachable("auto", grid)
    one = design.reachable("hard_tanh", grid, layers=1).reached[0]
    leaky_two = design.reachable("leaky_relu", grid, layers=2).reached[0]
    quadratic = design.reachable("quadratic", grid, layers=2).reached[0]
    letters = []
    for k, sigma_a2 in enumerate(values):
        depth = int(every.layers[0, k])
        if not every.well_posed[0, k]:
            letters.append(".")
        elif depth == 1:
            letters.append("T" if one[k] else "H")
        elif depth == 2:
            letters.append("L" if leaky_two[k] else "Q" if quadratic[k] else "C")
        else:
            letters.append(any_two_layers(DEQ(activation, sigma_a2)))
    return "".join(letters)


def ntk(activation: Activation, values: tuple[float, ...], params: str) -> str:
    """Return 'y' where two cubic layers have the NTK, 'n' where none was found, '.' not posed."""
    found = design.reachable(
        "cubic_hermite", design.Grid((activation,), values), "ntk", 2, params=params
    )
    return "".join(
        "." if not posed else "y" if reached else "n"
        for posed, reached in zip(found.well_posed[0], found.reached[0], strict=True)
    )


def shares(deq: DEQ) -> tuple[float, float, float]:
    """Return A, 2 B and C: alpha1, 2 alpha2 and alpha3 in units of the energy."""
    c = equivalents.coefficients(deq)
    t2 = deq.tau0**2
    return c.alpha1 * t2 / c.gamma2, 2 * c.alpha2 * t2**2 / c.gamma2, c.alpha3 * t2**2 / c.gamma2


def any_two_layers(deq: DEQ) -> str:
    """Return 'R' when some two layers have the CK, 'X' when none have, 'U' when undecided.

    Examples
    --------
    >>> any_two_layers(DEQ(elu(1.0), 0.2))
    'R'
    """
    first, second, third = shares(deq)
    if second >= third:
        return "R" if first + third < 1.0 else "U"
    largest = largest_share(math.sqrt(second / third))
    if first / largest + third / largest**2 <= 1.0:
        return "R"
    # k could be negative below the share where k_min vanishes.
    return "X" if first > max(largest, largest_share(0.0)) else "U"


def largest_share(q: float) -> float:
    r"""Return u*, the linear share at which the least curvature is q u; 1 for q >= 1.

    Examples
    --------
    >>> round(largest_share(0.5), 4), largest_share(1.0)
    (0.9328, 1.0)
    """
    return 1.0 if q >= 1.0 else layer_point(least_pole(q))[0]


@lru_cache(maxsize=4096)
def least_pole(q: float) -> float:
    """Return lambda of the extreme layer with curvature q times its linear share, 0 <= q < 1."""

    def excess(log_pole: float) -> float:
        u, k = layer_point(math.exp(log_pole))
        return k - q * u

    return math.exp(optimize.brentq(excess, -8.0, 20.0, xtol=1e-14))


def layer_point(pole: float) -> tuple[float, float]:
    r"""Return u and k of :math:`s(\xi) \propto \xi/(\xi^2 + \lambda)`."""
    x, weight = _rule()
    s = x / (x * x + pole)
    energy = float(weight @ (s * s))
    u = float(weight @ (x * s)) ** 2 / energy
    return u, 0.5 * (float(weight @ (x * x * s * s)) / energy - 1.0)


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray]:
    """Nodes on the half line, dense near zero, with the weights of both halves of N(0, 1)."""
    edges = np.r_[0.0, np.geomspace(1e-5, 14.0, 120)]
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    density = math.sqrt(2.0 / math.pi) * np.exp(-0.5 * x * x)
    return x, (half * weights).ravel() * density


def _cells(values: int, count: int) -> list[dict[str, object]]:
    return [
        {"family": name, "value": round(float(value), 6), "count": count}
        for name, (_, _, low, high) in FAMILIES.items()
        for value in np.linspace(low, high, values)
    ]


STUDY = Study(
    name="reachability",
    row=row,
    grids={"quick": _cells(5, 10), "paper": _cells(48, 60)},
    seeds={"quick": (1000,), "paper": (0,)},
    claims=("X3", "A17"),
    rtol=1e-6,
)
