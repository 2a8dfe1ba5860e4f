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

    def __init__(self, status: Status, time: float) -> None:
        super().__init__(status.text)
        self.status, self.time = status, time


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
        :math:`\gamma\lVert A\rVert` came to ``edge`` before; ``time`` says when.

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
    if grid[0] < 0 or (np.diff(grid) <= 0).any() or grid[-1] <= 0:
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
    except _FailedError as error:
        return Flow(params, error.status, error.time, field.evaluations,
                    Recorder(field.first).trace())  # fmt: skip
    status = {0: Status.COMPLETED, 1: Status.NOT_WELL_POSED}.get(
        int(found.status), Status.INTEGRATOR_FAILED
    )
    states = found.y.T
    trace = field.trace(found.t, states)
    ends = found.y_events[0] if found.status == 1 else states[-1:]
    last = field.unpack(ends[-1]) if len(ends) else (params.W, params.A, params.b)
    time = float(found.t_events[0][-1]) if found.status == 1 else float(found.t[-1])
    W, A, b = (a.copy() for a in last)
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

    def solve(self, time: float, theta: FloatArray) -> tuple[int, int]:
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
            raise _FailedError(found.status, time)
        back = self.work.adjoint(b, rate, self.tol, self.limit)
        if not back.status.ok:
            raise _FailedError(back.status, time)
        return found.iterations, back.iterations

    def __call__(self, time: float, theta: FloatArray) -> FloatArray:
        """Return minus the gradient."""
        self.evaluations += 1
        if self.evaluations > self.evaluations_left:
            raise _FailedError(Status.INTEGRATOR_FAILED, time)
        self.solve(time, theta)
        work, b = self.work, self.unpack(theta)[2]
        residual = work.Z @ b - self.data.y
        back = work.U * residual[:, None]
        to_A = self.gamma * (work.Z.T @ back)
        to_W = self.data.X.T @ (back * (work.Phi > 0))
        return -np.concatenate([to_W.ravel(), to_A.ravel(), work.Z.T @ residual])

    def trace(self, times: FloatArray, states: FloatArray) -> Trace:
        """Return the recorded quantities at the given times."""
        recorder = Recorder(self.first)
        for time, theta in zip(times, states, strict=True):
            iterations = self.solve(float(time), theta)
            now = self.unpack(theta)
            residual = self.work.Z @ now[2] - self.data.y
            loss = 0.5 * float(residual @ residual)
            norm = operator_norm(now[1])
            recorder.add(float(time), loss, self.work.Z, norm, self.gamma, iterations, now)
        return recorder.trace()


class _Room:
    """Event function of the integrator: edge - gamma ||A||, which ends the integration at 0."""

    terminal = True

    def __init__(self, field: _Field) -> None:
        self.field = field

    def __call__(self, time: float, theta: FloatArray) -> float:
        return self.field.edge - self.field.gamma * self.field.norm(self.field.unpack(theta)[1])
