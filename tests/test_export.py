"""Generated PyTorch code: the same functions as the library's, and kernels within their spread."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from implicitnn import activations, design, export, kernels
from implicitnn.activations import Activation
from implicitnn.errors import UnsupportedSpecError
from implicitnn.specs import DEQ, ENN

MATCHES = {
    "relu": design.match(DEQ(activations.relu, 0.2), "leaky_relu"),
    "tanh": design.match(DEQ(activations.tanh, 0.2, tau0=1.3), "hard_tanh"),
    "swish": design.match(DEQ(activations.swish, 0.5), "cubic_hermite"),
    "elu": design.match(DEQ(activations.elu, 0.9, tau0=0.7), "auto"),
}
LAYERS = [
    activations.relu, activations.tanh, activations.swish, activations.elu, activations.erf,
    activations.gelu, activations.linear, activations.leaky_relu(0.01),
    activations.leaky_relu(-1.0), activations.hard_tanh(-0.7, 1.1),
    activations.quadratic(0.3, -1.2), design.l_relu(1.2, -0.3), design.l_relu(-0.4, 0.9),
    design.hermite(0.8, -0.2, -0.1, tau=1.7), design.hermite(1.0),
]  # fmt: skip


def namespace(source):
    names = {}
    exec(export.torch_code(source), names)
    return names


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_every_formula_is_that_of_the_library(layer):
    enn = ENN((layer,), 1.3)
    t = np.linspace(-4.0, 4.0, 161)
    found = namespace(enn)["sigma_1"](torch.from_numpy(t)).numpy()
    np.testing.assert_allclose(found, enn.phis[0](t), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", MATCHES)
def test_matched_layers_come_out_centred_and_whole(name):
    enn = MATCHES[name].enn
    names = namespace(MATCHES[name])
    assert len(names["ExplicitNet"].sigmas) == len(enn.layers)
    assert names["ExplicitNet"].tau0 == enn.tau0
    t = np.linspace(-3.0, 3.0, 101)
    for place, phi in enumerate(enn.phis, start=1):
        found = names[f"sigma_{place}"](torch.from_numpy(t)).numpy()
        np.testing.assert_allclose(found, phi(t), rtol=1e-13, atol=1e-13)


def test_features_are_the_recursion():
    enn = ENN((design.l_relu(1.2, -0.3), design.hermite(0.5, 0.2, 0.1, tau=0.9)), 1.1)
    net = namespace(enn)["ExplicitNet"](7, 11, 2, torch.Generator().manual_seed(3), torch.float64)
    X = np.random.default_rng(0).standard_normal((5, 7))
    x = X
    for weight, phi in zip(net.weights, enn.phis, strict=True):
        assert weight.requires_grad
        x = phi(x @ weight.detach().numpy().T) / math.sqrt(11)
    found = net.features(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found, x, rtol=1e-12)
    outputs = net(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(outputs, x @ net.readout.detach().numpy().T, rtol=1e-12)


def t_values(enn, build, draws=12, width=1500):
    """Standardised deviations of the mean kernel of random nets from the exact one, (n, n)."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((6, 50)) / math.sqrt(50) + 0.3 * np.eye(6, 50)
    exact = kernels.ck(enn, X)
    x = torch.from_numpy(X)
    found = []
    for seed in range(draws):
        net = build(50, width, 1, torch.Generator().manual_seed(seed), torch.float64)
        with torch.no_grad():
            F = net.features(x).numpy()
        found.append(F @ F.T)
    spread = np.std(found, axis=0, ddof=1) / math.sqrt(draws)
    return np.abs(np.mean(found, axis=0) - exact) / spread


@pytest.mark.parametrize("name", MATCHES)
def test_random_nets_have_the_exact_kernel(name):
    enn = MATCHES[name].enn
    found = t_values(enn, namespace(enn)["ExplicitNet"])
    # Level 1e-4 over the 21 different entries together.
    assert found.max() < stats.t.isf(1e-4 / 42, 11)


def test_the_rule_sees_a_missing_centring_constant():
    code = export.torch_code(MATCHES["relu"])
    names = {}
    exec(code.replace(f" - {MATCHES['relu'].enn.offsets[1]:.17g}", ""), names)
    found = t_values(MATCHES["relu"].enn, names["ExplicitNet"])
    assert found.max() > stats.t.isf(1e-4 / 42, 11)


def test_numbers_come_back_the_same():
    third = design.l_relu(1.0 / 3.0, 1e-20)
    code = export.torch_code(ENN((third,)))
    assert "0.33333333333333331 * t" in code and "9.9999999999999995e-21 * t" in code


def test_code_is_the_same_each_time_and_needs_only_torch():
    code = export.torch_code(MATCHES["swish"])
    assert code == export.torch_code(MATCHES["swish"])
    imports = [line for line in code.splitlines() if "import" in line]
    assert imports == ["import math", "import torch"]
    assert max(map(len, code.splitlines())) <= 120


def test_head_says_what_the_net_is():
    m = design.match(DEQ(activations.relu, 0.2), "quadratic")
    assert "conjugate kernel of DEQ(relu, sigma_a2=0.2, tau0=1.0): impossible" in (
        export.torch_code(m)
    )
    tangent = design.match(DEQ(activations.relu, 0.2), "cubic_hermite", "ntk")
    assert "target 'ntk': exact" in export.torch_code(tangent)


def test_unknown_layers_are_refused_even_under_a_known_name():
    fake = Activation("relu", lambda t: np.sin(t), lambda t: np.cos(t))
    for layer in (fake, Activation("l_relu(1.0, 0.5)", lambda t: np.sin(t), lambda t: np.cos(t))):
        with pytest.raises(UnsupportedSpecError, match="no PyTorch formula"):
            export.torch_code(ENN((layer,)))
    with pytest.raises(TypeError, match="must be a Match or an ENN, got DEQ"):
        export.torch_code(DEQ(activations.relu, 0.2))
