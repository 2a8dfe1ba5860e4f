"""Activations and their derivatives on numpy arrays, in place, and on torch tensors.

A shipped activation has a torch formula. One that a user made of numpy functions runs on the CPU
through numpy; on another device it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from implicitnn import activations
from implicitnn._design import layers as _layers
from implicitnn.activations import Activation
from implicitnn.errors import UnsupportedSpecError

# Rows are handled in pieces that stay in the cache of a core: 2^17 floats of 4 bytes are 512 KiB.
PIECE = 1 << 17
Array = Any
Tensor = torch.Tensor
TorchFunction = Callable[[Tensor], Tensor]
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_SQRT2, _SQRT6 = math.sqrt(2.0), math.sqrt(6.0)


@dataclass(frozen=True)
class TorchForm:
    """f and f' as differentiable torch expressions."""

    f: TorchFunction
    df: TorchFunction


def pieces(rows: int, columns: int) -> list[slice]:
    """Slices over rows that keep a piece within PIECE entries."""
    size = max(1, PIECE // max(columns, 1))
    return [slice(start, start + size) for start in range(0, rows, size)]


def numpy_f(activation: Activation, t: Array, out: Array) -> None:
    """Out = f(t), in the dtype of out; t is kept."""
    if activation == activations.relu:
        np.maximum(t, 0.0, out=out)
    elif activation == activations.tanh:
        np.tanh(t, out=out)
    elif activation == activations.linear:
        out[...] = t
    elif (rays := _ordered_rays(activation)) is not None:
        np.multiply(t, rays[1], out=out)
        np.maximum(out, t if rays[0] == 1.0 else rays[0] * t, out=out)
    else:
        out[...] = activation.f(t)


def numpy_df(activation: Activation, t: Array, out: Array) -> None:
    """Out = f'(t), in the dtype of out; t is kept."""
    out[...] = activation.df(t)


def torch_form(activation: Activation) -> TorchForm:
    """Torch expressions of a shipped activation.

    Raises
    ------
    UnsupportedSpecError : there is no formula for it.
    """
    if activation.name in _PLAIN and activation == activations.get(activation.name):
        return _PLAIN[activation.name]
    values = _numbers(activation)
    for kind, make in _FAMILIES.items():
        if isinstance(activation.f, kind):
            return make(*values)
    raise UnsupportedSpecError(
        f"no PyTorch formula for {activation.name!r}: it runs on the CPU through numpy only"
    )


def _numbers(activation: Activation) -> tuple[float, ...]:
    fields = getattr(activation.f, "__dict__", {})
    return tuple(value for value in fields.values() if isinstance(value, float))


def _ordered_rays(activation: Activation) -> tuple[float, float] | None:
    """Slopes on the right and on the left where the function is the larger of its two rays."""
    if not isinstance(activation.f, _layers._Rays | activations._Leaky):
        return None
    values = _numbers(activation)
    right, left = values if len(values) == 2 else (1.0, values[0])
    return (right, left) if right >= left else None


def _step(t: Tensor, right: float, left: float) -> Tensor:
    return torch.where(t > 0, torch.full_like(t, right), torch.full_like(t, left))


def _rays(a: float, b: float) -> TorchForm:
    return TorchForm(lambda t: torch.where(t > 0, a * t, b * t), lambda t: _step(t, a, b))


def _leaky(slope: float) -> TorchForm:
    return _rays(1.0, slope)


def _clip(a: float, c: float) -> TorchForm:
    def df(t: Tensor) -> Tensor:
        return torch.where(t.abs() < c, torch.full_like(t, a), torch.zeros_like(t))

    return TorchForm(lambda t: a * torch.clamp(t, -c, c), df)


def _quadratic(q: float, r: float) -> TorchForm:
    return TorchForm(lambda t: t * (q * t + r), lambda t: 2.0 * q * t + r)


def _hermite(c1: float, c2: float, c3: float, tau: float) -> TorchForm:
    def f(t: Tensor) -> Tensor:
        x = t / tau
        return x * (c1 + c3 * (x * x - 3.0) / _SQRT6) + c2 * (x * x - 1.0) / _SQRT2

    def df(t: Tensor) -> Tensor:
        x = t / tau
        return (c1 + _SQRT2 * c2 * x + 0.5 * _SQRT6 * c3 * (x * x - 1.0)) / tau

    return TorchForm(f, df)


def _dswish(t: Tensor) -> Tensor:
    rise = torch.sigmoid(t)
    return rise * (1.0 + t * (1.0 - rise))


def _dgelu(t: Tensor) -> Tensor:
    rise = 0.5 * (1.0 + torch.erf(t / _SQRT2))
    return rise + t * torch.exp(-0.5 * t * t) * _INV_SQRT_2PI


_PLAIN = {
    "relu": TorchForm(torch.relu, lambda t: _step(t, 1.0, 0.0)),
    "tanh": TorchForm(torch.tanh, lambda t: 1.0 - torch.tanh(t) ** 2),
    "swish": TorchForm(torch.nn.functional.silu, _dswish),
    "elu": TorchForm(torch.nn.functional.elu, lambda t: torch.exp(torch.clamp(t, max=0.0))),
    "erf": TorchForm(torch.erf, lambda t: _TWO_OVER_SQRT_PI * torch.exp(-t * t)),
    "gelu": TorchForm(torch.nn.functional.gelu, _dgelu),
    "linear": TorchForm(lambda t: t, torch.ones_like),
}
_FAMILIES: dict[type, Callable[..., TorchForm]] = {
    _layers._Rays: _rays,
    activations._Leaky: _leaky,
    activations._Clip: _clip,
    activations._Quadratic: _quadratic,
    _layers._Hermite: _hermite,
}
