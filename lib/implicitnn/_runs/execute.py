"""Compute cells in this process, in local worker processes, or on a Dask cluster."""

from __future__ import annotations

import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import threadpoolctl

from implicitnn._runs.rows import Json, Settings, plain_values

Function = Callable[[Settings, int], Any]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class Cell:
    """One call to make: the settings and the seed, with the cell's name."""

    key: str
    settings: Settings
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a call gave: values, or the exception it raised with its traceback as text."""

    cell: Cell
    values: dict[str, Json]
    seconds: float
    error: Exception | None = None
    trace: str = ""


def compute(function: Function, cell: Cell, threads: int | None) -> Outcome:
    """Call ``function`` on a cell with at most ``threads`` threads (None: leave them alone)."""
    start = time.perf_counter()
    try:
        if threads is None:
            result = function(dict(cell.settings), cell.seed)
        else:
            with threadpoolctl.threadpool_limits(limits=threads):
                _limit_other_threads(threads)
                result = function(dict(cell.settings), cell.seed)
        values = plain_values(result, cell.settings)
    except Exception as error:
        seconds = time.perf_counter() - start
        return Outcome(cell, {}, seconds, _portable(error), traceback.format_exc())
    return Outcome(cell, values, time.perf_counter() - start)


def _limit_other_threads(threads: int) -> None:
    """Limit numba and PyTorch, which threadpoolctl does not govern, where they are loaded."""
    if "numba" in sys.modules:
        import numba

        most = numba.config.NUMBA_NUM_THREADS
        numba.set_num_threads(min(threads, most))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _portable(error: Exception) -> Exception:
    """Return the exception, or its text when it cannot travel between processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def here(function: Function, cells: Sequence[Cell], stop: Stop) -> Iterator[Outcome]:
    """Compute cells one after the other in this process, with its own thread settings."""
    for cell in cells:
        if stop():
            return
        yield compute(function, cell, None)


def local(
    function: Function, cells: Sequence[Cell], workers: int, threads: int, stop: Stop
) -> Iterator[Outcome]:
    """Compute cells in ``workers`` processes of ``threads`` threads each, as they finish."""

    def tasks() -> Iterator[Any]:
        for cell in cells:
            if stop():
                return
            yield joblib.delayed(compute)(function, cell, threads)

    with joblib.parallel_config(backend="loky", inner_max_num_threads=threads):
        pool = joblib.Parallel(
            n_jobs=workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers
        )
        yield from pool(tasks())


def cluster(
    function: Function, cells: Sequence[Cell], address: str, stop: Stop
) -> Iterator[Outcome]:
    """Compute cells on the Dask cluster whose scheduler listens at ``address``."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            "a scheduler address needs the packages of the optional extra `cluster`: "
            "pip install 'implicitnn[cluster]'"
        ) from error
    dask: Any = distributed
    with dask.Client(address, set_as_default=False) as client:
        slots = max(1, sum(client.nthreads().values()))
        waiting = iter(cells)

        def submit() -> Any:
            cell = None if stop() else next(waiting, None)
            return None if cell is None else client.submit(compute, function, cell, 1, pure=False)

        first = [f for f in (submit() for _ in range(2 * slots)) if f is not None]
        running = dask.as_completed(first, loop=client.loop)
        for future in running:
            yield future.result()
            following = submit()
            if following is not None:
                running.add(following)
