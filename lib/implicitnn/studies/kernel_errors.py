r"""Study of the errors of Theorems 1 and 2 against the size, on the authors' mixture.

One row is one activation, one size and one draw of the data: the spectral norm of the exact kernel
minus its deterministic equivalent, absolute and relative to the norm of the exact kernel, for the
CK, the NTK over (a, A) and the NTK over all weights; the CK again with each published formula; and
CK and NTK with :math:`\tau_0^2 = \operatorname{tr} C_0/p`. All activations see the same data.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import _validate, activations, equivalents, kernels, mixtures, spectra
from implicitnn._validate import FloatArray
from implicitnn.equivalents import LowRankPlusDiagonal
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
NORM_TOLERANCE = 1e-6
SIZES = (96, 192, 384, 768, 1536, 3072)
ACTIVATIONS = ("relu", "tanh", "swish", "leaky_relu(0.01)", "elu")
FORMULAS = {
    "ck_published": "published",
    "ck_published_diagonal": "published-diagonal",
    "ck_published_centring": "published-centring",
}


def draw(n: int, mean: float, seed: int, scale: str = "data") -> Sample:
    """Return the sample of a cell: the authors' mixture with n = 0.8 p and the given mean entry.

    Examples
    --------
    >>> draw(128, 8.0, 0).X.shape
    (128, 160)
    """
    rng = np.random.default_rng([seed, n, round(1000 * mean)])
    return mixtures.benchmark(5 * n // 4, mean=mean).sample(n, rng, scale=scale)


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of one activation at one size.

    Parameters
    ----------
    settings : mapping
        ``activation`` (a name), ``mean`` (entry of the class means), ``n`` (samples).
    seed : int
        Seed of the data.

    Examples
    --------
    >>> errors = row({"activation": "tanh", "mean": 8.0, "n": 128}, 0)
    >>> errors["ck_absolute"] < errors["ck_published_absolute"] + 1e-9
    True
    """
    n, mean = _validate.integer(settings["n"], "n", 1), _validate.real(settings["mean"], "mean")
    network = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    sample, stated = draw(n, mean, seed), draw(n, mean, seed, scale="covariance")
    gram = sample.X @ sample.X.T
    result = {"p": sample.X.shape[1], "tau0": sample.statistics.tau0}

    spec = network.at(sample.statistics.tau0)
    corrected = equivalents.ck_operator(spec, sample)
    published = {
        name: equivalents.ck_operator(spec, sample, formula=formula)
        for name, formula in FORMULAS.items()
    }
    ck, ntk = kernels.ck_and_ntk(spec, sample.X)
    result |= _errors("ck", ck, gram, {"ck": corrected, **published})
    result |= _errors("ntk", ntk, gram, {"ntk": equivalents.ntk_operator(spec, sample)})
    everything = kernels.ntk(spec, sample.X, params="all")
    approximation = equivalents.ntk_operator(spec, sample, params="all")
    result |= _errors("ntk_all", everything, gram, {"ntk_all": approximation})
    for part in ("diagonal", "centring"):
        gap = spectra.difference(_rest(corrected), _rest(published[f"ck_published_{part}"]))
        result[f"floor_{part}"] = spectra.operator_norm(gap, tol=NORM_TOLERANCE)

    spec = network.at(stated.statistics.tau0)
    ck, ntk = kernels.ck_and_ntk(spec, stated.X)
    for name, exact, approximation in (
        ("ck_covariance_scale", ck, equivalents.ck_operator(spec, stated)),
        ("ntk_covariance_scale", ntk, equivalents.ntk_operator(spec, stated)),
    ):
        result |= _errors(name, exact, gram, {name: approximation})
    return result


def _errors(
    name: str,
    exact: FloatArray,
    gram: FloatArray,
    approximations: Mapping[str, LowRankPlusDiagonal],
) -> dict[str, float]:
    """Return the norm of an exact kernel and of its differences to the approximations.

    All approximations have the same multiple of the Gram matrix. It is taken off once, in place,
    which leaves each difference with a product by V alone.
    """
    norm = spectra.operator_norm(exact, tol=NORM_TOLERANCE)
    result = {f"{name}_norm": norm}
    weight = next(iter(approximations.values())).weight
    exact -= weight * gram
    for key, full in approximations.items():
        if full.weight != weight:
            raise ValueError(f"{key} has weight {full.weight}, the first has {weight}")
        gap = spectra.difference(exact, _rest(full))
        absolute = spectra.operator_norm(gap, tol=NORM_TOLERANCE)
        result |= {f"{key}_absolute": absolute, f"{key}_relative": absolute / norm}
    return result


def _rest(full: LowRankPlusDiagonal) -> LowRankPlusDiagonal:
    """Return an equivalent without its multiple of the Gram matrix."""
    return LowRankPlusDiagonal(full.shift, 0.0, full.X[:, :1], full.V, full.C)


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells of the five activations on the authors' mixture."""
    return [{"activation": a, "mean": 8.0, "n": n} for a in ACTIVATIONS for n in sizes]


def small_means(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells with class means of norm one, ReLU and tanh."""
    return [{"activation": a, "mean": 1.0, "n": n} for a in ("relu", "tanh") for n in sizes]


def _cost(settings: Mapping[str, object]) -> float:
    return _validate.integer(settings["n"], "n", 1) ** 2


STUDY = Study(
    name="kernel_errors",
    row=row,
    grids={"quick": grid((128, 256, 512)), "paper": grid(SIZES) + small_means(SIZES)},
    seeds={"quick": (1000, 1001, 1002), "paper": tuple(range(10))},
    claims=("A1", "A2", "AE1", "AE2"),
    rtol=1e-5,
    cost=_cost,
)
