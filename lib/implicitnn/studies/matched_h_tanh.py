r"""Study of Example H-Tanh: a clipped one-layer net against the tanh-DEQ (claim A5).

Each row holds exact kernels of one sample. All distances are spectral norms divided by
:math:`\|G\|`, the norm of the DEQ's kernel, but for the column that says absolute.
"""

from __future__ import annotations

from collections.abc import Mapping

from implicitnn import activations, design, kernels
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _matched
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the distances of one sample.

    ``matched`` : H-Tanh designed at the data's tau0; ``unit_design`` : designed at tau0 = 1.
    ``plain`` : one tanh layer multiplied by ``plain_factor``, the best factor in the spectral norm;
    ``plain_unscaled`` : as it is.

    Examples
    --------
    >>> cell = row({"data": "mixture", "source": "embedded", "n": 128}, 0)
    >>> cell["matched"] < cell["unit_design"]
    True
    """
    goal = _matched.target(settings, seed, DEQ(activations.tanh, SIGMA_A2))
    X, tau0, exact, size = goal.sample.X, goal.deq.tau0, goal.kernel, goal.size
    result = dict(goal.columns)
    for name, scale in (("matched", tau0), ("unit_design", 1.0)):
        layers = design.match(goal.deq.at(scale), "hard_tanh").enn.layers
        gap = _matched.norm(exact - kernels.ck(ENN(layers, tau0), X))
        result |= {name: gap / size, f"{name}_absolute": gap}
    kernel = kernels.ck(ENN([activations.tanh], tau0), X)
    found = _matched.best(exact, [kernel])
    result |= {"plain": found.distance / size, "plain_factor": float(found.coefficients[0])}
    return result | {"plain_unscaled": _matched.norm(exact - kernel) / size}


STUDY = Study(
    name="matched_h_tanh",
    row=row,
    grids={
        "quick": _matched.cells("embedded", (128, 256), (128, 256)),
        "paper": _matched.cells("full", _matched.SIZES, _matched.IMAGE_SIZES),
    },
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("A5",),
    datasets=full_images,
    rtol=1e-3,
    cost=_matched.cost,
)
