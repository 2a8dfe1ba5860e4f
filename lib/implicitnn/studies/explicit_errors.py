r"""Study of the equivalents of explicit nets: depth, activation and size (claim AX1).

One row is one net of L layers and one draw of the data: the spectral norm of the exact kernel minus
the equivalent that the layer recursion gives, for the CK and for the NTK over all weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import activations, equivalents, kernels, spectra
from implicitnn._validate import integer, one_of
from implicitnn.mixtures import Sample
from implicitnn.specs import ENN
from implicitnn.studies import limits
from implicitnn.sweeps import Study

NETS = {
    "relu": ("relu",) * 4,
    "tanh": ("tanh",) * 4,
    "mixed": ("relu", "tanh", "elu", "swish"),
}
DEPTHS = (1, 2, 3, 4)
NORM_TOLERANCE = 1e-6


def net(name: str, depth: int, tau0: float = 1.0) -> ENN:
    """Return the first ``depth`` layers of a named net.

    Examples
    --------
    >>> net("mixed", 2)
    ENN((relu, tanh,), tau0=1.0)
    """
    names = NETS[one_of(name, "activation", tuple(NETS))]
    if not 1 <= depth <= len(names):
        raise ValueError(f"depth must lie in 1..{len(names)}, got {depth}")
    return ENN(tuple(activations.get(layer) for layer in names[:depth]), tau0)


def draw(n: int, seed: int) -> Sample:
    """Return a sample of the mixture of the study `limits` in dimension 1.25 n.

    Examples
    --------
    >>> draw(96, 0).X.shape
    (96, 120)
    """
    return limits.mixture(5 * n // 4).sample(n, np.random.default_rng([seed, n]))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of one net at one size; all nets see the same data.

    ``_over_log`` marks an absolute error divided by sqrt(log n), the factor by which the largest of
    n Gaussian fluctuations exceeds a typical one.

    Parameters
    ----------
    settings : mapping
        ``activation`` (a key of NETS), ``depth``, ``n``.
    seed : int
        Seed of the data.

    Examples
    --------
    >>> errors = row({"activation": "tanh", "depth": 1, "n": 96}, 0)
    >>> 0 < errors["ck_relative"] < 0.3, 0 < errors["ntk_relative"] < 0.3
    (True, True)
    """
    sample = draw(integer(settings["n"], "n"), seed)
    depth = integer(settings["depth"], "depth", 1)
    spec = net(str(settings["activation"]), depth, sample.statistics.tau0)
    exact = kernels.ck_and_ntk(spec, sample.X)
    errors: dict[str, float] = {}
    log = float(np.sqrt(np.log(len(sample.X))))
    for kernel, matrix, operator in (
        ("ck", exact.ck, equivalents.ck_operator(spec, sample)),
        ("ntk", exact.ntk, equivalents.ntk_operator(spec, sample)),
    ):
        gap = spectra.difference(matrix, operator)
        absolute = spectra.operator_norm(gap, tol=NORM_TOLERANCE)
        norm = spectra.operator_norm(matrix, tol=NORM_TOLERANCE)
        errors |= {f"{kernel}_absolute": absolute, f"{kernel}_relative": absolute / norm}
        errors[f"{kernel}_over_log"] = absolute / log
    return errors


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return one cell for each net, depth and size."""
    return [{"activation": a, "depth": d, "n": n} for a in NETS for d in DEPTHS for n in sizes]


def _cost(settings: Mapping[str, object]) -> float:
    return float(integer(settings["n"], "n")) ** 2


STUDY = Study(
    name="explicit_errors",
    row=row,
    grids={"quick": grid((96, 192)), "paper": grid((96, 192, 384, 768, 1536))},
    seeds={"quick": (1000, 1001), "paper": tuple(range(10))},
    claims=("AX1",),
    rtol=1e-5,
    cost=_cost,
)
