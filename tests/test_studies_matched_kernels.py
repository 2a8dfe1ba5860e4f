"""The study of matched kernels: its nets, its factor, and that the matched net is the nearest."""

import numpy as np
import pytest

from implicitnn import activations, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import STUDIES, matched_kernels

CELL = {"data": "mixture", "n": 120, "activation": "relu", "net": "matched", "source": "embedded"}


@pytest.fixture(scope="module")
def sample():
    return matched_kernels.draw("mixture", 120, 3, source="embedded")


def test_row_equals_a_dense_computation(sample):
    found = matched_kernels.row(CELL, 3)
    deq = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    wanted = kernels.ck(deq, sample.X)
    other = kernels.ck(matched_kernels.explicit(deq, "matched"), sample.X)
    error = np.linalg.norm(wanted - other, 2)
    assert found["absolute"] == pytest.approx(error, rel=1e-5)
    assert found["relative"] == pytest.approx(error / np.linalg.norm(wanted, 2), rel=1e-5)
    assert found["factor"] == 1.0
    values = [np.linalg.eigvalsh(A) for A in (wanted, other)]
    gap = np.abs(values[0] - values[1]).mean() / values[0].mean()
    assert found["ck_distance"] == pytest.approx(gap, rel=1e-5)


def test_best_factor_is_the_best(sample):
    wanted, scaled, factor = matched_kernels.pair("relu", "two plain layers", sample)
    best = np.linalg.norm(wanted - scaled, 2)
    for other in (0.98, 1.02):
        assert np.linalg.norm(wanted - other * scaled, 2) > best
    assert factor > 2


def test_matched_relu_net_beats_the_controls():
    found = {n: matched_kernels.row(CELL | {"net": n}, 3)["relative"] for n in
             matched_kernels.NETS["relu"]}  # fmt: skip
    assert found["matched"] < 1e-3 < found["one plain layer"] < found["two plain layers"]


def test_design_follows_the_scale_of_the_sample(sample):
    deq = DEQ(activations.tanh, 0.2).at(sample.statistics.tau0)
    assert matched_kernels.explicit(deq, "matched").tau0 == sample.statistics.tau0
    with pytest.raises(ValueError, match="net must be one of"):
        matched_kernels.explicit(deq, "best")


def test_images_are_drawn_as_named():
    drawn = matched_kernels.draw("fashion_mnist", 40, 0, source="embedded")
    assert drawn.X.shape == (40, 784)
    with pytest.raises(ValueError, match="data must be"):
        matched_kernels.draw("noise", 40, 0, source="embedded")


def test_features_of_two_classes_are_centred_and_scaled():
    drawn = matched_kernels.draw(matched_kernels.FEATURES, 60, 4, source="full")
    assert drawn.X.shape == (60, 256)
    assert np.bincount(drawn.labels).tolist() == [30, 30]
    assert np.abs(drawn.X.mean(axis=0)).max() < 1e-12
    assert (drawn.X**2).sum(axis=1).mean() == pytest.approx(1.0, rel=1e-12)


def test_grids_hold_the_sizes_of_the_paper():
    cells = STUDIES["matched_kernels"].grids["paper"]
    assert {c["n"] for c in cells if c["data"] == "mixture"} == {400, 800, 1600}
    assert {c["n"] for c in cells if c["data"] in matched_kernels.IMAGES} == {400}
    assert all(c["source"] == "embedded" for c in matched_kernels.STUDY.grids["quick"])
