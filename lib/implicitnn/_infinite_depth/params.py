r"""The parameters of an infinite-depth network, and ways to initialise them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from implicitnn import _validate
from implicitnn._infinite_depth.norms import operator_norm
from implicitnn._validate import FloatArray


@dataclass(frozen=True, eq=False)
class Params:
    r"""Parameters :math:`\theta = (W, A, b)` and the scalar :math:`\gamma` of a network.

    .. math:: Z = \mathrm{relu}(\gamma Z A + \mathrm{relu}(X W)), \qquad \hat y = Z b .

    Parameters
    ----------
    W : array_like, shape (d, m)
        Input weights.
    A : array_like, shape (m, m)
        Weights shared by all layers.
    b : array_like, shape (m,)
        Readout.
    gamma : float
        At least 0; it is not trained. With 0 the network has one hidden layer.

    Raises
    ------
    ValueError
        Shapes that do not fit, entries that are not finite, a negative gamma.

    Notes
    -----
    The model is that of Gao and Gao (2022), arXiv 2205.07463, equations (1) and (2).

    Examples
    --------
    >>> params = Params(np.ones((3, 2)), np.eye(2), np.zeros(2), 0.5)
    >>> params.width, params.rate
    (2, 0.5)
    """

    W: FloatArray
    A: FloatArray
    b: FloatArray
    gamma: float

    def __post_init__(self) -> None:
        arrays = {
            name: (getattr(self, name), axes) for name, axes in (("W", 2), ("A", 2), ("b", 1))
        }
        for name, (value, axes) in arrays.items():
            object.__setattr__(self, name, np.array(_validate.real_array(value, name, axes)))
        object.__setattr__(self, "gamma", _validate.nonnegative(self.gamma, "gamma"))
        m = self.W.shape[1]
        if self.A.shape != (m, m) or self.b.shape != (m,):
            raise ValueError(
                f"W {self.W.shape} asks for A ({m}, {m}) and b ({m},), "
                f"got {self.A.shape} and {self.b.shape}"
            )

    @property
    def width(self) -> int:
        """Number m of hidden units."""
        return int(self.b.size)

    @property
    def rate(self) -> float:
        r""":math:`\gamma\lVert A\rVert`: below 1 the network is well posed."""
        return self.gamma * operator_norm(self.A) if self.gamma > 0 else 0.0

    def scaled(self, beta: float) -> Params:
        r"""Return :math:`(\beta W, \beta A, \beta b)` with :math:`\gamma/\beta`.

        The product :math:`\gamma A` stays, so the features become exactly :math:`\beta Z` and the
        prediction :math:`\beta^2\hat y` (derived on the page on initialisation).

        Examples
        --------
        >>> Params(np.ones((1, 1)), np.eye(1), np.ones(1), 0.5).scaled(4.0).rate
        0.5
        """
        factor = _validate.positive(beta, "beta")
        with np.errstate(over="ignore"):  # refused below
            W, A, b = (factor * part for part in (self.W, self.A, self.b))
            gamma = self.gamma / factor
        if not all(np.isfinite(part).all() for part in (W, A, b, gamma)):
            raise ValueError(f"beta = {factor:g} takes the parameters out of range")
        return Params(W, A, b, gamma)


class Inputs(NamedTuple):
    """Checked data: X (N, d) and y (N,)."""

    X: FloatArray
    y: FloatArray


def check_inputs(params: Params, X: object, y: object) -> Inputs:
    """Return X and y as arrays that fit the parameters."""
    rows = check_rows(params, X)
    targets = _validate.real_array(y, "y", 1)  # type: ignore[arg-type]
    if targets.size != len(rows):
        raise ValueError(f"y has {targets.size} entries but X has {len(rows)} rows")
    return Inputs(rows, targets)


def check_rows(params: Params, X: object) -> FloatArray:
    """Return X as an array whose rows fit W."""
    if not isinstance(params, Params):
        raise TypeError(f"params must be Params, got {type(params).__name__}")
    rows = _validate.real_array(X, "X", 2)  # type: ignore[arg-type]
    if rows.shape[1] != params.W.shape[0]:
        raise ValueError(f"X has {rows.shape[1]} columns but W has {params.W.shape[0]} rows")
    return rows


def identity(d: int, m: int, gamma: float, rng: np.random.Generator | int) -> Params:
    r"""Return :math:`W_{ij}\sim N(0, 1/m)`, :math:`A = I`, :math:`b = 0`: the experiments' choice.

    Examples
    --------
    >>> identity(5, 8, 0.1, 0).rate
    0.1
    """
    W = _gaussian(d, m, rng) / np.sqrt(m)
    return Params(W, np.eye(m), np.zeros(m), gamma)


def nonnegative(d: int, m: int, gamma: float, rng: np.random.Generator | int) -> Params:
    r"""Return :math:`W_{ij}\sim N(0, 1/m)`, A with entries :math:`|N(0,1)|` and norm 1, b = 0.

    Every A without negative entries is covered by Lemma 5.1; this one is a dense example.

    Examples
    --------
    >>> params = nonnegative(5, 8, 0.3, 0)
    >>> bool((params.A >= 0).all()), round(params.rate, 9)
    (True, 0.3)
    """
    generator = _validate.generator(rng)
    W = _gaussian(d, m, generator) / np.sqrt(m)
    A = np.abs(generator.standard_normal((m, m)))
    return Params(W, A / operator_norm(A), np.zeros(m), gamma)


def gaussian(d: int, m: int, gamma: float, rng: np.random.Generator | int) -> Params:
    r"""Return :math:`W_{ij}\sim N(0,1)`, :math:`A_{ij}\sim N(0,1/m)`, :math:`b_i\sim N(0,1/m)`.

    The norm of A is close to 2.

    Examples
    --------
    >>> gaussian(5, 200, 0.1, 0).rate < 0.25
    True
    """
    generator = _validate.generator(rng)
    W = _gaussian(d, m, generator)
    A = generator.standard_normal((m, m)) / np.sqrt(m)
    return Params(W, A, generator.standard_normal(m) / np.sqrt(m), gamma)


def _gaussian(d: int, m: int, rng: np.random.Generator | int) -> FloatArray:
    shape = (_validate.integer(d, "d", 1), _validate.integer(m, "m", 1))
    for name, rows in (("m", shape[1]), ("d", shape[0])):
        _validate.table(rows, shape[1], name, "weights")
    return _validate.generator(rng).standard_normal(shape)
