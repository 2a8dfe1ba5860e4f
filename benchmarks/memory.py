"""Peak memory of one evaluation, in units of its two results, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np


def peak(activation: str, n: int, params: str) -> float:
    """Growth of the peak resident memory over n x n doubles, with X in place and all compiled."""
    command = [sys.executable, "-m", "benchmarks.memory", activation, str(n), params]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["outputs"])


def main() -> None:
    """Evaluate twice at a small size, then once at n, and print the growth of the peak."""
    import resource

    from benchmarks import cases
    from implicitnn import activations, kernels

    name, n, params = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    X = cases.mixture(n)
    spec = cases.network(activations.get(name), 0.2, X)
    for _ in range(2):
        kernels.ck_and_ntk(spec, X[:: max(1, n // 300)], params=params)
    unit = 1024 if sys.platform != "darwin" else 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    result = kernels.ck_and_ntk(spec, X, params=params)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    assert all(np.isfinite(part).all() for part in result)
    print(json.dumps({"outputs": (after - before) / (8.0 * n * n)}))


if __name__ == "__main__":
    main()
