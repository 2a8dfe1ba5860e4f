"""The two fast routes: a one-dimensional table (homogeneous activations), and the general one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels import check as _check
from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import engine as _engine
from implicitnn._kernels import homogeneous as _homogeneous
from implicitnn._kernels import passes as _passes
from implicitnn._kernels import tables as _tables
from implicitnn._kernels import threads as _threads
from implicitnn._kernels.diagonal import NormMap, Spec
from implicitnn._kernels.engine import Coverage, Job, Panel
from implicitnn._kernels.samples_q import Samples, norm_range
from implicitnn._kernels.simd import BLOCK
from implicitnn._kernels.tiles import ROWS
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
EDGE = 4e-6
SAME = 1e-12
LATTICE = 16
SPREAD = 64
# with closed forms, so few entries cost less than a table
FEW = 4096
CUTS = (1.0, 31 / 32, 15 / 16, 7 / 8, 3 / 4, 1 / 2)


def evaluate(
    spec: Spec, X: FloatArray, Y: FloatArray | None, params: str, tol: float
) -> tuple[FloatArray, FloatArray]:
    """CK and NTK between the rows of X and those of Y (of X when None)."""
    left = Samples.of(X)
    right = left if Y is None else Samples.of(Y)
    first = _engine.gram(left, right)
    job = Job(spec, left, right, params, tol, first, np.empty_like(first))
    probe = _check.choose(job)
    if job.homogeneous:
        homogeneous(job)
    else:
        general(job, probe, tol / 20)
    if job.symmetric:
        _engine.fill_diagonal(job)
    _check.verify(job, probe)
    _engine.report(job)
    return job.first, job.second


def homogeneous(job: Job) -> None:
    """One equation in one unknown: a pass over all entries, near pairs exactly."""
    spec = job.spec
    assert isinstance(spec, DEQ)
    shape = _homogeneous.Shape.of(spec.phi)
    a2, c = spec.sigma_a2, shape.offset

    def prepare(samples: Samples) -> FloatArray:
        root = _homogeneous.variances(spec, samples.q)
        inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        lift = 0.5 * c * c - c * shape.mean * root
        return np.stack([0.5 * spec.sigma_c2 + a2 * lift, inverse, root, lift])

    data1 = prepare(job.left)
    data2 = data1 if job.symmetric else prepare(job.right)
    columns, rows = _tile(data2), np.ascontiguousarray(data1.T)
    constants, powers, sizes = _ranges(job, spec, data1, data2)
    room = ROWS * job.first.shape[1]

    def work(panel: Panel) -> None:
        index = np.empty((2, room), dtype=np.int64)
        found = _passes.homogeneous_panel(
            job.first,
            job.second,
            *panel,
            columns,
            rows,
            constants,
            powers,
            sizes,
            job.symmetric,
            index,
        )
        if found:
            _engine.refine(job, index[:, :found])

    _threads.each(work, job.panels)


def _ranges(
    job: Job, spec: DEQ, data1: FloatArray, data2: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Constants and polynomials of the pass: the usual range of t, and the two halves of all."""
    total = _homogeneous.largest(spec)
    r_max = 1.0 - spec.sigma_a2 * _homogeneous.Shape.of(spec.phi).top
    some = [_spread(data.shape[1]) for data in (data1, data2)]
    one, two = data1[:, some[0], None], data2[:, None, some[1]]
    drive = spec.sigma_b2 * job.first[np.ix_(*some)] + one[0] + two[0]
    gap = r_max - drive * (one[1] * two[1])
    if job.symmetric:
        gap = gap[some[0][:, None] != some[1]]
    low, high = _homogeneous.usual(np.clip(gap, 0.0, total).ravel(), total)
    half = math.sqrt(0.5 * total)
    parts = [(low, high, False), (0.0, half, False), (0.0, half, True)]
    found = [_homogeneous.series(spec, *part, job.tol / 50) for part in parts]
    every = float(job.params == "all")
    constants = [spec.sigma_b2, r_max, total, EDGE, total - EDGE]
    constants += [low**2, high**2, 2.0 / (high - low), (high + low) / (high - low)]
    constants += [0.5 * total, 2.0 / half, 1.0]
    constants += [spec.sigma_a2, every * spec.sigma_b2, every * spec.sigma_c2]
    sizes = np.array([part.shape[0] for part in found])
    return np.array(constants), np.concatenate(found).ravel(), sizes


def _spread(n: int) -> NDArray[np.int64]:
    """At most SPREAD places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, SPREAD)).astype(np.int64))


def general(job: Job, probe: _check.Probe, tol: float) -> None:
    """A table in two norms and the cosine, for the range of the data that one table can cover."""
    closed = all(layer.closed for layer in _diagonal.layers(job.spec))
    if closed and job.first.size <= FEW:
        _engine.exact(job)
        return
    low_norm, high_norm = norm_range(np.concatenate([job.left.q, job.right.q]))
    inv1, inv2 = (
        np.where((s.q >= low_norm) & (s.q <= high_norm), s.inverse, 0.0)
        for s in (job.left, job.right)
    )
    low, top = _cosines(job, inv1, inv2)
    table = None
    if low <= top:
        table = _find_table(job, NormMap(low_norm, high_norm), low, top, tol)
    if table is None:
        _engine.exact(job)
        return
    inside = bool(inv1.all() and inv2.all())
    high = min(table.high, 1.0 - SAME) if not job.symmetric or top > 1.0 - SAME else table.high
    complete = inside and low >= table.low and top <= high
    cover = Coverage(inv1, inv2, table.low - 1e-12, high + 1e-13, complete)
    index = 1 if job.params == "published" else 2
    basis1, scale1 = _prepare(job.spec, table, job.left, index)
    basis2, scale2 = (
        (basis1, scale1) if job.symmetric else _prepare(job.spec, table, job.right, index)
    )
    tiled, columns = _tile(basis2), _tile(np.concatenate([inv2[None], scale2]))
    middle, stretch = 0.5 * (table.low + table.high), 2.0 / (table.high - table.low)
    shift = np.full_like(inv1, middle * stretch)
    rows = np.ascontiguousarray(np.stack([stretch * inv1, shift, *scale1], axis=1))

    def work(panel: Panel) -> None:
        write = _engine.patch(job, cover, panel)
        coefficients = table.rows(basis1[:, slice(*panel)])
        _passes.table_panel(
            job.first,
            job.second,
            *panel,
            tiled,
            columns,
            rows,
            coefficients,
            table.ranks,
            job.symmetric,
        )
        if write is not None:
            write()

    _threads.each(work, job.panels)


def _cosines(job: Job, inv1: FloatArray, inv2: FloatArray) -> tuple[float, float]:
    """Range of the cosines of pairs inside the range of norms."""
    found: list[tuple[float, float]] = []

    def work(panel: Panel) -> None:
        result = np.empty(2)
        _passes.scan(job.first, inv1, inv2, *panel, job.symmetric, result)
        found.append((float(result[0]), float(result[1])))

    _threads.each(work, job.panels)
    return min(f[0] for f in found), max(f[1] for f in found)


def _find_table(
    job: Job, norm: NormMap, low: float, top: float, tol: float
) -> _tables.Table | None:
    """The table for the widest range of cosines that can be had, its ends on a lattice."""
    first = max(-1.0, math.floor(low * LATTICE - 1e-9) / LATTICE)
    last = min(1.0, math.ceil(top * LATTICE + 1e-9) / LATTICE)
    layers = _diagonal.layers(job.spec)
    # near cos = 1 a kink away from zero leaves no table at all, one at zero a bad one
    skip = 3 if any(layer.moved_kinks for layer in layers) else 0
    skip = max(skip, int(any(layer.phi.kinks for layer in layers)))
    for cut in CUTS[skip:]:
        ends = max(first, -cut), min(last, cut)
        if ends[1] - ends[0] < 2.0 / LATTICE:
            ends = max(-1.0, ends[0] - 1.0 / LATTICE), min(1.0, ends[1] + 1.0 / LATTICE)
        table = _tables.build(job.spec, job.params, norm, *ends, tol)
        if table is not None:
            return table
    return None


def _prepare(
    spec: Spec, table: _tables.Table, samples: Samples, index: int
) -> tuple[FloatArray, FloatArray]:
    q = np.clip(samples.q, table.norm.low, table.norm.high)
    diagonal = _diagonal.at(spec, q)
    ntk = diagonal.ntk_published if index == 1 else diagonal.ntk_all
    return table.basis(q), np.sqrt(np.stack([diagonal.ck, ntk]))


def _tile(basis: FloatArray) -> FloatArray:
    """(rank, n) cut into blocks of columns, each (rank, BLOCK) flat."""
    rank, columns = basis.shape
    blocks = -(-columns // BLOCK)
    padded = np.zeros((rank, blocks * BLOCK))
    padded[:, :columns] = basis
    cut = padded.reshape(rank, blocks, BLOCK).transpose(1, 0, 2)
    return np.ascontiguousarray(cut.reshape(blocks, -1))
