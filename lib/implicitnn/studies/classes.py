"""Study of the number of classes K at fixed n and p (claim A13).

Data: K classes of equal size in dimension p; class a has its mean at distance ``radius`` from the
origin along coordinate a and covariance (1 + 4 a / (K sqrt(p))) I. The spread of the covariances is
the same for every K, so only the number of classes changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations
from implicitnn._validate import integer, real
from implicitnn.mixtures import GaussianMixture
from implicitnn.specs import DEQ
from implicitnn.studies._measure import ck_and_ntk_errors
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2


def mixture(classes: int, p: int, radius: float) -> GaussianMixture:
    """Return the mixture of ``classes`` equal classes in dimension ``p``."""
    means = radius * np.eye(classes, p)
    covariances = [(1 + 4 * a / (classes * np.sqrt(p))) * np.ones(p) for a in range(classes)]
    return GaussianMixture(means, covariances, np.full(classes, 1 / classes))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of Theorems 1 and 2 for one activation and one number of classes."""
    n, p, classes = (integer(settings[key], key) for key in ("n", "p", "classes"))
    radius = real(settings["radius"], "radius")
    sample = mixture(classes, p, radius).sample(n, np.random.default_rng([seed, classes]))
    spec = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    return ck_and_ntk_errors(spec.at(sample.statistics.tau0), sample)


def grid(n: int, counts: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells: two activations, two mean radii, the class counts, p = 1.25 n."""
    return [
        {"activation": name, "radius": radius, "classes": classes, "n": n, "p": 5 * n // 4}
        for name in ("relu", "tanh")
        for radius in (2.0, 8.0)
        for classes in counts
    ]


STUDY = Study(
    name="classes",
    row=row,
    grids={
        "quick": grid(320, (2, 8, 32)),
        "paper": grid(1280, (2, 4, 8, 16, 32, 64, 128)),
    },
    seeds={"quick": (0, 1, 2), "paper": tuple(range(10))},
    claims=("A13",),
    rtol=1e-6,
)
