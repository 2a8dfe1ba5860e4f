"""The places of a data set, in order: embedded sample; local folder, cache, download."""

from __future__ import annotations

from pathlib import Path

from implicitnn._data import locate as _locate
from implicitnn._data import registry as _registry
from implicitnn._data.download import cache_folder, fetch
from implicitnn._data.locate import DATA_VARIABLE, Found
from implicitnn._data.registry import Registry, Source
from implicitnn.errors import DataFileError, DataNotFoundError, DownloadError


def embedded(registry: Registry, name: str) -> tuple[str, Found]:
    """Return the embedded sample of a data set, checked against its pinned sha256."""
    if name not in registry.embedded:
        raise DataNotFoundError(
            f"{name} has no embedded sample, so tier='quick' cannot serve it. Embedded are "
            f"{', '.join(registry.embedded)}. Use tier='paper', which reads ${DATA_VARIABLE}, the "
            "cache, or downloads the official files."
        )
    entry = registry.embedded[name]
    path = _registry.data_folder() / "embedded" / entry.file
    if not path.is_file():
        raise DataNotFoundError(
            f"the embedded sample {path} is missing. Restore it with `git checkout -- "
            "data/embedded`, or make it again with `python data/make_embedded.py`."
        )
    if (actual := _registry.sha256(path)) != entry.sha256:
        raise DataFileError(
            f"{path} has sha256 {actual}, the registry says {entry.sha256}. Restore it with "
            "`git checkout -- data/embedded`."
        )
    return "embedded", Found("npz", (path,))


def full(source: Source, split: str) -> tuple[str, Found]:
    """Return the place and the files of a full split; download them when they are nowhere."""
    folder = _locate.user_folder()
    if folder is not None and (found := _locate.find(source, split, folder)):
        return "folder", found
    cache = cache_folder()
    if found := _locate.official(source, split, cache):
        return "cache", _pinned(found, source)
    try:
        for remote in _locate.wanted(source, split):
            fetch(remote, cache / source.name)
    except DownloadError as error:
        raise DataNotFoundError(_not_found(source, split, folder, cache, error)) from error
    found = _locate.official(source, split, cache)
    if found is None:
        raise DataFileError(f"the downloaded files of {source.name} are missing in {cache}")
    return "download", found


def _pinned(found: Found, source: Source) -> Found:
    """Return files of the cache, which must have the pinned hash, as a download had."""
    for path in found.files:
        if _locate.check(path, source) == "differs":
            raise DataFileError(
                f"{path} differs from the official file (its sha256 is not the pinned one). "
                f"Fetch it again: `python -m implicitnn data fetch {source.name}`."
            )
    return found


def _not_found(
    source: Source, split: str, folder: Path | None, cache: Path, error: DownloadError
) -> str:
    names = " and ".join(file.name for file in _locate.wanted(source, split))
    where = ", ".join(f"<folder>/{name}" for name in source.folders).replace("/.", "")
    return (
        f"{source.title} ({split}) was found nowhere. Looked for:\n"
        f"  1. {names}, or {source.name}*.npz with x_{split} and y_{split}, in "
        f"${DATA_VARIABLE} ({folder or 'not set'})\n"
        f"  2. {names} in the cache, {cache / source.name}\n"
        f"  3. the official addresses: {error}\n"
        f"With a network, type `python -m implicitnn data fetch {source.name}`. Without one, put "
        f"{names} into one of {where}, or {source.name}.npz (arrays x_{split}, y_{split}, uint8) "
        f"into <folder>, and type `export {DATA_VARIABLE}=<folder>`."
    )
