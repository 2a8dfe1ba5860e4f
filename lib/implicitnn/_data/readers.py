"""Readers of image files: IDX, CIFAR binary, SVHN MAT and npz. Nothing is ever unpickled.

Every reader returns `Images(x, y)`: x uint8 of shape (n, h, w) or (n, h, w, c), channels last,
and y int64 of shape (n,), in the order of the file. A file that is truncated, corrupt, or not
what its name says raises `DataFileError` naming the file and what was expected.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from implicitnn.errors import DataFileError

Bytes = NDArray[np.uint8]

_IDX_MAGIC = {1: 2049, 3: 2051}
_BROKEN = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
_MATLAB = (MatReadError, OSError, ValueError, TypeError, NotImplementedError)


class Images(NamedTuple):
    """Images as bytes and their labels, in the order of the file."""

    x: Bytes
    y: NDArray[np.int64]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the many errors of a broken archive into one that names the file."""
    try:
        yield
    except _BROKEN as error:
        raise DataFileError(
            f"{path} cannot be unpacked ({type(error).__name__}: {error}). It is truncated or "
            "corrupt: delete it and fetch it again."
        ) from error


def content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked when its name ends in `.gz`."""
    with _readable(path):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def idx(path: Path) -> Bytes:
    """Read one IDX file (`.gz` or plain) of bytes: labels (n,) or images (n, h, w).

    The header is a big-endian magic number (2049 for labels, 2051 for images) and one
    four-byte length for each axis.

    Raises
    ------
    DataFileError
        When the magic number is unknown or the length is not the one the header states.
    """
    raw = content(path)
    magic = int.from_bytes(raw[:4], "big")
    axes = magic & 0xFF
    if len(raw) < 4 or _IDX_MAGIC.get(axes) != magic:
        raise DataFileError(
            f"{path} is no IDX file of bytes: magic number {magic}, expected 2049 (labels) or "
            "2051 (images)"
        )
    start = 4 + 4 * axes
    if len(raw) < start:
        raise DataFileError(f"{path} ends within its header: {len(raw)} bytes of {start}")
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", axes, 4))
    expected = start + int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        raise DataFileError(
            f"{path} has {len(raw)} bytes; its header announces shape {shape}, {expected} bytes"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def idx_bytes(array: Bytes) -> bytes:
    """Return the bytes of the IDX file that holds an array of bytes, (n,) or (n, h, w)."""
    header = [_IDX_MAGIC[array.ndim], *array.shape]
    return b"".join(number.to_bytes(4, "big") for number in header) + array.tobytes()


def idx_pair(images: Path, labels: Path) -> Images:
    """Read an IDX file of images and the one of its labels."""
    return _images(idx(images), idx(labels), f"{images} and {labels}")


def cifar(members: Sequence[tuple[str, bytes]], label_bytes: int) -> Images:
    """Decode CIFAR binary members, each a row of records: labels, then 3 x 32 x 32 bytes.

    The last label byte is kept: the class of CIFAR-10, the fine class of CIFAR-100.
    """
    size = label_bytes + 3072
    for name, raw in members:
        if not raw or len(raw) % size:
            raise DataFileError(
                f"{name} has {len(raw)} bytes, expected a positive multiple of {size} "
                f"({label_bytes} label byte(s) and 3072 pixels a record)"
            )
    records = np.frombuffer(b"".join(raw for _, raw in members), np.uint8).reshape(-1, size)
    pixels = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    names = ", ".join(name for name, _ in members)
    return _images(np.ascontiguousarray(pixels), records[:, label_bytes - 1], names)


def tar_members(path: Path, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the named members of a `.tar.gz` by base name; nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    with _readable(path), tarfile.open(path, "r:gz") as archive:
        for member in archive:
            base = member.name.rsplit("/", 1)[-1]
            if base in names and member.isfile():
                stream = archive.extractfile(member)
                if stream is not None:
                    found[base] = stream.read()
            if len(found) == len(names):
                break
    missing = [name for name in names if name not in found]
    if missing:
        raise DataFileError(f"{path} has no member named {', '.join(missing)}")
    return [(f"{path}:{name}", found[name]) for name in names]


def svhn(path: Path) -> Images:
    """Read one SVHN file: MATLAB 5, X (32, 32, 3, n), y (n, 1), the digit zero stored as 10.

    The digit zero gets the label 0, so that labels are the digits seen.
    """
    arrays = _matlab(path)
    for key in ("X", "y"):
        if key not in arrays:
            raise DataFileError(f"{path} has no variable {key}; expected X (32,32,3,n) and y (n,1)")
    x, y = arrays["X"], np.asarray(arrays["y"]).ravel()
    if x.ndim != 4 or x.dtype != np.uint8:
        raise DataFileError(
            f"{path}: X has dtype {x.dtype}, shape {x.shape}; expected uint8 (32, 32, 3, n)"
        )
    labels = np.where(y == 10, 0, y)
    return _images(np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels, str(path))


def _matlab(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        try:
            return dict(loadmat(file, variable_names=["X", "y"]))
        except (*_BROKEN, *_MATLAB) as error:
            raise DataFileError(
                f"{path} cannot be read as a MATLAB 5 file ({type(error).__name__}: {error}). It "
                "is truncated, corrupt, or of another format: delete it and fetch it again."
            ) from error


def npz_arrays(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in a npz file."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def npz(path: Path, split: str) -> Images:
    """Read x_<split> and y_<split> of a npz file and drop the rows listed in jpeg_<split>.

    Those rows are pictures that survive only as lossy copies.
    """
    names = npz_arrays(path)
    for key in (f"x_{split}", f"y_{split}"):
        if key not in names:
            raise DataFileError(f"{path} has no array {key}; it holds {', '.join(names)}")
    x, y = _array(path, f"x_{split}"), _array(path, f"y_{split}")
    if x.dtype != np.uint8:
        raise DataFileError(f"{path}: x_{split} has dtype {x.dtype}, expected uint8 in 0..255")
    images = _images(x, y, f"{path}, split {split}")
    lossy = f"jpeg_{split}"
    return _without(images, _array(path, lossy), f"{path}: {lossy}") if lossy in names else images


def _array(path: Path, key: str) -> NDArray[Any]:
    try:
        with _readable(path), np.load(path, allow_pickle=False) as archive:
            return np.asarray(archive[key])
    except ValueError as error:
        raise (
            error
            if isinstance(error, DataFileError)
            else DataFileError(
                f"{path}: array {key} cannot be read without unpickling, or is corrupt ({error})"
            )
        ) from error


def _without(images: Images, rows: NDArray[Any], where: str) -> Images:
    n = len(images.x)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and not _inside(rows, n)):
        raise DataFileError(f"{where} must list rows 0..{n - 1} as one axis of integers")
    return Images(np.delete(images.x, rows, axis=0), np.delete(images.y, rows))


def _inside(rows: NDArray[Any], n: int) -> bool:
    return bool(rows.min() >= 0 and rows.max() < n)


def _images(x: NDArray[Any], y: NDArray[Any], where: str) -> Images:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataFileError(
            f"{where}: labels must be one axis of integers, got dtype {y.dtype}, shape {y.shape}"
        )
    if x.ndim not in (3, 4):
        raise DataFileError(f"{where}: images must be (n, h, w) or (n, h, w, c), got {x.shape}")
    if len(x) != len(y):
        raise DataFileError(f"{where}: {len(x)} images but {len(y)} labels")
    return Images(x, y.astype(np.int64))
