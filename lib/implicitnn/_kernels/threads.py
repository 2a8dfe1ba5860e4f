"""How many threads to use, and the loop over panels. No global setting is read twice or changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from numba import config
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def count() -> int:
    """Threads: what numba is allowed, and no more than the BLAS uses now."""
    blas = [
        library["num_threads"] for library in _controller().info() if library["user_api"] == "blas"
    ]
    return max(1, min([int(config.NUMBA_NUM_THREADS), *blas]))  # type: ignore[no-any-return]


def each(work: Callable[[tuple[int, int]], None], panels: Sequence[tuple[int, int]]) -> None:
    """Run ``work`` on every panel of rows; the panels are independent, so order does not matter."""
    workers = min(count(), len(panels))
    if workers < 2:
        for panel in panels:
            work(panel)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(work, panels):
            pass
