r"""Differentiable layers: a dense layer with activation, and the equilibrium of a recurrent one.

Both are custom autograd functions, so that the products run in the backend chosen and the
equilibrium keeps only its value and one slope per unit, whatever the number of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from implicitnn import _validate, solvers
from implicitnn._networks.backend import Array, Backend
from implicitnn.activations import Activation
from implicitnn.solvers import Report, Solution, Solver

Tensor = torch.Tensor
RTOL = {torch.float32: 1e-6, torch.float64: 1e-10}


def default_rtol(dtype: torch.dtype) -> float:
    """Return the tolerance of equilibria in a dtype; others than these two are refused."""
    if dtype not in RTOL:
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    return RTOL[dtype]


@dataclass(frozen=True)
class Options:
    """How equilibria are solved for, forward and backward; rtol None is that of the dtype."""

    solver: Solver
    rtol: float | None
    atol: float
    max_steps: int

    def __post_init__(self) -> None:
        solvers.checked(self.solver)
        if self.rtol is not None:
            _validate.positive(self.rtol, "rtol")
        _validate.nonnegative(self.atol, "atol")
        _validate.integer(self.max_steps, "max_steps", 1)

    def tolerance(self, dtype: torch.dtype) -> float:
        """Rtol, by default that of a dtype."""
        return default_rtol(dtype) if self.rtol is None else self.rtol


@dataclass
class Log:
    """What the solves of a module reported; samples that failed are counted."""

    forward: Report | None = None
    backward: Report | None = None
    totals: dict[str, int] = field(default_factory=dict)
    on_failure: Callable[[Report, str], None] | None = None

    def take(self, direction: str, report: Report) -> None:
        """Keep a report, count its samples, and tell what failed."""
        setattr(self, direction, report)
        for what, value in (
            ("solves", 1),
            ("samples", len(report.codes)),
            ("not_converged", report.not_converged),
            ("iterations", report.iterations),
        ):
            key = f"{direction}_{what}"
            self.totals[key] = self.totals.get(key, 0) + value
        if report.not_converged and self.on_failure is not None:
            self.on_failure(report, direction)


def refuse_second_derivative() -> None:
    """Raise where a gradient is asked to be differentiable itself."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "second derivatives (create_graph=True) are not supported through this layer: its "
            "backward pass is not recorded. Differentiate an unrolled iteration instead, or use "
            "networks.jacobian_penalty for the penalty on the Jacobian"
        )


@dataclass(frozen=True)
class Recurrence:
    r"""The map :math:`z \mapsto s(f(wzA^T + d) - o)` of a batch, and its adjoint at a point.

    scale, weight, offset : s, w and o.
    """

    backend: Backend
    activation: Activation
    scale: float
    weight: float
    offset: float

    def start(self, drive: Array) -> Array:
        """The image of z = 0, which needs no product."""
        z = self.backend.empty_like(drive)
        self.backend.activate(self.activation, self.scale, self.offset, drive, z)
        return z

    def solve(
        self, drive: Array, A: Array, z0: Array | None, o: Options, rtol: float
    ) -> tuple[Solution, Array]:
        """Return the equilibrium and the preactivation it was computed from."""
        transposed = A.T
        h = self.backend.empty_like(drive)

        def step(z: Array, out: Array) -> None:
            self.backend.product(z, transposed, h)
            if self.weight != 1.0:
                h.__imul__(self.weight)
            h.__iadd__(drive)
            self.backend.activate(self.activation, self.scale, self.offset, h, out)

        found = solvers.solve(
            step,
            self.start(drive) if z0 is None else z0,
            o.solver,
            rtol=rtol,
            atol=o.atol,
            max_steps=o.max_steps,
            inplace=True,
        )
        return found, h

    def adjoint(self, g: Array, slope: Array, A: Array, o: Options, rtol: float) -> Solution:
        r"""Solve :math:`\lambda = g + w(\text{slope}\circ\lambda)A`."""
        gated = self.backend.empty_like(g)

        def step(v: Array, out: Array) -> None:
            gated[...] = v
            gated.__imul__(slope)
            self.backend.product(gated, A, out)
            if self.weight != 1.0:
                out *= self.weight
            out += g

        return solvers.solve(
            step, g, o.solver, rtol=rtol, atol=o.atol, max_steps=o.max_steps, inplace=True
        )


class Equilibrium(torch.autograd.Function):
    """z*(drive, A): one fixed-point solve forward, one adjoint solve backward."""

    @staticmethod
    def forward(
        ctx: Any,
        drive: Tensor,
        A: Tensor,
        z0: Tensor | None,
        recurrence: Recurrence,
        options: Options,
        log: Log,
        recording: bool,
    ) -> Tensor:
        """Solve; keep z*, the slopes and A."""
        backend = recurrence.backend
        start = None if z0 is None else backend.native(z0)
        rtol = options.tolerance(drive.dtype)
        found, h = recurrence.solve(backend.native(drive), backend.native(A), start, options, rtol)
        log.take("forward", found.report)
        value = backend.tensor(found.value)
        if recording and any(ctx.needs_input_grad[:2]):
            slope = backend.slope(recurrence.activation, recurrence.scale, h)
            ctx.save_for_backward(value, backend.tensor(slope), A)
            ctx.parts = (recurrence, options, rtol, log)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Solve the adjoint equation once, for both gradients."""
        refuse_second_derivative()
        recurrence, options, rtol, log = ctx.parts
        backend = recurrence.backend
        z, slope, A = (backend.native(saved) for saved in ctx.saved_tensors)
        found = recurrence.adjoint(
            backend.native(gradients[0].contiguous()), slope, A, options, rtol
        )
        log.take("backward", found.report)
        delta = found.value
        delta *= slope
        to_A = None
        if ctx.needs_input_grad[1]:
            product = backend.product(delta.T, z)
            if recurrence.weight != 1.0:
                product *= recurrence.weight
            to_A = backend.tensor(product)
        to_drive = backend.tensor(delta) if ctx.needs_input_grad[0] else None
        return to_drive, to_A, None, None, None, None, None


class Dense(torch.autograd.Function):
    r"""x W^T times a weight, activated: :math:`s(f(w\,xW^T) - o)`, or the product alone."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        W: Tensor,
        backend: Backend,
        weight: float,
        activation: Activation | None,
        scale: float,
        offset: float,
        recording: bool,
    ) -> Tensor:
        """Compute; keep x, W and the slopes."""
        h = backend.product(backend.native(x), backend.native(W).T)
        if weight != 1.0:
            h *= weight
        needed = recording and any(ctx.needs_input_grad[:2])
        ctx.parts = (backend, weight, activation is not None)
        slope: list[Tensor] = []
        if activation is None:
            value = h
        else:
            if needed:
                slope = [backend.tensor(backend.slope(activation, scale, h))]
            value = backend.empty_like(h)
            backend.activate(activation, scale, offset, h, value)
        if needed:
            ctx.save_for_backward(x, W, *slope)
        return backend.tensor(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply through the layer."""
        refuse_second_derivative()
        backend, weight, activated = ctx.parts
        x, W, *slope = (backend.native(saved) for saved in ctx.saved_tensors)
        delta = backend.native(gradients[0].contiguous())
        if activated:
            delta = delta * slope[0]
        to_x = to_W = None
        if ctx.needs_input_grad[0]:
            to_x = backend.product(delta, W)
            if weight != 1.0:
                to_x *= weight
        if ctx.needs_input_grad[1]:
            to_W = backend.product(delta.T, x)
            if weight != 1.0:
                to_W *= weight
        pair = [None if g is None else backend.tensor(g) for g in (to_x, to_W)]
        return pair[0], pair[1], None, None, None, None, None, None


def equilibrium(
    drive: Tensor, A: Tensor, z0: Tensor | None, recurrence: Recurrence, options: Options, log: Log
) -> Tensor:
    """Differentiable z*(drive, A)."""
    # Inside forward gradients are off: whether they are wanted is known out here.
    arguments = (drive, A, z0, recurrence, options, log, torch.is_grad_enabled())
    z: Tensor = Equilibrium.apply(*arguments)  # type: ignore[no-untyped-call]
    return z


def product(x: Tensor, W: Tensor, backend: Backend, weight: float = 1.0) -> Tensor:
    """Differentiable w x W^T."""
    arguments = (x, W, backend, weight, None, 1.0, 0.0, torch.is_grad_enabled())
    y: Tensor = Dense.apply(*arguments)  # type: ignore[no-untyped-call]
    return y


def dense(
    x: Tensor, W: Tensor, backend: Backend, activation: Activation, scale: float, offset: float
) -> Tensor:
    """Differentiable s (f(x W^T) - o)."""
    arguments = (x, W, backend, 1.0, activation, scale, offset, torch.is_grad_enabled())
    y: Tensor = Dense.apply(*arguments)  # type: ignore[no-untyped-call]
    return y


def root(width: int) -> float:
    """1/sqrt(m), the scale of a layer of width m."""
    return 1.0 / math.sqrt(width)
