"""Pairs of DEQs that share four scalars: the construction, and what a row measures."""

import dataclasses

import numpy as np
import pytest

from implicitnn import activations, equivalents, gaussian, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import four_scalars


@pytest.mark.parametrize("name", four_scalars.PAIRS)
@pytest.mark.parametrize("tau0", [1.0, 1.08])
def test_a_pair_shares_what_it_says_and_no_more(name, tau0):
    first, second, residual = four_scalars.pair(name, tau0)
    assert residual < 1e-12
    assert second.sigma_a2 + second.sigma_b2 == pytest.approx(1, abs=1e-15)
    a, b = equivalents.coefficients(first), equivalents.coefficients(second)
    ratios = {k: getattr(b, k) / getattr(a, k) for k in four_scalars.CK + four_scalars.NTK}
    chosen = four_scalars.PAIRS[name]
    same = four_scalars.NTK if chosen.shared == "ntk" else four_scalars.CK
    for key in same:
        factor = chosen.factor if chosen.shared == f"all but {key}" else 1.0
        assert ratios[key] == pytest.approx(factor, rel=1e-12)
    others = set(ratios) - set(same)
    assert max(abs(ratios[key] - 1) for key in others) > 1e-3


def test_tangent_scalars_are_those_of_the_library():
    # A network that no pair uses; the formulas of the study against quadrature.
    first = DEQ(activations.gelu, 0.35, None, 1.2)
    second = four_scalars.partner(equivalents.coefficients(first), 1.2, -1)
    c = gaussian.hermite_coefficients(second.activation, second.tau**2, 3)[1:]
    A = second.sigma_a2 / second.tau**2
    found = four_scalars.tangent_scalars(np.append(c, A), second.tau0)
    library = equivalents.coefficients(second)
    expected = [getattr(library, k) for k in four_scalars.NTK]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_scale_of_the_weights_is_no_new_network():
    # z = phi(sigma_a A z + sigma_b B x) is unchanged by sigma -> s sigma, phi(t) -> phi(t / s).
    first = DEQ(activations.relu, 0.2)
    net = four_scalars.partner(equivalents.coefficients(first), 1.0, -1)
    s, f = 1.7, net.activation.f
    stretched = four_scalars.design.hermite(f.c1, f.c2, f.c3, s * f.tau)
    other = DEQ(stretched, s**2 * net.sigma_a2, s**2 * net.sigma_b2)
    X = np.random.default_rng(0).standard_normal((5, 50)) / np.sqrt(50)
    np.testing.assert_allclose(kernels.ck(net, X), kernels.ck(other, X), rtol=1e-10)


def test_what_no_cubic_has_is_refused():
    c = equivalents.coefficients(DEQ(activations.relu, 0.2))
    with pytest.raises(ValueError, match="no cubic with sign 1"):
        four_scalars.partner(dataclasses.replace(c, gamma2=c.alpha1), 1.0, 1)
    with pytest.raises(ValueError, match="pair"):
        four_scalars.pair("relu", 1.0)


def test_a_row_splits_the_distance():
    found = four_scalars.row({"pair": "relu, alpha2", "n": 96}, 3)
    assert found["ck_ratio"] == found["ck_distance"] / found["ck_predicted"]
    assert abs(found["ck_distance"] - found["ck_predicted"]) <= found["ck_remainder"]
    assert "ntk_distance" not in found
    again = four_scalars.row({"pair": "relu, alpha2", "n": 96}, 3)
    assert again == found
    assert four_scalars.row({"pair": "relu, alpha2", "n": 96}, 4) != found


def test_the_kernel_that_is_shared_has_no_predicted_difference():
    conjugate = four_scalars.row({"pair": "elu, -", "n": 96}, 1)
    tangent = four_scalars.row({"pair": "relu, tangent", "n": 96}, 1)
    assert conjugate["ck_predicted"] < 1e-12 < 1e-3 < conjugate["ntk_predicted"]
    assert tangent["ntk_predicted"] < 1e-12 < 1e-3 < tangent["ck_predicted"]


def test_every_paper_cell_can_be_drawn_at_the_smallest_size():
    # Norms fluctuate most there; a cubic has no fixed point for a very large one.
    sizes = {cell["n"] for cell in four_scalars.STUDY.grids["paper"]}
    assert max(sizes) / min(sizes) == 16
    for name in four_scalars.PAIRS:
        for seed in (1002, 1003):
            assert four_scalars.row({"pair": name, "n": min(sizes)}, seed)["ck_distance"] > 0
