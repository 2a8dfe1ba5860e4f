"""Studies of one hidden layer: random activations, measured derivatives, identities and the gap."""

import numpy as np
import pytest

from implicitnn import activations, equivalents, gaussian, kernels
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import (
    STUDIES,
    _matched,
    _random_activations,
    one_layer,
    one_layer_gap,
)

T = np.linspace(-4, 4, 41)


@pytest.mark.parametrize("family", _random_activations.FAMILIES)
def test_random_activations_are_fixed_by_the_seed_and_of_unit_size(family):
    first, again, other = (_random_activations.draw(family, s) for s in (7, 7, 8))
    assert np.array_equal(first(T), again(T))
    assert not np.allclose(first(T), other(T))
    square = (lambda t: first(t) ** 2) if family == "balanced" else (lambda t: first.df(t) ** 2)
    assert gaussian.expectation(square, 1.0, first.kinks) == pytest.approx(1.0, rel=1e-12)


def test_families_are_what_they_say():
    for seed in range(6):
        odd = _random_activations.draw("odd", seed)
        assert np.abs(odd(T) + odd(-T)).max() < 1e-12
        assert _random_activations.draw("kinked", seed).kinks
        cubic = _random_activations.draw("balanced", seed)
        moments = gaussian.stein_moments(cubic, 1.0)
        assert moments.square_d2 / 2 == pytest.approx(moments.d1**2, rel=1e-12)
        assert moments.d2 > 0.05
        assert np.abs(cubic(T) + cubic(-T)).max() > 0.1


def test_unknown_family_is_refused():
    with pytest.raises(ValueError, match="family must be one of"):
        _random_activations.draw("periodic", 0)


@pytest.mark.parametrize("name", ["relu", "swish", "tanh", "elu"])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_measured_derivatives_are_the_coefficients(name, layers):
    activation = activations.get(name)
    spec = ENN([activation] * layers) if layers else DEQ(activation, 0.3)
    found, formula = one_layer.derivatives(spec), equivalents.coefficients(spec)
    assert found.product == pytest.approx(formula.alpha1, abs=1e-9)
    assert found.square == pytest.approx(formula.alpha3, abs=1e-8)
    assert found.mixed == pytest.approx(formula.alpha2, abs=1e-9)
    assert found.energy == pytest.approx(formula.gamma2, abs=1e-10)
    sigma_a2, sigma_b2 = (0.0, 0.0) if layers else (0.3, 0.7)
    if not layers:
        assert sigma_a2 * found.variance + sigma_b2 == pytest.approx(formula.alpha4, abs=1e-9)


def test_two_layers_do_break_the_ratio():
    """The residual is not zero by construction."""
    found = one_layer.derivatives(ENN([activations.relu, activations.relu]))
    assert abs(found.square - 2 * found.mixed) > 1e-2 * found.energy


@pytest.mark.parametrize(
    ("family", "reached"), [("smooth", 0), ("kinked", 0), ("odd", 1), ("balanced", 1)]
)
def test_rows_tell_the_families_apart(family, reached):
    row = one_layer.row({"family": family, "sigma_a2": 0.3}, 11)
    assert row["reached"] == reached
    assert row["contradiction"] == 0
    assert row["net_residual"] < 1e-9
    assert row["deq_residual"] < 1e-9


def test_no_well_posed_activation_is_an_error():
    with pytest.raises(NotWellPosedError, match="none of 200"):
        one_layer.well_posed("balanced", 0.99, 0)


def test_gap_row_agrees_with_a_direct_computation():
    row = one_layer_gap.row({"activation": "leaky_relu(-1.0)", "sigma_a2": 0.8, "n": 80}, 2)
    sample = _matched.draw("near mixture", 80, 2, "embedded")
    spec = DEQ(activations.leaky_relu(-1.0), 0.8).at(sample.statistics.tau0)
    exact = kernels.ck(spec, sample.X)
    size = np.linalg.norm(exact, 2)
    layer = kernels.ck(ENN([activations.leaky_relu(-1.0)], spec.tau0), sample.X)
    trial = min(np.linalg.norm(exact - c * layer, 2) for c in np.linspace(0.2, 1.5, 40)) / size
    assert row["one_layer_bound"] <= row["one_layer"] <= trial
    assert row["over_matched"] == pytest.approx(row["one_layer_bound"] / row["matched"])


def test_grids_cover_the_declared_range():
    paper = one_layer_gap.STUDY.grids["paper"]
    sizes = {cell["n"] for cell in paper}
    assert max(sizes) == 8 * min(sizes)
    assert {cell["family"] for cell in one_layer.STUDY.grids["paper"]} == set(
        _random_activations.FAMILIES
    )
    for study in (one_layer.STUDY, one_layer_gap.STUDY):
        assert STUDIES[study.name] is study
        assert len(study.seeds["paper"]) == 10
