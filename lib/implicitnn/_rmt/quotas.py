"""Class sizes by largest remainder, in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

_DIGITS = 15  # decimal digits that the product of a weight and a count surely has


def largest_remainder(weights: Sequence[float], n: int) -> list[int]:
    """Return integers that sum to n, each within one of its share of n; ties to the lower class.

    The shares are exact, of the weights as they are, over their exact sum. Remainders are compared
    to the digits that a rounded weight can give (at most nine), so that equal shares tie.
    """
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    digits = max(0, min(9, _DIGITS - len(str(n))))
    shares = [weight * n / total for weight in exact]
    counts = [math.floor(share) for share in shares]
    rests = [share - count for share, count in zip(shares, counts, strict=True)]
    # A class without any remainder is never rounded up, not even when all remainders tie.
    order = sorted(range(len(shares)), key=lambda a: (-round(rests[a], digits), rests[a] == 0, a))
    for a in order[: n - sum(counts)]:
        counts[a] += 1
    return counts
