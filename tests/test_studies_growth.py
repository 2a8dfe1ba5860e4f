"""Studies on growth rates: the three limits, the number of classes, the separation of classes."""

import numpy as np
import pytest
from scipy.stats import norm

from implicitnn.studies import classes, limits, separation


@pytest.mark.parametrize("module", [limits, classes, separation])
def test_a_cell_depends_on_settings_and_seed_only(module):
    settings = module.STUDY.cells("quick")[0][0]
    first, again = module.row(settings, 3), module.row(settings, 3)
    assert first == again
    assert first != module.row(settings, 4)


@pytest.mark.parametrize("module", [limits, classes, separation])
def test_paper_cells_are_all_different(module):
    cells = [(*sorted(settings.items()), seed) for settings, seed in module.STUDY.cells("paper")]
    assert len(set(cells)) == len(cells)


def test_limits_cover_a_factor_of_32_in_what_grows():
    grid = limits.STUDY.grids["paper"]
    for regime, sizes in {"both": "np", "p grows": "p", "n grows": "n"}.items():
        for size in "np":
            values = {cell[size] for cell in grid if cell["regime"] == regime}
            spread = max(values) / min(values)
            assert spread == (32 if size in sizes else 1)


def test_over_log_is_the_absolute_error_over_the_root_of_log_n():
    values = limits.row({"regime": "both", "activation": "tanh", "n": 100, "p": 125}, 0)
    for name in ("ck", "ntk"):
        assert values[f"{name}_over_log"] == pytest.approx(
            values[f"{name}_absolute"] / np.log(100) ** 0.5, rel=1e-14
        )


def test_class_mixtures_keep_the_spread_when_classes_are_added():
    for count in (2, 8, 64):
        mixture = classes.mixture(count, 400, 2.0)
        assert np.linalg.norm(mixture.means, axis=1) == pytest.approx(2.0)
        assert mixture.traces.min() == pytest.approx(400)
        assert mixture.traces.max() <= 400 * (1 + 4 / 20)


@pytest.mark.parametrize("kind", ["means", "covariances"])
def test_best_error_is_the_error_of_the_likelihood_ratio(kind):
    # 40,000 draws: the standard error is at most 0.0025; 4.5 of them are exceeded with
    # probability 7e-6.
    p, exponent, draws = 100, 0.0, 40_000
    mixture = separation.mixture(kind, p, exponent)
    sample = mixture.sample(draws, np.random.default_rng(5))
    Z = sample.X * np.sqrt(p)
    scores = np.zeros((2, draws))
    for a in range(2):
        variances = np.asarray(mixture.covariances[a]).ravel()
        residual = (Z - mixture.means[a]) ** 2 / variances
        scores[a] = -0.5 * (residual.sum(axis=1) + np.log(variances * np.ones(p)).sum())
    wrong = np.mean(scores.argmax(axis=0) != sample.labels)
    assert abs(wrong - separation.best_error(kind, p, exponent)) < 4.5 * 0.5 / draws**0.5


def test_best_error_for_traces_tends_to_its_gaussian_limit():
    limit = norm.cdf(-separation.TRACE / (2 * 2**0.5))
    errors = [abs(separation.best_error("covariances", p, 0.0) - limit) for p in (100, 1600, 25600)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 1e-3


def test_learners_cannot_beat_the_best_classifier():
    # n = 320 test samples a seed, 10 seeds: standard error 0.0065 at most
    cells = [separation.row({"kind": "means", "exponent": 0.0, "p": 400}, s) for s in range(10)]
    best = cells[0]["best"]
    for learner in ("ridge", "clustering"):
        assert np.mean([cell[learner] for cell in cells]) > best - 4 * 0.0065
