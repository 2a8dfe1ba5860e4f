"""Study of the three limits: both sizes grow, only p grows, only n grows (claim A12).

Data: two classes of equal size, means at distance one from the origin, covariances
(1 + 2 i / sqrt(p)) I for i = 0, 1, so that every quantity of the growth hypothesis is O(1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations
from implicitnn._validate import integer
from implicitnn.mixtures import GaussianMixture
from implicitnn.specs import DEQ
from implicitnn.studies._measure import ck_and_ntk_errors
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2


def mixture(p: int, spread: float = 2.0) -> GaussianMixture:
    """Return two classes in dimension p: means of norm one, covariances I, (1 + spread/sqrt p) I.

    Examples
    --------
    >>> mixture(100, 4.0).sample(6, np.random.default_rng(0)).X.shape
    (6, 100)
    """
    covariances = [np.ones(p), (1 + spread / np.sqrt(p)) * np.ones(p)]
    return GaussianMixture(np.eye(2, p), covariances, [0.5, 0.5])


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of Theorems 1 and 2 for one activation and one pair (n, p).

    ``ck_over_log`` and ``ntk_over_log`` are the absolute errors divided by sqrt(log n), the factor
    by which the largest of n Gaussian fluctuations exceeds a typical one.
    """
    n, p = integer(settings["n"], "n"), integer(settings["p"], "p")
    sample = mixture(p).sample(n, np.random.default_rng([seed, n, p]))
    spec = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    errors = ck_and_ntk_errors(spec.at(sample.statistics.tau0), sample)
    log = float(np.sqrt(np.log(n)))
    return errors | {f"{name}_over_log": errors[f"{name}_absolute"] / log for name in ("ck", "ntk")}


def _cells(regime: str, sizes: list[tuple[int, int]]) -> list[dict[str, object]]:
    return [
        {"regime": regime, "activation": name, "n": n, "p": p}
        for name in ("relu", "tanh")
        for n, p in sizes
    ]


def grid(exponents: range) -> list[dict[str, object]]:
    """Return the cells of the three regimes, sizes 2^k times a base for k in ``exponents``."""
    factors = [2**k for k in exponents]
    return (
        _cells("both", [(100 * f, 125 * f) for f in factors])
        + _cells("p grows", [(200, 125 * f) for f in factors])
        + _cells("n grows", [(100 * f, 250) for f in factors])
    )


STUDY = Study(
    name="limits",
    row=row,
    grids={"quick": grid(range(3)), "paper": grid(range(6))},
    seeds={"quick": (0, 1, 2), "paper": tuple(range(10))},
    claims=("A12",),
    rtol=1e-6,
)
