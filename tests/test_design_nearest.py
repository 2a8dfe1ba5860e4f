"""Which of several exact designs is returned: the first terms that the four scalars leave open."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from implicitnn import activations, design, equivalents, kernels
from implicitnn._design import nearest
from implicitnn._design.layers import parameters
from implicitnn.activations import Activation
from implicitnn.specs import DEQ, ENN

FloatArray = NDArray[np.float64]


def leaky_numbers(enn: ENN) -> list[tuple[float, ...]]:
    return [parameters(layer) for layer in enn.layers]


def _data(n: int, p: int) -> FloatArray:
    x = np.random.default_rng(5).standard_normal((n, p))
    x[: n // 2, 0] += 2.0
    return x / math.sqrt((x * x).sum() / n)


def _stencil(order: int, step: float) -> list[tuple[float, float]]:
    """Places and weights of the central difference of fourth order."""
    weights = {1: (1, -8, 0, 8, -1), 2: (-1, 16, -30, 16, -1)}[order]
    places = zip(range(-2, 3), weights, strict=True)
    return [(k * step, w / 12.0 / step**order) for k, w in places if w]


def _open_by_differences(spec: DEQ | ENN, params: str | None, step: float = 0.02) -> list[float]:
    """cross, diagonal, norms from exact kernels of two points with norms q1, q2 and product s."""

    def kernel(q1: float, q2: float, s: float) -> FloatArray:
        X = np.array([[math.sqrt(q1), 0.0], [s / math.sqrt(q1), math.sqrt(q2 - s * s / q1)]])
        if params is None:
            return kernels.ck(spec, X, tol=1e-12)
        return kernels.ntk(spec, X, params=params, tol=1e-12)

    first, second = _stencil(1, step), _stencil(2, step)
    cross = sum(w * v * kernel(1 + x, 1, y)[0, 1] for x, w in first for y, v in first)
    diagonal = sum(w * kernel(1 + x, 1, 0)[0, 0] for x, w in first)
    norms = sum(w * v * kernel(1 + x, 1 + y, 0)[0, 1] for x, w in second for y, v in first)
    return [float(cross), float(diagonal), float(norms) / 2]


NETS = (activations.elu, design.hermite(0.7, 0.2, -0.1), activations.relu)


@pytest.mark.parametrize(
    ("spec", "params"),
    [
        (DEQ(activations.tanh, 0.3), None),
        (DEQ(activations.elu, 0.3), None),
        (DEQ(activations.relu, 0.3), None),
        (DEQ(activations.elu, 0.3), "published"),
        (DEQ(activations.relu, 0.3), "all"),
        (ENN(NETS), None),
        (ENN(NETS), "all"),
    ],
)
def test_open_coefficients_are_derivatives_of_exact_kernels(
    spec: DEQ | ENN, params: str | None
) -> None:
    # The differences err by step^4/30 times a derivative of order one, and by 1e-12/step^3.
    found = nearest.of_deq(spec, params) if isinstance(spec, DEQ) else nearest.of_enn(spec, params)
    cross, diagonal, norms = _open_by_differences(spec, params)
    assert [found.cross, found.diagonal] == pytest.approx([cross, diagonal], abs=2e-7)
    if params is None:
        assert found.norms == pytest.approx(norms, abs=2e-7)


@pytest.mark.parametrize("tau0", [0.7, 1.0, 1.6])
def test_homogeneous_nets_agree_in_the_first_open_terms(tau0: float) -> None:
    m = design.match(DEQ(activations.relu, 0.2, tau0=tau0), "leaky_relu")
    own = nearest.of_deq(m.deq, None)
    for enn in (m.enn, *m.alternatives):
        assert nearest.of_enn(enn, None).misses(own, tau0)[0] < 1e-13
    # Scale free: the kernel of a homogeneous network at tau0 is tau0^2 times that at one.
    assert m.next_misses == pytest.approx([5.7087e-6 * tau0**2, 3.65036e-5 * tau0**2], rel=1e-4)


def test_norm_term_of_two_rays_in_closed_form() -> None:
    # With shares w_l of the even part: w_1 w_2/4 above -1/4 of alpha2, in units of the energy.
    m = design.match(DEQ(activations.relu, 0.3), "leaky_relu")
    for enn in (m.enn, *m.alternatives):
        c = equivalents.coefficients(enn)
        halves = [((a - b) / (a + b)) ** 2 for a, b in leaky_numbers(enn)]
        w = [r / math.pi / (1 + r * (1 - 2 / math.pi)) for r in halves]
        wanted = w[0] * w[1] / 4 - c.alpha2 / c.gamma2 / 4
        assert nearest.of_enn(enn, None).norms / c.gamma2 == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize(
    ("f", "sigma_a2", "family", "target", "factor"),
    [
        (activations.tanh, 0.2, "cubic_hermite", "ck", 10.0),
        (activations.erf, 0.6, "cubic_hermite", "ck", 10.0),
        (activations.elu, 0.2, "cubic_hermite", "ck", 5.0),
        (activations.relu, 0.2, "cubic_hermite", "ck", 2.0),
        (activations.swish, 0.6, "cubic_hermite", "ck", 1.5),
        (activations.tanh, 0.2, "cubic_hermite", "ntk", 5.0),
        (activations.relu, 0.2, "cubic_hermite", "ntk", 2.5),
        (activations.relu, 0.05, "leaky_relu", "ck", 5.0),
        (activations.relu, 0.2, "leaky_relu", "ck", 2.0),
    ],
)
def test_the_net_returned_is_the_nearest(
    f: Activation, sigma_a2: float, family: str, target: str, factor: float
) -> None:
    X = _data(250, 320)
    deq = DEQ(f, sigma_a2)
    m = design.match(deq, family, target)

    def distance(enn: ENN) -> float:
        if target == "ck":
            return float(np.linalg.norm(kernels.ck(deq, X) - kernels.ck(enn, X), 2))
        gap = kernels.ntk(deq, X, params="all") - kernels.ntk(enn, X, params="all")
        return float(np.linalg.norm(gap, 2))

    assert m.next_misses == tuple(sorted(m.next_misses))
    assert all(factor * distance(m.enn) < distance(other) for other in m.alternatives)
    assert m.alternatives


def test_no_choice_where_there_is_none() -> None:
    assert design.match(DEQ(activations.tanh, 0.2), "hard_tanh").next_misses == ()
    # An even activation: the sign of c_3 is a reflection, so there is one net.
    even = design.match(DEQ(activations.leaky_relu(-1.0), 0.2), "cubic_hermite")
    assert even.other_layers == () == even.next_misses
