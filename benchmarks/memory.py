"""Peak memory of one evaluation, in units of its two results, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np


def peak(activation: str, n: int, params: str) -> float:
    """Growth of the peak resident memory over n x n doubles, with X in place and all compiled."""
    command = [sys.executable, "-m", "benchmarks.memory", activation, str(n), params]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["outputs"])


def high_water() -> int:
    """Largest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would count the parent's peak too, which survives fork and exec
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Evaluate twice at a small size, then once at n, and print the growth of the peak."""
    from benchmarks import cases
    from implicitnn import activations, kernels

    name, n, params = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    X = cases.mixture(n)
    spec = cases.network(activations.get(name), 0.2, X)
    for _ in range(2):
        kernels.ck_and_ntk(spec, X[:: max(1, n // 300)], params=params)
    before = high_water()
    result = kernels.ck_and_ntk(spec, X, params=params)
    grown = high_water() - before
    assert all(np.isfinite(part).all() for part in result)
    print(json.dumps({"outputs": grown / (8.0 * n * n)}))


if __name__ == "__main__":
    main()
