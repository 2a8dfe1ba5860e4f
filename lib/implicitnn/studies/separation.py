"""Study of the distance of the class means as the dimension grows (claim A16).

Two equal classes N(+-mu, I) in dimension p with |2 mu| = 2.5 (p/100)^exponent. Three classifiers:
the best possible one (known parameters), ridge regression with the implicit CK, and clustering by
the leading eigenvector of the centred CK, which sees no labels. A second family keeps the means
equal and separates the classes by their covariances, (1 +- t/(2 sqrt(p))) I with
t = 3 (p/100)^exponent.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2, norm

from implicitnn import activations, kernels, spectra
from implicitnn._validate import FloatArray, integer, real
from implicitnn.mixtures import GaussianMixture
from implicitnn.specs import DEQ
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
RIDGE = 0.1
MEAN = 1.25  # |mu| at p = 100; above 1.06 clustering by an eigenvector can work at n = 0.8 p
TRACE = 3.0  # t at p = 100


def mixture(kind: str, p: int, exponent: float) -> GaussianMixture:
    """Return two classes that differ in their means or in their covariances."""
    scale = (p / 100) ** exponent
    means = np.zeros((2, p))
    covariances = [np.ones(p), np.ones(p)]
    if kind == "means":
        means[:, 0] = -MEAN * scale, MEAN * scale
    else:
        shift = TRACE * scale / (2 * np.sqrt(p))
        covariances = [(1 - shift) * np.ones(p), (1 + shift) * np.ones(p)]
    return GaussianMixture(means, covariances, [0.5, 0.5])


def best_error(kind: str, p: int, exponent: float) -> float:
    """Return the error of the best classifier that knows the parameters.

    Means at +-mu: Phi(-|mu|). Covariances s_- I and s_+ I: the likelihood ratio is increasing in
    r = |sqrt(p) x|^2, with threshold p log(s_+/s_-) / (1/s_- - 1/s_+), and r/s is chi-squared.
    """
    scale = (p / 100) ** exponent
    if kind == "means":
        return float(norm.cdf(-MEAN * scale))
    shift = TRACE * scale / (2 * np.sqrt(p))
    low, high = 1 - shift, 1 + shift
    threshold = p * np.log(high / low) / (1 / low - 1 / high)
    return float((chi2.sf(threshold / low, p) + chi2.cdf(threshold / high, p)) / 2)


def ridge_error(train: FloatArray, cross: FloatArray, y: FloatArray, y_test: FloatArray) -> float:
    """Return the test error of kernel ridge regression on labels +-1."""
    system = train + RIDGE * np.trace(train) / len(y) * np.eye(len(y))
    weights = cho_solve(cho_factor(system), y)
    return float(np.mean(np.sign(cross @ weights) != y_test))


def clustering_error(kernel: FloatArray, y: FloatArray) -> float:
    """Return the error of the sign of the leading eigenvector of the centred kernel."""
    means = kernel.mean(axis=0)
    centred = kernel - means[:, None] - means[None, :] + means.mean()
    _, vectors = spectra.extreme_eigenpairs(centred, 1)
    wrong = float(np.mean(np.sign(vectors[:, 0]) != y))
    return min(wrong, 1 - wrong)


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of the three classifiers for one dimension and one exponent."""
    kind, p = str(settings["kind"]), integer(settings["p"], "p")
    exponent = real(settings["exponent"], "exponent")
    n = 4 * p // 5
    rng = np.random.default_rng([seed, p])
    source = mixture(kind, p, exponent)
    train, test = source.sample(n, rng), source.sample(n, rng)
    spec = DEQ(activations.get("relu"), SIGMA_A2).at(train.statistics.tau0)
    gram = kernels.ck(spec, train.X)
    cross = kernels.ck(spec, test.X, train.X)
    y, y_test = 2.0 * train.labels - 1, 2.0 * test.labels - 1
    return {
        "best": best_error(kind, p, exponent),
        "ridge": ridge_error(gram, cross, y, y_test),  # type: ignore[arg-type]
        "clustering": clustering_error(gram, y),  # type: ignore[arg-type]
    }


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells: what separates the classes, the exponents, the dimensions."""
    return [
        {"kind": kind, "exponent": exponent, "p": p}
        for kind, exponents in (("means", (-0.5, 0.0, 0.5)), ("covariances", (-0.5, 0.0, 0.25)))
        for exponent in exponents
        for p in sizes
    ]


STUDY = Study(
    name="separation",
    row=row,
    grids={"quick": grid((100, 200, 400)), "paper": grid((100, 200, 400, 800, 1600, 3200))},
    seeds={"quick": (0, 1, 2), "paper": tuple(range(10))},
    claims=("A16",),
    rtol=1e-6,
)
