"""The `paper` subcommand: run the studies at tier paper, or say what remains."""

from __future__ import annotations

import time
from collections.abc import Sequence

from implicitnn import sweeps
from implicitnn._cli.parser import CommandError, UsageError
from implicitnn._cli.text import table
from implicitnn.errors import DataNotFoundError
from implicitnn.studies import STUDIES
from implicitnn.sweeps import Study, SweepError


def chosen(names: Sequence[str]) -> list[Study]:
    """Return the named studies, or all that have a tier paper; unknown names are refused."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        listed = ", ".join(STUDIES)
        raise UsageError(f"no study {', '.join(unknown)}. There are: {listed}")
    studies = [STUDIES[name] for name in names or STUDIES]
    without = [study.name for study in studies if "paper" not in study.grids]
    if names and without:
        raise UsageError(f"no tier paper in {', '.join(without)}")
    return [study for study in studies if "paper" in study.grids]


def status(names: Sequence[str]) -> int:
    """Print cells, missing and stale ones, and predicted hours of one worker."""
    states = [sweeps.status(study) for study in chosen(names)]
    header = ("study", "cells", "missing", "stale", "hours left")
    rows = [
        (s.name, str(s.total), str(len(s.missing)), str(len(s.stale)), _hours(s.predicted_seconds))
        for s in states
    ]
    known = [s.predicted_seconds for s in states if s.predicted_seconds is not None]
    total = _hours(sum(known)) + ("" if len(known) == len(states) else " and what is unknown")
    print(table([header, *rows]))
    print(f"\nHours left, on one core: {total}")
    return 0


def _hours(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds / 3600:.2f}"


def run(names: Sequence[str], minutes: float | None, workers: int | None) -> int:
    """Run studies one after the other; what is stored and fresh is not computed again.

    A study that fails does not keep the others from running; all failures are told at the end.
    """
    failures = []
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    for study in chosen(names):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        print(study.name, flush=True)
        try:
            sweeps.run_study(study, "paper", workers=workers, budget_seconds=left)
        except (SweepError, DataNotFoundError) as error:
            failures.append(f"study {study.name}: {error}")
    print()
    result = status(names)
    if failures:
        raise CommandError("\n".join(failures))
    return result
