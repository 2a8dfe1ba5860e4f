r"""Study of Lemma 3.1: contraction, existence, uniqueness and size of the fixed point (claim C1).

Random W, X and A of five kinds; gamma is chosen such that :math:`\gamma\lVert A\rVert` is the
setting ``rate``. Rates of 1 and more are beyond the lemma: there the rows say what happens.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray, real
from implicitnn.infinite_depth import Params, Status
from implicitnn.sweeps import Study

SAMPLES, INPUTS, WIDTH = 20, 15, 40
KINDS = ("gaussian", "nonnegative", "nonpositive", "nilpotent", "orthogonal")
TOL = 1e-12


def weights(kind: str, m: int, rng: np.random.Generator) -> FloatArray:
    """Return a random matrix (m, m) of one of the kinds."""
    gaussian = rng.standard_normal((m, m))
    if kind == "gaussian":
        return gaussian
    if kind in ("nonnegative", "nonpositive"):
        return np.asarray(np.abs(gaussian) * (1.0 if kind == "nonnegative" else -1.0))
    if kind == "nilpotent":
        return np.asarray(np.triu(np.abs(gaussian), 1))
    if kind == "orthogonal":
        return np.asarray(np.linalg.qr(gaussian)[0])
    raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    r"""Return measured quantities divided by their bounds (at most 1 where the lemma holds).

    ``contraction``: largest ratio of distances after and before one pass, over 20 random pairs,
    divided by the rate. ``size``: :math:`\lVert Z\rVert_F (1-g)/\lVert\Phi\rVert_F`.
    ``uniqueness``: relative distance of the fixed points from two starts. ``observed_rate``: the
    geometric mean of the ratios of successive steps.
    """
    kind, rate = str(settings["kind"]), real(settings["rate"], "rate")
    rng = np.random.default_rng([seed, KINDS.index(kind), int(1000 * rate)])
    A = weights(kind, WIDTH, rng)
    X = rng.standard_normal((SAMPLES, INPUTS))
    W = rng.standard_normal((INPUTS, WIDTH)) / np.sqrt(INPUTS)
    params = Params(W, A, np.zeros(WIDTH), rate / deep.operator_norm(A))
    found = deep.forward(params, X, tol=TOL, max_iterations=20_000, require_contraction=False)
    ok = found.status is Status.CONVERGED
    size = float(np.linalg.norm(found.Z) / np.linalg.norm(found.Phi)) if ok else 0.0
    return {
        "outcome": found.status.name,
        "converged": int(ok),
        "iterations": found.iterations,
        "contraction": contraction(params, found.Phi, rng) / rate,
        "size": size * (1 - rate) if rate < 1 else 0.0,
        "uniqueness": uniqueness(params, X, found.Z, rng) if rate < 1 else 0.0,
        "observed_rate": observed_rate(params, found.Phi) if rate < 1 else 0.0,
    }


def contraction(params: Params, Phi: FloatArray, rng: np.random.Generator) -> float:
    """Return the largest ratio of distances after and before one pass, over 20 pairs.

    Pairs differ by a random matrix or along the direction that A stretches most.
    """
    top = most_stretched(params.A)
    largest = 0.0
    for i in range(20):
        Z = np.abs(rng.standard_normal(Phi.shape)) * 10.0 ** rng.uniform(-2, 2)
        step = rng.standard_normal(Phi.shape) if i % 2 else np.outer(np.ones(len(Phi)), top)
        other = Z + step * 10.0 ** rng.uniform(-3, 1)
        moved = np.linalg.norm(one_pass(params, other, Phi) - one_pass(params, Z, Phi))
        largest = max(largest, float(moved / np.linalg.norm(other - Z)))
    return largest


def most_stretched(A: FloatArray) -> FloatArray:
    r"""Return a unit vector v with the largest :math:`\lVert vA\rVert`, the same on every machine.

    Singular vectors have no sign, and where singular values are equal, as for an orthogonal A, no
    direction: rounding would choose. So v is the part of the vector of ones in the space of the
    largest singular value.

    Examples
    --------
    >>> most_stretched(-np.eye(4)).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    left, sizes, _ = np.linalg.svd(A)
    top = left[:, sizes >= (1.0 - 1e-9) * sizes[0]]
    v = top @ top.sum(axis=0)
    return np.asarray(v / np.linalg.norm(v))


def one_pass(params: Params, Z: FloatArray, Phi: FloatArray) -> FloatArray:
    """Return relu(gamma Z A + Phi)."""
    return np.asarray(np.maximum(params.gamma * (Z @ params.A) + Phi, 0.0))


def uniqueness(params: Params, X: FloatArray, Z: FloatArray, rng: np.random.Generator) -> float:
    """Return the relative distance of Z from the fixed point of a far random start."""
    start = 1e3 * rng.standard_normal(Z.shape)
    other = deep.forward(params, X, start=start, tol=TOL, max_iterations=40_000)
    return float(np.linalg.norm(other.Z - Z) / np.linalg.norm(Z))


def observed_rate(params: Params, Phi: FloatArray) -> float:
    """Return the geometric mean of the ratios of steps between passes 5 and 25 from zero.

    0 when the iteration ends exactly before that, as it does for a nilpotent A.
    """
    Z, steps = np.zeros_like(Phi), []
    for _ in range(26):
        new = one_pass(params, Z, Phi)
        steps.append(float(np.linalg.norm(new - Z)))
        Z = new
    kept = [s for s in steps[5:] if s > 1e-13 * steps[0]]
    return float((kept[-1] / kept[0]) ** (1 / (len(kept) - 1))) if len(kept) > 1 else 0.0


def _grid(rates: tuple[float, ...]) -> list[dict[str, object]]:
    return [{"kind": kind, "rate": rate} for kind in KINDS for rate in rates]


STUDY = Study(
    name="well_posedness",
    row=row,
    grids={
        "quick": _grid((0.3, 0.9, 1.1)),
        "paper": _grid((0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.1, 1.5, 2.0)),
    },
    seeds={"quick": (0, 1, 2), "paper": tuple(range(20))},
    claims=("C1",),
    rtol=1e-5,
    atol=1e-9,
    # Beyond the edge the path can depend on rounding.
    unchecked=("iterations", "outcome", "converged"),
)
