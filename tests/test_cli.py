"""The command line: exit codes, messages, and what each subcommand does."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from implicitnn import doctor, sweeps
from implicitnn._cli import paper as _cli_paper
from implicitnn._cli import parser as _cli
from implicitnn._data import registry as _registry
from implicitnn.doctor import Section
from implicitnn.sweeps import Status, Study

ROOT = Path(__file__).resolve().parents[1]
CELL = """---
kernelspec: {name: python3, display_name: Python 3, language: python}
---

# A page

```{code-cell} python3
:tags: [parameters]
tier = "quick"
seed = 0
```

```{code-cell} python3
print(f"tier={tier} seed={seed}")
```
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project folder with data, notebooks and nothing in the user's places."""
    shutil.copytree(ROOT / "data" / "embedded", tmp_path / "data" / "embedded")
    shutil.copy(ROOT / "data" / "registry.json", tmp_path / "data")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_page.md").write_text(CELL, encoding="utf-8")
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IMPLICITNN_BUILD", raising=False)
    monkeypatch.delenv("IMPLICITNN_DATA", raising=False)
    return tmp_path


def usage_error(capsys, *arguments):
    """Return the message of arguments that argparse refuses."""
    with pytest.raises(SystemExit) as stop:
        _cli.main(arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_help_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "implicitnn", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT / "lib",
        check=True,
    )
    for name in ("doctor", "data", "notebook", "paper"):
        assert re.search(rf"^    {name} ", done.stdout, re.MULTILINE)


def test_help_loads_no_heavy_package():
    code = (
        "import sys; from implicitnn._cli import parser; parser.parser().format_help(); "
        "print([m for m in ('numpy', 'numba', 'torch', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "lib", check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: COMMAND"),
        (("nothing",), "invalid choice: 'nothing'"),
        (("data", "fetch"), "required: NAME"),
        (("data", "fetch", "emnist"), "invalid choice: 'emnist'"),
        (("data", "verify", "emnist"), "invalid choice: 'emnist'"),
        (("notebook",), "required: NAME"),
        (("notebook", "x", "--tier", "slow"), "invalid choice: 'slow'"),
        (("notebook", "x", "--seed", "-1"), "must be an integer >= 0, got '-1'"),
        (("notebook", "x", "--seed", "1.5"), "must be an integer >= 0, got '1.5'"),
        (("notebook", "x", "--sed", "1"), "unrecognized arguments: --sed 1"),
        (("paper", "--minutes", "0"), "must be a positive number, got '0'"),
        (("paper", "--minutes", "nan"), "must be a positive number, got 'nan'"),
        (("paper", "--workers", "0"), "must be at least 1"),
    ],
)
def test_wrong_usage_exits_with_two(capsys, arguments, message):
    assert message in usage_error(capsys, *arguments)


def test_interrupt_exits_with_130(monkeypatch, capsys):
    def interrupted(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_cli, "data_list", interrupted)
    assert _cli.main(["data", "list"]) == 130
    assert capsys.readouterr().err == "implicitnn: interrupted\n"


# data


def test_data_list_shows_every_set_and_place(project, capsys):
    assert _cli.main(["data", "list"]) == 0
    out = capsys.readouterr().out
    for name in _registry.NAMES:
        assert re.search(rf"^{name} ", out, re.MULTILINE)
    assert "5000 train, 2000 test" in out
    assert "$IMPLICITNN_DATA is not set" in out
    assert str(project / "cache" / "implicitnn") in out


def test_data_verify_passes_on_the_embedded_samples(project, capsys):
    assert _cli.main(["data", "verify"]) == 0
    out = capsys.readouterr().out
    assert out.count("ok     ") == 2
    assert "none   svhn: found nowhere (python -m implicitnn data fetch svhn)" in out


def test_data_verify_fails_on_a_changed_sample(project, capsys):
    path = project / "data" / "embedded" / "mnist.npz"
    path.write_bytes(path.read_bytes() + b"x")
    assert _cli.main(["data", "verify", "mnist"]) == 1
    assert capsys.readouterr().out.startswith("FAULT  mnist, embedded: ")
    assert _cli.main(["data", "verify", "fashion_mnist"]) == 0


def test_data_fetch_without_a_server_fails_with_a_message(project, capsys):
    path = project / "data" / "registry.json"
    registry = json.loads(path.read_text(encoding="utf-8"))
    registry["datasets"]["svhn"]["files"][0]["urls"] = ["http://127.0.0.1:9/train_32x32.mat"]
    path.write_text(json.dumps(registry), encoding="utf-8")
    assert _cli.main(["data", "fetch", "svhn"]) == 1
    err = capsys.readouterr().err
    assert "implicitnn: train_32x32.mat could not be downloaded" in err
    assert "Traceback" not in err


def test_wrong_data_folder_is_a_message(project, monkeypatch, capsys):
    monkeypatch.setenv("IMPLICITNN_DATA", str(project / "nowhere"))
    assert _cli.main(["data", "list"]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err


# notebook


def test_unknown_notebook_lists_the_names(project, capsys):
    assert _cli.main(["notebook", "01_pag"]) == 2
    err = capsys.readouterr().err
    assert "Did you mean 01_page?" in err
    assert "\n  01_page\n" in err


def run_notebook(project, *arguments):
    """Execute in a process of its own, as from a shell."""
    return subprocess.run(
        [sys.executable, "-m", "implicitnn", "notebook", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT / "lib",
    )


def test_notebook_takes_tier_and_seed(project):
    done = run_notebook(project, "01_page", "--tier", "paper", "--seed", "7")
    assert done.returncode == 0, done.stderr
    target = project / "_build" / "notebooks" / "01_page-paper-seed7.ipynb"
    assert done.stdout.strip() == str(target)
    assert "Executing" in done.stderr
    notebook = nbformat.read(target, as_version=4)
    assert notebook.cells[-1].outputs[0].text == "tier=paper seed=7\n"


def test_failing_notebook_is_kept_and_named(project):
    text = CELL.replace('print(f"tier', 'raise ValueError("no such thing"); print(f"tier')
    (project / "notebooks" / "02_fails.md").write_text(text, encoding="utf-8")
    target = project / "out" / "page.ipynb"
    done = run_notebook(project, "02_fails.md", "--output", str(target))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "02_fails stopped in a cell: ValueError: no such thing" in last
    assert str(target) in last
    assert target.is_file()


def test_notebook_without_parameters_is_refused(project, capsys):
    path = project / "notebooks" / "03_none.md"
    path.write_text(CELL.replace(":tags: [parameters]\n", ""), encoding="utf-8")
    assert _cli.main(["notebook", "03_none"]) == 1
    assert "no cell tagged `parameters`" in capsys.readouterr().err


# paper


def row(settings, seed):
    """Return one number."""
    return {"value": settings["a"] + seed}


@pytest.fixture
def studies(project, monkeypatch):
    """Return two studies in place of the project's; one has no tier paper."""
    grid = [{"a": 1}, {"a": 2}]
    small = Study("small", row, {"paper": grid, "quick": grid}, {"paper": [0, 1], "quick": [0]})
    quick = Study("quick_only", row, {"quick": grid}, {"quick": [0]})
    monkeypatch.setattr(_cli_paper, "STUDIES", {"small": small, "quick_only": quick})
    return small


def test_paper_status_then_run_then_status(studies, project, capsys):
    assert _cli.main(["paper", "--status"]) == 0
    assert re.search(r"^small +4 +4 +0 +unknown$", capsys.readouterr().out, re.MULTILINE)
    assert _cli.main(["paper", "small", "--workers", "1"]) == 0
    assert re.search(r"^small +4 +0 +0 +0\.00$", capsys.readouterr().out, re.MULTILINE)
    rows = sweeps.load_rows(project / "data" / "results" / "small.jsonl")
    assert [r.values["value"] for r in rows] == [1, 2, 2, 3]


def test_paper_stops_at_its_budget(studies, project, capsys):
    assert _cli.main(["paper", "--minutes", "1e-9", "--workers", "1"]) == 0
    assert re.search(r"^small +4 +4 +0 ", capsys.readouterr().out, re.MULTILINE)


def test_paper_refuses_unknown_studies(studies, capsys):
    assert _cli.main(["paper", "large"]) == 2
    assert "no study large. There are: small, quick_only" in capsys.readouterr().err
    assert _cli.main(["paper", "quick_only"]) == 2
    assert "no tier paper in quick_only" in capsys.readouterr().err


def test_a_study_that_fails_does_not_stop_the_others(studies, project, monkeypatch, capsys):
    small = _cli_paper.STUDIES["small"]
    failing = Study("failing", fails, small.grids, small.seeds)
    monkeypatch.setattr(_cli_paper, "STUDIES", {"failing": failing, "small": small})
    assert _cli.main(["paper", "--workers", "1"]) == 1
    shown = capsys.readouterr()
    assert "study failing: " in shown.err
    assert len(sweeps.study_rows(small)) == len(small.cells("paper"))


def test_paper_names_the_failing_cell(studies, monkeypatch, capsys):
    failing = Study("small", fails, studies.grids, studies.seeds)
    monkeypatch.setattr(_cli_paper, "STUDIES", {"small": failing})
    assert _cli.main(["paper", "--workers", "1"]) == 1
    err = capsys.readouterr().err
    assert "implicitnn: study small: " in err
    assert "division by zero" in err


def fails(settings, seed):
    """Raise."""
    return {"value": 1 / 0}


def test_status_sums_known_hours(capsys, monkeypatch, studies):
    states = {"small": Status("small", 4, (({"a": 1}, 0),), (), 5400.0)}
    monkeypatch.setattr(sweeps, "status", lambda study: states[study.name])
    assert _cli_paper.status([]) == 0
    assert "Hours left, on one core: 1.50\n" in capsys.readouterr().out


# doctor


def test_doctor_reports_everything(project, capsys):
    assert _cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for title in ("Software", "Processor and threads", "Compiled kernels", "GPU", "Data sets"):
        assert re.search(rf"^{title}$", out, re.MULTILINE)
    assert re.search(r"^  ready in +\d+\.\d s", out, re.MULTILINE)
    assert re.search(r"^  blas +\S+", out, re.MULTILINE)
    assert re.search(r"^  mnist +embedded: 5000 train, 2000 test$", out, re.MULTILINE)
    assert "FAULT" not in out


def test_doctor_data_names_a_fault(project):
    (project / "data" / "embedded" / "mnist.npz").unlink()
    section = doctor.data()
    assert len(section.faults) == 1
    assert "mnist.npz is missing" in section.faults[0]


def test_doctor_data_survives_a_missing_registry(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    section = doctor.data()
    assert "registry.json" in section.faults[0]


def test_doctor_exits_with_one_on_a_fault(monkeypatch, capsys):
    sections = [Section("Data sets", (("mnist", "embedded"),), ("a file is missing",))]
    monkeypatch.setattr(doctor, "report", lambda: sections)
    assert _cli.main(["doctor"]) == 1
    assert "FAULT: a file is missing" in capsys.readouterr().out


# recheck


def test_recheck_compares_stored_cells(studies, project, monkeypatch, capsys):
    import implicitnn.studies as registry

    monkeypatch.setattr(registry, "STUDIES", {"small": _cli_paper.STUDIES["small"]})
    assert _cli.main(["recheck", "--commit", "abc"]) == 1
    assert "no stored cell costs less than 180 s" in capsys.readouterr().err
    assert _cli.main(["paper", "small", "--workers", "1"]) == 0
    capsys.readouterr()
    assert _cli.main(["recheck", "--commit", "abc"]) == 0
    assert "cells agree, 0 skipped" in capsys.readouterr().out
    path = project / "data" / "results" / "small.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["values"] = {key: value + 1 for key, value in line["values"].items()}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _cli.main(["recheck", "--commit", "abc"]) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_corrupt_file_does_not_hide_the_other_sets(project, monkeypatch, capsys, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "mnist.npz").write_bytes(b"no archive")
    monkeypatch.setenv("IMPLICITNN_DATA", str(folder))
    assert _cli.main(["data", "verify"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^FAULT  mnist, looking for files: .*mnist\.npz", out, re.MULTILINE)
    assert re.search(r"^ok     fashion_mnist, embedded", out, re.MULTILINE)
    assert _cli.main(["data", "list"]) == 0
    assert "unreadable: see data verify" in capsys.readouterr().out


def test_a_missing_package_is_named_and_not_shown_as_a_traceback(monkeypatch, capsys):
    def needs_torch(options):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(_cli, "doctor", needs_torch)
    assert _cli.main(["doctor"]) == 1
    message = capsys.readouterr().err
    assert "needs torch" in message and "pip install" in message


def test_a_missing_module_of_our_own_is_a_fault(monkeypatch):
    def broken(options):
        raise ModuleNotFoundError("No module named 'implicitnn.x'", name="implicitnn.x")

    monkeypatch.setattr(_cli, "doctor", broken)
    with pytest.raises(ModuleNotFoundError):
        _cli.main(["doctor"])


def test_data_alone_lists(capsys):
    assert _cli.main(["data"]) == 0
    assert "mnist" in capsys.readouterr().out
