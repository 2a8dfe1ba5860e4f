"""Where the arithmetic of a layer runs: numpy on the CPU, or torch on any device.

On the CPU both see the same memory. numpy's BLAS and torch's differ in speed, by a factor of two on
some processors, so the faster one is found by a short trial, once in a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch

from implicitnn import _validate
from implicitnn._networks import elementwise as _elementwise
from implicitnn.activations import Activation

BACKENDS = ("auto", "numpy", "torch")
# numpy is kept unless torch is clearly faster, so that noise does not decide.
MARGIN = 1.5
Array = Any
Tensor = torch.Tensor


class Backend(Protocol):
    """Arithmetic on the native arrays of a library."""

    def native(self, tensor: Tensor) -> Array:
        """The tensor's memory as a native array."""

    def tensor(self, array: Array) -> Tensor:
        """The array's memory as a tensor."""

    def empty_like(self, array: Array) -> Array:
        """An array of the same shape and type."""

    def product(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Matrix product."""

    def activate(
        self, activation: Activation, scale: float, offset: float, t: Array, out: Array
    ) -> None:
        """Out = scale (f(t) - offset)."""

    def slope(self, activation: Activation, scale: float, t: Array) -> Array:
        """Scale f'(t)."""


class NumpyBackend:
    """numpy arrays that share the memory of CPU tensors; silent on overflow, as torch is."""

    def native(self, tensor: Tensor) -> Array:
        return tensor.detach().numpy()

    def tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array)

    def empty_like(self, array: Array) -> Array:
        return np.empty_like(array)

    def product(self, a: Array, b: Array, out: Array | None = None) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.matmul(a, b, out=out)

    def activate(
        self, activation: Activation, scale: float, offset: float, t: Array, out: Array
    ) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in _elementwise.pieces(*t.shape):
                part = out[piece]
                _elementwise.numpy_f(activation, t[piece], part)
                if offset:
                    part -= offset
                part *= scale

    def slope(self, activation: Activation, scale: float, t: Array) -> Array:
        out = np.empty_like(t)
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in _elementwise.pieces(*t.shape):
                part = out[piece]
                _elementwise.numpy_df(activation, t[piece], part)
                part *= scale
        return out


class TorchBackend:
    """Tensors as they are."""

    def native(self, tensor: Tensor) -> Array:
        return tensor.detach()

    def tensor(self, array: Array) -> Tensor:
        assert isinstance(array, Tensor)
        return array

    def empty_like(self, array: Array) -> Array:
        return torch.empty_like(array)

    def product(self, a: Array, b: Array, out: Array | None = None) -> Array:
        return torch.matmul(a, b, out=out)

    def activate(
        self, activation: Activation, scale: float, offset: float, t: Array, out: Array
    ) -> None:
        torch.sub(_elementwise.torch_form(activation).f(t), offset, out=out)
        out *= scale

    def slope(self, activation: Activation, scale: float, t: Array) -> Array:
        return _elementwise.torch_form(activation).df(t) * scale


_NUMPY, _TORCH = NumpyBackend(), TorchBackend()


def choose(name: str, tensor: Tensor) -> Backend:
    """Return the backend of this name for a tensor: "auto" measures on the CPU.

    Raises
    ------
    ValueError : unknown name, or numpy for a tensor on another device.
    """
    _validate.one_of(name, "backend", BACKENDS)
    if tensor.device.type != "cpu":
        if name == "numpy":
            raise ValueError(f"backend 'numpy' needs tensors on the CPU, got {tensor.device}")
        return _TORCH
    if name == "auto":
        name = faster()
    return _NUMPY if name == "numpy" else _TORCH


@lru_cache(maxsize=1)
def faster() -> str:
    """Return "torch" where its matrix product is clearly faster than numpy's, else "numpy"."""
    a = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    b = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    out = np.empty_like(a)
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    tout = torch.empty_like(ta)
    numpy_seconds = _best(lambda: np.matmul(a, b.T, out=out))
    with torch.no_grad():
        torch_seconds = _best(lambda: torch.matmul(ta, tb.T, out=tout))
    return "torch" if MARGIN * torch_seconds < numpy_seconds else "numpy"


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(8):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
