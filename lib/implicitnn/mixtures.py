r"""K-class Gaussian mixtures, samples from them, and the same statistics taken from real data.

A sample of class a is :math:`\sqrt p\,x_i = \mu_a + z_i` with :math:`z_i \sim N(0, C_a)`. Rows of
X are the :math:`x_i`: the division by :math:`\sqrt p` is already done. Means and covariances are
given for :math:`\sqrt p\,x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from implicitnn import _validate
from implicitnn._rmt import covariance as _covariance
from implicitnn._rmt import moments as _moments
from implicitnn._rmt.quotas import largest_remainder
from implicitnn._rmt.samples import (
    SCALES,
    IntArray,
    Sample,
    Statistics,
    build_statistics,
    frozen,
    integer_labels,
    owned,
)
from implicitnn._validate import FloatArray

__all__ = ["GaussianMixture", "Sample", "Statistics", "benchmark", "empirical", "gaussian_twin"]


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    r"""A mixture of K Gaussians for :math:`\sqrt p\,x`.

    .. math::
        \sqrt p\, x_i = \mu_a + z_i, \qquad z_i \sim N(0, C_a), \qquad a = 1..K.

    Parameters
    ----------
    means : (K, p) array
        :math:`\mu_a`, in the scale of :math:`\sqrt p\,x`, at most 1e50 in size.
    covariances : sequence of K entries
        :math:`C_a`: a number c (c times the identity), a vector (p,) (the diagonal), or a
        symmetric positive semidefinite (p, p) matrix, which may be singular. No entry exceeds
        1e100.
    weights : (K,) array
        Class probabilities, nonnegative, summing to one within 1e-9.

    Attributes
    ----------
    K, p : int
        Number of classes and of features.
    traces : (K,) array
        tr C_a.
    trace_products : (K, K) array
        tr(C_a C_b)/p.

    Raises
    ------
    ValueError
        A shape does not fit, a covariance is not symmetric or has a negative eigenvalue, a weight
        is negative, the weights do not sum to one, a number is too large.

    Notes
    -----
    A full covariance is factored once, when the mixture is built. A safely positive definite one
    by Cholesky; any other by its symmetric square root, which unlike a Cholesky factor does not
    depend on rounding where the matrix is singular. Memory: two p x p matrices for each full
    covariance.

    References
    ----------
    Ling et al. 2024, the data model of Theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> mixture = GaussianMixture(np.zeros((2, 3)), [1.0, [1.0, 2.0, 3.0]], [0.5, 0.5])
    >>> mixture.K, mixture.p, mixture.traces.tolist()
    (2, 3, [3.0, 6.0])
    >>> mixture.sample(10, 0).X.shape
    (10, 3)
    """

    means: FloatArray
    covariances: tuple[FloatArray, ...]
    weights: FloatArray
    _roots: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __init__(
        self, means: ArrayLike, covariances: Sequence[ArrayLike], weights: ArrayLike
    ) -> None:
        centres = _validate.real_array(means, "means", 2)
        _validate.within(centres, "means", _validate.LARGEST_SCALE)
        k, p = centres.shape
        if not isinstance(covariances, Sequence | np.ndarray):
            raise TypeError(f"covariances must be a sequence, got {_validate.shown(covariances)}")
        if len(covariances) != k:
            raise ValueError(
                f"covariances must have one entry per row of means ({k}), got {len(covariances)}"
            )
        names = [f"covariances[{a}]" for a in range(k)]
        checked = [
            frozen(_covariance.checked(value, name, p))
            for value, name in zip(covariances, names, strict=True)
        ]
        roots = [owned(_covariance.root(c, name)) for c, name in zip(checked, names, strict=True)]
        object.__setattr__(self, "means", frozen(centres))
        object.__setattr__(self, "covariances", tuple(checked))
        object.__setattr__(self, "weights", frozen(_weights(weights, k)))
        object.__setattr__(self, "_roots", tuple(roots))

    @property
    def K(self) -> int:
        """Number of classes."""
        return len(self.means)

    @property
    def p(self) -> int:
        """Number of features."""
        return int(self.means.shape[1])

    @cached_property
    def traces(self) -> FloatArray:
        """The traces of the C_a, (K,)."""
        return owned(np.array([_covariance.trace(c) for c in self.covariances]))

    @cached_property
    @np.errstate(under="ignore")
    def trace_products(self) -> FloatArray:
        """The values tr(C_a C_b)/p, (K, K); the covariances are not centred."""
        result = np.empty((self.K, self.K))
        for a in range(self.K):
            for b in range(a, self.K):
                value = _covariance.trace_product(self.covariances[a], self.covariances[b]) / self.p
                result[a, b] = result[b, a] = value
        return owned(result)

    def counts(self, n: int) -> IntArray:
        """Return the class sizes n_a for n samples: largest remainder, ties to the lower class.

        n is at most 2**53; the sizes sum to n and each is within one of its share.

        >>> GaussianMixture(np.zeros((3, 2)), [1, 1, 1], [0.5, 0.25, 0.25]).counts(5).tolist()
        [3, 1, 1]
        """
        n = _validate.count(n, "n")
        return np.array(largest_remainder(self.weights.tolist(), n), dtype=np.int64)

    @np.errstate(under="ignore")
    def sample(self, n: int, rng: np.random.Generator | int, *, scale: str = "data") -> Sample:
        r"""Draw n samples, ordered by class, with their statistics.

        The class sizes are deterministic (`counts`). Only the noise is random: n p normal numbers
        drawn row by row, so a seed fixes it whatever the means and covariances.
        The statistics use the true covariances and the actual class fractions n_a/n; a class that
        receives no sample keeps its place in t and T and a zero column in J.

        Parameters
        ----------
        n : int
            Number of samples, at least one.
        rng : numpy.random.Generator or int
            Source of randomness; an int is a seed. ``None`` is refused.
        scale : {"data", "covariance"}
            ``"data"``: tau0^2 = tr(X X^T)/n, as in the authors' code.
            ``"covariance"``: tau0^2 = tr(C_0)/p, as in the statement of the theorem.

        Returns
        -------
        Sample
            X (n, p) divided by :math:`\sqrt p`, labels (n,), statistics.

        Raises
        ------
        ValueError
            n < 1, n p > 2**53, unknown scale, or a data set of scale outside 1e-50 .. 1e50.

        Examples
        --------
        >>> sample = benchmark(100).sample(80, 0)
        >>> bool(np.isclose(sample.statistics.tau0**2, (sample.X**2).sum() / 80))
        True
        """
        counts = self.counts(n)
        n = int(counts.sum())
        _validate.table(n, self.p, "n", "features")
        _validate.one_of(scale, "scale", SCALES)
        generator = _validate.generator(rng)
        X, psi, start = np.empty((n, self.p)), np.empty(n), 0
        for mean, root, trace, count in zip(
            self.means, self._roots, self.traces, counts, strict=True
        ):
            rows = slice(start, start + int(count))
            start += int(count)
            z = generator.standard_normal((int(count), self.p))
            z = z * root if root.ndim == 1 else z @ root.T
            psi[rows] = (_squared_norms(z) - trace) / self.p
            X[rows] = (mean + z) / np.sqrt(self.p)
        labels = np.repeat(np.arange(self.K), counts)
        tau0 = _scale_of(X) if scale == "data" else None
        statistics = build_statistics(labels, psi, self.traces, self.trace_products, self.p, tau0)
        return Sample(owned(X), owned(labels), statistics)


def benchmark(p: int, *, mean: float = 8.0) -> GaussianMixture:
    r"""Return the authors' two-class mixture in dimension p.

    Classes i = 0, 1 of equal weight, mean 8 at coordinate 8i, covariance
    :math:`(1 + 8i/\sqrt p) I`. The authors take n = 0.8 p.

    Parameters
    ----------
    p : int
        Number of features, at least 9.
    mean : float
        The nonzero entry of the means. At 8 the means are not small beside
        :math:`\sqrt p` for p below some thousands: :math:`|\mu|^2/p = 0.26` at p = 250.

    References
    ----------
    Ling et al. 2024, the experiments; settings as in the authors' public code.

    Examples
    --------
    >>> mixture = benchmark(100)
    >>> mixture.means[1].nonzero()[0].tolist(), mixture.traces.round(6).tolist()
    ([8], [100.0, 180.0])
    """
    p = _validate.count(p, "p", 9)
    means = np.zeros((2, p))
    means[0, 0] = means[1, 8] = _validate.real(mean, "mean")
    covariances = (np.ones(p), np.full(p, 1.0 + 8.0 / np.sqrt(p)))
    return GaussianMixture(means, covariances, np.array([0.5, 0.5]))


@np.errstate(under="ignore")
def empirical(X: ArrayLike, labels: ArrayLike) -> Sample:
    r"""Estimate the statistics of real data, class by class.

    With :math:`\bar x_a` the class mean, :math:`C_a` is p times the within-class covariance of the
    rows (rows are already divided by :math:`\sqrt p`; the factor p undoes it) and

    .. math::
        \psi_i = |x_i - \bar x_a|^2 - \operatorname{tr} C_a/p, \qquad
        \tau_0^2 = \operatorname{tr}(XX^T)/n.

    T is the unbiased estimator of :math:`\operatorname{tr}(C_a C_b)/p`: the plug-in value of its
    diagonal is off by about :math:`(\operatorname{tr} C_a)^2/(p\,n_a)`, of the order of T itself.

    Parameters
    ----------
    X : (n, p) array
        Data in the scale the kernels see, that is divided by :math:`\sqrt p`.
    labels : (n,) array of int
        Any integers. Classes are numbered 0 .. K-1 in increasing order of the label; the sample
        carries these numbers. Rows keep their order. One class alone is allowed.

    Returns
    -------
    Sample
        Same type as from a mixture; scale is ``"data"``.

    Raises
    ------
    ValueError
        The shapes do not fit, X is not finite or all zero, its scale lies outside 1e-50 .. 1e50,
        or a class has fewer than the four samples which the unbiased estimator needs.
    TypeError
        Labels that are not integers.

    Notes
    -----
    Memory: one centred copy of X, and blocks of at most 1024 x 1024 or K matrices p x p,
    whichever is less work, the latter only when no larger than twice X.

    References
    ----------
    Ling et al. 2024, real-data experiments, with the factor p restored. Estimator of T: Himeno and
    Yamada 2014, equal to the U-statistic of Chen, Zhang and Zhong 2010.

    Examples
    --------
    >>> drawn = benchmark(50).sample(40, 0)
    >>> found = empirical(drawn.X, drawn.labels)
    >>> found.statistics.tau0 == drawn.statistics.tau0
    True
    >>> found.statistics.T.shape
    (2, 2)
    """
    data, codes, counts = _labelled(X, labels, minimum=4)
    tau0 = _scale_of(data)
    k, p = len(counts), data.shape[1]
    centred = data - _moments.class_means(data, codes, k)[codes]
    norms = _squared_norms(centred)
    row_traces = _moments.class_traces(norms, codes, counts)
    products = _moments.trace_products([centred[codes == a] for a in range(k)])
    statistics = build_statistics(
        codes, norms - row_traces[codes], p * row_traces, products, p, tau0
    )
    return Sample(data, codes, statistics)


@np.errstate(under="ignore")
def gaussian_twin(X: ArrayLike, labels: ArrayLike) -> GaussianMixture:
    r"""Return the Gaussian mixture with the class means and covariances of the data.

    .. math::
        \mu_a = \sqrt p\,\bar x_a, \qquad
        C_a = \frac{p}{n_a - 1}\sum_{i \in a}(x_i-\bar x_a)(x_i-\bar x_a)^T,
        \qquad w_a = n_a/n.

    Samples of the twin differ from the data in everything beyond second moments: if a kernel's
    spectrum agrees on both, it sees second moments only.

    Parameters
    ----------
    X : (n, p) array
        Data divided by :math:`\sqrt p`.
    labels : (n,) array of int
        Classes, numbered in increasing order of the label.

    Raises
    ------
    ValueError
        The shapes do not fit, X is not finite or beyond 1e50, a class has fewer than two samples.
    TypeError
        Labels that are not integers.

    Notes
    -----
    Memory: 2 K p^2 doubles. A class with n_a <= p has a singular covariance; that is allowed.

    Examples
    --------
    >>> drawn = benchmark(20).sample(30, 0)
    >>> twin = gaussian_twin(drawn.X, drawn.labels)
    >>> bool(np.allclose(twin.covariances[1], 20 * np.cov(drawn.X[15:].T)))
    True
    """
    data, codes, counts = _labelled(X, labels, minimum=2)
    _validate.within(data, "X", _validate.LARGEST_SCALE)
    k, p = len(counts), data.shape[1]
    means = _moments.class_means(data, codes, k)
    covariances = []
    for a in range(k):
        centred = data[codes == a] - means[a]
        covariances.append(owned(centred.T @ centred * (p / (counts[a] - 1.0))))
    return GaussianMixture(np.sqrt(p) * means, tuple(covariances), counts / counts.sum())


def _labelled(
    X: ArrayLike, labels: ArrayLike, minimum: int
) -> tuple[FloatArray, IntArray, IntArray]:
    data = _validate.real_array(X, "X", 2)
    values, codes, counts = np.unique(
        integer_labels(labels, len(data)), return_inverse=True, return_counts=True
    )
    if counts.min() < minimum:
        a = int(np.argmin(counts))
        raise ValueError(
            f"labels must give every class at least {minimum} samples, "
            f"class {values[a]} has {counts[a]}"
        )
    return data, codes.astype(np.int64), counts


def _scale_of(X: FloatArray) -> float:
    if not X.any():
        raise ValueError("X must not be all zero: its scale tau0 would be 0")
    _validate.within(X, "X", _validate.LARGEST_SCALE)
    scale = float(np.sqrt(np.vdot(X, X) / len(X))) or float(np.abs(X).max())
    return _validate.scale(scale, "the scale of X, the root mean square norm of its rows,")


def _squared_norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _weights(value: ArrayLike, k: int) -> FloatArray:
    weights = _validate.real_array(value, "weights", 1)
    if weights.size != k:
        raise ValueError(f"weights must have one entry per class ({k}), got {weights.size}")
    if weights.min() < 0:
        a = int(np.argmin(weights))
        raise ValueError(f"weights must not be negative, got {weights[a]} for class {a}")
    with np.errstate(over="ignore", under="ignore"):
        total = float(weights.sum())
    if not abs(total - 1.0) <= 1e-9:
        raise ValueError(f"weights must sum to 1 within 1e-9, got {total!r}")
    return weights
