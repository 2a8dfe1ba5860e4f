r"""The networks: implicit (DEQ) and explicit (ENN), in the limit of infinite width.

Both are frozen and validated. The activation is centred for data of scale ``tau0``, the root mean
square norm of a sample, so ``tau0`` is part of the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate, gaussian
from implicitnn._gaussian import centring as _centring
from implicitnn._gaussian.bends import cuts
from implicitnn._gaussian.fixed_point import NoFixedPointError, smallest_fixed_point
from implicitnn.activations import Activation
from implicitnn.errors import NotWellPosedError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Centred:
    """phi(t) = f(t) - offset, as a callable; its derivative and kinks are those of f."""

    activation: Activation
    offset: float

    def __call__(self, t: FloatArray) -> FloatArray:
        """f(t) - offset."""
        return self.activation.f(t) - self.offset

    def df(self, t: FloatArray) -> FloatArray:
        """phi'(t) = f'(t)."""
        return self.activation.df(t)

    @property
    def kinks(self) -> tuple[float, ...]:
        """Kinks of phi."""
        return self.activation.kinks

    def cuts(self, tau: float) -> tuple[float, ...]:
        """Where expectations at the scale tau are cut: kinks, and the sides of narrow features."""
        return cuts(self.activation, tau)


@dataclass(frozen=True)
class Contraction:
    r"""How fast the infinite-width iteration contracts at its fixed point; below one is stable.

    covariance : :math:`\sigma_a^2 E[\phi'(\tau_* \xi)^2]`, for two nearly equal inputs.
    variance : :math:`\frac{\sigma_a^2}{2} E[(\phi^2)''(\tau_* \xi)]`, for the norm of one state.
    """

    covariance: float
    variance: float


@dataclass(frozen=True)
class DEQ:
    r"""A deep equilibrium layer :math:`z = m^{-1/2}\phi(\sigma_a A z + \sigma_b B x + \sigma_c c)`.

    A (m, m), B (m, p) and c (m,) have independent N(0, 1) entries, and :math:`\phi = f - E f(\tau_*
    \xi)` is centred (``centred=True``) at the fixed point of

    .. math:: \tau_*^2 = \sigma_a^2 E[\phi(\tau_* \xi)^2] + \sigma_b^2 \tau_0^2 + \sigma_c^2 .

    Where this has several solutions the smallest is taken, the one that is reached from z = 0.

    A feature of a reader's activation may be as narrow as 1/3000 on :math:`|t| \le 21`, and as
    narrow as :math:`\tau_*/1000` further out; a narrower one must lie at 0 or at a declared kink.

    Parameters
    ----------
    activation : f; it must not vanish once centred.
    sigma_a2 : variance of the recurrent weights, from 0 to 1e100.
    sigma_b2 : variance of the input weights, from 1e-100 to 1e100; 1 - sigma_a2 by default.
    tau0 : scale of the data, from 1e-50 to 1e50, and so is the root of
        :math:`\sigma_b^2 \tau_0^2 + \sigma_c^2`.
    sigma_c2 : variance of the shared random bias, from 0 to 1e100.
    centred : subtract the mean of f (default), or use f as it is.

    Attributes
    ----------
    tau, offset, gamma2, phi, contraction : :math:`\tau_*`, the constant subtracted from f,
        :math:`\gamma_*^2 = E\phi(\tau_*\xi)^2`, :math:`\phi`, and the two rates of contraction.

    Raises
    ------
    NotWellPosedError : no attracting fixed point; the message names the inequality that fails, its
        value, and the largest sigma_a2 that works.
    ValueError : a number out of its range; an activation that vanishes once centred, or whose
        square overflows at the scale of the network.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> deq = DEQ(relu, sigma_a2=0.2)
    >>> round(deq.tau, 6), round(deq.gamma2, 6)
    (0.926566, 0.292624)
    >>> deq.at(2.0)
    DEQ(relu, sigma_a2=0.2, tau0=2.0)
    """

    activation: Activation
    sigma_a2: float
    sigma_b2: float
    tau0: float
    sigma_c2: float
    centred: bool
    _default_b: bool = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        activation: Activation,
        sigma_a2: float,
        sigma_b2: float | None = None,
        tau0: float = 1.0,
        *,
        sigma_c2: float = 0.0,
        centred: bool = True,
    ) -> None:
        _require_activation(activation, "activation")
        sigma_a2 = _validate.variance(sigma_a2, "sigma_a2")
        default_b = sigma_b2 is None
        if default_b and sigma_a2 >= 1.0:
            raise ValueError(
                "sigma_a2 must be below 1 while sigma_b2 has its default value 1 - sigma_a2, "
                f"got sigma_a2 = {sigma_a2}"
            )
        values = {
            "activation": activation,
            "sigma_a2": sigma_a2,
            "sigma_b2": _input_variance(1.0 - sigma_a2 if default_b else sigma_b2),
            "tau0": _validate.scale(tau0, "tau0"),
            "sigma_c2": _validate.variance(sigma_c2, "sigma_c2"),
            "centred": _flag(centred, "centred"),
            "_default_b": default_b,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _require_drive(self._drive)
        with _centring.named(f"{self!r}"):
            self._require_well_posed()
            subject = f"activation {activation.name}"
            _centring.require_output(subject, self.gamma2, self.offset, self.tau)

    def at(self, tau0: float) -> DEQ:
        """Return the same network centred for data of another scale."""
        return DEQ(
            self.activation,
            self.sigma_a2,
            None if self._default_b else self.sigma_b2,
            tau0,
            sigma_c2=self.sigma_c2,
            centred=self.centred,
        )

    @cached_property
    def tau(self) -> float:
        r"""Standard deviation :math:`\tau_*` of the preactivation."""
        return math.sqrt(self._tau2)

    @cached_property
    def _tau2(self) -> float:
        return _tau2(self.activation, self.sigma_a2, self._drive, self.centred)

    @property
    def _drive(self) -> float:
        return self.sigma_b2 * self.tau0**2 + self.sigma_c2

    @cached_property
    def offset(self) -> float:
        """The constant subtracted from f (0 where not centred)."""
        if not self.centred:
            return 0.0
        return _centring.offset(self.activation.f, self.tau, cuts(self.activation, self.tau))

    @cached_property
    def phi(self) -> Centred:
        """The centred activation."""
        return Centred(self.activation, self.offset)

    @cached_property
    def gamma2(self) -> float:
        r""":math:`\gamma_*^2 = E \phi(\tau_* \xi)^2`."""
        return _centring.energy(self.phi, self.tau, self.phi.cuts(self.tau))

    @cached_property
    def contraction(self) -> Contraction:
        """Rates of contraction at the fixed point."""
        _require_moderate(self.activation, self.tau)
        return _contraction(self.phi, self.sigma_a2, self.tau)

    def _require_well_posed(self) -> None:
        _require_moderate(self.activation, math.sqrt(self._drive))
        problem = self._problem()
        if problem:
            raise NotWellPosedError(f"{self!r} is not well posed: {problem}; {self._limit()}")

    def _problem(self) -> str:
        try:
            rates = self.contraction
        except NoFixedPointError as missing:
            return str(missing)
        if rates.covariance >= 1.0:
            return f"sigma_a2 E[phi'(tau xi)^2] < 1 fails, it is {rates.covariance:.6g}"
        if abs(rates.variance) >= 1.0:
            return f"|(sigma_a2/2) E[(phi^2)''(tau xi)]| < 1 fails, it is {rates.variance:.6g}"
        return ""

    def _with(self, sigma_a2: float) -> DEQ:
        """Return the same network with another sigma_a2, not checked."""
        other = object.__new__(DEQ)
        for name in ("activation", "tau0", "sigma_c2", "centred", "_default_b"):
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "sigma_a2", sigma_a2)
        object.__setattr__(other, "sigma_b2", 1.0 - sigma_a2 if self._default_b else self.sigma_b2)
        return other

    def _limit(self) -> str:
        low, high = 0.0, self.sigma_a2
        while high > _validate.SMALLEST_VARIANCE and self._with(1e-3 * high)._problem():
            high *= 1e-3
        while high - low > 2e-7 * high and high > _validate.SMALLEST_VARIANCE:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self._with(middle)._problem() else (middle, high)
        convention = "1 - sigma_a2" if self._default_b else f"{self.sigma_b2:g}"
        if low == 0.0:
            return f"no sigma_a2 above 1e-100 works (with sigma_b2 = {convention})"
        digits = 10.0 ** (6 - math.ceil(math.log10(low)))
        largest = math.floor(low * digits) / digits
        return f"the largest sigma_a2 that works is {largest:.6g} (with sigma_b2 = {convention})"

    def __repr__(self) -> str:
        """Return the call that makes it; a default sigma_b2 is left out."""
        parts = [self.activation.name, f"sigma_a2={self.sigma_a2!r}"]
        if not self._default_b:
            parts.append(f"sigma_b2={self.sigma_b2!r}")
        parts.append(f"tau0={self.tau0!r}")
        if self.sigma_c2:
            parts.append(f"sigma_c2={self.sigma_c2!r}")
        if not self.centred:
            parts.append("centred=False")
        return f"DEQ({', '.join(parts)})"


@dataclass(frozen=True)
class ENN:
    r"""An explicit network :math:`x_l = m^{-1/2} \sigma_l(W_l x_{l-1})`, l = 1..L, with x_0 = x.

    The weights are independent N(0, 1). Layer l is centred at the scale that reaches it:
    :math:`\sigma_l = f_l - E f_l(\tau_{l-1}\xi)`, :math:`\tau_l^2 = E\sigma_l(\tau_{l-1}\xi)^2`.

    Parameters
    ----------
    layers : one Activation for each layer.
    tau0 : scale of the data, from 1e-50 to 1e50, as the scale of every layer must be.
    centred : subtract the means (default), or use the activations as they are.

    Attributes
    ----------
    taus : :math:`(\tau_0, \dots, \tau_L)`.
    offsets : constant subtracted in each layer.
    phis : the centred activations.

    Raises
    ------
    ValueError : no layers, or a layer whose output vanishes, overflows, or leaves the range.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> [round(tau, 6) for tau in ENN((relu, relu)).taus]
    [1.0, 0.583819, 0.340845]
    """

    layers: tuple[Activation, ...]
    tau0: float
    centred: bool

    def __init__(
        self, layers: Sequence[Activation], tau0: float = 1.0, *, centred: bool = True
    ) -> None:
        if isinstance(layers, Activation):
            raise TypeError(f"layers must be a sequence, write ({layers.name},) for one layer")
        if not isinstance(layers, Sequence):
            raise TypeError(f"layers must be a sequence of Activation, got {_show(layers)}")
        if not layers:
            raise ValueError("layers must not be empty")
        for number, layer in enumerate(layers):
            _require_activation(layer, f"layers[{number}]")
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "tau0", _validate.scale(tau0, "tau0"))
        object.__setattr__(self, "centred", _flag(centred, "centred"))
        _ = self.taus  # taken now, so that a layer that fails is refused here

    def at(self, tau0: float) -> ENN:
        """Return the same network centred for data of another scale."""
        return ENN(self.layers, tau0, centred=self.centred)

    @cached_property
    def _states(self) -> tuple[tuple[float, ...], tuple[Centred, ...]]:
        taus, phis = [self.tau0], []
        for number, layer in enumerate(self.layers, start=1):
            with _centring.named(f"layer {number} ({layer.name})"):
                phi, tau = _layer(layer, taus[-1], self.centred, f"layer {number} ({layer.name})")
            phis.append(phi)
            taus.append(tau)
        return tuple(taus), tuple(phis)

    @property
    def taus(self) -> tuple[float, ...]:
        r""":math:`(\tau_0, \dots, \tau_L)`."""
        return self._states[0]

    @property
    def phis(self) -> tuple[Centred, ...]:
        """The centred activations, one for each layer."""
        return self._states[1]

    @property
    def offsets(self) -> tuple[float, ...]:
        """The constant subtracted in each layer."""
        return tuple(phi.offset for phi in self.phis)

    def __repr__(self) -> str:
        """Return the call that makes it."""
        names = ", ".join(layer.name for layer in self.layers)
        flag = "" if self.centred else ", centred=False"
        return f"ENN(({names},), tau0={self.tau0!r}{flag})"


def _layer(layer: Activation, tau: float, centred: bool, name: str) -> tuple[Centred, float]:
    """Return the centred activation of a layer that receives the scale tau, and its own scale."""
    _centring.require_moderate(name, layer.f, tau)
    offset = _centring.offset(layer.f, tau, cuts(layer, tau)) if centred else 0.0
    phi = Centred(layer, offset)
    square = _centring.energy(phi, tau, phi.cuts(tau))
    _centring.require_output(name, square, offset, tau)
    return phi, _validate.scale(math.sqrt(square), f"the scale that leaves {name}")


def _contraction(phi: Centred, sigma_a2: float, tau: float) -> Contraction:
    places = phi.cuts(tau)
    slope = gaussian.expectations(lambda t: np.stack([phi(t), phi.df(t) ** 2]), tau, places)[1]
    bend = gaussian.stein_moments(phi, tau, places).square_d2
    return Contraction(float(sigma_a2 * slope), 0.5 * sigma_a2 * bend)


@lru_cache(maxsize=4096)
def _tau2(activation: Activation, sigma_a2: float, drive: float, centred: bool) -> float:
    places = partial(cuts, activation)
    return smallest_fixed_point(activation.f, places, sigma_a2, drive, centred)


def _require_activation(value: object, name: str) -> None:
    if not isinstance(value, Activation):
        raise TypeError(f"{name} must be an Activation, got {_show(value)}")


def _require_moderate(activation: Activation, tau: float) -> None:
    for part, function in (("f", activation.f), ("f'", activation.df)):
        _centring.require_moderate(f"activation {activation.name}: {part}", function, tau)


def _input_variance(value: object) -> float:
    number = _validate.variance(_validate.positive(value, "sigma_b2"), "sigma_b2")
    if number < _validate.SMALLEST_VARIANCE:
        raise ValueError(f"sigma_b2 must be at least {_validate.SMALLEST_VARIANCE:g}, got {number}")
    return number


def _require_drive(drive: float) -> None:
    if not _validate.SMALLEST_VARIANCE <= drive <= _validate.LARGEST_VARIANCE:
        raise ValueError(
            "sigma_b2 tau0^2 + sigma_c2 must lie between "
            f"{_validate.SMALLEST_VARIANCE:g} and {_validate.LARGEST_VARIANCE:g}, got {drive:.6g}"
        )


def _show(value: object) -> str:
    return _validate.shown(value)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {_show(value)}")
    return bool(value)
