"""A designed net in words: everything that is needed to build it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from implicitnn._design.layers import formula

if TYPE_CHECKING:
    from implicitnn.design import Match


def explain(match: Match) -> str:
    """Return the net in full, as text."""
    enn = match.enn
    lines = [
        f"Explicit net for {match.deq!r}: {match.status}",
        f"  {match.message}",
        f"  {len(enn.layers)} hidden layer(s), tau0 = {enn.tau0:.12g}: "
        "x_l = sigma_l(W_l x_{l-1}) / sqrt(width_l), x_0 = x, readout linear",
        "  W_l: independent N(0, 1) entries (with the factor 1/sqrt(width), each weight acts as "
        "N(0, 1)/sqrt(width)); no bias",
        "  samples: divided by sqrt(p), so that the mean square norm is tau0^2; "
        "redo the design for another tau0",
    ]
    for number, (layer, offset) in enumerate(zip(enn.layers, enn.offsets, strict=True), start=1):
        tau_in, tau_out = enn.taus[number - 1], enn.taus[number]
        lines += [
            f"  layer {number}: sigma_{number}(t) = {formula(layer, offset)}",
            f"    t has standard deviation {tau_in:.12g}, sigma_{number} has {tau_out:.12g} and "
            f"mean 0; centring constant {offset:.12g} (already subtracted)",
        ]
    if match.multipliers is not None:
        weights = ", ".join(f"{value:.9g}" for value in match.multipliers)
        lines.append(f"  tangent kernel counts W_1..W_L and the readout with weights {weights}")
    lines.append("  equation   wanted            achieved          residual")
    for row in match.equations:
        lines.append(
            f"  {row.name:<9} {row.wanted:< 17.12g} {row.achieved:< 17.12g} {row.residual:+.1e}"
        )
    if match.other_layers:
        lines.append(f"  other nets that do as well: {len(match.other_layers)} (alternatives)")
    if match.next_misses:
        values = ", ".join(f"{value:.2g}" for value in match.next_misses)
        lines.append(
            "  nearest of them by the first coefficient that the equations leave open; "
            f"mismatches, this net first: {values}"
        )
    return "\n".join(lines)
