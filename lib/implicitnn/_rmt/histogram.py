"""Histograms of spectra, normalised over all eigenvalues, with outliers apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from implicitnn import _validate
from implicitnn._validate import FloatArray

_MOST_BINS = 10_000_000
_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Histogram:
    """Bin edges and density of a spectrum, with the outliers apart.

    ``sum(density * diff(edges))`` is the fraction of eigenvalues in the bins, so that a limiting
    density drawn over it needs no rescaling; it is one when ``outliers`` is empty.
    """

    edges: FloatArray
    density: FloatArray
    outliers: FloatArray
    count: int


@np.errstate(over="ignore", under="ignore")
def histogram(
    values: ArrayLike,
    bins: int = 50,
    *,
    outliers: str | tuple[float, float] | None = None,
    gap: float = 0.5,
) -> Histogram:
    r"""Return the density histogram of a spectrum, normalised over all its eigenvalues.

    Parameters
    ----------
    values : (n,) array
        Eigenvalues in any order.
    bins : int
        Number of equal bins between the ends of the bulk; between wider ends where the values
        are equal up to rounding.
    outliers : None, "gap" or (low, high)
        What is left out of the bins. ``None``: nothing. ``(low, high)``: values outside the closed
        interval. ``"gap"``: on each side, among the :math:`\lfloor\sqrt n\rfloor` outermost
        spacings, everything beyond the innermost one larger than ``gap`` times the interquartile
        range of all values; a spectrum whose interquartile range is zero has no outliers by this
        rule.
    gap : float
        Factor of the ``"gap"`` rule.

    Returns
    -------
    Histogram
        edges (bins + 1,), density (bins,), outliers (increasing), count = n. The density
        integrates to the fraction of values that are not outliers.

    Raises
    ------
    ValueError
        values empty or not finite, bins outside 1 .. 10,000,000, low >= high, no value left in the
        bins, or values beyond 1e300 there.

    Examples
    --------
    >>> h = histogram([*np.linspace(0.0, 1.0, 9), 5.0], bins=2, outliers="gap")
    >>> h.outliers.tolist(), round(float(h.density @ np.diff(h.edges)), 12)
    ([5.0], 0.9)
    """
    ordered = np.sort(_validate.real_array(values, "values", 1))
    bins = _validate.integer(bins, "bins", 1, _MOST_BINS)
    low, high = _bulk(ordered, outliers, _validate.positive(gap, "gap"))
    inside = (ordered >= low) & (ordered <= high)
    if not inside.any():
        raise ValueError(f"outliers = {outliers!r} leaves no eigenvalue in the bins")
    bulk = ordered[inside]
    _validate.within(bulk, "values in the bins", _LARGEST)
    counts, edges = np.histogram(bulk, bins=bins, range=_span(bulk, bins))
    density = counts / (ordered.size * np.diff(edges))
    return Histogram(edges, density, ordered[~inside], ordered.size)


def _span(bulk: FloatArray, bins: int) -> tuple[float, float]:
    """Return the ends of the bulk, moved apart where bins would be too narrow for rounding."""
    low, high = float(bulk[0]), float(bulk[-1])
    size = max(abs(low), abs(high))
    if high - low > 1e-12 * bins * size and high - low > 1e-290:
        return low, high
    half = 0.5 * max(1.0, size)
    return low - half, high + half


def _bulk(
    ordered: FloatArray, outliers: str | tuple[float, float] | None, gap: float
) -> tuple[float, float]:
    """Return the closed interval of values that go into the bins."""
    if outliers is None:
        return float(ordered[0]), float(ordered[-1])
    if isinstance(outliers, str):
        _validate.one_of(outliers, "outliers", ("gap",))
        return _bulk_by_gap(ordered, gap)
    if not isinstance(outliers, tuple) or len(outliers) != 2:
        raise TypeError(
            f"outliers must be None, 'gap' or (low, high), got {_validate.shown(outliers)}"
        )
    low, high = _validate.reals(outliers, "outliers")
    if low >= high:
        raise ValueError(
            f"outliers must be (low, high) with low < high, got {_validate.shown(outliers)}"
        )
    return low, high


def _bulk_by_gap(ordered: FloatArray, gap: float) -> tuple[float, float]:
    quartiles = np.quantile(ordered, [0.25, 0.75])
    threshold = gap * float(quartiles[1] - quartiles[0])
    spacings = np.diff(ordered)
    reach = min(int(np.sqrt(ordered.size)), spacings.size)
    if threshold == 0.0 or reach == 0:
        return float(ordered[0]), float(ordered[-1])
    wide = spacings > threshold
    below = np.flatnonzero(wide[:reach])
    above = np.flatnonzero(wide[::-1][:reach])
    first = int(below[-1]) + 1 if below.size else 0
    last = ordered.size - (int(above[-1]) + 1 if above.size else 0)
    # Two cuts can only cross when hardly any value is bulk; then nothing is an outlier.
    if first >= last:
        return float(ordered[0]), float(ordered[-1])
    return float(ordered[first]), float(ordered[last - 1])
