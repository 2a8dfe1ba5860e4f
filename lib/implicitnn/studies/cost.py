"""Study of time and memory: the DEQ against explicit nets of the same width (claim A11).

One row is one comparison in one process: all contenders run in turn, round after round, and the
smallest time of each is kept. Times depend on the machine; ratios less so; counts not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch

from implicitnn import activations, design
from implicitnn._validate import integer, one_of, real
from implicitnn.networks import ExplicitNet, ImplicitNet
from implicitnn.solvers import Anderson, Broyden, Picard, Solver
from implicitnn.specs import DEQ, ENN
from implicitnn.studies._memory import peak_bytes, saved_bytes
from implicitnn.sweeps import Study

P, CLASSES, ROUNDS = 784, 10, 5
SOLVERS: dict[str, Solver] = {"picard": Picard(), "anderson": Anderson(), "broyden": Broyden()}
Net = ImplicitNet | ExplicitNet


def contenders(width: int, sigma_a2: float, rtol: float, solver: str, seed: int) -> dict[str, Net]:
    """Return the DEQ, the matched two-layer net (plain ReLU where none exists), and one layer.

    Examples
    --------
    >>> list(contenders(16, 0.2, 1e-3, "picard", 0))
    ['deq', 'two_layers', 'one_layer']
    """
    deq = DEQ(activations.relu, sigma_a2)
    two = matched(sigma_a2) or ENN((activations.relu,) * 2)
    one = ENN((activations.relu,))
    chosen = SOLVERS[one_of(solver, "solver", tuple(SOLVERS))]
    return {
        "deq": ImplicitNet(
            deq, P, width, CLASSES, seed, rtol=rtol, solver=chosen, on_failure="count"
        ),
        "two_layers": ExplicitNet(two, P, width, CLASSES, seed),
        "one_layer": ExplicitNet(one, P, width, CLASSES, seed),
    }


def matched(sigma_a2: float) -> ENN | None:
    """Return the two-layer net with the kernel of the ReLU-DEQ, None where there is none.

    Examples
    --------
    >>> matched(0.2) is None, matched(0.9) is None
    (False, True)
    """
    found = design.match(DEQ(activations.relu, sigma_a2), "leaky_relu", layers=2)
    return found.enn if found.status.value in ("exact", "rounded") else None


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return times in milliseconds, iterations, parameters and bytes.

    ``infer_*``: one batch without gradients; ``train_*``: forward, backward and step of all
    weights; ``saved_*``: bytes that autograd keeps, parameters and input aside; ``saved_unrolled``:
    the same for the iteration differentiated step by step; ``peak_infer_*``, ``peak_train_*``: most
    bytes alive at once in what a pass makes, gradients of weights among them, with the arithmetic
    of PyTorch; ``weights_*``: numbers of parameters; ``threads``: those of the timed products;
    ``matched``: 1 where a matched two-layer net exists. ``one_by_one``: the DEQ's inference with a
    loop over samples in Python, as in the authors' public code.

    Parameters
    ----------
    settings : mapping
        ``width``, ``batch``, ``sigma_a2``, ``rtol``, ``solver`` (a key of SOLVERS).
    seed : int
        Seed of inputs and weights.

    Examples
    --------
    >>> cell = {"width": 32, "batch": 8, "sigma_a2": 0.2, "rtol": 1e-3, "solver": "picard"}
    >>> found = row(cell, 0)
    >>> found["iterations"] < 12, found["saved_unrolled"] > 3 * found["saved_deq"]
    (True, True)
    """
    width, batch = integer(settings["width"], "width", 1), integer(settings["batch"], "batch", 1)
    rng = np.random.default_rng([seed, batch])
    x = torch.from_numpy((rng.standard_normal((batch, P)) / np.sqrt(P)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, CLASSES, batch))
    sigma_a2, rtol = real(settings["sigma_a2"], "sigma_a2"), real(settings["rtol"], "rtol")
    nets = contenders(width, sigma_a2, rtol, str(settings["solver"]), seed)
    deq = nets["deq"]
    assert isinstance(deq, ImplicitNet)
    work: dict[str, Callable[[], object]] = {}
    for name, net in nets.items():
        work[f"infer_{name}"] = partial(infer, net, x)
        work[f"train_{name}"] = partial(step, net, x, y)
    work["one_by_one"] = partial(one_by_one, deq, x)
    result = _times(work)
    infer(deq, x)
    report = deq.log.forward
    assert report is not None
    result |= {"iterations": report.iterations, "not_converged": report.not_converged}
    result |= {"threads": torch.get_num_threads(), "matched": float(matched(sigma_a2) is not None)}
    for name, net in nets.items():
        known = [*net.parameters(), x]
        result[f"weights_{name}"] = sum(p.numel() for p in net.parameters())
        result[f"saved_{name}"] = saved_bytes(partial(net, x), known)
        net.zero_grad()
        net.backend = "torch"  # so that every array is a tensor, and is counted
        result[f"peak_infer_{name}"] = peak_bytes(partial(infer, net, x), known)
        result[f"peak_train_{name}"] = peak_bytes(partial(step, net, x, y), known)
    loop = partial(unrolled, deq, x, report.iterations)
    result["saved_unrolled"] = saved_bytes(loop, [*deq.parameters(), x])
    return result


def infer(net: Net, x: torch.Tensor) -> None:
    """Run one batch without gradients."""
    with torch.no_grad():
        net(x)


def step(net: Net, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train one batch: all gradients, and a step too small to change what is timed."""
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-1e-6)


def unrolled(net: ImplicitNet, x: torch.Tensor, steps: int) -> torch.Tensor:
    """Return the ReLU-DEQ's output by plain iteration under autograd."""
    spec, scale = net.spec, net.width**-0.5
    drive = spec.sigma_b2**0.5 * (x @ net.B.T)
    z = scale * (torch.relu(drive) - spec.offset)
    for _ in range(steps):
        z = scale * (torch.relu(spec.sigma_a2**0.5 * (z @ net.A.T) + drive) - spec.offset)
    y: torch.Tensor = z @ net.a.T
    return y


def one_by_one(net: ImplicitNet, x: torch.Tensor) -> None:
    """Run one batch with a Python loop over samples, each to its own equilibrium."""
    with torch.no_grad():
        for sample in x:
            net(sample[None])


def _times(work: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def _grid(
    widths: tuple[int, ...], sigmas: tuple[float, ...], tolerances: tuple[float, ...]
) -> list[dict[str, object]]:
    return [
        {"width": m, "batch": 128, "sigma_a2": s, "rtol": tol, "solver": "picard"}
        for m in widths
        for s in sigmas
        for tol in tolerances
    ]


def _cost(settings: Mapping[str, object]) -> float:
    m, s = real(settings["width"], "width"), real(settings["sigma_a2"], "sigma_a2")
    steps = -np.log(real(settings["rtol"], "rtol")) / (0.7 - 0.5 * float(np.log(s)))
    return 1e9 + 3e3 * m * m * float(steps)


TIMES = tuple(
    f"{kind}_{name}" for kind in ("infer", "train") for name in ("deq", "two_layers", "one_layer")
)
STUDY = Study(
    name="cost",
    row=row,
    grids={
        "quick": _grid((32, 128), (0.2,), (1e-3,)) + _grid((128,), (0.9,), (1e-3,)),
        "paper": _grid((256, 1024, 4096), (0.1, 0.2, 0.5, 0.9), (1e-2, 1e-3, 1e-6)),
    },
    seeds={"quick": (1000,), "paper": (0, 1, 2)},
    claims=("A11",),
    # An iteration more or less where the last step lies at the tolerance.
    rtol=0.1,
    unchecked=(*TIMES, "one_by_one", "threads"),
    alone=True,
    cost=_cost,
)
