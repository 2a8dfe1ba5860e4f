r"""Infinite-depth ReLU networks trained by gradient descent, with explicit constants.

The model is :math:`Z = \mathrm{relu}(\gamma Z A + \mathrm{relu}(XW))`, :math:`\hat y = Zb`, with
loss :math:`L = \frac12|\hat y - y|^2`, of Gao and Gao (2022), arXiv 2205.07463. Samples are rows
of X.

- :class:`Params`, :func:`identity`, :func:`nonnegative`, :func:`gaussian`: parameters.
- :func:`forward`, :func:`gradients`, :func:`gram`: fixed point, implicit gradients, Gram matrix.
- :func:`descend`, :func:`flow`: training by gradient descent and by gradient flow.
- :func:`conditions`, :func:`smallest_beta`: when the theorems apply, and what they promise.

Results are frozen and carry a :class:`Status` that says in words how the computation ended.
"""

from implicitnn._infinite_depth.descent import Descent, Leave, descend
from implicitnn._infinite_depth.flow import Flow, flow
from implicitnn._infinite_depth.gradients import Gradients, Gram, gradients, gram
from implicitnn._infinite_depth.norms import operator_norm, smallest_singular_value
from implicitnn._infinite_depth.params import Params, gaussian, identity, nonnegative
from implicitnn._infinite_depth.solve import Equilibrium, Report, forward
from implicitnn._infinite_depth.status import Status
from implicitnn._infinite_depth.theory import (
    Conditions,
    Inequality,
    Scaling,
    conditions,
    smallest_beta,
)
from implicitnn._infinite_depth.trace import Trace

__all__ = [
    "Conditions",
    "Descent",
    "Equilibrium",
    "Flow",
    "Gradients",
    "Gram",
    "Inequality",
    "Leave",
    "Params",
    "Report",
    "Scaling",
    "Status",
    "Trace",
    "conditions",
    "descend",
    "flow",
    "forward",
    "gaussian",
    "gradients",
    "gram",
    "identity",
    "nonnegative",
    "operator_norm",
    "smallest_beta",
    "smallest_singular_value",
]
