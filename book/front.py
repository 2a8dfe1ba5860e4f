"""Draw the picture of the README and of the front page from the stored rows."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from implicitnn import figures, sweeps
from implicitnn.studies import STUDIES

PICTURE = Path(__file__).parent / "_static" / "front.svg"
LINES = (
    ("ck_absolute", "derived here", figures.look("corrected")),
    ("ck_published_diagonal_absolute", "with the extra diagonal term", figures.look("published")),
)
FLOOR, GREY = "floor_diagonal", "#7F7F7F"


def rows() -> pd.DataFrame:
    """Return the stored rows behind the picture: ReLU on the authors' mixture."""
    stored = sweeps.frame(sweeps.study_rows(STUDIES["kernel_errors"]))
    return stored[(stored.activation == "relu") & (stored["mean"] == 8.0)]


def curves(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Return what each line shows, median against n, under the colour that draws it."""
    medians = table.groupby("n")
    shown = {look.color: medians[column].median() for column, _, look in LINES}
    return {**shown, GREY: medians[FLOOR].median()}


def draw(table: pd.DataFrame) -> str:
    """Return the picture as SVG: two formulas for the CK of a ReLU DEQ against the exact one."""
    with figures.style(width=6.6, height=3.4):
        figure, ax = plt.subplots()
        for column, label, look in LINES:
            figures.band(ax, table, "n", column, label=label, look=look)
        floor = curves(table)[GREY]
        ax.plot(floor.index, floor, color=GREY, linewidth=1, marker="", label="size of the term")
        figures.log_sizes(ax, table["n"])
        ax.set(xlabel="samples $n$, dimension $p = 1.25\\,n$", ylabel=r"$\Vert G-\bar G\Vert$")
        figures.direct_labels(ax)
        text = figures.svg(figure)
        plt.close(figure)
    return text


if __name__ == "__main__":
    PICTURE.write_text(draw(rows()), encoding="utf-8")
    print(PICTURE)
