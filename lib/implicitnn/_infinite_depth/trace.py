"""What is kept of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from implicitnn._infinite_depth.norms import smallest_singular_value
from implicitnn._validate import FloatArray

COLUMNS = (
    "epoch", "loss", "sigma_min", "norm_A", "gamma", "forward_iterations", "adjoint_iterations",
    "moved_W", "moved_A", "moved_b",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trace:
    r"""Arrays over the recorded epochs (times, for a flow).

    ``sigma_min`` is that of Z, ``norm_A`` the operator norm, ``moved_W`` the Frobenius distance
    from the start. For a flow ``epoch`` holds times.
    """

    epoch: FloatArray
    loss: FloatArray
    sigma_min: FloatArray
    norm_A: FloatArray
    gamma: FloatArray
    forward_iterations: FloatArray
    adjoint_iterations: FloatArray
    moved_W: FloatArray
    moved_A: FloatArray
    moved_b: FloatArray

    @property
    def rate(self) -> FloatArray:
        r""":math:`\gamma\lVert A\rVert` at each recorded epoch."""
        return self.gamma * self.norm_A


def _length(move: FloatArray) -> float:
    """Return the Frobenius norm; its square may lie beyond the floating-point range."""
    with np.errstate(over="ignore"):
        found = float(np.linalg.norm(move))
    if np.isfinite(found):
        return found
    top = float(np.abs(move).max())
    return top * float(np.linalg.norm(move / top))


@dataclass
class Recorder:
    """Collects rows and turns them into a Trace."""

    start: tuple[FloatArray, FloatArray, FloatArray]
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def add(
        self,
        epoch: float,
        loss: float,
        Z: FloatArray,
        norm_A: float,
        gamma: float,
        iterations: tuple[int, int],
        now: tuple[FloatArray, FloatArray, FloatArray],
    ) -> None:
        """Keep one row."""
        moved = (_length(a - b) for a, b in zip(now, self.start, strict=True))
        row = (epoch, loss, smallest_singular_value(Z), norm_A, gamma, *iterations, *moved)
        self.rows.append(tuple(float(value) for value in row))

    def trace(self) -> Trace:
        """Return what was collected; empty arrays when nothing was."""
        table = np.array(self.rows, dtype=float).reshape(-1, len(COLUMNS))
        return Trace(*table.T)
