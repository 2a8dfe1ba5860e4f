r"""Tables of the two kernels in (|x|^2, |y|^2, cos): Chebyshev, compressed in the norm directions.

Both kernels are divided by the geometric mean of their diagonal values, so an error in the table is
the error of the result. At the nodes the fixed point (or the recursion over layers) is solved with
the Mehler series :math:`E\phi(u)\phi(v) = \sum_k c_k(v_1) c_k(v_2) \rho^k`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import exact as _exact
from implicitnn._kernels.diagonal import Diagonal, NormMap, Spec, chebyshev, layers, transform
from implicitnn._kernels.layer import Layer
from implicitnn._kernels.passes import mehler
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
SHORT, MIDDLE, LONG = 128, 256, 1024
MAX_NODES = 60_000
MAX_LISTED = 3_000
MAX_COSINES = 100


@dataclass(frozen=True)
class Table:
    """Chebyshev series in cos, whose coefficients are sums of products of norm functions.

    factor (rank, norms): the norm functions; core (rank, 2 * sum of ranks): for each order of the
    series, the highest first, and each of its ``ranks`` leading functions of one norm, both
    kernels' coefficients in the functions of the other norm. ``ranks`` counts orders upwards.
    """

    core: FloatArray
    ranks: NDArray[np.int64]
    factor: FloatArray
    norm: NormMap
    low: float
    high: float

    def basis(self, q: FloatArray) -> FloatArray:
        """The norm functions at given norms, (rank, m)."""
        count = self.factor.shape[1]
        return np.asarray(self.factor @ chebyshev(self.norm.to_unit(q), count))

    def rows(self, basis: FloatArray) -> FloatArray:
        """Coefficients of the series for the samples of ``basis``; (m, 2 * sum of ranks)."""
        return np.ascontiguousarray(basis.T @ self.core)


class _Series:
    """Mehler series of one layer at fixed pairs of variances, long enough for the rho at hand."""

    def __init__(self, layer: Layer, v1: FloatArray, v2: FloatArray, tol: float) -> None:
        self.layer, self.tol = layer, tol
        self.every, back = np.unique(np.concatenate([v1, v2]), return_inverse=True)
        self.one, self.two = back[: v1.size], back[v1.size :]
        self.size = np.sqrt(v1 * v2)[:, None]
        self.energy, _, self.slope = layer.moments(self.every)
        self._extend(SHORT)

    def _extend(self, terms: int) -> None:
        self.table = self.layer.hermite(self.every, terms)
        # what Parseval leaves after K terms, for phi and for phi'
        square = self.table**2
        left = 1.0 - np.cumsum(square, axis=1) / self.energy[:, None]
        steep = (
            1.0 - np.cumsum(square * np.arange(terms), axis=1) / (self.every * self.slope)[:, None]
        )
        _exact.require_parseval(self.layer, left[:, -1])
        rest = np.maximum(left, steep)
        self.rest = np.where(rest > 1e-13, rest, 0.0).max(axis=0)

    def __call__(self, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        rho = np.clip(covariance / self.size, -1.0, 1.0)
        terms = self._terms(float(np.abs(rho).max()))
        left = np.ascontiguousarray(self.table[self.one, :terms])
        right = np.ascontiguousarray(self.table[self.two, :terms])
        value, slope = mehler(left, right, rho)
        return value, slope / self.size

    def _terms(self, rho: float) -> int:
        bound = rho ** np.arange(1, self.rest.size + 1) * self.rest
        enough = np.nonzero(bound < self.tol)[0]
        if enough.size:
            return int(enough[0]) + 1
        if self.rest.size >= (MIDDLE if self.layer.moved_kinks else LONG):
            raise _TooRough
        self._extend(2 * self.rest.size)
        return self._terms(rho)


class _TooRough(Exception):
    """The series does not converge to the tolerance at the correlations asked for."""


def _solve_nodes(
    spec: Spec, left: Diagonal, right: Diagonal, gram: FloatArray, params: str, tol: float
) -> tuple[FloatArray, FloatArray]:
    """CK and NTK at m x r nodes: by series, or by the closed forms of the exact route."""
    try:
        return _solve_series(spec, left, right, gram, params, tol)
    except _TooRough:
        if not all(layer.closed for layer in layers(spec)) or gram.size > MAX_LISTED:
            raise
        return _solve_listed(spec, left, right, gram, params, tol)


def _solve_series(
    spec: Spec, left: Diagonal, right: Diagonal, gram: FloatArray, params: str, tol: float
) -> tuple[FloatArray, FloatArray]:
    if isinstance(spec, DEQ):
        return _solve_implicit(spec, left, right, gram, params, tol)
    kernel, covariance = gram, gram
    for number, layer in enumerate(layers(spec)):
        series = _Series(layer, left.variances[number], right.variances[number], tol)
        value, slope = series(covariance)
        kernel, covariance = value + kernel * slope, value
    return covariance, kernel


def _solve_listed(
    spec: Spec, left: Diagonal, right: Diagonal, gram: FloatArray, params: str, tol: float
) -> tuple[FloatArray, FloatArray]:
    pairs, columns = gram.shape
    index = np.repeat(np.arange(pairs), columns)
    cos = gram.ravel() / np.sqrt(left.norms * right.norms)[index]
    result = _exact.solve(
        spec,
        left.take(index),
        right.take(index),
        gram.ravel(),
        2.0 * (1.0 - cos),
        params,
        tol,
        patient=False,
    )
    if result.slow.any():
        raise _TooRough
    return result.ck.reshape(gram.shape), result.ntk.reshape(gram.shape)


def _solve_implicit(
    spec: DEQ, left: Diagonal, right: Diagonal, gram: FloatArray, params: str, tol: float
) -> tuple[FloatArray, FloatArray]:
    series = _Series(layers(spec)[0], left.variances[0], right.variances[0], tol)
    drive = spec.sigma_b2 * gram + spec.sigma_c2
    limit = series.size
    covariance = np.clip(drive, -limit, limit)
    for _ in range(30):
        value, slope = series(covariance)
        rate = np.minimum(spec.sigma_a2 * slope, 0.999)
        new = covariance + (spec.sigma_a2 * value + drive - covariance) / (1.0 - rate)
        new = np.clip(new, -limit, limit)
        done = np.abs(new - covariance).max() <= 1e-15 * limit.max()
        covariance = new
        if done:
            break
    value, slope = series(covariance)
    top = value if params == "published" else value + drive * slope
    return value, top / (1.0 - spec.sigma_a2 * slope)


@lru_cache(maxsize=64)
def build(
    spec: Spec, params: str, norm: NormMap, low: float, high: float, tol: float
) -> Table | None:
    """The table for norms in ``norm`` and cosines in [low, high]; None if there is none."""
    norms, cosines = 10, 14
    try:
        while norms**2 * cosines <= 2 * MAX_NODES and cosines <= MAX_COSINES:
            tensor = _nodal(spec, params, norm, low, high, norms, cosines, 0.1 * tol)
            for axis in (0, 1, 2):
                tensor = transform(tensor, axis)
            grow_norm = np.abs(tensor[-2:]).max() > tol
            grow_cos = np.abs(tensor[:, :, -2:]).max() > tol
            if not (grow_norm or grow_cos):
                return _compress(tensor, norm, low, high, tol)
            norms = int(norms * 1.5) if grow_norm else norms
            cosines = int(cosines * 1.5) if grow_cos else cosines
    except (_TooRough, NotWellPosedError):
        return None
    return None


def _nodal(
    spec: Spec,
    params: str,
    norm: NormMap,
    low: float,
    high: float,
    norms: int,
    cosines: int,
    tol: float,
) -> FloatArray:
    q = norm.nodes(norms)
    diagonal = _diagonal.solve(spec, q)
    upper, lower = np.triu_indices(norms)
    y = np.cos(np.pi * (np.arange(cosines) + 0.5) / cosines)
    cos = low + 0.5 * (high - low) * (y + 1.0)
    gram = np.sqrt(q[upper] * q[lower])[:, None] * cos

    value, kernel = _solve_nodes(
        spec, diagonal.take(upper), diagonal.take(lower), gram, params, tol
    )
    ck, ntk = np.sqrt(diagonal.ck), np.sqrt(diagonal.ntk(params))
    tensor = np.empty((norms, norms, cosines, 2))
    for k, (field, scale) in enumerate(((value, ck), (kernel, ntk))):
        scaled = field / (scale[upper] * scale[lower])[:, None]
        tensor[upper, lower, :, k] = scaled
        tensor[lower, upper, :, k] = scaled
    return tensor


def _compress(tensor: FloatArray, norm: NormMap, low: float, high: float, tol: float) -> Table:
    used = np.abs(tensor).max(axis=(0, 1, 3)) > 0.02 * tol
    tensor = tensor[:, :, : int(np.nonzero(used)[0].max(initial=0)) + 1]
    u, s, _ = np.linalg.svd(tensor.reshape(tensor.shape[0], -1), full_matrices=False)
    tail = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1]
    rank = max(1, int((tail > 0.1 * tol).sum()))
    u = u[:, :rank]
    core = np.einsum("abrk,ap,bq->rqpk", tensor, u, u, optimize=True)
    ranks = _needed(core, u, tol)
    parts = [core[r, : ranks[r]] for r in range(ranks.size - 1, -1, -1)]
    flat = np.concatenate(parts).transpose(1, 0, 2).reshape(rank, -1)
    return Table(np.ascontiguousarray(flat), ranks, np.ascontiguousarray(u.T), norm, low, high)


def _needed(core: FloatArray, u: FloatArray, tol: float) -> NDArray[np.int64]:
    """For each order of the series, how many norm functions: what is left out stays below tol."""
    norms = u.shape[0]
    values = u.T @ chebyshev(np.cos(np.linspace(0.0, np.pi, 4 * norms)), norms)
    sizes = np.abs(np.einsum("rqpk,pm->rqkm", core, values, optimize=True)).max(axis=(2, 3))
    tails = np.cumsum((sizes * np.abs(values).max(axis=1))[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((tails > tol / core.shape[0]).sum(axis=1), dtype=np.int64)
