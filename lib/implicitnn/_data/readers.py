"""Readers of image files: IDX, CIFAR binary, SVHN MAT and npz. Nothing is ever unpickled.

Every reader returns `Images(x, y)`: x uint8 of shape (n, h, w) or (n, h, w, c), channels last,
and y int64 of shape (n,), in the order of the file. A file that is truncated, corrupt, or not
what its name says raises `DataFileError` naming the file and what was expected.
"""

from __future__ import annotations

import gzip
import lzma
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicitnn._data import matlab as _matlab
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
    struct.error,
    # zipfile: an encrypted member, an unknown compression, offsets or names that make no sense.
    RuntimeError,
    ValueError,
    OverflowError,
    # zipfile seeks to offsets that the archive states.
    OSError,
)
# Unpacked, no file of these data sets is a fifth of it.
_LARGEST = 2**30
_CHUNK = 2**20


class Images(NamedTuple):
    """Images as bytes and their labels, in the order of the file."""

    x: Bytes
    y: NDArray[np.int64]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the many errors of a broken archive into one that names the file."""
    try:
        yield
    except (DataFileError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except _BROKEN as error:
        raise DataFileError(
            f"{path} cannot be unpacked ({type(error).__name__}: {error}). It is truncated or "
            "corrupt: delete it and fetch it again."
        ) from error


def content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked when its name ends in `.gz`; 1 GiB at most."""
    with _readable(path), path.open("rb") as packed:
        if path.suffix != ".gz":
            return _bounded(packed, str(path))
        with gzip.open(packed) as stream:
            return _bounded(stream, str(path))


def _bounded(stream: BufferedIOBase | IO[bytes], where: str) -> bytes:
    """Read to the end in small steps: a length that a header claims is never allocated."""
    parts, total = [], 0
    while part := stream.read(_CHUNK):
        parts.append(part)
        total += len(part)
        if total > _LARGEST:
            raise DataFileError(
                f"{where} holds more than {_LARGEST} bytes, more than any file of these data sets"
            )
    return b"".join(parts)


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
    expected = start + math.prod(shape)
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
                    found[base] = _bounded(stream, f"{path}:{base}")
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
    try:
        arrays = _matlab.read(content(path), _LARGEST)
    except _matlab.MatlabError as error:
        raise DataFileError(
            f"{path} cannot be read as a MATLAB 5 file: {error}. It is truncated, corrupt, or of "
            "another format: delete it and fetch it again."
        ) from error
    for key in ("X", "y"):
        if key not in arrays:
            raise DataFileError(f"{path} has no variable {key}; expected X (32,32,3,n) and y (n,1)")
    x, y = arrays["X"], arrays["y"]
    if not isinstance(x, np.ndarray) or x.ndim != 4 or x.dtype != np.uint8:
        raise DataFileError(f"{path}: X is {_described(x)}; expected uint8 (32, 32, 3, n)")
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iu" or max(y.shape) != y.size:
        raise DataFileError(f"{path}: y is {_described(y)}; expected integer labels (n, 1)")
    labels = np.where(y == 10, 0, y).ravel()
    return _images(np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels, str(path))


def _described(value: NDArray[Any] | _matlab.Other) -> str:
    if isinstance(value, _matlab.Other):
        return f"a {value.kind}"
    return f"of dtype {value.dtype}, shape {value.shape}"


def npz_arrays(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in a npz file."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return tuple(name.removesuffix(".npy") for name in names if name.endswith(".npy"))


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
        with _readable(path):
            _check_length(path, key)
            with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as stream:
                return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except DataFileError as error:
        raise DataFileError(f"{error} (array {key})") from error


def _check_length(path: Path, key: str) -> None:
    """Compare the bytes that the header of an array announces with those the archive holds."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as stream:
        try:
            shape, dtype = _npy_header(stream)
        except Exception as error:  # numpy parses the header as Python, with errors of any kind
            raise DataFileError(f"{path} has no npy header there ({error})") from error
        held = archive.getinfo(f"{key}.npy").file_size - stream.tell()
    if dtype.hasobject:
        raise DataFileError(f"{path} holds Python objects, which cannot be read without unpickling")
    announced = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or announced != held:
        raise DataFileError(
            f"{path} announces shape {shape} of {dtype}, {announced} bytes, but the "
            f"archive holds {held}"
        )
    if announced > _LARGEST:
        raise DataFileError(f"{path} announces {announced} bytes, more than any of these data sets")


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} is not 1.0 or 2.0")
    shape, _, dtype = readers[version](stream)
    return shape, dtype


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
