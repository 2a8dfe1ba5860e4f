r"""What the studies of matched nets share: their samples, distances, and the best rescaling.

The best combination of matrices :math:`M_1..M_k` for a target :math:`G` minimises
:math:`\|G - \sum_j c_j M_j\|` over :math:`c_j \ge 0`, in the spectral norm. The norm is convex in
c, and each unit eigenvector v of the difference, at an end of its spectrum, gives a plane below it:
:math:`\pm v^T(G - \sum_j c_j M_j)v`. Kelley's method minimises the largest plane found so far,
measures there, and stops when the norm is as small as the planes allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from implicitnn import kernels, mixtures, spectra
from implicitnn._validate import FloatArray, integer, one_of
from implicitnn.errors import AccuracyError
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.studies import _images

MEANS = {"mixture": 8.0, "near mixture": 1.0}
IMAGES = ("mnist", "fashion_mnist")
DATA = (*MEANS, *IMAGES)
SIZES = (128, 256, 512, 1024, 2048)
IMAGE_SIZES = (128, 512, 2048)
NORM_TOLERANCE = 1e-5
GAP = 1e-3
_ROUNDS = 80


def draw(data: str, n: int, seed: int, source: str) -> Sample:
    """Return n samples: a mixture with n = 0.8 p, or images of the labels 6 and 8.

    ``"mixture"`` is the authors' benchmark; ``"near mixture"`` has class means of length one.

    Examples
    --------
    >>> draw("mixture", 128, 0, "embedded").X.shape
    (128, 160)
    """
    if one_of(data, "data", DATA) in MEANS:
        rng = np.random.default_rng([seed, n])
        return mixtures.benchmark(5 * n // 4, mean=MEANS[data]).sample(n, rng)
    return _images.draw(data, "real", n, seed, source=source)


def cells(source: str, sizes: Sequence[int], image_sizes: Sequence[int]) -> list[dict[str, object]]:
    """Return one cell for each kind of data and size."""
    return [
        {"data": data, "source": source, "n": n}
        for data in DATA
        for n in (image_sizes if data in IMAGES else sizes)
    ]


def cost(settings: Mapping[str, object]) -> float:
    """Return the relative cost of a cell."""
    return 3e5 + float(integer(settings["n"], "n")) ** 2


def norm(matrix: FloatArray) -> float:
    """Return the spectral norm to the accuracy of these studies."""
    return spectra.operator_norm(matrix, tol=NORM_TOLERANCE)


@dataclass(frozen=True)
class Target:
    """A sample, the DEQ at its tau0, the DEQ's exact CK, the norm of that, and p, tau0, norm."""

    sample: Sample
    deq: DEQ
    kernel: FloatArray
    size: float
    columns: dict[str, float]


def target(settings: Mapping[str, object], seed: int, deq: DEQ) -> Target:
    """Return what the nets of one cell are compared with.

    Examples
    --------
    >>> from implicitnn import activations
    >>> deq = DEQ(activations.relu, 0.2)
    >>> target({"data": "mixture", "source": "embedded", "n": 128}, 0, deq).kernel.shape
    (128, 128)
    """
    n = integer(settings["n"], "n", 2)
    sample = draw(str(settings["data"]), n, seed, str(settings["source"]))
    fitted = deq.at(sample.statistics.tau0)
    kernel = kernels.ck(fitted, sample.X)
    size = norm(kernel)
    columns = {"p": float(sample.X.shape[1]), "tau0": fitted.tau0, "norm": size}
    return Target(sample, fitted, kernel, size, columns)


@dataclass(frozen=True)
class Best:
    """Best combination: coefficients, its distance from the target, and a proved lower bound."""

    coefficients: FloatArray
    distance: float
    bound: float


def best(target: FloatArray, matrices: Sequence[FloatArray], *, gap: float = GAP) -> Best:
    """Return the non-negative combination of positive semidefinite matrices nearest to a target.

    Parameters
    ----------
    target : (n, n) array
        Symmetric.
    matrices : sequence of (n, n) arrays
        Positive semidefinite, not zero.
    gap : float
        Stop when the distance exceeds the lower bound by this share of it.

    Raises
    ------
    AccuracyError
        The bound did not close.

    Examples
    --------
    >>> found = best(np.diag([3.0, 1.0]), [np.eye(2)])
    >>> found.coefficients.round(6).tolist(), round(found.distance, 6)
    ([2.0], 1.0)
    """
    scales = np.array([norm(matrix) for matrix in matrices])
    size = norm(target)
    # Beyond these the combination alone is larger than twice the target: worse than zero.
    largest = 2.0 * size / scales
    fits = [np.vdot(target, m) / np.vdot(m, m) for m in matrices]
    point = np.clip(np.array(fits) / len(matrices), 0.0, largest)
    slopes: list[FloatArray] = []
    heights: list[float] = []
    lowest, chosen = np.inf, point
    for _ in range(_ROUNDS):
        rest = target - np.tensordot(point, np.asarray(matrices), 1)
        pairs = spectra.extreme_eigenpairs(rest, 1, "both", tol=NORM_TOLERANCE)
        distance = float(np.abs(pairs.values).max())
        if distance < lowest:
            lowest, chosen = distance, point
        for vector in pairs.vectors.T:
            sign = np.sign(vector @ rest @ vector)
            slopes.append(-sign * np.array([vector @ m @ vector for m in matrices]))
            heights.append(float(sign * (vector @ target @ vector)))
        point, bound = _lowest_plane(np.array(slopes), np.array(heights), largest)
        if lowest - bound <= gap * lowest:
            return Best(chosen, lowest, bound)
    raise AccuracyError(f"best combination: distance {lowest:.6g}, lower bound {bound:.6g}")


def _lowest_plane(
    slopes: FloatArray, heights: FloatArray, largest: FloatArray
) -> tuple[FloatArray, float]:
    """Minimise the largest of the planes heights + slopes c over 0 <= c <= largest."""
    count = len(largest)
    solution = linprog(
        np.r_[np.zeros(count), 1.0],
        A_ub=np.column_stack([slopes, -np.ones(len(slopes))]),
        b_ub=-heights,
        bounds=[*((0.0, float(top)) for top in largest), (0.0, None)],
        method="highs",
    )
    if not solution.success:
        raise AccuracyError(f"linear programme of the best combination: {solution.message}")
    return np.asarray(solution.x[:count]), float(solution.fun)
