r"""Study of Lemma 5.1: :math:`Z = \Phi(I - \gamma A)^{-1}` for A without negative entries (C6)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray, real
from implicitnn.infinite_depth import Params
from implicitnn.sweeps import Study

KINDS = ("dense", "sparse", "triangular", "rank one", "permutation", "signed")


def weights(kind: str, m: int, rng: np.random.Generator) -> FloatArray:
    """Return a random (m, m) matrix of norm 1; all kinds but ``signed`` are nonnegative."""
    uniform = rng.uniform(size=(m, m))
    matrices = {
        "dense": uniform,
        "sparse": uniform * (rng.uniform(size=(m, m)) < 4 / m) + 1e-3 * np.eye(m),
        "triangular": np.triu(uniform, 1),
        "rank one": np.outer(uniform[0], uniform[1]),
        "permutation": np.eye(m)[rng.permutation(m)],
        "signed": rng.standard_normal((m, m)),
    }
    A = matrices[kind]
    return np.asarray(A / deep.operator_norm(A))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return the relative error of the closed form and the two sides of the bound.

    ``bound_ratio`` is :math:`\sigma_{\min}(Z)(1+g)/\sigma_{\min}(\Phi)`, at least 1 by the lemma;
    1 where a sample drives no unit, so that the right side is 0 and nothing is bounded.
    """
    kind, rate = str(settings["kind"]), real(settings["rate"], "rate")
    rng = np.random.default_rng([seed, KINDS.index(kind), int(1000 * rate)])
    m = int(rng.integers(12, 60))
    N, d = m // 4, m // 2
    params = Params(rng.standard_normal((d, m)), weights(kind, m, rng), np.zeros(m), rate)
    solved = deep.forward(params, rng.standard_normal((N, d)), tol=1e-15)
    closed = np.linalg.solve((np.eye(m) - rate * params.A).T, solved.Phi.T).T
    low = deep.smallest_singular_value(solved.Phi) / (1 + rate)
    high = deep.smallest_singular_value(solved.Z)
    return {
        "error": float(np.abs(solved.Z - closed).max() / np.abs(closed).max()),
        "bound_ratio": high / low if low > 0 else 1.0,
    }


def _grid(rates: tuple[float, ...]) -> list[dict[str, object]]:
    return [{"kind": kind, "rate": rate} for kind in KINDS for rate in rates]


STUDY = Study(
    name="nonnegative_weights",
    row=row,
    grids={"quick": _grid((0.5, 0.95)), "paper": _grid((0.1, 0.5, 0.9, 0.95))},
    seeds={"quick": tuple(range(5)), "paper": tuple(range(50))},
    claims=("C6",),
    rtol=1e-6,
    atol=1e-12,
)
