"""The `notebook` subcommand: execute one notebook of the book by papermill."""

from __future__ import annotations

import difflib
import os
import tempfile
from pathlib import Path

from implicitnn._cli.parser import CommandError, UsageError
from implicitnn._runs import project as _project


def run(name: str, tier: str, seed: int, output: Path | None) -> int:
    """Execute a notebook with a progress bar and print where the result lies."""
    source = find(name)
    target = output or _project.build() / "notebooks" / f"{source.stem}-{tier}-seed{seed}.ipynb"
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    execute(source, target, tier, seed)
    print(target)
    return 0


def find(name: str) -> Path:
    """Return the notebook of that name; an unknown one is refused with the names there are."""
    folder = _project.root() / "notebooks"
    names = sorted(path.stem for path in folder.glob("*.md"))
    wanted = name.removesuffix(".md")
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        listed = "".join(f"\n  {other}" for other in names) or " none"
        raise UsageError(f"no notebook {name!r} in {folder}.{hint} There are:{listed}")
    return folder / f"{wanted}.md"


def execute(source: Path, target: Path, tier: str, seed: int) -> None:
    """Convert MyST text to a notebook, set its parameters, and execute it."""
    import jupytext
    import papermill
    from papermill.exceptions import PapermillExecutionError

    # The kernel of this interpreter, not one of the same name in the user's home.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    notebook = jupytext.read(source)
    _require_parameters(source, notebook)
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / f"{source.stem}.ipynb"
        plain.write_text(jupytext.writes(notebook, fmt="ipynb"), encoding="utf-8")
        try:
            papermill.execute_notebook(
                str(plain),
                str(target),
                parameters={"tier": tier, "seed": seed},
                kernel_name="python3",
                cwd=str(source.parent),
                progress_bar=True,
            )
        except PapermillExecutionError as error:
            raise CommandError(
                f"{source.stem} stopped in a cell: {error.ename}: {error.evalue}. The notebook "
                f"up to that cell, with the traceback, is {target}"
            ) from error


def _require_parameters(source: Path, notebook: object) -> None:
    """Refuse a notebook that would silently ignore the tier and the seed."""
    cells = getattr(notebook, "cells", [])
    if not any("parameters" in cell.metadata.get("tags", []) for cell in cells):
        raise CommandError(f"{source} has no cell tagged `parameters` to set tier and seed in")
