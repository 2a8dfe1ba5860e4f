"""Kernels of samples whose norms are far apart, or nearly equal, in 60 digits."""

import mpmath
import numpy as np
import pytest

from implicitnn import kernels
from implicitnn.activations import erf, leaky_relu, relu, tanh
from implicitnn.specs import DEQ, ENN

RATIOS = [1.0, 1.0 + 1e-9, 1.0 + 1e-4, 2.0, 1e3, 1e6, 1e8, 1e12]
ANGLES = [0.0, 1e-9, 1e-3, 1.0, 3.1]
HOMOGENEOUS = [
    DEQ(relu, 0.2),
    DEQ(relu, 0.9, sigma_c2=0.3),
    DEQ(relu, 0.5, 0.5, centred=False),
    DEQ(leaky_relu(0.2), 0.7, tau0=1e-4),
    DEQ(leaky_relu(-0.5), 0.7, tau0=1e3),
]


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


def samples(ratio: float, angle: float) -> np.ndarray:
    x = np.array([1.0, 0.3])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.stack([x, (turn @ x if angle else x) * ratio])


def geometry(X: np.ndarray):
    """Norms, and |x/|x| - y/|y||^2."""
    rows = [[mpmath.mpf(float(value)) for value in row] for row in X]
    norms = [mpmath.sqrt(sum(value**2 for value in row)) for row in rows]
    chord2 = sum((a / norms[0] - b / norms[1]) ** 2 for a, b in zip(*rows, strict=True))
    return norms, chord2


class Arc:
    """Moments of phi(t) = a max(t, 0) - b max(-t, 0) - c in mpmath."""

    def __init__(self, phi) -> None:
        a, minus_b = (mpmath.mpf(float(v)) for v in phi.activation.f(np.array([1.0, -1.0])))
        self.linear, self.bent = ((a - minus_b) / 2) ** 2, ((a + minus_b) / 2) ** 2
        self.mean = (a + minus_b) / 2 * mpmath.sqrt(2 / mpmath.pi)
        self.c = mpmath.mpf(float(phi.offset))
        self.top = self.linear + self.bent

    def product(self, s1, s2, theta):
        """E phi(u) phi(v)."""
        bend = mpmath.sin(theta) + (mpmath.pi / 2 - theta) * mpmath.cos(theta)
        curve = self.linear * mpmath.cos(theta) + self.bent * 2 / mpmath.pi * bend
        return s1 * s2 * curve + self.c**2 - self.c * self.mean * (s1 + s2)

    def slope(self, theta):
        """E phi'(u) phi'(v)."""
        return self.linear + self.bent * (1 - 2 * theta / mpmath.pi)


def implicit(spec: DEQ, X: np.ndarray):
    """CK and NTK of the pair, and their scales."""
    arc, (norms, chord2) = Arc(spec.phi), geometry(X)
    a2, b2, c2 = (mpmath.mpf(float(v)) for v in (spec.sigma_a2, spec.sigma_b2, spec.sigma_c2))
    flat = 1 - a2 * arc.top
    half = a2 * arc.c * arc.mean
    drives = [b2 * n**2 + c2 + a2 * arc.c**2 for n in norms]
    s1, s2 = ((mpmath.sqrt(half**2 + flat * drive) - half) / flat for drive in drives)
    target = b2 * norms[0] * norms[1] * (1 - chord2 / 2) + c2
    low, high = mpmath.mpf(0), mpmath.pi
    for _ in range(220):
        theta = (low + high) / 2
        value = s1 * s2 * mpmath.cos(theta) - a2 * arc.product(s1, s2, theta) - target
        low, high = (theta, high) if value > 0 else (low, theta)
    ck = arc.product(s1, s2, theta)
    ends = [arc.product(s, s, mpmath.mpf(0)) for s in (s1, s2)]
    scale = mpmath.sqrt(ends[0] * ends[1])
    return ck, ck / (1 - a2 * arc.slope(theta)), scale, scale / flat


@pytest.mark.parametrize("spec", HOMOGENEOUS, ids=repr)
@pytest.mark.parametrize("ratio", RATIOS)
def test_homogeneous_pairs_of_any_ratio(spec, ratio):
    for angle in ANGLES:
        X = samples(ratio, angle)
        ck, ntk = kernels.ck_and_ntk(spec, X)
        exact_ck, exact_ntk, scale_ck, scale_ntk = implicit(spec, X)
        assert abs(ck[0, 1] - exact_ck) <= 1e-12 * scale_ck
        assert abs(ntk[0, 1] - exact_ntk) <= 1e-12 * scale_ntk


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("ratio", RATIOS)
def test_explicit_homogeneous_pairs_of_any_ratio(centred, ratio):
    """Two layers; an angle is found again from the first kernel, as arccos at 60 digits."""
    spec = ENN((relu, leaky_relu(0.3)), centred=centred)
    for angle in ANGLES:
        X = samples(ratio, angle)
        got = kernels.ck_and_ntk(spec, X)
        norms, chord2 = geometry(X)
        (s1, s2), rho = norms, 1 - chord2 / 2
        kernel, ends = norms[0] * norms[1] * rho, [n**2 for n in norms]
        for phi in spec.phis:
            arc = Arc(phi)
            theta = mpmath.acos(max(mpmath.mpf(-1), min(mpmath.mpf(1), rho)))
            value = arc.product(s1, s2, theta)
            kernel = value + kernel * arc.slope(theta)
            energies = [arc.product(s, s, mpmath.mpf(0)) for s in (s1, s2)]
            ends = [e + k * arc.top for e, k in zip(energies, ends, strict=True)]
            s1, s2 = (mpmath.sqrt(e) for e in energies)
            rho = value / (s1 * s2)
        assert abs(got.ck[0, 1] - value) <= 1e-12 * s1 * s2
        assert abs(got.ntk[0, 1] - kernel) <= 1e-12 * mpmath.sqrt(ends[0] * ends[1])


@pytest.mark.parametrize("ratio", RATIOS)
def test_erf_pairs_of_any_ratio(ratio):
    """Closed form of an explicit layer, in 60 digits."""
    for angle in ANGLES:
        X = samples(ratio, angle)
        ck = kernels.ck(ENN((erf,), centred=False), X)
        (n1, n2), chord2 = geometry(X)
        sizes = [1 + 2 * n**2 for n in (n1, n2)]
        product = n1 * n2 * (1 - chord2 / 2)
        exact = 2 / mpmath.pi * mpmath.asin(2 * product / mpmath.sqrt(sizes[0] * sizes[1]))
        assert abs(ck[0, 1] - exact) <= 1e-10 * np.sqrt(ck[0, 0] * ck[1, 1])


@pytest.mark.parametrize("ratio", [1e3, 1e6])
def test_a_small_sample_next_to_a_large_one(ratio):
    """For small |y| an odd CK is linear in y: K(x, y)/|y| does not move."""
    x, y = np.array([1.0, 0.3]), np.array([0.8, -0.2])
    spec = DEQ(tanh, 0.5)
    one = kernels.ck(spec, np.stack([x, 1e-5 * y]))[0, 1] / 1e-5
    two = kernels.ck(spec, np.stack([x, 1e-5 * y / ratio]))[0, 1] / 1e-5 * ratio
    # the next order is |y|^2
    assert one == pytest.approx(two, rel=1e-9)
