r"""Study of kernels of finite width against their limits and against the DEQ (claim A10).

One row is the mean kernel :math:`\Sigma_m` of independent networks of width m, one or more, on one
sample of the authors' mixture: spectral norms of :math:`\Sigma_m - \Sigma`, the distance to its own
limit; :math:`\Sigma_m - G`, the distance to the exact kernel of the DEQ; :math:`\Sigma - G`, the
floor that no width removes; and of the differences to the deterministic equivalent of G, by the
corrected and by the published formulas. All rows of a size and seed see the same sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from implicitnn import _validate, activations, design, equivalents, kernels, networks, spectra
from implicitnn._validate import FloatArray, real
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _matched
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
# Activation of the DEQ, and family of the explicit net; None is the DEQ itself.
NETS = {
    "quadratic": ("relu", "quadratic"),
    "l_relu": ("relu", "leaky_relu"),
    "h_tanh": ("tanh", "hard_tanh"),
    "relu_deq": ("relu", None),
    "tanh_deq": ("tanh", None),
}
FORMULAS = {
    "corrected": "corrected",
    "diagonal": "published-diagonal",
    "centring": "published-centring",
}
WIDTHS = (256, 512, 1024, 2048, 4096, 8192)
SIZES = (128, 256, 512, 1024)
AVERAGED = ("quadratic", "l_relu", "h_tanh")
MEAN_WIDTHS = (64, 128, 256, 512, 1024)
TOTAL = 1 << 18


def networks_of(net: str, tau0: float) -> tuple[DEQ, DEQ | ENN, float]:
    """Return the DEQ, the network compared with it, and the residual of its design.

    Designed for data of scale tau0; the residual is the largest of the scalar equations.

    Examples
    --------
    >>> networks_of("tanh_deq", 1.0)
    (DEQ(tanh, sigma_a2=0.2, tau0=1.0), DEQ(tanh, sigma_a2=0.2, tau0=1.0), 0.0)
    """
    name, family = NETS[_validate.one_of(net, "net", tuple(NETS))]
    deq = DEQ(activations.get(name), SIGMA_A2).at(tau0)
    if family is None:
        return deq, deq, 0.0
    found = design.match(deq, family)
    return deq, found.enn, found.residual


def row(settings: Mapping[str, object], seed: int) -> dict[str, float | None]:
    r"""Return the distances of one network.

    ``to_limit``, ``to_deq``, ``floor``: spectral norms as in the module's text. ``size``: of G.
    ``scale``: :math:`\|\Sigma\|(\sqrt{r/M} + r/M)` with the effective rank :math:`r =
    \operatorname{tr}\Sigma/\|\Sigma\|` and M the width times the number of networks, the order of
    the distance of a sample covariance of M vectors; ``over_scale`` divides by it. ``excess``:
    to_deq over floor. ``design_residual``: largest residual of the scalar equations of the design.
    ``equivalent_*``: :math:`\|\Sigma_m - \bar G\|` by each formula, and ``equivalent_floor_*`` the
    same at infinite width.

    Parameters
    ----------
    settings : mapping
        ``net`` (a key of NETS), ``n`` (samples), ``width`` (m), ``networks`` (their number).
    seed : int
        Seed of data and weights.

    Examples
    --------
    >>> cell = row({"net": "h_tanh", "n": 64, "width": 512, "networks": 1}, 0)
    >>> cell["floor"] < cell["to_limit"] < 2 * cell["scale"], cell["not_converged"]
    (True, 0)
    """
    n, width = (_validate.integer(settings[key], key, 1) for key in ("n", "width"))
    count = _validate.integer(settings["networks"], "networks", 1)
    sample = _matched.draw("mixture", n, seed, "embedded")
    deq, spec, residual = networks_of(str(settings["net"]), sample.statistics.tau0)
    drawn, failed = mean_kernel(spec, sample.X, width, count, seed)
    limit, exact = kernels.ck(spec, sample.X), kernels.ck(deq, sample.X)
    size = _matched.norm(limit)
    rank = float(np.trace(limit)) / size
    share = rank / (width * count)
    scale = size * (math.sqrt(share) + share)
    floor = _matched.norm(limit - exact) if spec is not deq else 0.0
    to_deq = _matched.norm(drawn - exact)
    to_limit = _matched.norm(drawn - limit)
    result: dict[str, float | None] = {
        "to_limit": to_limit,
        "to_deq": to_deq,
        "floor": floor,
        "excess": to_deq / floor if floor else None,
        "design_residual": residual,
        "size": _matched.norm(exact),
        "effective_rank": rank,
        "scale": scale,
        "over_scale": to_limit / scale,
        "not_converged": failed,
    }
    return result | _to_equivalents(deq, sample, drawn, limit)


def mean_kernel(
    spec: DEQ | ENN, X: FloatArray, width: int, count: int, seed: int
) -> tuple[FloatArray, int]:
    """Return the mean Gram matrix of independent networks, and the samples that did not converge.

    Examples
    --------
    >>> mean, failed = mean_kernel(networks_of("h_tanh", 1.0)[1], np.eye(3), 20, 5, 0)
    >>> mean.shape, failed
    ((3, 3), 0)
    """
    rng = np.random.default_rng([seed, len(X), width, count])
    total, failed = np.zeros((len(X), len(X))), 0
    for _ in range(count):
        # numpy's arithmetic on every machine, so that timing does not decide last digits.
        net = networks.build(spec, X.shape[1], width, 1, rng, backend="numpy")
        features = networks.features(net, X)
        F = features.value.astype(np.float64)
        total += F @ F.T
        failed += features.not_converged
    return total / count, failed


def _to_equivalents(
    deq: DEQ, sample: Sample, drawn: FloatArray, limit: FloatArray
) -> dict[str, float]:
    found = {}
    for name, formula in FORMULAS.items():
        operator = equivalents.ck_operator(deq, sample, formula=formula)
        for key, matrix in (("equivalent", drawn), ("equivalent_floor", limit)):
            gap = spectra.difference(matrix, operator)
            found[f"{key}_{name}"] = spectra.operator_norm(gap, tol=_matched.NORM_TOLERANCE)
    return found


def _singles(sizes: tuple[int, ...], widths: tuple[int, ...]) -> list[dict[str, object]]:
    return [
        {"net": net, "n": n, "width": m, "networks": 1}
        for net in NETS
        for n in sizes
        for m in widths
    ]


def _means(sizes: tuple[int, ...], widths: tuple[int, ...], total: int) -> list[dict[str, object]]:
    """Networks of all widths, as many as make the total number of units the same."""
    return [
        {"net": net, "n": n, "width": m, "networks": total // m}
        for net in AVERAGED
        for n in sizes
        for m in widths
    ]


def _cost(settings: Mapping[str, object]) -> float:
    """Products of the iteration or the layers, and the drawing of the weights."""
    n, m, count = (real(settings[key], key) for key in ("n", "width", "networks"))
    steps = 12.0 if str(settings["net"]).endswith("deq") else 1.0
    return 3e9 + count * (steps * 2.0 * n * m * m + 1000.0 * m * m + 1e8) + 300.0 * n * n


STUDY = Study(
    name="finite_width",
    row=row,
    grids={
        "quick": _singles((128,), (256, 1024)) + _means((128,), (64, 256, 1024), 1 << 15),
        "paper": _singles(SIZES, WIDTHS) + _means((128, 256), MEAN_WIDTHS, TOTAL),
    },
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("A10",),
    rtol=1e-3,
    atol=1e-6,
    cost=_cost,
)
