"""The picture of the front page shows the stored rows; fonts and layout do not matter."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book"))
import front  # noqa: E402

# Coordinates are written with six decimals; a change of 1 % in a value moves a point by half a
# point or more.
POINTS = 0.01


@pytest.fixture(scope="module")
def rows():
    table = front.rows()
    assert len(table) > 0, "no rows of kernel_errors are stored"
    return table


def drawn(svg: str, color: str, count: int) -> np.ndarray:
    """Vertices of the one line with this colour that has as many points as there are sizes."""
    found = [
        np.array(re.findall(r"[ML] (\S+) (\S+)", path), dtype=float)
        for path, style in re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', svg)
        if "fill: none" in style and re.search(rf"stroke: {color}\b", style, re.IGNORECASE)
    ]
    lines = [points for points in found if len(points) == count]
    assert len(lines) == 1, f"{len(lines)} lines of colour {color} with {count} points"
    return lines[0]


def gap(svg: str, table) -> float:
    """Largest distance of a drawn point from where the medians belong.

    Both axes are logarithmic, so a position is an affine function of the logarithm; its two
    numbers depend on fonts and are fitted, once for all lines.
    """
    curves = front.curves(table)
    points = np.vstack([drawn(svg, color, len(line)) for color, line in curves.items()])
    worst = 0.0
    for axis, values in enumerate(
        ([line.index for line in curves.values()], [line.to_numpy() for line in curves.values()])
    ):
        position = np.log(np.concatenate(values).astype(float))
        design = np.column_stack([position, np.ones_like(position)])
        fitted = design @ np.linalg.lstsq(design, points[:, axis], rcond=None)[0]
        worst = max(worst, float(np.abs(fitted - points[:, axis]).max()))
    return worst


def test_the_picture_shows_the_stored_rows(rows):
    assert gap(front.PICTURE.read_text(encoding="utf-8"), rows) < POINTS


def test_its_caption_says_how_many_seeds(rows):
    caption = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert rows.groupby("n")["seed"].nunique().eq(10).all() and "median over ten seeds" in caption


def test_a_fresh_picture_agrees_with_its_rows(rows):
    assert gap(front.draw(rows), rows) < POINTS


def test_a_picture_of_other_rows_is_noticed(rows):
    other = rows.copy()
    other.loc[other["n"] == other["n"].max(), "ck_absolute"] *= 1.01
    assert gap(front.draw(rows), other) > 10 * POINTS
