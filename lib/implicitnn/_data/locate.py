"""Where the files of a data set lie: official files or npz files in a folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from implicitnn._data import readers as _readers
from implicitnn._data.readers import Images
from implicitnn._data.registry import NAMES, RemoteFile, Source, sha256
from implicitnn.errors import DataFileError, DataNotFoundError

DATA_VARIABLE = "IMPLICITNN_DATA"
_IDX_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


@dataclass(frozen=True)
class Found:
    """Files that hold one split, and the kind of file they are."""

    kind: str
    files: tuple[Path, ...]


def user_folder() -> Path | None:
    """Return the folder named by $IMPLICITNN_DATA, or None when it is not set.

    Raises
    ------
    DataNotFoundError
        When it names something that is not a folder.
    """
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        return None
    if not _is_folder(named):
        raise DataNotFoundError(
            f"${DATA_VARIABLE} = {named} is not a folder. Name one that holds the data sets "
            f"(`export {DATA_VARIABLE}=/path`), or unset it to use the cache and the downloads."
        )
    return Path(named).expanduser()


def _is_folder(named: str) -> bool:
    try:
        return Path(named).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # too long a name, an unknown user's home
        return False


def find(source: Source, split: str, root: Path) -> Found | None:
    """Return the files of a split below `root`: official files first, else npz files."""
    return official(source, split, root) or _npz(source.name, split, root)


def official(source: Source, split: str, root: Path) -> Found | None:
    """Return the official files of a split, in the first of the known folders that has them."""
    for name in source.folders:
        folder = root / name
        for kind, names in _layouts(source, split):
            files = tuple(folder / file for file in names)
            if all(file.is_file() for file in files):
                return Found(kind, files)
    return None


def _layouts(source: Source, split: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the accepted sets of file names, in order of preference."""
    if source.reader == "idx":
        return [("idx", tuple(n + end for n in _IDX_NAMES[split])) for end in (".gz", "")]
    if source.reader == "cifar":
        archive = ("cifar-archive", (source.files[0].name,))
        return [("cifar", tuple(source.members[split])), archive]
    return [("svhn", (f"{split}_32x32.mat",))]


def _npz(name: str, split: str, root: Path) -> Found | None:
    """Return every `<name>*.npz` with images of this split; cifar100.npz is not cifar10's."""
    others = [other for other in NAMES if other != name and other.startswith(name)]
    files = tuple(
        path
        for path in sorted(root.glob(f"{name}*.npz"))
        if not path.name.startswith(tuple(others)) and f"x_{split}" in _readers.npz_arrays(path)
    )
    return Found("npz", files) if files else None


def wanted(source: Source, split: str) -> tuple[RemoteFile, ...]:
    """Return the official files that must be downloaded for a split."""
    names = {name for _, layout in _layouts(source, split) for name in layout}
    return tuple(file for file in source.files if file.name in names)


def read(found: Found, source: Source, split: str) -> Images:
    """Read all images of the split, in the order of the files, and check shapes and labels."""
    if found.kind == "npz":
        parts = [_checked(_readers.npz(path, split), source, str(path)) for path in found.files]
        return Images(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))
    where = ", ".join(map(str, found.files))
    return _checked(_read_official(found, source, split), source, where)


def _read_official(found: Found, source: Source, split: str) -> Images:
    files = found.files
    if found.kind == "idx":
        return _readers.idx_pair(*files)
    if found.kind == "svhn":
        return _readers.svhn(files[0])
    if found.kind == "cifar":
        members = [(str(path), path.read_bytes()) for path in files]
    else:
        members = _readers.tar_members(files[0], source.members[split])
    return _readers.cifar(members, source.label_bytes)


def _checked(images: Images, source: Source, where: str) -> Images:
    shape, top = images.x.shape[1:], source.classes - 1
    if shape != source.image_shape:
        raise DataFileError(
            f"{where}: images of {source.name} have shape {source.image_shape}, found {shape}"
        )
    if images.y.size and (images.y.min() < 0 or images.y.max() > top):
        raise DataFileError(
            f"{where}: labels of {source.name} lie in 0..{top}, found "
            f"{images.y.min()}..{images.y.max()}"
        )
    return images


def check(path: Path, source: Source) -> str:
    """Compare one file with the registry: `pinned`, `pinned (unverified)`, `differs`, `unknown`.

    Where the content's hash is known it decides, so that a file packed anew still counts.
    `unverified` says that the pinned hash is its publisher's and no copy of the file was at hand
    when the registry was written.
    """
    remote = next((f for f in source.files if f.name in (path.name, f"{path.name}.gz")), None)
    if remote is None:
        return "unknown"
    if remote.content_sha256:
        same = hashlib.sha256(_readers.content(path)).hexdigest() == remote.content_sha256
        return "pinned" if same else "differs"
    if sha256(path) != remote.sha256:
        return "differs"
    return "pinned" if remote.verified else "pinned (unverified)"


def verdict(found: Found, images: Images, source: Source, split: str) -> str:
    """Compare what was read with the registry, in the words of `check`.

    Images that are stored as IDX files are compared by content, whatever file they came from.
    """
    contents = {file.name: file.content_sha256 for file in source.files}
    if source.reader == "idx" and all(contents.values()):
        arrays = (images.x, images.y.astype(np.uint8))
        digests = [hashlib.sha256(_readers.idx_bytes(array)).hexdigest() for array in arrays]
        if digests == [contents[f"{name}.gz"] for name in _IDX_NAMES[split]]:
            return "pinned"
        return "unknown" if found.kind == "npz" else "differs"
    return min((check(path, source) for path in found.files), key=_WORST_FIRST.index)


_WORST_FIRST = ("differs", "unknown", "pinned (unverified)", "pinned")
