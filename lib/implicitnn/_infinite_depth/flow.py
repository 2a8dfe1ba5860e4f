r"""Gradient flow by an adaptive integrator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from implicitnn import _validate
from implicitnn._infinite_depth.norms import operator_norm
from implicitnn._infinite_depth.params import Inputs, Params, check_inputs
from implicitnn._infinite_depth.solve import Workspace
from implicitnn._infinite_depth.status import Status
from implicitnn._infinite_depth.trace import Recorder, Trace
from implicitnn._validate import FloatArray


@dataclass(frozen=True, eq=False)
class Flow:
    """A trajectory of gradient flow.

    ``params`` are those at the last time reached, ``time``; ``evaluations`` counts gradients.
    """

    params: Params
    status: Status
    time: float
    evaluations: int
    trace: Trace


class _FailedError(Exception):
    """Carries what went wrong in the right side out of the integrator."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.text)
        self.status = status


def flow(
    params: Params,
    X: FloatArray,
    y: FloatArray,
    times: FloatArray,
    *,
    edge: float = 0.99,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    tol: float = 1e-12,
    max_iterations: int = 10_000,
    max_evaluations: int = 100_000,
) -> Flow:
    r"""Integrate :math:`d\theta/dt = -\nabla L(\theta)` from time 0, and record at ``times``.

    The right side jumps where a unit crosses its kink; the step control of the explicit
    Runge-Kutta method of order 5(4) then takes small steps over the jump.

    Parameters
    ----------
    params : Params
        The start.
    X, y : array_like, shapes (N, d) and (N,)
    times : array_like, shape (k,)
        Increasing, from 0 or later.
    edge : float
        In (0, 1): the integration ends where :math:`\gamma\lVert A\rVert` reaches it.
    rtol, atol : float
        Local error of the integrator.
    tol, max_iterations : float, int
        For the fixed points.
    max_evaluations : int
        Gradients after which the integration is given up: the flow is too stiff for the method.

    Returns
    -------
    Flow
        ``status`` is ``COMPLETED`` when the last time was reached, ``NOT_WELL_POSED`` when
        :math:`\gamma\lVert A\rVert` came to ``edge`` before, ``DIVERGED``, ``MAX_ITERATIONS`` or
        ``INTEGRATOR_FAILED`` with an empty trace when the right side could not be had further on.
        ``time`` says when, ``params`` are those of that time.

    Raises
    ------
    ValueError
        Shapes that do not fit, times that do not increase.

    Examples
    --------
    >>> start = Params(40 * np.eye(2), np.zeros((2, 2)), np.zeros(2), 0.05)
    >>> run = flow(start, np.eye(2), np.array([1.0, -1.0]), np.linspace(0, 0.01, 5))
    >>> run.status.name, bool((np.diff(run.trace.loss) < 0).all())
    ('COMPLETED', True)
    """
    data = check_inputs(params, X, y)
    grid = _validate.real_array(times, "times", 1)
    if grid[-1] <= 0:
        raise ValueError(f"times must end after 0, got {grid[-1]}")
    if grid[0] < 0 or (np.diff(grid) <= 0).any():
        raise ValueError(f"times must increase from 0 or later, got {grid[:3]} ... {grid[-1]}")
    if not 0 < _validate.real(edge, "edge") < 1:
        raise ValueError(f"edge must lie in (0, 1), got {edge}")
    limits = (
        _validate.integer(max_iterations, "max_iterations", 1),
        _validate.integer(max_evaluations, "max_evaluations", 1),
    )
    field = _Field(params, data, edge, _validate.positive(tol, "tol"), limits)
    if field.room(0.0, _pack(params)) <= 0:
        return Flow(params, Status.NOT_WELL_POSED, 0.0, 0, Recorder(field.first).trace())
    try:
        found = solve_ivp(
            field, (0.0, float(grid[-1])), _pack(params), method="RK45", t_eval=grid,
            rtol=_validate.positive(rtol, "rtol"), atol=_validate.positive(atol, "atol"),
            events=field.room,
        )  # fmt: skip
        # without a recorded time the integrator returns empty lists
        trace = field.trace(found.t, np.reshape(found.y, (field.reached.size, -1)).T)
    except _FailedError as error:
        W, A, b = (a.copy() for a in field.unpack(field.reached))
        return Flow(Params(W, A, b, params.gamma), error.status, field.time, field.evaluations,
                    Recorder(field.first).trace())  # fmt: skip
    status = {0: Status.COMPLETED, 1: Status.NOT_WELL_POSED}.get(
        int(found.status), Status.INTEGRATOR_FAILED
    )
    crossed = found.status == 1
    last = found.y_events[0][-1] if crossed else field.reached
    time = float(found.t_events[0][-1]) if crossed else field.time
    W, A, b = (a.copy() for a in field.unpack(last))
    return Flow(Params(W, A, b, params.gamma), status, time, field.evaluations, trace)


def _pack(params: Params) -> FloatArray:
    return np.concatenate([a.ravel() for a in (params.W, params.A, params.b)])


class _Field:
    """The right side of the flow, with warm fixed points."""

    def __init__(
        self, params: Params, data: Inputs, edge: float, tol: float, limits: tuple[int, int]
    ) -> None:
        self.gamma, self.data, self.edge, self.tol = params.gamma, data, edge, tol
        self.limit, self.evaluations_left = limits
        self.shapes = (params.W.shape, params.A.shape, params.b.shape)
        self.first = (params.W, params.A, params.b)
        self.work = Workspace(len(data.X), params.width)
        self.first_norm = operator_norm(params.A)
        self.evaluations = 0
        self.time, self.reached = 0.0, _pack(params)
        self.room = _Room(self)

    def unpack(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return views of W, A, b."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        W, A, b, _ = np.split(theta, ends)
        shapes = self.shapes
        return W.reshape(shapes[0]), A.reshape(shapes[1]), b.reshape(shapes[2])

    def norm(self, A: FloatArray) -> float:
        """Return the norm of A, or an upper bound of it where that is far from the edge."""
        bound = self.first_norm + float(np.linalg.norm(A - self.first[1]))
        return bound if self.gamma * bound < 0.9 * self.edge else operator_norm(A)

    def solve(self, theta: FloatArray) -> tuple[int, int]:
        """Find the fixed points at theta; a failure ends the integration."""
        W, A, b = self.unpack(theta)
        norm = self.norm(A)
        # The stages of a step may lie beyond the edge, before the integrator finds where it was
        # crossed: there the field is continued with a smaller gamma.
        gamma = min(self.gamma, self.edge / norm) if norm > 0 else self.gamma
        rate = gamma * norm
        self.work.load(self.data.X, W, A, gamma)
        found = self.work.forward(rate, self.tol, self.limit)
        if not found.status.ok:
            raise _FailedError(found.status)
        back = self.work.adjoint(b, rate, self.tol, self.limit)
        if not back.status.ok:
            raise _FailedError(back.status)
        return found.iterations, back.iterations

    def __call__(self, time: float, theta: FloatArray) -> FloatArray:
        """Return minus the gradient."""
        if self.evaluations >= self.evaluations_left:
            raise _FailedError(Status.INTEGRATOR_FAILED)
        self.evaluations += 1
        self.solve(theta)
        work, b = self.work, self.unpack(theta)[2]
        with np.errstate(all="ignore"):  # overflow is found below
            residual = work.Z @ b - self.data.y
            back = work.U * residual[:, None]
            to_A = self.gamma * (work.Z.T @ back)
            to_W = self.data.X.T @ (back * (work.Phi > 0))
            slope = np.concatenate([to_W.ravel(), to_A.ravel(), work.Z.T @ residual])
            size = float(slope @ slope)  # the integrator squares it too
        if not np.isfinite(size):
            raise _FailedError(Status.DIVERGED)
        return -slope

    def trace(self, times: FloatArray, states: FloatArray) -> Trace:
        """Return the recorded quantities at the given times."""
        recorder = Recorder(self.first)
        for time, theta in zip(times, states, strict=True):
            iterations = self.solve(theta)
            now = self.unpack(theta)
            with np.errstate(all="ignore"):  # overflow is found below
                residual = self.work.Z @ now[2] - self.data.y
                loss = 0.5 * float(residual @ residual)
            if not np.isfinite(loss):
                raise _FailedError(Status.DIVERGED)
            norm = operator_norm(now[1])
            recorder.add(float(time), loss, self.work.Z, norm, self.gamma, iterations, now)
        return recorder.trace()


class _Room:
    """Event function of the integrator: edge - gamma ||A||, which ends the integration at 0."""

    terminal = True

    def __init__(self, field: _Field) -> None:
        self.field = field

    def __call__(self, time: float, theta: FloatArray) -> float:
        # the integrator calls this at the end of each accepted step
        self.field.time, self.field.reached = float(time), theta.copy()
        return self.field.edge - self.field.gamma * self.field.norm(self.field.unpack(theta)[1])
