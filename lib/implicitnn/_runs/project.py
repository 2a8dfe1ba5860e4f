"""Where the project's files lie: its root, the build folder, the stored results and the ledger."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """Return the project's root: the folder that holds ``book/`` and ``notebooks/``.

    $IMPLICITNN_ROOT decides when it is set; then the folder of an editable install; then the
    working directory and its parents.
    """
    named = os.environ.get("IMPLICITNN_ROOT")
    if named:
        folder = Path(named)
        if not folder.is_dir():
            raise FileNotFoundError(f"IMPLICITNN_ROOT names {named!r}, which is not a folder")
        return folder.resolve()
    here = Path(__file__).resolve()
    candidates = [here.parents[3], Path.cwd(), *Path.cwd().parents]
    for folder in candidates:
        if (folder / "book").is_dir() and (folder / "notebooks").is_dir():
            return folder.resolve()
    raise FileNotFoundError(
        "no project root found: no folder with book/ and notebooks/ above "
        f"{here.parent} or {Path.cwd()}. Set IMPLICITNN_ROOT to the folder of the project"
    )


def build() -> Path:
    """Return the build folder: $IMPLICITNN_BUILD, or ``_build`` under the root."""
    named = os.environ.get("IMPLICITNN_BUILD")
    return Path(named).resolve() if named else root() / "_build"


def results() -> Path:
    """Return the folder of stored paper-tier rows."""
    return root() / "data" / "results"


def ledger() -> Path:
    """Return the file of the claims."""
    return root() / "book" / "claims.yml"
