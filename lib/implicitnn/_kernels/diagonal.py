r"""The diagonal first: variances and energies as functions of the squared norm q, in one dimension.

Implicit: v(q) solves :math:`v = \sigma_a^2 S(v) + \sigma_b^2 q + \sigma_c^2`. Explicit:
:math:`v_0 = q, v_l = S_l(v_{l-1})`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels.layer import Layer
from implicitnn._kernels.samples_q import norm_range
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN

FloatArray = NDArray[np.float64]
Spec = DEQ | ENN
SMALLEST = 1e-140
NOTHING = 1e-120
NEWTON_STEPS = 60
PICARD_STEPS = 2000


@dataclass(frozen=True)
class Diagonal:
    """Squared norms; variance entering each layer (layers, m), G, and both NTKs, each (m,)."""

    norms: FloatArray
    variances: FloatArray
    ck: FloatArray
    ntk_published: FloatArray
    ntk_all: FloatArray

    def take(self, index: NDArray[np.intp]) -> Diagonal:
        """The same fields at chosen samples."""
        return Diagonal(
            self.norms[index],
            self.variances[:, index],
            self.ck[index],
            self.ntk_published[index],
            self.ntk_all[index],
        )

    def ntk(self, params: str) -> FloatArray:
        """The NTK over the chosen parameters."""
        return self.ntk_published if params == "published" else self.ntk_all


@lru_cache(maxsize=256)
def layers(spec: Spec) -> tuple[Layer, ...]:
    """The layers of a network: one for a DEQ."""
    if isinstance(spec, DEQ):
        return (Layer(spec.phi),)
    return tuple(Layer(phi) for phi in spec.phis)


def solve(spec: Spec, q: FloatArray) -> Diagonal:
    """The diagonal at squared norms ``q`` (m,), by quadrature at each of them.

    Raises
    ------
    NotWellPosedError : the fixed point at some q does not exist or does not attract.
    """
    return _implicit(spec, q) if isinstance(spec, DEQ) else _explicit(spec, q)


def _implicit(spec: DEQ, q: FloatArray) -> Diagonal:
    drive = spec.sigma_b2 * q + spec.sigma_c2
    v = np.maximum(_fixed_point(spec, drive), SMALLEST)
    energy, _, slope = layers(spec)[0].moments(v)
    # a sample that drives nothing: no bias, and phi(0) = 0 up to the rounding of the offset
    silent = float(spec.phi(np.zeros(1))[0] ** 2) < 1e-30 * spec.gamma2
    energy = np.where(
        (energy < NOTHING) | ((q == 0.0) & silent & (spec.sigma_c2 == 0.0)), 0.0, energy
    )
    drive = np.where(energy == 0.0, 0.0, drive)
    rate = spec.sigma_a2 * slope
    if (rate >= 1.0).any():
        worst = int(np.argmax(rate))
        raise NotWellPosedError(
            f"{spec!r} has no NTK for a sample of squared norm {q[worst]:.6g}: "
            f"sigma_a2 E[phi'^2] < 1 fails, it is {rate[worst]:.6g}"
        )
    published = energy / (1.0 - rate)
    every = (energy + drive * slope) / (1.0 - rate)
    return Diagonal(q, v[None, :], energy, published, every)


def _fixed_point(spec: DEQ, drive: FloatArray) -> FloatArray:
    """The smallest solution of v = sa2 S(v) + drive: Newton from below stays below it."""
    if spec.sigma_a2 == 0.0:
        return drive
    layer = layers(spec)[0]
    v = np.maximum(drive, SMALLEST)
    for step in range(NEWTON_STEPS):
        energy, bend, _ = layer.moments(v)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below when not finite
            residual = spec.sigma_a2 * energy + drive - v
            rate = np.clip(spec.sigma_a2 * bend, -1.0, 0.999)
            change = residual / (1.0 - rate) if step else residual
            last, v = v, np.maximum(v + change, SMALLEST)
        if not np.isfinite(v).all():
            break
        # after some steps what is left is rounding noise
        enough = 4e-16 if step < 7 else 1e-14
        if (np.abs(v - last) <= enough * v).all():
            return v
    with np.errstate(invalid="ignore"):  # the largest is wanted, or the first that is not finite
        where = float(drive[np.argmax(np.abs(residual) / v)])
    raise NotWellPosedError(
        f"{spec!r} has no fixed point for a sample with sigma_b2 |x|^2 + sigma_c2 = {where:.6g}"
    )


def _explicit(spec: ENN, q: FloatArray) -> Diagonal:
    variances = [np.maximum(q, SMALLEST)]
    kernel = q.copy()
    for layer in layers(spec):
        energy, _, slope = layer.moments(variances[-1])
        kernel = energy + kernel * slope
        variances.append(np.maximum(energy, SMALLEST))
    energy = np.where(energy < NOTHING, 0.0, energy)
    kernel = np.where(kernel < NOTHING, 0.0, kernel)
    return Diagonal(q, np.stack(variances[:-1]), energy, kernel, kernel)


@dataclass(frozen=True)
class NormMap:
    """The variable x in [-1, 1], affine in log q, for squared norms q in [low, high]."""

    low: float
    high: float

    def to_unit(self, q: FloatArray) -> FloatArray:
        """x(q), clipped to [-1, 1]."""
        span = np.log(self.high) - np.log(self.low)
        x = 2.0 * (np.log(np.maximum(q, SMALLEST)) - np.log(self.low)) / span - 1.0
        return np.clip(x, -1.0, 1.0)  # type: ignore[no-any-return]

    def nodes(self, count: int) -> FloatArray:
        """Norms at the Chebyshev points of the first kind."""
        x = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        return np.asarray(np.exp(np.log(self.low) + 0.5 * (x + 1.0) * np.log(self.high / self.low)))


def chebyshev(x: FloatArray, count: int) -> FloatArray:
    """T_k(x), k < count; (count, m)."""
    table = np.ones((count, x.size))
    if count > 1:
        table[1] = x
    for k in range(2, count):
        table[k] = 2.0 * x * table[k - 1] - table[k - 2]
    return table


def transform(values: FloatArray, axis: int) -> FloatArray:
    """Chebyshev coefficients from values at the points of the first kind, along one axis."""
    count = values.shape[axis]
    angle = np.pi * (np.arange(count) + 0.5) / count
    matrix = np.cos(np.outer(np.arange(count), angle)) * (2.0 / count)
    matrix[0] *= 0.5
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)


@lru_cache(maxsize=128)
def interpolant(spec: Spec, low: float, high: float) -> FloatArray | None:
    """Chebyshev coefficients (count, fields) of the logs of all fields of Diagonal in x(q).

    None where the fields are not smooth enough, or not defined on the whole range.
    """
    norm = NormMap(low, high)
    for count in (16, 32, 64, 128):
        try:
            d = solve(spec, norm.nodes(count))
        except NotWellPosedError:
            return None
        fields = np.log(np.stack([*d.variances, d.ck, d.ntk_published, d.ntk_all], axis=1))
        table = transform(fields, 0)
        if np.abs(table[-3:]).max() < 4e-15 * max(1.0, float(np.abs(table).max())):
            return table
    return None


def at(spec: Spec, q: FloatArray) -> Diagonal:
    """The diagonal at squared norms ``q`` (m,): interpolated where many norms share a range."""
    low, high = norm_range(q)
    inside = (q >= low) & (q <= high)
    table = interpolant(spec, low, high) if inside.sum() > 64 else None
    if table is None:
        every, back = np.unique(q, return_inverse=True)
        return solve(spec, every).take(back)
    fields = np.empty((table.shape[1], q.size))
    basis = chebyshev(NormMap(low, high).to_unit(q[inside]), table.shape[0])
    fields[:, inside] = np.exp(table.T @ basis)
    if not inside.all():
        far = solve(spec, q[~inside])
        fields[:, ~inside] = np.stack([*far.variances, far.ck, far.ntk_published, far.ntk_all])
    return Diagonal(q, fields[:-3], fields[-3], fields[-2], fields[-1])
