"""The study of universality: three samples of one pair of moments, and what its rows hold."""

import numpy as np
import pytest

from implicitnn import activations, equivalents, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import STUDIES, universality

CELL = {"dataset": "mnist", "pair": "6 8", "activation": "tanh", "n": 80}


@pytest.mark.parametrize("kind", universality.KINDS)
def test_samples_are_normalised_and_balanced(kind):
    sample = universality.draw("mnist", "6 8", kind, 61, 0)
    assert np.abs(sample.X.mean(axis=0)).max() < 1e-12
    assert (sample.X**2).sum(axis=1).mean() == pytest.approx(1.0)
    assert np.bincount(sample.labels).tolist() == [31, 30]
    again = universality.draw.__wrapped__("mnist", "6 8", kind, 61, 0)
    assert np.array_equal(sample.X, again.X)
    assert not np.array_equal(sample.X, universality.draw("mnist", "6 8", kind, 61, 1).X)


def test_rotated_pool_has_the_moments_of_the_images_exactly():
    images = universality.pool("mnist", "6 8")[0]
    rotated = universality._drawn(images, "rotated", len(images), np.random.default_rng(0))
    assert np.allclose(rotated.mean(axis=0), images.mean(axis=0), atol=1e-12)
    assert np.allclose(np.cov(rotated.T), np.cov(images.T), atol=1e-12)
    assert not np.allclose(rotated, images, atol=1e-2)


def test_twin_has_the_covariance_in_the_mean():
    images = universality.pool("mnist", "6 8")[0][:, 300:310]
    rng = np.random.default_rng(1)
    drawn = [universality._drawn(images, "twin", 500, rng) for _ in range(40)]
    spread = np.cov(np.concatenate(drawn).T)
    assert np.abs(spread - np.cov(images.T)).max() < 0.05 * np.abs(np.cov(images.T)).max()


def test_real_samples_are_images():
    first = universality.pool("fashion_mnist", "0 1")[0]
    drawn = universality._drawn(first, "real", 20, np.random.default_rng(2))
    assert all((first == row).all(axis=1).any() for row in drawn)
    with pytest.raises(ValueError, match="500 images, 501 were asked for"):
        universality._drawn(first, "real", 501, np.random.default_rng(2))


def test_rotation_is_uniform_on_average():
    rng = np.random.default_rng(3)
    mean = np.mean([universality.rotation(5, rng) for _ in range(3000)], axis=0)
    assert np.abs(mean - 0.2).max() < 0.05


@pytest.mark.parametrize("law, expected", [("gaussian", 5.1623), ("signs", 0.0)])
def test_tail_of_known_coordinates(law, expected):
    rng = np.random.default_rng(4)
    a = rng.standard_normal(200_000) if law == "gaussian" else rng.choice([-1.0, 1.0], 2000)
    m4, m6 = (a**4).mean() / (a**2).mean() ** 2, (a**6).mean() / (a**2).mean() ** 3
    assert np.sqrt(max(m6 - 2 * m4 + 1, 0)) + m4 - 1 == pytest.approx(expected, abs=0.1)
    X = a[:2000, None] * np.array([[1.0, 0.0, 0.0]])
    m4, m6 = ((a[:2000] ** k).mean() / (a[:2000] ** 2).mean() ** (k / 2) for k in (4, 6))
    direct = np.sqrt(max(m6 - 2 * m4 + 1, 0)) + m4 - 1
    assert universality.tail(X) == pytest.approx(direct, rel=1e-6, abs=1e-6)


def test_row_equals_a_dense_computation():
    found = universality.row(CELL, 5)
    values = {}
    for kind in universality.KINDS:
        sample = universality.draw("mnist", "6 8", kind, 80, 5)
        spec = DEQ(activations.tanh, 0.2).at(sample.statistics.tau0)
        exact = kernels.ck(spec, sample.X)
        gap = exact - equivalents.ck(spec, sample)
        error = np.linalg.norm(gap, 2) / np.linalg.norm(exact, 2)
        assert found[f"error_{kind}"] == pytest.approx(error, rel=1e-5)
        values[kind] = np.linalg.eigvalsh(exact)
    for name, kind in [("distance", "real"), ("distance_control", "rotated")]:
        gap = np.abs(values[kind] - values["twin"]).mean() / values[kind].mean()
        assert found[name] == pytest.approx(gap, rel=1e-5)
    assert found["error_ratio"] == pytest.approx(found["error_real"] / found["error_twin"])
    assert found["matched"] < 0.05


def test_grid_uses_the_embedded_pool():
    cells = STUDIES["universality"].grids["paper"]
    assert {c["n"] for c in cells} == {400}
    assert {c["pair"] for c in cells} == set(universality.PAIRS)
