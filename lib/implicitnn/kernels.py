r"""Exact infinite-width kernels: the conjugate kernel (CK) and the neural tangent kernel (NTK).

Implicit networks solve :math:`\Lambda = \sigma_a^2 G + \sigma_b^2 x_i^T x_j + \sigma_c^2`,
:math:`G_{ij} = E\,\phi(u)\phi(v)`, :math:`(u, v) \sim N(0, \Lambda)` for every pair of samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._kernels import routes as _routes
from implicitnn._kernels import warm as _warm
from implicitnn._kernels.diagonal import Spec
from implicitnn.specs import DEQ, ENN

FloatArray = NDArray[np.float64]
PARAMS = ("published", "all")


class Kernels(NamedTuple):
    """The CK and the NTK of one network on one set of samples."""

    ck: FloatArray
    ntk: FloatArray


def ck(spec: Spec, X: ArrayLike, Y: ArrayLike | None = None, *, tol: float = 1e-10) -> FloatArray:
    r"""Conjugate kernel :math:`G_{ij} = E\,\phi(u)\phi(v)` (Ling et al. 2024, section 3).

    Explicit networks: :math:`G_l = E\,\sigma_l(u)\sigma_l(v)`, (u, v) of covariance
    :math:`G_{l-1}`, starting at :math:`G_0 = X Y^T`; the kernel of the last layer is returned.

    Parameters, errors and accuracy as in :func:`ck_and_ntk`.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> ck(DEQ(relu, 0.2), [[1.0, 0.0], [0.6, 0.8]]).round(4).tolist()
    [[0.2926, 0.1526], [0.1526, 0.2926]]
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
    r"""Neural tangent kernel; see :func:`ck_and_ntk`.

    Examples
    --------
    >>> from implicitnn.activations import linear
    >>> ntk(DEQ(linear, 0.5), [[1.0, 0.0], [0.6, 0.8]], params="all").round(6).tolist()
    [[3.0, 1.8], [1.8, 3.0]]
    """
    return ck_and_ntk(spec, X, Y, params, tol=tol).ntk


def ck_and_ntk(
    spec: Spec,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    params: str = "published",
    *,
    tol: float = 1e-10,
) -> Kernels:
    r"""Both kernels together, at little more than the cost of one.

    With :math:`\dot G = E\,\phi'(u)\phi'(v)`, the NTK of an implicit network is

    .. math:: K = \frac{G}{1 - \sigma_a^2 \dot G}, \qquad
       K_{all} = \frac{G + (\sigma_b^2 x_i^T x_j + \sigma_c^2)\,\dot G}{1 - \sigma_a^2 \dot G},

    over the readout and A ("published"; Ling et al. 2024, section 3), or over B and the bias too
    ("all"). Explicit: :math:`K_l = G_l + K_{l-1} \dot G_l` from :math:`K_0 = X Y^T`, all weights.

    Moments of one variable are verified against adaptive integration, once for each decade of the
    variance. Sampled entries are checked against an exact route. A bend of the activation may be as
    narrow as 1/3000; a narrower one must lie at 0 or at a declared kink. Bends are looked for on
    :math:`|t| \le 21` only, or up to twice the largest kink where that is further out; a bend
    beyond must be declared as a kink. Memory: the two results and small blocks.

    Parameters
    ----------
    spec : DEQ or ENN.
    X : samples in rows (n, p), already divided by the root of p; any real dtype.
    Y : other samples (m, p); X by default.
    params : "published" or "all".
    tol : largest allowed error of an entry over the geometric mean of its two diagonal values,
        from 1e-13 to 1e-3.

    Returns
    -------
    Kernels(ck, ntk), float64, (n, m); exactly symmetric without Y.

    Raises
    ------
    TypeError, ValueError : bad arguments; :math:`|x|^2` overflows.
    NotWellPosedError : a sample so far from tau0 that its fixed point does not exist.
    AccuracyError : the tolerance cannot be reached by any route, or the activation is too rough
        for its moments to be known at the scale of the data; the message names the variance.

    Warns
    -----
    AccuracyWarning : some or all entries took the slow exact route.

    Examples
    --------
    >>> from implicitnn.activations import linear
    >>> both = ck_and_ntk(DEQ(linear, 0.5), [[1.0, 0.0], [0.6, 0.8]])
    >>> both.ck.round(6).tolist(), both.ntk.round(6).tolist()
    ([[1.0, 0.6], [0.6, 1.0]], [[2.0, 1.2], [1.2, 2.0]])
    """
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
    # Gaussian weights and powers of correlations underflow to 0, which is their value
    with np.errstate(under="ignore"):
        first, second = _routes.evaluate(spec, rows, columns, params, tol)
    return Kernels(first, second)


def compile_seconds() -> float:
    """Seconds this process spent compiling the passes, or loading them from numba's cache."""
    return _warm.warm_up()
