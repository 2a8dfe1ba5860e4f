r"""Study of how far the best one-layer net stays from a DEQ (claim A7).

In high dimension the kernel of a one-layer net is a combination of three matrices with weights that
are not negative: :math:`XX^T`, the kernel of one even layer, and the identity. For the even layer
|t| is taken, so that with positively homogeneous activations nothing else differs, and the matched
L-ReLU net serves as a reference. Data: the mixture with class means of length one, n = 0.8 p.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations, design, equivalents, kernels
from implicitnn._validate import integer, real
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _matched
from implicitnn.sweeps import Study

ACTIVATIONS = ("relu", "leaky_relu(-0.5)", "leaky_relu(-1.0)")
LEVELS = (0.2, 0.5, 0.8)
GAP = 0.02


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return the distances of one sample, relative to the norm of the DEQ's kernel.

    ``one_layer`` : best combination of the three matrices, ``one_layer_bound`` a proved lower
    bound of it (both agree to 2 %); ``matched`` : the L-ReLU net with the fewest layers that is
    exact, ``layers`` of them; ``over_matched`` : the lower bound over that;
    ``ratio`` : :math:`\alpha_3/(2\alpha_2)`.

    Examples
    --------
    >>> cell = row({"activation": "relu", "sigma_a2": 0.5, "n": 64}, 0)
    >>> cell["over_matched"] > 1, cell["layers"]
    (True, 2.0)
    """
    n, sigma_a2 = integer(settings["n"], "n", 2), real(settings["sigma_a2"], "sigma_a2")
    sample = _matched.draw("near mixture", n, seed, "embedded")
    tau0 = sample.statistics.tau0
    deq = DEQ(activations.get(str(settings["activation"])), sigma_a2).at(tau0)
    exact = kernels.ck(deq, sample.X)
    size = _matched.norm(exact)
    even = kernels.ck(ENN([activations.leaky_relu(-1.0)], tau0), sample.X)
    found = _matched.best(exact, [sample.X @ sample.X.T, even, np.eye(n)], gap=GAP)
    net = design.match(deq, "leaky_relu").enn
    matched = _matched.norm(exact - kernels.ck(net, sample.X))
    scalars = equivalents.coefficients(deq)
    return {
        "one_layer": found.distance / size,
        "one_layer_bound": found.bound / size,
        "matched": matched / size,
        "layers": float(len(net.layers)),
        "over_matched": found.bound / matched,
        "ratio": scalars.alpha3 / (2 * scalars.alpha2),
    }


def _cells(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    return [
        {"activation": name, "sigma_a2": level, "n": n}
        for name in ACTIVATIONS
        for level in LEVELS
        for n in sizes
    ]


STUDY = Study(
    name="one_layer_gap",
    row=row,
    grids={"quick": _cells((128, 256)), "paper": _cells((128, 256, 512, 1024))},
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("A7",),
    rtol=3e-2,
    cost=_matched.cost,
)
