"""What became of a computation, in words."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """Outcome of a solve, a descent or a flow.

    ``text`` says what happened, ``advice`` what to try; ``ok`` whether the result can be used as
    what was asked for.

    Examples
    --------
    >>> Status.CONVERGED.ok, Status.NOT_WELL_POSED.ok
    (True, False)
    """

    CONVERGED = (
        "the fixed point was found to the tolerance",
        "nothing to do",
    )
    COMPLETED = (
        "all steps were taken",
        "nothing to do",
    )
    NOT_WELL_POSED = (
        "gamma ||A|| is 1 or more, or came to the edge that was set: beyond 1 the map need not "
        "contract and a fixed point need not exist",
        "take a smaller gamma or a smaller A; in training on_leave='shrink' or 'project'",
    )
    MAX_ITERATIONS = (
        "the fixed-point iteration did not reach the tolerance",
        "raise max_iterations; gamma ||A|| is probably close to 1",
    )
    DIVERGED = (
        "numbers left the floating-point range",
        "in training take a smaller step eta, conditions(...).eta_max is safe in theory; elsewhere "
        "bring samples, labels and parameters nearer to 1",
    )
    INTEGRATOR_FAILED = (
        "the integrator could not go on with steps of a useful length",
        "loosen rtol or raise max_evaluations; the flow is stiff where gamma ||A|| is close to 1",
    )

    def __init__(self, text: str, advice: str) -> None:
        self.text = text
        self.advice = advice

    @property
    def ok(self) -> bool:
        """Whether the computation ended as asked."""
        return self in (Status.CONVERGED, Status.COMPLETED)
