"""Networks and training on inputs of odd kinds and scales, and where defaults of torch differ."""

import warnings

import numpy as np
import pytest
import torch

from implicitnn import networks, simulate
from implicitnn._networks import backend
from implicitnn.activations import relu, tanh
from implicitnn.networks import ExplicitNet, ImplicitNet
from implicitnn.readout import Recipe
from implicitnn.solvers import Picard, Status
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _classify, all_weights

X = np.random.default_rng(0).standard_normal((6, 5))
Y = np.array([0, 1] * 3)


def wide(form):
    return {
        "long double": X.astype(np.longdouble),
        "other byte order": X.astype(">f8"),
        "reversed": X[::-1][::-1],
        "fortran": np.asfortranarray(X),
        "list": X.tolist(),
    }[form]


@pytest.mark.parametrize("form", ["long double", "other byte order", "reversed", "fortran", "list"])
def test_features_of_any_layout_are_those_of_the_numbers(form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = networks.features(DEQ(relu, 0.2), wide(form), 20, 0).value
    np.testing.assert_array_equal(found, networks.features(DEQ(relu, 0.2), X, 20, 0).value)


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e18, 1e30])
def test_equilibria_are_found_at_any_scale_that_the_dtype_holds(scale):
    """In float32 the squares of these vanish or overflow; without bias relu is homogeneous."""
    spec = DEQ(relu, 0.2, centred=False)
    exact = simulate.features(spec, X, 40, 0)
    found = networks.features(spec, X * scale, 40, 0)
    assert found.counts == {Status.CONVERGED: 6}
    np.testing.assert_allclose(found.value / scale, exact, atol=1e-5)


def test_the_default_tolerance_follows_the_dtype():
    x = torch.from_numpy(X)
    net = ImplicitNet(DEQ(tanh, 0.5), 5, 20, rng=0).double()
    with torch.no_grad():
        net(x)
    assert net.log.forward.error.max() < 1 and net.log.forward.residual.max() < 1e-9
    back = ImplicitNet(DEQ(tanh, 0.5), 5, 20, rng=0, dtype=torch.float64).float()
    with torch.no_grad():
        back(x.float())
    assert back.log.forward.status is Status.CONVERGED
    with pytest.raises(ValueError, match="dtype must be"):
        net.half()(x.half())


@pytest.mark.parametrize(
    "options",
    [{"solver": "anderson"}, {"solver": Picard}, {"rtol": -1.0}, {"rtol": float("nan")},
     {"atol": -1.0}, {"max_steps": 0}, {"max_steps": 2.5}],
    ids=str,
)  # fmt: skip
def test_options_of_the_solves_are_checked_when_the_network_is_made(options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        ImplicitNet(DEQ(relu, 0.2), 5, 8, **options)


def test_starts_of_another_kind_are_refused():
    net, x = ImplicitNet(DEQ(relu, 0.2), 5, 8), torch.from_numpy(X).float()
    for z0 in (np.zeros((6, 8), np.float32), torch.zeros(6, 8).double(), torch.zeros(6, 8).int()):
        with pytest.raises((TypeError, ValueError), match="z0 must be"):
            net(x, z0)
    for z in (torch.zeros(1, 8), torch.zeros(6, 8).double()):
        with pytest.raises(ValueError, match="z must be"):
            networks.jacobian_penalty(net, x, z, 0)
    with pytest.raises(TypeError, match="x must be a tensor"):
        networks.jacobian_penalty(net, X, torch.zeros(6, 8), 0)


@pytest.mark.parametrize("method", ["arnoldi", "power", "exact"])
def test_spectral_radius_of_zero_and_of_lost_jacobians(method):
    net = ImplicitNet(DEQ(relu, 0.2, centred=False), 5, 20, rng=0, on_failure="count")
    mixed = X.copy()
    mixed[1], mixed[2, 0] = 0.0, np.nan
    found = networks.spectral_radius(net, mixed, method)
    assert found.value[1] == 0.0 == found.error[1]
    assert np.isnan(found.value[2]) and np.isinf(found.error[2])
    alone = networks.spectral_radius(net, X[:1], method).value[0]
    assert found.value[0] == pytest.approx(alone, rel=0.1)
    assert (found.value[[0, 3, 4, 5]] > 0.1).all()


def test_samples_that_are_no_real_numbers_are_refused():
    net = ImplicitNet(DEQ(relu, 0.2), 5, 8)
    for bad in (X + 1j, X > 0, np.ma.masked_greater(X, 0.0), X.astype(object)):
        for call in (
            lambda bad=bad: networks.features(net, bad),
            lambda bad=bad: networks.spectral_radius(net, bad),
        ):
            with pytest.raises((TypeError, ValueError), match="must"):
                call()


def test_defaults_of_torch_do_not_matter():
    """Not its default dtype, not its default device."""
    wanted = networks.features(DEQ(relu, 0.2), X, 20, 0).value
    try:
        for change in (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_device("meta"),
        ):
            change()
            backend.faster.cache_clear()
            np.testing.assert_allclose(
                networks.features(DEQ(relu, 0.2), X, 20, 0).value, wanted, atol=1e-6
            )
            net = ImplicitNet(DEQ(relu, 0.2), 5, 8, 2)
            assert networks.train(net, X, Y, 0, Recipe(0.1, 1, 2)).finite
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device("cpu")
        backend.faster.cache_clear()


def test_training_counts_its_own_solves_only():
    def history(**extra):
        net = ImplicitNet(DEQ(relu, 0.2), 5, 8, 2, rng=0, on_failure="count")
        calls = {name: make(net) for name, make in extra.items()}
        return networks.train(net, X, Y, 0, Recipe(1e-9, 3, 2), **calls)

    rng = np.random.default_rng(0)
    plain = history()
    more = history(
        penalty=lambda net: (
            lambda x: 1e-12 * networks.jacobian_penalty(net, x, net.features(x), rng)
        ),
        after_epoch=lambda net: lambda epoch: networks.features(net, np.full((6, 5), np.nan)),
    )
    assert more.iterations == pytest.approx(plain.iterations)
    assert more.not_converged == 0


def test_training_leaves_the_callers_arrays_alone_and_takes_read_only_ones():
    frozen, labels = X.copy(), Y.copy()
    frozen.setflags(write=False)
    labels.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for net in (
            ImplicitNet(DEQ(relu, 0.2), 5, 8, 2, dtype=torch.float64),
            ExplicitNet(ENN((relu,)), 5, 8, 2, dtype=torch.float64),
        ):
            networks.train(net, frozen, labels, 0, Recipe(0.1, 2, 2))
    np.testing.assert_array_equal(frozen, X)


def test_training_refuses_what_it_cannot_use():
    net = ImplicitNet(DEQ(relu, 0.2), 5, 8, 2)
    for bad, words in (
        ({"X": X + 1j}, "X must be real"),
        ({"X": np.full_like(X, np.nan)}, "X must be finite"),
        ({"recipe": {"lr": 1.0}}, "recipe must be a Recipe"),
        ({"net": torch.nn.Linear(5, 2)}, "net must be an ImplicitNet"),
        ({"net": ImplicitNet(DEQ(relu, 0.2), 5, 8, 2).requires_grad_(False)}, "no weights"),
    ):
        given = {"net": net, "X": X, "y": Y, "rng": 0, "recipe": Recipe(0.1, 1, 2)} | bad
        with pytest.raises((TypeError, ValueError), match=words):
            networks.train(**given)


def test_weights_lost_in_the_last_step_are_not_called_finite():
    net = ExplicitNet(ENN((tanh,)), 5, 8, 2, rng=0)
    history = networks.train(
        net, X, Y, 0, Recipe(1.0, 1, 6), penalty=lambda x: net.a.sum() * float("inf")
    )
    assert np.isfinite(history.losses).all() and not history.finite


@pytest.mark.parametrize("model", ["relu", "relu_deq"])
def test_a_row_of_training_that_diverges_is_stored(model):
    """A row holds no NaN: what rests on lost weights is None, and one cell stops no sweep."""
    from implicitnn._runs.rows import plain_values

    cell = {"data": "mnist", "source": "embedded", "model": model, "width": 32, "lr": 1e3}
    cell |= {"n": 200, "n_test": 100, "epochs": 2}
    found = plain_values(all_weights.row(cell, 0), cell)
    assert found["finite"] is False and found["exact"] > 10
    names = ("all", "all_train", "kernel_drift", "weight_drift", "gain", "gain_over_exact")
    assert all(found[name] is None for name in names)


def test_images_kept_between_cells_cannot_be_changed():
    images = _classify.task("mnist", "embedded", 50, 20)
    for array in (images.X, images.y, images.X_test, images.y_test):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
