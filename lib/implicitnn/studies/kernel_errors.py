r"""Study of the errors of Theorems 1 and 2 against the size, on the authors' mixture.

One row is one activation, one size and one draw of the data: the spectral norm of the exact kernel
minus its deterministic equivalent, absolute and relative to the norm of the exact kernel, for the
CK, the NTK over (a, A) and the NTK over all weights; the CK again with each published formula; and
the CK with :math:`\tau_0^2 = \operatorname{tr} C_0/p`. All activations see the same data.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse.linalg import LinearOperator

from implicitnn import activations, equivalents, kernels, mixtures, spectra
from implicitnn._validate import FloatArray
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
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
    n, mean = int(str(settings["n"])), float(str(settings["mean"]))
    network = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    sample = draw(n, mean, seed)
    spec = network.at(sample.statistics.tau0)
    result = {"p": sample.X.shape[1], "tau0": sample.statistics.tau0}

    exact = kernels.ck_and_ntk(spec, sample.X)
    result |= _errors("ntk", exact.ntk, {"ntk": equivalents.ntk_operator(spec, sample)})
    corrected = equivalents.ck_operator(spec, sample)
    published = {
        name: equivalents.ck_operator(spec, sample, formula=formula)
        for name, formula in FORMULAS.items()
    }
    result |= _errors("ck", exact.ck, {"ck": corrected, **published})
    del exact  # two dense kernels at once are enough

    all_weights = kernels.ntk(spec, sample.X, params="all")
    equivalent = equivalents.ntk_operator(spec, sample, params="all")
    result |= _errors("ntk_all", all_weights, {"ntk_all": equivalent})
    del all_weights

    stated = draw(n, mean, seed, scale="covariance")
    spec = network.at(stated.statistics.tau0)
    equivalent = equivalents.ck_operator(spec, stated)
    name = "ck_covariance_scale"
    result |= _errors(name, kernels.ck(spec, stated.X), {name: equivalent})
    for part in ("diagonal", "centring"):
        gap = spectra.difference(corrected, published[f"ck_published_{part}"])
        result[f"floor_{part}"] = spectra.operator_norm(gap)
    return result


def _errors(
    name: str, exact: FloatArray, approximations: Mapping[str, LinearOperator]
) -> dict[str, float]:
    """Return the norm of an exact kernel, and of its differences to the approximations."""
    norm = spectra.operator_norm(exact)
    result = {f"{name}_norm": norm}
    for key, approximation in approximations.items():
        absolute = spectra.operator_norm(spectra.difference(exact, approximation))
        result |= {f"{key}_absolute": absolute, f"{key}_relative": absolute / norm}
    return result


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells: five activations at mean 8, ReLU and tanh also at mean 1."""
    pairs = [(name, 8.0) for name in ACTIVATIONS] + [("relu", 1.0), ("tanh", 1.0)]
    return [{"activation": name, "mean": mean, "n": n} for name, mean in pairs for n in sizes]


def _cost(settings: Mapping[str, object]) -> float:
    return float(str(settings["n"])) ** 2


STUDY = Study(
    name="kernel_errors",
    row=row,
    grids={"quick": grid((128, 256, 512)), "paper": grid((128, 256, 512, 1024, 2048, 4096))},
    seeds={"quick": (1000, 1001, 1002), "paper": tuple(range(10))},
    claims=("A1", "A2", "AE1", "AE2"),
    rtol=1e-6,
    cost=_cost,
)
