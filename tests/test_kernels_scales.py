"""Kernels of large and small samples and of narrow activations, against panels graded in t."""

import warnings

import numpy as np
import pytest
from scipy import special

from implicitnn import kernels
from implicitnn.activations import Activation, elu, erf, gelu, hard_tanh, swish, tanh
from implicitnn.errors import AccuracyError
from implicitnn.specs import DEQ, ENN

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
MANY_NODES, MANY_WEIGHTS = np.polynomial.legendre.leggauss(60)
SHIPPED = [tanh, swish, gelu, elu, erf]
SCALES = [1e-3, 1.0, 300.0, 1e4, 1e6]


def graded(centre: float, reach: float, least: float) -> np.ndarray:
    """Edges at growing distance from a centre."""
    steps = np.geomspace(least, reach, 2 + int(np.log(reach / least)))
    return np.concatenate([centre - steps, [centre], centre + steps])


def gauss(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of N(0, 1) on panels between sorted edges (..., k)."""
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    middle = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    x = (middle + half * NODES).reshape(*edges.shape[:-1], -1)
    w = (half * WEIGHTS).reshape(*edges.shape[:-1], -1)
    return x, w * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


def moment(f, sd: float, bends, width: float) -> float:
    """E f(sd xi)^2."""
    parts = [graded(b / sd, 30.0, min(0.1, width / sd)) for b in {0.0, *bends}]
    edges = np.union1d(np.linspace(-13, 13, 27), np.concatenate(parts))
    x, w = gauss(edges[(edges >= -13) & (edges <= 13)])
    return float((f(sd * x) ** 2 * w).sum())


def pair(f, s1: float, s2: float, rho: float) -> float:
    """E f(u) f(v) for f with one bend of width 1 at 0."""
    rest = np.sqrt((1 - rho) * (1 + rho))
    standard = np.linspace(-12, 12, 25)
    around = [graded(0.0, 30.0, min(0.1, 0.3 / s1)), graded(0.0, 30.0, min(0.1, rest))]
    x, w = gauss(np.unique(np.clip(np.concatenate([standard, *around]), -12, 12)))
    moved = (-rho * x / rest)[:, None] + graded(0.0, 30.0, min(0.1, 0.3 / (s2 * rest)))
    fixed = np.broadcast_to(standard, (x.size, standard.size))
    y, weight = gauss(np.sort(np.clip(np.concatenate([fixed, moved], axis=1), -12, 12), axis=1))
    inner = (f(s2 * (rho * x[:, None] + rest * y)) * weight).sum(axis=1)
    return float((f(s1 * x) * inner * w).sum())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("activation", SHIPPED, ids=repr)
def test_diagonals_are_right_at_every_scale(activation, scale):
    """The layer's own equation holds with moments taken here."""
    spec = DEQ(activation, 0.2, tau0=scale)
    X = scale * np.diag([1.0, 0.1, 2.0])
    ck, ntk = kernels.ck_and_ntk(spec, X)
    for k in range(3):
        sd = np.sqrt(0.2 * ck[k, k] + 0.8 * X[k] @ X[k])
        energy = moment(spec.phi, sd, (), 0.3)
        slope = moment(spec.phi.df, sd, (), 0.3)
        assert ck[k, k] == pytest.approx(energy, rel=1e-11)
        assert ntk[k, k] == pytest.approx(energy / (1 - 0.2 * slope), rel=1e-11)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e5])
@pytest.mark.parametrize("activation", [tanh, swish, elu], ids=repr)
def test_pairs_are_right_at_every_scale(activation, scale):
    spec = DEQ(activation, 0.2, tau0=scale)
    X = scale * np.array([[1.0, 0.0], [0.8, 0.6], [1.0, 0.02], [0.03, -0.03]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some pairs are slow there, which is said
        ck, ntk = kernels.ck_and_ntk(spec, X)
    covariance = 0.2 * ck + 0.8 * X @ X.T
    sd = np.sqrt(np.diag(covariance))
    for i, j in ((0, 1), (0, 2), (1, 3)):
        rho = covariance[i, j] / (sd[i] * sd[j])
        value, slope = (pair(f, sd[i], sd[j], rho) for f in (spec.phi, spec.phi.df))
        assert abs(ck[i, j] - value) <= 1e-10 * np.sqrt(ck[i, i] * ck[j, j])
        error = abs(ntk[i, j] - value / (1 - 0.2 * slope))
        assert error <= 1e-10 * np.sqrt(ntk[i, i] * ntk[j, j])


def test_hard_tanh_of_large_samples_is_a_step():
    """At sd s the kernel is 2/pi arcsin(rho) up to O(1/s): clip is a mean of steps."""
    X = 1e4 * np.array([[1.0, 0.0], [0.8, 0.6], [-0.6, 0.8], [0.999, np.sqrt(1 - 0.999**2)]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ck = kernels.ck(ENN((hard_tanh(),), tau0=1e4), X)
    # E clip(u) clip(v) is the mean over levels a, b in (-1, 1) of the orthant sign kernel
    levels, weights = np.polynomial.legendre.leggauss(4)
    for i, j in ((0, 1), (0, 2), (0, 3)):
        rho = float(X[i] @ X[j]) / 1e8
        total = 0.0
        for a, u in zip(levels, weights, strict=True):
            for b, w in zip(levels, weights, strict=True):
                total += 0.25 * u * w * sign_pair(a / 1e4, b / 1e4, rho)
        assert ck[i, j] == pytest.approx(total, abs=1e-11)


def sign_pair(h: float, k: float, rho: float) -> float:
    """E sgn(x - h) sgn(y - k), by integrating the density of (x, y) at (h, k) over rho."""
    angle = 0.5 * np.arcsin(rho) * (MANY_NODES + 1)
    power = (2 * np.sin(angle) * h * k - h * h - k * k) / (2 * np.cos(angle) ** 2)
    joint = 0.5 * np.arcsin(rho) * (MANY_WEIGHTS * np.exp(power)).sum() / (2 * np.pi)
    means = [special.erf(t / np.sqrt(2)) for t in (h, k)]
    return float(4 * joint + means[0] * means[1])


def steep(rate: float, place: float) -> Activation:
    def df(t):
        return rate / np.cosh(np.clip(rate * (t - place), -300, 300)) ** 2

    return Activation(f"steep({rate})", lambda t: np.tanh(rate * (t - place)), df)


def bump() -> Activation:
    """The identity with a bump of width 1/3000 and height 1/30."""

    def df(t):
        z = 3000 * (t - 1.3)
        return 1 - 200 * z * np.exp(-z * z)

    return Activation("bump", lambda t: t + np.exp(-((3000 * (t - 1.3)) ** 2)) / 30, df)


NARROW = [(steep(40, 1.5), 1.5, 1 / 40), (steep(3000, 0), 0.0, 1e-4), (bump(), 1.3, 1e-4)]


@pytest.mark.parametrize("scale", [1e-2, 1.0, 30.0, 1e4])
@pytest.mark.parametrize(("activation", "place", "width"), NARROW)
def test_narrow_bends_are_seen(activation, place, width, scale):
    spec = ENN((activation,), tau0=scale, centred=False)
    ck, ntk = kernels.ck_and_ntk(spec, [[scale]])
    energy = moment(activation.f, scale, (place,), 0.1 * width)
    slope = moment(activation.df, scale, (place,), 0.1 * width)
    assert ck[0, 0] == pytest.approx(energy, rel=1e-9)
    assert ntk[0, 0] == pytest.approx(energy + scale**2 * slope, rel=1e-9)


def test_narrow_bends_are_seen_by_pairs():
    """E f(u) f(v) for a steep step away from 0, from the probability of the four corners."""
    activation = steep(300, 0.5)
    X = np.array([[1.0, 0.0], [0.6, 0.8]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ck = kernels.ck(ENN((activation,), centred=False), X)
    # f is a mean of steps at 0.5 + z/300 with the logistic density of z
    z = np.linspace(-12, 12, 81)
    weight = 0.5 * np.diff(z)[0] / np.cosh(z) ** 2
    total = sum(
        a * b * sign_pair(0.5 + s / 300, 0.5 + t / 300, 0.6)
        for a, s in zip(weight, z, strict=True)
        for b, t in zip(weight, z, strict=True)
        if a * b > 1e-13
    )
    assert ck[0, 1] == pytest.approx(total, abs=1e-9)


def test_an_oscillation_is_right_or_refused():
    wave = Activation("wave", lambda t: np.sin(60 * t), lambda t: 60 * np.cos(60 * t))
    for scale in (0.01, 0.3, 1.0, 3.0):
        ck, ntk = kernels.ck_and_ntk(ENN((wave,), tau0=scale, centred=False), [[scale]])
        rest = np.exp(-7200 * scale**2)
        assert ck[0, 0] == pytest.approx(-0.5 * np.expm1(-7200 * scale**2), rel=1e-9)
        slope = 1800 * (1 + rest)
        assert ntk[0, 0] == pytest.approx(ck[0, 0] + scale**2 * slope, rel=1e-9)
    with pytest.raises(AccuracyError, match=r"wave: .* variances from"):
        kernels.ck(ENN((wave,), tau0=1.0, centred=False), [[1e3]])


def test_one_norm_with_a_kink_that_moves():
    """All samples have one norm, and the kink of a curved activation lies away from 0."""
    curved = Activation(
        "curved",
        lambda t: np.where(t > 0.5, np.sin(t - 0.5), 0.0),
        lambda t: np.where(t > 0.5, np.cos(t - 0.5), 0.0),
        kinks=(0.5,),
    )
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    ck = kernels.ck(ENN((curved,), centred=False), X)
    y, w = gauss(np.union1d(np.linspace(-13, 13, 27), [0.5]))
    mean = float((curved.f(y) * w).sum())
    assert ck[0, 1] == pytest.approx(mean**2, abs=1e-11)
    assert ck[0, 0] == pytest.approx(float((curved.f(y) ** 2 * w).sum()), rel=1e-12)
