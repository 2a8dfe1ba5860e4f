"""One style for every figure: series told apart in grey, bands over seeds, text for the blind.

Nothing here changes global state: use ``with figures.style():`` around the code of a figure.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from implicitnn._book.describe import describe
from implicitnn._validate import FloatArray, real_array

__all__ = [
    "Band",
    "Look",
    "band",
    "curve",
    "describe",
    "direct_labels",
    "histogram",
    "log_sizes",
    "look",
    "looks",
    "png",
    "style",
    "svg",
]


@dataclass(frozen=True)
class Look:
    """How a series is drawn: colour, dash pattern and marker all differ between series."""

    color: str
    linestyle: Any
    marker: str

    def line(self) -> dict[str, Any]:
        """Return keyword arguments for ``Axes.plot``."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}


# Okabe and Ito's colours without the yellow, which is too pale for lines; ordered so that
# neighbours differ in lightness.
_CYCLE = (
    Look("#0072B2", "-", "o"),
    Look("#D55E00", (0, (5, 1.5)), "s"),
    Look("#009E73", (0, (1, 1)), "^"),
    Look("#CC79A7", (0, (5, 1.5, 1, 1.5)), "D"),
    Look("#56B4E9", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Look("#E69F00", (0, (8, 2)), "P"),
    Look("#000000", (0, (2, 2)), "X"),
    Look("#7F7F7F", (0, (6, 1, 2, 1)), "*"),
)
_NAMED = {
    "relu": 0, "tanh": 1, "swish": 2, "leaky_relu": 3, "elu": 4, "gelu": 5, "erf": 6,
    "hard_tanh": 7, "exact": 0, "theory": 1, "simulation": 2, "corrected": 0, "published": 1,
    "ck": 0, "ntk": 1, "mnist": 0, "fashion_mnist": 1, "mixture": 6, "twin": 7,
}  # fmt: skip


def look(name: str) -> Look:
    """Return the look of a named series; the part of a name after '(' does not matter.

    Examples
    --------
    >>> look("leaky_relu(0.01)") == look("leaky_relu")
    True
    """
    stem = name.split("(")[0]
    if stem not in _NAMED:
        raise ValueError(f"no look for a series named {name!r}; named are {', '.join(_NAMED)}")
    return _CYCLE[_NAMED[stem]]


def looks(count: int) -> tuple[Look, ...]:
    """Return ``count`` different looks, at most eight: more lines belong in another panel."""
    if not 1 <= count <= len(_CYCLE):
        raise ValueError(f"count must lie in 1..{len(_CYCLE)}, got {count}")
    return _CYCLE[:count]


@contextmanager
def style(width: float = 6.4, height: float = 3.8) -> Iterator[None]:
    """Draw figures inside in the style of the book; ``width`` and ``height`` in inches.

    Examples
    --------
    >>> before = mpl.rcParams["font.size"]
    >>> with style():
    ...     mpl.rcParams["svg.hashsalt"]
    'implicitnn'
    >>> mpl.rcParams["font.size"] == before
    True
    """
    parameters: dict[Any, Any] = {
        "figure.figsize": (width, height),
        "figure.dpi": 100,
        "savefig.dpi": 150,
        "figure.constrained_layout.use": True,
        "font.family": ["DejaVu Sans"],
        "mathtext.fontset": "dejavusans",
        "font.size": 11,
        "axes.titlesize": 11,
        "axes.labelsize": 11,
        "legend.fontsize": 10,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "legend.frameon": False,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "svg.fonttype": "path",
        "svg.hashsalt": "implicitnn",
        "axes.prop_cycle": cycler(
            color=[a.color for a in _CYCLE],
            linestyle=[a.linestyle for a in _CYCLE],
            marker=[a.marker for a in _CYCLE],
        ),
    }
    with mpl.rc_context(parameters):
        yield


@dataclass(frozen=True)
class Band:
    """What a band shows: the number of seeds and the quantiles between its edges."""

    seeds: int
    low: float
    high: float

    @property
    def meaning(self) -> str:
        """One sentence for the caption."""
        if self.seeds == 1:
            return "Lines: one seed."
        edges = f"{100 * self.low:g} to {100 * self.high:g} %"
        return f"Lines: median over {self.seeds} seeds; bands: {edges} of the seeds."


def band(
    ax: Axes,
    rows: pd.DataFrame,
    x: str,
    y: str,
    *,
    label: str,
    look: Look,
    quantiles: tuple[float, float] = (0.1, 0.9),
) -> Band:
    """Draw the median of column ``y`` over seeds against column ``x``, with a band of quantiles.

    Parameters
    ----------
    ax : Axes
    rows : DataFrame
        Columns ``x``, ``y`` and ``seed``; one row per x and seed.
    label : str
        Name of the series.
    look : Look
        Colour, dashes and marker.
    quantiles : (float, float)
        Lower and upper edge of the band.

    Returns
    -------
    Band
        Its ``meaning`` belongs in the caption.
    """
    for column in (x, y, "seed"):
        if column not in rows:
            raise ValueError(f"rows have no column {column!r}, only {list(rows)}")
    low, high = quantiles
    if not 0 <= low <= 0.5 <= high <= 1:
        raise ValueError(f"quantiles must enclose the median, got {quantiles}")
    if rows.duplicated([x, "seed"]).any():
        raise ValueError(f"rows hold several values of {y!r} at one {x} and seed: select first")
    grouped = rows.groupby(x, sort=True)[y]
    middle = grouped.median()
    (line,) = ax.plot(middle.index, middle.to_numpy(), label=label, **look.line())
    ax.fill_between(
        middle.index,
        grouped.quantile(low).to_numpy(),
        grouped.quantile(high).to_numpy(),
        color=line.get_color(),
        alpha=0.2,
        linewidth=0,
    )
    return Band(int(rows["seed"].nunique()), low, high)


def curve(
    ax: Axes,
    stored: pd.DataFrame,
    now: pd.DataFrame,
    x: str,
    y: str,
    *,
    label: str,
    look: Look,
) -> Band:
    """Draw stored rows as a line with its band, and the rows of this build as hollow markers.

    Where nothing is stored the line and the band come from this build. Both tables need the
    columns ``x``, ``y`` and ``seed``. Returns the meaning of the band.
    """
    if stored.empty:
        return band(ax, now, x, y, label=label, look=look)
    shown = band(ax, stored, x, y, label=label, look=look)
    middle = now.groupby(x, sort=True)[y].median()
    ax.plot(
        middle.index,
        middle.to_numpy(),
        color=look.color,
        linestyle="none",
        marker=look.marker,
        markerfacecolor="none",
        markersize=9,
        # Hidden from legends by the underscore, told in the alternative text.
        label=f"_{label}, this build",
    )
    return shown


def log_sizes(ax: Axes, sizes: ArrayLike) -> None:
    """Make both axes logarithmic, with a tick at each size on the horizontal one.

    With more than six sizes every other one is labelled, the largest always.
    """
    values = np.unique(real_array(sizes, "sizes", 1))
    kept = values if values.size <= 6 else values[::-2][::-1]
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(kept, [f"{value:g}" for value in kept])
    ax.set_xticks([], minor=True)


def histogram(
    ax: Axes, edges: ArrayLike, density: ArrayLike, *, label: str, color: str = "#9ecae1"
) -> None:
    """Draw a density given on bins as filled steps; theory is drawn over it as a line.

    Parameters
    ----------
    edges : array_like, shape (bins + 1,)
        Increasing.
    density : array_like, shape (bins,)
        Non-negative heights.
    """
    sides, heights = real_array(edges, "edges", 1), real_array(density, "density", 1)
    if sides.size != heights.size + 1 or (np.diff(sides) <= 0).any() or (heights < 0).any():
        raise ValueError(
            f"edges must increase and be one more than the non-negative density values, got "
            f"{sides.size} edges and {heights.size} values"
        )
    ax.stairs(heights, sides, fill=True, color=color, label=label)


def direct_labels(ax: Axes, *, gap: float = 3.0) -> None:
    """Write each labelled line's name at its right end, moved apart where they would overlap.

    ``gap`` is the free space between two labels in points. The labels stand in for a legend.
    """
    lines = [a for a in ax.get_lines() if isinstance(a, Line2D) and _labelled(a)]
    figure = ax.figure
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    ends: list[tuple[float, Line2D, np.ndarray[Any, Any]]] = []
    for line in lines:
        points = np.column_stack([np.asarray(a, dtype=float) for a in line.get_data()])
        last = points[np.isfinite(points).all(axis=1)][-1]
        ends.append((float(ax.transData.transform(last)[1]), line, last))
    ends.sort(key=lambda end: end[0])
    size = float(mpl.rcParams["legend.fontsize"])
    pixels = figure.dpi / 72
    heights = _spread([y for y, _, _ in ends], (size + gap) * pixels)
    right = max((float(ax.transData.transform(p)[0]) for _, _, p in ends), default=0.0)
    for height, (_, line, last) in zip(heights, ends, strict=True):
        start = ax.transData.transform(last)
        ax.annotate(
            str(line.get_label()),
            xy=(last[0], last[1]),
            xytext=((right - start[0]) / pixels + 8, (height - start[1]) / pixels),
            textcoords="offset points",
            color=_ink(str(line.get_color())),
            fontsize=size,
            va="center",
            annotation_clip=False,
        )


def _ink(color: str) -> tuple[float, float, float]:
    """Return the colour darkened until text in it stands out 4.5 to 1 against white (WCAG AA)."""
    shade = np.array(to_rgb(color))
    while _luminance(shade) > 1.05 / 4.5 - 0.05:
        shade *= 0.97
    return float(shade[0]), float(shade[1]), float(shade[2])


def _luminance(rgb: FloatArray) -> float:
    """Return the relative luminance of sRGB values in [0, 1], as WCAG defines it."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def _labelled(line: Line2D) -> bool:
    return not str(line.get_label()).startswith("_") and len(np.atleast_1d(line.get_xdata())) > 0


def _spread(heights: Sequence[float], least: float) -> list[float]:
    """Move increasing heights apart to at least ``least``, keeping each cluster centred.

    Clusters of labels that would touch are merged until none do.
    """
    clusters = [[height, 1.0] for height in heights]
    merged: list[list[float]] = []
    for cluster in clusters:
        merged.append(cluster)
        while len(merged) > 1:
            (low, k), (high, m) = merged[-2], merged[-1]
            if high - low >= least * (k + m) / 2:
                break
            merged[-2:] = [[(low * k + high * m) / (k + m), k + m]]
    return [
        centre + least * (i - (count - 1) / 2)
        for centre, count in merged
        for i in range(int(count))
    ]


def svg(figure: Figure) -> str:
    """Return the figure as SVG text, the same bytes for the same figure."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "implicitnn", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().decode("utf-8")


def png(figure: Figure) -> bytes:
    """Return the figure as PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
