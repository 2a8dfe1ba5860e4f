"""Implicit gradients: against finite differences, against unrolled autograd, and their memory."""

import weakref

import numpy as np
import pytest
import torch

from implicitnn import design
from implicitnn._networks.elementwise import torch_form
from implicitnn.activations import elu, gelu, hard_tanh, leaky_relu, relu, swish, tanh
from implicitnn.networks import ExplicitNet, ImplicitNet
from implicitnn.specs import DEQ, ENN

SPECS = [
    DEQ(relu, 0.4),
    DEQ(tanh, 0.5),
    DEQ(swish, 0.3, sigma_c2=0.2),
    DEQ(elu, 0.2, centred=False),
    DEQ(leaky_relu(0.1), 0.3),
    ENN((relu,)),
    ENN((gelu, tanh)),
    ENN((hard_tanh(), leaky_relu(0.2), swish)),
    design.match(DEQ(relu, 0.2), "leaky_relu").enn,
    design.match(DEQ(swish, 0.2), "cubic_hermite").enn,
]


def network(spec, backend="numpy", width=14, **options):
    if isinstance(spec, DEQ):
        options = {"rtol": 1e-14, "max_steps": 1000} | options
        make = ImplicitNet
    else:
        make = ExplicitNet
    return make(spec, 6, width, 3, 1, dtype=torch.float64, backend=backend, **options)


def data(n=5, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, 6)) / np.sqrt(6))
    return x, torch.from_numpy(rng.standard_normal((n, 3)))


def loss(net, x, y):
    return ((net(x) - y) ** 2).sum()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_gradients_are_finite_differences(spec, backend):
    """Central differences of order four along random directions, and for x.

    With step h the error is h^4 f''''' / 30 + eps f / h, about 1e-10 at h = 1e-3 relative to the
    gradient here; a kink crossed within h spoils it, and does not occur with these seeds.
    """
    net, (x, y) = network(spec, backend), data()
    x.requires_grad_()
    loss(net, x, y).backward()
    rng = np.random.default_rng(3)
    h = 2e-4
    for tensor in [x, *net.parameters()]:
        direction = torch.from_numpy(rng.standard_normal(tuple(tensor.shape)))
        direction /= direction.norm()
        exact = float((tensor.grad * direction).sum())
        values = {}
        with torch.no_grad():
            for k in (-2, -1, 1, 2):
                tensor += k * h * direction
                values[k] = float(loss(net, x, y))
                tensor -= k * h * direction
        found = (8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * h)
        assert found == pytest.approx(exact, rel=1e-7, abs=1e-7 * float(tensor.grad.norm()))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("spec", [s for s in SPECS if isinstance(s, DEQ)], ids=repr)
def test_gradients_are_those_of_the_unrolled_iteration(spec, backend):
    net, (x, y) = network(spec, backend), data()
    x.requires_grad_()
    inputs = [x, *net.parameters()]
    implicit = torch.autograd.grad(loss(net, x, y), inputs)
    f, scale = torch_form(spec.activation).f, net.width**-0.5
    drive = np.sqrt(spec.sigma_b2) * x @ net.B.T
    if net.c is not None:
        drive = drive + np.sqrt(spec.sigma_c2) * net.c
    z = torch.zeros(5, net.width, dtype=torch.float64)
    for _ in range(400):
        z = scale * (f(np.sqrt(spec.sigma_a2) * z @ net.A.T + drive) - spec.offset)
    unrolled = torch.autograd.grad(((z @ net.a.T - y) ** 2).sum(), inputs)
    for ours, theirs in zip(implicit, unrolled, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def saved_bytes(spec, max_steps, rtol):
    """Bytes kept for the backward pass, parameters aside, and the number of iterations."""
    net, (x, y) = network(spec, width=40, rtol=rtol, max_steps=max_steps), data()
    own = {p.data_ptr() for p in net.parameters()} | {x.data_ptr()}
    sizes = []

    def keep(tensor):
        if tensor.data_ptr() not in own:
            sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss(net, x, y)
    return sum(sizes), net.log.forward.iterations


def test_memory_does_not_depend_on_the_number_of_iterations():
    few, steps = saved_bytes(DEQ(tanh, 0.7), 1000, 1e-3)
    many, more_steps = saved_bytes(DEQ(tanh, 0.7), 1000, 1e-14)
    assert more_steps > 5 * steps and many == few
    # z*, the slopes, z* again for the readout, and the (5, 3) residuals.
    assert few <= (3 * 5 * 40 + 2 * 15) * 8


def test_buffers_of_the_solve_are_freed():
    net, (x, y) = network(DEQ(tanh, 0.5)), data()
    z = net.features(x)
    watched = weakref.ref(z)
    (z @ net.a.T - y).square().sum().backward()
    assert net.A.grad is not None and not hasattr(net.log.forward, "value")
    del z
    assert watched() is None


def test_second_derivatives_are_refused_in_words():
    for spec in (DEQ(tanh, 0.5), ENN((tanh,))):
        net, (x, y) = network(spec), data()
        with pytest.raises(NotImplementedError, match="second derivatives"):
            torch.autograd.grad(loss(net, x, y), list(net.parameters()), create_graph=True)


def test_only_what_is_asked_for_is_differentiated():
    net, (x, y) = network(DEQ(tanh, 0.5)), data()
    net.A.requires_grad_(False)
    loss(net, x, y).backward()
    assert net.A.grad is None and net.B.grad is not None
    frozen = network(DEQ(tanh, 0.5)).requires_grad_(False)
    x.requires_grad_()
    loss(frozen, x, y).backward()
    assert x.grad.abs().sum() > 0 and frozen.A.grad is None
    with torch.no_grad():
        assert not frozen(x).requires_grad


def test_gradients_add_up_over_calls_and_a_wrong_one_is_noticed():
    net, (x, y) = network(DEQ(relu, 0.4)), data()
    loss(net, x, y).backward()
    once = net.A.grad.clone()
    loss(net, x, y).backward()
    torch.testing.assert_close(net.A.grad, 2 * once)
    # The truncated gradient, one step instead of the adjoint solve, differs visibly.
    short = network(DEQ(relu, 0.4), on_failure="count", max_steps=1)
    short.load_state_dict(net.state_dict())
    loss(short, x, y).backward()
    assert (short.A.grad - once).norm() > 0.01 * once.norm()
