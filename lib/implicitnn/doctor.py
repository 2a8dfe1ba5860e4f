"""What this installation is made of: versions, BLAS, cores, compiled kernels, data sets, GPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import joblib
import threadpoolctl

from implicitnn._cli.text import table
from implicitnn._data import inventory as _inventory
from implicitnn._data import registry as _registry
from implicitnn.errors import DataNotFoundError

PACKAGES = (
    *("numpy", "scipy", "numba", "scikit-learn", "matplotlib", "seaborn", "pandas", "sympy"),
    *("joblib", "pooch", "torch", "jupyter-book", "jupytext", "papermill"),
)
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Section:
    """One part of the report: a title, lines of (label, value), and faults to be repaired."""

    title: str
    lines: tuple[tuple[str, str], ...]
    faults: tuple[str, ...] = ()


def report() -> list[Section]:
    """Return every section of the report.

    The kernels are compiled when this machine has not done so yet, and PyTorch is imported to
    look for a GPU; both take seconds.
    """
    return [software(), blas(), kernels(), gpu(), data()]


def text(sections: list[Section]) -> str:
    """Return the report as text.

    Examples
    --------
    >>> print(text([Section("Data", (("mnist", "embedded"),), ("a file is missing",))]))
    Data
      mnist  embedded
      FAULT: a file is missing
    """
    parts = []
    for section in sections:
        faults = "".join(f"\n  FAULT: {fault}" for fault in section.faults)
        parts.append(f"{section.title}\n{table(section.lines, '  ')}{faults}")
    return "\n\n".join(parts)


def software() -> Section:
    """Return Python, the system, and the version of each package."""
    lines = [
        ("implicitnn", _version("implicitnn")),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        *((name, _version(name)) for name in PACKAGES),
    ]
    return Section("Software", tuple(lines))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "run from its folder" if name == "implicitnn" else "not installed"


def blas() -> Section:
    """Return the cores, the thread pools of the loaded libraries, and the variables that set them.

    Examples
    --------
    >>> "cores" in dict(blas().lines)
    True
    """
    import scipy.linalg  # noqa: F401  loads the BLAS that the library uses

    pools = [
        (pool["user_api"], f"{_engine(pool)}, {pool['num_threads']} thread(s)")
        for pool in threadpoolctl.threadpool_info()
    ]
    variables = [(name, os.environ.get(name, "not set")) for name in THREAD_VARIABLES]
    cores = f"{joblib.cpu_count()} usable, {os.cpu_count()} in all"
    return Section("Processor and threads", (("cores", cores), *pools, *variables))


def _engine(pool: dict[str, object]) -> str:
    parts = (pool["internal_api"], pool.get("version"), pool.get("architecture"))
    return f"{' '.join(str(p) for p in parts if p)} ({Path(str(pool['filepath'])).name})"


def kernels() -> Section:
    """Return where compiled kernels are cached and how long the first call takes here."""
    from implicitnn import kernels as exact

    folder = os.environ.get("NUMBA_CACHE_DIR", "__pycache__ beside each module")
    seconds = f"{exact.compile_seconds():.1f} s (near zero once they are cached)"
    return Section("Compiled kernels", (("cache", folder), ("ready in", seconds)))


def gpu() -> Section:
    """Return the GPU that PyTorch sees, if any; nothing in the book needs one."""
    if importlib.util.find_spec("torch") is None:
        advice = "PyTorch is not installed: pip install 'implicitnn[torch]'"
        return Section("GPU", (("torch", advice),))
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Section("GPU", tuple((f"cuda:{i}", name) for i, name in enumerate(names)))
    if torch.backends.mps.is_available():
        return Section("GPU", (("mps", "Apple GPU"),))
    return Section("GPU", (("none", "PyTorch runs on the processor"),))


def data() -> Section:
    """Return where data are searched, what is found, and faults of the embedded samples."""
    try:
        places = _inventory.where_searched()
        lines = [(f"searched: {place}", folder) for place, folder in places]
        sources = _registry.registry().datasets
        lines += [(name, _summary(name)) for name in sources]
        faults = [
            f"{finding.subject}: {finding.verdict}"
            for name in _registry.registry().embedded
            for finding in _inventory.verify_embedded(sources[name])
            if finding.fault
        ]
    except (DataNotFoundError, FileNotFoundError) as error:
        return Section("Data sets", (("data", "cannot be listed"),), (str(error),))
    return Section("Data sets", tuple(lines), tuple(faults))


def _summary(name: str) -> str:
    source = _registry.registry().datasets[name]
    found = [(place, _inventory.splits(source, place)) for place in _inventory.PLACES]
    there = "; ".join(f"{place}: {what}" for place, what in found if what != "-")
    return there or f"not here: python -m implicitnn data fetch {name}"
