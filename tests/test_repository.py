"""The repository itself: pins that agree, metadata that validates, a layout that holds."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jupytext
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TOP = {
    "README.md",
    "environment.yml",
    "pyproject.toml",
    "requirements.lock",
    "Makefile",
    "dodo.py",
    "CITATION.cff",
    "LICENSE",
    "LICENSE-TEXT",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "lib",
    "notebooks",
    "book",
    "data",
    "tests",
    "benchmarks",
}
LIBRARY = sorted((ROOT / "lib" / "implicitnn").rglob("*.py"))
# Links inside the book are checked by its build.
TEXTS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "data").rglob("*.md"))


def pins(lines: list[str]) -> dict[str, str]:
    """Name and version of every pinned package."""
    found = (line.split("==") for line in lines if "==" in line)
    return {name.strip().lower().replace("_", "-"): version.strip() for name, version in found}


def lock() -> dict[str, str]:
    return pins((ROOT / "requirements.lock").read_text().splitlines())


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_conda_environment_has_the_pins_of_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (nested,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert pins(nested) == lock()
    assert conda == ["python=3.11", "pip"]


def test_lock_pins_everything_exactly_and_names_no_local_build():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line), line
    assert lock()["torch"] == "2.13.0"


def test_lock_covers_what_the_project_asks_for():
    wanted = list(project()["dependencies"])
    for extra in project()["optional-dependencies"].values():
        wanted += extra
    names = {re.match(r"[A-Za-z0-9._-]+", entry).group().lower() for entry in wanted}
    assert names <= set(lock())


def test_installed_versions_are_those_of_the_lock():
    from importlib.metadata import version

    for name in ("numpy", "scipy", "numba", "matplotlib", "jupyter-book", "sphinx", "papermill"):
        assert version(name) == lock()[name]


def test_citation_file_is_valid():
    command = [
        str(Path(sys.executable).with_name("cffconvert")),
        "--validate",
        "-i",
        "CITATION.cff",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["authors"] == [{"name": "The implicitnn contributors"}]
    assert citation["version"] == project()["version"]


def test_top_level_is_complete():
    assert {name for name in TOP if not (ROOT / name).exists()} == set()


def test_licences_are_whole():
    assert "The implicitnn contributors" in (ROOT / "LICENSE").read_text()
    text = (ROOT / "LICENSE-TEXT").read_text()
    assert text.startswith("Attribution 4.0 International")
    assert all(f"\nSection {number} -- " in text for number in range(1, 9))
    assert "Apache License" in (ROOT / "book/_static/mathjax/LICENSE").read_text()


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_library_modules_stay_small(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_public_functions_take_no_open_keywords(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert node.args.kwarg is None, f"{path.name}: {node.name}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_of_text_files_resolve(path):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert missing == []


def test_notebooks_carry_no_outputs():
    assert list((ROOT / "notebooks").glob("*.ipynb")) == [] or _ignored("notebooks/x.ipynb")


def _ignored(path: str) -> bool:
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.md")), ids=lambda p: p.stem)
def test_notebook_has_parameters_and_a_title(path):
    text = path.read_text()
    assert re.search(r":tags: \[.*parameters.*\]", text) or '"parameters"' in text
    assert re.search(r'(?m)^tier = "quick"$', text) and re.search(r"(?m)^seed = 0$", text)
    assert re.search(r"(?m)^# \S", text)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.md")), ids=lambda p: p.stem)
def test_every_cell_of_a_notebook_is_read_as_one(path):
    # A fence with backticks in its title is none, and swallows the cells that follow.
    text = path.read_text()
    cells = sum(cell.cell_type == "code" for cell in jupytext.reads(text, fmt="md:myst").cells)
    assert cells == len(re.findall(r"(?m)^```\{code-cell\}", text))


def test_make_help_names_every_public_target():
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", makefile)
    help_text = makefile.split("help:")[1].split("\n\n")[0]
    missing = [name for name in phony.split() if f"make {name} " not in help_text]
    assert set(missing) <= {"help", "browser", "lint", "types", "distclean"}
