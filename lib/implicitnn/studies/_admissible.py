r"""Starts at which the theorems on flow and descent apply, with a bound that falls quickly.

Rows of X are orthonormal and :math:`XW = \beta[I, I, \dots] + \beta\epsilon U` is nonnegative and
well conditioned. A has signs of both kinds. The scale :math:`\beta` is a multiple, at least
1.2, of the smallest one that the conditions allow with b = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray
from implicitnn.infinite_depth import Conditions, Params


class Setting(NamedTuple):
    """A start, its data and its constants."""

    params: Params
    X: FloatArray
    y: FloatArray
    conditions: Conditions


def draw(N: int, rng: np.random.Generator, *, bias: bool) -> Setting:
    """Return a random start with N samples; ``bias``: with a readout that is not zero.

    The conditions are checked by the caller: with a readout they may fail.
    """
    d, copies = N + int(rng.integers(0, 4)), int(rng.integers(1, 5))
    m = copies * N
    X = np.ascontiguousarray(np.linalg.qr(rng.standard_normal((d, N)))[0].T)
    features = np.hstack([np.eye(N)] * copies) + rng.uniform(0, 0.2 / N) * rng.uniform(size=(N, m))
    A = rng.standard_normal((m, m))
    A *= rng.uniform(0.1, 1.5) / deep.operator_norm(A)
    y = rng.choice([-1.0, 1.0], N)
    plain = Params(X.T @ features, A, np.zeros(m), rng.uniform(0.005, 0.02))
    scale = deep.smallest_beta(plain, X, y).beta
    if scale is None:
        raise ValueError("the conditions hold at no scale")
    params = plain.scaled(rng.uniform(1.2, 2.0) * scale)
    if bias:
        Z = deep.forward(params, X).Z
        b = rng.standard_normal(m)
        b *= rng.uniform(0.02, 0.15) * np.linalg.norm(y) / np.linalg.norm(Z @ b)
        params = Params(params.W, params.A, b, params.gamma)
    return Setting(params, X, y, deep.conditions(params, X, y))
