"""Designs: closed forms against quadrature, known nets, and honest refusals."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from implicitnn import activations, design, equivalents, gaussian, kernels
from implicitnn._design.cubic import curve, quadratic_points, system
from implicitnn._design.grid import coefficients as grid_coefficients
from implicitnn._design.layers import (
    hermite_of_shares,
    l_relu_of_share,
    parameters,
    quadratic_of_shares,
)
from implicitnn._design.targets import explicit_numbers, wanted_ck, weighted_numbers
from implicitnn.activations import Activation
from implicitnn.design import Match, Status
from implicitnn.errors import UnsupportedSpecError
from implicitnn.specs import DEQ, ENN

CK = ("alpha1", "alpha2", "alpha3", "gamma2")
NTK = ("beta1", "beta2", "beta3", "kappa2")
EPS = 1e-12
FloatArray = NDArray[np.float64]


def _selu(t: FloatArray) -> FloatArray:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * np.where(t > 0, t, alpha * np.expm1(np.minimum(t, 0.0)))


def _dselu(t: FloatArray) -> FloatArray:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * np.where(t > 0, 1.0, alpha * np.exp(np.minimum(t, 0.0)))


selu = Activation("selu", _selu, _dselu, (0.0,))
softplus = Activation("softplus", lambda t: np.logaddexp(0.0, t), special.expit)
wave = Activation("wave", lambda t: np.cos(t + 0.5), lambda t: -np.sin(t + 0.5))
bent = Activation("bent", lambda t: np.abs(t + 0.5), lambda t: np.sign(t + 0.5), (-0.5,))
bumpy = Activation(
    "bumpy",
    lambda t: np.tanh(t) + 0.1 * np.sin(2.0 * t + 1.0),
    lambda t: 1.0 / np.cosh(np.minimum(np.abs(t), 300.0)) ** 2 + 0.2 * np.cos(2.0 * t + 1.0),
)
steep = Activation("steep", lambda t: np.sin(3.0 * t) / 3.0, lambda t: np.cos(3.0 * t))


def measured(deq: DEQ, enn: ENN, names: tuple[str, ...] = CK, params: str = "all") -> float:
    """Largest relative mismatch of two coefficient sets (absolute where nothing is wanted)."""
    c, e = equivalents.coefficients(deq, params), equivalents.coefficients(enn)
    return max(
        abs(getattr(e, n) - getattr(c, n)) / max(abs(getattr(c, n)), 1e-4 * c.gamma2) for n in names
    )


def leaky_numbers(enn: ENN) -> list[tuple[float, ...]]:
    return [parameters(layer) for layer in enn.layers]


# --- building blocks ------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("u", [0.0, 0.3, 0.74, 1.0])
def test_l_relu_layer_has_its_shares(tau: float, u: float) -> None:
    layer = l_relu_of_share(u, 0.8, tau)
    m = gaussian.stein_moments(layer.f, tau, layer.kinks)
    mean, energy = m.mean, m.square - m.mean**2
    centred = gaussian.stein_moments(lambda t: layer.f(t) - mean, tau, layer.kinks)
    w = (1.0 - u) / (math.pi - 2.0)
    slope = gaussian.expectation(lambda t: layer.df(t) ** 2, tau, layer.kinks)
    assert energy == pytest.approx(0.8, abs=1e-13)
    assert centred.d1**2 * tau**2 / energy == pytest.approx(u, abs=1e-13)
    assert centred.d2**2 * tau**4 / (2 * energy) == pytest.approx(w, abs=1e-13)
    assert centred.square_d2 * tau**2 / (2 * energy) == pytest.approx(1.0, abs=1e-13)
    assert slope * tau**2 / energy == pytest.approx((math.pi - 2 * u) / (math.pi - 2), abs=1e-12)


@pytest.mark.parametrize("shares", [(0.6, 0.3, 0.1), (0.2, 0.5, -0.3), (1.0, 0.0, 0.0)])
def test_hermite_layer_has_its_shares(shares: tuple[float, float, float]) -> None:
    u, w, v = shares
    tau = 1.3
    layer = hermite_of_shares(u, w, v, 0.7, tau)
    coefficients = gaussian.hermite_coefficients(layer.f, tau**2, 4)
    wanted = np.sqrt(np.abs([0.0, u, w, v, 0.0]) * 0.7) * [1, 1, 1, math.copysign(1.0, v), 1]
    np.testing.assert_allclose(coefficients, wanted, atol=1e-14)
    m = gaussian.stein_moments(layer.f, tau)
    k = u + 2 * w + 3 * abs(v) + math.sqrt(6 * u * abs(v)) * math.copysign(1.0, v)
    assert m.square_d2 * tau**2 / (2 * m.square) == pytest.approx(k, abs=1e-13)
    slope = gaussian.expectation(lambda t: layer.df(t) ** 2, tau)
    assert slope * tau**2 / m.square == pytest.approx(u + 2 * w + 3 * abs(v), abs=1e-13)


def test_hermite_derivative_passes_the_checks_of_an_activation() -> None:
    layer = design.hermite(1.0, -0.4, 0.2, tau=0.8)
    checked = Activation("copy", layer.f, layer.df)
    assert pickle.loads(pickle.dumps(layer)) == layer
    assert checked(np.array([0.3]))[0] == layer(np.array([0.3]))[0]
    rays = design.l_relu(1.2, -0.3)
    assert Activation("copy", rays.f, rays.df, rays.kinks, homogeneous=True).homogeneous


def test_quadratic_layer_has_its_shares() -> None:
    layer = quadratic_of_shares(0.8, 0.2, 0.5, 1.4)
    coefficients = gaussian.hermite_coefficients(layer.f, 1.96, 3)[1:]
    np.testing.assert_allclose(coefficients, [math.sqrt(0.4), math.sqrt(0.1), 0.0], atol=1e-14)


def test_frozen_input_weights_by_the_recursion_started_at_zero() -> None:
    enn = ENN((design.l_relu(1.1, 0.2), activations.swish, design.hermite(0.5, 0.2, 0.1)), 0.9)
    a1, a2, a3, a4, b1, b2, b3, kappa2 = 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0
    for layer, phi, tau in zip(enn.layers, enn.phis, enn.taus[:-1], strict=True):
        m = gaussian.stein_moments(phi, tau, layer.kinks)
        g1, g2, g4 = m.d1**2, m.d2**2, m.square_d2
        slope = gaussian.expectation(lambda t, df=layer.df: df(t) ** 2, tau, layer.kinks)
        new = (g1 * a1, g1 * a2 + g2 * a4**2 / 4, g1 * a3 + g2 * a1**2 / 2)
        b3 = new[2] + b3 * g1 + b1 * g2 * a1
        b1, b2 = new[0] + b1 * g1, new[1] + b2 * g1
        kappa2 = m.square + kappa2 * slope
        (a1, a2, a3), a4 = new, a4 * g4 / 2
    numbers = explicit_numbers(enn, "published")
    for name, value in zip(NTK, (b1, b2, b3, kappa2), strict=True):
        assert numbers[name] == pytest.approx(value, rel=1e-12), name


def test_weights_of_one_layer_split_the_tangent_kernel() -> None:
    enn = ENN((activations.swish,), 1.2)
    all_weights = equivalents.coefficients(enn)
    assert weighted_numbers(enn, (1.0, 1.0))["beta3"] == pytest.approx(all_weights.beta3, rel=1e-14)
    readout = weighted_numbers(enn, (0.0, 1.0))
    assert [readout[n] for n in NTK] == pytest.approx([readout[c] for c in CK], rel=1e-14)


# --- the conjugate kernel: known nets -------------------------------------------------------------


def test_hard_tanh_for_tanh() -> None:
    m = design.match(DEQ(activations.tanh, 0.2), "hard_tanh")
    assert m.status == Status.EXACT
    a, c = parameters(m.enn.layers[0])
    assert (round(a, 6), round(c, 6)) == (0.764297, 1.196485)
    assert measured(m.deq, m.enn) < EPS


@pytest.mark.parametrize(("sigma_a2", "ratio"), [(0.1, 1.074), (0.2, 1.072), (0.9, 1.045)])
def test_energy_ratio_of_tanh_lies_in_the_range_of_a_clip(sigma_a2: float, ratio: float) -> None:
    c = equivalents.coefficients(DEQ(activations.tanh, sigma_a2))
    assert c.gamma2 / c.alpha1 == pytest.approx(ratio, abs=6e-4)


def test_both_l_relu_branches_of_relu() -> None:
    m = design.match(DEQ(activations.relu, 0.2), "leaky_relu")
    expected = ((1.13509, 0.615227, 0.00103), (1.14790, 0.003959, 0.59255))
    for enn, known in zip((m.enn, *m.alternatives), expected, strict=True):
        (a1, b1), (a2, b2) = leaky_numbers(enn)
        assert (a1 * a2, b1 / a1, b2 / a2) == pytest.approx(known, abs=6e-6)
        assert measured(m.deq, enn) < EPS


LIMITS = {0.0: 0.8528, 0.01: 0.8406, 0.1: 0.740, 0.2: 0.6437, 0.3: 0.563, 0.5: 0.436}


@pytest.mark.parametrize(("slope", "limit"), LIMITS.items())
def test_two_l_relu_layers_stop_at_the_known_limit(slope: float, limit: float) -> None:
    step = 1e-4 if round(limit, 3) != limit else 6e-4
    f = activations.leaky_relu(slope)
    below, above = (DEQ(f, limit + side) for side in (-step, step))
    assert design.match(below, "leaky_relu", layers=2).status == Status.EXACT
    m = design.match(above, "leaky_relu", layers=2)
    assert m.status == Status.IMPOSSIBLE
    assert abs(m.residuals["alpha3"]) > EPS
    assert max(abs(m.residuals[n]) for n in ("alpha1", "alpha2", "gamma2")) < EPS
    assert "alpha3 should be" in m.message
    more = design.match(above, "leaky_relu")
    assert (more.status, len(more.enn.layers)) == (Status.EXACT, 3)


def test_nearest_third_coefficient_is_a_minimum() -> None:
    deq = DEQ(activations.relu, 0.95)
    m = design.match(deq, "leaky_relu", layers=2)
    share = equivalents.coefficients(deq).alpha1 / equivalents.coefficients(deq).gamma2
    best = equivalents.coefficients(m.enn).alpha3
    for u in np.linspace(share, 1.0, 25):
        layers = (
            l_relu_of_share(u, 1.0, 1.0),
            l_relu_of_share(min(share / u, 1.0), deq.gamma2, 1.0),
        )
        assert equivalents.coefficients(ENN(layers)).alpha3 >= best * (1 - 1e-12)


@pytest.mark.parametrize(
    ("slope", "sigma_a2", "layers"), [(0.0, 0.9, 3), (0.0, 0.97, 3), (0.2, 0.9, 4)]
)
def test_more_l_relu_layers_reach_further(slope: float, sigma_a2: float, layers: int) -> None:
    m = design.match(DEQ(activations.leaky_relu(slope), sigma_a2), "leaky_relu")
    assert (m.status, len(m.enn.layers)) == (Status.EXACT, layers)
    assert all(measured(m.deq, enn) < EPS for enn in (m.enn, *m.alternatives))


CUBIC = {
    "relu": ((1.0, 0.10027), (0.46113, 0.26159, 0.10748)),
    "swish": ((1.0, 0.10015), (0.46113, 0.22056, 0.03644)),
    "leaky_relu(0.01)": ((1.0, 0.09933), (0.46595, 0.25917, 0.10638)),
    "gelu": ((1.0, 0.11443), (0.46183, 0.27342, 0.07585)),
}


@pytest.mark.parametrize("name", CUBIC)
def test_known_cubic_coefficients(name: str) -> None:
    m = design.match(DEQ(activations.get(name), 0.2), "cubic_hermite")
    assert m.status == Status.EXACT
    first, last = leaky_numbers(m.enn)
    assert first[:2] == pytest.approx(CUBIC[name][0], abs=6e-6)
    assert first[2] == 0.0
    c1, c2, c3 = CUBIC[name][1]
    assert last[:3] == pytest.approx((c1, c2, -c3), abs=6e-6)
    (other,) = m.alternatives
    assert leaky_numbers(other)[1][:3] == pytest.approx((c1, c2, c3), abs=6e-6)
    assert max(measured(m.deq, enn) for enn in (m.enn, other)) < EPS


SIGMAS = (0.02, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
DEFICITS = {
    "relu": (0.034, 0.036, 0.039, 0.043, 0.051, 0.062, 0.074),
    "leaky_relu(0.01)": (0.033, 0.035, 0.038, 0.042, 0.050, 0.060, 0.072),
    "leaky_relu(0.2)": (0.0175, 0.019, 0.020, 0.022, 0.026, 0.032, 0.039),
    "swish": (0.0050, 0.0051, 0.0051, 0.0049, 0.0038, 0.0019, 0.0002),
    "gelu": (0.018, 0.019, 0.020, 0.020, 0.018, 0.012, 0.0017),
}


@pytest.mark.parametrize("name", DEFICITS)
def test_quadratic_nets_lack_energy(name: str) -> None:
    for sigma_a2, deficit in zip(SIGMAS, DEFICITS[name], strict=True):
        m = design.match(DEQ(activations.get(name), sigma_a2), "quadratic")
        assert m.status == Status.IMPOSSIBLE
        assert "gamma2 should be" in m.message
        assert -m.residuals["gamma2"] == pytest.approx(
            deficit, abs=6e-4 if deficit > 0.01 else 6e-5
        )
        assert max(abs(m.residuals[n]) for n in CK[:3]) < EPS


def test_mismatch_of_quadratic_nets_is_the_known_multiple_of_the_identity() -> None:
    for f, value in ((activations.relu, -0.01155), (activations.swish, -0.00133)):
        m = design.match(DEQ(f, 0.2), "quadratic")
        gap = m.equations[3].achieved - m.equations[3].wanted
        assert gap == pytest.approx(value, abs=6e-6)


@pytest.mark.parametrize("f", [activations.elu, selu], ids=lambda f: f.name)
def test_quadratic_nets_cannot_have_alpha3_above_twice_alpha2(f: Activation) -> None:
    m = design.match(DEQ(f, 0.2), "quadratic")
    e = equivalents.coefficients(m.enn)
    assert m.status == Status.IMPOSSIBLE
    assert m.residuals["alpha3"] < -1e-3
    assert e.alpha3 == pytest.approx(2 * e.alpha2, rel=1e-12)
    assert max(abs(m.residuals[n]) for n in ("alpha1", "alpha2")) < EPS


# --- the conjugate kernel: held-out combinations --------------------------------------------------

HELD_OUT = (
    activations.relu,
    activations.leaky_relu(0.2),
    activations.leaky_relu(-0.5),
    activations.leaky_relu(-1.0),
    activations.swish,
    activations.gelu,
    activations.elu,
    activations.tanh,
    activations.erf,
    softplus,
    wave,
    bent,
    bumpy,
    steep,
    selu,
)


@pytest.mark.parametrize("f", HELD_OUT, ids=lambda f: f.name)
@pytest.mark.parametrize(("sigma_a2", "tau0"), [(0.0, 1.0), (0.07, 0.7), (0.45, 1.5), (0.85, 1.1)])
def test_auto_reaches_everything_tried(f: Activation, sigma_a2: float, tau0: float) -> None:
    m = design.match(DEQ(f, sigma_a2, tau0=tau0))
    assert m.status == Status.EXACT, m.message
    assert m.residual <= EPS
    assert measured(m.deq, m.enn) < EPS


def test_auto_takes_the_fewest_layers_and_the_simplest_family() -> None:
    chosen = {
        (f.name, s): design.match(DEQ(f, s))
        for f, s in (
            (activations.linear, 0.3),
            (activations.tanh, 0.3),
            (steep, 0.2),
            (activations.relu, 0.0),
            (activations.relu, 0.3),
            (activations.relu, 0.9),
            (activations.elu, 0.3),
            (selu, 0.9),
        )
    }
    assert [(m.family, len(m.enn.layers)) for m in chosen.values()] == [
        ("leaky_relu", 1),
        ("hard_tanh", 1),
        ("cubic_hermite", 1),
        ("leaky_relu", 1),
        ("leaky_relu", 2),
        ("cubic_hermite", 2),
        ("cubic_hermite", 2),
        ("cubic_hermite", 3),
    ]
    assert all(m.status == Status.EXACT for m in chosen.values())


def test_layers_are_respected_by_auto() -> None:
    m = design.match(DEQ(activations.relu, 0.9), layers=3)
    assert (m.status, m.family, len(m.enn.layers)) == (Status.EXACT, "leaky_relu", 3)
    single = design.match(DEQ(activations.relu, 0.2), layers=1)
    assert single.status == Status.IMPOSSIBLE
    assert "a3" in single.message or "alpha3" in single.message


def test_selu_needs_more_than_two_cubic_layers_near_one() -> None:
    m = design.match(DEQ(selu, 0.9), "cubic_hermite", layers=2)
    e = equivalents.coefficients(m.enn)
    assert m.status == Status.IMPOSSIBLE
    assert e.alpha3 == pytest.approx(8 * e.alpha2, rel=1e-9)
    assert "alpha3 <= 8 alpha2" in m.message


def test_l_relu_forces_the_energy_of_other_activations() -> None:
    m = design.match(DEQ(activations.swish, 0.2), "leaky_relu")
    c = equivalents.coefficients(m.deq)
    forced = c.alpha1 + 2 * (math.pi - 2) * c.alpha2
    assert m.status == Status.IMPOSSIBLE
    assert equivalents.coefficients(m.enn).gamma2 == pytest.approx(forced, rel=1e-13)
    assert (forced - c.alpha1) / (c.gamma2 - c.alpha1) == pytest.approx(1.134, abs=1e-3)


def test_one_cubic_layer_forces_a_ratio_of_two() -> None:
    m = design.match(DEQ(activations.relu, 0.2), "cubic_hermite", layers=1)
    assert m.status == Status.IMPOSSIBLE
    assert m.equations[2].achieved == pytest.approx(2 * m.equations[1].achieved, rel=1e-12)
    assert m.equations[2].wanted / m.equations[1].wanted == pytest.approx(1.924, abs=1e-3)


def test_clip_refuses_a_linear_share_below_two_over_pi() -> None:
    deq = DEQ(steep, 0.2)
    m = design.match(deq, "hard_tanh")
    assert equivalents.coefficients(deq).alpha1 / deq.gamma2 < 2 / math.pi
    assert m.status == Status.IMPOSSIBLE
    assert abs(m.residuals["gamma2"]) < EPS
    assert m.equations[0].achieved / deq.gamma2 == pytest.approx(2 / math.pi, rel=1e-3)


def test_clip_has_no_even_part() -> None:
    m = design.match(DEQ(activations.relu, 0.2), "hard_tanh")
    assert m.status == Status.IMPOSSIBLE
    assert (m.residuals["alpha2"], m.residuals["alpha3"]) == (-1.0, -1.0)


def test_all_curves_of_the_cubic_family_solve_the_first_three_equations() -> None:
    deq = DEQ(activations.elu, 0.3, tau0=1.2)
    c = equivalents.coefficients(deq)
    q = system(wanted_ck(c, deq.tau0), (0, 0, 1))
    seen = 0
    for signs in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        points = curve(q, np.linspace(0.0, 0.9 * q.largest_ratio, 20), signs)
        for ratio, s, p, r in zip(points.ratio, points.s, points.p, points.r, strict=True):
            if math.isnan(s):
                continue
            seen += 1
            u = 1.0 / (1.0 + ratio + s * s)
            v = math.copysign(s * s * u, s)
            first = hermite_of_shares(u, ratio * u, v, 1.0, deq.tau0)
            last = hermite_of_shares(p / (p + r), r / (p + r), 0.0, (p + r) * deq.gamma2, 1.0)
            e = equivalents.coefficients(ENN((first, last), deq.tau0))
            for name in CK[:3]:
                assert getattr(e, name) == pytest.approx(getattr(c, name), rel=1e-10)
    assert seen > 10


def test_quadratic_roots_are_all_roots() -> None:
    c = equivalents.coefficients(DEQ(activations.relu, 0.5))
    q = system(wanted_ck(c, 1.0), (0, 0, 1))
    ratio = np.linspace(0.0, q.largest_ratio * (1 - 1e-12), 20001)
    values = (1 + 2 * ratio) ** 2 - q.level2(ratio)
    assert (np.diff(np.sign(values)) != 0).sum() == quadratic_points(q).ratio.size


activation_shapes = st.tuples(
    st.floats(0.2, 1.5), st.floats(-1.0, 1.0), st.floats(-0.5, 0.5), st.floats(0.5, 2.0)
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(shape=activation_shapes, sigma_a2=st.floats(0.01, 0.3), tau0=st.floats(0.7, 1.5))
def test_random_activations(
    shape: tuple[float, float, float, float], sigma_a2: float, tau0: float
) -> None:
    a, b, c, d = shape
    size = 1.0 + abs(b) + 2.0 * abs(c)

    def f(t: FloatArray) -> FloatArray:
        return (a * np.tanh(d * t) + b * np.maximum(t, 0.0) + c * np.cos(2.0 * t)) / size

    def df(t: FloatArray) -> FloatArray:
        bump = 1.0 / np.cosh(np.minimum(np.abs(d * t), 300.0)) ** 2
        return (a * d * bump + b * (t > 0) - 2.0 * c * np.sin(2.0 * t)) / size

    deq = DEQ(Activation("random", f, df, (0.0,)), sigma_a2, tau0=tau0)
    m = design.match(deq)
    assert (m.status == Status.EXACT) == (m.residual <= EPS)
    assert m.status == Status.EXACT or m.residual > 1e-9
    assert measured(deq, m.enn) <= EPS or m.status != Status.EXACT
    single = design.match(deq, "cubic_hermite", layers=1)
    own = equivalents.coefficients(deq)
    allowed = 1e-12 * max(own.alpha3, 1e-4 * own.gamma2 / tau0**4)
    assert (single.status == Status.EXACT) == (abs(own.alpha3 - 2 * own.alpha2) <= allowed)


# --- exact kernels --------------------------------------------------------------------------------


def _data(n: int, p: int, tau0: float = 1.0) -> FloatArray:
    x = np.random.default_rng(5).standard_normal((n, p))
    x[: n // 2, 0] += 2.0
    return x * (tau0 / math.sqrt((x * x).sum() / n))


def _distance(a: FloatArray, b: FloatArray) -> float:
    return float(np.linalg.norm(a - b, 2) / np.linalg.norm(a, 2))


def test_exact_kernels_agree_where_the_status_says_so() -> None:
    X = _data(160, 200)
    deq = DEQ(activations.relu, 0.2)
    wanted = kernels.ck(deq, X)
    m = design.match(deq, "leaky_relu")
    assert all(_distance(wanted, kernels.ck(enn, X)) < 1e-4 for enn in (m.enn, *m.alternatives))
    plain = kernels.ck(ENN((activations.relu,) * 2), X)
    assert min(_distance(wanted, c * plain) for c in np.linspace(2.6, 3.4, 9)) > 0.03


def test_exact_tangent_kernels_agree_where_the_status_says_so() -> None:
    X = _data(160, 200)
    deq = DEQ(activations.relu, 0.2)
    wanted = kernels.ntk(deq, X, params="all")
    m = design.match(deq, "leaky_relu", "ntk")
    assert _distance(wanted, kernels.ntk(m.enn, X)) < 2e-4
    other = design.match(deq, "leaky_relu", "ck")
    assert _distance(wanted, kernels.ntk(other.enn, X)) > 0.3


# --- the tangent kernel ---------------------------------------------------------------------------


def test_three_l_relu_layers_have_the_tangent_kernel_of_relu() -> None:
    m = design.match(DEQ(activations.relu, 0.2), "leaky_relu", "ntk")
    known = [(1.17805, 0.80958), (1.71447, -0.00346), (0.46497, 0.30821)]
    assert m.status == Status.EXACT
    np.testing.assert_allclose(leaky_numbers(m.enn), known, atol=6e-6)
    assert m.params == "all"
    assert m.multipliers == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize(("sigma_a2", "tau0"), [(0.05, 1.0), (0.2, 0.8), (0.7, 1.3)])
def test_three_l_relu_layers_reach_every_homogeneous_deq_tried(
    slope: float, sigma_a2: float, tau0: float
) -> None:
    deq = DEQ(activations.leaky_relu(slope), sigma_a2, tau0=tau0)
    m = design.match(deq, "leaky_relu", "ntk")
    assert m.status == Status.EXACT, m.message
    c, e = equivalents.coefficients(deq, "all"), equivalents.coefficients(m.enn)
    for name in NTK:
        assert getattr(e, name) == pytest.approx(getattr(c, name), rel=1e-11)


@pytest.mark.parametrize("params", ["all", "published"])
@pytest.mark.parametrize(
    "f", [activations.relu, activations.leaky_relu(0.2), activations.elu], ids=lambda f: f.name
)
def test_two_cubic_layers_have_the_tangent_kernel(f: Activation, params: str) -> None:
    for sigma_a2, tau0 in ((0.1, 1.3), (0.2, 1.0), (0.4, 0.75)):
        deq = DEQ(f, sigma_a2, tau0=tau0)
        m = design.match(deq, "cubic_hermite", "ntk", params=params)
        assert (m.status, len(m.enn.layers)) == (Status.EXACT, 2), m.message
        c, e = equivalents.coefficients(deq, params), explicit_numbers(m.enn, params)
        assert all(e[n] == pytest.approx(getattr(c, n), rel=1e-11) for n in NTK)


@pytest.mark.parametrize("params", ["all", "published"])
def test_swish_needs_a_third_layer_for_the_tangent_kernel(params: str) -> None:
    deq = DEQ(activations.swish, 0.2)
    two = design.match(deq, "cubic_hermite", "ntk", layers=2, params=params)
    assert two.status == Status.NOT_FOUND
    assert 1e-4 < two.residual < 1e-2
    assert "kappa2 should be" in two.message
    three = design.match(deq, "auto", "ntk", params=params)
    assert (three.status, len(three.enn.layers)) == (Status.EXACT, 3)


@pytest.mark.parametrize("family", ["leaky_relu", "quadratic"])
def test_two_layers_of_three_unknowns_miss_the_tangent_kernel(family: str) -> None:
    m = design.match(DEQ(activations.relu, 0.2), family, "ntk", layers=2)
    assert m.status == Status.IMPOSSIBLE
    assert abs(m.residuals["kappa2"]) > 0.05
    assert max(abs(m.residuals[n]) for n in NTK[:3]) < EPS


@pytest.mark.parametrize("params", ["all", "published"])
@pytest.mark.parametrize("family", ["hard_tanh", "cubic_hermite"])
def test_one_odd_layer_has_the_tangent_kernel_of_tanh(family: str, params: str) -> None:
    deq = DEQ(activations.tanh, 0.3, tau0=1.2)
    m = design.match(deq, family, "ntk", params=params)
    assert (m.status, len(m.enn.layers)) == (Status.EXACT, 1), m.message
    assert m.multipliers == ((1.0, 1.0) if params == "all" else (0.0, 1.0))


def test_l_relu_misses_other_activations_in_the_tangent_kernel() -> None:
    for f in (activations.swish, activations.tanh):
        m = design.match(DEQ(f, 0.1), "leaky_relu", "ntk", 3, params="published")
        assert m.status == Status.NOT_FOUND
        assert m.residual > 1e-3
        assert "should be" in m.message


# --- both kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("params", ["all", "published"])
@pytest.mark.parametrize("family", ["auto", "cubic_hermite", "hard_tanh"])
def test_odd_activations_have_both_kernels_with_weights(family: str, params: str) -> None:
    deq = DEQ(activations.tanh, 0.2)
    m = design.match(deq, family, "both", params=params)
    assert m.status == Status.EXACT, m.message
    assert set(m.residuals) == {*CK, *NTK}
    first, readout = m.multipliers or (0.0, 0.0)
    own, c = equivalents.coefficients(m.enn), equivalents.coefficients(deq, params)
    assert readout * own.alpha1 + first * (own.beta1 - own.alpha1) == pytest.approx(c.beta1)
    assert readout * own.gamma2 + first * (own.kappa2 - own.gamma2) == pytest.approx(c.kappa2)


@pytest.mark.parametrize("params", ["all", "published"])
@pytest.mark.parametrize(
    "f", [activations.relu, activations.swish, activations.elu], ids=lambda f: f.name
)
def test_both_kernels_are_impossible_otherwise(f: Activation, params: str) -> None:
    m = design.match(DEQ(f, 0.2), "auto", "both", params=params)
    assert m.status == Status.IMPOSSIBLE
    assert "b1/a1" in m.message
    assert max(abs(m.residuals[n]) for n in CK) < EPS
    assert max(abs(m.residuals[n]) for n in NTK) > 0.1
    layers = len(m.enn.layers)
    e = explicit_numbers(m.enn, params)
    count = layers + (params == "all")
    assert e["beta1"] / e["alpha1"] == pytest.approx(count, rel=1e-12)
    assert e["beta2"] / e["alpha2"] < layers


# --- maps -----------------------------------------------------------------------------------------


def test_map_agrees_with_the_matches() -> None:
    fs = (activations.relu, activations.leaky_relu(0.3), activations.elu, activations.tanh)
    sigmas = (0.05, 0.5, 0.8, 0.9)
    for family in ("leaky_relu", "cubic_hermite", "auto", "hard_tanh"):
        found = design.reachable(family, design.Grid(fs, sigmas, tau0=0.9))
        assert found.well_posed.all()
        for i, f in enumerate(fs):
            for j, sigma_a2 in enumerate(sigmas):
                m = design.match(DEQ(f, sigma_a2, tau0=0.9), family)
                assert found.reached[i, j] == (m.status == Status.EXACT)
                layers = len(m.enn.layers) if m.status == Status.EXACT else 0
                assert found.layers[i, j] == layers
                assert (found.gap[i, j] == 0.0) == found.reached[i, j]


def test_map_of_single_networks() -> None:
    deqs = [DEQ(activations.relu, s) for s in (0.2, 0.9)]
    found = design.reachable("leaky_relu", deqs, layers=2)
    assert found.reached.tolist() == [True, False]
    ntk = design.reachable("cubic_hermite", deqs, "ntk")
    assert ntk.reached.all()


def test_map_marks_what_is_not_well_posed() -> None:
    grid = design.Grid((activations.quadratic(0.2, 1.0),), (0.1, 0.97))
    found = design.reachable("auto", grid)
    assert found.well_posed.tolist() == [[True, False]]
    assert found.reached.tolist() == [[True, False]]
    assert math.isnan(found.gap[0, 1])


@pytest.mark.parametrize("params", ["all", "published"])
@pytest.mark.parametrize("f", [activations.relu, activations.swish, bent], ids=lambda f: f.name)
def test_coefficients_of_the_grid(f: Activation, params: str) -> None:
    sigmas = (0.0, 0.3, 0.9)
    rows = grid_coefficients(f, np.array(sigmas), 0.8, params)
    for sigma_a2, row in zip(sigmas, rows, strict=True):
        c = equivalents.coefficients(DEQ(f, sigma_a2, tau0=0.8), params)
        assert row is not None
        assert [getattr(row, n) for n in (*CK, *NTK)] == pytest.approx(
            [getattr(c, n) for n in (*CK, *NTK)], rel=1e-12, abs=1e-14
        )


# --- contract -------------------------------------------------------------------------------------


def test_a_match_is_the_same_every_time() -> None:
    for target in design.TARGETS:
        first, second = (design.match(DEQ(activations.gelu, 0.3), target=target) for _ in range(2))
        assert first == second
        assert pickle.loads(pickle.dumps(first)) == first


def test_explain_states_the_net_in_full() -> None:
    text = design.match(DEQ(activations.relu, 0.2)).explain()
    for part in ("N(0, 1)", "no bias", "max(1.225643618", "-0.188138940", "tau0 = 1", "alpha2"):
        assert part in text
    assert "mismatches, this net first: 5.7e-06, 3.7e-05" in text
    cubic = design.match(DEQ(activations.swish, 0.2), target="ntk").explain()
    assert "sigma_3(t) = t\n" in cubic
    assert "(x^3 - 3 x)/sqrt(6)" in cubic
    assert "weights 1, 1, 1, 1" in cubic
    clip = design.match(DEQ(activations.tanh, 0.2), target="both").explain()
    assert "clip(t, -1.19648" in clip
    assert "t^2" in design.match(DEQ(activations.relu, 0.2), "quadratic").explain()


def test_explained_formula_is_the_layer() -> None:
    m: Match = design.match(DEQ(activations.gelu, 0.2, tau0=1.3))
    t = np.linspace(-3.0, 3.0, 7)
    for number, phi in enumerate(m.enn.phis, start=1):
        line = next(x for x in m.explain().splitlines() if f"sigma_{number}(t) = " in x)
        body, scale = line.split(" = ", 1)[1].split(", x = t/")
        x = t / float(scale)
        c = [float(v) for v in (body.split(" x ")[0], body.split(" x ")[1].split(" ")[0])]
        c.append(float(body.split("/sqrt(2) ")[1].split(" ")[0]))
        value = c[0] * x + c[1] * (x**2 - 1) / math.sqrt(2) + c[2] * (x**3 - 3 * x) / math.sqrt(6)
        np.testing.assert_allclose(value, phi(t), atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("relu",), TypeError),
        ((ENN((activations.relu,)),), TypeError),
        ((DEQ(activations.relu, 0.2), "cubic"), ValueError),
        ((DEQ(activations.relu, 0.2), None), ValueError),
        ((DEQ(activations.relu, 0.2), "auto", "CK"), ValueError),
        ((DEQ(activations.relu, 0.2), "auto", "ck", 0), ValueError),
        ((DEQ(activations.relu, 0.2), "auto", "ck", 2.0), TypeError),
        ((DEQ(activations.relu, 0.2), "auto", "ck", True), TypeError),
        ((DEQ(activations.relu, 0.2), "hard_tanh", "ck", 2), UnsupportedSpecError),
        ((DEQ(activations.relu, 0.2), "quadratic", "ck", 3), UnsupportedSpecError),
        ((DEQ(activations.relu, 0.2), "leaky_relu", "ntk", 4), UnsupportedSpecError),
        ((DEQ(activations.relu, 0.2), "auto", "ck", 99), UnsupportedSpecError),
        ((DEQ(activations.relu, 0.2, sigma_c2=0.1),), UnsupportedSpecError),
        ((DEQ(activations.relu, 0.2, centred=False),), UnsupportedSpecError),
        ((DEQ(activations.leaky_relu(-1.0), 0.2), "leaky_relu", "ntk"), UnsupportedSpecError),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        design.match(*arguments)  # type: ignore[arg-type]


def test_bad_maps() -> None:
    with pytest.raises(ValueError, match="sigma_a2"):
        design.Grid((activations.relu,), (0.2, 1.0))
    with pytest.raises(ValueError, match="sigma_a2"):
        design.Grid((activations.relu,), ())
    with pytest.raises(TypeError, match="activations"):
        design.Grid((), (0.2,))
    with pytest.raises(TypeError, match="deqs"):
        design.reachable("auto", [])
    with pytest.raises(TypeError, match="deqs"):
        design.reachable("auto", ["relu"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="target"):
        design.reachable("auto", [DEQ(activations.relu, 0.2)], "both")
    with pytest.raises(ValueError, match="params"):
        design.match(DEQ(activations.relu, 0.2), params="some")


@pytest.mark.parametrize("sigma_a2", [1e-9, 1e-6])
def test_almost_explicit_networks(sigma_a2: float) -> None:
    m = design.match(DEQ(activations.relu, sigma_a2))
    assert m.status == Status.EXACT, m.message


@pytest.mark.parametrize("degree", [3, 4])
def test_a_kernel_without_linear_and_quadratic_part(degree: int) -> None:
    pure = Activation(
        f"he{degree}",
        {3: lambda t: t**3 - 3 * t, 4: lambda t: t**4 - 6 * t**2}[degree],
        {3: lambda t: 3 * t**2 - 3, 4: lambda t: 4 * t**3 - 12 * t}[degree],
    )
    for target in design.TARGETS:
        m = design.match(DEQ(pure, 0.0), target=target)
        assert (m.status, m.family, len(m.enn.layers)) == (Status.EXACT, "cubic_hermite", 1)
    with pytest.raises(UnsupportedSpecError, match="leaky_relu"):
        design.match(DEQ(pure, 0.0), "leaky_relu")


@pytest.mark.parametrize("tau0", [1e-3, 40.0, 1e3])
def test_extreme_scales(tau0: float) -> None:
    for f in (activations.relu, activations.swish, activations.tanh):
        m = design.match(DEQ(f, 0.2, tau0=tau0))
        assert m.status == Status.EXACT, m.message


def test_nearly_odd_activations() -> None:
    for size in (1e-2, 1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-11):
        f = Activation(
            "nearly",
            lambda t, size=size: np.tanh(t) + size * t * t,
            lambda t, size=size: 1.0 / np.cosh(np.minimum(np.abs(t), 300.0)) ** 2 + 2.0 * size * t,
        )
        m = design.match(DEQ(f, 0.3))
        assert m.status == Status.EXACT, m.message
        assert measured(m.deq, m.enn) < 1e-10


def test_frozen_input_weights_need_a_larger_variance_for_l_relu() -> None:
    found = [
        design.match(DEQ(activations.relu, s), "leaky_relu", "ntk", 3, params="published").status
        for s in (0.1, 0.15, 0.2, 0.25, 0.5)
    ]
    assert found == [Status.NOT_FOUND] * 2 + [Status.EXACT] * 3


def test_rounding_is_told_apart_from_exact() -> None:
    deq = DEQ(activations.relu, 1e-9)
    m = design.match(deq, "leaky_relu", "ntk", params="published")
    assert m.status == Status.ROUNDED
    assert EPS < m.residual < 1e-8


def test_kernels_of_cubic_layers() -> None:
    X = _data(40, 60)
    m = design.match(DEQ(activations.swish, 0.2), "cubic_hermite")
    wanted, found = kernels.ck(m.deq, X), kernels.ck(m.enn, X)
    assert np.trace(found) == pytest.approx(np.trace(wanted), rel=0.1)
