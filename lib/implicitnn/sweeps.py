"""Run a function over a grid of settings and seeds: in parallel, resumable, with provenance.

A sweep calls ``function(settings, seed)`` on every cell of a grid and keeps one row per cell in a
file of JSON lines. A row is fresh while the code it ran through and the rules of the claims it
serves are unchanged; otherwise it is stale, and the next run replaces it. Rows reach the disk one
by one: a run killed at any moment resumes where it stopped.
"""

from implicitnn._runs.rows import Row, Tolerance
from implicitnn._runs.study import (
    TIERS,
    Check,
    Status,
    Study,
    recheck,
    run_study,
    status,
    study_path,
    study_rows,
)
from implicitnn._runs.sweep import SweepError, frame, load_rows, run

__all__ = [
    "TIERS",
    "Check",
    "Row",
    "Status",
    "Study",
    "SweepError",
    "Tolerance",
    "frame",
    "load_rows",
    "recheck",
    "run",
    "run_study",
    "status",
    "study_path",
    "study_rows",
]
