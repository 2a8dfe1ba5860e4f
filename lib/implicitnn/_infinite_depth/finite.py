"""The network of finite depth with the same weights: L layers instead of the limit."""

from __future__ import annotations

import numpy as np

from implicitnn._infinite_depth.params import Params
from implicitnn._validate import FloatArray


def layers(params: Params, X: FloatArray, depth: int) -> list[FloatArray]:
    r"""Return :math:`Z_1, \dots, Z_L` of :math:`Z_{l+1} = \mathrm{relu}(\gamma Z_l A + \Phi)`.

    :math:`Z_0 = 0`, so :math:`Z_1 = \Phi`: depth 1 is a network with one hidden layer.
    """
    Phi = np.maximum(X @ params.W, 0.0)
    found = [Phi]
    for _ in range(depth - 1):
        found.append(np.maximum(params.gamma * (found[-1] @ params.A) + Phi, 0.0))
    return found


def finite_gradients(
    params: Params, X: FloatArray, residual: FloatArray, states: list[FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the gradients for W, A, b of half the squared residual, by back-propagation."""
    first = states[0] > 0
    to_W = np.zeros_like(states[0])
    to_A = np.zeros_like(params.A)
    back = np.outer(residual, params.b)
    for layer in range(len(states) - 1, 0, -1):
        back *= states[layer] > 0
        to_W += back
        to_A += states[layer - 1].T @ back
        back = params.gamma * (back @ params.A.T)
    to_W += back
    return X.T @ (to_W * first), params.gamma * to_A, states[-1].T @ residual
