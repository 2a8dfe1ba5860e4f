"""Draw the picture of the README and of the front page from the stored rows."""

from pathlib import Path

import matplotlib.pyplot as plt

from implicitnn import figures, sweeps
from implicitnn.studies import STUDIES

PICTURE = Path(__file__).parent / "_static" / "front.svg"
LINES = (
    ("ck_absolute", "derived here", figures.look("corrected")),
    ("ck_published_diagonal_absolute", "with the extra diagonal term", figures.look("published")),
)


def draw() -> str:
    """Return the picture as SVG: two formulas for the CK of a ReLU DEQ against the exact one."""
    rows = sweeps.frame(sweeps.study_rows(STUDIES["kernel_errors"]))
    rows = rows[(rows.activation == "relu") & (rows["mean"] == 8.0)]
    with figures.style(width=6.6, height=3.4):
        figure, ax = plt.subplots()
        for column, label, look in LINES:
            figures.band(ax, rows, "n", column, label=label, look=look)
        floor = rows.groupby("n")["floor_diagonal"].median()
        ax.plot(
            floor.index, floor, color="#7F7F7F", linewidth=1, marker="", label="size of the term"
        )
        figures.log_sizes(ax, rows["n"])
        ax.set(xlabel="samples $n$, dimension $p = 1.25\\,n$", ylabel=r"$\Vert G-\bar G\Vert$")
        figures.direct_labels(ax)
        text = figures.svg(figure)
        plt.close(figure)
    return text


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
