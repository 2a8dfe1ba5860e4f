"""The registry of image data sets: what exists, where it comes from, and the pinned hashes.

The registry is `data/registry.json` in the project's folder. Each entry of a file states the
published sha256 and where that was published. An entry is `verified` when bytes with that hash
were in hand when the registry was written. `content_sha256` is the hash after unpacking, which
stays the same when someone compresses a file again.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from implicitnn._runs import project as _project

NAMES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn")
SPLITS = ("train", "test")


@dataclass(frozen=True)
class RemoteFile:
    """One official file: its name, mirrors, size in bytes and pinned hashes."""

    name: str
    urls: tuple[str, ...]
    bytes: int
    sha256: str
    sha256_source: str
    verified: bool
    content_sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """One data set: its shape, licence, official files and the folders they may lie in."""

    name: str
    title: str
    reader: str
    image_shape: tuple[int, ...]
    classes: int
    rows: dict[str, int]
    homepage: str
    citation: str
    licence: str
    folders: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    members: dict[str, list[str]]
    label_bytes: int


@dataclass(frozen=True)
class Embedded:
    """One embedded sample: file name, size in bytes, sha256, rows per split and origin."""

    file: str
    bytes: int
    sha256: str
    rows: dict[str, int]
    source: str


@dataclass(frozen=True)
class Registry:
    """All data sets and all embedded samples, by name."""

    datasets: dict[str, Source]
    embedded: dict[str, Embedded]


def data_folder() -> Path:
    """Return the project's `data` folder, which holds the registry and the embedded samples.

    Raises
    ------
    FileNotFoundError
        When `data/registry.json` is not there; the message says what to type.

    Examples
    --------
    >>> (data_folder() / "registry.json").is_file()
    True
    """
    folder = _project.root() / "data"
    if not (folder / "registry.json").is_file():
        raise FileNotFoundError(
            f"no registry.json in {folder}. The data travel with the clone, not with the "
            "package. Install from the clone with `pip install -e .`, or name the clone: "
            "`export IMPLICITNN_ROOT=/path/to/the/clone`."
        )
    return folder


def registry() -> Registry:
    """Return the project's registry.

    Examples
    --------
    >>> registry().datasets["mnist"].rows
    {'train': 60000, 'test': 10000}
    """
    path = data_folder() / "registry.json"
    return _parse(path, path.stat().st_mtime_ns)


def features() -> dict[str, str]:
    """Return the sha256 of the stored backbone and of the embedded features."""
    raw = json.loads((data_folder() / "registry.json").read_text(encoding="utf-8"))
    return dict(raw["features"])


@functools.lru_cache(maxsize=8)
def _parse(path: Path, _modified: int) -> Registry:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Registry(
        datasets={name: _source(name, entry) for name, entry in raw["datasets"].items()},
        embedded={name: Embedded(**entry) for name, entry in raw["embedded"].items()},
    )


def _source(name: str, entry: dict[str, Any]) -> Source:
    files = tuple(RemoteFile(**{**file, "urls": tuple(file["urls"])}) for file in entry["files"])
    return Source(
        name=name,
        title=entry["title"],
        reader=entry["reader"],
        image_shape=tuple(entry["image_shape"]),
        classes=entry["classes"],
        rows=entry["rows"],
        homepage=entry["homepage"],
        citation=entry["citation"],
        licence=entry["licence"],
        folders=tuple(entry["folders"]),
        files=files,
        members=entry.get("members", {}),
        label_bytes=entry.get("label_bytes", 1),
    )


def sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
