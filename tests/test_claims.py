"""The ledger's form is strict, and every rule and verdict is judged as its words say."""

import copy
from pathlib import Path

import numpy as np
import pytest
import yaml

from implicitnn import claims
from implicitnn._book import words as _words
from implicitnn._runs.rows import Row, Tolerance, cell_key
from implicitnn.claims import Evidence, LedgerError

# One claim with a commented part of every shape.
EXAMPLE = """
schema: 1
claims:
  - id: A1
    paper: A
    place: Theorem 1
    statement: The error falls like one over the root of n.
    kind: asymptotic
    hypotheses: [K fixed]
    notebook: 04_theorem_1
    expected: {verdict: reproduced, why: The slopes are near -1/2.}
    parts:
      # A slope for every activation, from rows of one kernel only.
      - name: slope
        study: errors
        where: {kernel: ck, n: {at_least: 100}}
        by: [activation]
        require: {activation: [relu, tanh]}
        seeds: 3
        statistic: {name: loglog_slope, x: n, y: error, span: 8}
        rule: {high_at_most: -0.4}
"""
SIZES = (100, 200, 400, 800)


def ledger(**part):
    """Return the text of a ledger whose claim has one part, changed."""
    data = yaml.safe_load(EXAMPLE)
    target = data["claims"][0]["parts"][0]
    for key, value in part.items():
        if value is None:
            target.pop(key)
        else:
            target[key] = value
    return data


def parsed(tmp_path, data):
    path = tmp_path / "claims.yml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return claims.load(path)


def claim(tmp_path, **part):
    return parsed(tmp_path, ledger(**part))[0]


def table(item, settings_and_values, code="now", rules=None):
    """Return evidence whose grid is exactly its rows."""
    rows = []
    for settings, seed, values in settings_and_values:
        rows.append(Row(
            cell_key("f", settings, seed), "f", settings, seed, values, 1.0, code,
            {item.id: item.rule_hash} if rules is None else rules, Tolerance(), {}, {}, "now",
        ))  # fmt: skip
    return Evidence(rows, "now", [(r.settings, r.seed) for r in rows])


def errors(slopes, sizes=SIZES, kernel="ck"):
    return [
        ({"activation": name, "n": n, "kernel": kernel}, seed,
         {"error": n ** (slope + 0.001 * seed)})
        for name, slope in slopes.items() for n in sizes for seed in range(3)
    ]  # fmt: skip


def judged(item, cells, **options):
    return claims.judge(item, {"errors": table(item, cells, **options)})


@pytest.mark.parametrize(
    ("slopes", "status"),
    [
        ({"relu": -0.5, "tanh": -0.6}, "reproduced"),
        ({"relu": -0.5, "tanh": -0.3}, "partly reproduced"),
        ({"relu": -0.1, "tanh": -0.3}, "not reproduced"),
        ({"relu": -0.5}, "not attempted"),
    ],
)
def test_verdicts(tmp_path, slopes, status):
    verdict = judged(claim(tmp_path), errors(slopes))
    assert verdict.status == status
    assert verdict.as_expected == (status == "reproduced")
    assert not verdict.stale
    line = verdict.lines[-1]
    assert line.estimate.low <= slopes[line.group["activation"]] + 0.002 <= line.estimate.high
    assert (line.rows, line.seeds) == (12, 3)
    assert "slope of log error on log n" in verdict.rule_text
    assert "upper end of the interval at most -0.4" in verdict.rule_text


def test_where_keeps_other_rows_out(tmp_path):
    good = errors({"relu": -0.5, "tanh": -0.5})
    other = errors({"relu": 0.5, "tanh": 0.5}, kernel="ntk")
    small = errors({"relu": 0.5, "tanh": 0.5}, sizes=(50,))
    assert judged(claim(tmp_path), good + other + small).status == "reproduced"


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ([], "0 of 0 cells"),
        (errors({"relu": -0.5, "tanh": -0.5}, sizes=(100, 200)), "a factor 8 needed"),
        ([c for c in errors({"relu": -0.5, "tanh": -0.5}) if c[1] < 2], "2 seeds, 3 needed"),
    ],
)
def test_too_little_evidence_is_no_verdict(tmp_path, cells, problem):
    verdict = judged(claim(tmp_path), cells)
    assert verdict.status == "not attempted"
    assert all(line.passed is None and problem in line.problem for line in verdict.lines)


def test_a_study_that_never_ran_or_half_ran(tmp_path):
    item = claim(tmp_path)
    assert claims.judge(item, {}).status == "not attempted"
    full = table(item, errors({"relu": -0.5, "tanh": -0.5}))
    half = Evidence(full.rows[:-1], full.code, full.cells)
    assert claims.judge(item, {"errors": half}).lines[0].problem == "23 of 24 cells are stored"


def test_rows_of_changed_code_or_rule_are_stale(tmp_path):
    item = claim(tmp_path)
    cells = errors({"relu": -0.5, "tanh": -0.5})
    for options in ({"code": "then"}, {"rules": {"A1": "then"}}, {"rules": {}}):
        verdict = judged(item, cells, **options)
        assert (verdict.status, verdict.stale) == ("stale", True)
        assert all(line.passed and line.stale for line in verdict.lines)


def test_prose_leaves_the_rule_hash_and_a_rule_does_not(tmp_path):
    base = claim(tmp_path).rule_hash
    data = ledger(name="another name")
    data["claims"][0].update(statement="Other words.", hypotheses=[], notebook="05")
    data["claims"][0]["expected"]["why"] = "Because."
    assert parsed(tmp_path, data)[0].rule_hash == base
    for change in (
        {"rule": {"high_at_most": -0.3}},
        {"where": {"kernel": "ck"}},
        {"seeds": 2},
        {"by": []},
        {"study": "other"},
        {"informative": True},
        {"require": None},
        {"statistic": {"name": "loglog_slope", "x": "n", "y": "error", "span": 7}},
    ):
        assert claim(tmp_path, **change).rule_hash != base, change


def test_an_informative_part_is_shown_and_not_counted(tmp_path):
    data = ledger()
    extra = copy.deepcopy(data["claims"][0]["parts"][0])
    extra.update(name="steep", rule={"high_at_most": -5.0}, informative=True)
    data["claims"][0]["parts"].append(extra)
    verdict = judged(parsed(tmp_path, data)[0], errors({"relu": -0.5, "tanh": -0.5}))
    assert verdict.status == "reproduced"
    assert [line.passed for line in verdict.lines] == [True, True, False, False]


def test_a_claim_without_parts_is_not_attempted(tmp_path):
    data = ledger()
    data["claims"][0]["parts"] = []
    assert claims.judge(parsed(tmp_path, data)[0], {}).status == "not attempted"


# ---- each statistic and each condition, on rows whose values are known


def flat_cells():
    """One row per n and seed: columns a = seed + n, b = a / 2, ok; setting formula is constant."""
    return [
        ({"n": n, "formula": "x"}, seed, {"a": float(seed + n), "b": (seed + n) / 2, "ok": True})
        for n in (10, 20) for seed in range(1, 5)
    ]  # fmt: skip


def outcome(tmp_path, statistic, rule, cells=None, **part):
    item = claim(
        tmp_path, statistic=statistic, rule=rule, where={}, by=[], require=None, seeds=None, **part
    )
    (line,) = judged(item, flat_cells() if cells is None else cells).lines
    return line


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ({"name": "median", "y": "a", "at": {"n": "largest"}}, 22.5),
        ({"name": "median", "y": "a", "at": {"n": "smallest"}}, 12.5),
        ({"name": "mean", "y": "a", "at": {"n": 10}}, 12.5),
        ({"name": "mean", "y": "a"}, 17.5),
        ({"name": "maximum", "y": "a"}, 24.0),
        ({"name": "minimum", "y": "a"}, 11.0),
        ({"name": "minimum", "y": "ok"}, 1.0),
        ({"name": "paired_ratio", "first": "a", "second": "b"}, 2.0),
        ({"name": "paired_difference", "first": "a", "second": "b", "at": {"n": 10}}, 6.25),
        ({"name": "paired_difference", "y": "a", "column": "n", "first": 20, "second": 10}, 10.0),
        ({"name": "group_ratio", "y": "a", "column": "n"}, 22.5 / 12.5),
    ],
)
def test_statistics(tmp_path, statistic, value):
    line = outcome(tmp_path, statistic, {"value_within": [value - 1e-9, value + 1e-9]})
    assert line.passed, line
    assert line.estimate.value == pytest.approx(value)
    assert outcome(tmp_path, statistic, {"value_at_most": value - 1e-6}).passed is False


def test_rows_pair_along_settings_that_change_with_the_column(tmp_path):
    cells = [
        ({**settings, "copies": 200 // settings["n"]}, *rest) for settings, *rest in flat_cells()
    ]
    statistic = {"name": "paired_difference", "y": "a", "column": "n", "first": 20, "second": 10}
    with pytest.raises(LedgerError, match="do not pair"):
        outcome(tmp_path, statistic, {"value_at_least": 0}, cells)
    line = outcome(tmp_path, statistic | {"along": ["copies"]}, {"value_at_least": 0}, cells)
    assert (line.estimate.value, line.estimate.seeds) == (10.0, 4)


MEAN = {"name": "mean", "y": "a", "at": {"n": 10}}


def bounds():
    """Return the t interval of 11, 12, 13, 14 with the tabulated quantile for 3 degrees."""
    values = np.array([11.0, 12, 13, 14])
    half = 3.182446305284263 * values.std(ddof=1) / 2
    return float(values.mean() - half), float(values.mean() + half)


LOW, HIGH = bounds()


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        ({"low_at_least": LOW - 0.01}, True),
        ({"low_at_least": LOW + 0.01}, False),
        ({"low_at_most": LOW + 0.01}, True),
        ({"high_at_most": HIGH + 0.01}, True),
        ({"high_at_most": HIGH - 0.01}, False),
        ({"high_at_least": HIGH + 0.01}, False),
        ({"value_at_least": 12.5}, True),
        ({"value_at_least": 12.6}, False),
        ({"interval_contains": 12.0}, True),
        ({"interval_contains": 20.0}, False),
        ({"interval_excludes": 20.0}, True),
        ({"interval_excludes": 12.0}, False),
        ({"interval_within": [LOW - 0.01, HIGH + 0.01]}, True),
        ({"interval_within": [LOW - 0.01, HIGH - 0.01]}, False),
        ({"value_at_least": 12.5, "interval_excludes": 12.0}, False),
    ],
)
def test_conditions(tmp_path, rule, passed):
    assert outcome(tmp_path, MEAN, rule).passed is passed


def test_equivalence_is_a_narrower_interval(tmp_path):
    rule = {"interval_within": [LOW, HIGH - 0.1]}
    assert outcome(tmp_path, MEAN, rule).passed is False
    assert outcome(tmp_path, {**MEAN, "confidence": 0.9}, rule).passed is True


def test_a_blank_value_fails_its_line(tmp_path):
    cells = flat_cells()
    cells[0][2]["a"] = None
    line = outcome(tmp_path, {"name": "maximum", "y": "a"}, {"value_at_most": 1e9}, cells)
    assert (line.passed, line.problem) == (False, "some rows hold no number in a")


def test_required_values_within_a_group(tmp_path):
    part = {"require": {"n": [10, 20, 40]}}
    item = claim(tmp_path, statistic=MEAN, rule={"value_at_least": 0}, where={}, by=["formula"],
                 seeds=None, **part)  # fmt: skip
    (line,) = judged(item, flat_cells()).lines
    assert (line.passed, line.problem) == (None, "no rows at n = 40")


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        ({"name": "mean", "y": "absent"}, "no column 'absent'"),
        ({"name": "mean", "y": "a", "at": {"absent": 1}}, "no column 'absent'"),
        ({"name": "paired_ratio", "y": "a", "column": "n", "first": 20, "second": 40}, "pair"),
        ({"name": "loglog_slope", "x": "formula", "y": "a"}, "x must hold real numbers"),
    ],
)
def test_an_impossible_question_names_claim_and_part(tmp_path, statistic, words):
    with pytest.raises((LedgerError, TypeError), match=words):
        outcome(tmp_path, statistic, {"value_at_least": 0})


def test_two_rows_at_one_point_of_a_slope_are_refused(tmp_path):
    cells = errors({"relu": -0.5, "tanh": -0.5})
    with pytest.raises(LedgerError, match=r"claim A1, part 'slope'.*each once"):
        judged(claim(tmp_path, by=[], require=None), cells)


# ---- the form of the file


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra": 1}, r"parts\[0\] has unknown \['extra'\]"),
        ({"rule": None}, r"parts\[0\] lacks \['rule'\]"),
        ({"rule": {}}, "at least one condition"),
        ({"rule": {"high_at_mots": -0.4}}, "unknown"),
        ({"rule": {"high_at_most": "1e-3"}}, "write 1.0e-12"),
        ({"rule": {"interval_within": [1, 0]}}, r"\[low, high\]"),
        ({"rule": {"interval_within": 1}}, "must be a list"),
        ({"statistic": {"name": "mode", "y": "a"}}, "must be one of loglog_slope"),
        ({"statistic": {"name": "mean"}}, r"lacks \['y'\]"),
        ({"statistic": {"name": "mean", "y": "a", "x": "n"}}, r"unknown \['x'\]"),
        ({"statistic": {"name": "mean", "y": 3}}, "must be a text"),
        ({"statistic": {"name": "paired_ratio", "y": "a", "first": "b", "second": "c"}}, "column"),
        ({"statistic": {"name": "maximum", "y": "a"}}, "has no interval"),
        (
            {"statistic": {"name": "paired_ratio", "first": "a", "second": "b", "along": ["c"]}},
            "give column",
        ),
        ({"statistic": {"name": "mean", "y": "a", "at": {"n": [1]}}}, "truth value"),
        ({"where": {"n": {"above": 3}}}, "unknown"),
        ({"where": ["n"]}, "mapping"),
        ({"by": "n"}, "must be a list"),
        ({"seeds": 1}, "at least 2"),
        ({"seeds": True}, "at least 2"),
        ({"informative": "yes"}, "true or false"),
    ],
)
def test_departures_from_the_form_are_refused(tmp_path, change, words):
    with pytest.raises(LedgerError, match=words):
        claim(tmp_path, **change)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kind", "guess", "must be one of identity"),
        ("expected", {"verdict": "fine", "why": "x"}, "must be one of reproduced"),
        ("expected", {"verdict": "reproduced"}, r"lacks \['why'\]"),
        ("statement", "", "must be a text"),
        ("id", 1, "must be a text"),
        ("surplus", 1, r"claim A1 has unknown \['surplus'\]"),
        ("hypotheses", "K", "must be a list"),
    ],
)
def test_departures_in_a_claim_are_refused(tmp_path, key, value, words):
    data = ledger()
    data["claims"][0][key] = value
    with pytest.raises(LedgerError, match=words):
        parsed(tmp_path, data)


def test_ids_names_and_keys_are_used_once(tmp_path):
    data = ledger()
    data["claims"].append(copy.deepcopy(data["claims"][0]))
    with pytest.raises(LedgerError, match="'A1' is used 2 times"):
        parsed(tmp_path, data)
    data = ledger()
    data["claims"][0]["parts"] *= 2
    with pytest.raises(LedgerError, match="two parts have the same name"):
        parsed(tmp_path, data)
    with pytest.raises(LedgerError, match="'kind' is given twice"):
        parsed(tmp_path, EXAMPLE.replace("kind: asymptotic", "kind: numeric\n    kind: identity"))
    with pytest.raises(LedgerError, match="schema must be 1"):
        parsed(tmp_path, EXAMPLE.replace("schema: 1", "schema: 2"))


# ---- words


@pytest.mark.parametrize(
    ("statistic", "text"),
    [
        ({"name": "maximum", "y": "r"}, "maximum of r over all rows"),
        (
            {"name": "paired_ratio", "first": "a", "second": "b", "at": {"n": "largest"}},
            "paired ratio a / b at the largest n (95 % t interval over seeds)",
        ),
        (
            {"name": "paired_difference", "y": "e", "column": "f", "first": "p", "second": "c",
             "confidence": 0.9},
            "paired difference of e, f = p - c (90 % t interval over seeds)",
        ),
        (
            {"name": "group_ratio", "y": "e", "column": "K"},
            "largest over smallest median of e over K (95 % bootstrap interval over seeds)",
        ),
        ({"name": "mean", "y": "e", "at": {"n": 4}},
         "mean of e at n = 4 (95 % t interval over seeds)"),
    ],
)  # fmt: skip
def test_statistics_in_words(statistic, text):
    assert _words.statistic(statistic) == text


# ---- the project's own ledger


def test_the_ledger_names_notebooks_and_studies_that_exist():
    from implicitnn.studies import STUDIES

    book = Path(__file__).parents[1]
    for item in claims.load():
        for part in item.parts:
            assert part.study in STUDIES, (item.id, part.study)
            assert item.id in STUDIES[part.study].claims, (item.id, part.study)
        if item.parts:
            assert (book / "notebooks" / f"{item.notebook}.md").is_file(), item.id


def test_every_claim_of_a_study_stands_in_the_ledger():
    from implicitnn.studies import STUDIES

    ids = [item.id for item in claims.load()]
    assert len(set(ids)) == len(ids)
    known = set(ids)
    for name in STUDIES:
        assert set(STUDIES[name].claims) <= known, name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: 1\nclaims: [", "not valid YAML"),
        ("schema: 1\n\tclaims: []", "not valid YAML"),
        ("schema: true\nclaims: []", "schema must be 1, got True"),
        ("schema: 1\nclaims: []\n? [a]\n: 2", "keys must be texts"),
    ],
)
def test_text_that_is_no_ledger_names_the_fault(tmp_path, text, words):
    with pytest.raises(LedgerError, match=words):
        parsed(tmp_path, text)


def test_bytes_that_are_no_text_name_the_file(tmp_path):
    path = tmp_path / "claims.yml"
    path.write_bytes(b"schema: 1\nclaims: \xff\n")
    with pytest.raises(LedgerError, match=r"claims\.yml is not valid YAML in UTF-8"):
        claims.load(path)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"rule": {"high_at_most": float("nan")}}, "must be finite"),
        ({"rule": {"high_at_most": float("inf")}}, "must be finite"),
        ({"rule": {"value_at_most": 10**400}}, r"rule\.value_at_most must lie within float64"),
        ({"where": {"n": []}}, "at least one value"),
        ({"where": {"n": float("nan")}}, r"where\.n must be finite"),
        ({"where": {"n": [1, float("inf")]}}, r"where\.n must be finite"),
        ({"where": {"n": {"at_least": 3, "at_most": 1}}}, r"where\.n holds no number"),
        (
            {"statistic": {"name": "loglog_slope", "x": "n", "y": "error", "span": 0.5}},
            "span must be at least 1",
        ),
        (
            {"statistic": {"name": "mean", "y": "error", "confidence": 7}},
            "confidence must lie between 0 and 1",
        ),
    ],
)
def test_numbers_that_decide_nothing_are_refused(tmp_path, part, words):
    with pytest.raises(LedgerError, match=words):
        claim(tmp_path, **part)
