r"""Fixed points y = f(y) of a batch of samples: solvers, and solutions that say what happened.

A map, a solver and a solution are three things. Samples are the rows of y, numpy array or torch
tensor, and are solved each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate
from implicitnn._networks import iterate as _iterate
from implicitnn._networks import monitor as _monitor
from implicitnn._networks.arrays import Array, ops

__all__ = [
    "Anderson",
    "Broyden",
    "NotConvergedWarning",
    "Picard",
    "Report",
    "Solution",
    "Solver",
    "Status",
    "solve",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class NotConvergedWarning(UserWarning):
    """Some samples of a batch have no equilibrium to the tolerance asked for."""


class Status(StrEnum):
    """What became of a sample; ``explanation`` says why it may have, and what to try."""

    CONVERGED = "converged"
    MAX_STEPS = "step limit hit"
    DIVERGED = "diverged"
    NOT_FINITE = "not finite"

    @property
    def explanation(self) -> str:
        """What happened, why it may have, and what to try."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Status.CONVERGED: "The change of a step is within the tolerance.",
    Status.MAX_STEPS: (
        "The change of a step was still above the tolerance when max_steps was reached. The map "
        "may contract slowly, or oscillate without growing, or the tolerance may lie below the "
        "rounding of its dtype. Try a larger max_steps, Anderson or Broyden, or a damping below 1; "
        "in float32, a larger rtol or float64."
    ),
    Status.DIVERGED: (
        "The iterate grew without bound. The map does not contract: its Jacobian has an eigenvalue "
        "outside the unit disc. For a network, take a smaller sigma_a2, or penalise the Jacobian "
        "in training; a damping below 1 helps where the eigenvalue is far on the negative side."
    ),
    Status.NOT_FINITE: (
        "f returned NaN or infinity before the iterate grew. The input, the weights or the map "
        "itself are at fault, not the iteration: check the inputs, and the scale of the weights."
    ),
}
_BY_CODE = {
    _monitor.CONVERGED: Status.CONVERGED,
    _monitor.MAX_STEPS: Status.MAX_STEPS,
    _monitor.DIVERGED: Status.DIVERGED,
    _monitor.NOT_FINITE: Status.NOT_FINITE,
}


@dataclass(frozen=True)
class Picard:
    r"""Plain iteration :math:`y \leftarrow (1-\beta)\,y + \beta f(y)`, :math:`\beta` = damping.

    Near optimal for random weights: the Jacobian's eigenvalues fill a disc around zero, and no
    polynomial method gains on a disc.

    Examples
    --------
    >>> Picard(damping=0.5)
    Picard(damping=0.5)
    """

    damping: float = 1.0

    def __post_init__(self) -> None:
        _unit(self.damping, "damping")


@dataclass(frozen=True)
class Anderson:
    """Anderson acceleration with the last ``memory`` changes, for each sample.

    ``ridge`` regularises its least squares problem, relative to the trace of the Gram matrix.

    Examples
    --------
    >>> Anderson(memory=3).damping
    1.0
    """

    memory: int = 5
    damping: float = 1.0
    ridge: float = 1e-10

    def __post_init__(self) -> None:
        _validate.integer(self.memory, "memory", 1)
        _unit(self.damping, "damping")
        _validate.nonnegative(self.ridge, "ridge")


@dataclass(frozen=True)
class Broyden:
    """Broyden's good method with an inverse Jacobian of rank ``memory`` for each sample.

    Examples
    --------
    >>> Broyden().memory
    15
    """

    memory: int = 15

    def __post_init__(self) -> None:
        _validate.integer(self.memory, "memory", 1)


Solver: TypeAlias = Picard | Anderson | Broyden


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """How a solve went, sample by sample.

    Attributes
    ----------
    steps : (n,) evaluations of f until the sample converged, or all it was given.
    residual : (n,) root mean square of f(y) - y at the last y where f was evaluated.
    error : (n,) the residual over atol + rtol :math:`|f(y)|`; below one is converged.
    history : largest error over the samples still in play, at each step.
    codes : (n,) outcome of each sample as a number; ``outcomes`` gives them as `Status`.
    """

    steps: IntArray
    residual: FloatArray
    error: FloatArray
    history: tuple[float, ...]
    codes: IntArray

    @property
    def outcomes(self) -> list[Status]:
        """Outcome of each sample."""
        return [_BY_CODE[int(code)] for code in self.codes]

    @property
    def status(self) -> Status:
        """The worst outcome of the batch."""
        return _BY_CODE[int(self.codes.max())]

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Which samples converged, (n,)."""
        return np.asarray(self.codes == _monitor.CONVERGED)

    @property
    def not_converged(self) -> int:
        """How many samples did not converge."""
        return int((~self.converged).sum())

    @property
    def iterations(self) -> int:
        """Evaluations of f for the batch as a whole."""
        return len(self.history)

    @property
    def counts(self) -> dict[Status, int]:
        """Number of samples with each outcome that occurs."""
        pairs = ((status, int((self.codes == code).sum())) for code, status in _BY_CODE.items())
        return {status: count for status, count in pairs if count}

    def __repr__(self) -> str:
        """Kind, size and outcome; the arrays have one entry for each sample."""
        outcome = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        return f"{type(self).__name__}({self.iterations} iterations: {outcome})"

    def explain(self) -> str:
        """Return in words what happened to how many samples."""
        n = len(self.codes)
        lines = [f"{self.iterations} iterations of {n} samples."]
        for status, count in self.counts.items():
            lines.append(f"{count} of {n} {status}: {status.explanation}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Report):
    """A report with its value, (n, m): f(y) for the y whose residual is reported."""

    value: Array

    @property
    def report(self) -> Report:
        """The same without the value, which may be large."""
        return Report(self.steps, self.residual, self.error, self.history, self.codes)


def solve(
    f: Callable[..., object],
    y0: Array,
    solver: Solver | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-12,
    max_steps: int = 200,
    inplace: bool = False,
) -> Solution:
    r"""Solve y = f(y) for every row of a batch.

    A sample has converged when

    .. math:: \|f(y) - y\| < \mathrm{atol} + \mathrm{rtol}\,\|f(y)\|,

    root mean squares over its entries. Where f contracts by a factor q < 1, the error of the value
    returned is at most q/(1 - q) times this. Samples that have converged are iterated along with
    the others, and end at least as near.

    Parameters
    ----------
    f : callable
        ``f(y)`` returns an array like y; y is a copy. With ``inplace=True`` it is called as
        ``f(y, out)``, fills ``out``, which is not ``y``, and leaves y alone. Rows must not depend
        on each other.
    y0 : (n, m) array of floats
        Start; not changed. numpy or torch, on any device: the result is of the same kind. Nothing
        is recorded for gradients.
    solver : Picard, Anderson or Broyden
        Picard() by default.
    rtol, atol : float
        Tolerances. rtol must be above 4 machine epsilons of the dtype.
    max_steps : int
        Largest number of evaluations of f.

    Returns
    -------
    Solution
        Whatever happened: look at ``status``, or at ``converged`` for each sample.

    Raises
    ------
    TypeError
        y0 is neither a numpy array nor a tensor, solver is no solver, or f returns something else.
    ValueError
        A tolerance below what the dtype can resolve, a shape that does not fit.

    References
    ----------
    Walker and Ni, SIAM J. Numer. Anal. 49 (2011) for Anderson acceleration; Broyden, Math. Comp. 19
    (1965) for his method.

    Examples
    --------
    >>> found = solve(lambda y: np.cos(y), np.zeros((2, 1)), rtol=1e-12, max_steps=100)
    >>> found, found.value.ravel().round(6).tolist()
    (Solution(69 iterations: 2 converged), [0.739085, 0.739085])
    >>> solve(lambda y: np.cos(y), np.zeros((2, 1)), Anderson(1), rtol=1e-12).iterations
    7
    >>> print(solve(lambda y: 3 * y + 1, np.zeros((1, 1))).status)
    diverged
    """
    operations = ops(y0)
    solver = checked(Picard() if solver is None else solver)
    least = 4.0 * operations.eps(y0)
    if _validate.positive(rtol, "rtol") < least:
        raise ValueError(f"rtol must be at least {least:.1e} for {y0.dtype}, got {rtol}")
    atol = _validate.nonnegative(atol, "atol")
    limit = _validate.integer(max_steps, "max_steps", 1)
    watch = _monitor.Monitor(rtol, atol, len(y0))
    map_ = f if inplace else partial(operations.call, f)
    y = operations.copy(y0)
    # Norms that overflow or vanish are looked at; so are values that are not finite.
    with np.errstate(all="ignore"), operations.plain():
        if isinstance(solver, Picard):
            value = _iterate.picard(map_, y, operations, watch, limit, solver.damping)
        elif isinstance(solver, Anderson):
            options = (solver.memory, solver.damping, solver.ridge)
            value = _iterate.anderson(map_, y, operations, watch, limit, *options)
        else:
            value = _iterate.broyden(map_, y, operations, watch, limit, solver.memory)
    return Solution(
        watch.steps, watch.residual, watch.error, tuple(watch.history), watch.codes, value
    )


def checked(solver: object) -> Solver:
    """Return a solver; anything else is refused.

    Examples
    --------
    >>> checked(Picard())
    Picard(damping=1.0)
    """
    if not isinstance(solver, Picard | Anderson | Broyden):
        raise TypeError(f"solver must be Picard(), Anderson() or Broyden(), got {solver!r}")
    return solver


def _unit(value: float, name: str) -> None:
    if not 0.0 < _validate.real(value, name) <= 1.0:
        raise ValueError(f"{name} must lie in (0, 1], got {value}")
