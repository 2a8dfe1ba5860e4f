"""What is on this machine: which data sets, in which place, and whether their bytes are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from implicitnn import datasets
from implicitnn._data import locate as _locate
from implicitnn._data import registry as _registry
from implicitnn._data.download import cache_folder
from implicitnn._data.locate import DATA_VARIABLE, Found
from implicitnn._data.registry import SPLITS, Source
from implicitnn.errors import DataFileError, DataNotFoundError

PLACES = ("embedded", "folder", "cache")


@dataclass(frozen=True)
class Holding:
    """One split of a data set in one place."""

    place: str
    split: str
    found: Found


@dataclass(frozen=True)
class Finding:
    """The result of checking one file: what was checked, the verdict, whether it is a fault."""

    subject: str
    verdict: str
    fault: bool


def holdings(source: Source) -> list[Holding]:
    """Return every split found in the user's folder and in the cache; nothing is read."""
    folder, cache = _locate.user_folder(), cache_folder()
    result = []
    for split in SPLITS:
        if folder is not None and (found := _locate.find(source, split, folder)):
            result.append(Holding("folder", split, found))
        if found := _locate.official(source, split, cache):
            result.append(Holding("cache", split, found))
    return result


def on_disk(name: str) -> bool:
    """Return whether both splits of a data set can be had here without a download."""
    found = {holding.split for holding in holdings(_registry.registry().datasets[name])}
    return found == set(SPLITS)


def splits(source: Source, place: str) -> str:
    """Return the splits found in a place, as text: `train, test`, or `-`.

    A file that cannot be read is reported by :func:`verify`, with its reason.
    """
    if place == "embedded":
        entry = _registry.registry().embedded.get(source.name)
        return ", ".join(f"{n} {split}" for split, n in entry.rows.items()) if entry else "-"
    try:
        return ", ".join(h.split for h in holdings(source) if h.place == place) or "-"
    except DataFileError:
        return "unreadable: see data verify"


def verify(source: Source) -> Iterator[Finding]:
    """Check and decode every file of a data set found here, with one finding for each."""
    yield from verify_embedded(source)
    try:
        found = holdings(source)
    except DataFileError as error:
        yield Finding(f"{source.name}, looking for files", str(error), True)
        return
    for holding in found:
        for path in holding.found.files:
            yield _verify_hash(source, holding.place, path)
        yield _verify_content(source, holding)


def verify_embedded(source: Source) -> list[Finding]:
    """Check and decode the embedded sample, if there is one."""
    if source.name not in _registry.registry().embedded:
        return []
    subject = f"{source.name}, embedded"
    try:
        counts = [len(datasets.load(source.name, split).y) for split in SPLITS]
    except (DataFileError, DataNotFoundError) as error:
        return [Finding(subject, str(error), True)]
    verdict = f"has the pinned sha256, {counts[0]} + {counts[1]} images"
    return [Finding(subject, verdict, False)]


def _verify_hash(source: Source, place: str, path: Path) -> Finding:
    subject = f"{source.name}, {place}, {path}"
    try:
        verdict = _locate.check(path, source)
    except DataFileError as error:
        return Finding(subject, str(error), True)
    return Finding(subject, _EXPLAINED[verdict], verdict == "differs")


def _verify_content(source: Source, holding: Holding) -> Finding:
    subject = f"{source.name}, {holding.place}, {holding.split} split"
    try:
        images = _locate.read(holding.found, source, holding.split)
    except DataFileError as error:
        return Finding(subject, str(error), True)
    expected = source.rows[holding.split]
    part = "" if len(images.y) == expected else f" of the {expected} in the full set"
    same = _locate.verdict(holding.found, images, source, holding.split) == "pinned"
    note = ", equal to the official ones" if same else ""
    return Finding(subject, f"{len(images.y)} images{part}{note}", len(images.y) > expected)


_EXPLAINED = {
    "pinned": "has the pinned sha256",
    "pinned (unverified)": "has the pinned sha256 (the publisher's; not confirmed by a copy)",
    "differs": "DIFFERS from the pinned sha256",
    "unknown": "no sha256 is pinned for this file",
}


def where_searched() -> list[tuple[str, str]]:
    """Return the places that are searched, each with its folder or the reason for none."""
    folder = _locate.user_folder()
    return [
        ("embedded", str(_registry.data_folder() / "embedded")),
        ("folder", str(folder) if folder else f"${DATA_VARIABLE} is not set"),
        ("cache", str(cache_folder())),
    ]
