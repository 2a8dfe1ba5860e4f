r"""Explicit nets that have the kernel of a given DEQ.

A DEQ enters its conjugate kernel, in high dimension, through four numbers: :math:`\alpha_1,
\alpha_2, \alpha_3` and :math:`\gamma^2`; an explicit net does so too. Setting them equal gives four
equations for the activations. Written with the layers' shares of energy the scale of the inner
layers drops out, and what remains is solved by algebra and bracketed roots: no random start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from implicitnn import _validate
from implicitnn._design import nearest as _design_nearest
from implicitnn._design import solve as _design_solve
from implicitnn._design.both import is_odd, solve_both
from implicitnn._design.explain import explain
from implicitnn._design.layers import hermite, l_relu
from implicitnn._design.reach import Grid, Reachability, reachable
from implicitnn._design.solve import FAMILIES
from implicitnn._design.targets import (
    CK_NAMES,
    NTK_NAMES,
    TOLERANCE,
    Equation,
    Solution,
    equations,
    explicit_numbers,
    wanted_ck,
    wanted_ntk,
    weighted_numbers,
)
from implicitnn._rmt.coefficients import PARAMS, Coefficients, coefficients
from implicitnn.activations import Activation
from implicitnn.specs import DEQ, ENN

__all__ = [
    "FAMILIES",
    "TARGETS",
    "Equation",
    "Grid",
    "Match",
    "Reachability",
    "Status",
    "hermite",
    "l_relu",
    "match",
    "reachable",
]

TARGETS = ("ck", "ntk", "both")
ROUNDED = 1e-8


class Status(StrEnum):
    """What a match is worth.

    EXACT : every equation holds to 1e-12, measured by quadrature on the net that is returned.
    ROUNDED : the algebra is exact, but rounding leaves a measured residual of 1e-12 to 1e-8.
    IMPOSSIBLE : it is proved that the family cannot; the message names the equation and why.
    NOT_FOUND : a search over the whole family found nothing, which is not a proof.
    """

    EXACT = "exact"
    ROUNDED = "rounded"
    IMPOSSIBLE = "impossible"
    NOT_FOUND = "not found"


@dataclass(frozen=True)
class Match:
    """An explicit net for a DEQ, and how well it fits.

    Attributes
    ----------
    deq : the implicit network.
    enn : the explicit net; where there is no exact one, the net that holds as many equations as
        possible, with the others at their nearest value.
    status, message : verdict and its reason.
    equations : one for each coefficient, with what is wanted and what the net has.
    family : family of the net (for "auto", the one chosen).
    target : "ck", "ntk" or "both".
    params : weights of the tangent kernel, "all" (every weight of both nets) or "published" (A and
        the readout of the DEQ, all but W_1 of the explicit net); None for the conjugate kernel.
    multipliers : learning-rate multipliers of W_1..W_L and the readout, in the tangent kernel.
    other_layers : layers of further exact or equally near nets of the same family.
    next_misses : mismatch of the first coefficient that the equations leave open, for the net that
        is returned and for the others, smallest first; empty where nothing is to be chosen.
    """

    deq: DEQ
    enn: ENN
    status: Status
    message: str
    equations: tuple[Equation, ...]
    family: str
    target: str
    params: str | None = None
    multipliers: tuple[float, ...] | None = None
    other_layers: tuple[tuple[Activation, ...], ...] = ()
    next_misses: tuple[float, ...] = ()

    @property
    def residuals(self) -> dict[str, float]:
        """Residual of each equation by name."""
        return {equation.name: equation.residual for equation in self.equations}

    @property
    def residual(self) -> float:
        """Largest residual, absolute value."""
        return max(abs(equation.residual) for equation in self.equations)

    @property
    def alternatives(self) -> tuple[ENN, ...]:
        """The further nets."""
        return tuple(ENN(layers, self.deq.tau0) for layers in self.other_layers)

    def explain(self) -> str:
        """Return the net in full: weights, centring constants, activations as formulas."""
        return explain(self)


def match(
    deq: DEQ,
    family: str = "auto",
    target: str = "ck",
    layers: int | None = None,
    *,
    params: str = "all",
) -> Match:
    r"""Return the explicit net of a family that has the kernel of a DEQ.

    With :math:`u_l, w_l` the shares of the first two Hermite coefficients in the energy of layer l,
    :math:`k_l = \tau^2E(\sigma_l^2)''/(2E\sigma_l^2)`, the equations of two layers are

    .. math::
        u_1u_2 = \alpha_1\tau_0^2/\gamma^2, \quad
        u_2w_1 + w_2k_1^2 = 2\alpha_2\tau_0^4/\gamma^2, \quad
        u_2w_1 + w_2u_1^2 = \alpha_3\tau_0^4/\gamma^2,

    and the energy of the last layer is :math:`\gamma^2`. Where several nets of a family are exact
    (the two branches of L-ReLU, the two signs of the last cubic coefficient), the one is returned
    whose kernel agrees best in the first coefficient that the equations leave open: that of
    :math:`(|x_i|^2+|x_j|^2)\,x_i\cdot x_j` with that of the diagonal or, for positively
    homogeneous activations, which agree in these, that of :math:`\chi_i^2\chi_j`,
    :math:`\chi_i = |x_i|^2-\tau_0^2`. The others are in ``alternatives``.

    Parameters
    ----------
    deq : DEQ
        Centred, without bias.
    family : {"hard_tanh", "leaky_relu", "quadratic", "cubic_hermite", "auto"}
        Activations to use. "auto" takes the fewest layers, then the simplest family, that serves.
    target : {"ck", "ntk", "both"}
        Kernel to match. No net does "both" with one learning rate; for an odd activation, weights
        of the layers in the tangent kernel are found that do.
    layers : int, optional
        Number of layers; by default the fewest that serve.
    params : {"all", "published"}
        Weights of the tangent kernel. "all": every weight on both sides. "published": A and the
        readout of the DEQ, against all but W_1 of the explicit net.

    Raises
    ------
    UnsupportedSpecError
        The network has a bias or is not centred, or there is no solver for this number of layers.
    TypeError, ValueError
        An argument is not among those listed.

    References
    ----------
    Ling et al. 2024, Corollary 1 and Examples 1 and 2; the scale-free equations, the ranges of the
    families and the tangent kernel are derived on the pages of the book.

    Examples
    --------
    >>> from implicitnn import activations
    >>> m = match(DEQ(activations.relu, 0.2), "leaky_relu")
    >>> m.status.value, len(m.enn.layers), m.residual < 1e-12
    ('exact', 2, True)
    >>> match(DEQ(activations.relu, 0.2), "quadratic").status.value
    'impossible'
    """
    family = _validate.one_of(family, "family", FAMILIES)
    target = _validate.one_of(target, "target", TARGETS)
    params = _validate.one_of(params, "params", PARAMS)
    if not isinstance(deq, DEQ):
        raise TypeError(f"deq must be a DEQ, got {type(deq).__name__}")
    c = coefficients(deq, params)
    count = _design_solve.check_layers(family, target == "ntk", layers)
    if target == "both":
        return _both(deq, c, family, count, params)
    ck = target == "ck"
    wanted = wanted_ck(c, deq.tau0) if ck else wanted_ntk(c, deq.tau0, params)
    used, found = _design_solve.solve(wanted, family, count)
    found, open_misses = _nearest_first(deq, used, found, None if ck else params)
    enn = ENN(found.layers, deq.tau0)
    numbers = explicit_numbers(enn, "all" if ck else params)
    rows = equations(c, numbers, CK_NAMES if ck else NTK_NAMES, deq.tau0)
    status = _status(found, rows)
    weights = None if ck else tuple(map(float, wanted.multipliers(len(enn.layers))))
    message = _message(status, found, rows, used, family)
    kind = None if ck else params
    return Match(
        deq, enn, status, message, rows, used, target, kind, weights, found.others, open_misses
    )


def _nearest_first(
    deq: DEQ, used: str, found: Solution, params: str | None
) -> tuple[Solution, tuple[float, ...]]:
    """Order equally good nets by what the equations leave open; other solutions stay as they are.

    Cubic nets that are not exact differ in a sign only, which no equation sees.
    """
    if not found.others or not (found.exact or used == "cubic_hermite"):
        return found, ()
    nets = (found.layers, *found.others)
    places, misses = _design_nearest.order(deq, nets, params)
    first, *others = [nets[place] for place in places]
    return replace(found, layers=first, others=tuple(others)), misses


def _both(deq: DEQ, c: Coefficients, family: str, layers: int | None, params: str) -> Match:
    one = family != "quadratic" and layers is None and is_odd(c, deq.tau0)
    used, found = _design_solve.solve(wanted_ck(c, deq.tau0), family, 1 if one else layers)
    found, misses = _nearest_first(deq, used, found, None)
    enn = ENN(found.layers, deq.tau0)
    both = solve_both(c, enn, params)
    weights = both.weights if found.exact else None
    numbers = weighted_numbers(enn, weights) if weights else explicit_numbers(enn, params)
    rows = equations(c, numbers, CK_NAMES + NTK_NAMES, deq.tau0)
    if weights:
        status = _status(found, rows)
        message = f"{status}: {both.reason}; largest residual {abs(_largest(rows).residual):.1e}"
    else:
        proved = both.proved or (found.proved and not found.exact)
        status = Status.IMPOSSIBLE if proved else Status.NOT_FOUND
        kernel = f"the net returned is the {used} one for the conjugate kernel"
        kernel += "" if found.exact else f", which is not exact either ({found.reason})"
        message = f"{status}: {both.reason}; {kernel}{_miss_words(rows, 'this net has')}"
    return Match(
        deq, enn, status, message, rows, used, "both", params, weights, found.others, misses
    )


def _largest(rows: Sequence[Equation]) -> Equation:
    return max(rows, key=lambda row: abs(row.residual))


def _status(found: Solution, rows: Sequence[Equation]) -> Status:
    if abs(_largest(rows).residual) <= TOLERANCE:
        return Status.EXACT
    if found.exact and abs(_largest(rows).residual) <= ROUNDED:
        return Status.ROUNDED
    return Status.IMPOSSIBLE if found.proved and not found.exact else Status.NOT_FOUND


def _message(
    status: Status, found: Solution, rows: Sequence[Equation], used: str, asked: str
) -> str:
    worst = _largest(rows)
    if status in (Status.EXACT, Status.ROUNDED):
        text = f"{status}: all four equations hold, largest residual {abs(worst.residual):.1e}"
        if asked == "auto":
            text += f"; {used} with {len(found.layers)} layer(s): nothing shorter or simpler serves"
        return text
    reason = found.reason or "the solution of the equations is lost to rounding"
    return f"{status}: {reason}{_miss_words(rows)}"


def _miss_words(rows: Sequence[Equation], verb: str = "the nearest is") -> str:
    words = [
        f"; {row.name} should be {row.wanted:.9g}, {verb} {row.achieved:.9g} "
        f"(residual {row.residual:+.3g})"
        for row in rows
        if abs(row.residual) > TOLERANCE
    ]
    return "".join(words)
