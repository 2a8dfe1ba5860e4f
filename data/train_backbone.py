"""Train the small VGG whose 256 features stand for CIFAR-10, and store its weights.

``python data/train_backbone.py`` needs CIFAR-10 (tier paper of the loader) and about half an hour
on one core. It writes ``backbone/cifar10_vgg.pt`` (float16, batch normalisation folded into the
convolutions) and ``backbone/cifar10_vgg.jsonl`` (one line for each epoch). The weights of the last
epoch are kept, whatever their test accuracy: the test images choose nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from implicitnn import backbones, datasets

FOLDER = Path(__file__).resolve().parent / "backbone"
TRAIN, TEST = 24_000, 8_000
SEED, EPOCHS, BATCH = 0, 12, 128
PEAK, MOMENTUM, DECAY, SMOOTHING = 0.1, 0.9, 5e-4, 0.0
MARGIN = 4


def images(split: str, n: int) -> tuple[Tensor, Tensor]:
    """Standardised images (n, 3, 32, 32) and labels."""
    data = datasets.load("cifar10", split, n, tier="paper")
    return backbones.standardise(data.X), torch.from_numpy(data.y)


def augmented(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Each image mirrored with probability 1/2, and moved by up to MARGIN pixels."""
    padded = nn.functional.pad(x, (MARGIN,) * 4)
    shift = rng.integers(2 * MARGIN + 1, size=(len(x), 2))
    mirror = rng.random(len(x)) < 0.5
    views = [padded[i, :, a : a + 32, b : b + 32] for i, (a, b) in enumerate(shift)]
    return torch.stack([v.flip(2) if m else v for v, m in zip(views, mirror, strict=True)])


def batches(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A random order of n images, in batches; an incomplete last batch is left out."""
    order = rng.permutation(n)
    return (order[i : i + BATCH] for i in range(0, n - BATCH + 1, BATCH))


@torch.inference_mode()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of images whose largest score is their class's."""
    net.eval()
    right = [
        (net(part).argmax(1) == z).sum() for part, z in zip(x.split(500), y.split(500), strict=True)
    ]
    net.train()
    return float(sum(right)) / len(y)


def main() -> None:
    """Train, fold, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--float32", action="store_true", help="no bfloat16 (twice as slow)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    x, y = images("train", TRAIN)
    test = images("test", TEST)
    net = backbones.VGG().to(memory_format=torch.channels_last)
    steps = options.epochs * (len(x) // BATCH)
    optimiser = torch.optim.SGD(
        net.parameters(), lr=PEAK, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, PEAK, total_steps=steps, pct_start=0.2, cycle_momentum=False
    )
    options.output.mkdir(parents=True, exist_ok=True)
    start, lines = time.perf_counter(), []
    for epoch in range(1, options.epochs + 1):
        total, count = 0.0, 0
        for chosen in batches(len(x), rng):
            view = augmented(x[chosen], rng).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not options.float32):
                loss = nn.functional.cross_entropy(net(view), y[chosen], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total, count = total + float(loss.detach()), count + 1
        line = {
            "epoch": epoch,
            "loss": round(total / count, 5),
            "test_accuracy": accuracy(net, *test) if epoch % 4 == 0 else None,
            "seconds": round(time.perf_counter() - start, 1),
        }
        lines.append(line)
        print(line, flush=True)
    plain = backbones.fold(net.eval()).half()
    place = options.output / "cifar10_vgg.pt"
    torch.save(plain.state_dict(), place)
    stored = backbones.load(place)
    lines.append(
        {
            "stored": place.name,
            "sha256": hashlib.sha256(place.read_bytes()).hexdigest(),
            "train_accuracy": accuracy(stored, x, y),
            "test_accuracy": accuracy(stored, *test),
            "train": TRAIN,
            "test": TEST,
            "seed": SEED,
            "epochs": options.epochs,
            "arithmetic": "float32" if options.float32 else "bfloat16 products",
            "torch": torch.__version__,
        }
    )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (options.output / "cifar10_vgg.jsonl").write_text(text, encoding="utf-8")
    print(lines[-1])


if __name__ == "__main__":
    main()
