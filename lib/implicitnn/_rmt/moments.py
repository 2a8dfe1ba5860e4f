"""Class means, traces and trace products of the class covariances, estimated from data.

X is in the data scale (rows divided by sqrt(p)), so the covariance of the mixture is p times the
covariance of the rows. That factor is applied here and nowhere else.
"""

from __future__ import annotations

import numpy as np

from implicitnn._validate import FloatArray

_ROWS = 1024  # rows of a Gram block: 8 MB at most


def class_means(X: FloatArray, labels: np.ndarray, k: int) -> FloatArray:
    """Return the mean row of each class, (K, p), in the scale of X."""
    return np.stack([X[labels == a].mean(axis=0) for a in range(k)])


def class_traces(squared_norms: FloatArray, labels: np.ndarray, counts: np.ndarray) -> FloatArray:
    """Return the unbiased traces of the row covariances, tr(C_a)/p, from |x_i - mean|^2."""
    return np.asarray(
        np.bincount(labels, weights=squared_norms, minlength=len(counts)) / (counts - 1)
    )


def trace_products(parts: list[FloatArray]) -> FloatArray:
    r"""Return unbiased estimates of tr(C_a C_b)/p, (K, K), from the centred rows of each class.

    Off the diagonal the two sample covariances are independent and the plain product is unbiased.
    On it :math:`\operatorname{tr} S^2` is too large by about :math:`(\operatorname{tr} S)^2/n_a`,
    which does not vanish when n and p grow together. The U-statistic over distinct samples, in the
    form of Himeno and Yamada (2014), removes that bias for any distribution:

    .. math::
        \frac{n-1}{n(n-2)(n-3)}\Big[(n-1)(n-2)\operatorname{tr} S^2
        + (\operatorname{tr} S)^2 - \frac{n}{n-1}\sum_i |x_i-\bar x|^4\Big].

    Memory: Gram blocks of at most 1024 x 1024, or K matrices p x p when those are less work and
    together no larger than twice the data.
    """
    k, p = len(parts), parts[0].shape[1]
    n = sum(map(len, parts))
    # 2 p < n is where the scatter matrices cost less; k p <= 2 n keeps them small.
    squared = _by_scatter(parts) if 2 * p < n and k * p <= 2 * n else _by_gram(parts)
    freedom = np.array([len(part) - 1.0 for part in parts])
    result = p * squared / np.outer(freedom, freedom)
    for a, part in enumerate(parts):
        result[a, a] = p * _unbiased_square(squared[a, a], part)
    return np.asarray(result)


def _by_scatter(parts: list[FloatArray]) -> FloatArray:
    """Return |X_a X_b^T|_F^2 for all pairs, from the scatter matrices X_a^T X_a."""
    scatter = np.stack([(part.T @ part).ravel() for part in parts])
    return np.asarray(scatter @ scatter.T)


def _by_gram(parts: list[FloatArray]) -> FloatArray:
    """Return |X_a X_b^T|_F^2 for all pairs, from blocks of the Gram matrices."""
    k = len(parts)
    squared = np.empty((k, k))
    for a in range(k):
        for b in range(a, k):
            squared[a, b] = squared[b, a] = _gram_square(parts[a], parts[b])
    return squared


def _gram_square(A: FloatArray, B: FloatArray) -> float:
    total = 0.0
    for i in range(0, len(A), _ROWS):
        for j in range(0, len(B), _ROWS):
            block = A[i : i + _ROWS] @ B[j : j + _ROWS].T
            total += float(np.vdot(block, block))
    return total


def _unbiased_square(gram_square: float, centred: FloatArray) -> float:
    n = len(centred)
    norms = np.einsum("ij,ij->i", centred, centred)
    trace = float(norms.sum()) / (n - 1)
    trace_of_square = gram_square / (n - 1) ** 2
    fourth = float(norms @ norms) / (n - 1)
    bracket = (n - 1) * (n - 2) * trace_of_square + trace**2 - n * fourth
    return (n - 1) / (n * (n - 2) * (n - 3)) * bracket
