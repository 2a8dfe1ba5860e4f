r"""Study of which weights the published NTK counts: finite networks against two formulas.

One row draws one wide network with weights (a, A, B) and computes its tangent kernel twice, over
(a, A) and over (a, A, B), with the same weights. Each is compared with both limit formulas.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations, kernels, simulate
from implicitnn._validate import FloatArray, integer
from implicitnn.specs import DEQ
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
PARAMS = ("published", "all")


def points(count: int = 6, p: int = 40) -> FloatArray:
    """Return fixed inputs with a common direction: norms near one, inner products near one half.

    Examples
    --------
    >>> X = points()
    >>> X.shape, bool(abs((X @ X.T)[0, 1]) > 0.2)
    ((6, 40), True)
    """
    rng = np.random.default_rng(20)
    common, own = rng.standard_normal(p), rng.standard_normal((count, p))
    return np.asarray((common + own) / np.sqrt(2 * p))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return the relative deviations of the simulated kernels from both formulas.

    The deviation of a simulated matrix S from a formula F over a set of entries is
    :math:`\sum S_{ij} F_{ij} / \sum F_{ij}^2 - 1`, over the diagonal and over the rest apart.
    Columns ``simulated_<weights>_against_<formula>_<entries>``.

    Parameters
    ----------
    settings : mapping
        ``activation`` (a name), ``width``.
    seed : int
        Seed of the weights.

    Examples
    --------
    >>> deviations = row({"activation": "relu", "width": 400}, 0)
    >>> deviations["simulated_all_against_published_diagonal"] > 0.5
    True
    """
    X = points()
    width = integer(settings["width"], "width", 1)
    network = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    spec = network.at(float(np.sqrt((X * X).sum() / len(X))))
    theory = {params: kernels.ntk(spec, X, params=params) for params in PARAMS}
    diagonal = np.eye(len(X), dtype=bool)
    result = {}
    for weights in PARAMS:
        simulated = simulate.ntk(spec, X, width, np.random.default_rng(seed), weights)
        for formula, expected in theory.items():
            for entries, mask in (("diagonal", diagonal), ("rest", ~diagonal)):
                deviation = _deviation(simulated[mask], expected[mask])
                result[f"simulated_{weights}_against_{formula}_{entries}"] = deviation
    return result


def _deviation(simulated: FloatArray, expected: FloatArray) -> float:
    return float(simulated @ expected / (expected @ expected) - 1)


def grid(width: int, names: tuple[str, ...]) -> list[dict[str, object]]:
    """Return one cell for each activation."""
    return [{"activation": name, "width": width} for name in names]


STUDY = Study(
    name="ntk_weights",
    row=row,
    grids={
        "quick": grid(500, ("relu", "tanh")),
        "paper": grid(1000, ("relu", "tanh", "swish")),
    },
    seeds={"quick": tuple(range(1000, 1008)), "paper": tuple(range(32))},
    claims=("AE3",),
    rtol=1e-6,
)
