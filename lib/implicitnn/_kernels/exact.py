r"""The exact route: kernels for a list of pairs, without a table.

The unknown is :math:`M = \frac12 E(u - v)^2`, which keeps its digits when two samples nearly agree:

.. math:: M = \sigma_a^2 \Gamma(M) + \tfrac12 \sigma_b^2 |x - y|^2, \qquad
   \Gamma = \tfrac12 E(\phi(u) - \phi(v))^2, \quad \Gamma' = E\phi'(u)\phi'(v) .

Gamma comes from a closed form (positively homogeneous, piecewise linear), else from a Mehler series
whose tail is bounded by Parseval's identity, else from quadrature pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from implicitnn import gaussian
from implicitnn._kernels import diagonal as _diagonal
from implicitnn._kernels import exponential as _exponential
from implicitnn._kernels import piecewise as _piecewise
from implicitnn._kernels.diagonal import Diagonal, Spec
from implicitnn._kernels.homogeneous import Shape
from implicitnn._kernels.layer import Layer
from implicitnn._kernels.passes import mehler, mehler_gap
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
TERMS, MANY = 256, 1024
LARGE = 2.0
STEPS = 40
TINY = 1e-11
SMALL = 1e-4


class Moments(Protocol):
    """Gamma(M) and E phi' phi' for fixed pairs of variances; ``slow``: pairs left to quadrature."""

    slow: NDArray[np.bool_]

    def __call__(self, half: FloatArray) -> tuple[FloatArray, FloatArray]: ...


@dataclass
class _Pairs:
    """Variances, energies and squared slopes of m pairs, with what the geometry needs."""

    layer: Layer
    v1: FloatArray
    v2: FloatArray

    def __post_init__(self) -> None:
        every, back = np.unique(np.concatenate([self.v1, self.v2]), return_inverse=True)
        energy, _, slope = self.layer.moments(every)
        self.every, self.back = every, back
        m = self.v1.size
        self.energy1, self.energy2 = energy[back[:m]], energy[back[m:]]
        self.slope1, self.slope2 = slope[back[:m]], slope[back[m:]]
        self.size = np.sqrt(self.v1 * self.v2)
        self.apart = 0.5 * (self.v1 - self.v2) ** 2 / (np.sqrt(self.v1) + np.sqrt(self.v2)) ** 2

    def gap(self, half: FloatArray) -> FloatArray:
        """1 - rho for M = half."""
        gap = np.clip((half - self.apart) / self.size, 0.0, 2.0)
        return np.where(gap > 2.0 - 4e-15, 2.0, gap)


class _Homogeneous:
    """Closed form of degree-one arc-cosine type."""

    def __init__(self, pairs: _Pairs, shape: Shape) -> None:
        self.pairs, self.shape, self.slow = pairs, shape, np.zeros(pairs.v1.size, dtype=bool)

    def __call__(self, half: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, shape = self.pairs, self.shape
        theta = 2.0 * np.arcsin(np.sqrt(0.5 * p.gap(half)))
        return p.size * shape.drop(theta) + shape.top * p.apart, shape.slope(theta)


class _PiecewiseLinear:
    """Bivariate normal probabilities; the leading order in M where they would cancel."""

    def __init__(self, pairs: _Pairs, corners: FloatArray) -> None:
        self.pairs, self.corners, self.slow = pairs, corners, np.zeros(pairs.v1.size, dtype=bool)

    def __call__(self, half: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = self.pairs
        value, product = np.empty_like(half), np.empty_like(half)
        _piecewise.moments(self.corners, p.v1, p.v2, p.gap(half), value, product)
        return _with_leading_order(p, half, 0.5 * (p.energy1 + p.energy2) - value, product)


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
        rest = 1.0 - (table**2).sum(axis=1) / energy
        # for tiny variances c_1 / sqrt(v) has no digits left; phi' itself has
        tiny = pairs.every.min() < SMALL
        steep = pairs.layer.hermite_slope(pairs.every, self.terms) if tiny else None
        if steep is None:
            captured = (table**2 @ np.arange(self.terms)) / pairs.every
        else:
            captured = (steep**2).sum(axis=1)
        rest_slope = 1.0 - captured / np.maximum(slope, 1e-300)
        tail = np.sqrt(np.where(rest > 1e-13, rest, 0.0))
        tail_slope = np.sqrt(np.where(rest_slope > 1e-13, rest_slope, 0.0))
        m = pairs.v1.size
        one, two = pairs.back[:m], pairs.back[m:]
        self.left, self.right = table[one], table[two]
        self.tail = np.maximum(tail[one] * tail[two], tail_slope[one] * tail_slope[two])
        beyond = tail**2 * energy
        self.beyond = 0.5 * (beyond[one] + beyond[two])
        self.shared = np.sqrt(beyond[one] * beyond[two])
        self.steep = None if steep is None else (steep[one], steep[two])

    def __call__(self, half: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = self.pairs
        gap = p.gap(half)
        drop, product = mehler_gap(self.left, self.right, gap)
        product = product / p.size
        if self.steep is not None:
            product = mehler(*self.steep, 1.0 - gap[:, None])[0][:, 0]
        last = np.abs(1.0 - gap) ** self.terms
        # the energy beyond the last term belongs to Gamma, but for the share its covariance takes
        gamma = drop + self.beyond - self.shared * last
        unsafe = last * self.tail > self.tol
        gamma, product = _with_leading_order(p, half, gamma, product)
        unsafe &= half > TINY * p.size
        unsafe &= ~self._close(gap, unsafe, gamma, product)
        for m in np.nonzero(unsafe & self.patient)[0]:
            gamma[m], product[m] = self._integrate(int(m), float(gap[m]))
        self.slow |= unsafe
        return gamma, product

    def _close(
        self, gap: FloatArray, unsafe: NDArray[np.bool_], gamma: FloatArray, product: FloatArray
    ) -> NDArray[np.bool_]:
        """Closed form of ELU for unsafe pairs of moderate variance; returns which were done."""
        p, c = self.pairs, self.pairs.layer.phi.offset
        done = unsafe & (np.maximum(p.v1, p.v2) < _exponential.LARGEST) & p.layer.closed
        if done.any():
            v1, v2 = p.v1[done], p.v2[done]
            value, slope = np.empty_like(v1), np.empty_like(v1)
            _exponential.moments(v1, v2, gap[done], value, slope)
            means = _exponential.mean(v1) + _exponential.mean(v2)
            # the constant drops out of Gamma, so the energies are those of f itself
            energy = 0.5 * (p.energy1 + p.energy2)[done] + c * means - c * c
            gamma[done], product[done] = energy - value, slope
        return done

    def _integrate(self, m: int, gap: float) -> tuple[float, float]:
        p, phi = self.pairs, self.pairs.layer.phi
        v1, v2 = float(p.v1[m]), float(p.v2[m])
        cov = float(p.size[m]) * (1.0 - gap)
        value = gaussian.bivariate(phi, phi, v1, v2, cov, phi.kinks, phi.kinks)
        product = gaussian.bivariate(phi.df, phi.df, v1, v2, cov, phi.kinks, phi.kinks)
        return 0.5 * float(p.energy1[m] + p.energy2[m]) - value, product


def _with_leading_order(
    p: _Pairs, half: FloatArray, gamma: FloatArray, product: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""For M < 1e-11: slopes differ only where a kink lies between u and v.

    :math:`E\phi'\phi' = \overline{E\phi'^2} - \frac12\sum_k J_k^2 P(t_k \text{ between } u, v)`;
    given their mean w at the kink, u - v is Gaussian with mean b t_k.
    """
    tiny = half <= TINY * p.size
    if not tiny.any():
        return gamma, product
    v1, v2, M = p.v1[tiny], p.v2[tiny], half[tiny]
    mean = 0.5 * (v1 + v2) - 0.5 * M
    slope = 0.5 * (p.slope1 + p.slope2)[tiny]
    spread = np.sqrt(np.maximum(2.0 * M - 0.25 * (v1 - v2) ** 2 / mean, 0.0))
    lost = np.zeros_like(M)
    for kink, jump in _jumps(p.layer):
        shift = 0.5 * (v1 - v2) / mean * kink
        lost += 0.5 * jump**2 * _density(kink, mean) * _folded(shift, spread)
    gamma, product = gamma.copy(), product.copy()
    # the missing slope grows like M^(1/2), so its integral is two thirds of M times it
    gamma[tiny], product[tiny] = M * (slope - 2.0 / 3.0 * lost), slope - lost
    return gamma, product


def _jumps(layer: Layer) -> list[tuple[float, float]]:
    result = []
    for kink in layer.phi.kinks:
        step = 1e-9 * max(1.0, abs(kink))
        below, above = layer.phi.df(np.array([kink - step, kink + step]))
        result.append((kink, float(above - below)))
    return result


def _density(t: float, variance: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * t * t / variance) / np.sqrt(2.0 * np.pi * variance))


def _folded(mean: FloatArray, spread: FloatArray) -> FloatArray:
    """E|z| for z ~ N(mean, spread^2)."""
    from scipy.special import erf

    safe = np.maximum(spread, 1e-300)
    ratio = mean / safe
    return np.asarray(
        spread * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * ratio**2) + mean * erf(ratio / np.sqrt(2.0))
    )


def moments(layer: Layer, v1: FloatArray, v2: FloatArray, tol: float, patient: bool) -> Moments:
    """The best evaluator of Gamma and E phi' phi' for these pairs of variances."""
    pairs = _Pairs(layer, v1, v2)
    if layer.phi.activation.homogeneous:
        return _Homogeneous(pairs, Shape.of(layer.phi))
    corners = layer.corners
    if corners is not None:
        return _PiecewiseLinear(pairs, corners)
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
    distance2: FloatArray,
    params: str,
    tol: float,
    patient: bool = True,
) -> PairKernels:
    """CK and NTK for m pairs with inner products ``gram`` and squared distances ``distance2``.

    Unless ``patient``, pairs that need quadrature are counted but not integrated.
    """
    if isinstance(spec, DEQ):
        return _implicit(spec, left, right, gram, distance2, params, tol, patient)
    half, kernel, slow = 0.5 * distance2, gram, np.zeros(gram.size, dtype=bool)
    dot = np.ones_like(half)
    for number, layer in enumerate(_diagonal.layers(spec)):
        evaluate = moments(layer, left.variances[number], right.variances[number], tol, patient)
        pairs = _Pairs(layer, left.variances[number], right.variances[number])
        half, dot = evaluate(half)
        covariance = 0.5 * (pairs.energy1 + pairs.energy2) - half
        kernel = covariance + kernel * dot
        slow = slow | evaluate.slow
    return PairKernels(covariance, dot, kernel, slow)


def _implicit(
    spec: DEQ,
    left: Diagonal,
    right: Diagonal,
    gram: FloatArray,
    distance2: FloatArray,
    params: str,
    tol: float,
    patient: bool,
) -> PairKernels:
    v1, v2 = left.variances[0], right.variances[0]
    evaluate = moments(_diagonal.layers(spec)[0], v1, v2, tol, patient)
    drive = 0.5 * spec.sigma_b2 * distance2
    low = 0.5 * (v1 - v2) ** 2 / (np.sqrt(v1) + np.sqrt(v2)) ** 2
    high = low + 2.0 * np.sqrt(v1 * v2)
    half = np.clip(drive / max(1e-3, 1.0 - spec.sigma_a2), low, high)
    for _ in range(STEPS):
        gamma, dot = evaluate(half)
        rate = np.minimum(spec.sigma_a2 * dot, 0.999)
        new = np.clip(half + (spec.sigma_a2 * gamma + drive - half) / (1.0 - rate), low, high)
        done = np.abs(new - half) <= 1e-15 * half + 1e-18 * (v1 + v2) * (half > TINY * high)
        half = new
        if done.all():
            break
    gamma, dot = evaluate(half)
    ck = 0.5 * (left.ck + right.ck) - gamma
    top = ck if params == "published" else ck + (spec.sigma_b2 * gram + spec.sigma_c2) * dot
    return PairKernels(ck, dot, top / (1.0 - spec.sigma_a2 * dot), evaluate.slow)
