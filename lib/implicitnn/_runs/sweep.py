"""The engine of a sweep: cells, rows that exist, rows to compute, failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
from tqdm import tqdm

from implicitnn._runs import execute as _execute
from implicitnn._runs import provenance as _provenance
from implicitnn._runs import rows as _rows
from implicitnn._runs.execute import Cell, Function
from implicitnn._runs.rows import Row, Tolerance
from implicitnn._validate import integer, nonnegative

if TYPE_CHECKING:
    import pandas as pd


class SweepError(RuntimeError):
    """A cell of a sweep failed; the message names its settings and seed."""


def run(
    function: Function,
    grid: Iterable[Mapping[str, Any]],
    seeds: Iterable[int],
    *,
    path: str | Path | None,
    workers: int | None = None,
    progress: bool = True,
    scheduler: str | None = None,
    rules: Mapping[str, str] | None = None,
    tolerance: Tolerance | None = None,
    budget_seconds: float | None = None,
) -> list[Row]:
    """Return one row for each cell of ``grid`` x ``seeds``, computing those not yet stored.

    Parameters
    ----------
    function : callable
        ``function(settings, seed)`` returns a dictionary of JSON values. It must be a top-level
        function of a module or of a notebook, and draw all randomness from ``seed``.
    grid : iterable of mappings
        Settings, JSON data; numpy scalars are converted, NaN and infinities are refused.
    seeds : iterable of int
        Every settings is run with every seed.
    path : path or None
        File of JSON lines. None keeps the rows in memory.
    workers : int, optional
        Processes; default all cores. Each gets cores // workers threads. With 1 worker the cells
        run in this process, whose thread settings are left alone.
    progress : bool
        Show a progress bar on standard error.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``; ``workers`` is then not
        used. Needs the optional extra ``cluster``.
    rules : mapping, optional
        Rule hash of each claim that the rows serve; stored in the rows.
    tolerance : Tolerance, optional
        How near a recomputation must come; stored in the rows.
    budget_seconds : float, optional
        Start no new cell after this time. The result then holds the rows that exist.

    Returns
    -------
    list of Row
        In the order of the grid, then of the seeds, whatever the workers did.

    Raises
    ------
    SweepError
        A call raised; the failing cell is named, the rows done are kept.
    ValueError
        A cell listed twice, NaN in settings or values, a function that is not top-level.

    Notes
    -----
    A row is keyed by the function's name, the settings and the seed. It carries a hash of the
    syntax trees (no comments, no docstrings) of the definitions the function reaches in its own
    module and of every ``implicitnn`` module in its static import closure. Imports hidden from
    the source text (``importlib`` with a computed name) are not seen. Results that use a threaded
    BLAS may differ in the last digits between thread counts.

    Examples
    --------
    >>> def row(settings, seed):
    ...     return {"product": settings["n"] * seed}
    >>> rows = run(row, [{"n": 2}, {"n": 3}], [1, 5], path=None, workers=1, progress=False)
    >>> [r.values["product"] for r in rows]
    [2, 10, 3, 15]
    """
    _check_options(progress, rules, tolerance, budget_seconds)
    name = _provenance.qualified_name(function)
    cells = cells_of(name, grid, seeds)
    code, rule_hashes = _provenance.code_hash(function), dict(rules or {})
    file = None if path is None else Path(path)
    stored = {} if file is None else _rows.latest(_rows.read(file))
    fresh = {k: r for k, r in stored.items() if r.code == code and r.rules == rule_hashes}
    todo = [cell for cell in cells if cell.key not in fresh]
    clock = _Clock(budget_seconds)
    outcomes = _start(function, todo, workers, scheduler, clock)
    bar = tqdm(total=len(cells), initial=len(cells) - len(todo), desc=name.split(":")[1],
               disable=not progress, unit="cell")  # fmt: skip
    failed: _execute.Outcome | None = None
    with bar:
        for outcome in outcomes:
            if outcome.error is not None:
                # Cells already running are awaited and kept; no new one starts.
                clock.stopped, failed = True, failed or outcome
                continue
            row = _row(name, outcome, code, rule_hashes, tolerance or Tolerance())
            if file is not None:
                _rows.append(file, row)
            fresh[row.key] = row
            bar.update()
    if failed is not None:
        raise SweepError(
            f"{name} failed at settings {failed.cell.settings}, seed {failed.cell.seed}: "
            f"{type(failed.error).__name__}: {failed.error}\n{failed.trace}"
        ) from failed.error
    if file is not None and file.is_file():
        _rows.compact(file, [cell.key for cell in cells])
    return [fresh[cell.key] for cell in cells if cell.key in fresh]


@dataclass
class _Clock:
    """Says when no new cell may start."""

    budget: float | None
    start: float = field(default_factory=time.monotonic)
    stopped: bool = False

    def __call__(self) -> bool:
        spent = time.monotonic() - self.start
        return self.stopped or (self.budget is not None and spent > self.budget)


def _check_options(
    progress: object, rules: object, tolerance: object, budget_seconds: object
) -> None:
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {progress!r}")
    if rules is not None and not isinstance(rules, Mapping):
        raise TypeError(f"rules must be a mapping from claim to rule hash, got {rules!r}")
    if tolerance is not None and not isinstance(tolerance, Tolerance):
        raise TypeError(f"tolerance must be a Tolerance, got {tolerance!r}")
    if budget_seconds is not None:
        nonnegative(budget_seconds, "budget_seconds")


def cells_of(name: str, grid: Iterable[Mapping[str, Any]], seeds: Iterable[int]) -> list[Cell]:
    if isinstance(grid, Mapping):
        raise TypeError("grid must be a list of dictionaries, got one dictionary")
    for what, value in {"grid": grid, "seeds": seeds}.items():
        if not isinstance(value, Iterable):
            raise TypeError(f"{what} must be a list, got {value!r}")
    numbers = [integer(seed, "seed") for seed in seeds]
    cells = {}
    for i, given in enumerate(grid):
        settings = _rows.plain_settings(given, f"grid[{i}]")
        for seed in numbers:
            key = _rows.cell_key(name, settings, seed)
            if key in cells:
                raise ValueError(f"the cell {settings}, seed {seed} is listed twice")
            cells[key] = Cell(key, settings, seed)
    return list(cells.values())


def _start(
    function: Function,
    cells: list[Cell],
    workers: int | None,
    scheduler: str | None,
    stop: Callable[[], bool],
) -> Iterable[_execute.Outcome]:
    cores = int(joblib.cpu_count())
    count = cores if workers is None else integer(workers, "workers", 1)
    if scheduler is not None:
        return _execute.cluster(function, cells, scheduler, stop) if cells else ()
    count = min(count, len(cells))
    if count <= 1:
        return _execute.here(function, cells, stop)
    return _execute.local(function, cells, count, max(1, cores // count), stop)


def _row(
    name: str, outcome: _execute.Outcome, code: str, rules: dict[str, str], tolerance: Tolerance
) -> Row:
    cell = outcome.cell
    return Row(
        cell.key, name, cell.settings, cell.seed, outcome.values, round(outcome.seconds, 6), code,
        rules, tolerance, _provenance.versions(), dict(_provenance.machine()),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def load_rows(path: str | Path) -> list[Row]:
    """Return the rows of a file, the newest of each cell; a missing file raises."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no rows at {file}")
    return list(_rows.latest(_rows.read(file)).values())


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table: settings, seed, values and seconds are its columns."""
    # Worker processes and command-line tools import this module and need no tables.
    import pandas as pd

    return pd.DataFrame([row.flat() for row in rows])
