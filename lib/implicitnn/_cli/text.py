"""Plain-text tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return rows as left-aligned columns, two spaces apart.

    >>> print(table([["name", "n"], ["mnist", "60000"]]))
    name   n
    mnist  60000
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(f"{cell:<{w}}" for cell, w in zip(r, widths, strict=True)) for r in rows)
    return "\n".join(indent + line.rstrip() for line in lines)
