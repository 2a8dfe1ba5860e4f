"""The `data` subcommands."""

from __future__ import annotations

from collections.abc import Sequence

from implicitnn._cli.text import table
from implicitnn._data import inventory as _inventory
from implicitnn._data import locate as _locate
from implicitnn._data import registry as _registry
from implicitnn._data.download import cache_folder
from implicitnn._data.download import fetch as download


def listing() -> int:
    """Print each data set with the splits found in each place."""
    sources = _registry.registry().datasets
    header = ("name", *_inventory.PLACES, "official files", "licence")
    rows = [
        (
            name,
            *(_inventory.splits(source, place) for place in _inventory.PLACES),
            f"{sum(file.bytes for file in source.files) / 1e6:.0f} MB",
            source.licence,
        )
        for name, source in sources.items()
    ]
    print(table([header, *rows]))
    print()
    print(table(_inventory.where_searched()))
    return 0


def fetch(name: str) -> int:
    """Download the official files of both splits and print the result of each."""
    source = _registry.registry().datasets[name]
    for remote in source.files:
        path = download(remote, cache_folder() / name)
        print(f"{path}  sha256 {remote.sha256}  ({_locate.check(path, source)})")
    return 0


def verify(names: Sequence[str]) -> int:
    """Print one line for each thing checked; 1 when there is a fault."""
    sources = _registry.registry().datasets
    faults = 0
    for name in names:
        findings = list(_inventory.verify(sources[name]))
        for finding in findings:
            faults += finding.fault
            print(f"{'FAULT' if finding.fault else 'ok   '}  {finding.subject}: {finding.verdict}")
        if not findings:
            print(f"none   {name}: found nowhere (python -m implicitnn data fetch {name})")
    return int(faults > 0)
