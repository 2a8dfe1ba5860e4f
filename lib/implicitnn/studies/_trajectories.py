"""Random starts for the studies of flow and descent, and what is measured on a trajectory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray, integer
from implicitnn.studies import _admissible
from implicitnn.studies._admissible import Setting

FAMILIES = ("designed", "designed, b0 not 0", "random, scaled", "random")
# A bound has to fall by this factor for a check of it to count.
INFORMATIVE = 100.0


def setting(settings: Mapping[str, object], seed: int) -> Setting:
    """Return the start of a cell.

    The designed families satisfy the conditions and their bound falls quickly. ``random`` is the
    start of the experiments on random data: unit rows in dimension N, W with N(0, 1/m), A = I,
    b = 0, m = 4N, gamma = 0.1. ``random, scaled`` is the same at 1.05 times the smallest admissible
    scale: there the conditions hold, and from N = 8 on the bound hardly falls.
    """
    N, family = integer(settings["N"], "N", 1), str(settings["family"])
    rng = np.random.default_rng([seed, N, FAMILIES.index(family)])
    if family.startswith("designed"):
        return _admissible.draw(N, rng, bias=family != "designed")
    X = rng.standard_normal((N, N))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.choice([-1.0, 1.0], N)
    params = deep.identity(N, 4 * N, 0.1, rng)
    if family == "random, scaled":
        scale = deep.smallest_beta(params, X, y).beta
        if scale is None:
            raise ValueError("the conditions hold at no scale")
        params = params.scaled(1.05 * scale)
    return Setting(params, X, y, deep.conditions(params, X, y))


def against_bound(losses: FloatArray, bound: FloatArray) -> dict[str, float]:
    """Return how far the losses stay under the bound, and the ratio of the two rates in logs.

    Losses below 1e-20 of the first are rounding and are left out.
    """
    seen = losses > 1e-20 * losses[0]
    fall = math.log(bound[0] / bound[-1])
    last = int(np.flatnonzero(seen)[-1])
    observed = math.log(losses[0] / losses[last])
    return {
        "bound_fall": float(bound[0] / bound[-1]),
        "loss_over_bound": float((losses[seen] / bound[seen])[1:].max()),
        "rate_ratio": observed / math.log(bound[0] / bound[last]) if fall > 0 else 0.0,
    }


def vacuous() -> dict[str, float]:
    """Return the same columns where the theorem says nothing: a bound that stays at 1."""
    return {"bound_fall": 1.0, "loss_over_bound": 0.0, "rate_ratio": 0.0}


def kind(bound_fall: float, holds: bool, completed: bool) -> str:
    """Return how a trajectory counts: not admissible, failed, vacuous, or informative.

    An admissible start whose run does not complete would contradict the theorem.
    """
    if not holds:
        return "not admissible"
    if not completed:
        return "failed"
    return "informative" if bound_fall >= INFORMATIVE else "vacuous"
