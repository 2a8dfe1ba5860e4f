"""What became of each sample of a batch while it was iterated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

RUNNING, CONVERGED, MAX_STEPS, DIVERGED, NOT_FINITE = range(5)
# A sample has left when it is this many times larger than where it began and its residual too has
# grown: a contraction never does the second, however far its fixed point lies.
GROWTH = 1e3


@dataclass
class Monitor:
    """Codes, steps and residuals of n samples, updated at each evaluation of f.

    Norms are root mean squares over a sample, so atol does not depend on its length.
    """

    rtol: float
    atol: float
    n: int
    codes: IntArray = field(init=False)
    steps: IntArray = field(init=False)
    residual: FloatArray = field(init=False)
    error: FloatArray = field(init=False)
    history: list[float] = field(init=False, default_factory=list)
    _first: FloatArray | None = field(init=False, default=None)
    _size: FloatArray | None = field(init=False, default=None)
    _count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.codes = np.full(self.n, RUNNING, np.int64)
        self.steps = np.zeros(self.n, np.int64)
        self.residual = np.full(self.n, np.nan)
        self.error = np.full(self.n, np.nan)

    def update(self, residual: FloatArray, size: FloatArray) -> bool:
        """Take |f(y) - y| and |f(y)| of every sample; True when none is left running.

        A converged sample is iterated with the rest, and is judged again: the codes describe the
        value that is returned.
        """
        self._count += 1
        finite = np.isfinite(residual) & np.isfinite(size)
        if self._first is None or self._size is None:
            self._first, self._size = residual, size
        alive = self.codes <= CONVERGED
        self.steps[self.codes == RUNNING] = self._count
        grown = (size > GROWTH * self._size) & (residual > self._first) & finite
        self.codes[alive & grown] = DIVERGED
        self.codes[alive & ~finite] = NOT_FINITE
        self.residual = np.where(alive, residual, self.residual)
        scale = self.atol + self.rtol * size
        self.error = np.where(alive, _ratio(residual, scale), self.error)
        done = (self.codes <= CONVERGED) & (self.error < 1.0)
        self.codes[self.codes <= CONVERGED] = RUNNING
        self.codes[done] = CONVERGED
        left = self.error[self.codes <= CONVERGED]
        self.history.append(float(left.max()) if left.size else float("nan"))
        return not (self.codes == RUNNING).any()

    def stop(self) -> None:
        """Mark what still runs: the limit was hit."""
        self.codes[self.codes == RUNNING] = MAX_STEPS

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Samples that have diverged or are not finite."""
        return self.codes > MAX_STEPS


def _ratio(residual: FloatArray, scale: FloatArray) -> FloatArray:
    """Residual over scale, zero where both vanish."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = residual / scale
    return np.where((residual == 0.0) & (scale == 0.0), 0.0, quotient)
