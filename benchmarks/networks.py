"""Time the equilibrium layer against its floor and peers; ``python -m benchmarks.networks``.

Floor: iterations times one matrix product of the same shape, in the faster of the installed BLAS
libraries; forward and backward, one more product for the gradient of A. All contenders of a case
run in turn within each round. Smallest times over the rounds; ratios are taken to the floor's
smallest time. Peers are a plain unrolled loop, and torchdeq where it can be imported; where it
cannot, a line and the file of results say so.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.run import interleaved, machine, write
from implicitnn import networks
from implicitnn._networks.backend import faster
from implicitnn.activations import relu
from implicitnn.solvers import Anderson, Broyden, Picard
from implicitnn.specs import DEQ

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results" / "benchmarks_networks.json"
P = 784
TORCHDEQ = ("fixed_point_iter", "anderson", "broyden")
PRODUCTS = ("product, numpy", "product, torch")
SOLVERS = {"Picard": Picard(), "Anderson": Anderson(), "Broyden": Broyden()}
ABSENT = "torchdeq is not installed: it is not compared here (make bench fetches it)"


def has_torchdeq() -> bool:
    """Whether the peer can be imported."""
    return importlib.util.find_spec("torchdeq") is not None


def inputs(batch: int) -> torch.Tensor:
    """Gaussian samples of mean squared norm one."""
    x = np.random.default_rng(0).standard_normal((batch, P)) / np.sqrt(P)
    return torch.from_numpy(x.astype(np.float32))


def upstream(batch: int, width: int) -> torch.Tensor:
    """A gradient that arrives at the equilibrium."""
    g = np.random.default_rng(1).standard_normal((batch, width))
    return torch.from_numpy(g.astype(np.float32))


def make(width: int, sigma_a2: float, rtol: float, solver: str) -> networks.ImplicitNet:
    """The layer that is timed."""
    return networks.ImplicitNet(
        DEQ(relu, sigma_a2), P, width, rng=0, rtol=rtol, solver=SOLVERS[solver], on_failure="count"
    )


def both_ways(net: networks.ImplicitNet, x: torch.Tensor, g: torch.Tensor) -> None:
    """Forward and backward."""
    net.zero_grad()
    net.features(x).backward(g)


@contextmanager
def ungraded() -> Iterator[None]:
    """No autograd; a context that may be entered again."""
    with torch.no_grad():
        yield


def plain(net: networks.ImplicitNet, x: torch.Tensor, steps: int) -> torch.Tensor:
    """The iteration as one would write it in PyTorch, for a fixed number of steps."""
    spec, scale = net.spec, net.width**-0.5
    drive = spec.sigma_b2**0.5 * (x @ net.B.T)
    z = scale * (torch.relu(drive) - spec.offset)
    for _ in range(steps):
        z = scale * (torch.relu(spec.sigma_a2**0.5 * (z @ net.A.T) + drive) - spec.offset)
    return z


def contenders(
    width: int, batch: int, sigma_a2: float, rtol: float, peers: Sequence[str]
) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """What is timed in one case, and the number of products that each needs."""
    x, g = inputs(batch), upstream(batch, width)
    work: dict[str, Callable[[], Any]] = {}
    products: dict[str, float] = {}
    for name in SOLVERS:
        net = make(width, sigma_a2, rtol, name)
        both_ways(net, x, g)
        forward, backward = net.log.forward, net.log.backward
        assert forward is not None and backward is not None

        def one(net: networks.ImplicitNet = net) -> None:
            with ungraded():
                net.features(x)

        work[f"{name} forward"] = one
        work[f"{name} both"] = lambda net=net: both_ways(net, x, g)
        products[f"{name} forward"] = forward.iterations
        products[f"{name} both"] = forward.iterations + backward.iterations + 1
        if name == "Picard":
            first, steps = net, forward.iterations
    a, z = first.A.detach(), first.features(x).detach()
    out = torch.empty_like(z)
    work["product, numpy"] = lambda: np.matmul(z.numpy(), a.numpy().T, out=out.numpy())
    work["product, torch"] = lambda: torch.matmul(z, a.T, out=out)
    products |= dict.fromkeys(PRODUCTS, 1)

    def loop() -> None:
        with ungraded():
            plain(first, x, steps)

    def unrolled() -> None:
        first.zero_grad()
        plain(first, x, steps).backward(g)

    work |= {"plain torch forward": loop, "unrolled torch both": unrolled}
    products |= {"plain torch forward": steps, "unrolled torch both": 2 * steps + 1}
    if peers and has_torchdeq():
        _add_torchdeq(work, products, first, x, g, rtol, steps, peers)
    return work, products


def _add_torchdeq(
    work: dict[str, Callable[[], Any]],
    products: dict[str, float],
    net: networks.ImplicitNet,
    x: torch.Tensor,
    g: torch.Tensor,
    rtol: float,
    steps: int,
    peers: Sequence[str],
) -> None:
    from torchdeq import get_deq

    spec, scale = net.spec, net.width**-0.5
    weights = (spec.sigma_a2**0.5 * net.A).detach().requires_grad_()
    for solver in peers:
        deq = get_deq(
            ift=True,
            f_solver=solver,
            b_solver=solver,
            f_tol=rtol,
            b_tol=rtol,
            f_max_iter=100,
            b_max_iter=100,
            f_stop_mode="rel",
            b_stop_mode="rel",
        )

        def solved(deq: Any = deq) -> tuple[torch.Tensor, int]:
            drive = spec.sigma_b2**0.5 * (x @ net.B.T)
            calls = 0

            def step(z: torch.Tensor) -> torch.Tensor:
                nonlocal calls
                calls += 1
                return scale * (torch.relu(z @ weights.T + drive) - spec.offset)

            return deq(step, torch.zeros_like(drive))[0][-1], calls

        def both(solved: Any = solved) -> None:
            weights.grad = None
            solved()[0].backward(g)

        def forward(solved: Any = solved) -> None:
            with ungraded():
                solved()

        with ungraded():
            calls = solved()[1]
        print(f"{net.width:5d} {spec.sigma_a2:.1f} {rtol:.0e} torchdeq {solver}: {calls} passes")
        work |= {f"torchdeq {solver} forward": forward, f"torchdeq {solver} both": both}
        products |= {f"torchdeq {solver} forward": steps, f"torchdeq {solver} both": 2 * steps + 1}


def measure(
    width: int, batch: int, sigma_a2: float, rtol: float, rounds: int, peers: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of one case; torchdeq, with implicit gradients, is held to the floor of Picard.

    Both stop at the same relative change of a step, in the worst sample of the batch.
    """
    work, products = contenders(width, batch, sigma_a2, rtol, peers)
    times = interleaved(work, rounds)
    least = min((times[name] for name in PRODUCTS), key=lambda t: t["wall"])
    rows = []
    for name, t in times.items():
        floor = {k: least[k] * products[name] for k in ("wall", "cpu")}
        rows.append(
            {
                "width": width,
                "batch": batch,
                "sigma_a2": sigma_a2,
                "rtol": rtol,
                "contender": name,
                "products": products[name],
                **t,
                "ratio": t["wall"] / floor["wall"],
                "cpu_ratio": t["cpu"] / floor["cpu"],
            }
        )
        print(
            f"{width:5d} {sigma_a2:.1f} {rtol:.0e} {name:34s} {t['wall'] * 1e3:9.1f} ms "
            f"{products[name]:4.0f} products {rows[-1]['ratio']:6.2f} floors "
            f"(cpu {rows[-1]['cpu_ratio']:.2f})",
            flush=True,
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run all cases, print a table, write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--sigma-a2", type=float, nargs="+", default=[0.2, 0.9])
    parser.add_argument("--rtol", type=float, nargs="+", default=[1e-3, 1e-6])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchdeq", nargs="*", choices=TORCHDEQ, default=TORCHDEQ)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    facts = machine() | {"torch": torch.__version__, "backend": faster()}
    facts["torchdeq"] = importlib.metadata.version("torchdeq") if has_torchdeq() else None
    rows = [
        row
        for width in options.widths
        for sigma_a2 in options.sigma_a2
        for rtol in options.rtol
        for row in measure(width, options.batch, sigma_a2, rtol, options.rounds, options.torchdeq)
    ]
    facts["load_at_the_end"] = os.getloadavg()[0]
    if not has_torchdeq():
        print(ABSENT, flush=True)
    write(options.output, {"machine": facts, "batch": options.batch, "rows": rows})


if __name__ == "__main__":
    main()
