r"""The conditions of the convergence theorems, with explicit constants.

All constants are functions of the start alone; they hold in the ball of radii
:math:`(\rho_W, \rho_A, \rho_b)` around it (Frobenius norms for W and A).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from implicitnn import _validate
from implicitnn._infinite_depth.norms import operator_norm, smallest_singular_value
from implicitnn._infinite_depth.params import Params, check_inputs
from implicitnn._infinite_depth.solve import forward
from implicitnn._infinite_depth.status import Status
from implicitnn._validate import FloatArray
from implicitnn.errors import AccuracyError

FLOW, DESCENT = 4.0, 8.0


@dataclass(frozen=True)
class Inequality:
    """One condition ``left >= right``; ``slack`` is left/right, at least 1 where it holds."""

    name: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether left >= right, with neither side beyond the floating-point range."""
        return bool(
            math.isfinite(self.left) and math.isfinite(self.right) and self.left >= self.right
        )

    @property
    def slack(self) -> float:
        """left/right; infinite where the right side is 0, 0 where it is infinite."""
        if self.right == 0:
            return math.inf
        return 0.0 if not math.isfinite(self.right) else self.left / self.right


@dataclass(frozen=True, eq=False)
class Start:
    """What the constants need to know of a start; ``beta`` rescales it without another solve."""

    norm_W: float
    norm_A: float
    norm_b: float
    gamma: float
    alpha: float
    prediction: FloatArray
    y: FloatArray
    norm_X: float
    frobenius_X: float


@dataclass(frozen=True)
class Conditions:
    r"""Constants and inequalities of the theorems on gradient flow and gradient descent.

    With :math:`l_1 = \lVert W_0\rVert + \rho_W`, :math:`l_2 = \lVert A_0\rVert + \rho_A`,
    :math:`l_3 = |b_0| + \rho_b`, :math:`g_0 = \gamma l_2`:

    .. math::
        B_Z = \frac{l_1\lVert X\rVert_F}{1 - g_0}, \quad
        B_A = \frac{\gamma B_Z l_3}{1 - g_0}, \quad
        B_W = \frac{l_3\lVert X\rVert}{1 - g_0}, \quad
        C_Z = \frac{\gamma B_Z B_A + \lVert X\rVert B_W}{1 - g_0}.

    ``alpha0`` is :math:`\sigma_{\min}(Z_0)`, ``r0`` is :math:`|\hat y_0 - y|`. ``flow`` and
    ``descent`` list the inequalities of the two theorems.

    Attributes
    ----------
    eta_max : float
        Largest step of the theorem on descent, :math:`1/B_Z^2`.
    """

    alpha0: float
    r0: float
    l1: float
    l2: float
    l3: float
    g0: float
    norm_X: float
    frobenius_X: float
    radii: tuple[float, float, float]
    B_Z: float
    B_A: float
    B_W: float
    C_Z: float
    flow: tuple[Inequality, ...]
    descent: tuple[Inequality, ...]

    @property
    def eta_max(self) -> float:
        """Largest step for which the theorem on descent holds; 0 where the ball is not safe."""
        square = _power(self.B_Z, 2)
        return 1 / square if 0 < square < math.inf else 0.0

    @property
    def flow_holds(self) -> bool:
        """Whether every inequality of the theorem on flow holds."""
        return all(item.holds for item in self.flow)

    @property
    def descent_holds(self) -> bool:
        """Whether every inequality of the theorem on descent holds."""
        return all(item.holds for item in self.descent)

    def failures(self) -> tuple[str, ...]:
        """Names of the inequalities that fail, those of descent first."""
        return tuple(dict.fromkeys(i.name for i in self.descent + self.flow if not i.holds))

    def bound(self, k: ArrayLike, eta: float | None = None) -> FloatArray:
        r"""Return the bound on the loss after k steps, :math:`(1 - \eta\alpha_0^2/8)^{2k} L_0`.

        ``eta`` is ``eta_max`` unless given.

        Raises
        ------
        ValueError
            An inequality fails or eta is larger than ``eta_max``: there is no bound then.
        """
        if not self.descent_holds:
            failed = ", ".join(item.name for item in self.descent if not item.holds)
            raise ValueError(f"the theorem on descent does not apply: {failed}")
        step = self.eta_max if eta is None else _validate.positive(eta, "eta")
        if step > self.eta_max * (1 + 1e-12):
            raise ValueError(f"eta must be at most eta_max = {self.eta_max:g}, got {step:g}")
        steps = _not_negative(k, "k")
        factor = 2 * np.log1p(-step * self.alpha0**2 / 8)
        return np.asarray(0.5 * self.r0**2 * np.exp(steps * factor))

    def flow_bound(self, t: ArrayLike) -> FloatArray:
        r"""Return the bound on the loss at time t, :math:`e^{-\alpha_0^2 t/2} L_0`.

        Raises
        ------
        ValueError
            An inequality of the theorem on flow fails.
        """
        if not self.flow_holds:
            failed = ", ".join(item.name for item in self.flow if not item.holds)
            raise ValueError(f"the theorem on flow does not apply: {failed}")
        times = _not_negative(t, "t")
        return np.asarray(0.5 * self.r0**2 * np.exp(-0.5 * self.alpha0**2 * times))


def _not_negative(value: ArrayLike, name: str) -> FloatArray:
    array = _validate.as_array(value, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got {_validate.shown(value)}")
    if not (array >= 0).all():
        raise ValueError(f"{name} must not be negative or NaN, got {_validate.shown(value)}")
    return np.asarray(array, dtype=float)


def conditions(
    params: Params,
    X: FloatArray,
    y: FloatArray,
    *,
    radii: Sequence[float] = (1.0, 1.0, 1.0),
) -> Conditions:
    r"""Return every constant and every inequality of the convergence theorems at a start.

    Parameters
    ----------
    params : Params
        The start.
    X, y : array_like, shapes (N, d) and (N,)
    radii : three positive numbers
        :math:`(\rho_W, \rho_A, \rho_b)`, the ball in which the proof keeps the trajectory.

    Notes
    -----
    The conditions (17) to (19) of Theorem 4.4 of Gao and Gao (2022), arXiv 2205.07463, are not
    reproduced here: these are our own, derived with proof on the pages on gradient flow and on
    gradient descent.

    Examples
    --------
    >>> params = Params(40 * np.eye(2), np.zeros((2, 2)), np.zeros(2), 0.05)
    >>> found = conditions(params, np.eye(2), np.array([1.0, -1.0]))
    >>> found.descent_holds, found.alpha0
    (True, 40.0)
    """
    return constants(_start(params, X, y), 1.0, _radii(radii))


def _radii(radii: Sequence[float]) -> tuple[float, float, float]:
    values = tuple(_validate.positive(r, "each of radii") for r in _validate.reals(radii, "radii"))
    if len(values) != 3:
        raise ValueError(f"radii must be three numbers, for W, A and b; got {radii}")
    return values[0], values[1], values[2]


def _start(params: Params, X: FloatArray, y: FloatArray) -> Start:
    data = check_inputs(params, X, y)
    solved = forward(params, data.X)
    if not solved.status.ok and solved.status is not Status.NOT_WELL_POSED:
        raise AccuracyError(
            f"the features at the start could not be found: {solved.status.text} "
            f"(gamma ||A|| = {solved.rate:.6g}, {solved.iterations} iterations)"
        )
    # Not well posed: g0 >= 1, no inequality can hold, and the features do not matter.
    alpha = smallest_singular_value(solved.Z) if solved.status.ok else 0.0
    return Start(
        operator_norm(params.W),
        operator_norm(params.A),
        float(np.linalg.norm(params.b)),
        params.gamma,
        alpha,
        solved.Z @ params.b,
        data.y,
        operator_norm(data.X),
        float(np.linalg.norm(data.X)),
    )


def constants(start: Start, beta: float, radii: tuple[float, float, float]) -> Conditions:
    """Return the conditions at the start scaled by beta, see Params.scaled."""
    gamma, alpha0 = start.gamma / beta, beta * start.alpha
    r0 = float(np.linalg.norm(beta**2 * start.prediction - start.y))
    norms = (start.norm_W, start.norm_A, start.norm_b)
    l1, l2, l3 = (beta * norm + radius for norm, radius in zip(norms, radii, strict=True))
    g0 = gamma * l2
    room = 1 - g0
    B_Z = l1 * start.frobenius_X / room if room > 0 else math.inf
    B_A = gamma * B_Z * l3 / room if room > 0 and gamma > 0 else (0.0 if room > 0 else math.inf)
    B_W = l3 * start.norm_X / room if room > 0 else math.inf
    C_Z = (gamma * B_Z * B_A + start.norm_X * B_W) / room if room > 0 else math.inf
    bounds = (B_W, B_A, B_Z)
    return Conditions(
        alpha0, r0, l1, l2, l3, g0, start.norm_X, start.frobenius_X, radii, B_Z, B_A, B_W, C_Z,
        _inequalities(FLOW, alpha0, r0, g0, bounds, C_Z, radii),
        (*_inequalities(DESCENT, alpha0, r0, g0, bounds, C_Z, radii),
         Inequality("alpha0^2 >= 8 l3 C_Z", _power(alpha0, 2), DESCENT * l3 * C_Z)),
    )  # fmt: skip


def _power(value: float, exponent: int) -> float:
    """Return the power, infinite where Python would raise."""
    try:
        return float(value) ** exponent
    except OverflowError:
        return math.inf


def _inequalities(
    c: float,
    alpha0: float,
    r0: float,
    g0: float,
    bounds: tuple[float, float, float],
    C_Z: float,
    radii: tuple[float, float, float],
) -> tuple[Inequality, ...]:
    names = [
        f"alpha0^2 >= {c:g} r0 {bound}/{radius}"
        for bound, radius in (("B_W", "rho_W"), ("B_A", "rho_A"), ("B_Z", "rho_b"))
    ]
    return (
        # strict: g0 = 1 leaves no room
        Inequality("1 > g0 = gamma l2", math.nextafter(1.0, 0.0), g0),
        Inequality("alpha0 > 0", alpha0, math.ulp(0.0)),
        *(
            Inequality(name, _power(alpha0, 2), c * r0 * bound / radius if r0 > 0 else 0.0)
            for name, bound, radius in zip(names, bounds, radii, strict=True)
        ),
        Inequality(
            f"alpha0^3 >= {2 * c:g} r0 C_Z", _power(alpha0, 3), 2 * c * r0 * C_Z if r0 > 0 else 0.0
        ),
    )


@dataclass(frozen=True)
class Scaling:
    """The smallest beta found, with the conditions there; ``beta`` is None where there is none."""

    beta: float | None
    conditions: Conditions
    text: str


def smallest_beta(
    params: Params,
    X: FloatArray,
    y: FloatArray,
    *,
    radii: Sequence[float] = (1.0, 1.0, 1.0),
    largest: float = 1e15,
) -> Scaling:
    r"""Return the smallest scaling of the start for which the conditions of descent hold.

    The start is scaled as in :meth:`Params.scaled`, so its features are exactly
    :math:`\beta Z_0` and one solve suffices. With :math:`b_0 = 0` every slack grows with beta, so
    the answer is found by bisection; otherwise the smallest beta on a grid of ratio 1.1, refined.

    Returns
    -------
    Scaling
        Its ``beta`` is None where no value of the grid up to ``largest`` will do; ``text`` says
        what fails at its end. Above ``beta`` the conditions hold on when :math:`b_0 = 0`.

    Notes
    -----
    Derived on the page on initialisation and width.

    Examples
    --------
    >>> params = Params(np.eye(2), np.eye(2), np.zeros(2), 0.05)
    >>> found = smallest_beta(params, np.eye(2), np.array([1.0, -1.0]))
    >>> found.beta < 40, found.conditions.descent_holds
    (True, True)
    """
    sizes = _radii(radii)
    start = _start(params, X, y)
    limit = _validate.positive(largest, "largest")
    if limit <= 1:
        raise ValueError(f"largest must be more than 1, got {limit}")
    grid = np.geomspace(limit**-1, limit, 2 + int(2 * math.log(limit) / math.log(1.1)))
    good = next(
        (i for i, beta in enumerate(grid) if constants(start, beta, sizes).descent_holds), None
    )
    if good is None:
        at = constants(start, 1.0, sizes)
        why = "; ".join(i.name for i in constants(start, limit, sizes).descent if not i.holds)
        where = f"up to {limit:g}, on a grid of ratio 1.1,"
        return Scaling(
            None, at, f"no beta {where} satisfies all conditions; at its end fail: {why}"
        )
    low, high = (float(grid[good - 1]) if good else 0.0), float(grid[good])
    for _ in range(60):
        middle = 0.5 * (low + high)
        if constants(start, middle, sizes).descent_holds:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    # with b0 not 0 the residual outgrows the features
    beyond = "" if start.norm_b else " and beyond"
    return Scaling(
        high, constants(start, high, sizes), f"the conditions hold at beta = {high:.6g}{beyond}"
    )
