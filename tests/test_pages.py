"""Pages: what they show carries its metadata, what they leave behind does not vary."""

import json
import os
import re

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import papermill
import pytest

from implicitnn import claims, figures, pages, sweeps
from implicitnn._book import tables as _page_tables
from implicitnn._book import words as _words
from implicitnn.pages import Page
from implicitnn.sweeps import Study

LEDGER = """
schema: 1
claims:
  - id: Z1
    paper: A
    place: Theorem <1>
    statement: The value is 6 | or so.
    kind: numeric
    hypotheses: []
    notebook: toy
    expected: {verdict: partly reproduced, why: Half of it holds.}
    parts:
      - name: mean
        study: toy
        by: [n]
        statistic: {name: mean, y: value}
        rule: {value_at_most: 2}
      - name: never run
        study: absent
        statistic: {name: maximum, y: value}
        rule: {value_at_most: 2}
        informative: true
"""


def row(settings, seed):
    return {"value": float(settings["n"] * (seed + 1))}


STUDY = Study(
    "toy", row, {"quick": [{"n": 1}], "paper": [{"n": 1}, {"n": 2}]},
    {"quick": [0, 1], "paper": [0, 1]}, claims=("Z1",),
)  # fmt: skip


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/claims.yml").write_text(LEDGER)
    monkeypatch.setenv("IMPLICITNN_ROOT", str(tmp_path))
    monkeypatch.setenv("IMPLICITNN_BUILD", str(tmp_path / "out"))
    monkeypatch.setattr(pages, "STUDIES", {"toy": STUDY})
    monkeypatch.setattr("implicitnn.studies.STUDIES", {"toy": STUDY})
    return Page("toy_page", "quick", 0)


@pytest.fixture
def shown(monkeypatch):
    """Collect what a page shows."""
    found = []
    monkeypatch.setattr(pages, "_show", lambda bundle, meta: found.append((bundle, meta)))
    return found


def figure(points=3):
    with figures.style():
        drawing, ax = plt.subplots()
        ax.plot(np.arange(points), np.sin(np.arange(points)), label="a", marker="o")
        return drawing


def evidence(tmp_path, name="toy_page"):
    return json.loads((tmp_path / "out/evidence" / f"{name}.json").read_text())


def test_a_figure_carries_name_caption_and_text(page, shown, tmp_path):
    band = figures.Band(5, 0.1, 0.9)
    page.figure(figure(), "fig-toy", "Error\nagainst $n$.", band=band, seeds=[0, 1, 2, 4])
    ((bundle, meta),) = shown
    assert bundle["image/svg+xml"].startswith("<?xml")
    assert meta == {
        "kind": "figure",
        "name": "fig-toy",
        "caption": "Error against $n$. Lines: median over 5 seeds; bands: 10 to 90 % of the seeds. "
        "Tier quick, seeds 0-2, 4. Source: notebooks/toy_page.md.",
        "alt": bundle["text/plain"],
        "tier": "quick",
        "source": "notebooks/toy_page.md",
    }
    assert meta["alt"].startswith("Plot: y against x. a: 0 at 0 to 0.9093 at 2")
    assert evidence(tmp_path)["figures"]["fig-toy"]["mime"] == "image/svg+xml"
    assert plt.get_fignums() == []
    with pytest.raises(ValueError, match="already has a figure"):
        page.figure(figure(), "fig-toy", "Again.")
    with pytest.raises(ValueError, match="letters, digits"):
        page.figure(figure(), "fig toy", "Again.")
    with pytest.raises(ValueError, match="tier"):
        page.figure(figure(), "fig-other", "Again.", tier="huge")
    plt.close("all")


def test_a_large_drawing_becomes_a_picture(page, shown, tmp_path):
    page.figure(figure(20000), "fig-large", "Many points.")
    ((bundle, _),) = shown
    assert set(bundle) == {"image/png", "text/plain"}
    assert evidence(tmp_path)["figures"]["fig-large"]["bytes"] < 300_000


def test_a_study_gives_its_rows_and_the_stored_ones(page, shown, tmp_path):
    first = page.study("toy")
    assert list(first.now["value"]) == [1.0, 2.0]
    assert first.paper.empty
    stored = sweeps.run_study(STUDY, "paper", workers=1, progress=False)
    assert len(page.study("toy").paper) == len(stored) == 4
    assert (tmp_path / "out/quick/toy.jsonl").is_file()
    shifted = Page("other", "quick", 7).study("toy")
    assert list(shifted.now["seed"]) == [7, 8]
    page.figure(figure(), "fig-now", "Now.")
    page.figure(figure(), "fig-stored", "Stored.", tier="paper")
    assert "Tier quick, seeds 0-1." in shown[0][1]["caption"]
    assert "Tier paper, seeds 0-1." in shown[1][1]["caption"]
    assert Page("paper_page", "paper").study("toy").now.equals(page.study("toy").paper)


def test_part_of_a_grid_is_counted_and_not_shown(page, shown, tmp_path):
    sweeps.run_study(STUDY, "paper", workers=1, progress=False)
    path = sweeps.study_path(STUDY, "paper")
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    assert page.study("toy").paper.empty
    assert page.stored("toy").empty
    page.provenance()
    assert "toy (3 of 4 cells stored)" in shown[0][0]["text/html"]
    sweeps.run_study(STUDY, "paper", workers=1, progress=False)
    whole = Page("whole", "quick", 0)
    assert len(whole.stored("toy")) == 4
    whole.provenance()
    assert "cells stored" not in shown[1][0]["text/html"]


def test_verdicts_say_statistic_rule_rows_and_verdict(page, shown, tmp_path):
    sweeps.run_study(STUDY, "paper", workers=1, progress=False)
    page.verdicts("Z1")
    ((bundle, meta),) = shown
    html = bundle["text/html"]
    assert meta == {"kind": "verdicts", "claims": ("Z1",)}
    for text in (
        "Theorem &lt;1&gt;", "mean of value (95 % t interval over seeds)", "value at most 2",
        "n = 1", "1.500 [", "holds", "fails", "no evidence", "never run (shown, not counted)",
        "1 of 2 lines hold, from stored rows of tier paper", "all up to date",
        '<span class="inn-badge inn-partly-reproduced">Z1: partly reproduced</span>',
    ):  # fmt: skip
        assert text in html, text
    assert "<script" not in html
    assert "http" not in html
    assert "**Z1: partly reproduced.**" in bundle["text/markdown"]
    assert evidence(tmp_path)["claims"]["Z1"]["status"] == "partly reproduced"
    page.badge("Z1")
    assert "Z1: partly reproduced" in shown[1][0]["text/html"]
    page.ledger()
    assert "The value is 6 \\| or so." in shown[2][0]["text/markdown"]
    with pytest.raises(ValueError, match=r"no claims \['Q'\]; it has Z1"):
        page.verdicts("Q")


def test_stale_rows_are_shown_as_stale(page, shown, tmp_path):
    sweeps.run_study(STUDY, "paper", workers=1, progress=False)
    path = tmp_path / "data/results/toy.jsonl"
    path.write_text(re.sub(r'"code": "\w+"', '"code": "old"', path.read_text()))
    page.verdicts("Z1")
    assert page.evidence["claims"]["Z1"]["status"] == "stale"
    assert "some of them stale" in shown[0][0]["text/html"]


def test_without_stored_rows_nothing_is_attempted(page, shown):
    page.verdicts("Z1")
    assert page.evidence["claims"]["Z1"]["status"] == "not attempted"
    assert "0 of 4 cells are stored" in shown[0][0]["text/html"]


def test_records_are_plain_and_used_once(page, tmp_path):
    page.record("gap", np.float64(0.25))
    page.record("name", "relu")
    assert evidence(tmp_path)["values"] == {"gap": 0.25, "name": "relu"}
    for key, value, words in (
        ("gap", 1, "already recorded"), ("nan", float("nan"), "nan"), ("a b", 1, "letters"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            page.record(key, value)


def test_provenance_names_everything(page, shown):
    page.study("toy")
    page.provenance()
    text = shown[0][0]["text/plain"]
    for item in (
        "Tier; quick", "Seeds; 0-1", "toy (", f"numpy {np.__version__}", "cores",
        "python -m implicitnn notebook toy_page --tier quick --seed 0",
    ):  # fmt: skip
        assert item in text, item


def test_data_are_named_with_their_hash(page, shown, tmp_path):
    class Origin:
        name, split, place, data_sha256 = "mnist", "test", "embedded", "ab" * 32

    class Images:
        X, provenance = np.zeros((5, 2)), Origin

    assert page.data(Images) is Images
    page.provenance()
    assert "mnist test, 5 images (embedded) (sha256 abababababab)" in shown[0][0]["text/plain"]
    assert evidence(tmp_path)["data"] == {"mnist test, 5 images (embedded)": "ab" * 32}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("a/b",), ValueError), (("p", "huge"), ValueError), (("p", "quick", -1), ValueError),
     (("p", "quick", None), TypeError)],
)  # fmt: skip
def test_bad_pages_are_refused(tmp_path, arguments, error):
    with pytest.raises(error):
        Page(*arguments, build=tmp_path)


def test_a_badge_has_a_known_status():
    with pytest.raises(ValueError, match="status"):
        _page_tables.badge_html("fine", "fine")


@pytest.mark.parametrize(
    ("seeds", "text"), [([0, 1, 2], "0-2"), ([5], "5"), ([3, 0, 1], "0-1, 3"), ([], "none")]
)
def test_seeds_are_written_as_runs(seeds, text):
    assert pages._spans(seeds) == text


CELLS = [
    "from implicitnn import figures\nfrom implicitnn.pages import Page\n"
    "import matplotlib.pyplot as plt\nimport numpy as np\n"
    "page = Page('executed', tier, seed)",
    "y = np.random.default_rng(seed).normal(size=50)\n"
    "with figures.style():\n    fig, ax = plt.subplots()\n    ax.plot(y, label='noise')\n"
    "page.figure(fig, 'fig-noise', 'Noise.')",
    "page.glue('mean_noise', y.mean())",
    "fig = plt.figure()\npage.figure(fig, 'fig-a', 'A.')\n"
    "try:\n    page.figure(fig, 'fig-b', 'B.')\n"
    "except RuntimeError as error:\n    print(error)",
    "page.provenance()",
]


def execute(folder, build, monkeypatch):
    monkeypatch.setenv("IMPLICITNN_BUILD", str(build))
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("tier = 'quick'\nseed = 0",
                                         metadata={"tags": ["parameters"]})]
        + [nbformat.v4.new_code_cell(text) for text in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3",
                                 "language": "python"}},
    )  # fmt: skip
    source, target = folder / "in.ipynb", build / "out.ipynb"
    build.mkdir()
    nbformat.write(notebook, source)
    papermill.execute_notebook(source, target, {"seed": 3}, progress_bar=False)
    left = json.loads((build / "evidence/executed.json").read_text())
    return nbformat.read(target, 4), left


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_an_executed_page_carries_its_metadata_and_repeats_exactly(tmp_path, monkeypatch):
    first, left = execute(tmp_path, tmp_path / "one", monkeypatch)
    second, again = execute(tmp_path, tmp_path / "two", monkeypatch)
    kinds = [
        (output.get("metadata", {}).get("implicitnn", {}).get("kind"), output.output_type)
        for cell in first.cells
        for output in cell.get("outputs", [])
    ]
    assert kinds == [
        ("figure", "display_data"),
        (None, "display_data"),
        ("figure", "display_data"),
        (None, "stream"),
        ("provenance", "display_data"),
    ]
    outputs = [cell.outputs for cell in first.cells if cell.get("outputs")]
    assert outputs[1][0].metadata.scrapbook.name == "mean_noise"
    assert "a cell shows one figure" in outputs[2][1].text
    assert left.pop("volatile") != again.pop("volatile")
    assert left == again
    assert left["seed"] == 3
    drawings = [nb.cells[3].outputs[0].data["image/svg+xml"] for nb in (first, second)]
    assert drawings[0] == drawings[1]
    assert os.listdir(tmp_path / "one/evidence") == ["executed.json"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sigma_a2, K_all", "\u03c3<sub>a</sub><sup>2</sup>, K<sub>all</sub>"),
        (
            "gamma2, sigma_2 and alpha2",
            "\u03b3<sup>2</sup>, \u03c3<sub>2</sub> and \u03b1<sub>2</sub>",
        ),
        ("O(p^{-1/2}), sqrt(log n)", "O(p<sup>\u22121/2</sup>), \u221a(log n)"),
        ("slope of ck_covariance_scale_absolute at n = 8", None),
        ("python -m implicitnn notebook 03_theorem_1 --seed 0", None),
        ("n < 2 & p > 1", "n &lt; 2 &amp; p &gt; 1"),
    ],
)
def test_formulas_in_plain_text_are_set_and_names_of_columns_are_not(text, shown):
    assert _words.symbols(text) == (text if shown is None else shown)


def test_a_page_judges_a_claim_once(page, shown, monkeypatch):
    judged = []
    judge = claims.judge
    monkeypatch.setattr(claims, "judge", lambda claim: judged.append(claim.id) or judge(claim))
    page.badge("Z1")
    page.verdicts("Z1")
    assert judged == ["Z1"]


@pytest.mark.parametrize(
    ("triple", "text"),
    [
        ((0.99999876, 0.9999984, 0.9999991), "0.9999988 [0.9999984, 0.9999991]"),
        ((1.0, 1.0, 1.0), "1 [1, 1]"),
        ((1 - 2e-9, 1 - 2e-9, 1 - 2e-9), "0.9999999980 [0.9999999980, 0.9999999980]"),
        ((1.054, 1.05, 1.065), "1.054 [1.050, 1.065]"),
        ((156.0, 153.5, 158.4), "156.0 [153.5, 158.4]"),
        ((0.0, -0.25, 0.25), "0.0000 [-0.2500, 0.2500]"),
        ((0.0, 0.0, 0.0), "0 [0, 0]"),
        ((9.928e-5, 9.619e-5, 1.024e-4), "9.928e-5 [9.619e-5, 1.0240e-4]"),
        ((2.5e7, 2.4e7, 2.6e7), "2.500e7 [2.400e7, 2.600e7]"),
        ((2.0, 2.0, float("inf")), "2 [2, inf]"),
    ],
)
def test_an_interval_keeps_the_digits_that_tell_its_ends_apart(triple, text):
    assert _words.interval(*triple) == text


@pytest.mark.parametrize("centre", [1.0, -0.37, 4e-7, 123456.0])
@pytest.mark.parametrize("power", range(-9, 0))
def test_no_interval_reads_as_a_point(centre, power):
    """At every relative width down to 1e-9 the three numbers read back apart and in order."""
    width = abs(centre) * 1.01 * 10.0**power
    text = _words.interval(centre, centre - width, centre + 2 * width)
    value, low, high = (float(part) for part in re.findall(r"-?[\d.]+(?:e-?\d+)?", text))
    assert low < value < high
    assert abs(low - (centre - width)) < width
    assert abs(high - (centre + 2 * width)) < width


def test_the_rule_of_a_part_heads_its_lines():
    table = _page_tables.Table(
        "verdicts", "C", ("Group", "Value", "Outcome"),
        ((_page_tables.Cell(": mean < 2", lead="part_1"),),
         tuple(map(_page_tables.Cell, ("all", "1", "holds")))),
    )  # fmt: skip
    assert (
        '<tr class="inn-part"><th scope="rowgroup" colspan="3"><strong>part_1</strong>: mean &lt; 2'
        "</th></tr><tr><td>all</td>"
    ) in table.html()
    assert table.markdown().splitlines()[2] == "| **part\\_1**: mean \\< 2 |  |  |"
    assert table.plain() == "C\npart_1: mean < 2\nall; 1; holds"
