r"""Study of the spectra: eigenvalues and top eigenvectors of exact kernels and equivalents (AF1).

Data: the authors' mixture at n = 0.8 p, MNIST digits 6 and 8 at n = 400, and the Gaussian twin of
the digits. The distance of two spectra is the mean of :math:`|\lambda_k - \bar\lambda_k|` over the
sorted eigenvalues (the Wasserstein distance of their distributions) divided by the mean of
:math:`\lambda`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import _validate, activations, equivalents, kernels, mixtures, spectra
from implicitnn._validate import FloatArray
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.studies import _images
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
IMAGES = {"mnist": "real", "mnist twin": "twin"}


def draw(data: str, n: int, seed: int, *, source: str) -> Sample:
    """Return n samples of the authors' mixture (p = 1.25 n), of the digits or of their twin."""
    if data in IMAGES:
        return _images.draw("mnist", IMAGES[data], n, seed, source=source)
    if data != "mixture":
        raise ValueError(f"data must be 'mixture', 'mnist' or 'mnist twin', got {data!r}")
    return mixtures.benchmark(n * 5 // 4).sample(n, np.random.default_rng([seed, n]))


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return distances of spectra and agreement of top eigenvectors, for CK and NTK."""
    sample = draw(
        str(settings["data"]),
        _validate.integer(settings["n"], "n", 1),
        seed,
        source=str(settings["source"]),
    )
    spec = DEQ(activations.get(str(settings["activation"])), SIGMA_A2).at(sample.statistics.tau0)
    exact = kernels.ck_and_ntk(spec, sample.X)
    return compare(exact.ck, equivalents.ck(spec, sample), "ck") | compare(
        exact.ntk, equivalents.ntk(spec, sample), "ntk"
    )


def compare(exact: FloatArray, equivalent: FloatArray, prefix: str) -> dict[str, float]:
    """Return the distance of two spectra, their ends, and the alignment of the top vectors.

    ``_alignment`` is the cosine of the largest angle between the spans of the two top
    eigenvectors: near a double eigenvalue single vectors are arbitrary, their span is not.
    """
    values, other = spectra.eigenvalues(exact), spectra.eigenvalues(equivalent)
    top, other_top = (spectra.extreme_eigenpairs(A, 2).vectors for A in (exact, equivalent))
    return {
        f"{prefix}_distance": distance(values, other),
        f"{prefix}_largest": float(values[-1]),
        f"{prefix}_largest_equivalent": float(other[-1]),
        f"{prefix}_smallest": float(values[0]),
        f"{prefix}_smallest_equivalent": float(other[0]),
        f"{prefix}_alignment": float(spectra.subspace_alignment(top, other_top).min()),
        f"{prefix}_first_alignment": float(spectra.alignment(top, other_top)[0]),
    }


def distance(values: FloatArray, other: FloatArray) -> float:
    """Return the mean distance of two spectra of one size, in units of the mean of ``values``."""
    return float(np.abs(np.sort(values) - np.sort(other)).mean() / np.mean(values))


def _cells(source: str, sizes: list[int]) -> list[dict[str, object]]:
    pairs = [("mixture", n) for n in sizes] + [("mnist", 400), ("mnist twin", 400)]
    return [
        {"data": data, "n": n, "activation": activation, "source": source}
        for activation in ("relu", "tanh")
        for data, n in pairs
    ]


def _cost(settings: Mapping[str, object]) -> float:
    return _validate.integer(settings["n"], "n", 1) ** 3


STUDY = Study(
    name="kernel_spectra",
    row=row,
    grids={"quick": _cells("embedded", [200, 400]), "paper": _cells("full", [200, 400, 800, 1600])},
    seeds={"quick": (1000, 1001, 1002), "paper": tuple(range(10))},
    claims=("AF1",),
    datasets=full_images,
    rtol=1e-6,
    cost=_cost,
)
