r"""Real images: the embedded sample, a local folder, or a verified download.

`load` returns the pixels divided by 255, one image a row, in the order of the files; a row lists
the image row by row, channels last. The library takes $X/\sqrt p$, which is left to the caller.

- Tier `quick` reads `data/embedded` only, whatever the environment: MNIST and Fashion-MNIST,
  5,000 training and 2,000 test images each.
- Tier `paper` looks in the folder named by `$IMPLICITNN_DATA`, then in the user's cache, then
  downloads the official files, whose sha256 are pinned in `data/registry.json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate
from implicitnn._data import locate as _locate
from implicitnn._data import places as _places
from implicitnn._data import registry as _registry
from implicitnn._data.readers import Images
from implicitnn._data.registry import NAMES, SPLITS, Source
from implicitnn.errors import DataFileError, NotEnoughSamplesError

TIERS = ("quick", "paper")


@dataclass(frozen=True)
class Provenance:
    """Where a `Dataset` comes from, and the hash of what was returned.

    `place` is `embedded`, `folder` (the one of $IMPLICITNN_DATA), `cache` or `download`. `files`
    pairs each file's name with its sha256. `check` compares them with the registry: `pinned` (the
    pinned hash, of the file or of its unpacked content), `pinned (unverified)` (the pinned hash,
    which is the publisher's: no copy was at hand when the registry was written), `differs`, or
    `unknown` (no hash is pinned for such a file). `data_sha256` is the hash of X and y as returned.
    """

    name: str
    title: str
    split: str
    tier: str
    place: str
    files: tuple[tuple[str, str], ...]
    check: str
    image_shape: tuple[int, ...]
    licence: str
    citation: str
    source: str
    data_sha256: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images in rows, X float32 (n, p) in [0, 1], labels y int64 (n,), and the provenance.

    Both arrays are read-only: copy before changing them.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    provenance: Provenance

    @property
    def images(self) -> NDArray[np.float32]:
        """The rows as pictures: (n, h, w) or (n, h, w, 3)."""
        return self.X.reshape(len(self.X), *self.provenance.image_shape)


def load(
    name: str,
    split: str,
    n: int | None = None,
    classes: Sequence[int] | None = None,
    tier: str = "quick",
) -> Dataset:
    r"""Load images and labels of one split.

    Parameters
    ----------
    name
        `mnist`, `fashion_mnist`, `cifar10`, `cifar100` (its 100 fine classes) or `svhn`.
    split
        `train` or `test`.
    n
        Number of images in all; every image when None. With $K$ classes, sorted by label, each
        gets $\lfloor n/K\rfloor$ images and the first $n - K\lfloor n/K\rfloor$ of them one more.
        They are the first images of each class in the order of the files, and stay in that order.
    classes
        Labels to keep; all when None. Labels keep their values.
    tier
        `quick` (the embedded sample) or `paper` (the full sets, downloaded when needed).

    Returns
    -------
    Dataset
        X float32 (n, p) in [0, 1], y int64 (n,), both read-only, and the provenance.

    Raises
    ------
    DataNotFoundError
        When the set is in none of the places searched, which the message lists.
    DataFileError
        When a file is truncated, corrupt or not the expected one.
    NotEnoughSamplesError
        When a class holds fewer images than `n` asks of it.

    Examples
    --------
    >>> data = load("mnist", "train", n=6, classes=[3, 8])
    >>> data.X.shape, data.y.tolist(), data.provenance.place
    ((6, 784), [3, 8, 8, 3, 8, 3], 'embedded')
    """
    _validate.one_of(name, "name", NAMES)
    _validate.one_of(split, "split", SPLITS)
    _validate.one_of(tier, "tier", TIERS)
    registry = _registry.registry()
    source = registry.datasets[name]
    labels = _labels(classes, source)
    if n is not None:
        n = _validate.integer(n, "n", minimum=1)
    if tier == "quick":
        place, found = _places.embedded(registry, name)
    else:
        place, found = _places.full(source, split)
    images = _locate.read(found, source, split)
    if len(images.x) > source.rows[split]:
        raise DataFileError(
            f"{', '.join(map(str, found.files))} hold {len(images.x)} images together, but "
            f"{source.title} has {source.rows[split]} in its {split} split: remove the copies"
        )
    rows = _rows(images.y, labels, n, f"{source.title} ({split}, {place})", tier)
    X, y = _arrays(images, rows)
    origin = registry.embedded[name].source if place == "embedded" else source.homepage
    check = "pinned" if place == "embedded" else _locate.verdict(found, images, source, split)
    files = tuple((path.name, _registry.sha256(path)) for path in found.files)
    provenance = Provenance(
        name=name,
        title=source.title,
        split=split,
        tier=tier,
        place=place,
        files=files,
        check=check,
        image_shape=source.image_shape,
        licence=source.licence,
        citation=source.citation,
        source=origin,
        data_sha256=_hash(X, y),
    )
    return Dataset(X, y, provenance)


def _labels(classes: Sequence[int] | None, source: Source) -> list[int]:
    """Return the sorted labels to keep; repeated and unknown ones are refused."""
    if classes is None:
        return list(range(source.classes))
    if not np.iterable(classes):
        raise TypeError(f"classes must be a sequence of labels, got {classes!r}")
    labels = sorted(_validate.integer(label, "each of classes") for label in classes)
    if not labels:
        raise ValueError("classes must name at least one label, got none")
    if len(set(labels)) < len(labels) or labels[-1] >= source.classes:
        raise ValueError(
            f"classes must be distinct labels in 0..{source.classes - 1} for {source.name}, "
            f"got {labels}"
        )
    return labels


def _rows(
    y: NDArray[np.int64], labels: list[int], n: int | None, where: str, tier: str
) -> NDArray[np.intp]:
    """Return the rows to keep, in the order of the files."""
    if n is None:
        rows = np.flatnonzero(np.isin(y, labels))
        if not len(rows):
            raise NotEnoughSamplesError(f"{where} holds no image of the classes {labels}")
        return rows
    counts = [int(np.count_nonzero(y == label)) for label in labels]
    base, extra = divmod(n, len(labels))
    quotas = [base + (index < extra) for index in range(len(labels))]
    for label, count, quota in zip(labels, counts, quotas, strict=True):
        if count < quota:
            hint = " The full set has more: tier='paper'." if tier == "quick" else ""
            raise NotEnoughSamplesError(
                f"{where} holds {count} images of class {label}, but n={n} over {len(labels)} "
                f"class(es) asks for {quota} of it. The largest n is {_largest(counts)}.{hint}"
            )
    kept = [np.flatnonzero(y == label)[:quota] for label, quota in zip(labels, quotas, strict=True)]
    return np.sort(np.concatenate(kept))


def _largest(counts: list[int]) -> int:
    """Return the largest n that the quotas allow, for counts in the order of the labels."""
    return len(counts) * min(counts) + counts.index(min(counts))


def _arrays(
    images: Images, rows: NDArray[np.intp]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    X = images.x[rows].reshape(len(rows), -1).astype(np.float32)
    X /= np.float32(255)
    y = images.y[rows]
    X.flags.writeable = False
    y.flags.writeable = False
    return X, y


def _hash(X: NDArray[np.float32], y: NDArray[np.int64]) -> str:
    """Return the sha256 of both arrays as little-endian bytes."""
    total = hashlib.sha256(X.astype("<f4", copy=False).tobytes())
    total.update(y.astype("<i8", copy=False).tobytes())
    return total.hexdigest()
