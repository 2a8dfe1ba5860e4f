"""Networks of finite width: against the simulators, the kernels, and one another.

Statistical rule of `test_features_have_the_conjugate_kernel`, as in tests/test_simulate.py: R
independent networks, z = |mean - theory| / (standard error + B/m), Bonferroni threshold of
Student's t with R - 1 degrees of freedom at a false-alarm rate of 1e-6 for each test.
"""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import stats

from implicitnn import activations, design, kernels, networks, simulate
from implicitnn.activations import Activation, elu, gelu, hard_tanh, leaky_relu, relu, swish, tanh
from implicitnn.errors import UnsupportedSpecError
from implicitnn.networks import ExplicitNet, ImplicitNet, NotConvergedError
from implicitnn.solvers import Anderson, Broyden, NotConvergedWarning, Status
from implicitnn.specs import DEQ, ENN

SHIPPED = [
    relu,
    tanh,
    swish,
    elu,
    activations.erf,
    gelu,
    activations.linear,
    leaky_relu(0.1),
    leaky_relu(1.5),
    hard_tanh(0.8, 1.2),
    activations.quadratic(0.1, 0.5),
    design.l_relu(1.1, 0.2),
    design.l_relu(0.2, 1.1),
    design.hermite(0.4, 0.2, -0.1, tau=1.3),
]
SPECS = [
    DEQ(relu, 0.2),
    DEQ(tanh, 0.4),
    DEQ(swish, 0.3, sigma_c2=0.2),
    DEQ(leaky_relu(0.1), 0.2, centred=False),
    DEQ(hard_tanh(), 0.3),
    ENN((relu,)),
    ENN((gelu, tanh)),
    design.match(DEQ(relu, 0.2), "leaky_relu").enn,
    design.match(DEQ(swish, 0.2), "cubic_hermite").enn,
]
REPLICAS, WIDTH, BIAS, FALSE_ALARMS = 40, 160, 0.3, 1e-6


def samples(n=4, p=10, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, p)) / np.sqrt(p)
    X[1] = 0.8 * X[0] + 0.3 * X[1]
    return X


def tight(spec, width=20, outputs=2, rng=3, **options):
    """A float64 network solved to near rounding."""
    make = ImplicitNet if isinstance(spec, DEQ) else ExplicitNet
    if make is ImplicitNet:
        options = {"rtol": 1e-14, "max_steps": 500} | options
    return make(spec, 10, width, outputs, rng, dtype=torch.float64, **options)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_same_seed_same_network_as_the_simulator(spec, backend):
    X = samples()
    net = tight(spec, width=50, rng=5, backend=backend)
    with torch.no_grad():
        F = net.features(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(F, simulate.features(spec, X, 50, 5), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_features_have_the_conjugate_kernel(spec):
    X, rng = samples(), np.random.default_rng(2024)
    draws = []
    for _ in range(REPLICAS):
        F = networks.features(spec, X, WIDTH, rng, block=3)
        assert F.not_converged == 0 and F.value.dtype == np.float32
        draws.append(F.value.astype(float) @ F.value.astype(float).T)
    theory, upper = kernels.ck(spec, X), np.triu_indices(len(X))
    values = np.array(draws)[:, upper[0], upper[1]]
    error = values.std(axis=0, ddof=1) / np.sqrt(REPLICAS)
    scale = np.sqrt(np.outer(np.diag(theory), np.diag(theory)))[upper]
    z = np.abs(values.mean(axis=0) - theory[upper]) / (error + BIAS * scale / WIDTH)
    assert z.max() < stats.t.isf(FALSE_ALARMS / (2 * len(error)), REPLICAS - 1)


def test_the_net_of_a_match_is_the_matched_net():
    found = design.match(DEQ(relu, 0.2), "leaky_relu")
    net = tight(found.enn, width=30)
    same = ExplicitNet(found, 10, 30, 2, 3, dtype=torch.float64)
    x = torch.from_numpy(samples())
    assert torch.equal(net(x), same(x))
    F = networks.features(found, samples(), 30, 3, dtype=torch.float64).value
    np.testing.assert_allclose(F, simulate.features(found.enn, samples(), 30, 3), rtol=1e-12)


def test_blocks_types_and_networks_give_the_same_features():
    X, spec = samples(9), DEQ(relu, 0.2)
    whole = networks.features(spec, X, 40, 1, dtype=torch.float64)
    parts = networks.features(spec, X, 40, 1, block=4, dtype=torch.float64)
    # Each block stops by itself: the two agree to the tolerance, 1e-10 relative.
    np.testing.assert_allclose(whole.value, parts.value, rtol=0, atol=1e-9)
    single = networks.features(spec, X, 40, 1)
    # float32 weights are those of float64 rounded; the map contracts, so errors stay near 1e-6.
    np.testing.assert_allclose(single.value, whole.value, rtol=0, atol=2e-6)
    net = ImplicitNet(spec, 10, 40, rng=1)
    np.testing.assert_array_equal(networks.features(net, X).value, single.value)
    assert whole.counts == {Status.CONVERGED: 9} and (whole.steps > 3).all()
    assert networks.features(ENN((relu,)), X, 40, 1).counts == {}


def test_features_need_no_more_than_blocks_beside_the_result():
    n, m, block = 4000, 256, 100
    X = np.ones((n, 5), np.float32)
    networks.features(DEQ(relu, 0.2), X[:10], m, 0)
    tracemalloc.start()
    try:
        networks.features(DEQ(relu, 0.2), X, m, 0, block=block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Blocks of state, preactivation, slope and the like, and the weights drawn in float64; torch's
    # own allocations, the result among them, are not traced.
    assert peak < 8 * block * m * 4 + 2 * 8 * m * m + 2e6 < n * m * 4


@pytest.mark.parametrize("activation", SHIPPED, ids=repr)
def test_torch_forms_are_those_of_the_activation(activation):
    from implicitnn._networks.elementwise import numpy_df, numpy_f, torch_form

    t = np.r_[np.linspace(-4, 4, 101) + 0.003, -30.0, 30.0]
    form, x = torch_form(activation), torch.from_numpy(t).requires_grad_()
    y = form.f(x)
    np.testing.assert_allclose(y.detach().numpy(), activation.f(t), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(form.df(x).detach().numpy(), activation.df(t), rtol=1e-9, atol=1e-13)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), activation.df(t), rtol=1e-9, atol=1e-13)
    out = np.empty_like(t)
    numpy_f(activation, t, out)
    np.testing.assert_allclose(out, activation.f(t), rtol=1e-14)
    numpy_df(activation, t, out)
    np.testing.assert_array_equal(out, activation.df(t))


def custom():
    return Activation(
        "tanh2", lambda t: np.tanh(t), lambda t: 1 / np.cosh(np.clip(t, -300, 300)) ** 2
    )


def test_an_activation_of_the_user_runs_through_numpy_and_only_there():
    net, known = (tight(DEQ(f, 0.3), rng=2, backend="numpy") for f in (custom(), tanh))
    x = torch.from_numpy(samples())
    results = [n(x) for n in (net, known)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    for value in results:
        value.sum().backward()
    torch.testing.assert_close(net.A.grad, known.A.grad, rtol=1e-10, atol=1e-12)
    with pytest.raises(UnsupportedSpecError, match="tanh2"):
        tight(DEQ(custom(), 0.3), backend="torch")(x)
    assert networks.spectral_radius(net, samples(), "exact").value.max() < 1


@pytest.mark.parametrize("on_failure", ["warn", "raise", "count"])
def test_samples_that_fail_are_counted_and_told(on_failure):
    spec = DEQ(leaky_relu(0.9), 0.2)
    net = ImplicitNet(spec, 10, 30, rng=0, on_failure=on_failure, max_steps=100)
    with torch.no_grad():
        net.A *= 4.0  # beyond contraction
    x = torch.from_numpy(samples().astype(np.float32))
    if on_failure == "raise":
        with pytest.raises(NotConvergedError, match="4 of 4 samples did not converge"):
            net(x)
    elif on_failure == "warn":
        with pytest.warns(NotConvergedWarning, match=r"forward solve: 4 of 4 .*diverged"):
            net(x)
    else:
        net(x)
        assert networks.features(net, samples()).not_converged == 4
    assert net.log.totals["forward_not_converged"] >= 4
    assert net.log.forward.not_converged == 4


def test_features_count_what_failed():
    net = ImplicitNet(DEQ(relu, 0.2), 10, 30, rng=0, on_failure="count", max_steps=3)
    F = networks.features(net, samples())
    assert F.not_converged == 4 == F.counts[Status.MAX_STEPS]
    bad = samples()
    bad[2, 0] = np.nan
    net = ImplicitNet(DEQ(relu, 0.2), 10, 30, rng=0, on_failure="count")
    F = networks.features(net, bad)
    assert F.counts == {Status.CONVERGED: 3, Status.NOT_FINITE: 1}


@pytest.mark.parametrize("solver", [Anderson(), Broyden()], ids=repr)
def test_every_solver_finds_the_same_equilibrium_and_gradient(solver):
    x = torch.from_numpy(samples())
    results = []
    for options in ({}, {"solver": solver, "rtol": 1e-13}):
        net = tight(DEQ(swish, 0.5), **options)
        net(x).square().sum().backward()
        results.append((net(x), net.A.grad, net.B.grad))
        assert net.log.totals["backward_not_converged"] == 0
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_warm_start_saves_iterations_and_changes_nothing_else():
    net = ImplicitNet(DEQ(relu, 0.5), 10, 200, rng=0)
    x = torch.from_numpy(samples().astype(np.float32))
    with torch.no_grad():
        z = net.features(x)
        cold = net.log.forward.iterations
        again = net.features(x, z)
    assert net.log.forward.iterations <= 2 < cold
    torch.testing.assert_close(again, z, rtol=0, atol=1e-6)


def test_spectral_radius_by_three_methods():
    net, X = tight(DEQ(relu, 0.4), width=300), samples()
    exact = networks.spectral_radius(net, X, "exact")
    arnoldi = networks.spectral_radius(net, X, "arnoldi", tol=1e-8, rng=1)
    power = networks.spectral_radius(net, X, "power", rng=1)
    np.testing.assert_allclose(arnoldi.value, exact.value, rtol=1e-6)
    assert (arnoldi.error < 1e-6).all() and (exact.error == 0).all()
    # A growth rate over 30 products still holds the first vectors' share: m^(1/60) at most.
    assert (np.abs(power.value / exact.value - 1) < 300 ** (1 / 60) - 1).all()
    slopes = np.array(
        [
            np.abs(np.linalg.eigvals(jacobian)).max()
            for jacobian in _jacobians(net, torch.from_numpy(X))
        ]
    )
    np.testing.assert_allclose(exact.value, slopes, rtol=1e-9)


def _jacobians(net, x):
    """By automatic differentiation of one step of the iteration."""
    spec, root = net.spec, net.width**-0.5
    with torch.no_grad():
        z = net.features(x)

    def step(z):
        h = np.sqrt(spec.sigma_a2) * net.A @ z + np.sqrt(spec.sigma_b2) * net.B @ x[k]
        return root * (torch.relu(h) - spec.offset)

    found = []
    for k in range(len(x)):
        found.append(torch.autograd.functional.jacobian(step, z[k]).detach().numpy())
    return found


def test_jacobian_penalty_is_the_mean_squared_norm():
    net, x = tight(DEQ(relu, 0.4), width=40), torch.from_numpy(samples())
    wanted = np.mean([(J**2).sum() for J in _jacobians(net, x)]) / 40
    z = net.features(x)
    values = [float(networks.jacobian_penalty(net, x, z, seed).detach()) for seed in range(200)]
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - wanted) < stats.t.isf(5e-7, 199) * error
    assert values[3] == float(networks.jacobian_penalty(net, x, z, 3).detach())
    many = networks.jacobian_penalty(net, x, z, 0, probes=4000)
    assert float(many.detach()) == pytest.approx(wanted, rel=0.02)


def test_descending_the_jacobian_penalty_shrinks_the_spectral_radius():
    net, X = tight(DEQ(tanh, 0.6), width=40), samples()
    x, rng = torch.from_numpy(X), np.random.default_rng(0)
    before = networks.spectral_radius(net, X, "exact").value
    optimiser = torch.optim.SGD([net.A], lr=20.0)
    for _ in range(30):
        optimiser.zero_grad()
        networks.jacobian_penalty(net, x, net.features(x), rng).backward()
        optimiser.step()
    assert (networks.spectral_radius(net, X, "exact").value < 0.8 * before).all()


def test_state_dict_and_dtype_round_trip():
    net, other = (ImplicitNet(DEQ(relu, 0.2), 10, 30, rng=k) for k in (0, 1))
    x = torch.from_numpy(samples().astype(np.float32))
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(x), other(x))
    assert set(net.state_dict()) == {"A", "B", "a"}
    assert ImplicitNet(DEQ(relu, 0.2, sigma_c2=0.1), 10, 30).c.shape == (30,)


def test_bad_arguments_are_named():
    spec, x = DEQ(relu, 0.2), torch.zeros(2, 10)
    net = ImplicitNet(spec, 10, 8)
    for call, words in (
        (lambda: ImplicitNet(ENN((relu,)), 10, 8), "spec must be a DEQ"),
        (lambda: ExplicitNet(spec, 10, 8), "source must be an ENN or a Match"),
        (lambda: ImplicitNet(spec, 10, 0), "width"),
        (lambda: ImplicitNet(spec, 10, 8, backend="cuda"), "backend"),
        (lambda: ImplicitNet(spec, 10, 8, on_failure="hide"), "on_failure"),
        (lambda: ImplicitNet(spec, 10, 8, dtype=torch.float16), "dtype"),
        (lambda: net(torch.zeros(2, 9)), "x must be"),
        (lambda: net(x.double()), "torch.float32"),
        (lambda: net(x.numpy()), "x must be a tensor"),
        (lambda: net(x, torch.zeros(1, 8)), "z0 must be"),
        (lambda: networks.features(spec, np.zeros((2, 3))), "width must be given"),
        (lambda: networks.features(net, np.zeros((2, 10)), 8), "width must be given"),
        (lambda: networks.features(spec, np.zeros(3), 8), "X must be"),
        (lambda: networks.features("deq", np.zeros((2, 3)), 8), "spec must be"),
        (lambda: networks.spectral_radius(net, np.zeros((1, 10)), "qr"), "method"),
        (lambda: networks.spectral_radius(ExplicitNet(ENN((relu,)), 10, 8), x), "net must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
