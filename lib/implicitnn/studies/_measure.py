"""What several studies measure: the spectral error of the equivalents, absolute and relative."""

from __future__ import annotations

from implicitnn import equivalents, kernels, spectra
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ


def ck_and_ntk_errors(spec: DEQ, sample: Sample) -> dict[str, float]:
    r"""Return the errors of Theorems 1 and 2 on one sample, :math:`\|G - \bar G\|` and relative.

    The differences are applied, never formed. Keys: ``ck_absolute``, ``ck_relative``,
    ``ntk_absolute``, ``ntk_relative``; the NTK is the one over (a, A).
    """
    exact = kernels.ck_and_ntk(spec, sample.X)
    approximations = {
        "ck": (exact.ck, equivalents.ck_operator(spec, sample)),
        "ntk": (exact.ntk, equivalents.ntk_operator(spec, sample)),
    }
    errors = {}
    for name, (matrix, operator) in approximations.items():
        absolute = spectra.operator_norm(spectra.difference(matrix, operator))
        errors[f"{name}_absolute"] = absolute
        errors[f"{name}_relative"] = absolute / spectra.operator_norm(matrix)
    return errors
