"""Time the kernels, interleaved with the floor, and write data/results/benchmarks.json.

Floor: all inner products of the samples, and one pass over them. A ratio is the smallest time of a
contender over the smallest time of the floor, both taken in the same rounds of one process. The
error is the largest scaled error over sampled entries against the scalar reference.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from benchmarks import cases, contenders, memory
from implicitnn import kernels
from implicitnn._kernels import reference as _reference
from implicitnn.activations import relu
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "data" / "results" / "benchmarks.json"
# a call takes 10 ms at n = 1000: the smallest of a few is still noise
ROUNDS = {1000: 40, 4000: 5}


def machine() -> dict[str, Any]:
    """What the times depend on."""
    import numba
    import scipy

    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "blas": [
            {k: b.get(k) for k in ("internal_api", "version", "num_threads", "architecture")}
            for b in threadpool_info()
            if b["user_api"] == "blas"
        ],
        "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE"),
        "load": os.getloadavg()[0],
        "compile_seconds": kernels.compile_seconds(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and process seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def interleaved(work: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Smallest wall and CPU times over rounds in which every contender runs once."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            times[name].append(timed(call))
    return {
        name: {"wall": min(t[0] for t in rows), "cpu": min(t[1] for t in rows)}
        for name, rows in times.items()
    }


def worst_error(spec: DEQ, X: FloatArray, entries: int) -> tuple[float, float]:
    """Scaled errors of CK and NTK at random entries and at the diagonal."""
    ck, ntk = kernels.ck_and_ntk(spec, X)
    rng = np.random.default_rng(5)
    worst = [0.0, 0.0]
    for _ in range(entries):
        i, j = (int(k) for k in rng.integers(X.shape[0], size=2))
        q1, q2 = float(X[i] @ X[i]), float(X[j] @ X[j])
        exact = _reference.entry(spec, q1, q2, float(X[i] @ X[j]))
        left, right = _reference.entry(spec, q1, q1, q1), _reference.entry(spec, q2, q2, q2)
        pairs = (
            (ck[i, j], exact.ck, left.ck * right.ck),
            (ntk[i, j], exact.ntk_published, left.ntk_published * right.ntk_published),
        )
        for k, (value, truth, square) in enumerate(pairs):
            worst[k] = max(worst[k], abs(value - truth) / float(np.sqrt(square)))
    return worst[0], worst[1]


def measure(n: int, data: str, entries: int, rounds: int) -> list[dict[str, Any]]:
    """Rows for every activation and sigma_a2 at one size."""
    X = cases.DATA[data](n)
    out = np.empty((n, n))
    rows = []
    for activation in cases.ACTIVATIONS:
        for sigma_a2 in cases.SIGMA_A2:
            spec = cases.network(activation, sigma_a2, X)
            library = partial(contenders.library, spec, X)
            cold = timed(library)
            work: dict[str, Callable[[], Any]] = {
                "floor": lambda: contenders.floor(X, out),
                "implicitnn": library,
            }
            if activation is relu and n <= 1000:
                work["numpy Picard"] = partial(contenders.picard, spec, X)
                work["numba Newton"] = partial(contenders.newton, spec, X)
                work["numba Newton"]()
            times = interleaved(work, rounds)
            error = worst_error(spec, X, entries)
            base = times["floor"]
            for name, t in times.items():
                row = {
                    "n": n,
                    "p": cases.P,
                    "data": data,
                    "activation": activation.name,
                    "sigma_a2": sigma_a2,
                    "contender": name,
                    **t,
                    "ratio": t["wall"] / base["wall"],
                    "cpu_ratio": t["cpu"] / base["cpu"],
                }
                if name == "implicitnn":
                    row["first_call_cpu_ratio"] = cold[1] / base["cpu"]
                    row["error_ck"], row["error_ntk"] = error
                rows.append(row)
                print(_line(row), flush=True)
    return rows


def _line(row: dict[str, Any]) -> str:
    text = (
        f"{row['n']:5d} {row['data']:8s} {row['activation']:20s} {row['sigma_a2']:.1f} "
        f"{row['contender']:13s} {row['wall']:8.4f} s  {row['ratio']:6.2f} floors "
        f"(cpu {row['cpu_ratio']:.2f})"
    )
    if "error_ck" in row:
        text += f"  error {row['error_ck']:.0e} {row['error_ntk']:.0e}"
    return text


def write(output: Path, found: dict[str, Any]) -> None:
    """Write the results of a benchmark, and say where."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written to {output}", file=sys.stderr)


def peer_python() -> Path:
    """Interpreter of an environment of its own for neural-tangents, made when it is missing."""
    place = ROOT / "benchmarks" / ".venv-peers"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(place, with_pip=True)
    pins = ROOT / "benchmarks" / "requirements-peers.txt"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(pins)], check=True)
    return python


def peers() -> None:
    """Run neural-tangents in its own environment."""
    subprocess.run([str(peer_python()), str(ROOT / "benchmarks" / "peers.py")], check=True)


def main(arguments: list[str] | None = None) -> None:
    """Run all sizes, print a table, write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--entries", type=int, default=3, help="entries checked per case")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--peers", action="store_true", help="neural-tangents, in its own .venv")
    options = parser.parse_args(arguments)
    if options.peers:
        peers()
        return
    facts = machine()
    rows = [
        row
        for n in options.sizes
        for data in cases.DATA
        for row in measure(n, data, options.entries, options.rounds or ROUNDS.get(n, 3))
    ]
    largest = max(options.sizes)
    peaks = {a.name: memory.peak(a.name, largest, "all") for a in cases.ACTIVATIONS}
    for name, outputs in peaks.items():
        print(f"{largest:5d} {name:20s} peak memory {outputs:.2f} n x n results", flush=True)
    facts["load_after"] = os.getloadavg()[0]
    memory_rows = {"n": largest, "peak_over_n2": peaks}
    write(options.output, {"machine": facts, "rows": rows, "memory": memory_rows})


if __name__ == "__main__":
    main()
