r"""Encoders of images: a small VGG whose pooled features stand for CIFAR-10.

Four blocks of two 3 x 3 convolutions and a maximum over 2 x 2 windows, then the mean over the
remaining 2 x 2 places: 256 non-negative features of an image. `VGG` is trained with batch
normalisation, which is an affine map of each channel once training has ended; `fold` multiplies it
into the convolutions, so that the stored network is convolutions and ReLU only.

The weights lie in `data/backbone`; `data/train_backbone.py` made them. `cifar10_features` reads the
features of 7,000 images at tier quick, and computes those of the full set at tier paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from implicitnn import _validate, datasets
from implicitnn._data import registry as _registry
from implicitnn.errors import DataFileError, NotEnoughSamplesError

WEIGHTS = "cifar10_vgg.pt"
WIDTHS = (32, 64, 128, 256)
CLASSES = 10
MEAN = (0.4914, 0.4822, 0.4465)
SPREAD = (0.2470, 0.2435, 0.2616)


def standardise(X: NDArray[np.float32]) -> Tensor:
    """Rows of CIFAR-10 pixels in [0, 1], channels last, as standardised images (n, 3, 32, 32).

    The means and standard deviations of the channels are those of the training set.

    Raises
    ------
    ValueError : X is not (n, 3072), is empty, or is not of floats in [0, 1].
    """
    return _standardised(_pixels(X))


def _pixels(X: NDArray[np.floating]) -> NDArray[np.floating]:
    rows = _validate.as_array(X, "X")
    if rows.ndim != 2 or rows.shape[1] != 3072 or rows.dtype.kind != "f" or not len(rows):
        raise ValueError(
            f"X must be floats (n, 3072), rows of 32 x 32 colour images, none empty, got "
            f"{rows.dtype} {rows.shape}"
        )
    if not (rows.min() >= 0.0 and rows.max() <= 1.0):
        raise ValueError(f"X must lie in [0, 1], got {rows.min()} to {rows.max()}")
    return rows


def _standardised(rows: NDArray[np.floating]) -> Tensor:
    images = torch.from_numpy(np.array(rows, dtype=np.float32)).reshape(-1, 32, 32, 3)
    mean, spread = (torch.tensor(v, dtype=torch.float32, device="cpu") for v in (MEAN, SPREAD))
    return ((images - mean) / spread).permute(0, 3, 1, 2)


def _unit(inputs: int, outputs: int, normalised: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=not normalised)]
    if normalised:
        layers.append(nn.BatchNorm2d(outputs))
    return [*layers, nn.ReLU()]


class VGG(nn.Module):
    """Images (n, 3, 32, 32), standardised by channel, to scores (n, classes).

    Parameters
    ----------
    normalised : with batch normalisation, for training; without, the form that `fold` returns.
    widths : channels of the blocks; the last is the number of features.
    classes : number of scores.

    Examples
    --------
    >>> net = VGG(normalised=False)
    >>> net.features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 256])
    """

    def __init__(
        self,
        *,
        normalised: bool = True,
        widths: tuple[int, ...] = WIDTHS,
        classes: int = CLASSES,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True):
            layers += _unit(inputs, outputs, normalised) + _unit(outputs, outputs, normalised)
            layers.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*layers)
        self.readout = nn.Linear(widths[-1], classes)

    def features(self, images: Tensor) -> Tensor:
        """The last block's channels averaged over their places, (n, widths[-1])."""
        pooled: Tensor = self.body(images).mean(dim=(2, 3))
        return pooled

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, (n, classes)."""
        scores: Tensor = self.readout(self.features(images))
        return scores


def fold(net: VGG) -> VGG:
    r"""The same function in evaluation mode without batch normalisation.

    With running mean mu and variance s, :math:`\gamma (w * x - \mu)/\sqrt{s + \epsilon} + \beta`
    is a convolution with weights :math:`\gamma w/\sqrt{s + \epsilon}` and a bias.

    Examples
    --------
    >>> net = VGG(widths=(4, 8)).eval()
    >>> x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(net(x), fold(net)(x), atol=1e-5))
    True
    """
    convolutions = [m for m in net.body if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.body if isinstance(m, nn.BatchNorm2d)]
    if not norms:
        raise ValueError("net has no batch normalisation to fold")
    widths = tuple(m.out_channels for m in convolutions[::2])
    plain = VGG(normalised=False, widths=widths, classes=net.readout.out_features).eval()
    targets = [m for m in plain.body if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        for source, norm, target in zip(convolutions, norms, targets, strict=True):
            assert norm.running_mean is not None and norm.running_var is not None
            assert target.bias is not None
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            target.weight.copy_(source.weight * scale[:, None, None, None])
            target.bias.copy_(norm.bias - norm.running_mean * scale)
        plain.readout.load_state_dict(net.readout.state_dict())
    return plain


def load(path: str | Path) -> VGG:
    """The stored network in evaluation mode, in float32; nothing is unpickled but tensors.

    Raises
    ------
    FileNotFoundError : there is no such file.
    RuntimeError : its tensors are not those of the network.
    """
    state = torch.load(path, map_location="cpu", weights_only=True)
    net = VGG(normalised=False)
    net.load_state_dict({name: value.float() for name, value in state.items()})
    return net.eval()


def features(net: VGG, X: NDArray[np.float32], block: int = 500) -> NDArray[np.float32]:
    """Features (n, 256) of rows of pixels in [0, 1], computed in blocks of images.

    Raises
    ------
    ValueError : X is not as `standardise` wants it, block is below one, or the network is training:
        batch normalisation would mix the samples of a block.
    """
    if net.training:
        raise ValueError("net must be in evaluation mode: call net.eval()")
    rows, size = _pixels(X), _validate.integer(block, "block", 1)
    with torch.inference_mode():
        parts = [
            net.features(_standardised(rows[start : start + size])).numpy()
            for start in range(0, len(rows), size)
        ]
    return np.concatenate(parts)


def weights() -> Path:
    """The stored weights, checked against the hash in the registry.

    Raises
    ------
    DataFileError : the file is missing or has another sha256.
    """
    return _pinned(_registry.data_folder() / "backbone" / WEIGHTS, "weights")


def _pinned(path: Path, entry: str) -> Path:
    wanted = _registry.features()[entry]
    if not path.is_file() or _registry.sha256(path) != wanted:
        raise DataFileError(
            f"{path} is missing or has not the sha256 {wanted} of the registry. Restore it with "
            f"`git checkout -- {path.parent.parent.name}/{path.parent.name}`."
        )
    return path


@dataclass(frozen=True, eq=False)
class Features:
    """Features X float32 (n, 256), non-negative, labels y int64 (n,), and the split they are of."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    split: str
    tier: str


def cifar10_features(split: str, n: int | None = None, tier: str = "quick") -> Features:
    """Features of CIFAR-10 by the stored VGG.

    Parameters
    ----------
    split : ``train`` or ``test``. The network was trained on the training images.
    n : number of images, equally many of each class, the first ones; all of them when None.
    tier : ``quick``: those of 5,000 and 2,000 images, stored with the project in float16.
        ``paper``: computed from the images, about a minute for 30,000 on one core.

    Raises
    ------
    NotEnoughSamplesError : n is larger than what there is.
    DataNotFoundError : CIFAR-10 is nowhere (tier paper).

    Examples
    --------
    >>> data = cifar10_features("test", 20)
    >>> data.X.shape, bool((data.X >= 0).all())
    ((20, 256), True)
    """
    _validate.one_of(split, "split", ("train", "test"))
    if _validate.one_of(tier, "tier", datasets.TIERS) == "paper":
        images = datasets.load("cifar10", split, n, tier="paper")
        return Features(features(load(weights()), images.X), images.y, split, tier)
    path = _pinned(_registry.data_folder() / "embedded" / "cifar10_features.npz", "embedded")
    with np.load(path) as archive:
        X, y = archive[f"x_{split}"].astype(np.float32), archive[f"y_{split}"].astype(np.int64)
    if n is not None:
        kept = _first_of_each(y, _validate.integer(n, "n", minimum=1))
        X, y = X[kept], y[kept]
    return Features(X, y, split, tier)


def _first_of_each(y: NDArray[np.int64], n: int) -> NDArray[np.intp]:
    base, extra = divmod(n, CLASSES)
    quotas = [base + (label < extra) for label in range(CLASSES)]
    rows = [np.flatnonzero(y == label)[:quota] for label, quota in enumerate(quotas)]
    if any(len(r) < quota for r, quota in zip(rows, quotas, strict=True)):
        raise NotEnoughSamplesError(
            f"n={n} asks for more than the {len(y)} features that come with the project; "
            "tier='paper' has more"
        )
    return np.sort(np.concatenate(rows))
