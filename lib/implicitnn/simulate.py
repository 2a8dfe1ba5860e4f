r"""Networks of finite width in plain numpy: one random draw of all weights, exact Jacobians.

These are the ground truth that the infinite-width kernels are tested against. Implicit layers are
iterated to their fixed point; gradients come from the implicit function theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN

FloatArray = NDArray[np.float64]
PARAMS = ("published", "all")
TOLERANCE = 1e-13
MAX_ITERATIONS = 5000


@dataclass(frozen=True)
class _Tangent:
    """What the gradient of f = a^T z is made of: (backward signal, forward input, variance)."""

    features: FloatArray
    published: tuple[tuple[FloatArray, FloatArray, float], ...]
    rest: tuple[tuple[FloatArray, FloatArray, float], ...]

    def kernel(self, params: str) -> FloatArray:
        total = self.features @ self.features.T
        parts = self.published if params == "published" else self.published + self.rest
        for signal, inputs, variance in parts:
            total += variance * (signal @ signal.T) * (inputs @ inputs.T)
        return total


def features(
    spec: DEQ | ENN, X: ArrayLike, width: int, rng: np.random.Generator | int
) -> FloatArray:
    r"""Last hidden state z(x_i) of one random network, (n, width).

    Scaled so that :math:`F F^T` converges to the conjugate kernel as the width grows: the factor
    :math:`m^{-1/2}` is inside.

    Parameters
    ----------
    spec : DEQ or ENN.
    X : samples in rows, (n, p), no entry beyond 1e50.
    width : m, the number of hidden units.
    rng : Generator or integer seed.

    Raises
    ------
    NotWellPosedError : the iteration of an implicit layer does not converge at this width.
    ValueError : the state overflows.

    Examples
    --------
    >>> from implicitnn.activations import tanh
    >>> F = features(DEQ(tanh, 0.2), np.eye(3), width=400, rng=0)
    >>> F.shape, bool(abs((F[0] @ F[0]) - DEQ(tanh, 0.2).gamma2) < 0.1)
    ((3, 400), True)
    """
    rows, m, generator = _arguments(spec, X, width, rng)
    with np.errstate(all="ignore"):  # overflow is refused, underflow to zero is right
        if isinstance(spec, DEQ):
            weights = _Weights.draw(spec, rows.shape[1], m, generator)
            return _implicit_state(spec, rows, weights)[0]
        return _finite(_explicit_states(spec, rows, m, generator)[0][-1], spec)


def ck(spec: DEQ | ENN, X: ArrayLike, width: int, rng: np.random.Generator | int) -> FloatArray:
    r"""Conjugate kernel :math:`F F^T` of one random network, (n, n).

    Parameters and errors as in :func:`features`.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> ck(ENN((relu,)), np.eye(2), width=50, rng=1).shape
    (2, 2)
    """
    state = features(spec, X, width, rng)
    with np.errstate(all="ignore"):
        return _finite(np.asarray(state @ state.T), spec)


def ntk(
    spec: DEQ | ENN,
    X: ArrayLike,
    width: int,
    rng: np.random.Generator | int,
    params: str = "published",
) -> FloatArray:
    r"""Tangent kernel :math:`\nabla f(x_i)^T \nabla f(x_j)` of f = a^T z for one random network.

    Implicit: with :math:`D = diag\,\phi'(h)` and :math:`J = m^{-1/2}\sigma_a D A`, the signal
    :math:`b = m^{-1/2} D (I - J)^{-T} a` gives
    :math:`K = z^T z' + b^T b' (\sigma_a^2 z^T z' [+ \sigma_b^2 x^T x' + \sigma_c^2])`.

    Parameters
    ----------
    spec, X, width, rng : as in :func:`features`.
    params : "published" (readout a and recurrent weights A) or "all" (input weights and bias
        too). Explicit networks always count all weights.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> deq = DEQ(relu, 0.2)
    >>> some, every = (ntk(deq, np.eye(2), 60, 3, p) for p in ("published", "all"))
    >>> bool((every.diagonal() > some.diagonal()).all())
    True
    """
    params = _validate.one_of(params, "params", PARAMS)
    rows, m, generator = _arguments(spec, X, width, rng)
    with np.errstate(all="ignore"):
        if isinstance(spec, DEQ):
            tangent = _implicit_tangent(spec, rows, m, generator)
        else:
            tangent = _explicit_tangent(spec, rows, m, generator)
        return _finite(tangent.kernel(params), spec)


def _arguments(
    spec: object, X: ArrayLike, width: int, rng: np.random.Generator | int
) -> tuple[FloatArray, int, np.random.Generator]:
    if not isinstance(spec, DEQ | ENN):
        raise TypeError(f"spec must be a DEQ or an ENN, got {_validate.shown(spec)}")
    rows = _validate.real_array(X, "X", 2)
    _validate.within(rows, "X", _validate.LARGEST_SCALE)
    m = _validate.count(width, "width")
    inputs = rows.shape[1]
    _validate.table(m, max(m if _square(spec) else 0, inputs), "width", "columns of weights")
    return rows, m, _validate.generator(rng)


def _square(spec: DEQ | ENN) -> bool:
    """Return whether the network has a weight matrix of width x width."""
    return isinstance(spec, DEQ) or len(spec.layers) > 1


def _finite(result: FloatArray, spec: DEQ | ENN) -> FloatArray:
    if not np.isfinite(result).all():
        raise ValueError(f"{spec!r} overflows on these samples: X is too large for its activation")
    return result


@dataclass(frozen=True)
class _Weights:
    """A (m, m), B (m, p) and c (m,)."""

    recurrent: FloatArray
    inputs: FloatArray
    bias: FloatArray

    @classmethod
    def draw(cls, spec: DEQ, p: int, m: int, rng: np.random.Generator) -> _Weights:
        recurrent = rng.standard_normal((m, m))
        inputs = rng.standard_normal((m, p))
        bias = rng.standard_normal(m) if spec.sigma_c2 else np.zeros(m)
        return cls(recurrent, inputs, bias)


def _iterate(step: Callable[[FloatArray], FloatArray], start: FloatArray, what: str) -> FloatArray:
    """Picard iteration until the change is below TOLERANCE of the iterate."""
    state = start
    for _ in range(MAX_ITERATIONS):
        new = step(state)
        change = float(np.linalg.norm(new - state))
        size = float(np.linalg.norm(new))
        if not math.isfinite(change):
            break
        if change <= TOLERANCE * size or size == 0.0:
            return new
        state = new
    raise NotWellPosedError(
        f"the {what} of this finite network did not converge in {MAX_ITERATIONS} iterations; "
        "take a smaller sigma_a2, or a larger width"
    )


def _implicit_state(
    spec: DEQ, rows: FloatArray, weights: _Weights
) -> tuple[FloatArray, FloatArray]:
    """Fixed point z and preactivation h, both (n, m)."""
    root = 1.0 / math.sqrt(weights.bias.size)
    drive = math.sqrt(spec.sigma_b2) * (rows @ weights.inputs.T)
    drive += math.sqrt(spec.sigma_c2) * weights.bias
    recurrent = math.sqrt(spec.sigma_a2) * weights.recurrent.T

    def step(z: FloatArray) -> FloatArray:
        return np.asarray(root * spec.phi(z @ recurrent + drive))

    z = _iterate(step, np.zeros_like(drive), "forward iteration")
    return z, z @ recurrent + drive


def _implicit_tangent(spec: DEQ, rows: FloatArray, m: int, rng: np.random.Generator) -> _Tangent:
    weights = _Weights.draw(spec, rows.shape[1], m, rng)
    readout = rng.standard_normal(m)
    z, h = _implicit_state(spec, rows, weights)
    gate = spec.phi.df(h) / math.sqrt(m)
    recurrent = math.sqrt(spec.sigma_a2) * weights.recurrent

    def step(w: FloatArray) -> FloatArray:
        return np.asarray(readout + (gate * w) @ recurrent)

    start = np.broadcast_to(readout, z.shape).copy()
    signal = gate * _iterate(step, start, "backward iteration")
    ones = np.ones((rows.shape[0], 1))
    return _Tangent(
        z,
        ((signal, z, spec.sigma_a2),),
        ((signal, rows, spec.sigma_b2), (signal, ones, spec.sigma_c2)),
    )


def _explicit_states(
    spec: ENN, rows: FloatArray, m: int, rng: np.random.Generator
) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
    """States x_0..x_L, preactivations h_1..h_L, weights W_1..W_L."""
    states, preactivations, weights = [rows], [], []
    for phi in spec.phis:
        weights.append(rng.standard_normal((m, states[-1].shape[1])))
        preactivations.append(states[-1] @ weights[-1].T)
        states.append(phi(preactivations[-1]) / math.sqrt(m))
    return states, preactivations, weights


def _explicit_tangent(spec: ENN, rows: FloatArray, m: int, rng: np.random.Generator) -> _Tangent:
    states, preactivations, weights = _explicit_states(spec, rows, m, rng)
    signal = np.broadcast_to(rng.standard_normal(m), states[-1].shape)
    parts = []
    for level in reversed(range(len(weights))):
        signal = signal * spec.phis[level].df(preactivations[level]) / math.sqrt(m)
        parts.append((signal, states[level], 1.0))
        signal = signal @ weights[level]
    return _Tangent(states[-1], tuple(parts), ())
