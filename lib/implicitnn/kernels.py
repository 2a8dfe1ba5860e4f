r"""Exact infinite-width kernels: the conjugate kernel (CK) and the neural tangent kernel (NTK).

Implicit networks solve :math:`\Lambda = \sigma_a^2 G + \sigma_b^2 x_i^T x_j + \sigma_c^2`,
:math:`G_{ij} = E\,\phi(u)\phi(v)`, :math:`(u, v) \sim N(0, \Lambda)` for every pair of samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _passes, _routes, _validate
from ._diagonal import Spec
from .specs import DEQ, ENN

FloatArray = NDArray[np.float64]
PARAMS = ("published", "all")


class Kernels(NamedTuple):
    """The CK and the NTK of one network on one set of samples."""

    ck: FloatArray
    ntk: FloatArray


def ck(spec: Spec, X: ArrayLike, Y: ArrayLike | None = None, *, tol: float = 1e-10) -> FloatArray:
    r"""Conjugate kernel :math:`G_{ij} = E\,\phi(u_i)\phi(v_j)`.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> ck(DEQ(relu, 0.2), np.eye(2)).round(4).tolist()
    [[0.2926, -0.0016], [-0.0016, 0.2926]]
    """
    return ck_and_ntk(spec, X, Y, tol=tol).ck


def ntk(
    spec: Spec,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    params: str = "published",
    *,
    tol: float = 1e-10,
) -> FloatArray:
    r"""Neural tangent kernel over (a, A) (``"published"``) or over all weights (``"all"``)."""
    return ck_and_ntk(spec, X, Y, params, tol=tol).ntk


def ck_and_ntk(
    spec: Spec,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    params: str = "published",
    *,
    tol: float = 1e-10,
) -> Kernels:
    r"""Both kernels together, at little more than the cost of one."""
    if not isinstance(spec, DEQ | ENN):
        raise TypeError(f"spec must be a DEQ or an ENN, got {spec!r}")
    params = _validate.one_of(params, "params", PARAMS)
    tol = _validate.real(tol, "tol")
    if not 1e-13 <= tol <= 1e-3:
        raise ValueError(f"tol must lie between 1e-13 and 1e-3, got {tol}")
    rows = _validate.real_array(X, "X", 2)
    columns = None if Y is None else _validate.real_array(Y, "Y", 2)
    if columns is not None and columns.shape[1] != rows.shape[1]:
        raise ValueError(
            f"Y must have as many columns as X, got shapes {columns.shape} and {rows.shape}"
        )
    first, second = _routes.evaluate(spec, rows, columns, params, tol)
    return Kernels(first, second)


def compile_seconds() -> float:
    """Seconds this process spent compiling the passes, or loading them from numba's cache."""
    return _passes.warm_up()
