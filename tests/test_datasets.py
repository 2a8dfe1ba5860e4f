"""Data sets: the embedded samples, readers, places, selection, and verified downloads."""

import gzip
import hashlib
import http.server
import importlib.util
import io
import json
import os
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from implicitnn import datasets
from implicitnn._data import download as _download
from implicitnn._data import inventory as _inventory
from implicitnn._data import locate as _locate
from implicitnn._data import matlab as _matlab
from implicitnn._data import readers as _readers
from implicitnn._data import registry as _registry
from implicitnn._data.registry import RemoteFile
from implicitnn.errors import (
    DataFileError,
    DataNotFoundError,
    DownloadError,
    NotEnoughSamplesError,
)

ROOT = Path(__file__).resolve().parents[1]
EMBEDDED = ("mnist", "fashion_mnist")
SIZES = {"train": 5000, "test": 2000}
REGISTRY = json.loads((ROOT / "data" / "registry.json").read_text(encoding="utf-8"))
FULL = os.environ.get("IMPLICITNN_DATA")


def full_sets() -> list[str]:
    """Embedded names whose full set lies in the reader's folder."""
    if not FULL:
        return []
    sources = _registry.registry().datasets
    return [name for name in EMBEDDED if _locate.find(sources[name], "train", Path(FULL))]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder for $IMPLICITNN_DATA, beside an empty cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("IMPLICITNN_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def pictures(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def write_idx(folder, split, x, y, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    prefix = {"train": "train", "test": "t10k"}[split]
    for name, array in (("images-idx3", x), ("labels-idx1", y)):
        raw = _readers.idx_bytes(np.asarray(array, dtype=np.uint8))
        path = folder / f"{prefix}-{name}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(raw) if packed else raw)


def write_npz(path, split, x, y, **more):
    np.savez_compressed(path, **{f"x_{split}": x, f"y_{split}": y}, **more)


# The embedded samples


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("split", SIZES)
def test_embedded_sample_is_balanced_and_in_range(name, split):
    data = datasets.load(name, split)
    assert data.X.shape == (SIZES[split], 784)
    assert data.X.dtype == np.float32
    assert data.y.dtype == np.int64
    assert data.X.min() == 0
    assert data.X.max() == 1
    assert np.bincount(data.y).tolist() == [SIZES[split] // 10] * 10
    assert data.images.shape == (SIZES[split], 28, 28)
    assert data.provenance.place == "embedded"


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_files_have_the_registered_hash(name):
    entry = REGISTRY["embedded"][name]
    raw = (ROOT / "data" / "embedded" / entry["file"]).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == entry["sha256"]
    assert len(raw) == entry["bytes"]


def test_embedded_files_are_small():
    assert sum(entry["bytes"] for entry in REGISTRY["embedded"].values()) < 5_000_000


def test_embedded_pixels_have_the_known_mean():
    """Means of the training sets, pixels over 255: 0.1307 and 0.2860, as widely published."""
    assert datasets.load("mnist", "train").X.mean() == pytest.approx(0.1307, abs=0.003)
    assert datasets.load("fashion_mnist", "train").X.mean() == pytest.approx(0.2860, abs=0.005)


def check_part_of_full_set(name: str) -> None:
    with np.load(ROOT / "data" / "embedded" / f"{name}.npz") as sample:
        for split in SIZES:
            full = datasets.load(name, split, tier="paper")
            assert full.provenance.check == "pinned"
            rows = sample[f"row_{split}"]
            assert (np.diff(rows) > 0).all()
            pixels = np.float32(sample[f"x_{split}"].reshape(len(rows), -1)) / np.float32(255)
            assert np.array_equal(full.X[rows], pixels)
            assert np.array_equal(full.y[rows], sample[f"y_{split}"])


if names := full_sets():
    # Without a folder of full sets there is nothing to compare with, so no test is made.
    @pytest.mark.parametrize("name", names)
    def test_embedded_sample_is_part_of_the_full_set(name):
        check_part_of_full_set(name)


def test_two_loads_are_equal_and_read_only():
    first, second = (datasets.load("mnist", "test", n=30) for _ in range(2))
    assert first.provenance == second.provenance
    assert np.array_equal(first.X, second.X)
    with pytest.raises(ValueError, match="read-only"):
        first.X[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        first.y[0] = 1


def test_provenance_hash_is_that_of_the_arrays():
    data = datasets.load("mnist", "test", n=20)
    raw = data.X.astype("<f4").tobytes() + data.y.astype("<i8").tobytes()
    assert data.provenance.data_sha256 == hashlib.sha256(raw).hexdigest()


def test_quick_ignores_the_environment(place):
    before = datasets.load("mnist", "test")
    write_idx(place / "mnist", "test", pictures(20, 28, 28), np.arange(20) % 10)
    assert datasets.load("mnist", "test").provenance == before.provenance
    assert datasets.load("mnist", "test", tier="paper").X.shape == (20, 784)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn"])
def test_quick_without_a_sample_says_what_to_do(name):
    with pytest.raises(DataNotFoundError, match=r"no embedded sample.*tier='paper'"):
        datasets.load(name, "train")


@pytest.fixture
def copied_project(tmp_path, monkeypatch):
    """Return a project folder with its own registry and samples."""
    shutil.copytree(ROOT / "data" / "embedded", tmp_path / "data" / "embedded")
    shutil.copy(ROOT / "data" / "registry.json", tmp_path / "data")
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    return tmp_path


def test_changed_sample_is_refused(copied_project):
    path = copied_project / "data" / "embedded" / "mnist.npz"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataFileError, match=r"mnist\.npz has sha256 .*`git checkout"):
        datasets.load("mnist", "test")


def test_missing_sample_is_named(copied_project):
    (copied_project / "data" / "embedded" / "mnist.npz").unlink()
    with pytest.raises(DataNotFoundError, match=r"mnist\.npz is missing.*git checkout"):
        datasets.load("mnist", "test")


def test_missing_registry_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"registry\.json.*pip install -e"):
        datasets.load("mnist", "test")


@pytest.fixture(scope="module")
def script():
    """Return data/make_embedded.py as a module."""
    spec = importlib.util.spec_from_file_location("make_embedded", ROOT / "data/make_embedded.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_writes_the_same_bytes_twice(script, tmp_path):
    x, y, rows = pictures(40, 28, 28), np.arange(40, dtype=np.uint8) % 10, np.arange(40, 80)
    splits = {"train": script.balanced(x, y, rows.astype(np.int32), 20)}
    for name in ("a.npz", "b.npz"):
        script.write(tmp_path / name, splits)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as made:
        assert np.array_equal(made["x_train"], x[:20])
        assert np.array_equal(made["y_train"], y[:20])
        assert made["row_train"].tolist() == list(range(40, 60))


# Selection


def test_classes_keep_their_labels_and_order():
    everything = datasets.load("mnist", "test")
    data = datasets.load("mnist", "test", classes=[8, 3])
    assert set(data.y.tolist()) == {3, 8}
    kept = np.isin(everything.y, [3, 8])
    assert np.array_equal(data.X, everything.X[kept])
    assert np.array_equal(data.y, everything.y[kept])


@pytest.mark.parametrize(
    ("n", "classes", "counts"),
    [
        (7, [2, 5, 9], {2: 3, 5: 2, 9: 2}),
        (8, [9, 5, 2], {2: 3, 5: 3, 9: 2}),
        (2, [2, 5, 9], {2: 1, 5: 1}),
        (600, [2, 5, 9], {2: 200, 5: 200, 9: 200}),
    ],
)
def test_n_is_shared_among_the_classes(n, classes, counts):
    everything = datasets.load("mnist", "test")
    data = datasets.load("mnist", "test", n=n, classes=classes)
    assert {label: int((data.y == label).sum()) for label in counts} == counts
    assert len(data.y) == n
    rows = np.sort(
        np.concatenate([np.flatnonzero(everything.y == k)[:m] for k, m in counts.items()])
    )
    assert np.array_equal(data.X, everything.X[rows])


def test_more_than_there_are_fails_naming_the_class():
    with pytest.raises(NotEnoughSamplesError, match=r"200 images of class 2.*largest n is 600"):
        datasets.load("mnist", "test", n=601, classes=[2, 5, 9])


def test_largest_n_is_reached_with_unequal_classes(place):
    y = np.array([0] * 5 + [1] * 3 + [2] * 4)
    write_npz(place / "mnist.npz", "train", pictures(12, 28, 28), y)
    data = datasets.load("mnist", "train", n=10, classes=[0, 1, 2], tier="paper")
    assert np.bincount(data.y).tolist() == [4, 3, 3]
    with pytest.raises(NotEnoughSamplesError, match=r"class 1.*largest n is 10"):
        datasets.load("mnist", "train", n=11, classes=[0, 1, 2], tier="paper")
    with pytest.raises(NotEnoughSamplesError, match="no image of the classes"):
        datasets.load("mnist", "train", classes=[7], tier="paper")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("emnist", "train"), ValueError, "name must be one of 'mnist'"),
        (("mnist", "valid"), ValueError, "split must be one of 'train', 'test'; got 'valid'"),
        (("mnist", "train", 0), ValueError, "n must be at least 1, got 0"),
        (("mnist", "train", 2.0), TypeError, r"n must be an integer, got 2\.0"),
        (("mnist", "train", True), TypeError, "n must be an integer, got True"),
        (("mnist", "train", 2, []), ValueError, "at least one label"),
        (("mnist", "train", 2, [3, 3]), ValueError, r"distinct labels in 0\.\.9.*\[3, 3\]"),
        (("mnist", "train", 2, [10]), ValueError, r"0\.\.9 for mnist, got \[10\]"),
        (("mnist", "train", 2, [-1]), ValueError, "classes must be at least 0, got -1"),
        (("mnist", "train", 2, 3), TypeError, "classes must be a sequence of labels, got 3"),
        (("mnist", "train", 2, "38"), TypeError, "each of classes must be an integer, got '3'"),
        (("mnist", "train", 2, None, "full"), ValueError, "tier must be one of 'quick', 'paper'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        datasets.load(*arguments)


# Readers


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_idx_files_round_trip(place, packed, folder):
    x, y = pictures(12, 28, 28), np.arange(12) % 10
    write_idx(place / folder, "train", x, y, packed)
    data = datasets.load("mnist", "train", tier="paper")
    assert np.array_equal(data.X, np.float32(x.reshape(12, -1)) / np.float32(255))
    assert np.array_equal(data.y, y)
    assert data.provenance.place == "folder"
    assert data.provenance.check == "differs"


def test_idx_bytes_are_those_of_the_format():
    raw = _readers.idx_bytes(np.array([[[1, 2]]], dtype=np.uint8))
    assert raw == bytes.fromhex("00000803 00000001 00000001 00000002 0102")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no IDX file.*magic number 0"),
        (b"\0\0\x08", "no IDX file"),
        (bytes.fromhex("00000d03") + bytes(12), "magic number 3331, expected 2049"),
        (bytes.fromhex("00000803 00000001"), "ends within its header: 8 bytes of 16"),
        (
            bytes.fromhex("00000803 00000002 0000001c 0000001c") + bytes(1567),
            r"1583 bytes; its header announces shape \(2, 28, 28\), 1584 bytes",
        ),
        (
            bytes.fromhex("00000803 ffffffff ffffffff ffffffff") + bytes(9),
            "25 bytes; its header announces",
        ),
        (
            bytes.fromhex("00000803 80000000 80000000 00000004"),
            r"\(2147483648, 2147483648, 4\), 18446744073709551632 bytes",
        ),
    ],
)
def test_broken_idx_is_explained(tmp_path, raw, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(raw)
    with pytest.raises(DataFileError, match=message) as error:
        _readers.idx(path)
    assert str(path) in str(error.value)


def test_truncated_gzip_is_explained(place):
    write_idx(place / "mnist", "test", pictures(20, 28, 28), np.arange(20) % 10)
    path = place / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataFileError, match=r"idx3-ubyte\.gz cannot be unpacked.*fetch it again"):
        datasets.load("mnist", "test", tier="paper")
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataFileError, match="cannot be unpacked"):
        datasets.load("mnist", "test", tier="paper")


def test_images_and_labels_must_be_equally_many(place):
    write_idx(place / "mnist", "test", pictures(20, 28, 28), np.arange(19) % 10)
    with pytest.raises(DataFileError, match="20 images but 19 labels"):
        datasets.load("mnist", "test", tier="paper")


def cifar_records(x, *labels):
    """Bytes of CIFAR's binary version, written one record at a time."""
    planes = [image.transpose(2, 0, 1).tobytes() for image in x]
    columns = zip(*labels, planes, strict=True)
    return b"".join(bytes(map(int, ls)) + plane for *ls, plane in columns)


def write_tar(path, folder, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in members.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("form", ["bin", "nested", "archive"])
def test_cifar10_binary(place, form):
    x, y = pictures(20, 32, 32, 3), np.arange(20) % 10
    parts = {
        f"data_batch_{i}.bin": cifar_records(x[4 * i - 4 : 4 * i], y[4 * i - 4 : 4 * i])
        for i in range(1, 6)
    }
    parts["test_batch.bin"] = cifar_records(x[:3], y[:3])
    if form == "archive":
        # The members are in another order than the batches.
        shuffled = dict(sorted(parts.items(), reverse=True))
        write_tar(place / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", shuffled)
    else:
        folder = place / ("." if form == "bin" else "cifar10/cifar-10-batches-bin")
        folder.mkdir(parents=True, exist_ok=True)
        for name, raw in parts.items():
            (folder / name).write_bytes(raw)
    data = datasets.load("cifar10", "train", tier="paper")
    assert np.array_equal(data.images, np.float32(x) / np.float32(255))
    assert np.array_equal(data.y, y)
    assert len(datasets.load("cifar10", "test", tier="paper").y) == 3


def test_cifar100_takes_the_fine_label(place):
    x, fine, coarse = pictures(5, 32, 32, 3), [99, 3, 50, 20, 7], [1, 2, 3, 4, 5]
    raw = cifar_records(x, coarse, fine)
    write_tar(place / "cifar-100-binary.tar.gz", "cifar-100-binary", {"train.bin": raw})
    data = datasets.load("cifar100", "train", tier="paper")
    assert data.y.tolist() == fine
    assert np.array_equal(data.images[4], np.float32(x[4]) / np.float32(255))
    with pytest.raises(DataFileError, match=r"tar\.gz has no member named test\.bin"):
        datasets.load("cifar100", "test", tier="paper")


def test_truncated_cifar_is_explained(place):
    raw = cifar_records(pictures(2, 32, 32, 3), [1, 2])
    (place / "test_batch.bin").write_bytes(raw[:-1])
    with pytest.raises(DataFileError, match=r"6145 bytes, expected a positive multiple of 3073"):
        datasets.load("cifar10", "test", tier="paper")
    write_tar(place / "cifar-100-binary.tar.gz", "x", {"test.bin": raw})
    path = place / "cifar-100-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataFileError, match=r"tar\.gz cannot be unpacked"):
        datasets.load("cifar100", "test", tier="paper")


def test_svhn_zero_is_label_zero(place):
    x, y = pictures(6, 32, 32, 3), np.array([10, 1, 9, 10, 5, 2], dtype=np.uint8)
    savemat(place / "train_32x32.mat", {"X": x.transpose(1, 2, 3, 0), "y": y[:, None]})
    data = datasets.load("svhn", "train", tier="paper")
    assert data.y.tolist() == [0, 1, 9, 0, 5, 2]
    assert np.array_equal(data.images, np.float32(x) / np.float32(255))


def test_broken_svhn_is_explained(place):
    path = place / "test_32x32.mat"
    savemat(path, {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))})
    with pytest.raises(DataFileError, match="dtype float64"):
        datasets.load("svhn", "test", tier="paper")
    savemat(path, {"X": pictures(32, 32, 3, 2)})
    with pytest.raises(DataFileError, match="no variable y"):
        datasets.load("svhn", "test", tier="paper")
    savemat(path, {"X": pictures(32, 32, 3, 2), "y": np.ones((2, 1), np.uint8)})
    for raw in (path.read_bytes()[:3000], b"", b"<html>", bytes(300)):
        path.write_bytes(raw)
        with pytest.raises(DataFileError, match="cannot be read as a MATLAB 5 file"):
            datasets.load("svhn", "test", tier="paper")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_matlab_arrays_are_those_of_scipy(dtype, packed):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    file = io.BytesIO()
    savemat(file, {"a": array, "name_longer_than_four": array[0]}, do_compression=packed)
    found = _matlab.read(file.getvalue(), 10**6)
    expected = loadmat(file)
    for name in ("a", "name_longer_than_four"):
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (None, {"a": 1}, "y is a struct array; expected integer labels"),
        (None, np.array([[1], ["two"]], dtype=object), "y is a cell array"),
        (None, "12", "y is a char array"),
        (None, np.ones((2, 1)), r"y is of dtype float64, shape \(2, 1\)"),
        (None, np.ones((2, 2), np.uint8), r"y is of dtype uint8, shape \(2, 2\)"),
        (None, np.ones((3, 1), np.uint8), "2 images but 3 labels"),
        (None, np.ones((2, 1)) * 1j, "y is a complex array"),
        (np.zeros((2, 3), np.uint8), None, r"X is of dtype uint8, shape \(2, 3\)"),
        ({"a": 1}, None, "X is a struct array; expected uint8"),
    ],
)
def test_strange_variables_of_svhn_are_named(place, x, y, message):
    path = place / "test_32x32.mat"
    x = pictures(32, 32, 3, 2) if x is None else x
    savemat(path, {"X": x, "y": np.ones((2, 1), np.uint8) if y is None else y})
    with pytest.raises(DataFileError, match=message) as error:
        datasets.load("svhn", "test", tier="paper")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("packed", [False, True])
def test_no_damage_to_a_matlab_file_escapes(place, packed):
    """Each 4-byte word of the head in turn becomes small, large, or negative."""
    path = place / "test_32x32.mat"
    x, y = pictures(32, 32, 3, 2), np.ones((2, 1), np.uint8)
    savemat(path, {"X": x, "y": y}, do_compression=packed)
    raw = path.read_bytes()
    refused = 0
    for start in range(124, 240, 4):
        for word in (b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x0e\0\0\0"):
            path.write_bytes(raw[:start] + word + raw[start + 4 :])
            try:
                datasets.load("svhn", "test", tier="paper")
            except DataFileError as error:
                assert str(path) in str(error)
                refused += 1
    assert refused > 20
    for end in range(0, len(raw), 97):
        path.write_bytes(raw[:end])
        with pytest.raises(DataFileError, match=r"test_32x32\.mat"):
            datasets.load("svhn", "test", tier="paper")


def npy(shape, descr="'|u1'", data=b""):
    """Bytes of an npy file whose header says what it likes."""
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head + data


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (npy("(1000000000000, 28, 28)"), r"announces shape \(1000000000000, 28, 28\) of uint8"),
        (npy("(4294967296, 4294967296, 4294967296)", data=b"12"), "but the archive holds 2"),
        (npy("(-1, 28, 28)", data=bytes(784)), r"announces shape \(-1, 28, 28\)"),
        (npy("(1, 28, 28)", data=bytes(700)), "784 bytes, but the archive holds 700"),
        (npy("(1, 28, 28)", "'|O'", bytes(6272)), "cannot be read without unpickling"),
        (npy("(1, 28, 28", data=bytes(784)), "has no npy header there"),
        (npy("(1, 28, 28)", "'|q9'", bytes(784)), "has no npy header there"),
        (b"\x93NUMPY\x09\0" + bytes(100), "has no npy header there"),
        (b"", "has no npy header there"),
    ],
)
def test_npz_headers_that_lie_are_named_before_anything_is_allocated(place, raw, message):
    with zipfile.ZipFile(place / "mnist.npz", "w") as archive:
        archive.writestr("x_train.npy", raw)
        archive.writestr("y_train.npy", npy("(1,)", "'|u1'", b"3"))
    with pytest.raises(DataFileError, match=message) as error:
        datasets.load("mnist", "train", tier="paper")
    assert "mnist.npz" in str(error.value)
    assert "x_train" in str(error.value)


def test_npz_members_that_are_no_arrays_are_passed_over(place):
    with zipfile.ZipFile(place / "mnist.npz", "w") as archive:
        archive.writestr("x_train", b"not an array")
        archive.writestr("x_train.npy", npy("(1, 28, 28)", data=bytes(784)))
        archive.writestr("y_train.npy", npy("(1,)", data=b"\3"))
    assert datasets.load("mnist", "train", tier="paper").y.tolist() == [3]


def test_damaged_npz_members_are_named(place):
    path = place / "mnist.npz"
    write_npz(path, "train", pictures(20, 28, 28), np.arange(20) % 10)
    raw = path.read_bytes()
    for place_of_damage in (30, 100, len(raw) // 2, len(raw) - 60, len(raw) - 30):
        damaged = bytearray(raw)
        damaged[place_of_damage : place_of_damage + 4] = b"\xff\xff\xff\xff"
        path.write_bytes(damaged)
        with pytest.raises(DataFileError, match=r"mnist\.npz"):
            datasets.load("mnist", "train", tier="paper")


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_readers, "_LARGEST", 10**6)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(5 * 10**6)))
    with pytest.raises(DataFileError, match="holds more than 1000000 bytes"):
        _readers.idx(path)


def test_a_member_of_an_archive_that_lies_about_its_size_is_refused(tmp_path):
    member = tarfile.TarInfo("test_batch.bin")
    member.size = 8 * 2**30 - 1
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(gzip.compress(member.tobuf() + bytes(5000)))
    with pytest.raises(DataFileError, match=r"cifar\.tar\.gz"):
        _readers.tar_members(path, ["test_batch.bin"])


@pytest.mark.parametrize("named", ["~no_such_user/data", "x" * 5000])
def test_folders_that_cannot_be_looked_up_are_named(monkeypatch, named):
    monkeypatch.setenv("IMPLICITNN_DATA", named)
    with pytest.raises(DataNotFoundError, match="is not a folder"):
        datasets.load("mnist", "train", tier="paper")


def test_npz_files_are_joined_and_lossy_rows_dropped(place):
    x, y = pictures(9, 32, 32, 3), np.arange(9, dtype=np.uint8)
    write_npz(place / "cifar10_b.npz", "train", x[5:], y[5:])
    write_npz(place / "cifar10_a.npz", "train", x[:5], y[:5], jpeg_train=np.array([1, 4]))
    write_npz(place / "cifar10_test.npz", "test", x[:2], y[:2])
    write_npz(place / "cifar100.npz", "train", x[:1], y[:1])
    data = datasets.load("cifar10", "train", tier="paper")
    assert data.y.tolist() == [0, 2, 3, 5, 6, 7, 8]
    assert np.array_equal(data.images, np.float32(np.delete(x, [1, 4], axis=0)) / np.float32(255))
    assert [name for name, _ in data.provenance.files] == ["cifar10_a.npz", "cifar10_b.npz"]
    assert data.provenance.check == "unknown"
    assert len(datasets.load("cifar100", "train", tier="paper").y) == 1


def test_official_files_come_before_npz(place):
    write_npz(place / "mnist.npz", "train", pictures(3, 28, 28), np.arange(3))
    write_idx(place / "mnist", "train", pictures(4, 28, 28), np.arange(4))
    assert len(datasets.load("mnist", "train", tier="paper").y) == 4


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": np.zeros((2, 28, 28)), "y_train": np.zeros(2, int)}, "dtype float64"),
        ({"x_train": pictures(2, 28, 28)}, "no array y_train; it holds x_train"),
        ({"x_train": pictures(2, 28, 28), "y_train": np.zeros(3, int)}, "2 images but 3 labels"),
        ({"x_train": pictures(2, 28, 28), "y_train": np.zeros(2)}, "labels must be one axis"),
        ({"x_train": pictures(2, 784), "y_train": np.zeros(2, int)}, r"got \(2, 784\)"),
        ({"x_train": pictures(2, 27, 28), "y_train": np.zeros(2, int)}, r"found \(27, 28\)"),
        ({"x_train": pictures(2, 28, 28), "y_train": np.array([1, 10])}, r"0\.\.9, found 1\.\.10"),
        (
            {
                "x_train": pictures(2, 28, 28),
                "y_train": np.zeros(2, int),
                "jpeg_train": np.array([2]),
            },
            r"jpeg_train must list rows 0\.\.1",
        ),
        (
            {"x_train": pictures(2, 28, 28), "y_train": np.array([{}, {}], dtype=object)},
            "cannot be read without unpickling",
        ),
    ],
)
def test_wrong_npz_is_explained(place, arrays, message):
    np.savez(place / "mnist.npz", **arrays)
    with pytest.raises(DataFileError, match=message) as error:
        datasets.load("mnist", "train", tier="paper")
    assert "mnist.npz" in str(error.value)


def test_npz_that_is_no_archive_is_explained(place):
    (place / "mnist.npz").write_bytes(b"PK nothing")
    with pytest.raises(DataFileError, match=r"mnist\.npz cannot be unpacked"):
        datasets.load("mnist", "train", tier="paper")


def test_copies_beyond_the_official_number_are_refused(place):
    zeros = np.zeros((60_000, 28, 28), np.uint8)
    write_npz(place / "mnist.npz", "train", zeros, np.zeros(60_000, int))
    write_npz(place / "mnist_copy.npz", "train", zeros[:1], np.zeros(1, int))
    with pytest.raises(DataFileError, match=r"60001 images together.*60000.*remove the copies"):
        datasets.load("mnist", "train", tier="paper")


def test_folder_that_is_none_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("IMPLICITNN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataNotFoundError, match=r"nowhere is not a folder.*unset it"):
        datasets.load("mnist", "train", tier="paper")


# Downloads, from a server on this machine


class Server(http.server.ThreadingHTTPServer):
    """Serves `contents`; answers the first `failures` requests with 503; counts requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents: dict[str, bytes] = {}
        self.failures = 0
        self.requests: list[str] = []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        raw = self.server.contents.get(self.path)
        if len(self.server.requests) <= self.server.failures:
            self.send_error(503)
        elif raw is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(raw, *urls, name="file.bin"):
    digest = hashlib.sha256(raw).hexdigest()
    return RemoteFile(name, urls, len(raw), digest, "the test", True)


def test_download_is_kept_and_not_repeated(server, tmp_path, capsys):
    server.contents["/a"] = b"right"
    file = remote(b"right", f"{server.address}/a")
    path = _download.fetch(file, tmp_path)
    assert path.read_bytes() == b"right"
    assert "100%" in capsys.readouterr().err
    _download.fetch(file, tmp_path)
    assert server.requests == ["/a"]


def test_damaged_copy_is_downloaded_again(server, tmp_path):
    server.contents["/a"] = b"right"
    (tmp_path / "file.bin").write_bytes(b"wrong")
    path = _download.fetch(remote(b"right", f"{server.address}/a"), tmp_path)
    assert path.read_bytes() == b"right"


def test_failed_first_response_is_retried(server, tmp_path):
    server.contents["/a"] = b"right"
    server.failures = 1
    _download.fetch(remote(b"right", f"{server.address}/a"), tmp_path, retries=1)
    assert server.requests == ["/a", "/a"]


def test_second_mirror_serves_when_the_first_is_wrong(server, tmp_path):
    server.contents.update({"/a": b"wrong", "/b": b"right"})
    file = remote(b"right", f"{server.address}/a", f"{server.address}/b")
    assert _download.fetch(file, tmp_path, retries=0).read_bytes() == b"right"
    assert server.requests == ["/a", "/b"]


def test_wrong_hash_is_refused_and_not_kept(server, tmp_path):
    server.contents["/a"] = b"wrong"
    file = remote(b"right", f"{server.address}/a", f"{server.address}/missing")
    with pytest.raises(DownloadError) as error:
        _download.fetch(file, tmp_path, retries=0)
    message = str(error.value)
    assert file.sha256 in message
    assert "hash" in message
    assert "404" in message
    assert not list(tmp_path.iterdir())


@pytest.fixture
def served_mnist(server, place, copied_project):
    """A registry whose MNIST is a small set on the local server."""
    write_idx(copied_project / "served", "train", pictures(12, 28, 28), np.arange(12) % 10)
    write_idx(copied_project / "served", "test", pictures(4, 28, 28), np.arange(4))
    path = copied_project / "data" / "registry.json"
    registry = json.loads(path.read_text(encoding="utf-8"))
    for file in registry["datasets"]["mnist"]["files"]:
        raw = (copied_project / "served" / file["name"]).read_bytes()
        server.contents[f"/{file['name']}"] = raw
        file["urls"] = [f"{server.address}/{file['name']}"]
        file["sha256"] = hashlib.sha256(raw).hexdigest()
        file["content_sha256"] = hashlib.sha256(gzip.decompress(raw)).hexdigest()
    path.write_text(json.dumps(registry), encoding="utf-8")
    return server


def test_paper_downloads_once_then_reads_the_cache(served_mnist):
    first = datasets.load("mnist", "train", tier="paper")
    second = datasets.load("mnist", "train", tier="paper")
    assert len(served_mnist.requests) == 2
    assert [d.provenance.place for d in (first, second)] == ["download", "cache"]
    assert first.provenance.check == "pinned"
    assert first.provenance.data_sha256 == second.provenance.data_sha256
    assert np.array_equal(first.X, np.float32(pictures(12, 28, 28).reshape(12, -1) / 255.0))


def test_folder_comes_before_the_cache(served_mnist, place):
    datasets.load("mnist", "train", tier="paper")
    write_npz(place / "mnist.npz", "train", pictures(3, 28, 28), np.arange(3))
    assert datasets.load("mnist", "train", tier="paper").provenance.place == "folder"


def test_damaged_cache_is_refused(served_mnist):
    datasets.load("mnist", "train", tier="paper")
    path = _download.cache_folder() / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(_readers.idx_bytes(np.zeros(12, np.uint8))))
    with pytest.raises(DataFileError, match=r"differs from the official file.*data fetch mnist"):
        datasets.load("mnist", "train", tier="paper")


def test_npz_of_the_official_images_is_recognised(served_mnist, place):
    y = np.arange(12) % 10
    write_npz(place / "mnist.npz", "train", pictures(12, 28, 28), y)
    assert datasets.load("mnist", "train", tier="paper").provenance.check == "pinned"
    write_npz(place / "mnist.npz", "train", pictures(12, 28, 28), y[::-1])
    assert datasets.load("mnist", "train", tier="paper").provenance.check == "unknown"


def test_no_network_says_where_it_looked_and_what_to_type(served_mnist, place, monkeypatch):
    served_mnist.contents.clear()
    with pytest.raises(DataNotFoundError) as error:
        datasets.load("mnist", "train", tier="paper")
    message = str(error.value)
    for part in (
        "train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz",
        str(place),
        str(_download.cache_folder() / "mnist"),
        served_mnist.address,
        "python -m implicitnn data fetch mnist",
        "export IMPLICITNN_DATA=",
    ):
        assert part in message


def test_refused_connection_is_a_download_error(server, tmp_path):
    with pytest.raises(DownloadError, match="refused"):
        _download.fetch(remote(b"x", "http://127.0.0.1:9/x"), tmp_path, retries=0)


# The registry


@pytest.mark.parametrize("name", _registry.NAMES)
def test_every_file_has_a_published_hash_and_address(name):
    source = _registry.registry().datasets[name]
    assert source.files
    for file in source.files:
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.sha256_source
        assert file.bytes > 0
        assert all(url.endswith(file.name) for url in file.urls)
    for split in _registry.SPLITS:
        assert _locate.wanted(source, split)


def test_verify_reports_what_differs(place):
    write_idx(place / "mnist", "train", pictures(12, 28, 28), np.arange(12) % 10)
    findings = list(_inventory.verify(_registry.registry().datasets["mnist"]))
    assert [f.fault for f in findings] == [False, True, True, False]
    assert "DIFFERS" in findings[1].verdict
    assert "12 images of the 60000" in findings[3].verdict
