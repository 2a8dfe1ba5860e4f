"""The study of errors on images: its samples, what its rows hold, and that it sees tails."""

import numpy as np
import pytest

from implicitnn import activations, equivalents, kernels, mixtures
from implicitnn.mixtures import GaussianMixture
from implicitnn.specs import DEQ
from implicitnn.studies import STUDIES, _images, real_errors

CELL = {
    "regime": "n grows", "dataset": "mnist", "kind": "real", "activation": "relu",
    "n": 80, "side": 28, "source": "embedded",
}  # fmt: skip


@pytest.fixture(scope="module")
def sample():
    return _images.draw("mnist", "real", 80, 5, source="embedded")


@pytest.fixture(scope="module")
def relu_row():
    return real_errors.row(CELL, 5)


@pytest.mark.parametrize("kind", _images.KINDS)
@pytest.mark.parametrize("side", [28, 14, 7])
def test_draws_are_normalised_and_balanced(kind, side):
    sample = _images.draw("fashion_mnist", kind, 61, 0, source="embedded", side=side)
    assert sample.X.shape == (61, side**2)
    assert np.abs(sample.X.mean(axis=0)).max() < 1e-12
    assert (sample.X**2).sum(axis=1).mean() == pytest.approx(1.0)
    assert sample.statistics.tau0 == pytest.approx(1.0)
    assert np.bincount(sample.labels).tolist() == [31, 30]


@pytest.mark.parametrize("kind", _images.KINDS)
def test_seed_fixes_the_draw(kind):
    first, again, other = (
        _images.draw("mnist", kind, 40, seed, source="embedded").X for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_images_are_drawn_without_replacement():
    X = _images.draw("mnist", "real", 1000, 0, source="embedded").X
    assert len(np.unique(X, axis=0)) == len(np.unique(_images.pool("mnist", "embedded")[0], axis=0))


def test_labels_belong_to_their_images():
    sample = _images.draw("mnist", "real", 1000, 0, source="embedded")
    X, y = _images.pool("mnist", "embedded")
    for k, label in enumerate(_images.CLASSES):
        drawn, all_of_class = sample.X[sample.labels == k], X[y == label]
        assert np.allclose(drawn.mean(axis=0), all_of_class.mean(axis=0), atol=1e-10)


def test_twin_has_the_moments_of_the_pool():
    X, y = _images.pool("mnist", "embedded", 7)
    twin = _images.twin("mnist", "embedded", 7)
    assert twin.weights.tolist() == [0.5, 0.5]
    for k, label in enumerate(_images.CLASSES):
        rows = X[y == label]
        assert np.allclose(twin.means[k], 7 * rows.mean(axis=0))
        assert np.allclose(twin.covariances[k], 49 * np.cov(rows.T))


def test_bad_draws_are_refused():
    with pytest.raises(ValueError, match="kind must be one of"):
        _images.draw("mnist", "imaginary", 10, 0, source="embedded")
    with pytest.raises(ValueError, match="source must be one of"):
        _images.draw("mnist", "real", 10, 0, source="elsewhere")
    with pytest.raises(ValueError, match="500 images, 501 were asked for"):
        _images.draw("mnist", "real", 1002, 0, source="embedded")
    with pytest.raises(ValueError, match="side must divide 28, got 9"):
        _images.draw("mnist", "real", 10, 0, source="embedded", side=9)


def test_pool_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        _images.pool("mnist", "embedded")[0][0, 0] = 1.0


def test_block_means_average_the_blocks():
    image = np.arange(16.0).reshape(1, 16)
    assert _images.block_means(image, 2).tolist() == [[2.5, 4.5, 10.5, 12.5]]
    assert np.array_equal(_images.block_means(image, 4), image)


def test_row_equals_a_dense_computation(sample, relu_row):
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    for name, exact, equivalent in [
        ("ck", kernels.ck(spec, sample.X), equivalents.ck(spec, sample)),
        ("ntk", kernels.ntk(spec, sample.X), equivalents.ntk(spec, sample)),
    ]:
        norm = np.abs(np.linalg.eigvalsh(exact)).max()
        error = np.abs(np.linalg.eigvalsh(exact - equivalent)).max()
        assert relu_row[f"{name}_absolute"] == pytest.approx(error, rel=1e-6)
        assert relu_row[f"{name}_relative"] == pytest.approx(error / norm, rel=1e-6)
        if name == "ck":
            largest = np.abs(np.diag(exact - equivalent)).max()
            assert relu_row["diagonal_part"] == pytest.approx(largest, rel=1e-9)


def test_parts_make_up_the_error(sample, relu_row):
    """G minus Gbar off the diagonal is the square part, the remainder and a change of rank two."""
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    scalars, s = equivalents.coefficients(spec), sample.statistics
    chi = (sample.X**2).sum(axis=1) - s.tau0**2
    proxy = s.psi + s.J @ s.t / np.sqrt(sample.X.shape[1])
    change = scalars.alpha2 * np.linalg.norm(np.outer(chi, chi) - np.outer(proxy, proxy), 2)
    whole = relu_row["square_part"] + relu_row["remainder_part"] + relu_row["diagonal_part"]
    # Leaving out a diagonal at most doubles a norm.
    assert relu_row["ck_absolute"] <= whole + 2 * change
    assert relu_row["ck_absolute"] >= relu_row["diagonal_part"]


def test_odd_activation_has_no_square_part():
    row = real_errors.row(CELL | {"activation": "tanh"}, 5)
    assert row["square_part"] < 1e-12
    assert row["remainder_part"] > 0.5 * row["ck_absolute"]


@pytest.mark.parametrize("axes", [40, 400])
def test_moments_of_equal_axes(axes):
    diagonal = np.where(np.arange(400) < axes, 400 / axes, 0.0)
    mixture = GaussianMixture(np.zeros((2, 400)), [diagonal, diagonal], [0.5, 0.5])
    found = real_errors.moments(mixture.sample(1000, 0))
    assert found["effective_dimension"] == pytest.approx(axes, rel=0.05)
    # E (u.v)^4 / (E (u.v)^2)^2 for independent standard Gaussian vectors in d dimensions.
    assert found["product_kurtosis"] == pytest.approx(3 + 6 / axes, rel=0.05)
    assert found["psi_deviation"] == pytest.approx(np.sqrt(2 / axes), rel=0.1)
    assert found["psi_largest"] > 2 * found["psi_deviation"]


def test_leading_share_of_a_spike():
    diagonal = np.r_[50.0, np.full(199, 150 / 199)]
    mixture = GaussianMixture(np.zeros((1, 200)), [diagonal], [1.0])
    found = real_errors.moments(mixture.sample(2000, 0))
    assert found["leading_share"] == pytest.approx(0.25, rel=0.1)


def test_images_stay_far_from_the_equivalent_and_the_mixture_does_not():
    errors = {n: real_errors.row(CELL | {"n": n}, 0)["ck_relative"] for n in (64, 512)}
    drawn = mixtures.benchmark(640, mean=1.0).sample(512, 0)
    spec = DEQ(activations.relu, 0.2).at(drawn.statistics.tau0)
    assert errors[512] > 0.5 * errors[64]
    assert errors[512] > 2 * real_errors.errors(spec, drawn)["ck_relative"]


def test_grids_cover_the_declared_range():
    cells = [c for c in real_errors.STUDY.grids["paper"] if c["regime"] == "n grows"]
    for name, span in [("relu", 64), ("tanh", 32)]:
        sizes = {c["n"] for c in cells if c["activation"] == name}
        assert max(sizes) == span * min(sizes)
    assert all(c["source"] == "embedded" for c in real_errors.STUDY.grids["quick"])
    finer = [c for c in real_errors.STUDY.grids["paper"] if c["regime"] == "finer images"]
    assert all(abs(c["n"] - 0.8 * c["side"] ** 2) < 1 for c in finer)
    assert STUDIES["real_errors"] is real_errors.STUDY
