"""Two quadratic layers against a DEQ, and the repair."""

import numpy as np
import pytest

from implicitnn import activations, design, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import corollary_1


@pytest.mark.parametrize("activation", corollary_1.ACTIVATIONS)
def test_scalars_are_missed_by_the_quadratic_net_only(activation):
    found = corollary_1.row({"kind": "scalars", "activation": activation}, 1001)
    assert 0.02 <= found["sigma_a2"] <= 0.95
    assert 0.7 <= found["tau0"] <= 1.5
    assert found["quadratic_residual"] > 1e-5
    assert found["repaired_residual"] < 1e-12


@pytest.mark.parametrize("data", corollary_1.DATA)
def test_a_kernel_row_is_what_dense_algebra_gives(data):
    settings = {"kind": "kernels", "activation": "relu", "data": data, "n": 128}
    found = corollary_1.row(settings, 5)
    sample = corollary_1.draw(data, 128, 5)
    deq = DEQ(activations.relu, corollary_1.SIGMA_A2).at(sample.statistics.tau0)
    enn = design.match(deq, "quadratic").enn
    gap = kernels.ck(deq, sample.X) - kernels.ck(enn, sample.X)
    assert found["quadratic_distance"] == pytest.approx(np.linalg.norm(gap, 2), rel=1e-4)
    assert found["quadratic_trace"] == pytest.approx(abs(np.trace(gap)) / 128, rel=1e-12)
    shifted = gap - (deq.gamma2 - enn.taus[-1] ** 2) * np.eye(128)
    assert found["quadratic_shifted"] == pytest.approx(np.linalg.norm(shifted, 2), rel=1e-4)
    for net in corollary_1.NETS:
        assert found[f"{net}_trace"] <= found[f"{net}_distance"] * (1 + 1e-5)
    assert ("ntk_tangent_relative" in found) == (data == "norm 1")
    assert corollary_1.row(settings, 5) == found
    assert corollary_1.row(settings, 6) != found


def test_the_floor_of_the_quadratic_net_is_what_its_last_energy_lacks():
    settings = {"kind": "kernels", "activation": "relu", "data": "norm 1", "n": 128}
    found = corollary_1.row(settings, 1000)
    # 0.011552 at tau0 = 1, and ReLU kernels scale with tau0^2.
    tau0 = corollary_1.draw("norm 1", 128, 1000).statistics.tau0
    assert found["quadratic_floor"] == pytest.approx(0.0115517 * tau0**2, rel=1e-4)
    assert found["repaired_floor"] < 1e-14


def test_the_grid_has_both_kinds_and_a_factor_of_16():
    cells = corollary_1.STUDY.grids["paper"]
    sizes = [cell["n"] for cell in cells if cell["kind"] == "kernels"]
    assert max(sizes) / min(sizes) == 16
    assert {c["activation"] for c in cells if c["kind"] == "scalars"} == set(
        corollary_1.ACTIVATIONS
    )
    with pytest.raises(ValueError, match="kind"):
        corollary_1.row({"kind": "other", "activation": "relu"}, 0)
    with pytest.raises(ValueError, match="data"):
        corollary_1.draw("gmm", 10, 0)
