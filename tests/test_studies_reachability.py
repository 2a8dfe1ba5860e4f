"""The study of reachability: its letters against `match`, and the extreme layer against search."""

import math

import numpy as np
import pytest
from scipy import special

from implicitnn import activations, design, equivalents, gaussian
from implicitnn.activations import Activation
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import STUDIES, reachability

EDGE = reachability.gain(1.3)


def levels(layer, tau=1.0):
    """Shares u, w and curvature k of one centred layer."""
    offset = gaussian.expectation(layer.f, tau, layer.kinks)
    m = gaussian.stein_moments(lambda t: layer.f(t) - offset, tau, layer.kinks)
    e = m.square
    return (
        m.d1**2 * tau**2 / e,
        m.d2**2 * tau**4 / (2 * e),
        m.square_d2 * tau**2 / (2 * e),
    )


def rational(pole, scale=1.0):
    return Activation(
        "rational",
        lambda t: scale * t / (t * t + pole),
        lambda t: scale * (pole - t * t) / (t * t + pole) ** 2,
    )


@pytest.mark.parametrize("pole", [0.02, 0.5, 3.0, 40.0])
def test_point_of_the_extreme_layer_by_quadrature_and_in_closed_form(pole):
    u, k = reachability.layer_point(pole)
    found = levels(rational(pole))
    assert (u, k) == pytest.approx((found[0], found[2]), abs=1e-9)
    # m(pole) = E xi^2/(xi^2 + pole) in closed form; E xi^2/(xi^2 + pole)^2 is minus its slope.
    m, step = share_of(pole), 1e-4 * pole
    slope = (share_of(pole + step) - share_of(pole - step)) / (2 * step)
    assert u == pytest.approx(-m * m / slope, rel=1e-6)
    assert k == pytest.approx(-0.5 * (m / slope + pole + 1), abs=1e-4)


def share_of(pole):
    root = math.sqrt(pole / 2)
    return 1 - math.sqrt(math.pi) * root * special.erfcx(root)


def test_no_random_layer_curves_less():
    rng = np.random.default_rng(0)
    x = np.linspace(-9, 9, 4001)
    weight = np.exp(-0.5 * x * x) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    least = []
    for _ in range(400):
        a, b, c, d = rng.normal(size=4)
        s = a * x + b * np.tanh(3 * c * x + d) + 0.3 * rng.normal() * np.sin(2 * x)
        s -= weight @ s
        energy = weight @ s**2
        u = (weight @ (x * s)) ** 2 / energy
        k = 0.5 * (weight @ (x * x * s * s) / energy - 1)
        poles = np.geomspace(1e-3, 1e3, 40)
        m = np.array([weight @ (x * x / (x * x + pole)) for pole in poles])
        bound = 0.5 * (np.max(u / m - poles) - 1)
        least.append(k - bound)
    assert min(least) > -1e-6
    assert min(least) < 0.05


def test_largest_share_solves_its_equation_and_grows():
    found = [reachability.largest_share(q) for q in (0.1, 0.3, 0.6, 0.9)]
    assert found == sorted(found)
    for q in (0.1, 0.6):
        u, k = reachability.layer_point(reachability.least_pole(q))
        assert k == pytest.approx(q * u, abs=1e-9)


@pytest.mark.parametrize("value, factory", [(0.0, reachability.leaky), (1.5, reachability.elu)])
def test_letters_agree_with_match(value, factory):
    values = (0.1, 0.5, 0.85, 0.9)
    letters = reachability.conjugate(factory(value), values)
    for letter, sigma_a2 in zip(letters, values, strict=True):
        m = design.match(DEQ(factory(value), sigma_a2), "auto")
        expected = {"leaky_relu": "L", "cubic_hermite": "C"}[m.family]
        assert letter == expected if len(m.enn.layers) == 2 else letter in "RXU"


def test_rational_layer_completes_a_real_net():
    """ELU with alpha 2.3 at sigma_a2 = 0.74: no two cubic layers, but these two."""
    deq = DEQ(reachability.elu(2.3), 0.74)
    assert design.match(deq, "cubic_hermite", layers=2).status == design.Status.IMPOSSIBLE
    assert reachability.any_two_layers(deq) == "R"
    A, second, C = reachability.shares(deq)
    pole = reachability.least_pole(math.sqrt(second / C))
    u = reachability.layer_point(pole)[0]
    rest = 1 - A / u - C / u**2
    first = rational(pole)
    tau = math.sqrt(gaussian.expectation(lambda t: first.f(t) ** 2, 1.0))
    c = np.sqrt(np.array([A / u, C / u**2, rest]) * deq.gamma2)
    enn = ENN((first, design.hermite(*c, tau=tau)), 1.0)
    wanted, found = equivalents.coefficients(deq), equivalents.coefficients(enn)
    for name in ("alpha1", "alpha2", "alpha3", "gamma2"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-7), name


def test_impossible_cell_is_far_from_every_hermite_pair():
    """A search over all shares: no first layer with u >= A has the small curvature wanted."""
    deq = DEQ(EDGE, 0.67)
    assert reachability.any_two_layers(deq) == "X"
    A, second, C = reachability.shares(deq)
    for u in np.linspace(A, 1.0, 60):
        for w in np.linspace(0.0, 1.0 - u, 12):
            e = A * w / u
            if e > min(second, C):
                continue
            wanted = u * math.sqrt((second - e) / max(C - e, 1e-300))
            poles = np.geomspace(1e-4, 1e6, 60)
            points = np.array([reachability.layer_point(pole) for pole in poles])
            least = np.interp(u, points[:, 0], points[:, 1])
            assert least > wanted


def test_row_counts_its_letters():
    found = reachability.row({"family": "gain", "value": 1.3, "count": 12}, 0)
    assert len(found["letters"]) == 12 and len(found["ntk_letters_all"]) == 4
    assert found["well_posed"] == 12 - found["letters"].count(".")
    assert found["impossible"] == found["letters"].count("X") > 0
    assert found["cubic_share"] <= found["two_share"] < 1


@pytest.mark.parametrize("name", reachability.FAMILIES)
def test_factories_pass_the_checks_of_an_activation(name):
    _, factory, low, high = reachability.FAMILIES[name]
    for value in (low, high):
        f = factory(value)
        assert Activation("copy", f.f, f.df, f.kinks).name == "copy"
    assert activations.leaky_relu(0.2) == reachability.leaky(0.2)


def test_grid_covers_families():
    cells = STUDIES["reachability"].grids["paper"]
    assert {cell["family"] for cell in cells} == set(reachability.FAMILIES)
    assert len(cells) * cells[0]["count"] > 10_000
