"""Parts of the build: what a notebook depends on, figures, warnings, two builds compared."""

import ast
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book"))
import browser  # noqa: E402
import build_book  # noqa: E402
import check_build  # noqa: E402
import dependencies  # noqa: E402
import install  # noqa: E402
import serve  # noqa: E402
import transform  # noqa: E402

PACKAGE = ROOT / "lib" / "implicitnn"
CLAIMS = [{"id": "A12", "notebook": "08_rates"}]


def write(folder: Path, code: str) -> Path:
    path = folder / "page.md"
    path.write_text(
        "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
        f"---\n\n# Page\n\n```{{code-cell}} ipython3\n{code}\n```\n"
    )
    return path


def test_notebook_depends_on_the_modules_behind_those_it_imports(tmp_path):
    found = dependencies.of_notebook(write(tmp_path, "from implicitnn import specs"))
    assert {PACKAGE / "specs.py", PACKAGE / "gaussian.py", PACKAGE / "_validate.py"} <= found
    assert PACKAGE / "doctor.py" not in found


def test_notebook_depends_on_the_studies_it_names(tmp_path):
    found = dependencies.of_notebook(write(tmp_path, 'rows = page.study("limits")'))
    assert PACKAGE / "studies" / "limits.py" in found
    assert PACKAGE / "studies" / "separation.py" not in found


def test_notebook_depends_on_the_studies_of_the_claims_it_cites(tmp_path):
    found = dependencies.of_notebook(write(tmp_path, 'page.verdicts("A12")'))
    assert PACKAGE / "studies" / "limits.py" in found


def test_notebook_with_data_depends_on_the_embedded_samples(tmp_path):
    found = dependencies.of_notebook(write(tmp_path, "import implicitnn.datasets"))
    assert ROOT / "data" / "embedded" / "mnist.npz" in found
    without = dependencies.of_notebook(write(tmp_path, "%matplotlib inline\nimport numpy"))
    assert without == {tmp_path / "page.md", ROOT / "requirements.lock"}


@pytest.mark.parametrize(
    ("code", "package", "names"),
    [
        ("import implicitnn.specs", "", ["implicitnn.specs"]),
        ("from . import specs", "implicitnn", ["implicitnn", "implicitnn.specs"]),
        ("from .a import b", "implicitnn.studies", ["implicitnn.studies.a"] * 1),
    ],
)
def test_imports_are_read_from_code(code, package, names):
    assert list(dependencies.imported(ast.parse(code), package))[: len(names)] == names


def figure_output() -> dict:
    meta = {
        "kind": "figure",
        "name": "fig-x",
        "caption": "A line. Tier quick, seed 0. Source: notebooks/page.md.",
        "alt": "A line that rises.",
    }
    data = {"image/svg+xml": "<svg/>", "text/plain": "A line"}
    return new_output("display_data", data=data, metadata={"implicitnn": meta})


def test_figure_gets_number_caption_link_and_alt_text():
    notebook = new_notebook(cells=[new_code_cell("plot()", outputs=[figure_output()])])
    figure = transform.with_figures("page", notebook).cells[0].metadata["mystnb"]
    assert figure["image"]["alt"] == "A line that rises."
    assert figure["figure"]["name"] == "fig-x"
    assert figure["figure"]["caption"] == (
        "A line. Tier quick, seed 0. Source: {download}`notebooks/page.md <source/page.md>`."
    )


def test_injected_parameters_are_hidden():
    cell = new_code_cell("seed = 0", metadata={"tags": ["injected-parameters"]})
    notebook = transform.with_figures("page", new_notebook(cells=[cell]))
    assert "remove-cell" in notebook.cells[0].metadata["tags"]


def test_links_between_notebooks_lead_to_documents():
    cell = new_markdown_cell("[a](03_theorem_1.md) [b](08_rates.md#x) [c](../notation.md)")
    notebook = transform.with_links_and_tex(new_notebook(cells=[cell]), [])
    assert notebook.cells[0].source == "[a](03_theorem_1) [b](08_rates#x) [c](../notation.md)"


def test_claims_of_the_ledger_lead_to_their_pages():
    meta = {"implicitnn": {"kind": "ledger"}}
    output = new_output("display_data", data={"text/html": "<td>A12</td>"}, metadata=meta)
    notebook = new_notebook(cells=[new_code_cell("page.ledger()", outputs=[output])])
    table = transform.with_links_and_tex(notebook, CLAIMS).cells[0].outputs[0].data["text/html"]
    assert table == '<td><a href="08_rates.html">A12</a></td>'


def test_tex_in_tables_is_marked_for_mathjax():
    output = new_output("execute_result", data={"text/html": r"<th>$\sqrt{p}$</th><td>5</td>"})
    notebook = new_notebook(cells=[new_code_cell("table", outputs=[output])])
    table = transform.with_links_and_tex(notebook, CLAIMS).cells[0].outputs[0].data["text/html"]
    span = r'<span class="math notranslate nohighlight">\(\sqrt{p}\)</span>'
    assert table == f"<th>{span}</th><td>5</td>"


def test_an_image_outside_a_figure_is_a_complaint():
    bare = new_output("display_data", data={"image/png": "", "text/plain": ""})
    notebook = new_notebook(cells=[new_code_cell("plot()", outputs=[bare, figure_output()])])
    assert len(transform.complaints("page", notebook)) == 1


def test_text_on_standard_error_and_errors_are_complaints():
    warning = new_output("stream", name="stderr", text="DeprecationWarning: old")
    error = new_output("error", ename="ValueError", evalue="bad", traceback=[])
    fine = new_output("stream", name="stdout", text="fine")
    notebook = new_notebook(cells=[new_code_cell("x", outputs=[warning, error, fine])])
    found = transform.complaints("page", notebook)
    assert len(found) == 2 and "old" in found[0] and "bad" in found[1]


def test_traceback_of_a_failed_cell_is_shown(tmp_path):
    error = new_output("error", ename="E", evalue="bad", traceback=["\x1b[31mline 3\x1b[0m"])
    nbformat.write(new_notebook(cells=[new_code_cell("x", outputs=[error])]), tmp_path / "n.ipynb")
    assert build_book.traceback_of(tmp_path / "n.ipynb") == "line 3"
    assert build_book.traceback_of(tmp_path / "none.ipynb") == ""


def test_differences_between_two_builds_are_named():
    first = {"values": {"slope": -0.5, "n": 3}, "only": 1}
    second = {"values": {"slope": -0.4, "n": 3}}
    found = check_build.differences(first, second)
    assert found == ["/only: in one build only", "/values/slope: -0.5 and -0.4"]
    assert check_build.differences(first, first) == []


def test_pages_executed_again_change_with_the_commit():
    choices = {tuple(check_build.chosen(f"{number:040x}", 2)) for number in range(20)}
    assert len(choices) > 1
    assert all(len(set(choice)) == 2 for choice in choices)
    assert not {name for choice in choices for name in choice} & set(build_book.LAST)


def test_a_missing_browser_is_answered_with_the_install_command():
    environment = {**os.environ, "CHROMIUM": "/nowhere/chromium"}
    command = [sys.executable, str(ROOT / "book" / "browser.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "apt-get install chromium" in done.stderr
    assert browser.NAMES[0] == "chromium"


def test_another_python_is_refused_with_advice(monkeypatch, capsys):
    monkeypatch.setattr(install.sys, "version_info", (3, 9, 1))
    assert install.check() == 1
    assert "Python 3.11 is needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("-1.5", "\u22121.5"),
        ("[-0.2, 1e-05]", "[\u22120.2, 1e\u221205]"),
        ("-0.1 to -.2", "\u22120.1 to \u2212.2"),
        ("CIFAR-10, 2026-12-01", "CIFAR-10, 2026-12-01"),
        ("$x^{-1}$", "$x^{-1}$"),
        ("n - 1", "n - 1"),
    ],
)
def test_numbers_in_tables_have_a_minus(cell, shown):
    row = f'<table><tr><td class="a-1">{cell}</td></tr></table>'
    assert transform.with_minus(row) == row.replace(cell, shown)
    assert transform.with_minus(f"<p>{cell}</p>") == f"<p>{cell}</p>"


@pytest.fixture
def served(tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("<p>book</p>")
    monkeypatch.setattr(serve, "HTML", tmp_path)


def test_a_port_that_is_taken_is_said_in_a_line(served, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert serve.main(["--port", str(port)]) == 1
    assert serve.main(["--port", "70000"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("cannot be used" in line for line in lines)


def test_the_book_is_served_until_it_is_stopped(served, capsys, monkeypatch):
    def once(server):
        server.handle_request()
        raise KeyboardInterrupt

    monkeypatch.setattr(serve.http.server.ThreadingHTTPServer, "serve_forever", once)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pages = []
    reader = threading.Thread(target=lambda: pages.append(fetched(port)))
    reader.start()
    assert serve.main(["--port", str(port)]) == 0
    reader.join()
    assert pages == [b"<p>book</p>"]


def fetched(port):
    """The first page, asked for until the server is there."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.05)
    return None


def test_without_a_book_nothing_is_served(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(serve, "HTML", tmp_path)
    assert serve.main([]) == 1
    assert "make book" in capsys.readouterr().err
