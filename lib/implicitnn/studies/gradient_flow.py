"""Study of gradient flow against its bound (claim C3)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn.infinite_depth import Status
from implicitnn.studies import _trajectories
from implicitnn.sweeps import Study

# Explicit steps chatter where a unit slides along its kink; admissible starts need about 500.
EVALUATIONS = 4000


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    r"""Return how one trajectory compares with the theorem.

    The time is that in which the bound falls by 150, at most
    :math:`200/\lVert Z_0\rVert^2`. ``loss_over_bound`` is the largest of loss over bound,
    ``sigma_ratio`` the smallest of :math:`2\sigma_{\min}(Z(t))/\alpha_0`, ``moved`` the largest
    distance from the start over its radius, ``slack`` the smallest slack of the inequalities,
    ``failed`` 1 where the conditions hold and the run does not complete. The
    unscaled random start is not admissible; there the integrator may give up, see the page.
    """
    start = _trajectories.setting(settings, seed)
    c = start.conditions
    fastest = deep.operator_norm(deep.forward(start.params, start.X).Z) ** 2
    end = 20 / fastest if c.alpha0 == 0 else min(2 * math.log(150) / c.alpha0**2, 200 / fastest)
    times = np.linspace(0.0, end, 16)
    run = deep.flow(start.params, start.X, start.y, times, max_evaluations=EVALUATIONS)
    found = {"status": run.status.name, "evaluations": run.evaluations}
    losses, trace = run.trace.loss, run.trace
    completed = run.status is Status.COMPLETED
    if not completed or not c.flow_holds:
        numbers = _trajectories.vacuous()
    else:
        numbers = _trajectories.against_bound(losses, c.flow_bound(times))
    moved = (trace.moved_W, trace.moved_A, trace.moved_b)
    return found | numbers | {
        "counts_as": _trajectories.kind(numbers["bound_fall"], c.flow_holds, completed),
        "failed": int(c.flow_holds and not completed),
        "slack": min(item.slack for item in c.flow),
        "sigma_ratio": float(2 * trace.sigma_min.min() / c.alpha0) if losses.size else 0.0,
        "moved": float(max(max(m / r, default=0.0) for m, r in zip(moved, c.radii, strict=True))),
        "rises": int((np.diff(losses) > 1e-14 * losses[:1]).sum()),
    }  # fmt: skip


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return every family at every number of samples."""
    return [{"family": family, "N": N} for family in _trajectories.FAMILIES for N in sizes]


STUDY = Study(
    name="gradient_flow",
    row=row,
    grids={"quick": grid((4,)), "paper": grid((2, 4, 8, 16))},
    seeds={"quick": (0, 1, 2), "paper": tuple(range(20))},
    claims=("C3",),
    rtol=1e-4,
    atol=1e-9,
    unchecked=("evaluations",),
)
