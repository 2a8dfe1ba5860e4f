"""Make the embedded features of CIFAR-10 from the images and the stored VGG.

``python data/make_features.py`` needs CIFAR-10 (tier paper of the loader). It writes
``embedded/cifar10_features.npz``: float16 features of the first 5,000 training and 2,000 test
images, equally many of each class, and pins its sha256 and that of the weights in registry.json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import make_embedded
import numpy as np

from implicitnn import backbones, datasets

DATA = Path(__file__).resolve().parent
SIZES = {"train": 5000, "test": 2000}


def main() -> None:
    """Write the file and its hash."""
    weights = DATA / "backbone" / backbones.WEIGHTS
    net = backbones.load(weights)
    splits = {}
    for split, n in SIZES.items():
        data = datasets.load("cifar10", split, n, tier="paper")
        X = backbones.features(net, data.X).astype(np.float16)
        splits[split] = (X, data.y.astype(np.uint8))
    path = DATA / "embedded" / "cifar10_features.npz"
    make_embedded.write(path, splits)
    registry = json.loads((DATA / "registry.json").read_text(encoding="utf-8"))
    registry["features"] = {
        "weights": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "embedded": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    text = json.dumps(registry, indent=2) + "\n"
    (DATA / "registry.json").write_text(text, encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes, {registry['features']}")


if __name__ == "__main__":
    main()
