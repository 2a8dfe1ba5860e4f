r"""Study of Corollary 1: two quadratic layers against a DEQ, and the repair (claim A4).

The quadratic net holds as many of the four scalar equations as it can; the repaired net has a third
Hermite coefficient in its last layer. Rows of kind "kernels" compare exact kernels on data, rows of
kind "scalars" the equations, for a random sigma_a2 and scale.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations, design, equivalents, kernels, mixtures, spectra
from implicitnn._validate import FloatArray, integer, one_of
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.studies import limits
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
NORM_TOLERANCE = 1e-6
NETS = {"quadratic": "quadratic", "repaired": "cubic_hermite"}
ACTIVATIONS = ("relu", "leaky_relu(0.01)", "swish", "gelu", "elu", "tanh")
DATA = ("norm 1", "benchmark")


def draw(data: str, n: int, seed: int) -> Sample:
    """Return two classes in dimension 1.25 n.

    "norm 1": means of norm one, covariances I and (1 + 2/sqrt p) I; "benchmark": the authors'
    mixture, means of norm 8, covariances I and (1 + 8/sqrt p) I.

    Examples
    --------
    >>> draw("norm 1", 128, 0).X.shape
    (128, 160)
    """
    p = 5 * n // 4
    one_of(data, "data", DATA)
    mixture = mixtures.benchmark(p) if data == "benchmark" else limits.mixture(p)
    return mixture.sample(n, np.random.default_rng([seed, n]))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return one comparison.

    Kind "kernels" (settings ``activation``, ``data``, ``n``; the seed draws the data), for each
    net: ``<net>_distance`` :math:`\|G-\Sigma\|` and ``<net>_relative`` to :math:`\|G\|`;
    ``<net>_trace`` :math:`|\operatorname{tr}(G-\Sigma)|/n`, a lower bound of the distance;
    ``<net>_floor``, the predicted multiple of the identity, and ``<net>_shifted``, the distance
    without it. On "norm 1" also ``ntk_<net>_relative`` for the NTKs over all weights, and the same
    for the cubic net that matches the NTK.

    Kind "scalars" (setting ``activation``; the seed draws sigma_a2 in [0.02, 0.95] and tau0 in
    [0.7, 1.5]): ``<net>_residual``, the largest of the four equations, relative.

    Examples
    --------
    >>> found = row({"kind": "scalars", "activation": "relu"}, 0)
    >>> found["repaired_residual"] < 1e-12 < 0.01 < found["quadratic_residual"]
    True
    """
    activation = activations.get(str(settings["activation"]))
    if one_of(settings["kind"], "kind", ("kernels", "scalars")) == "scalars":
        return _scalars(activation, np.random.default_rng(seed))
    data = str(settings["data"])
    sample = draw(data, integer(settings["n"], "n"), seed)
    deq = DEQ(activation, SIGMA_A2).at(sample.statistics.tau0)
    return _conjugate(deq, sample) | (_tangent(deq, sample) if data == "norm 1" else {})


def _scalars(activation: activations.Activation, rng: np.random.Generator) -> dict[str, float]:
    deq = DEQ(activation, float(rng.uniform(0.02, 0.95)), None, float(rng.uniform(0.7, 1.5)))
    return {"sigma_a2": deq.sigma_a2, "tau0": deq.tau0} | {
        f"{net}_residual": design.match(deq, family).residual for net, family in NETS.items()
    }


def _conjugate(deq: DEQ, sample: Sample) -> dict[str, float]:
    G = kernels.ck(deq, sample.X)
    size, wanted = _norm(G), equivalents.coefficients(deq).gamma2
    result: dict[str, float] = {}
    for net, family in NETS.items():
        enn = design.match(deq, family).enn
        gap, floor = G - kernels.ck(enn, sample.X), wanted - enn.taus[-1] ** 2
        distance = _norm(gap)
        result |= {
            f"{net}_distance": distance,
            f"{net}_relative": distance / size,
            f"{net}_trace": abs(float(np.trace(gap))) / len(gap),
            f"{net}_floor": abs(floor),
            f"{net}_shifted": _norm(gap - floor * np.eye(len(gap))),
        }
    return result


def _tangent(deq: DEQ, sample: Sample) -> dict[str, float]:
    K = kernels.ntk(deq, sample.X, params="all")
    nets = {net: design.match(deq, family).enn for net, family in NETS.items()}
    nets["tangent"] = design.match(deq, "cubic_hermite", "ntk").enn
    size = _norm(K)
    return {
        f"ntk_{net}_relative": _norm(K - kernels.ntk(enn, sample.X)) / size
        for net, enn in nets.items()
    }


def _norm(matrix: FloatArray) -> float:
    return spectra.operator_norm(matrix, tol=NORM_TOLERANCE)


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return the cells of both kinds."""
    cells: list[dict[str, object]] = [
        {"kind": "kernels", "activation": name, "data": data, "n": n}
        for name in ("relu", "swish")
        for data in DATA
        for n in sizes
    ]
    cells += [{"kind": "scalars", "activation": name} for name in ACTIVATIONS]
    return cells


def _cost(settings: Mapping[str, object]) -> float:
    return float(integer(settings.get("n", 64), "n")) ** 2


STUDY = Study(
    name="corollary_1",
    row=row,
    grids={"quick": grid((128, 256)), "paper": grid((128, 256, 512, 1024, 2048))},
    seeds={"quick": (1000, 1001), "paper": tuple(range(10))},
    claims=("A4",),
    rtol=1e-5,
    atol=1e-9,
    cost=_cost,
)
