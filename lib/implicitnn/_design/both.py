r"""Both kernels by one net: only with weights for the layers, and only for odd activations.

The tangent kernel is a sum over the weight matrices. With one learning rate an explicit net of L
layers has :math:`b_1/a_1 = L+1` (L when W_1 is frozen) and
:math:`b_2 = \sum_l t_l(L+1-l) \le L a_2`, :math:`t_l` the part of :math:`a_2` that layer l makes,
with equality only if layer 1 makes all of it; then :math:`a_3 = 2a_2`. The DEQ has
:math:`\beta_2/\alpha_2 = 1/(1-d_0)`, and :math:`\beta_1/\alpha_1` is one more (the same when the
input weights are frozen). So both kernels need an integer :math:`1/(1-d_0) = L` and
:math:`\alpha_3 = 2\alpha_2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from implicitnn._design.targets import ODD
from implicitnn._rmt.coefficients import Coefficients, coefficients
from implicitnn.specs import ENN

_EQUAL = 1e-9
_FLAT = 1e-12


@dataclass(frozen=True)
class Both:
    """Weights of W_1 and the readout, or None, with the reason; proved: there can be none."""

    weights: tuple[float, float] | None
    reason: str
    proved: bool


def is_odd(c: Coefficients, tau0: float) -> bool:
    """No even part is seen by the kernels."""
    return max(2.0 * c.alpha2, c.alpha3) * tau0**4 <= ODD * c.gamma2


def solve_both(c: Coefficients, enn: ENN, params: str) -> Both:
    """Weights for a net that has the conjugate kernel already (odd, one layer)."""
    if not is_odd(c, enn.tau0):
        return _even(c, len(enn.layers), params)
    if len(enn.layers) > 1:
        return Both(None, "weights of the layers are sought for one odd layer only", False)
    own = coefficients(enn)
    slope = (own.kappa2 - own.gamma2) / own.gamma2
    energy = c.kappa2 / c.gamma2
    if c.alpha1 * enn.tau0**2 <= ODD * c.gamma2:
        first, readout = (energy - 1.0) / slope, 1.0
    else:
        total = c.beta1 / c.alpha1
        flat = abs(slope - 1.0) <= _FLAT
        first = total - 1.0 if flat else (energy - total) / (slope - 1.0)
        readout = total - first
    if min(first, readout) < 0.0:
        reason = f"the weights of W_1 and readout would be {first:.6g} and {readout:.6g}"
        return Both(None, reason, False)
    reason = (
        "CK and NTK hold together when the tangent kernel counts W_1 "
        f"{first:.9g} times and the readout {readout:.9g} times"
    )
    return Both((first, readout), reason, True)


def _even(c: Coefficients, layers: int, params: str) -> Both:
    count = layers + (params == "all")
    ratio1 = c.beta1 / c.alpha1 if c.alpha1 else float("inf")
    ratio2, ratio3 = c.beta2 / c.alpha2, c.alpha3 / c.alpha2
    exception = abs(ratio2 - round(ratio2)) < _EQUAL and abs(ratio3 - 2.0) < _EQUAL
    reason = (
        f"an explicit net of L layers with one learning rate has b1/a1 = "
        f"{'L + 1' if params == 'all' else 'L'} (here {count}) and b2/a2 <= L, with equality only "
        f"if a3 = 2 a2; the DEQ has beta1/alpha1 = {ratio1:.6g}, beta2/alpha2 = {ratio2:.6g}, "
        f"alpha3/alpha2 = {ratio3:.6g}"
    )
    return Both(None, reason, not exception)
