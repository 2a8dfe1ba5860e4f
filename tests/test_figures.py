"""Figures: readable in grey, the same bytes each time, and told in words from their numbers."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from implicitnn import figures
from implicitnn._book.describe import spoken


@pytest.fixture
def ax():
    with figures.style():
        figure, ax = plt.subplots()
        yield ax
        plt.close(figure)


def rows(slope=-0.5, seeds=5):
    return pd.DataFrame(
        [
            {"n": n, "seed": s, "e": (1 + s) * n**slope}
            for n in (100, 400, 1600)
            for s in range(seeds)
        ]
    )


def test_style_is_undone():
    before = dict(mpl.rcParams)
    with figures.style(3, 2):
        assert mpl.rcParams["figure.figsize"] == [3, 2]
        assert mpl.rcParams["font.size"] >= 10
    assert dict(mpl.rcParams) == before


def test_series_differ_in_colour_dashes_and_markers():
    series = figures.looks(8)
    for field in ("color", "marker"):
        assert len({getattr(a, field) for a in series}) == 8
    for one, two in itertools.combinations(series, 2):
        assert (str(one.linestyle), one.marker) != (str(two.linestyle), two.marker)


def test_neighbouring_series_differ_in_grey():
    grey = [np.dot(to_rgb(a.color), [0.2126, 0.7152, 0.0722]) for a in figures.looks(2)]
    assert abs(grey[0] - grey[1]) > 0.03
    assert all(np.dot(to_rgb(a.color), [0.2126, 0.7152, 0.0722]) < 0.7 for a in figures.looks(8))


def test_named_series_keep_their_look():
    assert figures.look("relu") == figures.look("exact") != figures.look("tanh")
    with pytest.raises(ValueError, match=r"'foo'.*relu"):
        figures.look("foo")
    with pytest.raises(ValueError, match="count"):
        figures.looks(9)


def test_a_band_is_the_median_and_quantiles_over_seeds(ax):
    found = figures.band(ax, rows(), "n", "e", label="a", look=figures.look("relu"))
    (line,) = ax.get_lines()
    np.testing.assert_allclose(line.get_ydata(), 3 * np.array([100, 400, 1600.0]) ** -0.5)
    edges = ax.collections[0].get_paths()[0].vertices
    at_100 = edges[edges[:, 0] == 100][:, 1]
    np.testing.assert_allclose([at_100.min(), at_100.max()], [0.14, 0.46])
    assert found.meaning == "Lines: median over 5 seeds; bands: 10 to 90 % of the seeds."
    assert figures.Band(1, 0.1, 0.9).meaning == "Lines: one seed."


def test_bad_bands_are_refused(ax):
    look = figures.look("relu")
    with pytest.raises(ValueError, match="no column 'x'"):
        figures.band(ax, rows(), "x", "e", label="a", look=look)
    with pytest.raises(ValueError, match="several values"):
        figures.band(ax, pd.concat([rows(), rows()]), "n", "e", label="a", look=look)
    with pytest.raises(ValueError, match="enclose the median"):
        figures.band(ax, rows(), "n", "e", label="a", look=look, quantiles=(0.6, 0.9))


def test_a_curve_draws_stored_rows_and_this_build_apart(ax):
    stored, now = rows(seeds=9), rows(seeds=2)
    look = figures.look("relu")
    assert figures.curve(ax, stored, now, "n", "e", label="a", look=look).seeds == 9
    line, marks = ax.get_lines()
    assert marks.get_linestyle() == "None"
    assert marks.get_markerfacecolor() == "none"
    np.testing.assert_allclose(line.get_ydata()[0], 0.5)
    np.testing.assert_allclose(marks.get_ydata()[0], 0.15)
    assert "a, this build: 0.15 at 100 to 0.0375 at 1600." in figures.describe(ax.figure)
    assert len(ax.get_legend_handles_labels()[1]) == 1
    alone = figures.curve(ax, stored.iloc[:0], now, "n", "e", label="b", look=look)
    assert alone.seeds == 2


def test_logarithmic_sizes_are_ticks(ax):
    figures.log_sizes(ax, [400, 100, 200, 200])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["100", "200", "400"]
    figures.log_sizes(ax, 2 ** np.arange(7))
    assert list(ax.get_xticks()) == [1, 4, 16, 64]


def test_histograms(ax):
    figures.histogram(ax, [0, 1, 3], [0.5, 0.25], label="bulk")
    assert "bulk: 2 bins from 0 to 3, peak 0.5 between 0 and 1." in figures.describe(ax.figure)
    with pytest.raises(ValueError, match="2 edges and 2 values"):
        figures.histogram(ax, [0, 1], [0.5, 0.5], label="bulk")
    with pytest.raises(ValueError, match="increase"):
        figures.histogram(ax, [0, 2, 1], [0.5, 0.5], label="bulk")


def test_direct_labels_do_not_overlap(ax):
    for i in range(6):
        ax.plot([0, 1], [0, 1 + 0.001 * i], label=f"series {i}")
    ax.plot([0, 1], [0, 5], label="_hidden")
    figures.direct_labels(ax)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == [f"series {i}" for i in range(6)]
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 0.5 for low, high in itertools.pairwise(boxes))
    right = ax.transData.transform((1, 0))[0]
    assert all(box.x0 > right for box in boxes)


def test_labels_can_be_read_on_white(ax):
    for i, series in enumerate(figures.looks(8)):
        ax.plot([0, 1], [0, i], label=str(i), **series.line())
    figures.direct_labels(ax)
    for text in ax.texts:
        rgb = np.array(to_rgb(text.get_color()))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) >= 4.5


def test_labels_far_apart_stay_at_their_lines(ax):
    ax.plot([0, 1], [0, 0], label="low")
    ax.plot([0, 1], [0, 1], label="high")
    figures.direct_labels(ax)
    assert [text.xyann[1] for text in ax.texts] == [0.0, 0.0]


def draw():
    with figures.style():
        figure, ax = plt.subplots()
        figures.band(ax, rows(), "n", "e", label="ReLU", look=figures.look("relu"))
        ax.set(xscale="log", yscale="log", xlabel="$n$", ylabel=r"error $\|G - \bar G\|$")
        ax.set_title("Error")
        text = figures.svg(figure), figures.png(figure), figures.describe(figure)
        plt.close(figure)
    return text


def test_a_figure_has_the_same_bytes_every_time():
    first, second = draw(), draw()
    assert first == second
    assert "<dc:date>" not in first[0]
    assert first[1].startswith(b"\x89PNG")


def test_the_text_says_axes_series_ends_and_slope():
    assert draw()[2] == (
        "Plot, Error: error ‖G - bar G‖ (log scale) against n (log scale). "
        "ReLU: 0.3 at 100 to 0.075 at 1600, log-log slope -0.5."
    )


def test_the_text_tells_every_kind_of_panel():
    with figures.style():
        figure, axes = plt.subplots(1, 4)
        axes[0].plot([0, 1, 2], [0, 5, 1], label="peak")
        axes[1].bar([0, 1], [3, 4])
        axes[2].scatter([0, 1], [2, 3], label="dots")
        axes[3].imshow([[0, 1], [2, 3]])
        figure.colorbar(axes[3].images[0])
        text = figures.describe(figure)
        plt.close(figure)
    assert "Panel 1: y against x. peak: 0 at 0 to 1 at 2, highest 5 at 1." in text
    assert "Bars: 3, 4." in text
    assert "dots: 2 points, across 0 to 1, up 2 to 3." in text
    assert "Image of 2 x 2 values from 0 to 3." in text
    assert "Panel 5" not in text


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (r"$\sigma_a^2$", "sigma_a^2"),
        (r"$\lVert G \rVert_2$", "‖ G ‖_2"),
        (r"$\mathrm{tr}\, C$", "tr C"),
        ('say "n"\nand m', "say n and m"),
    ],
)
def test_labels_are_spoken_without_tex(label, text):
    assert spoken(label) == text


def test_shared_axes_and_error_bars_keep_their_names():
    with figures.style():
        figure, axes = plt.subplots(2, 2, sharex=True, sharey="row")
        for ax in axes.flat:
            ax.errorbar([1, 2], [3, 4], [0.1, 0.1], label="medians")
        axes[1, 0].set(xlabel="$n$", ylabel="other")
        axes[0, 0].set_ylabel("error")
        text = figures.describe(figure)
        plt.close(figure)
    assert text.count("error against n.") == 2
    assert text.count("other against n.") == 2
    assert text.count("medians: 3 at 1 to 4 at 2.") == 4
