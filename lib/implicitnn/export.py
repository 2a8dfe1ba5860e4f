"""Explicit nets as PyTorch code, ready to paste.

The text that comes out depends on nothing but PyTorch: activations as formulas, centring constants
and parameters as numbers with 17 significant digits, which is what a double needs to come back the
same.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from implicitnn import activations, design
from implicitnn.activations import Activation
from implicitnn.design import Match
from implicitnn.errors import UnsupportedSpecError
from implicitnn.specs import ENN

__all__ = ["torch_code"]

_PLAIN = {
    "relu": "torch.relu(t)",
    "tanh": "torch.tanh(t)",
    "swish": "torch.nn.functional.silu(t)",
    "elu": "torch.nn.functional.elu(t)",
    "erf": "torch.erf(t)",
    "gelu": "torch.nn.functional.gelu(t)",
    "linear": "t",
}


def torch_code(source: Match | ENN) -> str:
    r"""Return a PyTorch module for an explicit net, as text.

    The module computes :math:`x_l = m^{-1/2}\sigma_l(W_l x_{l-1})` with weights from N(0, 1), each
    :math:`\sigma_l` centred, and a linear readout. Its ``features(x)`` is scaled such that
    ``features(x) @ features(x).T`` converges to the conjugate kernel as the width grows.

    Parameters
    ----------
    source : Match or ENN
        A designed net, or any explicit net made of the shipped activations and those of `design`.

    Raises
    ------
    TypeError
        source is neither.
    UnsupportedSpecError
        A layer is an activation without a formula here; the message names it.

    Examples
    --------
    >>> from implicitnn.specs import DEQ
    >>> code = torch_code(design.match(DEQ(activations.tanh, 0.2), "hard_tanh"))
    >>> [line.split("(")[0] for line in code.splitlines() if line.startswith(("def", "class"))]
    ['def sigma_1', 'class ExplicitNet']
    >>> names = {}
    >>> exec(code, names)
    >>> names["ExplicitNet"](inputs=3, width=5, outputs=2).features(names["torch"].ones(4, 3)).shape
    torch.Size([4, 5])
    """
    if not isinstance(source, Match | ENN):
        raise TypeError(f"source must be a Match or an ENN, got {type(source).__name__}")
    enn = source.enn if isinstance(source, Match) else source
    places = range(1, len(enn.layers) + 1)
    functions = map(_function, places, enn.layers, enn.offsets)
    names = "".join(f"sigma_{place}, " for place in places)
    module = _MODULE.format(functions=names[: -1 if len(places) == 1 else -2], tau0=enn.tau0)
    return "\n\n".join([_HEAD.format(origin=_origin(source), tau0=enn.tau0), *functions, module])


_HEAD = """\
# {origin}
# Samples in rows, joint mean removed, scaled to mean squared norm tau0^2 with tau0 = {tau0}.
import math

import torch
"""

_MODULE = '''\
class ExplicitNet(torch.nn.Module):
    """x_l = sigma_l(W_l x_(l-1)) / sqrt(width), weights N(0, 1), no bias; linear readout."""

    sigmas = ({functions})
    tau0 = {tau0}

    def __init__(self, inputs, width, outputs, generator=None, dtype=None):
        super().__init__()
        sizes = [inputs] + [width] * len(self.sigmas)
        self.width = width
        self.weights = torch.nn.ParameterList(
            torch.randn(b, a, generator=generator, dtype=dtype) for a, b in zip(sizes, sizes[1:])
        )
        self.readout = torch.nn.Parameter(
            torch.randn(outputs, width, generator=generator, dtype=dtype)
        )

    def features(self, x):
        """Last hidden state, (n, width); features @ features.T is the conjugate kernel."""
        for sigma, weight in zip(self.sigmas, self.weights):
            x = sigma(x @ weight.T) / math.sqrt(self.width)
        return x

    def forward(self, x):
        """Linear readout of the features, (n, outputs)."""
        return self.features(x) @ self.readout.T
'''


def _origin(source: Match | ENN) -> str:
    if isinstance(source, ENN):
        return f"Explicit net {source!r}."
    if source.target == "ck":
        return f"Explicit net with the conjugate kernel of {source.deq!r}: {source.status}."
    return f"Explicit net for {source.deq!r}, target {source.target!r}: {source.status}."


def _function(place: int, layer: Activation, offset: float) -> str:
    lines, body = _formula(layer)
    # An offset at rounding level, of odd and Hermite layers, is none.
    if abs(offset) > 1e-15:
        body += f" {'-' if offset > 0 else '+'} {_number(abs(offset))}"
    head = [f"def sigma_{place}(t):", *(f"    {line}" for line in lines)]
    return "\n".join([*head, f"    return {body}", ""])


def _formula(layer: Activation) -> tuple[tuple[str, ...], str]:
    """Return lines that come first, and an expression in t, of the activation before centring."""
    if _PLAIN.get(layer.name) and layer == activations.get(layer.name):
        return (), _PLAIN[layer.name]
    found = re.fullmatch(r"(\w+)\((.*)\)", layer.name)
    if found is not None and found[1] in _FAMILIES:
        factory, write = _FAMILIES[found[1]]
        values = [float(part.split("=")[-1]) for part in found[2].split(",")]
        # A user's activation may carry any name: the formula is used only for what it describes.
        if factory(*values) == layer:
            return write(*values)
    known = ", ".join([*_PLAIN, *_FAMILIES])
    raise UnsupportedSpecError(f"no PyTorch formula for {layer.name!r}; there are {known}")


Lines = tuple[tuple[str, ...], str]


def _rays(a: float, b: float) -> Lines:
    first, second = _number(a), _number(b)
    if a >= b:
        return (), f"torch.maximum({first} * t, {second} * t)"
    return (), f"torch.minimum({first} * t, {second} * t)"


def _leaky(slope: float) -> Lines:
    return (), f"torch.where(t > 0, t, {_number(slope)} * t)"


def _clip(a: float, c: float) -> Lines:
    return (), f"{_number(a)} * torch.clamp(t, -{_number(c)}, {_number(c)})"


def _quadratic(q: float, r: float) -> Lines:
    return (), f"t * ({_number(q)} * t {_signed(r)})"


def _hermite(c1: float, c2: float, c3: float, tau: float) -> Lines:
    lines = (
        f"x = t / {_number(tau)}",
        f"even = {_number(c2)} * (x * x - 1.0) / math.sqrt(2.0)",
        f"odd = x * ({_number(c1)} {_signed(c3)} * (x * x - 3.0) / math.sqrt(6.0))",
    )
    return lines, "odd + even"


_FAMILIES: dict[str, tuple[Callable[..., Activation], Callable[..., Lines]]] = {
    "l_relu": (design.l_relu, _rays),
    "leaky_relu": (activations.leaky_relu, _leaky),
    "hard_tanh": (activations.hard_tanh, _clip),
    "quadratic": (activations.quadratic, _quadratic),
    "hermite": (design.hermite, _hermite),
}


def _number(value: float) -> str:
    """Return a number with the 17 digits that bring a double back."""
    text = f"{value:.17g}"
    return text if re.search(r"[.en]", text) else f"{text}.0"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'} {_number(abs(value))}"
