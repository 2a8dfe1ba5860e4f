"""From samples to kernels: norms, the inner products, a table for their range, one fused pass.

Pairs that the table does not cover (zero or far norms, cosines beyond it, near duplicates) are
collected panel by panel before the pass and filled in by the exact route.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import exact as _exact
from implicitnn._kernels import homogeneous as _homogeneous
from implicitnn._kernels import passes as _passes
from implicitnn._kernels import threads as _threads
from implicitnn._kernels.diagonal import Diagonal, Spec
from implicitnn._kernels.samples_q import Samples
from implicitnn._kernels.tiles import ROWS
from implicitnn.errors import AccuracyWarning
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
CHUNK = 50_000
Panel = tuple[int, int]


@dataclass
class Job:
    """One evaluation: the two sets of samples, the two outputs, and what was asked."""

    spec: Spec
    left: Samples
    right: Samples
    params: str
    tol: float
    first: FloatArray
    second: FloatArray
    slow: int = 0

    @property
    def symmetric(self) -> bool:
        """Whether the kernel is square with equal rows and columns."""
        return self.left is self.right

    @property
    def homogeneous(self) -> bool:
        """Whether the one-dimensional table applies."""
        return isinstance(self.spec, DEQ) and self.spec.activation.homogeneous

    @property
    def panels(self) -> list[Panel]:
        """Panels of rows."""
        n = self.first.shape[0]
        return [(i, min(n, i + ROWS)) for i in range(0, n, ROWS)]


@dataclass(frozen=True)
class Coverage:
    """Which entries a table covers: inv > 0 in both samples and cos in [low, high]."""

    inv1: FloatArray
    inv2: FloatArray
    low: float
    high: float
    complete: bool


def gram(left: Samples, right: Samples) -> FloatArray:
    """X Y^T, refused when it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.matmul(left.rows, right.rows.T)
    for name, samples in (("X", left), ("Y", right)):
        if not np.isfinite(samples.q).all():
            where = int(np.argmin(np.isfinite(samples.q)))
            raise ValueError(f"{name} is too large: |x|^2 of row {where} overflows")
    return product  # type: ignore[no-any-return]


def patch(job: Job, cover: Coverage, panel: Panel) -> Callable[[], None] | None:
    """Solve the entries of a panel that the table leaves out; the result writes them."""
    if cover.complete:
        return None
    i0, i1 = panel
    bounds = (cover.inv1, cover.inv2, i0, i1, cover.low, cover.high, job.symmetric)
    count = _passes.count_flagged(job.first, *bounds)
    if count == 0:
        return None
    index, inner = np.empty((2, count), dtype=np.int64), np.empty(count)
    _passes.list_flagged(job.first, *bounds, index, inner)
    values = [
        solve_listed(job, index[:, k : k + CHUNK], inner[k : k + CHUNK])
        for k in range(0, count, CHUNK)
    ]
    ck, ntk = (np.concatenate(parts) for parts in zip(*values, strict=True))

    return lambda: write_listed(job, index, ck, ntk)


def refine(job: Job, index: NDArray[np.int64]) -> None:
    """Replace listed entries by their exact values."""
    for k in range(0, index.shape[1], CHUNK):
        part = index[:, k : k + CHUNK]
        inner = _passes.products(job.left.rows, job.right.rows, part)
        write_listed(job, part, *solve_listed(job, part, inner))


def write_listed(job: Job, index: NDArray[np.int64], ck: FloatArray, ntk: FloatArray) -> None:
    """Write listed entries, and their mirror images when the kernel is symmetric."""
    for out, field in ((job.first, ck), (job.second, ntk)):
        out[index[0], index[1]] = field
        if job.symmetric:
            out[index[1], index[0]] = field


def solve_listed(
    job: Job, index: NDArray[np.int64], inner: FloatArray, patient: bool = True
) -> tuple[FloatArray, FloatArray]:
    """CK and NTK of listed pairs by the exact route; unless patient, NaN where it is slow."""
    left, right = job.left, job.right
    q1, q2 = left.q[index[0]], right.q[index[1]]
    chord2 = _passes.distances(left.rows, right.rows, left.inverse, right.inverse, index)
    if job.homogeneous:
        assert isinstance(job.spec, DEQ)
        return _homogeneous.pairs(job.spec, q1, q2, inner, chord2, job.params)
    every, back = np.unique(np.concatenate([q1, q2]), return_inverse=True)
    diagonal = _diagonal.solve(job.spec, every)
    one, two = diagonal.take(back[: q1.size]), diagonal.take(back[q1.size :])
    result = _exact.solve(job.spec, one, two, inner, chord2, job.params, 0.05 * job.tol, patient)
    job.slow += int(result.slow.sum()) if patient else 0
    same = (chord2 == 0.0) & (q1 == q2)
    ck = np.where(same, one.ck, result.ck)
    ntk = np.where(same, one.ntk(job.params), result.ntk)
    nothing = (one.ck == 0.0) | (two.ck == 0.0)
    ck[nothing], ntk[nothing] = 0.0, 0.0
    if not patient:
        ck[result.slow], ntk[result.slow] = np.nan, np.nan
    return ck, ntk


def exact(job: Job) -> None:
    """Every entry by the exact route."""
    nothing = Coverage(np.zeros(job.left.q.size), np.zeros(job.right.q.size), 1.0, -1.0, False)

    def work(panel: Panel) -> None:
        write = patch(job, nothing, panel)
        if write is not None:
            write()

    _threads.each(work, job.panels)


def report(job: Job) -> None:
    """Say so when pairs had to be integrated one by one."""
    if job.slow:
        warnings.warn(
            f"{job.spec!r}: {job.slow} pairs of nearly parallel or far samples were integrated one "
            "by one, which is slow; no table or series reaches the tolerance there",
            AccuracyWarning,
            stacklevel=4,
        )


def fill_diagonal(job: Job) -> None:
    """Overwrite the diagonal by the one-dimensional solution."""
    values: Diagonal = _diagonal.at(job.spec, job.left.q)
    np.fill_diagonal(job.first, values.ck)
    np.fill_diagonal(job.second, values.ntk(job.params))
