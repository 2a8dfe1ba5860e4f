"""The claims on accuracy, time and training against the grids and columns of their studies."""

import numpy as np
import pytest

from implicitnn import claims, sweeps
from implicitnn.studies import (
    STUDIES,
    _classify,
    accuracy,
    accuracy_wide,
    accuracy_widest,
    all_weights,
    authors_settings,
    cost,
    finite_width,
)

SMALL = {"data": "mnist", "source": "embedded", "model": "tanh", "width": 32}
SMALL |= {"n": 200, "n_test": 100, "epochs": 1, "lr": 1.0}


def columns(study):
    """What a row of a study holds, from a small cell of its own function."""
    if study == "cost":
        cell = {"width": 16, "batch": 4, "sigma_a2": 0.2, "rtol": 1e-3, "solver": "picard"}
        return cost.row(cell, 0)
    if study == "finite_width":
        return finite_width.row({"net": "h_tanh", "n": 32, "width": 16, "networks": 2}, 0)
    if study == "authors_settings":
        return authors_settings.row(SMALL | {"variant": "scripts"}, 0)
    return STUDIES[study].row(SMALL, 0)


def evidence(study, claim):
    """A row for every cell of tier paper, with invented numbers."""
    rng, rows, found = np.random.default_rng(0), [], columns(study)
    if study in ("accuracy_wide", "accuracy_widest"):
        # No exact softmax there.
        found = {name: value for name, value in found.items() if not name.startswith("softmax")}
    cells = STUDIES[study].cells("paper")
    for settings, seed in cells:
        values = {
            name: float(1 + rng.random()) if type(value) in (int, float) else value
            for name, value in found.items()
        }
        rows.append(
            sweeps.Row(f"{settings} {seed}", "", settings, seed, values, 0.0, "",
                       {claim.id: claim.rule_hash}, sweeps.Tolerance(), {}, {}, "")
        )  # fmt: skip
    return claims.Evidence(rows, "", cells)


@pytest.mark.parametrize("name", ["A9", "A10", "A11", "A14"])
def test_every_line_of_the_claim_has_all_its_rows_in_the_grid(name):
    (claim,) = (item for item in claims.load() if item.id == name)
    known = {study: evidence(study, claim) for study in {part.study for part in claim.parts}}
    verdict = claims.judge(claim, known)
    assert not verdict.stale and verdict.status != "not attempted"
    for line in verdict.lines:
        assert line.estimate is not None and not line.problem, line
    groups = {part.name: set() for part in claim.parts}
    for line in verdict.lines:
        groups[line.part].add(tuple(line.group.values()))
    for part in claim.parts:
        wanted = [set(part.require.get(column, ())) for column in part.by]
        for place, values in enumerate(wanted):
            assert values <= {group[place] for group in groups[part.name]}
        product = int(np.prod([max(len(values), 1) for values in wanted]))
        assert len(groups[part.name]) >= product


def test_differences_have_the_network_that_is_said_to_be_better_first():
    (claim,) = (item for item in claims.load() if item.id == "A9")
    for part in claim.parts:
        first, second = part.statistic["first"], part.statistic["second"]
        if "below" in part.name or "above" in part.name:
            assert "low_at_least" in part.rule and second in ("relu", "tanh")
            better = {"relu": ("relu_deq", "l_relu"), "tanh": ("tanh_deq",)}[second]
            assert first in better
        elif "follows" in part.name:
            assert _classify.PARTNERS[second] == first
            margin = 1.0 if part.require["data"] == [_classify.FEATURES] else 0.5
            assert part.rule == {"interval_within": [-margin, margin]}


def test_grids_of_tier_paper_are_those_that_the_claims_state():
    sizes = {study.name: len(study.cells("paper")) for study in
             (accuracy.STUDY, accuracy_wide.STUDY, accuracy_widest.STUDY, all_weights.STUDY,
              cost.STUDY, authors_settings.STUDY)}  # fmt: skip
    twins = 3 * 3 * 5
    assert sizes == {"accuracy": 3 * 6 * 7 * 5 + twins, "accuracy_wide": 3 * 6 * 3,
                     "accuracy_widest": 3 * 6, "all_weights": 2 * 6 * 4 * 3, "cost": 36 * 3,
                     "authors_settings": 2 * 23 * 5}  # fmt: skip


def test_streams_of_random_numbers_are_all_different():
    """Weights of every network, order of descent, part held out."""
    keys = [[seed, 101] for seed in range(5)]
    for width in (*accuracy.WIDTHS, 4096, 8192):
        for seed in range(5):
            places = range(len(_classify.MODELS) + 1)
            keys += [[seed, width, place] for place in (*places, 100)]
    first = {tuple(np.random.default_rng(key).integers(0, 2**62, 2)) for key in keys}
    assert len(first) == len(keys)
