"""Bytes that a pass of a network allocates: what autograd keeps, and the peak."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def saved_bytes(work: Callable[[], object], known: Sequence[torch.Tensor] = ()) -> int:
    """Return the bytes that autograd keeps for the backward pass, those of known tensors aside.

    Examples
    --------
    >>> w = torch.ones(10, requires_grad=True)
    >>> saved_bytes(lambda: (w.exp() ** 2).sum(), [w])
    40
    """
    own = {tensor.data_ptr() for tensor in known}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        held.append(tensor)
        return tensor

    # Held until the end, so that no address is used twice.
    held: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = work()
    del result
    return sum(kept.values())


def peak_bytes(work: Callable[[], object], known: Sequence[torch.Tensor] = ()) -> int:
    """Return the most bytes alive at once in tensors that the work makes, known ones aside.

    Results of operations of PyTorch are counted; what one operation needs inside, and arrays of
    other libraries, are not.

    Examples
    --------
    >>> x = torch.ones(10)
    >>> peak_bytes(lambda: (x + 1).sum(), [x]), peak_bytes(lambda: x.mul_(2)[1:], [x])
    (44, 0)
    """
    ledger = _Ledger(known)
    with ledger:
        result = work()
    del result
    return ledger.peak


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages alive among the results of operations."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self._alive: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        place = storage.data_ptr()
        if not place or place in self._known or place in self._alive:
            return
        self._alive[place] = storage.nbytes()
        weakref.finalize(storage, self._alive.pop, place, None)
        self.peak = max(self.peak, sum(self._alive.values()))
