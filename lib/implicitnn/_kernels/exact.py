r"""The exact route: kernels for a list of pairs, without a table.

The unknown is the gap :math:`e = 1 - \rho`. It keeps its digits when two samples nearly agree, and
also when their norms are far apart. With :math:`S_i = E\phi(u_i)^2`, :math:`s_i = \sqrt{v_i}`,
:math:`g(e) = 1 - E\phi(u)\phi(v)/\sqrt{S_1 S_2}`, unit vectors :math:`\hat x, \hat y` of the
samples, and :math:`w_i = (\sigma_a \sqrt{S_i}, \sigma_b |x_i|, \sigma_c)`, of norm s_i,

.. math:: s_1 s_2\, e = \sigma_a^2 \sqrt{S_1 S_2}\, g(e)
   + \tfrac12 \sigma_b^2 |x| |y|\, |\hat x - \hat y|^2
   + \tfrac12 s_1 s_2\, |w_1/s_1 - w_2/s_2|^2 .

No term is negative, so nothing cancels. A layer of an explicit network maps e to g(e).

g comes from a closed form (positively homogeneous, piecewise linear), else from a Mehler series
whose tail is bounded by Parseval's identity, else from quadrature pair by pair. The closed forms
of pieces and quadrature give g to 1e-16 absolutely, the others relatively.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from implicitnn import gaussian
from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import exponential as _exponential
from implicitnn._kernels import piecewise as _piecewise
from implicitnn._kernels.diagonal import Diagonal, Spec
from implicitnn._kernels.homogeneous import Shape, half_chord
from implicitnn._kernels.kinks import SILENT, density, folded, jumps
from implicitnn._kernels.layer import Layer
from implicitnn._kernels.passes import mehler, mehler_gap
from implicitnn.activations import elu
from implicitnn.errors import AccuracyError
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
TERMS, MANY = 256, 1024
LARGE = 2.0
STEPS = 40
TINY = 1e-11
SMALL = 1e-4
# of one closed form for a pair, in units of its largest term
ROUNDING = 4e-16


class Moments(Protocol):
    """g(e) and E phi' phi' for fixed pairs of variances; ``slow``: pairs left to quadrature."""

    slow: NDArray[np.bool_]

    def __call__(self, gap: FloatArray) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True)
class _Middles:
    r"""Roots of both variances; v, :math:`E\phi'^2` and :math:`E(w\phi')^2` less its mean part."""

    root1: FloatArray
    root2: FloatArray
    variance: FloatArray
    slope: FloatArray
    stretch: FloatArray


@dataclass
class _Pairs:
    """Variances, energies and squared slopes of m pairs, with what the geometry needs."""

    layer: Layer
    v1: FloatArray
    v2: FloatArray
    _middles: tuple[NDArray[np.bool_], _Middles] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        every, back = np.unique(np.concatenate([self.v1, self.v2]), return_inverse=True)
        energy, _, slope = self.layer.moments(every)
        self.every, self.back = every, back
        m = self.v1.size
        self.energy1, self.energy2 = energy[back[:m]], energy[back[m:]]
        self.slope1, self.slope2 = slope[back[:m]], slope[back[m:]]
        self.size = np.sqrt(self.v1) * np.sqrt(self.v2)
        # an energy that underflows is set to nothing by the caller
        self.scale = np.sqrt(np.maximum(self.energy1, SILENT)) * np.sqrt(
            np.maximum(self.energy2, SILENT)
        )

    def half(self, gap: FloatArray) -> FloatArray:
        """M = E(u - v)^2 / 2."""
        apart = 0.5 * (self.v1 - self.v2) ** 2 / (np.sqrt(self.v1) + np.sqrt(self.v2)) ** 2
        return np.asarray(apart + self.size * gap)

    def tiny(self, gap: FloatArray) -> NDArray[np.bool_]:
        """Whether u - v is far below the standard deviation and the bends of phi."""
        return np.asarray(self.half(gap) <= TINY * np.minimum(self.size, self.layer.width**2))

    def middles(self, some: NDArray[np.bool_]) -> _Middles:
        """Moments between the two variances of some pairs; kept for the next step of Newton."""
        if self._middles is None or not np.array_equal(self._middles[0], some):
            s1, s2 = np.sqrt(self.v1[some]), np.sqrt(self.v2[some])
            variance = 0.25 * (s1 + s2) ** 2
            energy, bend, slope, stretch = self.layer.moments_and_stretch(variance)
            stretch = stretch - (variance * bend) ** 2 / np.maximum(energy, SILENT)
            self._middles = some, _Middles(s1, s2, variance, slope, np.maximum(stretch, 0.0))
        return self._middles[1]

    def complement(self, value: FloatArray) -> FloatArray:
        """The complement g for E phi(u) phi(v) = value."""
        return np.asarray(np.maximum(1.0 - value / self.scale, 0.0))


class _Homogeneous:
    r"""Closed form of degree-one arc-cosine type.

    The energies are :math:`S_i = N_i^2 + A^2` with :math:`N_i = \sqrt{t} s_i - c m/\sqrt{t}`,
    :math:`A^2 = c^2 (1 - m^2/t)`, t = k(1), and
    :math:`\sqrt{S_1 S_2}\, g = s_1 s_2 (t - k(\rho)) + \sqrt{S_1 S_2} - N_1 N_2 - A^2`; the last
    three terms are half of a squared distance of unit vectors.
    """

    def __init__(self, pairs: _Pairs, shape: Shape) -> None:
        self.pairs, self.shape, self.slow = pairs, shape, np.zeros(pairs.v1.size, dtype=bool)
        root, flat = math.sqrt(shape.top), shape.rest
        shift = shape.offset * shape.mean / root if root > 0.0 else 0.0
        one, two = (root * np.sqrt(v) - shift for v in (pairs.v1, pairs.v2))
        self.bend = half_chord([one, flat], [two, flat])

    def __call__(self, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, shape = self.pairs, self.shape
        theta = 2.0 * np.arcsin(np.sqrt(0.5 * gap))
        return p.size / p.scale * shape.drop(theta) + self.bend, shape.slope(theta)


class _PiecewiseLinear:
    """Bivariate normal probabilities; the leading order in M where they would cancel.

    Far beyond its kinks a bounded phi is a small difference of large terms: such pairs are left to
    the series.
    """

    def __init__(self, pairs: _Pairs, corners: FloatArray, tol: float, patient: bool) -> None:
        self.pairs, self.corners, self.slow = pairs, corners, np.zeros(pairs.v1.size, dtype=bool)
        steepest = np.abs(corners[1]) + np.abs(corners[3::2]).sum()
        self.hard = ROUNDING * steepest**2 * pairs.size > tol * pairs.scale
        self.series = None
        if self.hard.any():
            some = _Pairs(pairs.layer, pairs.v1[self.hard], pairs.v2[self.hard])
            self.series = _Series(some, tol, patient)

    def __call__(self, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = self.pairs
        value, product = np.empty_like(gap), np.empty_like(gap)
        _piecewise.moments(self.corners, p.v1, p.v2, gap, value, product)
        rise, product = _with_leading_order(p, gap, p.complement(value), product)
        if self.series is not None:
            rise[self.hard], product[self.hard] = self.series(gap[self.hard])
            self.slow[self.hard] = self.series.slow
        return rise, product


class _Series:
    """Mehler series; pairs whose tail is too large are integrated one by one."""

    def __init__(self, pairs: _Pairs, tol: float, patient: bool) -> None:
        self.pairs, self.tol, self.patient = pairs, tol, patient
        self.slow = np.zeros(pairs.v1.size, dtype=bool)
        # steep activations need more terms; moving kinks would make them dear
        far = pairs.every.max() > LARGE and not pairs.layer.moved_kinks
        self.terms = MANY if far else TERMS
        table = pairs.layer.hermite(pairs.every, self.terms)
        energy, _, slope = pairs.layer.moments(pairs.every)
        table = table / np.sqrt(np.maximum(energy, SILENT))[:, None]
        rest = 1.0 - (table**2).sum(axis=1)
        # for tiny variances c_1 / sqrt(v) has no digits left; phi' itself has
        tiny = pairs.every.min() < SMALL
        steep = pairs.layer.hermite_slope(pairs.every, self.terms) if tiny else None
        if steep is None:
            captured = (table**2 @ np.arange(self.terms)) * energy / pairs.every
        else:
            captured = (steep**2).sum(axis=1)
        rest_slope = 1.0 - captured / np.maximum(slope, SILENT)
        require_parseval(pairs.layer, rest)
        tail = np.sqrt(np.where(rest > 1e-13, rest, 0.0))
        tail_slope = np.sqrt(np.where(rest_slope > 1e-13, rest_slope, 0.0))
        m = pairs.v1.size
        one, two = pairs.back[:m], pairs.back[m:]
        self.left, self.right = table[one], table[two]
        self.tail = np.maximum(tail[one] * tail[two], tail_slope[one] * tail_slope[two])
        self.beyond = 0.5 * (tail[one] ** 2 + tail[two] ** 2)
        self.shared = tail[one] * tail[two]
        self.steep = None if steep is None else (steep[one], steep[two])

    def __call__(self, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = self.pairs
        drop, product = mehler_gap(self.left, self.right, gap)
        product = product * (p.scale / p.size)
        if self.steep is not None:
            product = mehler(*self.steep, 1.0 - gap[:, None])[0][:, 0]
        last = np.abs(1.0 - gap) ** self.terms
        # the energy beyond the last term belongs to g, but for the share its covariance takes
        rise = drop + self.beyond - self.shared * last
        unsafe = last * self.tail > self.tol
        rise, product = _with_leading_order(p, gap, rise, product)
        unsafe &= ~p.tiny(gap)
        unsafe &= ~self._close(gap, unsafe, rise, product)
        for m in np.nonzero(unsafe & self.patient)[0]:
            rise[m], product[m] = self._integrate(int(m), float(gap[m]))
        self.slow |= unsafe
        return rise, product

    def _close(
        self, gap: FloatArray, unsafe: NDArray[np.bool_], rise: FloatArray, product: FloatArray
    ) -> NDArray[np.bool_]:
        """Closed form of ELU for unsafe pairs of moderate variance; returns which were done."""
        p, c = self.pairs, self.pairs.layer.phi.offset
        done = unsafe & (np.maximum(p.v1, p.v2) < _exponential.LARGEST)
        # its terms are of size 1: it loses the digits of a small kernel
        done &= (p.size > _exponential.SMALLEST) & (p.layer.phi.activation == elu)
        if done.any():
            v1, v2 = p.v1[done], p.v2[done]
            value, slope = np.empty_like(v1), np.empty_like(v1)
            _exponential.moments(v1, v2, gap[done], value, slope)
            means = _exponential.mean(v1) + _exponential.mean(v2)
            rise[done] = np.maximum(1.0 - (value - c * means + c * c) / p.scale[done], 0.0)
            product[done] = slope
        return done

    def _integrate(self, m: int, gap: float) -> tuple[float, float]:
        p, phi = self.pairs, self.pairs.layer.phi
        v1, v2 = float(p.v1[m]), float(p.v2[m])
        cov = float(p.size[m]) * (1.0 - gap)
        places = p.layer.landmarks(max(v1, v2))
        try:
            value = gaussian.bivariate(phi, phi, v1, v2, cov, places, places)
            product = gaussian.bivariate(phi.df, phi.df, v1, v2, cov, places, places)
        except AccuracyError as problem:
            raise AccuracyError(
                f"{phi.activation.name}: a pair with variances {v1:.3g}, {v2:.3g} and correlation "
                f"1 - {gap:.3g} cannot be integrated: {problem}"
            ) from problem
        return max(0.0, 1.0 - value / float(p.scale[m])), product


def require_parseval(layer: Layer, rest: FloatArray) -> None:
    """Refuse Hermite coefficients that carry more than the energy: their rule is too coarse.

    Raises
    ------
    AccuracyError : they do.
    """
    if not (rest > -1e-11).all():
        raise AccuracyError(
            f"{layer.phi.activation.name}: the Hermite coefficients exceed the energy by "
            f"{-float(rest.min()):.1e} of it; the activation is too rough for its panels"
        )


def _with_leading_order(
    p: _Pairs, gap: FloatArray, rise: FloatArray, product: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""For M = E(u-v)^2/2 below 1e-11, where d = u - v is small beside the bends of phi.

    With the middle w = (u+v)/2 of variance v, d = b w + (independent, of variance s^2) and
    :math:`b = (v_1 - v_2)/2v`. To leading order, with jumps J_k of phi' at t_k,

    .. math:: \tfrac12 E(\phi(u) - \phi(v))^2 = \tfrac12 b^2 E w^2\phi'(w)^2
       + \tfrac12 s^2 E\phi'(w)^2 - \tfrac1{12}\sum_k J_k^2 p_w(t_k)\, E|d_k|^3,

    where d_k is d given w = t_k, of mean b t_k; and
    :math:`\tfrac12(\sqrt{S_1} - \sqrt{S_2})^2 = \tfrac12 b^2 (E w\phi\phi')^2/S`, with
    :math:`E w\phi\phi' = v S'(v)`, belongs to the norms and not to the gap. Likewise
    :math:`E\phi'\phi' = \overline{E\phi'^2} - \frac12\sum_k J_k^2 p_w(t_k)\, E|d_k|`.
    """
    tiny = p.tiny(gap)
    if not tiny.any():
        return rise, product
    found = p.middles(tiny)
    s1, s2, middle, size = found.root1, found.root2, found.variance, p.size[tiny]
    along = 0.5 * (s1 - s2) * (s1 + s2) / middle
    across = 2.0 * size * gap[tiny] * (1.0 - 0.25 * (s1 - s2) ** 2 / middle)
    total = 0.5 * along**2 * found.stretch + 0.5 * across * found.slope
    product = product.copy()
    product[tiny] = 0.5 * (p.slope1 + p.slope2)[tiny]
    for kink, jump in jumps(p.layer):
        weight = jump**2 * density(kink, middle)
        first, third = folded(along * kink, np.sqrt(across))
        product[tiny] -= 0.5 * weight * first
        total -= weight * third / 12.0
    rise = rise.copy()
    rise[tiny] = np.maximum(total, 0.0) / p.scale[tiny]
    return rise, product


def moments(pairs: _Pairs, tol: float, patient: bool) -> Moments:
    """The best evaluator of g and E phi' phi' for these pairs of variances."""
    layer = pairs.layer
    if layer.phi.activation.homogeneous:
        return _Homogeneous(pairs, Shape.of(layer.phi))
    corners = layer.corners
    if corners is not None:
        return _PiecewiseLinear(pairs, corners, tol, patient)
    return _Series(pairs, tol, patient)


@dataclass(frozen=True)
class PairKernels:
    """CK, E phi' phi' of the last layer, NTK, and which pairs needed quadrature."""

    ck: FloatArray
    dot: FloatArray
    ntk: FloatArray
    slow: NDArray[np.bool_]


def solve(
    spec: Spec,
    left: Diagonal,
    right: Diagonal,
    gram: FloatArray,
    chord2: FloatArray,
    params: str,
    tol: float,
    patient: bool = True,
) -> PairKernels:
    """CK and NTK for m pairs with inner products ``gram``, ``chord2`` = |x/|x| - y/|y||^2.

    Unless ``patient``, pairs that need quadrature are counted but not integrated.
    """
    if isinstance(spec, DEQ):
        return _implicit(spec, left, right, gram, chord2, params, tol, patient)
    gap, kernel, slow = _clip(0.5 * chord2), gram, np.zeros(gram.size, dtype=bool)
    dot = np.ones_like(gap)
    for number, layer in enumerate(_diagonal.layers(spec)):
        pairs = _Pairs(layer, left.variances[number], right.variances[number])
        evaluate = moments(pairs, tol, patient)
        rise, dot = evaluate(gap)
        gap = _clip(rise)
        covariance = pairs.scale * (1.0 - rise)
        kernel = covariance + kernel * dot
        slow = slow | evaluate.slow
    return PairKernels(covariance, dot, kernel, slow)


def _clip(gap: FloatArray) -> FloatArray:
    """A gap in [0, 2]; antipodal up to rounding is antipodal."""
    gap = np.clip(gap, 0.0, 2.0)
    return np.where(gap > 2.0 - 4e-15, 2.0, gap)


def _implicit(
    spec: DEQ,
    left: Diagonal,
    right: Diagonal,
    gram: FloatArray,
    chord2: FloatArray,
    params: str,
    tol: float,
    patient: bool,
) -> PairKernels:
    pairs = _Pairs(_diagonal.layers(spec)[0], left.variances[0], right.variances[0])
    evaluate = moments(pairs, tol, patient)
    a, b, c = (math.sqrt(part) for part in (spec.sigma_a2, spec.sigma_b2, spec.sigma_c2))
    norms = np.sqrt(left.norms), np.sqrt(right.norms)
    drive = half_chord(
        [a * np.sqrt(pairs.energy1), b * norms[0], c], [a * np.sqrt(pairs.energy2), b * norms[1], c]
    )
    s1, s2 = np.sqrt(pairs.v1), np.sqrt(pairs.v2)
    drive = drive + 0.5 * spec.sigma_b2 * (norms[0] / s1) * (norms[1] / s2) * chord2
    ratio = spec.sigma_a2 * (pairs.scale / pairs.size)
    gap = _clip(drive / max(1e-3, 1.0 - spec.sigma_a2))
    for _ in range(STEPS):
        rise, dot = evaluate(gap)
        rate = np.minimum(spec.sigma_a2 * dot, 0.999)
        new = _clip(gap + (ratio * rise + drive - gap) / (1.0 - rate))
        # closed forms and quadrature know the right side to rounding, absolutely
        done = np.abs(new - gap) <= 1e-15 * gap + 1e-17 * (gap > TINY)
        gap = new
        if done.all():
            break
    rise, dot = evaluate(gap)
    ck = pairs.scale * (1.0 - rise)
    top = ck if params == "published" else ck + (spec.sigma_b2 * gram + spec.sigma_c2) * dot
    return PairKernels(ck, dot, top / (1.0 - spec.sigma_a2 * dot), evaluate.slow)
