r"""Full-batch gradient descent with a watch on well-posedness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicitnn import _validate
from implicitnn._infinite_depth import finite
from implicitnn._infinite_depth.norms import Splitting, contracts, operator_norm, project, splitting
from implicitnn._infinite_depth.params import Inputs, Params, check_inputs
from implicitnn._infinite_depth.solve import Workspace
from implicitnn._infinite_depth.status import Status
from implicitnn._infinite_depth.trace import Recorder, Trace
from implicitnn._validate import FloatArray

ON_LEAVE = ("stop", "shrink", "project")
Observe = Callable[[int, Params], None]
# Share of the norm of A by which A may move before its norm is computed anew.
_REFRESH = 0.1


@dataclass(frozen=True)
class Leave:
    r"""A step that left well-posedness: its epoch, :math:`\gamma\lVert A\rVert`, what was done."""

    epoch: int
    rate: float
    action: str


@dataclass(frozen=True, eq=False)
class Descent:
    """A run of gradient descent.

    ``epochs`` counts the steps taken, ``left`` lists the steps that left well-posedness, ``trace``
    holds the recorded epochs and ``params`` the last parameters; where these are not finite, the
    last recorded ones. ``losses`` and ``iterations``
    (forward products) are of every epoch. ``status`` is ``COMPLETED`` when all steps were taken.
    """

    params: Params
    status: Status
    epochs: int
    left: tuple[Leave, ...]
    trace: Trace
    losses: FloatArray
    iterations: FloatArray

    @property
    def message(self) -> str:
        """What happened, with epoch and value where well-posedness was left."""
        text = f"{self.status.text} (after {self.epochs} steps)"
        events = [f"epoch {e.epoch}: gamma ||A|| = {e.rate:.6g}, {e.action}" for e in self.left[:3]]
        more = len(self.left) - len(events)
        return "; ".join([text, *events, *([f"and {more} more"] if more else [])])


def descend(
    params: Params,
    X: FloatArray,
    y: FloatArray,
    eta: float,
    epochs: int,
    *,
    on_leave: str = "stop",
    edge: float = 0.99,
    each_epoch: float | None = None,
    depth: int | None = None,
    tol: float = 1e-10,
    max_iterations: int = 10_000,
    record_every: int = 1,
    split: bool = True,
    observe: Observe | None = None,
) -> Descent:
    r"""Run :math:`\theta_{k+1} = \theta_k - \eta\nabla L(\theta_k)` on all samples at once.

    Forward and adjoint start from the fixed points of the step before. Where it contracts more, a
    multiple c I of the identity is split off A, and
    :math:`Z = \mathrm{relu}(\gamma Z(A - cI) + \Phi)/(1 - \gamma c)` is iterated: same fixed point,
    rate :math:`\gamma\lVert A - cI\rVert/(1 - \gamma c)`.

    Parameters
    ----------
    params : Params
        The start; it is not changed.
    X, y : array_like, shapes (N, d) and (N,)
    eta : float
        Step, positive.
    epochs : int
        Number of steps.
    on_leave : {"stop", "shrink", "project"}
        What to do when a step gives :math:`\gamma\lVert A\rVert\ge 1`: stop; make gamma smaller so
        that the product is ``edge``; or project A on the ball where the product is ``edge``.
    edge : float
        In (0, 1).
    each_epoch : float, optional
        Choose gamma anew before every forward pass such that :math:`\gamma_k\lVert A_k\rVert` is
        this value, in (0, 1): the strategy that needs the norm of A at each epoch. While A = 0
        gamma stays.
    depth : int, optional
        Use that many layers instead of the limit; well-posedness does not matter then.
    tol, max_iterations : float, int
        For the fixed points, as in :func:`forward`.
    record_every : int
        Epochs between two records; first and last are always kept. A record computes the norm of A
        anew, and with it the splitting: it changes the iterates within ``tol``.
    split : bool
        False iterates the network's own map only.
    observe : callable, optional
        Called with the epoch and a copy of the parameters at each record.

    Returns
    -------
    Descent
        ``status`` is ``COMPLETED``, ``NOT_WELL_POSED``, ``MAX_ITERATIONS`` or ``DIVERGED``. No
        record holds a number that is not finite.

    Raises
    ------
    ValueError
        Arguments out of range, shapes that do not fit.

    Notes
    -----
    Theorem 4.4 of Gao and Gao (2022), arXiv 2205.07463, is about this iteration with a fixed gamma.

    Examples
    --------
    >>> start = Params(40 * np.eye(2), np.zeros((2, 2)), np.zeros(2), 0.05)
    >>> run = descend(start, np.eye(2), np.array([1.0, -1.0]), 3e-4, 50)
    >>> run.status.name, bool(run.trace.loss[-1] < 1e-6)
    ('COMPLETED', True)
    """
    data = check_inputs(params, X, y)
    _validate.one_of(on_leave, "on_leave", ON_LEAVE)
    for value, name in ((edge, "edge"), (0.5 if each_epoch is None else each_epoch, "each_epoch")):
        if not 0 < _validate.real(value, name) < 1:
            raise ValueError(f"{name} must lie in (0, 1), got {value}")
    run = _Run(params, data, edge, on_leave, each_epoch)
    run.tol = _validate.positive(tol, "tol")
    run.limit = _validate.integer(max_iterations, "max_iterations", 1)
    if not isinstance(split, bool | np.bool_):
        raise TypeError(f"split must be True or False, got {_validate.shown(split)}")
    if observe is not None and not callable(observe):
        raise TypeError(f"observe must be callable, got {_validate.shown(observe)}")
    if depth is not None and each_epoch is not None:
        raise ValueError("each_epoch needs the limit of infinite depth: depth must be None")
    run.split = bool(split)
    run.depth = None if depth is None else _validate.integer(depth, "depth", 1)
    step, count = _validate.positive(eta, "eta"), _validate.integer(epochs, "epochs")
    every = _validate.integer(record_every, "record_every", 1)
    status = Status.COMPLETED
    epoch = 0
    for epoch in range(count + 1):
        failed = run.solve(epoch)
        if failed is not None:
            status = failed
            break
        run.history.append((run.loss, run.iterations[0]))
        if epoch % every == 0 or epoch == count:
            run.record(epoch, observe)
        if epoch < count:
            run.step(step)
    losses, iterations = np.array(run.history, dtype=float).reshape(-1, 2).T
    left, trace = tuple(run.left), run.recorder.trace()
    return Descent(run.params(), status, epoch, left, trace, losses, iterations)


class _Run:
    """State of a descent: parameters, warm fixed points, an upper bound on the norm of A."""

    def __init__(
        self, params: Params, data: Inputs, edge: float, on_leave: str, each_epoch: float | None
    ) -> None:
        self.W, self.A, self.b = (a.copy() for a in (params.W, params.A, params.b))
        self.gamma, self.data, self.edge, self.on_leave = params.gamma, data, edge, on_leave
        self.each_epoch = each_epoch
        self.tol, self.limit, self.depth = 1e-10, 10_000, None  # type: float, int, int | None
        self.split = True
        self.work = Workspace(len(data.X), params.width)
        self.states: list[FloatArray] = []
        self.residual = np.zeros(len(data.y))
        self.loss = math.inf
        self.iterations = (0, 0)
        self.left: list[Leave] = []
        self.history: list[tuple[float, int]] = []
        self.recorder = Recorder((params.W, params.A, params.b))
        self._last_good = params
        self._measure()
        self._buffer = np.zeros_like(self.A)

    def _measure(self) -> None:
        """Compute the norm of A anew; from here on count how far A has moved."""
        self.norm, self.moved = operator_norm(self.A), 0.0
        self.splitting: Splitting | None = None

    @property
    def bound(self) -> float:
        """Upper bound on the norm of A: it moves by at most the Frobenius norm of the steps."""
        return self.norm * (1 + 1e-10) + self.moved

    def params(self) -> Params:
        """Return a copy of the parameters, the last finite ones."""
        if all(np.isfinite(a).all() for a in (self.W, self.A, self.b)):
            return Params(self.W.copy(), self.A.copy(), self.b.copy(), self.gamma)
        return self._last_good

    def solve(self, epoch: int) -> Status | None:
        """Find the prediction and the adjoint; return what failed, or None."""
        finite_all = all(np.isfinite(a).all() for a in (self.W, self.A, self.b))
        if not (finite_all and math.isfinite(self.bound)):
            return Status.DIVERGED
        if self.depth is None:
            failed = self._watch(epoch) or self._implicit()
        else:
            with np.errstate(all="ignore"):  # overflow shows in the loss below
                self.states = finite.layers(self._view(), self.data.X, self.depth)
            self.work.Z, failed = self.states[-1], None
        if failed is not None:
            return failed
        with np.errstate(all="ignore"):  # overflow shows in the loss
            self.residual = self.work.Z @ self.b - self.data.y
            self.loss = 0.5 * float(self.residual @ self.residual)
        return None if math.isfinite(self.loss) else Status.DIVERGED

    def _view(self) -> Params:
        """The parameters without a check of every entry."""
        view = object.__new__(Params)
        for name, value in (("W", self.W), ("A", self.A), ("b", self.b), ("gamma", self.gamma)):
            object.__setattr__(view, name, value)
        return view

    def _watch(self, epoch: int) -> Status | None:
        """Keep gamma ||A|| below 1, or say that it is not."""
        if self.each_epoch is not None:
            self._measure()
            gamma = self.each_epoch / self.norm if self.norm > 0 else self.gamma
            if not math.isfinite(gamma):
                return Status.DIVERGED
            self.gamma = gamma
            return None
        if self.gamma * self.bound < 1 and self.moved <= _REFRESH * self.norm:
            return None
        self._measure()
        rate = self.gamma * self.norm
        if contracts(rate):
            return None
        action = {"stop": "stopped", "shrink": "gamma made smaller", "project": "A projected"}
        self.left.append(Leave(epoch, rate, action[self.on_leave]))
        if self.on_leave == "stop":
            return Status.NOT_WELL_POSED
        if self.on_leave == "shrink":
            self.gamma = self.edge / self.norm
        else:
            self.A = project(self.A, self.edge / self.gamma)
            self._measure()
        return None

    def _implicit(self) -> Status | None:
        parts, rate = self._parts()
        if not contracts(rate):  # the bound on the move is too coarse
            self._measure()
            parts, rate = self._parts()
        self.work.load(self.data.X, self.W, self.A, self.gamma, parts.shift)
        found = self.work.forward(rate, self.tol, self.limit)
        if not found.status.ok:
            return found.status
        back = self.work.adjoint(self.b, rate, self.tol, self.limit)
        self.iterations = (found.iterations, back.iterations)
        return None if back.status.ok else back.status

    def _parts(self) -> tuple[Splitting, float]:
        """How A is split, and the rate of the iteration, with A moved since."""
        if self.splitting is None:
            plain = Splitting(0.0, self.norm)
            self.splitting = splitting(self.A, self.norm, self.gamma) if self.split else plain
        return self.splitting, self.splitting.rate(self.gamma, self.moved)

    def record(self, epoch: int, observe: Observe | None) -> None:
        """Keep a row, with the norm of A computed anew."""
        self._measure()
        self._last_good = self.params()
        self.recorder.add(
            epoch, self.loss, self.work.Z, self.norm, self.gamma, self.iterations,
            (self.W, self.A, self.b),
        )  # fmt: skip
        if observe is not None:
            observe(epoch, self.params())

    def step(self, eta: float) -> None:
        """Take one step along the negative gradient."""
        with np.errstate(all="ignore"):  # overflow is found by the next solve
            if self.depth is None:
                self._implicit_step(eta)
                return
            to_W, to_A, to_b = finite.finite_gradients(
                self._view(), self.data.X, self.residual, self.states
            )
            self.W -= eta * to_W
            self.A -= eta * to_A
            self.b -= eta * to_b

    def _implicit_step(self, eta: float) -> None:
        back = self.work.U * (eta * self.residual)[:, None]
        if self.gamma > 0:
            np.matmul(self.work.Z.T, back, out=self._buffer)
            self._buffer *= self.gamma
            self.A -= self._buffer
            self.moved += float(np.linalg.norm(self._buffer))
        back *= self.work.Phi > 0
        self.W -= self.data.X.T @ back
        self.b -= eta * (self.work.Z.T @ self.residual)
