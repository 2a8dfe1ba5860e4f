"""The check after the fact: sampled entries against the exact route.

Both routes use the same moments of one variable; those are verified before, decade by decade, in
:mod:`implicitnn._kernels.rules`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import engine as _engine
from implicitnn._kernels.engine import Job
from implicitnn._kernels.samples_q import Samples
from implicitnn.errors import AccuracyError, AccuracyWarning

FloatArray = NDArray[np.float64]
ENTRIES = 12
SUBSET = 48


@dataclass(frozen=True)
class Probe:
    """Entries (2, m) to be checked, with their inner products."""

    index: NDArray[np.int64]
    inner: FloatArray


def choose(job: Job) -> Probe:
    """Extremes of the cosine and of the norms in a fixed random subset, and random entries."""
    n, m = job.first.shape
    rng = np.random.default_rng(n * 1_000_003 + m)
    some = [_subset(job.left.q, rng), _subset(job.right.q, rng)]
    block = job.first[np.ix_(some[0], some[1])]
    cosine = block * job.left.inverse[some[0], None] * job.right.inverse[some[1]]
    if job.symmetric:
        cosine = np.where(some[0][:, None] == some[1], np.nan, cosine)
    pairs = {(0, 0), (block.shape[0] - 1, block.shape[1] - 1), (0, block.shape[1] - 1)}
    if not np.isnan(cosine).all():
        flat = (int(np.nanargmax(cosine)), int(np.nanargmin(cosine)))
        pairs |= {divmod(place, block.shape[1]) for place in flat}
    for _ in range(ENTRIES - 5):
        pairs.add((int(rng.integers(block.shape[0])), int(rng.integers(block.shape[1]))))
    rows, columns = np.array(sorted(pairs)).T
    index = np.stack([some[0][rows], some[1][columns]]).astype(np.int64)
    return Probe(index, job.first[index[0], index[1]].copy())


def _subset(q: FloatArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most SUBSET samples in order of norm, the smallest and the largest among them."""
    some = rng.permutation(q.size)[:SUBSET]
    some = np.unique(np.concatenate([some, [int(q.argmin()), int(q.argmax())]]))
    return np.asarray(some[np.argsort(q[some], kind="stable")], dtype=np.int64)


def errors(job: Job, probe: Probe) -> FloatArray:
    """Scaled errors at the probed entries, (2, m); NaN where the exact route itself was taken."""
    ck, ntk = _engine.solve_listed(job, probe.index, probe.inner, patient=False)
    one, two = (
        _sizes(job, *place) for place in zip((job.left, job.right), probe.index, strict=True)
    )
    result = []
    for out, value, a, b in zip((job.first, job.second), (ck, ntk), one, two, strict=True):
        scale = np.maximum(np.sqrt(a) * np.sqrt(b), 1e-300)
        result.append(np.abs(out[probe.index[0], probe.index[1]] - value) / scale)
    return np.stack(result)


def _sizes(job: Job, samples: Samples, place: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Diagonal values of both kernels at chosen samples; a symmetric result has them already."""
    if job.symmetric:
        return job.first[place, place], job.second[place, place]
    diagonal = _diagonal.at(job.spec, samples.q[place])
    return diagonal.ck, diagonal.ntk(job.params)


def verify(job: Job, probe: Probe) -> None:
    """Recompute everything exactly when a probed entry misses the tolerance.

    Raises
    ------
    AccuracyError : the result is not finite.
    """
    worst = float(np.nanmax(errors(job, probe), initial=0.0))
    if worst <= job.tol:
        return
    warnings.warn(
        f"{job.spec!r}: the fast route missed the tolerance {job.tol:g} (error {worst:.1e}); "
        "all entries are recomputed by the exact route, which is slower",
        AccuracyWarning,
        stacklevel=4,
    )
    job.first[:] = _engine.gram(job.left, job.right)
    _engine.exact(job)
    if job.symmetric:
        _engine.fill_diagonal(job)
    worst = float(np.nanmax(errors(job, probe), initial=0.0))
    if not worst <= job.tol:
        raise AccuracyError(f"{job.spec!r}: tolerance {job.tol:g} not reached, error {worst:.1e}")
