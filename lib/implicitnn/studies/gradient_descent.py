"""Study of gradient descent against its bound and the steps of its proof (claim C4)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray
from implicitnn.infinite_depth import Conditions, Equilibrium, Params, Status
from implicitnn.studies import _trajectories
from implicitnn.studies._admissible import Setting
from implicitnn.sweeps import Study

LONGEST = 600
TOL = 1e-12
UNIT = float(np.finfo(float).eps) / 2


class Watch:
    """Follows the inequalities of the proof along a descent; each number is at most 1.

    ``invisible`` counts the steps whose bound on the features is below :func:`rounding`.
    """

    def __init__(self, start: Setting, eta: float) -> None:
        self.start, self.eta = start, eta
        self.before: tuple[FloatArray, float, float] | None = None
        self.largest = {"gradients": 0.0, "features": 0.0, "features_bare": 0.0, "size": 0.0}
        self.invisible = 0

    def __call__(self, epoch: int, now: Params) -> None:
        """Measure at one epoch."""
        c: Conditions = self.start.conditions
        solved = deep.forward(now, self.start.X, tol=1e-15)
        found = deep.gradients(now, self.start.X, self.start.y)
        r = float(np.linalg.norm(found.residual))
        # With a residual at rounding the ratios mean nothing.
        if r > 1e-9 * c.r0:
            pairs = ((found.b, c.B_Z), (found.A, c.B_A), (found.W, c.B_W))
            norms = [float(np.linalg.norm(g)) / (bound * r) for g, bound in pairs]
            self._keep("gradients", max(norms))
        level = rounding(now, self.start.X, solved, c)
        if self.before is not None:
            old, r_old, level_old = self.before
            self._features(float(np.linalg.norm(solved.Z - old)), r_old, level + level_old)
        self._keep("size", float(np.linalg.norm(solved.Z)) / c.B_Z)
        # The residual that made the step is known to the tolerance of the descent.
        doubt = (TOL + now.width * UNIT) * float(np.linalg.norm(solved.Z) * np.linalg.norm(now.b))
        self.before = solved.Z, r + doubt, level

    def _features(self, step: float, r: float, level: float) -> None:
        bound = self.eta * self.start.conditions.C_Z * r
        self._keep("features", step / (bound + level))
        if bound > 0:
            self._keep("features_bare", step / bound)
        self.invisible += int(bound < level)

    def _keep(self, name: str, value: float) -> None:
        self.largest[name] = max(self.largest[name], value)


def rounding(now: Params, X: FloatArray, solved: Equilibrium, c: Conditions) -> float:
    r"""Return a bound on the distance of the computed features from those of the exact iteration.

    With u the unit roundoff, one pass of the forward map is computed to

    .. math::
        \omega = u\big((m+2)\,\gamma\lVert A\rVert_F\lVert Z\rVert_F + \lVert Z\rVert_F
        + (d+1)\lVert X\rVert_F\lVert W\rVert_F\big)

    (a product of inner length n has relative error nu, and scaling and adding add u each). A
    contraction turns it, and the last step s of the iteration, into an error of at most
    :math:`(\omega + g s)/(1 - g)`. The parameters are rounded as well when a step is added to them:
    by :math:`u\lVert W\rVert_F` and :math:`u\lVert A\rVert_F`, which the features follow with
    the Lipschitz constants of the proof.
    """
    size, width = float(np.linalg.norm(solved.Z)), now.width
    norm_A, norm_W = float(np.linalg.norm(now.A)), float(np.linalg.norm(now.W))
    products = (width + 2) * now.gamma * norm_A * size + size
    products += (X.shape[1] + 1) * c.frobenius_X * norm_W
    passes = solved.report.error_bound + UNIT * products / (1 - solved.rate)
    stored = UNIT * (now.gamma * c.B_Z * norm_A + c.norm_X * norm_W) / (1 - c.g0)
    return float(passes + stored)


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    r"""Return how one trajectory compares with the theorem, at the largest step it allows.

    ``loss_over_bound`` is the largest of loss over bound; ``sigma_ratio`` the smallest of
    :math:`2\sigma_{\min}(Z_k)/\alpha_0`; ``moved`` the largest distance from the start over its
    radius; ``gradients``, ``features`` and ``size`` the largest of a gradient, a step of Z and Z
    over their bounds; ``slack`` the smallest slack of the inequalities. The bound on a step of Z
    includes the :func:`rounding` of Z; ``features_bare`` is without it, and ``invisible`` counts
    the steps whose bound is below it. ``failed`` is 1 where the conditions hold and the run does
    not complete. Where the conditions fail the step is that of the
    experiments, 1/N.
    """
    start = _trajectories.setting(settings, seed)
    c, (params, X, y) = start.conditions, start[:3]
    eta = c.eta_max if c.descent_holds else 1 / len(y)
    rate = -2 * math.log1p(-eta * c.alpha0**2 / 8) if c.descent_holds else 0.0
    epochs = LONGEST if rate <= 0 else min(LONGEST, math.ceil(math.log(150) / rate))
    watch = Watch(start, eta)
    run = deep.descend(
        params, X, y, eta, epochs, tol=TOL, observe=watch if c.descent_holds else None
    )
    completed = run.status is Status.COMPLETED
    bound = c.bound(np.arange(epochs + 1), eta) if c.descent_holds and completed else None
    numbers = (
        _trajectories.vacuous() if bound is None
        else _trajectories.against_bound(run.losses, bound)
    )  # fmt: skip
    trace = run.trace
    moved = (trace.moved_W, trace.moved_A, trace.moved_b)
    return {"status": run.status.name, "epochs": run.epochs} | numbers | watch.largest | {
        "invisible": watch.invisible,
        "counts_as": _trajectories.kind(numbers["bound_fall"], c.descent_holds, completed),
        "failed": int(c.descent_holds and not completed),
        "slack": min(item.slack for item in c.descent),
        "sigma_ratio": float(2 * trace.sigma_min.min() / c.alpha0) if c.alpha0 > 0 else 0.0,
        "moved": float(max((m / r).max() for m, r in zip(moved, c.radii, strict=True))),
        "loss_ratio": float(run.losses[-1] / run.losses[0]),
    }  # fmt: skip


def grid(sizes: tuple[int, ...]) -> list[dict[str, object]]:
    """Return every family at every number of samples."""
    return [{"family": family, "N": N} for family in _trajectories.FAMILIES for N in sizes]


STUDY = Study(
    name="gradient_descent",
    row=row,
    grids={"quick": grid((4, 8)), "paper": grid((2, 4, 8, 16))},
    seeds={"quick": (0, 1, 2), "paper": tuple(range(50))},
    claims=("C4",),
    rtol=1e-4,
    atol=1e-9,
    # Rounding decides them.
    unchecked=("features_bare", "invisible"),
)
