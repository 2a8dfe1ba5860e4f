r"""The fixed point and its adjoint, by iteration in buffers that are reused.

One pass of the forward map is a matrix product and one compiled sweep over its result; the same
holds for the adjoint. Stopping is rigorous: with contraction factor g a step of length s leaves an
error of at most g s/(1 - g).

A multiple of the identity may be split off: with A = c I + E and gamma c < 1 the equation
z = relu(gamma c z + r) is solved by z = relu(r)/(1 - gamma c), so that the map
Z -> relu(gamma Z E + Phi)/(1 - gamma c) has the same fixed point as relu(gamma Z A + Phi). It
contracts by gamma ||E||/(1 - gamma c), which is much smaller when A is near c I.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba import njit

from implicitnn._infinite_depth.norms import contracts
from implicitnn._infinite_depth.params import Params, check_rows
from implicitnn._infinite_depth.status import Status
from implicitnn._validate import FloatArray, integer, positive, real_array

F = TypeVar("F", bound=Callable[..., Any])
# Relative size from which steps that no longer shrink are the rounding of the matrix product.
_ROUNDING = 1e-11
_PATIENCE = 20
# Relative error at which an iteration that is stuck in rounding counts as converged.
_ENOUGH = 1e-8
_EPS = float(np.finfo(np.float64).eps)


def _compiled(function: F) -> F:
    wrapper: Any = njit(nogil=True, cache=True, error_model="numpy")
    result: F = wrapper(function)
    return result


@_compiled
def _relu_sweep(
    out: FloatArray, drive: FloatArray, old: FloatArray, scale: float, unit: float
) -> tuple[float, float]:
    """Make ``out`` scale relu(out + drive); return its squared distance from ``old``, square."""
    step = 0.0
    size = 0.0
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            value = out[i, j] + drive[i, j]
            # not max(): a NaN must stay one
            if value <= 0.0:
                value = 0.0
            value *= scale
            change = (value - old[i, j]) * unit
            step += change * change
            size += (value * unit) * (value * unit)
            out[i, j] = value
    return step, size


@_compiled
def _mask_sweep(
    out: FloatArray, b: FloatArray, Z: FloatArray, old: FloatArray, scale: float, unit: float
) -> tuple[float, float]:
    """Make ``out`` scale (out + b) where Z > 0, else 0; return what :func:`_relu_sweep` does."""
    step = 0.0
    size = 0.0
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            value = scale * (out[i, j] + b[j])
            if Z[i, j] <= 0.0:
                value = 0.0
            change = (value - old[i, j]) * unit
            step += change * change
            size += (value * unit) * (value * unit)
            out[i, j] = value
    return step, size


@dataclass(frozen=True)
class Report:
    """How an iteration ended: status, iterations, length of the last step, bound on the error.

    ``error_bound`` bounds the Frobenius distance from the fixed point; it is infinite where the
    contraction factor is not below 1.
    """

    status: Status
    iterations: int
    step: float
    error_bound: float


class Workspace:
    """Buffers for N samples and width m; the last fixed points are the next start."""

    def __init__(self, samples: int, width: int) -> None:
        shape = (samples, width)
        self.Phi = np.zeros(shape)
        self.Z, self._Z2 = np.zeros(shape), np.zeros(shape)
        self.U, self._U2 = np.zeros(shape), np.zeros(shape)
        self.G = np.zeros((width, width))
        self.scale = 1.0

    def load(
        self, X: FloatArray, W: FloatArray, A: FloatArray, gamma: float, shift: float = 0.0
    ) -> None:
        """Set the features relu(X W) and the matrix gamma (A - shift I); gamma shift < 1."""
        with np.errstate(all="ignore"):  # overflow is reported by the status of the solve
            np.matmul(X, W, out=self.Phi)
            np.maximum(self.Phi, 0.0, out=self.Phi)
            np.multiply(A, gamma, out=self.G)
        self.scale = 1.0 / (1.0 - gamma * shift)
        if shift:
            self.G.flat[:: len(self.G) + 1] -= gamma * shift

    def forward(self, rate: float, tol: float, limit: int) -> Report:
        """Iterate Z = scale relu(Z G + Phi) from the Z at hand."""
        unit = _unit(self.Phi)

        def sweep() -> tuple[float, float]:
            np.matmul(self.Z, self.G, out=self._Z2)
            found = _relu_sweep(self._Z2, self.Phi, self.Z, self.scale, unit)
            self.Z, self._Z2 = self._Z2, self.Z
            return found

        return _iterate(sweep, rate, tol, limit, unit)

    def adjoint(self, b: FloatArray, rate: float, tol: float, limit: int) -> Report:
        """Iterate U = scale S * (1 b^T + U G^T) from the U at hand, S the active units."""
        unit = _unit(b)

        def sweep() -> tuple[float, float]:
            np.matmul(self.U, self.G.T, out=self._U2)
            found = _mask_sweep(self._U2, b, self.Z, self.U, self.scale, unit)
            self.U, self._U2 = self._U2, self.U
            return found

        return _iterate(sweep, rate, tol, limit, unit)


def _iterate(
    sweep: Callable[[], tuple[float, float]], rate: float, tol: float, limit: int, unit: float
) -> Report:
    """Sweep until the error bound is below tol times the size, or steps are rounding."""
    factor = rate / (1 - rate) if rate < 1 else np.inf
    step, smallest, at = np.inf, np.inf, 0
    for count in range(1, limit + 1):
        with np.errstate(all="ignore"):  # overflow is reported by the status
            square, size_square = sweep()
        if not np.isfinite(square + size_square):
            return Report(Status.DIVERGED, count, np.inf, np.inf)
        step, size = float(np.sqrt(square)) / unit, float(np.sqrt(size_square)) / unit
        error = _error(factor, step, size)
        if step < smallest:
            smallest, at = step, count
        stuck = count - at >= _PATIENCE and step <= _ROUNDING * size
        if error <= tol * size or (stuck and error <= max(tol, _ENOUGH) * size):
            return Report(Status.CONVERGED, count, step, error if rate < 1 else np.inf)
    return Report(Status.MAX_ITERATIONS, limit, step, error if rate < 1 else np.inf)


def _unit(drive: FloatArray) -> float:
    """Return a power of two near 1/max|drive|: squares of scaled entries stay in range."""
    top = float(np.abs(drive).max())
    if top == 0.0 or not math.isfinite(top):
        return 1.0
    return math.ldexp(1.0, min(-math.frexp(top)[1], 1000))


def _error(factor: float, step: float, size: float) -> float:
    """Bound on the error after a step; without a contraction factor the step is all there is."""
    if not np.isfinite(factor):
        return step
    # a step is known up to the rounding of the iterate
    return factor * (step + _EPS * size)


@dataclass(frozen=True, eq=False)
class Equilibrium:
    r"""A fixed point: Z (N, m), the features Phi (N, m), and how the iteration ended.

    Where ``status`` is not ``CONVERGED`` the last iterate is in Z, which is no solution; where the
    network is not well posed nothing was computed and Z is the start.
    """

    Z: FloatArray
    Phi: FloatArray
    rate: float
    report: Report

    @property
    def status(self) -> Status:
        """Outcome of the iteration."""
        return self.report.status

    @property
    def iterations(self) -> int:
        """Products with A that were needed."""
        return self.report.iterations


def forward(
    params: Params,
    X: FloatArray,
    *,
    start: FloatArray | None = None,
    tol: float = 1e-12,
    max_iterations: int = 10_000,
    require_contraction: bool = True,
) -> Equilibrium:
    r"""Return the fixed point of :math:`Z = \mathrm{relu}(\gamma Z A + \Phi)`, Phi = relu(X W).

    With :math:`g = \gamma\lVert A\rVert < 1` the map contracts by g in Frobenius norm (Lemma 3.1),
    the fixed point is unique, and after a step of length s its distance is at most
    :math:`g\,s/(1-g)`. The iteration stops when this is at most ``tol`` times
    :math:`\lVert Z\rVert_F`, or when the step is at the level of rounding.

    Parameters
    ----------
    params : Params
    X : array_like, shape (N, d)
    start : array_like, shape (N, m), optional
        First iterate; zero unless given.
    tol : float
        Relative bound on the error.
    max_iterations : int
    require_contraction : bool
        False iterates even where g >= 1, and then trusts small steps.

    Returns
    -------
    Equilibrium
        Its ``status`` is ``NOT_WELL_POSED`` when g >= 1, up to the error 1e-12 of the norm, and a
        contraction is required.

    Notes
    -----
    Lemma 3.1 of Gao and Gao (2022), arXiv 2205.07463; the proof with the error bound is derived on
    the page on well-posedness.

    Examples
    --------
    >>> params = Params(np.eye(2), np.eye(2), np.zeros(2), 0.5)
    >>> solved = forward(params, np.eye(2))
    >>> np.round(solved.Z, 9).tolist(), solved.status.name
    ([[2.0, 0.0], [0.0, 2.0]], 'CONVERGED')
    """
    rows = check_rows(params, X)
    limit, accuracy = integer(max_iterations, "max_iterations", 1), positive(tol, "tol")
    work = Workspace(len(rows), params.width)
    if start is not None:
        first = real_array(start, "start", 2)
        if first.shape != work.Z.shape:
            raise ValueError(f"start must have shape {work.Z.shape}, got {first.shape}")
        work.Z[...] = first
    work.load(rows, params.W, params.A, params.gamma)
    rate = params.rate
    if require_contraction and not contracts(rate):
        refused = Report(Status.NOT_WELL_POSED, 0, np.inf, np.inf)
        return Equilibrium(work.Z, work.Phi, rate, refused)
    report = work.forward(rate, accuracy, limit)
    return Equilibrium(work.Z, work.Phi, rate, report)
