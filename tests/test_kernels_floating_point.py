"""The caller's floating-point settings and filters of warnings do not break the kernels."""

import warnings

import numpy as np
import pytest

from implicitnn import gaussian, kernels
from implicitnn.activations import get
from implicitnn.errors import AccuracyWarning, NotWellPosedError
from implicitnn.specs import DEQ, ENN

NAMES = ["tanh", "swish", "gelu", "elu", "erf", "hard_tanh(1,1)", "relu", "linear"]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e3])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_raised_where_errors_are_raised(name, scale):
    X = np.random.default_rng(1).standard_normal((8, 8)) * scale / 3
    X[0], X[1], X[3] = 0.0, X[2] * (1 + 1e-9), X[3] * 1e-6
    X[4], X[5] = 10 * X[4], -X[6]
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AccuracyWarning)
        for spec in (DEQ(get(name), 0.2, tau0=scale), ENN((get(name), get("relu")), tau0=scale)):
            for kernel in kernels.ck_and_ntk(spec, X, params="all"):
                assert np.isfinite(kernel).all()


def test_a_table_under_the_same_settings():
    X = np.random.default_rng(1).standard_normal((90, 30)) / np.sqrt(30)
    plain = kernels.ck_and_ntk(DEQ(get("swish"), 0.3), X)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        strict = kernels.ck_and_ntk(DEQ(get("swish"), 0.3, tau0=1.0), X)
    assert all((a == b).all() for a, b in zip(plain, strict, strict=True))


def test_a_diverging_iteration_is_named_under_the_same_settings():
    with np.errstate(all="raise"), pytest.raises(NotWellPosedError, match="no fixed point"):
        kernels.ck(DEQ(get("quadratic(0.1, 0.8)"), 0.2), np.array([[1.0], [14.0]]))


def test_determinant_underflows_to_the_product_of_the_variances():
    with np.errstate(all="raise"):
        assert float(gaussian.determinant(1.0, 1.0, 1e-200)) == 1.0


@pytest.mark.parametrize("name", ["relu", "elu", "tanh"])
def test_the_longest_sample_whose_norm_can_be_squared(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ck = kernels.ck(DEQ(get(name), 0.2), np.array([[1e153]]))
    assert np.isfinite(ck).all() and ck[0, 0] > 0.0
