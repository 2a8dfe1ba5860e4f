r"""Study of matched kernels: a DEQ's exact CK against those of explicit nets (claim AF3).

Data as in the study of spectra, Fashion-MNIST, and 256 features of CIFAR-10 by a small VGG (the
embedded ones, at both tiers). Every design is made at the tau0 of its sample.
Nets beside the matched ones are controls; each is multiplied by the one factor that brings it
nearest to the DEQ in spectral norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy import optimize

from implicitnn import activations, design, kernels, mixtures, spectra
from implicitnn._validate import FloatArray, integer, one_of
from implicitnn.mixtures import Sample
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _images, kernel_spectra
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

SIGMA_A2 = 0.2
IMAGES = ("mnist", "fashion_mnist")
FEATURES = "cifar10 features"
FAMILY = {"relu": "leaky_relu", "tanh": "hard_tanh"}
DEPTHS = {"one plain layer": 1, "two plain layers": 2}
NETS = {"relu": ("matched", "two plain layers", "one plain layer"),
        "tanh": ("matched", "one plain layer")}  # fmt: skip


def draw(data: str, n: int, seed: int, *, source: str) -> Sample:
    """Return n samples of the authors' mixture, or of two classes of images or features."""
    if data in IMAGES:
        return _images.draw(data, "real", n, seed, source=source)
    if data == FEATURES:
        return features(n, seed)
    return kernel_spectra.draw(data, n, seed, source=source)


@lru_cache(maxsize=1)
def _pool() -> tuple[FloatArray, FloatArray]:
    """Embedded training features of the two classes, each (500, 256), normalised together."""
    # PyTorch is loaded only where the features are wanted
    from implicitnn import backbones

    data = backbones.cifar10_features("train")
    first, second = (data.X[data.y == label].astype(np.float64) for label in _images.CLASSES)
    joint = _images.normalised(np.concatenate([first, second]))
    return joint[: len(first)], joint[len(first) :]


def features(n: int, seed: int) -> Sample:
    """Return features of n images, half of each class, joint mean removed, mean squared norm 1.

    Examples
    --------
    >>> features(40, 0).X.shape
    (40, 256)
    """
    rng = np.random.default_rng([seed, n])
    sizes = (n - n // 2, n // 2)
    parts = [
        pool[rng.choice(len(pool), size, replace=False)]
        for pool, size in zip(_pool(), sizes, strict=True)
    ]
    labels = np.repeat([0, 1], sizes)
    return mixtures.empirical(_images.normalised(np.concatenate(parts)), labels)


def explicit(deq: DEQ, net: str) -> ENN:
    """Return the net: the matched one, or plain layers of the DEQ's own activation."""
    if net == "matched":
        return design.match(deq, FAMILY[deq.activation.name]).enn
    depth = DEPTHS[one_of(net, "net", tuple(DEPTHS))]
    return ENN((deq.activation,) * depth, deq.tau0)


def best_factor(wanted: FloatArray, matrix: FloatArray) -> float:
    r"""Return the c that minimises :math:`\|wanted - c\,matrix\|`; the norm is convex in c.

    Examples
    --------
    >>> import numpy as np
    >>> round(best_factor(2.0 * np.eye(3), np.diag([1.0, 1.0, 3.0])), 3)
    1.0
    """
    top = spectra.operator_norm(wanted) / spectra.operator_norm(matrix)
    found = optimize.minimize_scalar(
        lambda c: spectra.operator_norm(wanted - c * matrix, tol=1e-6),
        bounds=(0.0, 3.0 * top),
        method="bounded",
        options={"xatol": 1e-4 * top},
    )
    return float(found.x)


def pair(activation: str, net: str, sample: Sample) -> tuple[FloatArray, FloatArray, float]:
    """Return the CK of the DEQ, that of the explicit net times its factor, and the factor."""
    deq = DEQ(activations.get(activation), SIGMA_A2).at(sample.statistics.tau0)
    wanted, matrix = kernels.ck(deq, sample.X), kernels.ck(explicit(deq, net), sample.X)
    factor = 1.0 if net == "matched" else best_factor(wanted, matrix)
    return wanted, factor * matrix, factor


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return norm difference, distance of spectra and agreement of the top eigenvectors."""
    sample = draw(
        str(settings["data"]), integer(settings["n"], "n"), seed, source=str(settings["source"])
    )
    wanted, matrix, factor = pair(str(settings["activation"]), str(settings["net"]), sample)
    absolute = spectra.operator_norm(wanted - matrix)
    return {
        "absolute": absolute,
        "relative": absolute / spectra.operator_norm(wanted),
        "factor": factor,
    } | kernel_spectra.compare(wanted, matrix, "ck")


def _cells(source: str, sizes: list[int], images: int) -> list[dict[str, object]]:
    data = [("mixture", n) for n in sizes] + [(name, images) for name in (*IMAGES, FEATURES)]
    return [
        {"data": name, "n": n, "activation": activation, "net": net, "source": source}
        for activation, nets in NETS.items()
        for net in nets
        for name, n in data
    ]


def _cost(settings: Mapping[str, object]) -> float:
    return 1e7 + float(integer(settings["n"], "n")) ** 3


STUDY = Study(
    name="matched_kernels",
    row=row,
    grids={
        "quick": _cells("embedded", [100, 200], 100),
        "paper": _cells("full", [400, 800, 1600], 400),
    },
    seeds={"quick": (1000,), "paper": tuple(range(10))},
    claims=("AF3",),
    datasets=full_images,
    rtol=1e-5,
    cost=_cost,
)
