r"""What a design has to reach: four numbers, in units of energy, and how they are counted.

A trained set is a list of multipliers, one for each weight matrix and one for the readout. The
conjugate kernel is the tangent kernel of the readout alone, so one set of equations serves both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from implicitnn import gaussian
from implicitnn._gaussian.bends import cuts
from implicitnn._rmt.coefficients import Coefficients, coefficients
from implicitnn.activations import Activation
from implicitnn.specs import ENN

CK_NAMES = ("alpha1", "alpha2", "alpha3", "gamma2")
NTK_NAMES = ("beta1", "beta2", "beta3", "kappa2")
ENERGIES = ("gamma2", "kappa2")
TOLERANCE = 1e-12
ODD = 1e-17
SMALLEST_UNIT = 1e-4


def power(name: str) -> int:
    """Power of 1/tau0 that the coefficient carries beside the energy."""
    if name in ENERGIES:
        return 0
    return 2 if name[-1] == "1" else 4


@dataclass(frozen=True)
class Wanted:
    r"""Four numbers in units of the energy, which is scaled to one.

    first : :math:`\alpha_1\tau_0^2/\gamma^2`, second : :math:`2\alpha_2\tau_0^4/\gamma^2`,
    third : :math:`\alpha_3\tau_0^4/\gamma^2`; for the tangent kernel the betas and
    :math:`\kappa^2`. energy : :math:`\gamma^2` or :math:`\kappa^2`. input_weights : multiplier of
    W_1, hidden : of the other matrices, both 0 for the conjugate kernel.
    """

    first: float
    second: float
    third: float
    energy: float
    tau0: float
    input_weights: int = 0
    hidden: int = 0

    @property
    def odd(self) -> bool:
        """No even part is seen: the second and third number vanish."""
        return max(self.second, self.third) <= ODD

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the four equations."""
        return NTK_NAMES if self.hidden else CK_NAMES

    def value(self, name: str, share: float) -> float:
        """Translate a share of the energy back into the coefficient with this name."""
        half = 0.5 if name[-2:] == "a2" and name not in ENERGIES else 1.0
        return half * share * self.energy / self.tau0 ** power(name)

    def multipliers(self, layers: int) -> tuple[int, ...]:
        """One multiplier for each matrix W_1..W_L and one for the readout."""
        return (self.input_weights, *(self.hidden,) * (layers - 1), 1)


@dataclass(frozen=True)
class Solution:
    """Layers found, other exact solutions, and what could not be held, with its nearest value."""

    layers: tuple[Activation, ...]
    misses: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    proved: bool = True
    others: tuple[tuple[Activation, ...], ...] = ()

    @property
    def exact(self) -> bool:
        """Every equation holds."""
        return not self.misses


@dataclass(frozen=True)
class Equation:
    r"""One equation of a match.

    name : of the coefficient.
    wanted, achieved : its value for the DEQ and for the explicit net.
    residual : (achieved - wanted)/max(wanted, 1e-4 of its natural unit), the unit being
        :math:`\gamma^2`, :math:`\gamma^2/\tau_0^2` or :math:`\gamma^2/\tau_0^4`.
    """

    name: str
    wanted: float
    achieved: float
    residual: float


def wanted_ck(c: Coefficients, tau0: float) -> Wanted:
    unit = c.gamma2
    linear, square = tau0**2 / unit, tau0**4 / unit
    return Wanted(c.alpha1 * linear, 2 * c.alpha2 * square, c.alpha3 * square, unit, tau0)


def wanted_ntk(c: Coefficients, tau0: float, params: str) -> Wanted:
    unit = c.kappa2
    linear, square = tau0**2 / unit, tau0**4 / unit
    shares = c.beta1 * linear, 2 * c.beta2 * square, c.beta3 * square
    return Wanted(*shares, unit, tau0, 1 if params == "all" else 0, 1)


def explicit_numbers(enn: ENN, params: str) -> dict[str, float]:
    r"""Return all eight coefficients of an explicit net, by quadrature.

    Freezing W_1 takes its part away: :math:`\alpha_1` from :math:`\beta_1`, :math:`2\alpha_3` from
    :math:`\beta_3` and :math:`\tau_0^2\prod_l E\sigma_l'^2` from :math:`\kappa^2`.
    """
    c = coefficients(enn)
    numbers = {name: float(getattr(c, name)) for name in CK_NAMES + NTK_NAMES}
    if params == "published":
        slopes = [
            gaussian.expectation(_square_slope(layer), tau, cuts(layer, tau))
            for layer, tau in zip(enn.layers, enn.taus[:-1], strict=True)
        ]
        numbers["beta1"] -= c.alpha1
        numbers["beta3"] -= 2.0 * c.alpha3
        numbers["kappa2"] -= enn.tau0**2 * math.prod(slopes)
    return numbers


def _square_slope(layer: Activation) -> gaussian.Function:
    return lambda t: layer.df(t) ** 2


def weighted_numbers(enn: ENN, multipliers: Sequence[float]) -> dict[str, float]:
    """Coefficients of a one-layer net whose tangent kernel counts W_1 and the readout with weights.

    The full tangent kernel is the readout's part, which is the conjugate kernel, and W_1's.
    """
    c = coefficients(enn)
    numbers = {name: float(getattr(c, name)) for name in CK_NAMES + NTK_NAMES}
    first, readout = multipliers
    for ck, ntk in zip(CK_NAMES, NTK_NAMES, strict=True):
        numbers[ntk] = readout * numbers[ck] + first * (numbers[ntk] - numbers[ck])
    return numbers


def equations(
    c: Coefficients, numbers: dict[str, float], names: Sequence[str], tau0: float
) -> tuple[Equation, ...]:
    rows = []
    for name in names:
        unit = c.gamma2 if name in CK_NAMES else c.kappa2
        wanted, achieved = float(getattr(c, name)), numbers[name]
        scale = max(abs(wanted), SMALLEST_UNIT * unit / tau0 ** power(name))
        rows.append(Equation(name, wanted, achieved, (achieved - wanted) / scale))
    return tuple(rows)
