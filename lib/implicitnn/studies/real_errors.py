r"""Study of the equivalents on images and on their Gaussian twins (claim AF2).

Two classes of MNIST or Fashion-MNIST, joint mean removed, mean squared norm one. The twin is the
Gaussian mixture with the class means and covariances of the whole pool. The number of pixels p is
fixed while n grows; a second family of cells lets p grow by finer images at n = 0.8 p.

Beside the errors each row holds what may explain them. With :math:`S = XX^T` and
:math:`\chi_i = |x_i|^2 - \tau_0^2`, the first two without their diagonals:

.. math::
    \text{square part} = \alpha_3\,\| S \circ S - J T J^T/p \|, \qquad
    \text{remainder} = \| G - \alpha_1 S - \alpha_3 S \circ S - \alpha_2 \chi\chi^T \|, \qquad
    \text{diagonal part} = \max_i |G_{ii} - \bar G_{ii}|.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from implicitnn import _validate, activations, equivalents, kernels, spectra
from implicitnn._validate import FloatArray
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ
from implicitnn.studies import _images
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return the errors of both equivalents and the statistics that may explain them."""
    sample = _images.draw(
        str(settings["dataset"]),
        str(settings["kind"]),
        _validate.integer(settings["n"], "n", 1),
        seed,
        source=str(settings["source"]),
        side=_validate.integer(settings["side"], "side", 1),
    )
    spec = DEQ(activations.get(str(settings["activation"])), SIGMA_A2)
    result = {"p": float(sample.X.shape[1])} | moments(sample)
    return result | errors(spec.at(sample.statistics.tau0), sample)


def errors(spec: DEQ, sample: Sample) -> dict[str, float]:
    """Return the errors of Theorems 1 and 2 on one sample and the parts of the first."""
    exact = kernels.ck_and_ntk(spec, sample.X)
    equivalent = equivalents.ck_operator(spec, sample)
    ck_norm, ntk_norm = (spectra.operator_norm(matrix) for matrix in exact)
    ck = spectra.operator_norm(spectra.difference(exact.ck, equivalent))
    ntk = spectra.operator_norm(
        spectra.difference(exact.ntk, equivalents.ntk_operator(spec, sample))
    )
    return {
        "ck_absolute": ck,
        "ck_relative": ck / ck_norm,
        "ntk_absolute": ntk,
        "ntk_relative": ntk / ntk_norm,
        "ck_norm": ck_norm,
        "diagonal_part": float(np.abs(np.diag(exact.ck) - equivalent.diagonal()).max()),
    } | off_diagonal_parts(spec, sample, exact.ck)


def off_diagonal_parts(spec: DEQ, sample: Sample, exact: FloatArray) -> dict[str, float]:
    """Return the square part and the remainder of the CK's error (see the module's head)."""
    scalars, statistics = equivalents.coefficients(spec), sample.statistics
    gram = sample.X @ sample.X.T
    squares = gram * gram
    blocks = statistics.J @ (statistics.T / sample.X.shape[1]) @ statistics.J.T
    chi = np.diag(gram) - statistics.tau0**2
    remainder = exact - scalars.alpha1 * gram - scalars.alpha3 * squares
    remainder -= scalars.alpha2 * np.outer(chi, chi)
    return {
        "square_part": scalars.alpha3 * spectra.operator_norm(without_diagonal(squares - blocks)),
        "remainder_part": spectra.operator_norm(without_diagonal(remainder)),
    }


def moments(sample: Sample) -> dict[str, float]:
    r"""Return moments of the sample, most of them beyond what the equivalents use.

    With :math:`\Sigma = C_0/p` of trace s: ``leading_share`` is :math:`\|\Sigma\|/s`;
    ``effective_dimension`` is :math:`s^2 p/\bar T`, the number of equal eigenvalues that would
    give the same second moment of :math:`z_i \cdot z_j`; ``product_kurtosis`` the kurtosis of
    :math:`z_i \cdot z_j` over pairs, near 3 when it is Gaussian; ``psi_deviation`` and
    ``psi_largest`` the standard deviation and the largest size of psi.
    """
    statistics, (n, p) = sample.statistics, sample.X.shape
    weights = statistics.weights
    means = (statistics.J / statistics.J.sum(axis=0)).T @ sample.X
    noise = sample.X - means[sample.labels]
    gram = noise @ noise.T
    squares = without_diagonal(gram) ** 2
    # Both products have the same norm; the smaller one is cheaper.
    share = spectra.operator_norm(gram if n <= p else noise.T @ noise) / float(np.trace(gram))
    scale = float((noise**2).sum()) / (n - weights.size)
    return {
        "leading_share": share,
        "effective_dimension": scale**2 * p / float(weights @ statistics.T @ weights),
        "product_kurtosis": float(n * (n - 1) * np.vdot(squares, squares) / squares.sum() ** 2),
        "psi_deviation": float(statistics.psi.std()),
        "psi_largest": float(np.abs(statistics.psi).max()),
    }


def without_diagonal(matrix: FloatArray) -> FloatArray:
    """Return a copy with zeros on the diagonal.

    Examples
    --------
    >>> without_diagonal(np.ones((2, 2))).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    result = matrix.copy()
    np.fill_diagonal(result, 0.0)
    return result


def _cells(
    regime: str,
    source: str,
    sizes: Iterable[tuple[int, int]],
    names: tuple[str, ...] = ("relu", "tanh"),
) -> list[dict[str, object]]:
    shared = {"regime": regime, "source": source}
    return [
        shared | {"dataset": dataset, "kind": kind, "activation": activation, "n": n, "side": side}
        for dataset in ("mnist", "fashion_mnist")
        for activation in names
        for kind in _images.KINDS
        for n, side in sizes
    ]


def _cost(settings: Mapping[str, object]) -> float:
    return 4e4 + _validate.integer(settings["n"], "n", 1) ** 2


FINER = ((40, 7), (156, 14), (628, 28))

STUDY = Study(
    name="real_errors",
    row=row,
    grids={
        "quick": _cells("n grows", "embedded", ((64, 28), (256, 28)))
        + _cells("finer images", "embedded", FINER, ("relu",)),
        "paper": _cells("n grows", "full", [(2**k, 28) for k in range(6, 12)])
        + _cells("n grows", "full", ((4096, 28),), ("relu",))
        + _cells("finer images", "full", FINER),
    },
    seeds={"quick": (1000, 1001), "paper": tuple(range(10))},
    claims=("AF2",),
    datasets=full_images,
    rtol=1e-6,
    cost=_cost,
)
