r"""Study of DEQs with a shared random bias, and without centring (claims A15 and X1).

One row is one network on one sample: the spectral norm of the exact kernel minus its second-order
equivalent, for the CK and the NTK over (a, A), and minus the equivalent of the theorem, which knows
no bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations, equivalents, kernels
from implicitnn._validate import integer, one_of, real
from implicitnn.specs import DEQ
from implicitnn.studies import _matched, _second_order
from implicitnn.sweeps import Study

# Activation, variances of hidden weights, input weights and bias, and whether it is centred.
CASES: dict[str, tuple[str, float, float, float, bool]] = {
    "tanh, bias": ("tanh", 0.2, 0.6, 0.2, True),
    "relu, bias": ("relu", 0.2, 0.6, 0.2, True),
    "relu, uncentred": ("relu", 0.2, 0.8, 0.0, False),
    "relu, uncentred, bias": ("relu", 0.2, 0.6, 0.2, False),
    "swish, uncentred, bias": ("swish", 0.2, 0.6, 0.2, False),
}
DATA = ("near mixture", "mixture")


def network(case: str, tau0: float) -> DEQ:
    """Return the DEQ of a case.

    Examples
    --------
    >>> network("relu, uncentred", 1.0)
    DEQ(relu, sigma_a2=0.2, sigma_b2=0.8, tau0=1.0, centred=False)
    """
    name, a, b, c, centred = CASES[one_of(case, "case", tuple(CASES))]
    return DEQ(activations.get(name), a, b, tau0, sigma_c2=c, centred=centred)


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return errors, and the norms of the kernels.

    ``plain``: distance from the theorem's equivalent of the same network without bias, centred;
    ``_over_log``: divided by sqrt(log n); ``_relative``: by the norm of the kernel.

    Parameters
    ----------
    settings : mapping
        ``case`` (a key of CASES), ``data`` (one of DATA), ``n``.
    seed : int
        Seed of the sample.

    Examples
    --------
    >>> cell = row({"case": "tanh, bias", "data": "near mixture", "n": 128}, 0)
    >>> cell["ck_absolute"] < 1 < cell["plain_absolute"]
    True
    """
    n = integer(settings["n"], "n", 2)
    sample = _matched.draw(one_of(settings["data"], "data", DATA), n, seed, "embedded")
    spec = network(str(settings["case"]), sample.statistics.tau0)
    exact = kernels.ck_and_ntk(spec, sample.X)
    parts = zip(("ck", "ntk"), exact, _second_order.expansions(spec), strict=True)
    result: dict[str, float] = {}
    for name, kernel, taylor in parts:
        gap = _matched.norm(kernel - _second_order.matrix(taylor, sample))
        size = _matched.norm(kernel)
        result |= {
            f"{name}_absolute": gap,
            f"{name}_relative": gap / size,
            f"{name}_over_log": gap / float(np.sqrt(np.log(n))),
            f"{name}_norm": size,
        }
    bare = DEQ(spec.activation, spec.sigma_a2, spec.sigma_b2, spec.tau0)
    plain = _matched.norm(exact.ck - equivalents.ck(bare, sample))
    return result | {"plain_absolute": plain, "plain_relative": plain / result["ck_norm"]}


def _grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    return [{"case": case, "data": data, "n": n} for case in CASES for data in DATA for n in sizes]


def _cost(settings: Mapping[str, object]) -> float:
    return 1e5 + real(settings["n"], "n") ** 2


STUDY = Study(
    name="bias",
    row=row,
    grids={"quick": _grid((128, 256)), "paper": _grid((128, 256, 512, 1024, 2048))},
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("A15", "X1"),
    rtol=1e-3,
    cost=_cost,
)
