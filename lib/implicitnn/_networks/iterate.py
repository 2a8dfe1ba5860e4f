r"""Picard, Anderson and Broyden iteration of a map on a batch, each sample by itself.

All three keep y and evaluate g = f(y) once a step, with r = g - y. What they differ in is the next
y. Every sample has its own history, so a batch gives the results of its samples one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from implicitnn._networks.arrays import Array, Ops
from implicitnn._networks.monitor import Monitor

# Fills its second argument with f of the first.
Map = Callable[[Array, Array], object]


def picard(f: Map, y: Array, ops: Ops, monitor: Monitor, max_steps: int, damping: float) -> Array:
    """Iterate y <- (1 - damping) y + damping f(y); two buffers."""
    g = ops.copy(y)
    for _ in range(max_steps):
        f(y, g)
        ops.subtract(g, y, y)
        if monitor.update(ops.rms(y), ops.rms(g)):
            return g
        if damping != 1.0:
            y *= damping - 1.0
            y += g
        else:
            y, g = g, y
    monitor.stop()
    return y if damping == 1.0 else g


def anderson(
    f: Map,
    y: Array,
    ops: Ops,
    monitor: Monitor,
    max_steps: int,
    memory: int,
    damping: float,
    ridge: float,
) -> Array:
    r"""Anderson acceleration, type II.

    With :math:`\Delta r, \Delta y` the last k changes, :math:`\gamma` minimises :math:`|r -
    \gamma^T\Delta r|^2 + \epsilon|\gamma|^2` and :math:`y \leftarrow y + \beta r - \gamma^T(\Delta
    y + \beta\Delta r)`; :math:`\epsilon` is the ridge, or a few machine epsilons if that
    is more, times the trace of the Gram matrix.
    """
    n, m = y.shape
    changes_r, changes_y = (ops.zeros((n, memory, m), y) for _ in range(2))
    gram = ops.zeros((n, memory, memory), y)
    g, r, before_r, before_y = (ops.copy(y) for _ in range(4))
    places = range(memory)
    ridge, smallest = max(ridge, 8.0 * memory * ops.eps(y)), ops.tiny(y)
    for step in range(max_steps):
        f(y, g)
        ops.subtract(g, y, r)
        if monitor.update(ops.rms(r), ops.rms(g)):
            return g
        if step:
            slot = (step - 1) % memory
            ops.subtract(r, before_r, changes_r[:, slot])
            ops.subtract(y, before_y, changes_y[:, slot])
            row = ops.matmul(changes_r, changes_r[:, slot, :, None])[..., 0]
            gram[:, slot, :] = row
            gram[:, :, slot] = row
        before_r[...] = r
        before_y[...] = y
        used, right = ops.tidy(gram + 0.0), ops.matmul(changes_r, r[:, :, None])[..., 0]
        trace = sum(used[:, k, k] for k in places)
        # Divided by its trace the Gram matrix is positive semidefinite to a few eps: the ridge
        # makes it definite in any precision, and a history of zeros leaves the identity.
        empty = trace < smallest
        trace = trace + empty
        used /= trace[:, None, None]
        right = ops.tidy(right / trace[:, None])
        for k in places:
            used[:, k, k] += ridge + empty
        gamma = ops.solve(used, right)
        y += damping * r
        y -= ops.matmul(gamma[:, None, :], changes_y)[:, 0]
        y -= damping * ops.matmul(gamma[:, None, :], changes_r)[:, 0]
    monitor.stop()
    return g


def broyden(f: Map, y: Array, ops: Ops, monitor: Monitor, max_steps: int, memory: int) -> Array:
    r"""Broyden's good method for r(y) = f(y) - y, with the inverse Jacobian :math:`H = -I + U^TV`.

    After a step s with change q of r, :math:`H \leftarrow H + (s - Hq)\,s^TH/(s^THq)`. When the
    memory is full the history is dropped and H starts again from -I.
    """
    n, m = y.shape
    left, right = (ops.zeros((n, memory, m), y) for _ in range(2))
    g, r = ops.copy(y), ops.copy(y)
    before, step_taken = ops.copy(y), ops.copy(y)

    def apply(a: Array, b: Array, x: Array) -> Array:
        """Return -x + a^T (b x) for each sample."""
        weights = ops.matmul(b, x[:, :, None])
        return ops.matmul(weights[:, None, :, 0], a)[:, 0] - x

    for step in range(max_steps):
        f(y, g)
        ops.subtract(g, y, r)
        if monitor.update(ops.rms(r), ops.rms(g)):
            return g
        if step:
            slot = (step - 1) % memory
            if step > memory and slot == 0:
                left[...] = 0.0
                right[...] = 0.0
            row = apply(right, left, step_taken)
            # Divided by its size here, it is multiplied by it in what follows: squares of steps of
            # any size stay in range.
            row /= ops.peak(row)
            image = apply(left, right, r - before)
            bottom = ops.matmul(row[:, None, :], (r - before)[:, :, None])[:, 0]
            bottom += bottom == 0.0
            left[:, slot] = ops.tidy((step_taken - image) / bottom)
            right[:, slot] = ops.tidy(row)
        before[...] = r
        step_taken = -apply(left, right, r)
        y += step_taken
    monitor.stop()
    return g
