"""The few operations the solvers need, for numpy arrays and torch tensors alike.

An array is (n, m), one sample a row. Torch is imported only where a tensor arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate

FloatArray = NDArray[np.float64]
TINY = float(np.finfo(np.float64).tiny)
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

    def plain(self) -> AbstractContextManager[object]:
        """Context in which nothing is recorded for gradients."""

    def call(self, f: Callable[..., object], y: Array, out: Array) -> None:
        """Out = f(y), an array like y; f gets a copy, so that it may work in place."""

    def peak(self, a: Array) -> Array:
        """Largest size of an entry in each row, (n, 1); one for a row of zeros."""

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
        return max(float(np.finfo(a.dtype).tiny), TINY) * 1e6

    def rms(self, a: Array) -> FloatArray:
        mean: FloatArray = np.vecdot(a, a).astype(np.float64) / a.shape[1]
        return _roots(mean, np.finfo(a.dtype), lambda rows: np.asarray(a[rows], np.float64))

    def plain(self) -> AbstractContextManager[object]:
        return nullcontext()

    def call(self, f: Callable[..., object], y: Array, out: Array) -> None:
        value = f(y.copy())
        if (
            not isinstance(value, np.ndarray)
            or value.shape != out.shape
            or not np.can_cast(value.dtype, out.dtype, "same_kind")
        ):
            raise _unlike(value, out)
        out[...] = value

    def peak(self, a: Array) -> Array:
        top = np.abs(a).max(axis=1, keepdims=True)
        return top + (top == 0.0)

    def subtract(self, a: Array, b: Array, out: Array) -> None:
        np.subtract(a, b, out=out)

    def copy(self, a: Array) -> Array:
        return a.copy()

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return np.zeros(shape, like.dtype)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def solve(self, a: Array, b: Array) -> Array:
        if a.dtype.itemsize not in (4, 8):  # LAPACK has two precisions
            return self.solve(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
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
        import torch

        def taken(rows: NDArray[np.bool_]) -> FloatArray:
            chosen = a[torch.from_numpy(rows).to(a.device)]
            return np.asarray(chosen.double().cpu().numpy())

        mean = np.asarray(a.square().mean(dim=1).double().cpu().numpy())
        return _roots(mean, torch.finfo(a.dtype), taken)

    def plain(self) -> AbstractContextManager[object]:
        import torch

        context: AbstractContextManager[object] = torch.no_grad()
        return context

    def call(self, f: Callable[..., object], y: Array, out: Array) -> None:
        import torch

        value = f(y.clone())
        if (
            not isinstance(value, torch.Tensor)
            or value.shape != out.shape
            or not torch.can_cast(value.dtype, out.dtype)
        ):
            raise _unlike(value, out)
        out[...] = value

    def peak(self, a: Array) -> Array:
        top = a.abs().amax(dim=1, keepdim=True)
        return top + (top == 0.0)

    def subtract(self, a: Array, b: Array, out: Array) -> None:
        import torch

        torch.sub(a, b, out=out)

    def copy(self, a: Array) -> Array:
        return a.detach().clone()

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return like.new_zeros(shape)

    def matmul(self, a: Array, b: Array) -> Array:
        return a @ b

    def solve(self, a: Array, b: Array) -> Array:
        import torch

        if a.dtype.itemsize < 4:  # LAPACK has two precisions
            return torch.linalg.solve(a.double(), b.double()).to(a.dtype)
        return torch.linalg.solve(a, b)

    def tidy(self, a: Array) -> Array:
        return a.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _roots(
    mean: FloatArray, info: Any, taken: Callable[[NDArray[np.bool_]], FloatArray]
) -> FloatArray:
    """Roots of mean squares, in place.

    A mean that may hold an underflow, or is no finite number of the type, is taken anew from the
    rows, which ``taken`` returns in float64.
    """
    inside = (mean > float(info.tiny) / float(info.eps)) & (mean < float(info.max))
    if not inside.all():
        mean[~inside] = _scaled(taken(~inside))
    return np.sqrt(mean, out=mean, where=inside)


def _scaled(rows: FloatArray) -> FloatArray:
    """Root mean square of each row, scaled by its largest entry."""
    top = np.abs(rows).max(axis=1)
    safe = np.where((top > 0.0) & np.isfinite(top), top, 1.0)
    unit = rows / safe[:, None]
    found = safe * np.sqrt(np.vecdot(unit, unit) / rows.shape[1])
    return np.asarray(np.where(np.isfinite(top), found, top))


def _unlike(value: object, out: Array) -> TypeError:
    shape, dtype = getattr(value, "shape", "no shape"), getattr(value, "dtype", "")
    return TypeError(
        f"f must return a {type(out).__name__} of shape {tuple(out.shape)} that casts to "
        f"{out.dtype}, got {type(value).__name__}, {shape} {dtype}"
    )


def numbers(value: ArrayLike, name: str, columns: int | None = None) -> NDArray[Any]:
    """Return samples in rows, of any real dtype; ``columns`` is how many entries each must have."""
    rows = _validate.as_array(value, name)
    fits = rows.ndim == 2 and columns in (None, rows.shape[1])
    if not fits or rows.size == 0 or rows.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be numbers (n, {columns or 'p'}), none empty, got {rows.dtype} "
            f"{rows.shape}"
        )
    return rows


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor; does not import torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "new_zeros")


def ops(y: Array) -> Ops:
    """Operations for an array of floats with two axes; anything else is refused."""
    if is_tensor(y):
        if y.dim() != 2 or not y.is_floating_point() or y.numel() == 0:
            raise ValueError(f"y0 must be floats (n, m), none empty, got {y.dtype} {y.shape}")
        return TorchOps()
    if type(y) is not np.ndarray:  # matrices and masked arrays have other rules
        raise TypeError(f"y0 must be a numpy array or a torch tensor, got {type(y).__name__}")
    if y.ndim != 2 or y.dtype.kind != "f" or y.size == 0:
        raise ValueError(f"y0 must be floats (n, m), none empty, got {y.dtype} {y.shape}")
    return NumpyOps()
