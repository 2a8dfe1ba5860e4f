"""Explicit kernels against neural-tangents, which runs in an environment of its own.

Run by ``make test-peers``: the peer needs older releases of NumPy and JAX than the library.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks.run import ROOT, peer_python

from implicitnn import activations, kernels
from implicitnn.specs import ENN

NAMES = ("relu", "leaky_relu(0.2)", "erf", "gelu")
DEPTHS = (1, 2, 3)
# Both sides solve in float64, ours to 1e-10; the peer takes the arc cosine of a rounded cosine,
# which leaves sqrt(eps) on the diagonal of an NTK.
OFF_DIAGONAL = 1e-10
DIAGONAL = {"ck": 1e-10, "ntk": 1e-7}


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    place: Path = tmp_path_factory.mktemp("peers") / "kernels.npz"
    script = ROOT / "benchmarks" / "peer_kernels.py"
    subprocess.run([str(peer_python()), str(script), str(place)], check=True)
    with np.load(place) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", NAMES)
def test_both_kernels_agree(theirs: dict[str, np.ndarray], name: str, depth: int) -> None:
    spec = ENN((activations.get(name),) * depth, centred=False)
    ours = dict(
        zip(("ck", "ntk"), kernels.ck_and_ntk(spec, theirs["X"], params="all"), strict=True)
    )
    for kind, value in ours.items():
        scale = np.sqrt(np.diag(value))
        error = np.abs(value - theirs[f"{name}|{depth}|{kind}"]) / np.outer(scale, scale)
        assert np.diag(error).max() <= DIAGONAL[kind]
        assert (error - np.diag(np.diag(error))).max() <= OFF_DIAGONAL


def test_the_cases_are_the_peers(theirs: dict[str, np.ndarray]) -> None:
    assert len(theirs) == 1 + 2 * len(NAMES) * len(DEPTHS)
