"""Sweeps: rows survive kills, follow the code, and do not depend on how they were computed."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import cloudpickle
import joblib
import numpy as np
import pytest
import threadpoolctl

import implicitnn
from implicitnn import sweeps
from implicitnn._runs import execute as _execute
from implicitnn._runs import provenance as _provenance
from implicitnn._runs import rows as _rows
from implicitnn._runs import study as _study
from implicitnn._runs.provenance import Library, closure, digest, reachable, tree
from implicitnn.errors import DataNotFoundError
from implicitnn.sweeps import Study, SweepError, Tolerance

GRID = [{"n": n, "kind": kind} for n in (2, 3, 5) for kind in ("a", "b")]
SEEDS = [0, 1, 7]


@pytest.fixture(autouse=True, scope="module")
def by_value():
    """Let worker processes run functions of this file, which they cannot import."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def noise(settings, seed):
    rng = np.random.default_rng([seed, settings["n"]])
    return {"mean": rng.normal(size=settings["n"]).mean(), "even": np.bool_(seed % 2 == 0)}


def threads(settings, seed):
    np.ones((2, 2)) @ np.ones((2, 2))
    limits = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    return {"threads": max(limits), "process": os.getpid()}


def touchy(settings, seed):
    if settings["n"] == 3 and seed == 1:
        raise ZeroDivisionError("no luck")
    return {"fine": 1}


def awkward(settings, seed):
    raise Unpicklable(open(os.devnull))  # noqa: SIM115


class Unpicklable(Exception):
    pass


def bad(settings, seed):
    return {"nan": {"x": np.nan}, "list": [1], "clash": {"n": 1}}[settings["what"]]


def run(function=noise, grid=GRID, seeds=SEEDS, **options):
    options = {"path": None, "workers": 1, "progress": False, **options}
    return sweeps.run(function, grid, seeds, **options)


def cells(rows):
    return [(r.settings, r.seed, r.values) for r in rows]


def test_rows_are_in_grid_order_and_equal_for_any_number_of_workers(tmp_path):
    here = run()
    assert [(r.settings, r.seed) for r in here] == [(s, i) for s in GRID for i in SEEDS]
    assert here[0].values["mean"] == noise({"n": 2}, 0)["mean"]
    assert here[0].values["even"] is True
    there = run(path=tmp_path / "rows.jsonl", workers=2)
    assert cells(here) == cells(there)
    reordered = run(grid=GRID[::-1], seeds=SEEDS[::-1], path=tmp_path / "rows.jsonl")
    key = json.dumps
    assert sorted(map(key, cells(reordered))) == sorted(map(key, cells(here)))
    assert len(sweeps.load_rows(tmp_path / "rows.jsonl")) == len(here)


def test_workers_times_threads_are_the_cores():
    cores = joblib.cpu_count()
    rows = run(threads, [{"n": 1}], range(4), workers=2)
    assert {r.values["threads"] for r in rows} == {max(1, cores // 2)}
    assert os.getpid() not in {r.values["process"] for r in rows}


def test_numba_threads_are_limited():
    import numba

    before = numba.get_num_threads()
    _execute.compute(lambda s, i: {}, _execute.Cell("k", {}, 0), 1)
    assert numba.get_num_threads() == 1
    numba.set_num_threads(before)


def test_stored_rows_are_not_computed_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    first = run(path=path, seeds=[0, 1])
    before = path.read_bytes()
    assert run(path=path, seeds=[0, 1]) == first
    assert path.read_bytes() == before
    more = run(path=path, seeds=[0, 1, 2])
    assert [r for r in more if r.seed < 2] == first


def test_a_row_says_what_it_depends_on(tmp_path):
    tolerance = Tolerance(1e-3, 0.0, ("seconds_of_step",))
    (row,) = run(grid=GRID[:1], seeds=[4], path=tmp_path / "r.jsonl", rules={"A1": "ab"},
                 tolerance=tolerance)  # fmt: skip
    data = json.loads((tmp_path / "r.jsonl").read_text())
    assert data["settings"] == {"n": 2, "kind": "a"}
    assert data["seed"] == 4
    assert data["function"].endswith(":noise")
    assert data["rules"] == {"A1": "ab"}
    assert data["code"] == _provenance.code_hash(noise)
    assert data["versions"]["numpy"] == np.__version__
    assert data["machine"]["cores"] >= 1
    assert data["tolerance"] == {"rtol": 1e-3, "atol": 0.0, "unchecked": ["seconds_of_step"]}
    assert _rows.read(tmp_path / "r.jsonl") == [row]


def test_rows_of_another_rule_are_stale_and_replaced(tmp_path):
    path = tmp_path / "rows.jsonl"
    run(path=path, rules={"A1": "old"})
    rows = run(path=path, rules={"A1": "new"})
    assert {r.rules["A1"] for r in rows} == {"new"}
    assert _rows.read(path) == rows


def test_rows_of_other_cells_stay(tmp_path):
    path = tmp_path / "rows.jsonl"
    first = run(path=path, seeds=[0])
    run(path=path, seeds=[1])
    kept = {r.key for r in sweeps.load_rows(path)}
    assert {r.key for r in first} < kept
    assert len(kept) == 2 * len(GRID)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_last_line_is_dropped_and_computed_again(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    rows = run(path=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert _rows.read(path) == rows[:-1]
    again = run(path=path)
    assert cells(again) == cells(rows)
    assert again[:-1] == rows[:-1]
    assert len(_rows.read(path)) == len(rows)


def test_a_damaged_line_inside_is_an_error(tmp_path):
    path = tmp_path / "rows.jsonl"
    run(path=path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0][:20] + "\n", *lines[1:]]))
    with pytest.raises(ValueError, match=r"line 1: .*; delete that line, and the next run"):
        run(path=path)
    path.write_text("".join(lines[1:]))
    assert len(run(path=path)) == len(lines)
    path.write_text('{"key": 1}\n')
    with pytest.raises(ValueError, match="exactly the fields"):
        _rows.read(path)


def test_a_study_that_measures_time_has_the_machine_to_itself(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "implicitnn._runs.study.run", lambda *cells, workers, **options: asked.append(workers)
    )
    study = Study("small", noise, {"quick": [{"n": 1}]}, {"quick": [0]})
    for alone in (False, True):
        sweeps.run_study(dataclasses.replace(study, alone=alone), "quick", workers=2)
    assert asked == [2, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_cell_is_named_and_the_others_are_kept(tmp_path, workers):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(SweepError, match=r"'n': 3.*seed 1.*ZeroDivisionError: no luck") as caught:
        run(touchy, [{"n": 2}, {"n": 3}], [0, 1], path=path, workers=workers)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(sweeps.load_rows(path)) == 3


def test_an_error_that_cannot_travel_is_told_as_text():
    with pytest.raises(SweepError, match="Unpicklable"):
        run(awkward, [{"n": 1}, {"n": 2}], [0], workers=2)


def test_the_budget_stops_new_cells(tmp_path):
    rows = run(path=tmp_path / "r.jsonl", budget_seconds=0.0)
    assert rows == []
    assert len(run(path=tmp_path / "r.jsonl", budget_seconds=60.0)) == len(GRID) * len(SEEDS)


@pytest.mark.parametrize(
    ("grid", "seeds", "error", "words"),
    [
        ({"n": 1}, [0], TypeError, "list of dictionaries"),
        ([{"n": float("nan")}], [0], ValueError, r"grid\[0\]\['n'\] is nan"),
        ([{"n": 1}, {"n": np.int64(1)}], [0], ValueError, "listed twice"),
        ([{"seed": 1}], [0], ValueError, "'seed'"),
        ([{"n": object()}], [0], TypeError, "JSON"),
        ([{"n": 1}], [None], TypeError, "seed"),
        ([{"n": 1}], [True], TypeError, "seed"),
        ([3], [0], TypeError, r"grid\[0\]"),
    ],
)
def test_bad_cells_are_refused(grid, seeds, error, words):
    with pytest.raises(error, match=words):
        run(grid=grid, seeds=seeds)


@pytest.mark.parametrize(("what", "words"), [("nan", "encode it"), ("list", "dictionary")])
def test_bad_values_are_refused(what, words):
    with pytest.raises(SweepError, match=words):
        run(bad, [{"what": what}], [0])


def test_a_value_named_like_a_setting_is_refused():
    with pytest.raises(SweepError, match="also a setting"):
        run(bad, [{"what": "clash", "n": 1}], [0])


def test_functions_whose_code_cannot_be_followed_are_refused():
    def nested(settings, seed):
        return {}

    for function in (nested, lambda settings, seed: {}):
        with pytest.raises(ValueError, match="top level"):
            run(function)
    with pytest.raises(TypeError, match="plain Python function"):
        run(print)
    with pytest.raises(ValueError, match="workers must be at least 1"):
        run(workers=0)


SCRIPT = """
    import os, sys, time
    from pathlib import Path
    from implicitnn import sweeps

    def slow(settings, seed):
        time.sleep(0.02)
        with open(settings["log"], "a") as log:
            log.write(f"{settings['n']} {seed}\\n")
        return {"square": settings["n"] ** 2 + seed}

    if __name__ == "__main__":
        path, log, rule, workers = sys.argv[1:]
        grid = [{"n": n, "log": log} for n in range(10)]
        sweeps.run(slow, grid, range(4), path=path, workers=int(workers), progress=False,
                   rules={"A1": rule})
"""


def test_a_killed_run_loses_and_doubles_no_row(tmp_path):
    script, path, log = tmp_path / "s.py", tmp_path / "rows.jsonl", tmp_path / "log"
    script.write_text(textwrap.dedent(SCRIPT))

    def start(rule):
        return subprocess.Popen([sys.executable, str(script), str(path), str(log), rule, "2"])

    def lines():
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def kill_after(rule, count):
        process = start(rule)
        while lines() < count and process.poll() is None:
            time.sleep(0.001)
        assert process.poll() is None, "the run ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.2)
        return _rows.latest(_rows.read(path))

    killed = kill_after("old", 15)
    assert 15 <= len(killed) < 40
    computed = Counter(log.read_text().splitlines())
    assert start("old").wait() == 0
    full = _rows.read(path)
    assert len(full) == 40 == len({r.key for r in full})
    assert all(killed[r.key] == r for r in full if r.key in killed)
    calls = Counter(log.read_text().splitlines())
    stored = {f"{r.settings['n']} {r.seed}" for r in killed.values()}
    assert all(calls[name] == computed[name] == 1 for name in stored)
    # Now every row is stale: killed in the middle of replacing them, none is lost.
    halfway = kill_after("new", 52)
    assert len(halfway) == 40
    assert 0 < sum(r.rules["A1"] == "new" for r in halfway.values()) < 40
    assert start("new").wait() == 0
    final = _rows.read(path)
    assert [r.key for r in final] == [r.key for r in full]
    assert {r.rules["A1"] for r in final} == {"new"}
    assert cells(final) == cells(full)


def test_two_writers_at_once_keep_every_row(tmp_path):
    script, path, log = tmp_path / "s.py", tmp_path / "rows.jsonl", tmp_path / "log"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(path), str(log), "r", "1"]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    keys = [r.key for r in _rows.read(path)]
    assert len(keys) == 40 == len(set(keys))


def test_a_cluster_gives_the_same_rows(tmp_path):
    import distributed

    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as pool:
        path = tmp_path / "rows.jsonl"
        rows = run(path=path, scheduler=pool.scheduler_address)
        used = run(threads, [{"n": n} for n in range(6)], [0], scheduler=pool.scheduler_address)
        with pytest.raises(SweepError, match="no luck"):
            run(touchy, [{"n": 3}], [1], scheduler=pool.scheduler_address)
    assert cells(rows) == cells(run())
    assert cells(sweeps.load_rows(path)) == cells(rows)
    assert len({r.values["process"] for r in used}) == 2


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"implicitnn\[cluster\]"):
        run(scheduler="tcp://127.0.0.1:1")


# ---- what a row's code hash covers


@pytest.fixture
def toy(tmp_path):
    files = {
        "__init__.py": "from toy.other import late\n",
        "low.py": "X = 1\n",
        "mid.py": '"""Doc."""\nfrom toy import low\nfrom .other import late\n',
        "other.py": "def late():\n    import toy.deep.inner\n",
        "lonely.py": "Y = 2\n",
        "deep/__init__.py": "from . import outer\nfrom .inner import thing as name\n",
        "deep/inner.py": "thing = 1\n",
        "deep/outer.py": "from ..lonely import Y\n",
        "via.py": "from toy.deep import name\n",
    }
    for name, text in files.items():
        file = tmp_path / "toy" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    return Library("toy", tmp_path / "toy")


def test_the_closure_follows_every_form_of_import(toy):
    assert closure(["toy.mid"], toy) == ["toy.deep.inner", "toy.low", "toy.mid", "toy.other"]
    assert closure(["toy.lonely", "numpy"], toy) == ["toy.lonely"]


def test_a_package_does_not_tie_its_members_together(toy):
    assert closure(["toy.via"], toy) == ["toy.deep.inner", "toy.via"]
    assert "toy.other" in closure(["toy"], toy)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("def f():\n    return 1", 'def f():\n    """Doc."""\n    return 1  # why', True),
        ("def f():\n    return 1", "def f():\n\n    return (1)", True),
        ("def f():\n    return 1", "def f():\n    return 2", False),
        ("def f(a): pass", "def f(a: int): pass", False),
        ('def f():\n    """Doc."""', "def f():\n    pass", True),
    ],
)
def test_comments_and_docstrings_are_no_code(first, second, same):
    import ast

    one, two = (digest([ast.unparse(tree(text))]) for text in (first, second))
    assert (one == two) is same


def test_a_grid_beside_the_function_is_not_its_code():
    import ast

    source = """
import os
from a import used, unused
SIZE = 3
GRID = [SIZE, 5]
def helper(): return used + SIZE
def row(settings, seed): return helper()
STUDY = row, GRID
os.umask(0)
"""
    kept = "\n".join(map(ast.unparse, reachable(tree(source), "row")))
    assert kept.split("\n") == [
        "import os", "from a import used", "SIZE = 3", "def helper():", "    return used + SIZE",
        "def row(settings, seed):", "    return helper()", "os.umask(0)",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no top-level definition of 'absent'"):
        reachable(tree(source), "absent")


def test_an_edit_in_the_library_makes_rows_stale(tmp_path):
    """A real edit in a copy of the library, seen by a real run in another process."""
    lib = tmp_path / "lib"
    shutil.copytree(Path(implicitnn.__file__).parent, lib / "implicitnn")
    module = tmp_path / "mine.py"
    module.write_text(
        "from implicitnn import gaussian\n"
        "def row(settings, seed):\n"
        "    return {'v': gaussian.expectation(abs, settings['t'], (0.0,))}\n"
        "GRID = [{'t': 1.0}]\n"
    )
    code = (
        "import mine; from implicitnn._runs import provenance; "
        "print(provenance.code_hash(mine.row))"
    )

    def seen():
        return subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(lib)},
        ).stdout.strip()  # fmt: skip

    def edit(file, old, new):
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    start = seen()
    edit(module, "GRID = [", "GRID = [{'t': 2.0}, ")
    edit(lib / "implicitnn/gaussian.py", "from __future__", "# a comment\nfrom __future__")
    (lib / "implicitnn/studies/new_one.py").write_text("X = 1\n")
    edit(lib / "implicitnn/sweeps.py", "__all__ = [", "HARNESS = 1\n__all__ = [")
    assert seen() == start
    edit(lib / "implicitnn/_validate.py", "number <= 0", "number <= -0.0")
    changed = seen()
    assert changed != start
    edit(module, "settings['t']", "2 * settings['t']")
    assert seen() not in (start, changed)


SCALE = 2


def helper(x):
    return SCALE * x


def typed_here(settings, seed):
    return {"y": helper(np.float64(1.0)), "tail": len(Path("a").name)}


def test_a_function_typed_in_a_notebook_is_followed_by_its_globals(monkeypatch):
    def live():
        return digest(_provenance._live(typed_here, set())[0])

    before = live()
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert live() != before
    monkeypatch.setitem(globals(), "SCALE", np.ones(3))
    with pytest.raises(ValueError, match="'SCALE' \\(ndarray\\)"):
        live()


# ---- studies


def study_row(settings, seed):
    if settings.get("absent"):
        raise DataNotFoundError("no such set here")
    return {"value": float(settings["n"] * (seed + 1)), "clock": time.perf_counter()}


@pytest.fixture
def study(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    monkeypatch.setenv("IMPLICITNN_BUILD", str(tmp_path / "out"))
    return Study(
        "toy", study_row, {"quick": [{"n": 1}], "paper": [{"n": 1}, {"n": 2}]},
        {"quick": [0], "paper": [0, 1, 2]}, unchecked=("clock",), cost=lambda s: s["n"] ** 3,
    )  # fmt: skip


def quiet(study, tier, **options):
    return sweeps.run_study(study, tier, workers=1, progress=False, **options)


def test_a_study_keeps_its_tiers_apart(study, tmp_path):
    assert len(quiet(study, "quick", seed=5)) == 1
    assert sweeps.load_rows(tmp_path / "out/quick/toy.jsonl")[0].seed == 5
    assert len(quiet(study, "paper")) == 6
    assert len(sweeps.load_rows(tmp_path / "data/results/toy.jsonl")) == 6
    with pytest.raises(ValueError, match="declared seeds"):
        quiet(study, "paper", seed=1)
    with pytest.raises(ValueError, match="tier"):
        quiet(study, "huge")


def test_status_counts_what_remains_and_predicts_it(study, tmp_path):
    unknown = sweeps.status(study)
    assert (unknown.total, len(unknown.missing), unknown.complete) == (6, 6, False)
    assert unknown.predicted_seconds is None
    quiet(study, "paper")
    assert sweeps.status(study).complete
    path = tmp_path / "data/results/toy.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["seconds"] = 10.0 * row["settings"]["n"]
    rows[0]["code"] = "changed"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    now = sweeps.status(study)
    assert now.stale == (({"n": 1}, 0),)
    assert now.missing == (({"n": 2}, 1), ({"n": 2}, 2))
    assert now.predicted_seconds == pytest.approx(10 + 20 + 20)


def test_recheck_takes_cells_by_the_commit_within_the_budget(study, tmp_path):
    quiet(study, "paper")
    path = tmp_path / "data/results/toy.jsonl"
    rows = [json.loads(line) | {"seconds": 50.0} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def chosen(commit):
        checks = sweeps.recheck(commit, 180.0, [study])
        assert all(check.ok for check in checks)
        return {(c.settings["n"], c.seed) for c in checks}

    assert all(len(chosen(str(i))) == 3 for i in range(4))
    assert chosen("abc") == chosen("abc")
    assert len({frozenset(chosen(str(i))) for i in range(8)}) > 1
    with pytest.raises(ValueError, match="commit"):
        sweeps.recheck("", studies=[study])


def test_recheck_reports_what_differs(study, tmp_path):
    quiet(study, "paper")
    path = tmp_path / "data/results/toy.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["values"]["value"] *= 1 + 1e-3
        row["values"]["gone"] = 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    checks = sweeps.recheck("abc", 180.0, [study])
    assert len(checks) == 6
    assert not any(check.ok for check in checks)
    assert {d.split(":")[0] for d in checks[0].differences} == {"value", "gone is gone"}


def test_recheck_skips_only_absent_data(study, monkeypatch, tmp_path):
    quiet(study, "paper")
    (row, *_) = sweeps.study_rows(study)
    absent = _rows.Row(**{**vars(row), "settings": {"n": 1, "absent": True}})
    check = _study._check(study, absent)
    assert check.ok
    assert check.skipped == "no such set here"
    broken = _rows.Row(**{**vars(row), "settings": {}})
    assert _study._check(study, broken).differences == ("raised KeyError: 'n'",)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ({"a": 1.0}, {"a": 1.0 + 5e-7}, True),
        ({"a": 1.0}, {"a": 1.0 + 5e-6}, False),
        ({"a": 0.0}, {"a": 1e-13}, True),
        ({"a": [1, 2.0]}, {"a": [1, 2.0]}, True),
        ({"a": [1, 2.0]}, {"a": [1]}, False),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {"a": None}, True),
        ({"t": 1.0}, {"t": 9.0}, True),
    ],
)
def test_values_are_compared_within_the_row_s_tolerance(old, new, same):
    (row,) = run(grid=GRID[:1], seeds=[0], tolerance=Tolerance(1e-6, 1e-12, ("t",)))
    stored = _rows.Row(**{**vars(row), "values": old})
    assert (_rows.differences(stored, new) == []) is same


def test_a_study_is_checked():
    with pytest.raises(ValueError, match="unknown tiers"):
        Study("s", noise, {"fast": []}, {"fast": []})
    with pytest.raises(ValueError, match="different tiers"):
        Study("s", noise, {"quick": []}, {"paper": []})
    with pytest.raises(TypeError, match="tuple"):
        Study("s", noise, {}, {}, claims="A1")


def test_a_claim_the_ledger_lacks_is_refused(study, tmp_path):
    (tmp_path / "book/claims.yml").write_text("schema: 1\nclaims: []\n")
    named = Study("toy", study_row, study.grids, study.seeds, claims=("Z9",))
    with pytest.raises(ValueError, match="Z9"):
        quiet(named, "paper")
    assert len(quiet(named, "quick")) == 1


def test_the_registry_imports_one_study_at_a_time():
    code = """
import sys
from implicitnn.studies import STUDIES
names = list(STUDIES)
loaded = [n for n in names if f"implicitnn.studies.{n}" in sys.modules]
assert names and not loaded, (names, loaded)
try:
    STUDIES["no_such_study"]
except KeyError as error:
    assert names[0] in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget_seconds": float("nan")}, "budget_seconds must be finite"),
        ({"budget_seconds": -1}, "budget_seconds must not be negative"),
        ({"budget_seconds": "x"}, "budget_seconds must be a real number"),
        ({"tolerance": 3}, "tolerance must be a Tolerance"),
        ({"progress": "no"}, "progress must be True or False"),
        ({"rules": 3}, "rules must be a mapping"),
        ({"seeds": 3}, "seeds must be a list"),
        ({"grid": None}, "grid must be a list"),
    ],
)
def test_wrong_options_are_named(options, words):
    given = {"grid": [{"n": 1}], "seeds": [0], "path": None, "workers": 1} | options
    grid, seeds = given.pop("grid"), given.pop("seeds")
    with pytest.raises((TypeError, ValueError), match=words):
        sweeps.run(noise, grid, seeds, **given)


def test_the_closure_of_the_kernels_reaches_their_private_modules():
    found = closure(["implicitnn.kernels"])
    assert {"implicitnn.kernels", "implicitnn._kernels.exact", "implicitnn.specs"} <= set(found)


def test_a_library_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder must be the package 'toy'"):
        Library("toy", tmp_path)


def test_rows_that_are_no_rows_are_refused(tmp_path):
    rows = sweeps.run(noise, [{"n": 1}], [0], path=None, workers=1, progress=False)
    path = tmp_path / "rows.jsonl"
    for old, new in (('"unchecked": []', '"other": []'), ('"seed": 0', '"seed": "x"')):
        line = rows[0].line()
        assert old in line
        path.write_text(line.replace(old, new) + "\n")
        with pytest.raises(ValueError, match=r"rows\.jsonl, line 1"):
            sweeps.load_rows(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        sweeps.load_rows(path)


def test_recheck_does_not_choose_cells_whose_data_are_elsewhere(tmp_path, monkeypatch):
    from implicitnn.studies import STUDIES

    monkeypatch.setenv("IMPLICITNN_ROOT", str(Path(__file__).parents[1]))
    monkeypatch.delenv("IMPLICITNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks = sweeps.recheck("abc", 1e-9, [STUDIES["real_errors"]])
    assert len(checks) == 1
    assert "760 cells need data sets that are not on this machine" in checks[0].skipped
