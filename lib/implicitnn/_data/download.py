"""Verified download: pooch, mirrors in turn, retries, a progress bar, the pinned sha256."""

from __future__ import annotations

import warnings
from pathlib import Path

from implicitnn._data.registry import RemoteFile
from implicitnn.errors import DownloadError

with warnings.catch_warnings():
    # On import pooch looks for notebook widgets, which the plain bars used here do not need.
    warnings.filterwarnings("ignore", message="IProgress not found")
    import pooch

RETRIES = 2
# Seconds to connect, and seconds without a byte.
TIMEOUT = (10, 60)


def cache_folder() -> Path:
    """Return the user's cache of this package, as the operating system places it."""
    return Path(pooch.os_cache("implicitnn"))


def fetch(remote: RemoteFile, folder: Path, *, retries: int = RETRIES) -> Path:
    """Return the file in `folder`, downloaded when it is absent or has another sha256.

    Mirrors are tried in order, each `1 + retries` times. A file whose sha256 differs from the
    pinned one is never kept.

    Raises
    ------
    DownloadError
        When no mirror gave the pinned bytes; the message has each address and what went wrong.
    """
    reasons = []
    for url in remote.urls:
        try:
            return _fetch(remote, url, folder, retries)
        except (ValueError, OSError) as error:
            reasons.append(f"  {url}: {error}")
    raise DownloadError(
        f"{remote.name} could not be downloaded with sha256 {remote.sha256} "
        f"({remote.sha256_source}):\n" + "\n".join(reasons)
    )


def _fetch(remote: RemoteFile, url: str, folder: Path, retries: int) -> Path:
    store = pooch.create(
        path=folder,
        base_url="",
        registry={remote.name: f"sha256:{remote.sha256}"},
        urls={remote.name: url},
        retry_if_failed=retries,
    )
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=TIMEOUT)
    return Path(store.fetch(remote.name, downloader=downloader))
