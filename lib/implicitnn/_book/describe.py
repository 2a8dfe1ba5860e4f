"""Text that stands in for a figure, made from the numbers that are plotted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from implicitnn._book.words import number
from implicitnn._validate import FloatArray

_TEX = {
    r"\lVert": "‖",
    r"\rVert": "‖",
    r"\Vert": "‖",
    r"\|": "‖",
    r"\bar": "bar ",
    r"\overline": "bar ",
    r"\mathrm": "",
    r"\mathbf": "",
    r"\mathcal": "",
    r"\hat": "hat ",
    r"\tilde": "tilde ",
    r"\left": "",
    r"\right": "",
    r"\,": " ",
    r"\;": " ",
    r"\ ": " ",
    r"\cdot": "·",
    r"\times": "×",
    r"\infty": "∞",
    r"\rightarrow": "→",
    r"\to": "→",
    r"\leq": "≤",
    r"\geq": "≥",
    r"\ast": "*",
    r"\sqrt": "sqrt ",
    r"\log": "log",
    r"\alpha": "alpha",
    r"\beta": "beta",
    r"\gamma": "gamma",
    r"\sigma": "sigma",
    r"\tau": "tau",
    r"\lambda": "lambda",
    r"\mu": "mu",
    r"\rho": "rho",
    r"\kappa": "kappa",
    r"\psi": "psi",
    r"\phi": "phi",
    r"\xi": "xi",
    r"\Sigma": "Sigma",
}
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)")


def spoken(text: str) -> str:
    r"""Return a label without dollars, braces and TeX commands, on one line.

    Examples
    --------
    >>> spoken(r"$\sigma_a^{2}$ and $n$")
    'sigma_a^2 and n'
    >>> spoken(r"$\Vert\Sigma\Vert$")
    '‖Sigma‖'
    """
    text = _COMMAND.sub(lambda found: _TEX.get(found[0], found[0][1:]), text)
    return " ".join(re.sub(r"[${}\\\"]", "", text).split())


def describe(figure: Figure) -> str:
    """Return one line of text saying what the figure's panels show, with start and end values."""
    panels = [ax for ax in figure.axes if _has_data(ax)]
    title = spoken(figure.get_suptitle())
    texts = [_panel(ax, i + 1 if len(panels) > 1 else 0) for i, ax in enumerate(panels)]
    return " ".join(([f"{title}."] if title else []) + texts) or "An empty figure."


def _has_data(ax: Axes) -> bool:
    # A colour bar is an axes of its own; its image is told with the panel it belongs to.
    return ax.has_data() and ax.get_label() != "<colorbar>"


def _panel(ax: Axes, index: int) -> str:
    head = f"Panel {index}" if index else "Plot"
    title = spoken(ax.get_title() or ax.get_title("left"))
    head += f", {title}" if title else ""
    across = _axis(_label(ax, "x"), ax.get_xscale(), "x")
    upward = _axis(_label(ax, "y"), ax.get_yscale(), "y")
    parts = [f"{head}: {upward} against {across}."]
    loglog = ax.get_xscale() == "log" and ax.get_yscale() == "log"
    lines = [line for line in ax.get_lines() if len(np.atleast_1d(line.get_xdata())) > 1]
    names = _errorbar_names(ax)
    parts += [_line(line, loglog, names.get(line)) for line in lines]
    parts += [_steps(patch) for patch in ax.patches if isinstance(patch, StepPatch)]
    for container in ax.containers:
        if isinstance(container, BarContainer):
            parts.append(_bars(container))
    parts += [_points(c) for c in ax.collections if isinstance(c, PathCollection)]
    parts += [_image(image.get_array()) for image in ax.get_images()]
    parts += [_image(m.get_array(), "Colour map") for m in ax.collections if _is_mesh(m)]
    return " ".join(parts)


def _label(ax: Axes, side: str) -> str:
    """Label of an axis, or that of a panel that shares it, as panels of a grid often do."""
    group = ax.get_shared_x_axes() if side == "x" else ax.get_shared_y_axes()
    labels = [str(getattr(other, f"get_{side}label")()) for other in [ax, *group.get_siblings(ax)]]
    return next((label for label in labels if label), "")


def _errorbar_names(ax: Axes) -> dict[Line2D, str]:
    """Names of lines with error bars: the label is kept by their container."""
    named = [c for c in ax.containers if isinstance(c, ErrorbarContainer) and c.lines[0]]
    return {c.lines[0]: _name(c, "Line") for c in named}


def _is_mesh(collection: Any) -> bool:
    return type(collection).__name__ == "QuadMesh"


def _axis(label: str, scale: str, default: str) -> str:
    return (spoken(label) or default) + (" (log scale)" if scale == "log" else "")


def _name(artist: Any, default: str) -> str:
    label = str(artist.get_label())
    if not label or re.fullmatch(r"_(child|container)\d+", label):
        return default
    return spoken(label.removeprefix("_"))


def _line(line: Line2D, loglog: bool, name: str | None = None) -> str:
    name = name or _name(line, "Line")
    x, y = (np.asarray(a, dtype=float) for a in line.get_data())
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if x.size == 0:
        return f"{name}: no finite points."
    text = f"{name}: {number(y[0])} at {number(x[0])}"
    if x.size > 1:
        text += f" to {number(y[-1])} at {number(x[-1])}"
    inner = [(y.max(), x[y.argmax()], "highest"), (y.min(), x[y.argmin()], "lowest")]
    for value, where, word in inner:
        if where not in (x[0], x[-1]):
            text += f", {word} {number(value)} at {number(where)}"
    if loglog and x.min() > 0 and y.min() > 0 and np.unique(x).size > 1:
        text += f", log-log slope {number(round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 3))}"
    return text + "."


def _steps(patch: StepPatch) -> str:
    values, edges, _ = patch.get_data()
    heights = np.asarray(values, dtype=float)
    sides = np.asarray(edges, dtype=float)
    top = int(np.nanargmax(heights))
    return (
        f"{_name(patch, 'Histogram')}: {heights.size} bins from {number(sides[0])} to "
        f"{number(sides[-1])}, peak {number(heights[top])} between {number(sides[top])} and "
        f"{number(sides[top + 1])}."
    )


def _bars(container: BarContainer) -> str:
    sizes = np.array([bar.get_height() for bar in container.patches])
    name = _name(container, "Bars")
    if sizes.size <= 8:
        return f"{name}: {', '.join(number(size) for size in sizes)}."
    return f"{name}: {sizes.size} bars from {number(sizes.min())} to {number(sizes.max())}."


def _points(collection: PathCollection) -> str:
    points = np.ma.getdata(collection.get_offsets())
    name = _name(collection, "Points")
    if len(points) == 0:
        return f"{name}: no points."
    (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
    return (
        f"{name}: {len(points)} points, across {number(x0)} to {number(x1)}, up {number(y0)} to "
        f"{number(y1)}."
    )


def _image(values: Any, kind: str = "Image") -> str:
    data: FloatArray = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    size = " x ".join(map(str, data.shape))
    return f"{kind} of {size} values from {number(np.nanmin(data))} to {number(np.nanmax(data))}."
