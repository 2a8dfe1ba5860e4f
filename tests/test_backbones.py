"""The encoder whose pooled features stand for CIFAR-10."""

import hashlib
import json

import numpy as np
import pytest
import torch

from implicitnn import backbones
from implicitnn._data import registry
from implicitnn.errors import DataFileError, NotEnoughSamplesError


def test_folding_keeps_the_function_after_training_has_moved_the_statistics():
    torch.manual_seed(0)
    net = backbones.VGG(widths=(4, 6, 8))
    x = torch.randn(16, 3, 32, 32)
    for _ in range(5):
        net(3.0 * x + 1.0)
    net.eval()
    # float32 sums of at most 72 terms
    torch.testing.assert_close(backbones.fold(net)(x), net(x), rtol=1e-4, atol=1e-4)


def test_pixels_are_standardised_by_channel():
    X = np.tile(np.array(backbones.MEAN, dtype=np.float32), (2, 1024))
    assert float(backbones.standardise(X).abs().max()) < 1e-6
    X[:, 1::3] += np.float32(backbones.SPREAD[1])
    images = backbones.standardise(X)
    assert images.shape == (2, 3, 32, 32)
    torch.testing.assert_close(images[:, 1], torch.ones(2, 32, 32), rtol=1e-5, atol=1e-5)
    assert float(images[:, [0, 2]].abs().max()) < 1e-6


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="3072"):
        backbones.standardise(np.zeros((2, 784), dtype=np.float32))


def test_pixels_that_are_no_shares_of_light_are_refused():
    """Bytes from 0 to 255 would give features of nothing."""
    net = backbones.load(backbones.weights())
    for bad, words in (
        (np.full((2, 3072), 255.0, np.float32), "X must lie in"),
        (np.full((2, 3072), np.nan, np.float32), "X must lie in"),
        (np.zeros((2, 3072), np.uint8), "X must be floats"),
        (np.zeros((0, 3072), np.float32), "none empty"),
    ):
        with pytest.raises(ValueError, match=words):
            backbones.features(net, bad)
        with pytest.raises(ValueError, match=words):
            backbones.standardise(bad)


def test_features_do_not_depend_on_the_blocks_nor_on_defaults_of_torch():
    X = np.random.default_rng(0).random((7, 3072)).astype(np.float32)
    net = backbones.load(backbones.weights())
    whole = backbones.features(net, X)
    # float32 sums of up to 2304 terms, in another order
    np.testing.assert_allclose(backbones.features(net, X, 3), whole, atol=1e-5)
    torch.set_default_dtype(torch.float64)
    try:
        assert backbones.features(net, X).dtype == np.float32
    finally:
        torch.set_default_dtype(torch.float32)
    with pytest.raises(ValueError, match="block"):
        backbones.features(net, X, 0)
    with pytest.raises(ValueError, match="evaluation mode"):
        backbones.features(backbones.VGG(), X)
    with pytest.raises(ValueError, match="no batch normalisation"):
        backbones.fold(net)


def test_the_stored_weights_have_the_pinned_hash_and_half_precision():
    path = backbones.weights()
    assert path.stat().st_size < 3_000_000
    state = torch.load(path, weights_only=True)
    assert {value.dtype for value in state.values()} == {torch.float16}
    backbones.load(path)


def test_the_log_belongs_to_the_stored_weights():
    lines = (backbones.weights().with_suffix(".jsonl")).read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["sha256"] == hashlib.sha256(backbones.weights().read_bytes()).hexdigest()
    assert last["epochs"] == len(lines) - 1


def test_embedded_features_separate_the_classes_as_well_as_the_log_says():
    last = json.loads(backbones.weights().with_suffix(".jsonl").read_text().splitlines()[-1])
    data = backbones.cifar10_features("test")
    net = backbones.load(backbones.weights())
    with torch.inference_mode():
        right = net.readout(torch.from_numpy(data.X)).argmax(1).numpy() == data.y
    # 2,000 of the 8,000 images of the log: six standard deviations of a share
    share = last["test_accuracy"]
    assert abs(right.mean() - share) < 6.0 * np.sqrt(share * (1.0 - share) / 2000)


def test_embedded_features_are_balanced_and_not_more_than_there_are():
    data = backbones.cifar10_features("train")
    assert np.bincount(data.y).tolist() == [500] * 10
    assert np.bincount(backbones.cifar10_features("train", 23).y).tolist() == [3] * 3 + [2] * 7
    with pytest.raises(NotEnoughSamplesError, match="5000"):
        backbones.cifar10_features("train", 5001)
    with pytest.raises(ValueError, match="split"):
        backbones.cifar10_features("all")


def test_other_bytes_than_the_pinned_ones_are_refused(monkeypatch):
    wrong = {"weights": "0" * 64, "embedded": "0" * 64}
    monkeypatch.setattr(registry, "features", lambda: wrong)
    with pytest.raises(DataFileError, match="sha256"):
        backbones.weights()
    with pytest.raises(DataFileError, match="sha256"):
        backbones.cifar10_features("test")
