r"""Loss, implicit gradients and Gram matrices of an infinite-depth network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from implicitnn._infinite_depth.norms import contracts
from implicitnn._infinite_depth.params import Params, check_inputs, check_rows
from implicitnn._infinite_depth.solve import Report, Workspace
from implicitnn._infinite_depth.status import Status
from implicitnn._validate import FloatArray, integer, positive


@dataclass(frozen=True, eq=False)
class Gradients:
    r"""Gradients of the loss with respect to W (d, m), A (m, m) and b (m,), and what they rest on.

    ``loss`` is :math:`\frac12|\hat y - y|^2`, ``residual`` is :math:`\hat y - y`. They mean what
    they say only where ``status`` is ``CONVERGED``; otherwise the gradients are zero.
    """

    W: FloatArray
    A: FloatArray
    b: FloatArray
    loss: float
    residual: FloatArray
    forward: Report
    adjoint: Report

    @property
    def status(self) -> Status:
        """The first of the two solves that failed, else ``CONVERGED``."""
        return self.adjoint.status if self.forward.status.ok else self.forward.status


def gradients(
    params: Params,
    X: FloatArray,
    y: FloatArray,
    *,
    tol: float = 1e-12,
    max_iterations: int = 10_000,
) -> Gradients:
    r"""Return the loss and its gradients by the implicit function theorem.

    With :math:`S = 1\{Z > 0\}`, :math:`E = 1\{XW > 0\}` and :math:`r = \hat y - y`, let U solve
    :math:`U = S\circ(1 b^T + \gamma U A^T)`, the adjoint of one unit of residual. Then

    .. math::
        \partial_b L = Z^T r, \qquad
        \partial_A L = \gamma Z^T (\mathrm{diag}(r) U), \qquad
        \partial_W L = X^T (E\circ \mathrm{diag}(r) U).

    Where a unit sits exactly at its kink the derivative of relu is taken as 0.

    Raises
    ------
    ValueError
        Shapes that do not fit.

    Notes
    -----
    Appendix A.2 of Gao and Gao (2022), arXiv 2205.07463; derived on the page on implicit gradients.

    Examples
    --------
    >>> params = Params(np.eye(1), np.eye(1), np.ones(1), 0.5)
    >>> found = gradients(params, np.ones((1, 1)), np.zeros(1))
    >>> [round(float(v), 9) for v in (found.loss, found.W[0, 0], found.A[0, 0], found.b[0])]
    [2.0, 4.0, 4.0, 4.0]
    """
    data = check_inputs(params, X, y)
    work = Workspace(len(data.X), params.width)
    reports = solve_both(work, params, data.X, tol, max_iterations)
    if not all(report.status.ok for report in reports):
        return _nothing(params, data.y, *reports)
    with np.errstate(all="ignore"):  # overflow is found below
        residual = work.Z @ params.b - data.y
        loss = 0.5 * float(residual @ residual)
        back = work.U * residual[:, None]
        found = (
            data.X.T @ (back * (work.Phi > 0)),
            params.gamma * (work.Z.T @ back),
            work.Z.T @ residual,
        )
    if not (np.isfinite(loss) and all(np.isfinite(part).all() for part in found)):
        return _nothing(params, data.y, reports[0], replace(reports[1], status=Status.DIVERGED))
    return Gradients(*found, loss, residual, *reports)


def _nothing(params: Params, y: FloatArray, forward: Report, adjoint: Report) -> Gradients:
    """Gradients that could not be had."""
    W, A, b = (np.zeros_like(a) for a in (params.W, params.A, params.b))
    return Gradients(W, A, b, np.inf, np.zeros_like(y), forward, adjoint)


def solve_both(
    work: Workspace, params: Params, X: FloatArray, tol: float, max_iterations: int
) -> tuple[Report, Report]:
    """Solve forward and adjoint at well-posed parameters; both reports name what failed."""
    limit, accuracy = integer(max_iterations, "max_iterations", 1), positive(tol, "tol")
    rate = params.rate
    if not contracts(rate):
        refused = Report(Status.NOT_WELL_POSED, 0, np.inf, np.inf)
        return refused, refused
    work.load(X, params.W, params.A, params.gamma)
    first = work.forward(rate, accuracy, limit)
    if not first.status.ok:
        return first, first
    return first, work.adjoint(params.b, rate, accuracy, limit)


@dataclass(frozen=True, eq=False)
class Gram:
    r"""The three parts of the Gram matrix H (N, N) that drives the prediction.

    ``readout`` :math:`ZZ^T`, ``hidden`` :math:`\gamma^2 (ZZ^T)\circ(UU^T)`, ``inputs``
    :math:`(XX^T)\circ((E\circ U)(E\circ U)^T)`; each is positive semidefinite.
    """

    readout: FloatArray
    hidden: FloatArray
    inputs: FloatArray

    @property
    def total(self) -> FloatArray:
        """The sum of the parts, H."""
        return self.readout + self.hidden + self.inputs


def gram(params: Params, X: FloatArray, *, tol: float = 1e-12) -> Gram:
    r"""Return H, the matrix of :math:`d\hat y/dt = -H(\hat y - y)` along gradient flow.

    :math:`H_{ij} = \langle\partial_\theta\hat y_i, \partial_\theta\hat y_j\rangle`. The gradient of
    :math:`\hat y_i` with respect to A is :math:`\gamma z_i u_i^T`, with respect to W it is
    :math:`x_i(e_i\circ u_i)^T`, with rows of Z, U, E; this gives the parts of :class:`Gram`.

    Raises
    ------
    ValueError
        The network is not well posed, the iteration fails, or the matrix overflows.

    Examples
    --------
    >>> params = Params(np.eye(1), np.eye(1), np.ones(1), 0.5)
    >>> round(float(gram(params, np.ones((1, 1))).total[0, 0]), 9)
    12.0
    """
    rows = check_rows(params, X)
    work = Workspace(len(rows), params.width)
    reports = solve_both(work, params, rows, tol, 10_000)
    for report in reports:
        if not report.status.ok:
            raise ValueError(f"no Gram matrix: {report.status.text}")
    masked = work.U * (work.Phi > 0)
    with np.errstate(all="ignore"):  # overflow is refused below
        readout = work.Z @ work.Z.T
        found = Gram(
            readout,
            params.gamma**2 * readout * (work.U @ work.U.T),
            (rows @ rows.T) * (masked @ masked.T),
        )
        finite = bool(np.isfinite(found.total).all())
    if not finite:
        raise ValueError(f"no Gram matrix: {Status.DIVERGED.text}")
    return found
