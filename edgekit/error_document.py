"""The document of a command that failed: ``{"error": {...}}``, and what was known by then."""

from __future__ import annotations

from typing import Any

from edgekit_device.protocol.codec import anything, array, document, member, record, records, text
from edgekit_device.protocol.failure import Failure


@document(frozen=True)
class StatedProblem:
    """One fault of a configuration file; ``where`` is file:line:column."""

    message: str = member(text())
    where: str = member(text())
    hint: str = member(text())


@document(frozen=True)
class UnplaceableLayer:
    """A layer that a standalone plan cannot place, and the reasons of its verdict."""

    name: str = member(text())
    reasons: tuple[Any, ...] = member(array(anything))


@document(frozen=True)
class StatedError(Failure):
    """What failed.

    Attributes:
        problems: All faults of a configuration.
        layers: What keeps a standalone plan from being.
    """

    problems: tuple[StatedProblem, ...] = member(records(StatedProblem), absent=())
    layers: tuple[UnplaceableLayer, ...] = member(records(UnplaceableLayer), absent=())


@document(frozen=True)
class ErrorDocument:
    """``edgekit.error/1``: the error, and parts of other documents that say more.

    Attributes:
        error: What failed.
        steps: The steps of a run that ended, as ``edgekit.run/1`` has them.
        accuracy: Of a build below the gate, as ``edgekit.run/1`` has it.
        built: How the build differs from the plan: ``edgekit.built/1``.
        parse: What the parser refuses, as ``edgekit.check/1`` has it.
        conflict: The smallest set of constraints that conflict.
        binding: What keeps several networks' rates or deadlines from being met.
        missing: Tensors without a scale, and the layers that need it.
        reasons: Why measurements cannot be compared.
        taken_back: The release that the board has rolled back.
    """

    error: StatedError = member(record(StatedError))
    steps: Any = member(anything, absent=None)
    accuracy: Any = member(anything, absent=None)
    built: Any = member(anything, absent=None)
    parse: Any = member(anything, absent=None)
    conflict: Any = member(anything, absent=None)
    binding: Any = member(anything, absent=None)
    missing: Any = member(anything, absent=None)
    reasons: Any = member(anything, absent=None)
    taken_back: Any = member(anything, absent=None)
