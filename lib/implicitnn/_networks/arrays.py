"""The few operations the solvers need, for numpy arrays and torch tensors alike.

An array is (n, m), one sample a row. Torch is imported only where a tensor arrives.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
# numpy array or torch tensor: the two share no common type.
Array: TypeAlias = Any


class Ops(Protocol):
    """Operations whose names differ between numpy and torch."""

    def eps(self, a: Array) -> float:
        """Machine precision of the array's type."""

    def tiny(self, a: Array) -> float:
        """Below this, quotients of the array's type are not to be trusted."""

    def rms(self, a: Array) -> FloatArray:
        """Root mean square of each row, (n,)."""

    def subtract(self, a: Array, b: Array, out: Array) -> None:
        """Out = a - b."""

    def copy(self, a: Array) -> Array:
        """A new array with the same entries."""

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Zeros of the type and device of another array."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Product of stacks of matrices."""

    def solve(self, a: Array, b: Array) -> Array:
        """Solutions of stacks of linear systems, (n, k) for (n, k, k) and (n, k)."""

    def tidy(self, a: Array) -> Array:
        """The array with zeros in place of what is not finite."""


class NumpyOps:
    """Numpy arrays."""

    def eps(self, a: Array) -> float:
        return float(np.finfo(a.dtype).eps)

    def tiny(self, a: Array) -> float:
        return float(np.finfo(a.dtype).tiny) * 1e6

    def rms(self, a: Array) -> FloatArray:
        squares = np.vecdot(a, a)
        return np.asarray(np.sqrt(squares.astype(np.float64) / a.shape[1]))

    def subtract(self, a: Array, b: Array, out: Array) -> None:
        np.subtract(a, b, out=out)

    def copy(self, a: Array) -> Array:
        return a.copy()

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return np.zeros(shape, like.dtype)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def solve(self, a: Array, b: Array) -> Array:
        return np.linalg.solve(a, b[..., None])[..., 0]

    def tidy(self, a: Array) -> Array:
        return np.nan_to_num(a, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


class TorchOps:
    """Torch tensors on any device."""

    def eps(self, a: Array) -> float:
        import torch

        return float(torch.finfo(a.dtype).eps)

    def tiny(self, a: Array) -> float:
        import torch

        return float(torch.finfo(a.dtype).tiny) * 1e6

    def rms(self, a: Array) -> FloatArray:
        mean = a.square().mean(dim=1).double().sqrt()
        return np.asarray(mean.cpu().numpy())

    def subtract(self, a: Array, b: Array, out: Array) -> None:
        import torch

        torch.sub(a, b, out=out)

    def copy(self, a: Array) -> Array:
        return a.clone()

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return like.new_zeros(shape)

    def matmul(self, a: Array, b: Array) -> Array:
        return a @ b

    def solve(self, a: Array, b: Array) -> Array:
        import torch

        return torch.linalg.solve(a, b)

    def tidy(self, a: Array) -> Array:
        return a.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor; does not import torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "new_zeros")


def ops(y: Array) -> Ops:
    """Operations for an array of floats with two axes; anything else is refused."""
    if is_tensor(y):
        if y.dim() != 2 or not y.is_floating_point() or y.numel() == 0:
            raise ValueError(f"y0 must be floats (n, m), none empty, got {y.dtype} {y.shape}")
        return TorchOps()
    if not isinstance(y, np.ndarray):
        raise TypeError(f"y0 must be a numpy array or a torch tensor, got {type(y).__name__}")
    if y.ndim != 2 or y.dtype.kind != "f" or y.size == 0:
        raise ValueError(f"y0 must be floats (n, m), none empty, got {y.dtype} {y.shape}")
    return NumpyOps()
