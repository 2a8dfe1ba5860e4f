r"""Study of the width that suffices (claim C7).

Three properties of a random start with W Gaussian, A a multiple of the identity and b = 0:

``spectrum``
    :math:`W_{ij}\sim N(0,1/m)`; :math:`\sigma_{\min}(\Phi)^2 \ge \lambda/2`, where lambda is the
    smallest eigenvalue of the infinite-width matrix, see :func:`infinite_width`.
``scaled``
    the conditions on descent at :math:`\beta(W, I, 0)`, :math:`W_{ij}\sim N(0,1/m)`, with the
    declared :math:`\beta = 34 N/\lambda` and :math:`\gamma\beta = 0.1`.
``standard``
    the conditions on descent at :math:`(W, I, 0)`, :math:`W_{ij}\sim N(0,1)`, not scaled, with
    :math:`\gamma = 0.08\sqrt{\lambda/N}`.

:math:`m^*` is the smallest width of a grid of ratio 1.05 at which 90 % of 20 draws have the
property. Since A is a multiple of the identity, :math:`Z = \Phi/(1 - \gamma a)` by Lemma 5.1, and
only N x N matrices are needed. The labels are +1 and -1, so :math:`|y| = \sqrt N`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from implicitnn._infinite_depth.theory import Start, constants
from implicitnn._validate import FloatArray, integer
from implicitnn.sweeps import Study

DRAWS = 20
SHARE = 0.9
RATIO = 1.05
PROPERTIES = ("spectrum", "scaled", "standard")
DATA = ("orthonormal", "sphere")
_BLOCK = 1 << 16


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return :math:`m^*`, its ratio to N and to :math:`N^2`, and the infinite-width eigenvalue."""
    N, name, data = integer(settings["N"], "N", 2), str(settings["property"]), str(settings["data"])
    rng = np.random.default_rng([seed, N, PROPERTIES.index(name), DATA.index(data)])
    X = inputs(data, N, rng)
    eigenvalue = float(np.linalg.eigvalsh(infinite_width(X))[0])
    grid = widths(N, name)
    good = np.array([holds(name, X, grid, eigenvalue, rng) for _ in range(DRAWS)])
    enough = np.flatnonzero(good.mean(axis=0) >= SHARE)
    if not enough.size:
        raise RuntimeError(f"no width up to {grid[-1]} has the property {name!r} at N = {N}")
    width = float(grid[enough[0]])
    return {"width": width, "width_over_N": width / N, "width_over_N2": width / N**2,
            "eigenvalue": eigenvalue}  # fmt: skip


def inputs(data: str, N: int, rng: np.random.Generator) -> FloatArray:
    """Return N unit rows: orthonormal, or uniform on the sphere in N/2 dimensions."""
    if data == "orthonormal":
        return np.eye(N)
    X = rng.standard_normal((N, N // 2))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def infinite_width(X: FloatArray) -> FloatArray:
    r"""Return :math:`E[\mathrm{relu}(Xw)\mathrm{relu}(Xw)^T]` for w standard normal, (N, N).

    The arc-cosine kernel of order 1 of Cho and Saul (2009).

    Examples
    --------
    >>> np.round(infinite_width(np.eye(2)), 6).tolist()
    [[0.5, 0.159155], [0.159155, 0.5]]
    """
    norms = np.linalg.norm(X, axis=1)
    scale = np.outer(norms, norms)
    cosine = np.clip(X @ X.T / scale, -1.0, 1.0)
    np.fill_diagonal(cosine, 1.0)
    angle = np.arccos(cosine)
    return np.asarray(scale * (np.sin(angle) + (math.pi - angle) * cosine) / (2 * math.pi))


def widths(N: int, name: str) -> np.ndarray:
    """Return the grid of widths: from N up, by a factor 1.05, to a limit for each property."""
    limit = {"spectrum": 200 * N, "scaled": 200 * N, "standard": 4000 * N**2}[name]
    first = N if name != "standard" else 20 * N
    count = int(math.log(limit / first) / math.log(RATIO)) + 1
    return np.unique(np.round(first * RATIO ** np.arange(count)).astype(int))


def holds(
    name: str, X: FloatArray, grid: np.ndarray, eigenvalue: float, rng: np.random.Generator
) -> np.ndarray:
    """Return, for one draw of W grown column by column, whether each width has the property.

    A draw ends once the property has held at 15 widths in a row; it then counts as having it at
    all larger ones.
    """
    found = np.zeros(grid.size, dtype=bool)
    for i, (m, features, weights) in enumerate(growing(X, grid, rng)):
        least = max(float(np.linalg.eigvalsh(features)[0]), 0.0)
        top = float(np.linalg.eigvalsh(weights)[-1])
        found[i] = has(name, X, m, least, top, eigenvalue)
        if i >= 14 and found[i - 14 : i + 1].all():
            found[i:] = True
            break
    return found


def growing(
    X: FloatArray, grid: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    r"""Yield m, :math:`\Phi\Phi^T` and :math:`WW^T` for W (d, m) standard normal, m growing."""
    N, d = X.shape
    features, weights, m = np.zeros((N, N)), np.zeros((d, d)), 0
    for target in grid:
        while m < target:
            count = min(int(target) - m, _BLOCK)
            W = rng.standard_normal((d, count))
            Phi = np.maximum(X @ W, 0.0)
            features += Phi @ Phi.T
            weights += W @ W.T
            m += count
        yield m, features, weights


def has(name: str, X: FloatArray, m: int, least: float, top: float, eigenvalue: float) -> bool:
    r"""Return whether the property holds, from the extreme eigenvalues of the two products.

    ``least`` and ``top`` belong to W with unit variance.
    """
    if name == "spectrum":
        return least / m >= eigenvalue / 2
    N = len(X)
    beta = 34.0 * N / eigenvalue if name == "scaled" else 1.0
    variance = 1 / m if name == "scaled" else 1.0
    # gamma A does not depend on the scale.
    product = 0.1 if name == "scaled" else 0.08 * math.sqrt(eigenvalue / N)
    start = Start(
        norm_W=math.sqrt(top * variance),
        norm_A=1.0,
        norm_b=0.0,
        gamma=product,
        alpha=math.sqrt(least * variance) / (1 - product),
        prediction=np.zeros(N),
        y=np.ones(N),
        norm_X=float(np.linalg.norm(X, 2)),
        frobenius_X=float(np.linalg.norm(X)),
    )
    return constants(start, beta, (1.0, 1.0, 1.0)).descent_holds


def _cells(sizes: tuple[int, ...], standard: tuple[int, ...]) -> list[dict[str, object]]:
    linear: list[dict[str, object]] = [
        {"property": name, "data": data, "N": N}
        for name in ("spectrum", "scaled")
        for data in DATA
        for N in sizes
    ]
    return linear + [{"property": "standard", "data": "orthonormal", "N": N} for N in standard]


def _cost(settings: Mapping[str, object]) -> float:
    N = integer(settings["N"], "N", 2)
    return float(N**3) if settings["property"] == "standard" else N**2 / 4


STUDY = Study(
    name="width_conditions",
    row=row,
    grids={
        "quick": _cells((8, 16), (4, 8)),
        "paper": _cells((8, 16, 32, 64, 128), (4, 8, 16, 32)),
    },
    seeds={"quick": (0, 1), "paper": tuple(range(10))},
    claims=("C7",),
    rtol=0.11,
    cost=_cost,
)
