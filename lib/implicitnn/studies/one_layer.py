r"""Study of the ratio argument over random activations (claim A7).

One hidden layer has :math:`a_3 = 2a_2`; a DEQ has :math:`\alpha_3\alpha_4^2 = 2\alpha_2s_1^2`. Both
are measured here on derivatives of exact kernels, without the formulas for the scalars: the
derivatives of polynomials through the values at Chebyshev points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev, chebyshev

from implicitnn import design, gaussian, kernels
from implicitnn._validate import FloatArray, real
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _random_activations
from implicitnn.sweeps import Study

DEGREE = 14
RADIUS = 0.35
BALANCED = 1e-9
_DRAWS = 200


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of a kernel G(q1, q2, s) at (1, 1, 0) and its value at q1 = q2 = s = 1.

    product : in s; square : half the second in s; mixed : in q1 and q2; variance : of the diagonal
    G(q, q, q) in q; energy : the value.
    """

    product: float
    square: float
    mixed: float
    variance: float
    energy: float


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    r"""Return the residuals of both identities for one random activation.

    ``net_residual`` : :math:`|a_3 - 2a_2|` over the energy of the layer, for the activation as a
    one-layer net; ``deq_residual`` : :math:`|\alpha_3\alpha_4^2/s_1^2 - 2\alpha_2|` over
    :math:`\gamma^2`, for the DEQ; ``imbalance`` : :math:`\Delta = \frac12E(\phi^2)'' - (E\phi')^2`;
    ``excess`` : :math:`\sigma_a^2\Delta/(1 - \sigma_a^2(E\phi')^2)`, so that the ratio is
    :math:`(1 - \text{excess})^2`;
    ``ratio`` : :math:`\alpha_3/(2\alpha_2)` (1 where both vanish); ``reached`` : 1 if the design
    finds an exact one-layer net; ``contradiction`` : 1 if that is not what the condition says.

    Examples
    --------
    >>> cell = row({"family": "kinked", "sigma_a2": 0.2}, 0)
    >>> cell["net_residual"] < 1e-8, cell["reached"], cell["contradiction"]
    (True, 0.0, 0.0)
    """
    sigma_a2 = real(settings["sigma_a2"], "sigma_a2")
    deq = well_posed(str(settings["family"]), sigma_a2, seed)
    activation = deq.activation
    net, own = derivatives(ENN([activation])), derivatives(deq)
    s1 = sigma_a2 * own.product + deq.sigma_b2
    alpha4 = sigma_a2 * own.variance + deq.sigma_b2
    moments = gaussian.stein_moments(deq.phi, deq.tau, activation.kinks)
    curved = deq.tau**4 * moments.d2**2 > BALANCED * deq.gamma2
    imbalance = moments.square_d2 / 2 - moments.d1**2
    reached = design.match(deq, "cubic_hermite", layers=1).status is design.Status.EXACT
    possible = not curved or abs(imbalance) < BALANCED
    return {
        "net_residual": abs(net.square - 2 * net.mixed) / net.energy,
        "deq_residual": abs(own.square * (alpha4 / s1) ** 2 - 2 * own.mixed) / own.energy,
        "imbalance": imbalance,
        "excess": sigma_a2 * imbalance / (1 - sigma_a2 * moments.d1**2),
        "ratio": own.square / (2 * own.mixed) if curved else 1.0,
        "even_share": deq.tau**4 * moments.d2**2 / (2 * deq.gamma2),
        "reached": float(reached),
        "contradiction": float(reached != possible),
    }


def well_posed(family: str, sigma_a2: float, seed: int) -> DEQ:
    """Return the DEQ of the first random activation of the family that is well posed.

    It must be so for every sample whose kernel is differentiated, up to squared norm 1 + RADIUS.
    """
    longest = np.sqrt([[1 + RADIUS]])
    rng = np.random.default_rng([seed, _random_activations.FAMILIES.index(family)])
    for _ in range(_DRAWS):
        activation = _random_activations.draw(family, rng)
        try:
            deq = DEQ(activation, sigma_a2)
            kernels.ck(deq, longest)
            return deq
        except NotWellPosedError:
            continue
    raise NotWellPosedError(f"none of {_DRAWS} {family} activations is well posed")


def derivatives(spec: DEQ | ENN) -> Derivatives:
    """Return the derivatives of a network's exact CK, by interpolation at Chebyshev points."""
    nodes = chebyshev.chebpts1(DEGREE + 1)
    norms, products = 1 + RADIUS * nodes, RADIUS * nodes
    kernel = kernels.ck(spec, _points(norms, products), tol=1e-12)
    m = len(nodes)
    grid, along, diagonal = kernel[:m, m : 2 * m], kernel[2 * m, 2 * m + 1 :], kernel.diagonal()[:m]
    weights = _slope_weights(nodes)
    in_product = Chebyshev(_coefficients(nodes, along), domain=[-RADIUS, RADIUS])
    return Derivatives(
        product=float(in_product.deriv()(0.0)),
        square=float(in_product.deriv(2)(0.0) / 2),
        mixed=float(weights @ grid @ weights),
        variance=float(weights @ diagonal),
        energy=float(kernel[2 * m, 2 * m]),
    )


def _points(norms: FloatArray, products: FloatArray) -> FloatArray:
    """Points at right angles with these squared norms, twice; a unit vector and its neighbours.

    The neighbours are unit vectors too, at the inner products given with the first.
    """
    m = len(norms)
    X = np.diag(np.sqrt(np.concatenate([norms, norms, [1.0], 1 - products**2])))
    X[2 * m + 1 :, 2 * m] = products
    return np.asarray(X)


def _coefficients(nodes: FloatArray, values: FloatArray) -> FloatArray:
    return np.asarray(
        np.linalg.solve(chebyshev.chebvander(nodes, len(nodes) - 1), values), dtype=np.float64
    )


def _slope_weights(nodes: FloatArray) -> FloatArray:
    """Weights w with w . values = slope at the middle of the interval of half-length RADIUS."""
    slopes = [Chebyshev.basis(k).deriv()(0.0) for k in range(len(nodes))]
    return np.asarray(_coefficients(nodes, np.eye(len(nodes))).T @ slopes) / RADIUS


def _cells(levels: tuple[float, ...]) -> list[dict[str, object]]:
    return [
        {"family": family, "sigma_a2": level}
        for family in _random_activations.FAMILIES
        for level in levels
    ]


STUDY = Study(
    name="one_layer",
    row=row,
    grids={"quick": _cells((0.2,)), "paper": _cells((0.1, 0.3, 0.5))},
    seeds={"quick": (1000, 1001, 1002), "paper": tuple(range(10))},
    claims=("A7",),
    rtol=1e-6,
    atol=1e-7,
)
