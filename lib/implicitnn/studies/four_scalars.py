r"""Study of pairs of DEQs that share the four scalars, or all but one of them (claim A3).

A cubic with Hermite coefficients :math:`c_1, c_2, c_3` at the scale :math:`\tau_*` and the share
:math:`A = \sigma_a^2/\tau_*^2` are four unknowns; the four scalars are four equations. For the
conjugate kernel three give the coefficients in closed form and the fourth is one root in A. For the
tangent kernel Newton's method starts from there. With :math:`\sigma_a^2+\sigma_b^2 = 1` nothing
else is free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize

from implicitnn import activations, design, equivalents, kernels, spectra
from implicitnn._validate import FloatArray, integer, one_of
from implicitnn.equivalents import Coefficients, LowRankPlusDiagonal
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.studies import limits
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
SPREAD = 4.0
CK = ("alpha1", "alpha2", "alpha3", "gamma2")
NTK = ("beta1", "beta2", "beta3", "kappa2")
NORM_TOLERANCE = 1e-6
SCAN = 4000


class Pair(NamedTuple):
    """A DEQ and its cubic partner: what they share, and the sign of c3.

    ``shared`` is "ck", "ntk", or "all but" a scalar, which is ``factor`` times as large in the
    partner.
    """

    activation: str
    shared: str
    sign: int
    factor: float = 1.0


PAIRS = {
    "relu, +": Pair("relu", "ck", 1),
    "relu, -": Pair("relu", "ck", -1),
    "swish, +": Pair("swish", "ck", 1),
    "elu, -": Pair("elu", "ck", -1),
    "relu, tangent": Pair("relu", "ntk", -1),
    "swish, tangent": Pair("swish", "ntk", -1),
    "elu, alpha1": Pair("elu", "all but alpha1", -1, 0.75),
    "relu, alpha2": Pair("relu", "all but alpha2", -1, 4 / 3),
    "gelu, alpha3": Pair("gelu", "all but alpha3", -1, 0.75),
    "elu, gamma2": Pair("elu", "all but gamma2", -1, 1.5),
}


def squares(c: Coefficients, tau0: float, A: FloatArray | float) -> FloatArray:
    r"""Return :math:`c_1^2, c_2^2, c_3^2` from alpha1, alpha3 and gamma2, (3,) or (3, m).

    Examples
    --------
    >>> c = equivalents.coefficients(DEQ(activations.relu, 0.2))
    >>> bool(abs(squares(c, 1.0, 0.1).sum() - c.gamma2) < 1e-15)
    True
    """
    A = np.asarray(A, dtype=float)
    first = c.alpha1 * tau0**2 / (1 - A * c.gamma2 + A * c.alpha1 * tau0**2)
    drive = (1 - A * c.gamma2) / tau0**2 / (1 - A * first)  # s1/tau^2
    second = c.alpha3 * (1 - A * first) / drive**2
    return np.stack([first, second, c.gamma2 - first - second])


def mismatch(c: Coefficients, tau0: float, A: FloatArray | float, sign: int) -> FloatArray:
    r"""Return the equation left over for A: that of alpha2, as a ratio to alpha3.

    :math:`\sqrt{2\alpha_2/\alpha_3}\,(1 - Ak) - (1 - Ac_1^2)` with :math:`k = c_1^2 + 2c_2^2 +
    3c_3^2 + \sqrt6c_1c_3`; NaN where :math:`c_3^2 < 0`.
    """
    first, second, third = squares(c, tau0, A)
    root = np.sqrt(np.where(third >= 0, 6 * first * third, np.nan))
    bend = first + 2 * second + 3 * third + sign * root
    ratio = np.sqrt(2 * c.alpha2 / c.alpha3)
    return np.asarray(ratio * (1 - A * bend) - (1 - A * first))


def partner(c: Coefficients, tau0: float, sign: int) -> DEQ:
    r"""Return a cubic DEQ whose conjugate kernel has the four scalars of ``c``.

    The least root in A is taken. Its scale is chosen such that :math:`\sigma_a^2+\sigma_b^2 = 1`.

    Raises
    ------
    ValueError
        No cubic with this sign of c3 has these scalars.

    Examples
    --------
    >>> c = equivalents.coefficients(DEQ(activations.relu, 0.2))
    >>> other = partner(c, 1.0, -1)
    >>> round(other.sigma_a2, 4), bool(abs(other.gamma2 - c.gamma2) < 1e-14)
    (0.2587, True)
    """
    return _network(_solve(c, tau0, sign), tau0)


def _solve(c: Coefficients, tau0: float, sign: int) -> FloatArray:
    """Return c1, c2, c3 and A, (4,)."""
    scan = np.linspace(1e-4, 1 - 1e-4, SCAN) / c.gamma2
    values = mismatch(c, tau0, scan, sign)
    places = np.flatnonzero(values[:-1] * values[1:] < 0)
    if not places.size:
        raise ValueError(f"no cubic with sign {sign} has the scalars {c}")
    low, high = scan[places[0]], scan[places[0] + 1]
    A = optimize.brentq(lambda a: float(mismatch(c, tau0, a, sign)), low, high, xtol=1e-16)
    return np.append(np.sqrt(squares(c, tau0, A)) * [1, 1, sign], A)


def _network(unknowns: FloatArray, tau0: float) -> DEQ:
    c1, c2, c3, A = map(float, unknowns)
    tau2 = 1 / (A + (1 - A * (c1**2 + c2**2 + c3**2)) / tau0**2)
    return DEQ(design.hermite(c1, c2, c3, float(np.sqrt(tau2))), A * tau2, None, tau0)


def tangent_scalars(unknowns: FloatArray, tau0: float) -> FloatArray:
    r"""Return :math:`\beta_1, \beta_2, \beta_3, \kappa^2` over (a, A) of a cubic DEQ, (4,).

    ``unknowns`` are :math:`c_1, c_2, c_3` and A.
    """
    c1, c2, c3, A = unknowns
    u, w, v = c1**2, c2**2, c3**2
    energy, rest = u + w + v, 1 - A * u
    drive = (1 - A * energy) / tau0**2 / rest
    bend = (1 - A * energy) / tau0**2 / (1 - A * (u + 2 * w + 3 * v + np.sqrt(6) * c1 * c3))
    beta1 = u * drive / rest
    beta3 = (w * drive**2 / rest + 2 * A * w * drive * beta1) / rest
    kappa2 = energy / (1 - A * (u + 2 * w + 3 * v))
    return np.array([beta1, w * bend**2 / (2 * rest**2), beta3, kappa2])


def tangent_partner(c: Coefficients, tau0: float, sign: int) -> DEQ:
    r"""Return a cubic DEQ whose tangent kernel over (a, A) has the four scalars of ``c``.

    Raises
    ------
    ValueError
        Newton's method, started from `partner`, finds none.

    Examples
    --------
    >>> first = DEQ(activations.relu, 0.2)
    >>> other = tangent_partner(equivalents.coefficients(first), 1.0, -1)
    >>> round(other.sigma_a2, 4), bool(abs(other.gamma2 / first.gamma2 - 1) > 0.01)
    (0.1595, True)
    """
    wanted = np.array([getattr(c, name) for name in NTK])
    found = optimize.root(
        lambda x: tangent_scalars(x, tau0) / wanted - 1, _solve(c, tau0, sign), tol=1e-15
    )
    if np.abs(found.fun).max() > 1e-12 or not found.x[3] > 0:
        raise ValueError(f"no cubic found with the tangent scalars {c}")
    return _network(found.x, tau0)


def pair(name: str, tau0: float) -> tuple[DEQ, DEQ, float]:
    """Return the two networks of a pair and the largest residual of what they are to share.

    Examples
    --------
    >>> first, second, residual = pair("elu, gamma2", 1.0)
    >>> round(second.gamma2 / first.gamma2, 12), residual < 1e-12
    (1.5, True)
    """
    chosen = PAIRS[one_of(name, "pair", tuple(PAIRS))]
    first = DEQ(activations.get(chosen.activation), SIGMA_A2).at(tau0)
    target = equivalents.coefficients(first)
    if chosen.shared.startswith("all but"):
        scalar = chosen.shared.split()[-1]
        target = dataclasses.replace(target, **{scalar: chosen.factor * getattr(target, scalar)})
    find, names = (tangent_partner, NTK) if chosen.shared == "ntk" else (partner, CK)
    second = find(target, tau0, chosen.sign)
    has = equivalents.coefficients(second)
    residual = max(abs(getattr(has, k) / getattr(target, k) - 1) for k in names)
    return first, second, residual


def draw(n: int, seed: int) -> Sample:
    """Return two classes in dimension 1.25 n: means of norm one, covariances I, (1 + 4/sqrt p) I.

    Examples
    --------
    >>> draw(96, 0).X.shape
    (96, 120)
    """
    return limits.mixture(5 * n // 4, SPREAD).sample(n, np.random.default_rng([seed, n]))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return the distance of the exact kernels of a pair, and what the equivalents predict.

    ``ck_distance`` is :math:`\|G_1-G_2\|`, ``ck_predicted`` is :math:`\|\bar G_1-\bar G_2\|`,
    ``ck_remainder`` is :math:`\|(G_1-G_2)-(\bar G_1-\bar G_2)\|`; the same for the NTK over (a, A)
    where a whole kernel is shared. ``_over_log`` marks a norm divided by sqrt(log n), the factor by
    which the largest of n Gaussian fluctuations exceeds a typical one. ``ck_ratio`` is distance
    over prediction where one scalar differs. ``residual`` is the largest relative one of what is
    shared.

    Examples
    --------
    >>> found = row({"pair": "relu, +", "n": 96}, 0)
    >>> found["ck_predicted"] < 1e-12 < found["ck_distance"]
    True
    """
    name = str(settings["pair"])
    sample = draw(integer(settings["n"], "n"), seed)
    first, second, residual = pair(name, sample.statistics.tau0)
    result = {"residual": residual, "sigma_a2": second.sigma_a2}
    if PAIRS[name].shared.startswith("all but"):
        gap = kernels.ck(first, sample.X) - kernels.ck(second, sample.X)
        result |= _distances("ck", gap, _equivalents("ck", first, second, sample))
        return result | {"ck_ratio": result["ck_distance"] / result["ck_predicted"]}
    exact = [kernels.ck_and_ntk(net, sample.X) for net in (first, second)]
    for kernel in ("ck", "ntk"):
        gap = getattr(exact[0], kernel) - getattr(exact[1], kernel)
        result |= _distances(kernel, gap, _equivalents(kernel, first, second, sample))
    return result


def _distances(kernel: str, gap: FloatArray, predicted: LowRankPlusDiagonal) -> dict[str, float]:
    parts = {
        "distance": gap, "predicted": predicted, "remainder": spectra.difference(gap, predicted),
    }  # fmt: skip
    norms = {
        f"{kernel}_{part}": spectra.operator_norm(matrix, tol=NORM_TOLERANCE)
        for part, matrix in parts.items()
    }
    log = float(np.sqrt(np.log(len(gap))))
    return norms | {
        f"{kernel}_{part}_over_log": norms[f"{kernel}_{part}"] / log
        for part in ("distance", "remainder")
    }


def _equivalents(kernel: str, first: DEQ, second: DEQ, sample: Sample) -> LowRankPlusDiagonal:
    """Return the difference of the two equivalents."""
    of = equivalents.ck_operator if kernel == "ck" else equivalents.ntk_operator
    a, b = of(first, sample), of(second, sample)
    return LowRankPlusDiagonal(a.shift - b.shift, a.weight - b.weight, a.X, a.V, a.C - b.C)


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return one cell for each pair and size; ``shared`` names what the pair has in common."""
    return [{"pair": k, "shared": PAIRS[k].shared, "n": n} for k in PAIRS for n in sizes]


def _cost(settings: Mapping[str, object]) -> float:
    return float(integer(settings["n"], "n")) ** 2


STUDY = Study(
    name="four_scalars",
    row=row,
    grids={"quick": grid((96, 192)), "paper": grid((96, 192, 384, 768, 1536))},
    seeds={"quick": (1000, 1001), "paper": tuple(range(10))},
    claims=("A3",),
    rtol=1e-5,
    cost=_cost,
)
