r"""Study of Example L-ReLU: a two-layer net against the ReLU-DEQ, with plain ReLU nets (claim A6).

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
PLAIN = {"one_layer": 1, "two_layers": 2}


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the distances of one sample.

    ``matched``, ``other_branch`` : the two L-ReLU designs, first the one that `design.match`
    returns; ``matched_worst`` : the larger distance; ``branch_ratio`` : other over matched.
    ``one_layer``, ``two_layers`` : plain centred ReLU nets multiplied by the factor, in
    ``<name>_factor``, that is best in the spectral norm; ``<name>_unscaled`` : as they are;
    ``<name>_over_matched`` : their distance over ``matched_worst``.

    Examples
    --------
    >>> cell = row({"data": "mixture", "source": "embedded", "n": 128}, 0)
    >>> cell["matched"] < 1e-3 < cell["one_layer"] < cell["two_layers"]
    True
    """
    goal = _matched.target(settings, seed, DEQ(activations.relu, SIGMA_A2))
    X, tau0, exact, size = goal.sample.X, goal.deq.tau0, goal.kernel, goal.size
    found = design.match(goal.deq, "leaky_relu", layers=2)
    gaps = [_matched.norm(exact - kernels.ck(e, X)) for e in (found.enn, *found.alternatives)]
    result = goal.columns | {"matched": gaps[0] / size, "other_branch": gaps[1] / size}
    result |= {"matched_absolute": gaps[0], "matched_worst": max(gaps) / size}
    result["branch_ratio"] = gaps[1] / gaps[0]
    for name, count in PLAIN.items():
        kernel = kernels.ck(ENN([activations.relu] * count, tau0), X)
        fit = _matched.best(exact, [kernel])
        result |= {name: fit.distance / size, f"{name}_factor": float(fit.coefficients[0])}
        result[f"{name}_unscaled"] = _matched.norm(exact - kernel) / size
        result[f"{name}_over_matched"] = result[name] / result["matched_worst"]
    return result


STUDY = Study(
    name="matched_l_relu",
    row=row,
    grids={
        "quick": _matched.cells("embedded", (128, 256), (128, 256)),
        "paper": _matched.cells("full", _matched.SIZES, _matched.IMAGE_SIZES),
    },
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("A6",),
    datasets=full_images,
    rtol=1e-3,
    cost=_matched.cost,
)
