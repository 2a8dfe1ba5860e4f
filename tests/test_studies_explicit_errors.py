"""Errors of the equivalents of explicit nets."""

import numpy as np
import pytest

from implicitnn import equivalents, kernels
from implicitnn.studies import explicit_errors


@pytest.mark.parametrize(("name", "depth"), [("relu", 1), ("tanh", 4), ("mixed", 3)])
def test_a_row_is_the_dense_error(name, depth):
    settings = {"activation": name, "depth": depth, "n": 96}
    found = explicit_errors.row(settings, 2)
    sample = explicit_errors.draw(96, 2)
    spec = explicit_errors.net(name, depth, sample.statistics.tau0)
    exact = kernels.ck_and_ntk(spec, sample.X)
    gap = exact.ck - equivalents.ck(spec, sample)
    assert found["ck_absolute"] == pytest.approx(np.linalg.norm(gap, 2), rel=1e-4)
    gap = exact.ntk - equivalents.ntk(spec, sample)
    relative = np.linalg.norm(gap, 2) / np.linalg.norm(exact.ntk, 2)
    assert found["ntk_relative"] == pytest.approx(relative, rel=1e-4)
    assert explicit_errors.row(settings, 2) == found
    assert explicit_errors.row(settings, 3) != found


def test_nets_have_the_layers_they_are_named_for():
    for name, names in explicit_errors.NETS.items():
        for depth in explicit_errors.DEPTHS:
            layers = explicit_errors.net(name, depth).layers
            assert [layer.name for layer in layers] == list(names[:depth])
    assert len(set(explicit_errors.NETS["mixed"])) == 4
    with pytest.raises(ValueError, match="depth"):
        explicit_errors.net("relu", 5)
    with pytest.raises(ValueError, match="activation"):
        explicit_errors.net("sine", 1)


def test_the_paper_grid_covers_a_factor_of_16():
    cells = explicit_errors.STUDY.grids["paper"]
    sizes = [cell["n"] for cell in cells]
    assert max(sizes) / min(sizes) == 16
    assert len({(c["activation"], c["depth"], c["n"]) for c in cells}) == len(cells)
