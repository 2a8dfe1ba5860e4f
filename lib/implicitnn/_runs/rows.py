"""Rows of a sweep: what one holds, and files of them that survive a kill at any moment."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from implicitnn._validate import integer

Json = Any
Settings = dict[str, Json]


@dataclass(frozen=True)
class Tolerance:
    r"""How near a recomputed value must come; some columns are free.

    .. math:: |a - b| \le \mathrm{atol} + \mathrm{rtol}\,|b|
    """

    rtol: float = 1e-6
    atol: float = 1e-12
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One computed cell: its settings and seed, its values, and all that they depend on."""

    key: str
    function: str
    settings: Settings
    seed: int
    values: dict[str, Json]
    seconds: float
    code: str
    rules: dict[str, str]
    tolerance: Tolerance
    versions: dict[str, str]
    machine: dict[str, Json]
    finished: str

    def flat(self) -> dict[str, Json]:
        """Return settings, seed, values and seconds as one flat dictionary."""
        return {**self.settings, "seed": self.seed, **self.values, "seconds": self.seconds}

    def line(self) -> str:
        """Return the row as one line of JSON, without its newline."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=False)

    @staticmethod
    def parse(line: str) -> Row:
        """Return the row of a line; missing or unknown fields are refused."""
        data = json.loads(line)
        wanted = {f.name for f in fields(Row)}
        if not isinstance(data, dict) or set(data) != wanted:
            got = sorted(data) if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"a row needs exactly the fields {sorted(wanted)}, got {got}")
        limits = data.pop("tolerance")
        if not isinstance(limits, dict) or set(limits) != {f.name for f in fields(Tolerance)}:
            raise ValueError(f"a row's tolerance must hold rtol, atol and unchecked, got {limits}")
        integer(data["seed"], "seed of a row")
        plain(data["values"], "values of a row")
        limits["unchecked"] = tuple(limits["unchecked"])
        return Row(tolerance=Tolerance(**limits), **data)


def plain(value: object, name: str) -> Json:
    """Return ``value`` as plain JSON data; numpy scalars and arrays are converted.

    NaN and infinities are refused: JSON has none. Encode them as None or as text.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{name} is {number}: encode it explicitly, as None or as text")
        return number
    if isinstance(value, np.ndarray):
        value = value.tolist()
        return plain(value, name)
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise TypeError(f"{name} must have text keys, got {list(value)!r}")
        return {k: plain(v, f"{name}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, f"{name}[{i}]") for i, v in enumerate(value)]
    raise TypeError(f"{name} must be JSON data, got {value!r} ({type(value).__name__})")


def plain_settings(settings: object, name: str) -> Settings:
    """Return one cell's settings as plain JSON data with text keys."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"{name} must be a dictionary, got {settings!r}")
    result: Settings = plain(settings, name)
    for reserved in {"seed", "seconds"} & set(result):
        raise ValueError(f"{name} holds {reserved!r}, a name kept for the sweep itself")
    return result


def plain_values(values: object, settings: Settings) -> dict[str, Json]:
    """Return a function's result as plain JSON data; a name used twice is refused."""
    if not isinstance(values, Mapping):
        raise TypeError(f"a row function must return a dictionary, got {type(values).__name__}")
    result: dict[str, Json] = plain(values, "values")
    for twice in sorted(set(result) & {*settings, "seed", "seconds"}):
        raise ValueError(f"values hold {twice!r}, which is also a setting, the seed or the time")
    return result


def cell_key(function: str, settings: Settings, seed: int) -> str:
    """Return the name of a cell: a hash of the function's name, the settings and the seed."""
    text = json.dumps([function, settings, seed], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def lock(path: Path) -> FileLock:
    """Return the lock that every writer of ``path`` holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def _complete_lines(data: bytes) -> bytes:
    """Drop the part after the last newline: a line torn by a kill."""
    return data[: data.rfind(b"\n") + 1]


def read(path: Path) -> list[Row]:
    """Return the rows of a file in order; a torn last line is dropped, any other fault raises."""
    if not path.is_file():
        return []
    rows = []
    try:
        lines = _complete_lines(path.read_bytes()).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(Row.parse(line))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error}; delete that line, and the next run computes its "
                "row again"
            ) from error
    return rows


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the last row of each key: a recomputed row follows the one it replaces."""
    return {row.key: row for row in rows}


def _sound_end(file: int) -> int:
    """Return the length of an open file without a torn last line."""
    end = os.fstat(file).st_size
    if end == 0 or os.pread(file, 1, end - 1) == b"\n":
        return end
    return len(_complete_lines(os.pread(file, end, 0)))


def append(path: Path, row: Row) -> None:
    """Add a row: under the lock, in one write, on the disk before this returns."""
    data = (row.line() + "\n").encode("utf-8")
    with lock(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = _sound_end(file)
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            written = os.write(file, data)
            if written != len(data):
                os.ftruncate(file, end)
                raise OSError(f"only {written} of {len(data)} bytes of a row fit in {path}")
            os.fsync(file)
        finally:
            os.close(file)


def compact(path: Path, order: Sequence[str]) -> None:
    """Rewrite a file with one row per key, keys in ``order`` first; whole or not at all."""
    with lock(path):
        rows = read(path)
        newest = latest(rows)
        keys = [k for k in order if k in newest]
        listed = set(keys)
        keys += [k for k in newest if k not in listed]
        wanted = [newest[k] for k in keys]
        if wanted == rows:
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(row.line() + "\n" for row in wanted)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


def differences(stored: Row, values: Mapping[str, Json]) -> list[str]:
    """Return one sentence for each value that does not agree within the row's tolerance."""
    faults = []
    for name in sorted(set(stored.values) | set(values)):
        if name in stored.tolerance.unchecked:
            continue
        if name not in stored.values or name not in values:
            faults.append(f"{name} is {'new' if name in values else 'gone'}")
        elif not _close(stored.values[name], values[name], stored.tolerance):
            faults.append(f"{name}: stored {stored.values[name]!r}, now {values[name]!r}")
    return faults


def _close(old: Json, new: Json, limits: Tolerance) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            _close(a, b, limits) for a, b in zip(old, new, strict=True)
        )
    if isinstance(old, dict) and isinstance(new, dict):
        return set(old) == set(new) and all(_close(old[k], new[k], limits) for k in old)
    if _is_number(old) and _is_number(new):
        return bool(abs(new - old) <= limits.atol + limits.rtol * abs(old))
    return bool(type(old) is type(new) and old == new)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
