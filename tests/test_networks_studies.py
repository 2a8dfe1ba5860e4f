"""The studies of finite width, accuracy, cost, training and biases, on small cells."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from implicitnn import (
    claims,
    datasets,
    equivalents,
    kernels,
    mixtures,
    networks,
    readout,
    statistics,
    sweeps,
)
from implicitnn._runs import rows as _rows
from implicitnn.activations import elu, relu, swish, tanh
from implicitnn.readout import Recipe
from implicitnn.specs import DEQ
from implicitnn.studies import (
    _classify,
    _second_order,
    accuracy,
    all_weights,
    authors_settings,
    bias,
    cost,
    finite_width,
)

SPECS = [
    DEQ(tanh, 0.2, 0.6, sigma_c2=0.2),
    DEQ(relu, 0.2, 0.8, centred=False),
    DEQ(swish, 0.3, 0.5, 1.2, sigma_c2=0.3, centred=False),
    DEQ(elu, 0.2, 0.6, 0.9, sigma_c2=0.1),
]


def entry(spec, q1, q2, s):
    """CK and NTK of two samples with these squared norms and this product."""
    root = np.sqrt(q1)
    X = np.array([[root, 0.0], [s / root, np.sqrt(q2 - (s / root) ** 2)]])
    found = kernels.ck_and_ntk(spec, X, tol=1e-13)
    return np.array([found.ck[0, 1], found.ntk[0, 1]])


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_expansion_has_the_derivatives_of_the_exact_kernel(spec):
    """Central differences: truncation h^2, about 1e-5 here, rounding 1e-13/h^2, about 1e-9."""
    t, h = spec.tau0**2, 0.01 * spec.tau0**2

    def f(q1, q2, s):
        return entry(spec, t + q1 * h, t + q2 * h, s * h)

    centre = f(0, 0, 0)
    numbers = {
        "value": centre,
        "s": (f(0, 0, 1) - f(0, 0, -1)) / (2 * h),
        "d": (f(1, 0, 0) - f(-1, 0, 0)) / (2 * h),
        "ss": (f(0, 0, 1) - 2 * centre + f(0, 0, -1)) / h**2,
        "dd": (f(1, 0, 0) - 2 * centre + f(-1, 0, 0)) / h**2,
        "de": (f(1, 1, 0) - f(1, -1, 0) - f(-1, 1, 0) + f(-1, -1, 0)) / (4 * h**2),
    }
    for name, both in numbers.items():
        for taylor, value in zip(_second_order.expansions(spec), both, strict=True):
            assert getattr(taylor, name) == pytest.approx(value, rel=1e-3, abs=1e-4), name
    diagonal = kernels.ck_and_ntk(spec, np.array([[spec.tau0]]))
    found = [taylor.diagonal for taylor in _second_order.expansions(spec)]
    np.testing.assert_allclose(found, [diagonal.ck[0, 0], diagonal.ntk[0, 0]], rtol=1e-9)


@pytest.mark.parametrize("activation", [relu, tanh, elu], ids=repr)
def test_without_bias_the_expansion_has_the_theorems_coefficients(activation):
    spec = DEQ(activation, 0.3, tau0=1.1)
    c = equivalents.coefficients(spec)
    ck, ntk = _second_order.expansions(spec)
    pairs = [
        (ck.value, 0.0), (ck.s, c.alpha1), (ck.de, c.alpha2), (ck.ss, 2 * c.alpha3), (ck.d, 0.0),
        (ntk.s, c.beta1), (ntk.de, c.beta2), (ntk.ss, 2 * c.beta3), (ntk.diagonal, c.kappa2),
    ]  # fmt: skip
    for found, wanted in pairs:
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_bias_breaks_the_plain_formula_and_not_the_extension():
    for case in bias.CASES:
        cell = bias.row({"case": case, "data": "near mixture", "n": 128}, 3)
        assert cell["ck_relative"] < 0.05 < 0.5 < cell["plain_relative"]
        assert cell["ntk_relative"] < 0.05


def test_second_order_of_a_sample_is_symmetric_and_has_the_right_diagonal():
    sample = mixtures.benchmark(60, mean=1.0).sample(48, 0)
    spec = SPECS[0].at(sample.statistics.tau0)
    taylor = _second_order.expansions(spec)[0]
    M = _second_order.matrix(taylor, sample)
    np.testing.assert_allclose(M, M.T, atol=1e-14)
    assert M.diagonal().mean() == pytest.approx(spec.gamma2, rel=0.05)


def test_distances_obey_the_triangle_inequality():
    for net in finite_width.NETS:
        cell = finite_width.row({"net": net, "n": 64, "width": 128, "networks": 2}, 1)
        assert abs(cell["to_deq"] - cell["floor"]) <= cell["to_limit"] * (1 + 1e-4)
        assert cell["not_converged"] == 0
        if net.endswith("deq"):
            assert cell["floor"] == 0.0 and cell["excess"] is None
            assert cell["to_deq"] == pytest.approx(cell["to_limit"], rel=1e-4)
        else:
            assert cell["excess"] == pytest.approx(cell["to_deq"] / cell["floor"])


def test_mean_of_networks_lies_nearer_and_is_reproducible():
    one, many = (
        finite_width.row({"net": "h_tanh", "n": 64, "width": 64, "networks": k}, 0) for k in (1, 64)
    )
    # The order of the noise is 1/8 of that of one network.
    assert many["to_limit"] < 0.5 * one["to_limit"]
    again = finite_width.row({"net": "h_tanh", "n": 64, "width": 64, "networks": 64}, 0)
    assert again == many


def test_images_are_prepared_by_training_statistics_only():
    small, large = (_classify.task("mnist", "embedded", 200, k) for k in (50, 100))
    np.testing.assert_array_equal(small.X, large.X)
    raw = [datasets.load("mnist", split, n=k) for split, k in (("train", 200), ("test", 100))]
    train, test = (data.X.astype(float) for data in raw)
    mean = train.mean(axis=0)
    scale = np.sqrt(((train - mean) ** 2).sum(axis=1).mean())
    np.testing.assert_allclose(large.X_test, (test - mean) / scale, atol=1e-12)
    assert abs(small.X.mean(axis=0)).max() < 1e-12 and small.tau0 == pytest.approx(1.0)
    assert np.bincount(small.y).tolist() == [20] * 10


def test_matched_nets_have_the_kernel_of_their_partner():
    X = _classify.task("mnist", "embedded", 100, 50).X
    for net, partner in (("l_relu", "relu_deq"), ("h_tanh", "tanh_deq")):
        G, S = (kernels.ck(_classify.network(name, 1.0), X) for name in (partner, net))
        assert np.linalg.norm(G - S, 2) < 0.05 * np.linalg.norm(G, 2)


CELL = {"data": "mnist", "source": "embedded", "width": 32, "lr": 1.0}


@pytest.mark.parametrize("model", ["tanh_deq", "relu"])
def test_accuracy_reports_three_readouts(model):
    settings = CELL | {"model": model, "n": 300, "n_test": 200, "epochs": 3}
    found = accuracy.row(settings, 0)
    assert {"sgd", "softmax", "ridge"} <= set(found) and found["not_converged"] == 0
    assert found["softmax"] > 25 and found["ridge"] > 25  # chance is 10
    assert found["softmax_gap"] <= accuracy.GAP and found["ridge_gap"] <= accuracy.GAP
    assert accuracy.row(settings, 0) == found
    assert accuracy.row(settings, 1) != found


def test_training_all_weights_reports_drift():
    settings = CELL | {"n": 300, "n_test": 500, "epochs": 3}
    found = all_weights.row(settings | {"model": "relu_deq"}, 0)
    assert found["finite"] and found["not_converged"] == 0
    assert 0 < found["weight_drift"] < 1 and found["kernel_drift"] > 0.01
    assert found["gain"] == pytest.approx(found["all"] - found["readout"])
    assert found["iterations_first"] > 3
    assert "iterations_first" not in all_weights.row(settings | {"model": "tanh"}, 0)


@pytest.mark.parametrize("model", ["h_tanh", "l_relu", "tanh_deq"])
def test_the_drift_of_weights_is_that_of_hidden_weights(model, monkeypatch):
    """Also where a network lists its readout first."""

    def only(part):
        def train(net, *rest):
            with torch.no_grad():
                for name, weight in net.named_parameters():
                    weight += float((name == "a") == (part == "readout"))
            return SimpleNamespace(finite=True, not_converged=0, iterations=[])

        return train

    images = _classify.task("mnist", "embedded", 40, 40)
    drift = {}
    for part in ("readout", "hidden"):
        spec = _classify.network(model, 1.0)
        net = networks.build(spec, images.X.shape[1], 16, 10, np.random.default_rng(0))
        monkeypatch.setattr(networks, "train", only(part))
        drift[part] = all_weights._trained(net, images, [0], all_weights.Recipe(1.0, 1))[
            "weight_drift"
        ]
    assert drift["readout"] == 0.0
    assert 0.5 < drift["hidden"] < 1.5  # every weight of N(0, 1) moved by one


def test_cost_counts_what_the_backward_pass_keeps():
    settings = {"width": 64, "batch": 16, "sigma_a2": 0.5, "solver": "picard"}
    loose, tight = (cost.row(settings | {"rtol": tol}, 0) for tol in (1e-2, 1e-6))
    assert tight["iterations"] > 2 * loose["iterations"]
    assert tight["saved_deq"] == loose["saved_deq"] <= tight["saved_two_layers"]
    assert tight["saved_unrolled"] > 2 * loose["saved_unrolled"]
    assert loose["weights_deq"] == loose["weights_two_layers"] > loose["weights_one_layer"]
    assert all(loose[name] > 0 for name in (*cost.TIMES, "one_by_one"))
    # A training step holds the gradients of all weights at its end; a pass without gradients less.
    for name in ("deq", "two_layers", "one_layer"):
        gradients = 4 * loose[f"weights_{name}"]
        assert gradients < loose[f"peak_train_{name}"] < 2 * gradients
        assert 4 * 16 * 64 <= loose[f"peak_infer_{name}"] < loose[f"peak_train_{name}"]
    assert tight["peak_train_deq"] == loose["peak_train_deq"]


def test_rows_do_not_depend_on_the_number_of_workers():
    cell = {"data": "mnist", "source": "embedded", "width": 32, "n": 300, "n_test": 200}
    cells = [cell | {"epochs": 2, "lr": 1.0, "model": model} for model in ("relu_deq", "h_tanh")]
    sizes = [{"net": net, "n": 32, "width": 64, "networks": 2} for net in ("l_relu", "tanh_deq")]
    for study, grid in ((accuracy.STUDY, cells), (finite_width.STUDY, sizes)):
        one, two = (
            sweeps.run(study.row, grid, [0, 1], path=None, workers=workers, progress=False)
            for workers in (1, 2)
        )
        for a, b in zip(one, two, strict=True):
            assert (a.settings, a.seed) == (b.settings, b.seed)
            limits = sweeps.Tolerance(study.rtol, study.atol, study.unchecked)
            assert _rows.differences(replace(a, tolerance=limits), b.values) == []


def test_peak_counts_what_is_alive_at_once():
    import torch

    from implicitnn.studies._memory import peak_bytes

    x = torch.ones(1000)

    def chain():
        a = x + 1
        b = 2 * a
        del a
        c = b[:500] + 1
        del b
        return c

    assert peak_bytes(chain, [x]) == 8000
    assert peak_bytes(lambda: [x + k for k in range(5)], [x]) == 20_000
    assert peak_bytes(lambda: x.add_(1), [x]) == 0
    w = torch.ones(1000, requires_grad=True)
    # The square's gradient is a product and its factor 2w.
    assert 8000 <= peak_bytes(lambda: (w**2).sum().backward(), [w]) <= 16_004


def test_benchmark_counts_products_and_compares_with_the_floor(capsys):
    from benchmarks import networks as bench

    rows = {row["contender"]: row for row in bench.measure(16, 4, 0.2, 1e-3, 1, ())}
    floors = [rows[name] for name in bench.PRODUCTS]
    assert min(row["ratio"] for row in floors) == 1.0 == floors[0]["products"]
    forward, both = (rows[f"Picard {way}"]["products"] for way in ("forward", "both"))
    assert 3 < forward < both <= 2 * forward + 3
    assert set(rows) >= {"Anderson both", "Broyden forward", "unrolled torch both"}
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


def test_the_plain_net_drawn_again_is_the_same_class_with_other_weights():
    images = _classify.task("mnist", "embedded", 100, 50)
    assert _classify.network(_classify.AGAIN, 1.0) == _classify.network("relu", 1.0)
    one, again = (_classify.drawn(name, images, 64, 0) for name in ("relu", _classify.AGAIN))
    size = (one.train**2).sum()
    # Independent networks: means of the squares agree to 1/sqrt(64), products do not.
    assert (again.train**2).sum() == pytest.approx(size, rel=0.5)
    assert abs((one.train * again.train).sum()) < 0.5 * size


def test_features_are_near_the_equilibrium_as_the_tolerance_says():
    """The last change is below RTOL of the norm, and the map contracts by less than a half."""
    images = _classify.task("mnist", "embedded", 60, 20)
    for model in ("relu_deq", "tanh_deq"):
        rng = np.random.default_rng([0, 128, _classify.MODELS.index(model)])
        exact = networks.build(_classify.network(model, 1.0), 784, 128, 1, rng, rtol=1e-6)
        true = networks.features(exact, images.X).value
        found = _classify.drawn(model, images, 128, 0).train
        error = np.linalg.norm(found - true, axis=1) / np.linalg.norm(true, axis=1)
        assert 0 < error.max() < _classify.RTOL


def test_features_of_cifar10_are_prepared_as_images_are():
    images = _classify.task(_classify.FEATURES, "embedded", 100, 50)
    assert images.X.shape == (100, 256) and images.tau0 == pytest.approx(1.0)
    assert abs(images.X.mean(axis=0)).max() < 1e-12
    assert np.bincount(images.y).tolist() == [10] * 10
    for cell in accuracy.STUDY.grids["paper"]:
        features = cell["data"] == _classify.FEATURES
        assert (cell["n"], cell["lr"]) == ((24_000, 0.1) if features else (50_000, 1.0))


def test_rules_of_accuracy_are_the_tests_that_the_page_names():
    """On invented rows: two one-sided tests for "follows", a paired 95 % interval for "below"."""
    (claim,) = (item for item in claims.load() if item.id == "A9")
    counted = [part for part in claim.parts if not part.informative]
    assert counted
    for part in counted:
        first, second = part.statistic["first"], part.statistic["second"]
        follows = "interval_within" in part.rule
        for gap in (0.0, 0.3, 0.45, 0.9, -0.2):
            rows, seen = _invented(part, gap), []
            for data in sorted(part.require["data"]):
                a, b = (
                    np.array([r.values[part.statistic["y"]] for r in rows
                              if (r.settings["data"], r.settings["model"]) == (data, name)])
                    for name in (first, second)
                )  # fmt: skip
                seeds = np.arange(len(a))
                if follows:
                    margin = 1.0 if data == _classify.FEATURES else 0.5
                    seen.append(statistics.tost(a, b, seeds, margin).equivalent)
                else:
                    # One-sided at 2.5 % is what a two-sided 95 % interval above zero means.
                    p = stats.ttest_rel(a, b, alternative="greater").pvalue
                    seen.append(p < 0.025)
            lines = claims.judge(
                replace(claim, parts=(part,)),
                {part.study: claims.Evidence(rows, "", [(r.settings, r.seed) for r in rows])},
            ).lines
            assert [line.passed for line in lines] == seen, (part.name, gap)


def _invented(part, gap):
    """Rows of one part: the first network better than the second by a gap and some noise."""
    rng, rows = np.random.default_rng(3), []
    width = part.where.get("width", 4096)
    for data in part.require["data"]:
        for seed in range(part.seeds):
            base = 90 + rng.standard_normal()
            for name in (part.statistic["first"], part.statistic["second"]):
                value = base + 0.1 * rng.standard_normal()
                value += gap * (name == part.statistic["first"])
                settings = {"data": data, "model": name, "width": width}
                rows.append(
                    sweeps.Row(f"{data} {name} {seed}", "", settings, seed,
                               {part.statistic["y"]: value}, 0.0, "", {}, sweeps.Tolerance(),
                               {}, {}, "")
                )  # fmt: skip
    return rows


def test_each_variant_changes_what_it_says():
    consistent, moved = (
        authors_settings.network(v, "relu_deq", 1.0)[0] for v in ("consistent", "variances")
    )
    shift = moved.activation(np.array([-1.0]))[0]
    assert shift == pytest.approx(-DEQ(relu, 0.1).offset) and moved.sigma_a2 == 0.2
    assert consistent.offset == pytest.approx(DEQ(relu, 0.2).offset)
    inside, factor = authors_settings.network("inside", "relu", 1.0)
    # Thresholds: the function is zero below them, and not centred.
    threshold = np.sqrt(0.2 / (2 * np.pi))
    assert factor == pytest.approx(np.sqrt(0.8)) and not inside.centred
    np.testing.assert_allclose(inside.layers[0](np.array([0.0, threshold, 1.0])),
                               [0.0, 0.0, 1.0 - threshold], atol=1e-15)  # fmt: skip
    images = _classify.task("mnist", "embedded", 100, 50)
    assert authors_settings.images_of("variances", images) is images
    own = authors_settings.images_of("splits", images)
    assert abs(own.X_test.mean(axis=0)).max() < 1e-12
    assert abs(images.X_test.mean(axis=0)).max() > 1e-3
    with pytest.raises(ValueError, match="variant 'inside' has"):
        authors_settings.network("inside", "tanh", 1.0)


def test_training_of_the_readout_alone_is_that_of_the_network_with_frozen_layers():
    images = _classify.task("mnist", "embedded", 200, 50)
    recipe = Recipe(1.0, 2, 32)
    net = networks.build(_classify.network("tanh", 1.0), 784, 32, 10, 0)
    F, start = networks.features(net, images.X).value, net.a.detach().numpy().T.copy()
    found = readout.sgd(F, images.y, 5, recipe, start=start)
    for name, weights in net.named_parameters():
        weights.requires_grad_(name == "a")
    networks.train(net, images.X, images.y, 5, recipe)
    # Float32 over 12 steps; the bias stays zero.
    np.testing.assert_allclose(found.weights, net.a.detach().numpy().T, atol=1e-5)
    assert (found.bias == 0).all()
    with pytest.raises(ValueError, match="start must be"):
        readout.sgd(F, images.y, 5, recipe, start=start[1:])


def test_benchmark_says_that_a_peer_is_missing(monkeypatch, capsys, tmp_path):
    from benchmarks import networks as bench

    monkeypatch.setattr(bench, "has_torchdeq", lambda: False)
    out = tmp_path / "found.json"
    small = "--widths 16 --sigma-a2 0.2 --rtol 1e-3 --batch 4 --rounds 1 --output"
    bench.main([*small.split(), str(out)])
    assert "torchdeq is not installed" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["machine"]["torchdeq"] is None
    assert not any("torchdeq" in row["contender"] for row in found["rows"])
