"""A data set with the few statistics its kernels depend on: `Statistics` and `Sample`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._validate import FloatArray

IntArray = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)
SCALES = ("data", "covariance")


@dataclass(frozen=True, eq=False)
class Statistics:
    r"""What the deterministic equivalents need to know about a data set.

    For samples :math:`\sqrt p\,x_i = \mu_a + z_i`, :math:`z_i` of covariance :math:`C_a`, and
    :math:`C_0 = \sum_a (n_a/n) C_a`:

    .. math::
        t_a = \operatorname{tr}(C_a - C_0)/\sqrt p, \qquad
        T_{ab} = \operatorname{tr}(C_a C_b)/p, \qquad
        \psi_i = |z_i|^2/p - \operatorname{tr} C_a/p, \qquad
        V = [J/\sqrt p,\ \psi].

    The covariances in ``T`` are not centred and ``psi`` holds the noise only, not the means.

    Parameters
    ----------
    tau0 : float
        Scale of the data; its square is tr(X X^T)/n or tr(C_0)/p, as ``scale`` says.
    t : (K,) array
        Centred traces.
    T : (K, K) array
        Trace products, symmetric.
    psi : (n,) array
        Fluctuation of the squared norm of each sample.
    J : (n, K) array
        One-hot labels; the column of a class without samples is zero.
    V : (n, K + 1) array
        Low-rank factor.
    scale : {"data", "covariance"}
        ``"data"``: tau0^2 = tr(X X^T)/n (the authors' code; the means count).
        ``"covariance"``: tau0^2 = tr(C_0)/p (the statement of the theorem).

    Raises
    ------
    ValueError
        A shape does not fit, ``T`` is not symmetric, ``J`` is not one-hot, ``tau0`` lies outside
        1e-50 .. 1e50.

    References
    ----------
    Ling et al. 2024, Theorem 1.

    Examples
    --------
    >>> from implicitnn import mixtures
    >>> s = mixtures.benchmark(100).sample(6, 0).statistics
    >>> s.t.shape, s.T.shape, s.psi.shape, s.J.shape, s.V.shape
    ((2,), (2, 2), (6,), (6, 2), (6, 3))
    """

    tau0: float
    t: FloatArray
    T: FloatArray
    psi: FloatArray
    J: FloatArray
    V: FloatArray
    scale: str

    def __post_init__(self) -> None:
        tau0 = _validate.scale(self.tau0, "tau0")
        arrays = {
            name: frozen(_validate.real_array(value, name, ndim))
            for name, value, ndim in [
                ("t", self.t, 1),
                ("T", self.T, 2),
                ("psi", self.psi, 1),
                ("J", self.J, 2),
                ("V", self.V, 2),
            ]
        }
        n, k = arrays["psi"].size, arrays["t"].size
        for name, shape in [("T", (k, k)), ("J", (n, k)), ("V", (n, k + 1))]:
            if arrays[name].shape != shape:
                raise ValueError(
                    f"{name} must have shape {shape} for {n} samples and {k} classes, "
                    f"got {arrays[name].shape}"
                )
        _check_symmetric(arrays["T"])
        _check_one_hot(arrays["J"])
        _validate.one_of(self.scale, "scale", SCALES)
        for name, array in [("tau0", tau0), *arrays.items()]:
            object.__setattr__(self, name, array)

    @property
    def weights(self) -> FloatArray:
        """Fraction n_a/n of the samples in each class, (K,)."""
        return np.asarray(self.J.mean(axis=0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Sample:
    r"""Samples in rows, their classes and their statistics; all arrays are read-only.

    Parameters
    ----------
    X : (n, p) array
        Data, already divided by :math:`\sqrt p`, float64.
    labels : (n,) array of int
        Class of each row, 0 .. K-1; row i of ``statistics.J`` is one at ``labels[i]``.
    statistics : Statistics
        tau0, t, T, psi, J, V.

    Raises
    ------
    ValueError
        The three parts describe different numbers of samples or different classes.

    Examples
    --------
    >>> from implicitnn import mixtures
    >>> sample = mixtures.benchmark(64).sample(4, 0)
    >>> sample.X.shape, sample.labels.tolist(), sample.statistics.scale
    ((4, 64), [0, 0, 1, 1], 'data')
    """

    X: FloatArray
    labels: IntArray
    statistics: Statistics

    def __post_init__(self) -> None:
        X = frozen(_validate.real_array(self.X, "X", 2))
        labels = integer_labels(self.labels, len(X))
        J = self.statistics.J
        if J.shape[0] != len(X):
            raise ValueError(f"statistics describe {J.shape[0]} samples, X has {len(X)}")
        if labels.min() < 0 or labels.max() >= J.shape[1]:
            raise ValueError(
                f"labels must lie in 0 .. {J.shape[1] - 1}, got {labels.min()} .. {labels.max()}"
            )
        if not J[np.arange(len(X)), labels].all():
            raise ValueError("labels and statistics.J assign different classes")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "labels", frozen(labels))


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return ``array`` itself if nobody can write to it, else a read-only copy."""
    if array.flags.writeable or array.base is not None:
        array = array.copy()
        array.setflags(write=False)
    return array


def owned(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make a freshly built array read-only in place; never call it on a caller's array."""
    array.setflags(write=False)
    return array


def integer_labels(labels: ArrayLike, n: int) -> IntArray:
    """Return ``labels`` as n int64 class numbers; floats, booleans and strings are refused."""
    array = _validate.as_array(labels, "labels")
    if array.ndim != 1:
        raise ValueError(f"labels must have 1 axis, got shape {array.shape}")
    if array.size != n:
        raise ValueError(f"labels must have one entry per row of X ({n}), got {array.size}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got dtype {array.dtype}")
    if array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"labels must fit in int64, got {array.max()}")
    return array.astype(np.int64)


def build_statistics(
    labels: IntArray,
    psi: FloatArray,
    traces: FloatArray,
    trace_products: FloatArray,
    p: int,
    tau0: float | None,
) -> Statistics:
    r"""Assemble `Statistics`; ``tau0`` = None takes :math:`\sqrt{\operatorname{tr} C_0/p}`.

    ``traces`` are tr C_a, (K,); ``trace_products`` are tr(C_a C_b)/p, (K, K).
    """
    J = one_hot(labels, len(traces))
    mean_trace = float(J.mean(axis=0) @ traces)
    V = np.concatenate([J / np.sqrt(p), psi[:, None]], axis=1)
    return Statistics(
        tau0=float(np.sqrt(mean_trace / p)) if tau0 is None else tau0,
        t=owned((traces - mean_trace) / np.sqrt(p)),
        T=owned(trace_products),
        psi=owned(psi),
        J=owned(J),
        V=owned(V),
        scale="covariance" if tau0 is None else "data",
    )


def one_hot(labels: IntArray, k: int) -> FloatArray:
    """Return the (n, k) indicator matrix of ``labels``."""
    J = np.zeros((len(labels), k))
    J[np.arange(len(labels)), labels] = 1.0
    return J


def _check_symmetric(T: FloatArray) -> None:
    gap = float(np.abs(T - T.T).max())
    if gap > 1e-10 * float(np.abs(T).max()):
        raise ValueError(f"T must be symmetric, got |T - T^T| up to {gap:.3g}")


def _check_one_hot(J: FloatArray) -> None:
    bad = ((J != 0.0) & (J != 1.0)).any(axis=1) | (J.sum(axis=1) != 1.0)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"J must hold one-hot rows, got {J[row].tolist()} at row {row}")
