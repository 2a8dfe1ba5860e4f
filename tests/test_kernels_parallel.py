"""Pairs that are nearly parallel and of nearly equal norm, where only leading orders are left."""

import mpmath as mp
import numpy as np
import pytest

from implicitnn import kernels
from implicitnn._kernels import exact
from implicitnn._kernels.layer import Layer
from implicitnn.activations import elu, erf, gelu, hard_tanh, relu, swish, tanh
from implicitnn.specs import DEQ, ENN

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def gap_of(activation, v1, v2, gap):
    """The complement g of one layer, by the library."""
    layer = Layer(ENN((activation,)).phis[0])
    pairs = exact._Pairs(layer, np.array([v1]), np.array([v2]))
    assert pairs.tiny(np.array([gap])).all()
    return float(exact.moments(pairs, 1e-12, True)(np.array([gap]))[0][0])


def by_differences(phi, v1, v2, gap):
    """The same from E(phi(u) - phi(v))^2 on a product rule; no term cancels for smooth phi."""
    s1, s2 = np.sqrt(v1), np.sqrt(v2)
    # u = s1 x, v = s2 (rho x + (1 - rho^2)^(1/2) z), so that u - v is small term by term
    x, z = NODES[:, None], NODES[None, :]
    u = s1 * x + 0.0 * z
    v = s2 * ((1.0 - gap) * x + np.sqrt(gap * (2.0 - gap)) * z)
    weight = WEIGHTS[:, None] * WEIGHTS[None, :]
    distance = 0.5 * (weight * (phi(u) - phi(v)) ** 2).sum()
    first, second = phi(s1 * NODES), phi(s2 * NODES)
    roots = [np.sqrt(WEIGHTS @ value**2) for value in (first, second)]
    apart = WEIGHTS @ ((first - second) * (first + second)) / sum(roots)
    return (distance - 0.5 * apart**2) / (roots[0] * roots[1])


@pytest.mark.parametrize("gap", [0.0, 1e-14, 3e-13])
@pytest.mark.parametrize("eps", [1e-6, 2e-6, -1e-6])
@pytest.mark.parametrize("activation", [tanh, erf, swish, gelu], ids=lambda a: a.name)
def test_smooth_layers_follow_the_difference_of_the_two_samples(activation, eps, gap):
    v1, v2 = 0.36, 0.36 * (1.0 + eps) ** 2
    phi = ENN((activation,)).phis[0]
    truth = by_differences(phi, v1, v2, gap)
    # both sides keep relative errors of eps + rounding / eps
    assert gap_of(activation, v1, v2, gap) == pytest.approx(truth, rel=2e-5, abs=1e-18)


@pytest.mark.parametrize("eps", ["1e-6", "1e-8"])
def test_parallel_samples_of_a_clipped_layer_agree_with_thirty_digits(eps):
    with mp.workdps(30):
        s1, s2 = mp.mpf(1), 1 + mp.mpf(eps)

        def clipped(t):
            return max(mp.mpf(-1), min(mp.mpf(1), t))

        def product(a, b):
            edges = sorted({mp.mpf(-14), *(k / s for k in (-1, 1) for s in (a, b)), mp.mpf(14)})
            return mp.quad(lambda t: clipped(a * t) * clipped(b * t) * mp.npdf(t), edges)

        truth = 1 - product(s1, s2) / mp.sqrt(product(s1, s1) * product(s2, s2))
        found = gap_of(hard_tanh(), float(s1) ** 2, float(s2) ** 2, 0.0)
        assert abs(found / truth - 1) < 1e-4


@pytest.mark.parametrize(
    "spec",
    [
        DEQ(hard_tanh(), 0.5),
        ENN((hard_tanh(), relu)),
        ENN((tanh, relu)),
        ENN((elu, relu)),
        ENN((tanh, hard_tanh())),
    ],
    ids=str,
)
def test_the_ntk_leaves_its_diagonal_at_one_rate(spec):
    # K(x, y) with y = (1 + eps) x bends like |eps|: the rate must not jump where the route changes
    rates = []
    for eps in (3e-5, 1e-5, 4e-6, 3e-6, 1e-6, 1e-8):
        K = kernels.ntk(spec, np.array([[0.8], [0.8 * (1.0 + eps)]]))
        rates.append(((K[0, 0] + K[1, 1]) / 2 - K[0, 1]) / K[0, 0] / eps)
    # rounding 1e-15 over eps, and a curvature of order eps
    assert np.ptp(rates) < 1e-3 * rates[0]


def test_layers_in_a_row_do_not_overflow_on_parallel_samples():
    with np.errstate(all="raise"):
        kernels.ntk(ENN((gelu, hard_tanh())), np.array([[0.8], [0.8 * (1 + 1e-6)]]))
