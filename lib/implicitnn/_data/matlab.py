"""Numeric arrays of MATLAB 5 files, read with every length checked before it is used.

A corrupt file can end the whole process inside scipy's compiled reader. This one raises an error.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = 128
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_STORED = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"},
    **{12: "i8", 13: "u8"},
}
_NUMERIC = {
    **{6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"},
    **{14: "i8", 15: "u8"},
}
_OTHER = {1: "cell array", 2: "struct array", 3: "object", 4: "char array", 5: "sparse array"}


class MatlabError(ValueError):
    """The bytes are not those of a MATLAB 5 file with arrays of numbers."""


@dataclass(frozen=True)
class Other:
    """A variable that is no array of real numbers, with the name of its kind."""

    kind: str


def read(raw: bytes, largest: int) -> dict[str, NDArray[Any] | Other]:
    """Return the variables of a file by name; none may take more than ``largest`` bytes.

    Raises
    ------
    MatlabError
        The file is truncated, corrupt, or of another version.

    Examples
    --------
    >>> import io
    >>> from scipy.io import savemat
    >>> file = io.BytesIO()
    >>> savemat(file, {"y": np.array([[1], [2]], dtype=np.uint8)})
    >>> read(file.getvalue(), 1000)["y"].tolist()
    [[1], [2]]
    """
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128], "")
    if len(raw) < _HEADER or not order:
        raise MatlabError("it has no header of this format")
    found: dict[str, NDArray[Any] | Other] = {}
    for kind, body in _elements(raw[_HEADER:], order, packed=True):
        if kind == _COMPRESSED:
            kind, body = next(_elements(_unpacked(body, largest), order), (0, b""))
        if kind == _MATRIX:
            name, value = _variable(body, order)
            found[name] = value
    return found


def _elements(raw: bytes, order: str, *, packed: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the bytes of each data element."""
    place = 0
    while place < len(raw):
        kind, start, size, place = _tag(raw, place, order)
        if start + size > len(raw):
            raise MatlabError(f"an element of {size} bytes reaches beyond the end")
        yield kind, raw[start : start + size]
        if packed and kind == _COMPRESSED:
            place = start + size  # compressed elements alone are not padded


def _tag(raw: bytes, place: int, order: str) -> tuple[int, int, int, int]:
    """Return type, start, size, and the place of the next element."""
    if place + 8 > len(raw):
        raise MatlabError("it ends within a tag")
    first, second = (int(n) for n in np.frombuffer(raw, f"{order}u4", 2, place))
    if first >> 16:  # the small format: size, type and four bytes of data in one tag
        size = first >> 16
        if size > 4:
            raise MatlabError(f"a small element claims {size} bytes")
        return first & 0xFFFF, place + 4, size, place + 8
    start = place + 8
    return first, start, second, start + second + -second % 8


def _unpacked(body: bytes, largest: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        result = unpacker.decompress(body, largest)
    except zlib.error as problem:
        raise MatlabError(f"a variable cannot be unpacked: {problem}") from problem
    if not unpacker.eof:
        raise MatlabError(f"a variable is truncated, or unpacks to more than {largest} bytes")
    return result


def _variable(body: bytes, order: str) -> tuple[str, NDArray[Any] | Other]:
    parts = _elements(body, order)
    flags = _numbers(next(parts, None), _UINT32, order)
    if flags.size != 2:
        raise MatlabError("a variable has no flags")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & 0x0800)
    if kind not in _NUMERIC and kind not in _OTHER:
        return "", Other(f"variable of class {kind}")
    shape = tuple(int(n) for n in _numbers(next(parts, None), _INT32, order))
    name = _numbers(next(parts, None), _INT8, order).tobytes().decode("latin-1")
    if kind in _OTHER:
        return name, Other(_OTHER[kind])
    if is_complex:
        return name, Other("complex array")
    stored, data = next(parts, (0, b""))
    values = _numbers((stored, data), stored, order)
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) != values.size:
        raise MatlabError(f"variable {name} of shape {shape} holds {values.size} numbers")
    with np.errstate(invalid="ignore"):
        return name, values.astype(_NUMERIC[kind]).reshape(shape, order="F")


def _numbers(element: tuple[int, bytes] | None, kind: int, order: str) -> NDArray[Any]:
    """Return the numbers of an element, which must be of the given type."""
    if element is None or element[0] != kind or kind not in _STORED:
        raise MatlabError("a variable lacks a part, or has one of the wrong type")
    dtype = np.dtype(f"{order}{_STORED[kind]}")
    if len(element[1]) % dtype.itemsize:
        raise MatlabError(f"{len(element[1])} bytes hold no whole number of {dtype}")
    return np.frombuffer(element[1], dtype)
