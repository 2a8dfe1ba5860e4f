r"""Equivalents with a bias or without centring: second-order expansion of the limit kernel.

With :math:`a, b, c` the variances of hidden weights, input weights and bias, an entry of the kernel
is a smooth function of :math:`q_1 = |x|^2, q_2 = |x'|^2, s = x\cdot x'` through

.. math::
    v(q) = a\,E\phi(\sqrt v\,\xi)^2 + bq + c, \qquad
    \lambda = a\,P(v_1, v_2, \lambda) + bs + c, \qquad P = E\,\phi(u)\phi(u'),

:math:`(u, u')` Gaussian with variances :math:`v_1, v_2` and covariance :math:`\lambda`. The CK is P
at the solution, the NTK over (a, A) is :math:`P/(1 - a\,\partial_\lambda P)`. Both are expanded to
second order at :math:`q_1 = q_2 = \tau_0^2`, s = 0. Derived on the page on biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from implicitnn import gaussian
from implicitnn._validate import FloatArray
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ

DEGREE = 120


@dataclass(frozen=True)
class Taylor:
    """Value and derivatives at the base point; d is q_1, e is q_2.

    value, s, d, ss, de, dd : of the function itself; diagonal: its value for a sample with itself.
    """

    value: float
    s: float
    d: float
    ss: float
    de: float
    dd: float
    diagonal: float


def expansions(spec: DEQ) -> tuple[Taylor, Taylor]:
    r"""Return the expansions of the CK and of the NTK over (a, A).

    :math:`M(j,k) = \sum_i \mu_{i+j}\mu_{i+k}\lambda^i/i!` with :math:`\mu_k = E\,\phi^{(k)}` is the
    derivative of P that differentiates one factor j times and the other k times; a derivative in a
    variance is half a second derivative of its factor.

    Examples
    --------
    >>> from implicitnn.activations import tanh
    >>> ck, ntk = expansions(DEQ(tanh, 0.2))
    >>> round(ck.s, 6), round(ntk.s, 6), abs(ck.value) < 1e-15
    (0.344988, 0.374742, True)
    """
    a, b = spec.sigma_a2, spec.sigma_b2
    v = spec.tau**2
    M, base = _moments(spec)
    # Variance: v = a E phi^2 + b q + c.
    square = gaussian.hermite_coefficients(lambda t: spec.phi(t) ** 2, v, 4, spec.phi.kinks)
    bend = math.sqrt(2.0) * float(square[2]) / v / 2.0
    bend2 = math.sqrt(24.0) * float(square[4]) / v**2 / 4.0
    dv = b / (1.0 - a * bend)
    ddv = a * bend2 * dv**2 / (1.0 - a * bend)
    # Covariance, by the implicit function theorem; then of E phi' phi'.
    q = 1.0 / (1.0 - a * M(1, 1))
    first = b * q, a * q * M(2, 0) / 2.0 * dv
    ls, ld = first
    lss = a * q * M(2, 2) * ls**2
    cross = M(3, 1) * dv * ld + M(2, 2) * ld**2
    lde = a * q * (M(2, 2) / 4.0 * dv**2 + cross)
    ldd = a * q * (M(4, 0) / 4.0 * dv**2 + M(2, 0) / 2.0 * ddv + cross)
    ck = Taylor(base, (ls - b) / a, ld / a, lss / a, lde / a, ldd / a, spec.gamma2)
    ds, dd = M(2, 2) * ls, M(3, 1) / 2.0 * dv + M(2, 2) * ld
    inner = M(4, 2) * dv * ld + M(3, 3) * ld**2
    dss = M(3, 3) * ls**2 + M(2, 2) * lss
    dde = M(3, 3) / 4.0 * dv**2 + inner + M(2, 2) * lde
    ddd = M(5, 1) / 4.0 * dv**2 + M(3, 1) / 2.0 * ddv + inner + M(2, 2) * ldd

    def second(x: float, y: float, xy: float) -> float:
        """Second derivative of 1/(1 - a D)."""
        return a * q**2 * xy + 2.0 * a**2 * q**3 * x * y

    qs, qd = a * q**2 * ds, a * q**2 * dd
    ntk = Taylor(
        ck.value * q,
        ck.s * q + ck.value * qs,
        ck.d * q + ck.value * qd,
        ck.ss * q + 2.0 * ck.s * qs + ck.value * second(ds, ds, dss),
        ck.de * q + 2.0 * ck.d * qd + ck.value * second(dd, dd, dde),
        ck.dd * q + 2.0 * ck.d * qd + ck.value * second(dd, dd, ddd),
        spec.gamma2 / (1.0 - spec.contraction.covariance),
    )
    return ck, ntk


def _moments(spec: DEQ) -> tuple[_Moments, float]:
    """Return M and P at the base point."""
    c = gaussian.hermite_coefficients(spec.phi, spec.tau**2, DEGREE + 6, spec.phi.kinks)
    moments = _Moments(np.asarray(c), spec.tau**2, 0.0)
    ell = spec.sigma_c2
    for _ in range(500):
        new = spec.sigma_a2 * _Moments(moments.c, moments.v, ell)(0, 0) + spec.sigma_c2
        done = abs(new - ell) <= 1e-16 * spec.tau**2
        ell = new
        if done:
            break
    at = _Moments(moments.c, moments.v, ell)
    return at, at(0, 0)


@dataclass(frozen=True)
class _Moments:
    """M(j, k) from Hermite coefficients c of phi(sqrt(v) xi), at covariance ell."""

    c: FloatArray
    v: float
    ell: float

    def __call__(self, j: int, k: int) -> float:
        i = np.arange(DEGREE)
        size = np.array([math.lgamma(n + 1.0) for n in range(DEGREE + 7)])
        weight = np.exp(0.5 * (size[i + j] + size[i + k]) - size[i])
        terms = weight * self.c[i + j] * self.c[i + k] * (self.ell / self.v) ** i
        return float(terms.sum() * self.v ** (-0.5 * (j + k)))


def matrix(taylor: Taylor, sample: Sample) -> FloatArray:
    r"""Return the equivalent of a sample, (n, n).

    .. math::
        k\,11^T + k_d(\chi 1^T + 1\chi^T) + k_sXX^T + \tfrac12 k_{ss}\,JTJ^T/p + k_{de}\chi\chi^T
        + \tfrac12 k_{dd}(\chi^2 1^T + 1\chi^{2T}) + (k_{diag} - k - \tau_0^2k_s)I,

    :math:`\chi_i = |x_i|^2 - \tau_0^2`.

    Examples
    --------
    >>> from implicitnn import equivalents, mixtures
    >>> from implicitnn.activations import tanh
    >>> sample = mixtures.benchmark(100, mean=1.0).sample(80, 0)
    >>> spec = DEQ(tanh, 0.2).at(sample.statistics.tau0)
    >>> ours = matrix(expansions(spec)[0], sample)
    >>> bool(abs(ours - equivalents.ck(spec, sample)).max() < 1e-3)
    True
    """
    s = sample.statistics
    n, p = sample.X.shape
    chi = (sample.X**2).sum(axis=1) - s.tau0**2
    ones = np.ones(n)
    edge = taylor.d * chi + 0.5 * taylor.dd * chi**2
    result = taylor.value + np.outer(edge, ones) + np.outer(ones, edge)
    result += taylor.s * (sample.X @ sample.X.T) + taylor.de * np.outer(chi, chi)
    result += 0.5 * taylor.ss / p * (s.J @ s.T @ s.J.T)
    result.flat[:: n + 1] += taylor.diagonal - taylor.value - s.tau0**2 * taylor.s
    return result
