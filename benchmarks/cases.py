"""Data sets and networks that are timed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from implicitnn.activations import (
    Activation,
    elu,
    erf,
    gelu,
    hard_tanh,
    leaky_relu,
    relu,
    swish,
    tanh,
)
from implicitnn.specs import DEQ

P = 784
ACTIVATIONS: tuple[Activation, ...] = (
    relu,
    leaky_relu(0.01),
    tanh,
    swish,
    erf,
    gelu,
    elu,
    hard_tanh(),
)
SIGMA_A2 = (0.2, 0.9)


def mixture(n: int) -> NDArray[np.float64]:
    """Two Gaussian classes with means of norm 8: norms in about 0.9..1.5, cosines -0.2..0.6."""
    Z = np.random.default_rng(0).standard_normal((n, P))
    half = n // 2
    Z[half:] *= np.sqrt(1.0 + 8.0 / np.sqrt(P))
    Z[:half, 0] += 8.0
    Z[half:, 8] += 8.0
    return Z / np.sqrt(P)


def wide(n: int) -> NDArray[np.float64]:
    """Samples with a common part, and squared norms spread over a factor of 100."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((n, P)) + 0.8 * np.abs(rng.standard_normal(P))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    return Z * np.exp(0.5 * rng.uniform(np.log(0.1), np.log(10.0), (n, 1)))


DATA = {"mixture": mixture, "wide": wide}


def network(activation: Activation, sigma_a2: float, X: NDArray[np.float64]) -> DEQ:
    """The DEQ centred for the data at hand."""
    return DEQ(activation, sigma_a2, tau0=float(np.sqrt((X * X).sum() / X.shape[0])))
