"""The document of a failed command: ``{"error": {...}}``, and the results up to the failure."""

from __future__ import annotations

from edgekit_device.protocol.codec import (
    anything,
    array,
    choice,
    document,
    long_text,
    member,
    number,
    record,
    records,
    text,
)
from edgekit_device.protocol.failure import Failure


@document(frozen=True)
class StatedProblem:
    """One fault of a configuration file; ``where`` is file:line:column."""

    message: str = member(text())
    where: str = member(text())
    hint: str = member(text())


@document(frozen=True)
class VerdictReason:
    """Why a layer cannot run on a DLA.

    Attributes:
        rule: The rule's id, such as "convolution.groups".
        message: The fault, in a sentence.
        found: The layer's value.
        limit: The rule's limit.
        source: The document that has the rule.
        fix: The advised change.
        mends: False if the advice is only to leave the layer on the GPU; not in JSON.
        rewritten: True if the fix is ``edgekit rewrite``; not in JSON.
    """

    rule: str = member(long_text)
    message: str = member(long_text)
    found: str = member(long_text)
    limit: str = member(long_text)
    source: str = member(long_text)
    fix: str = member(long_text)
    mends: bool = True
    rewritten: bool = False


@document(frozen=True)
class UnplaceableLayer:
    """A layer that a standalone plan cannot place, and the reasons of its verdict."""

    name: str = member(text())
    reasons: tuple[VerdictReason, ...] = member(records(VerdictReason))


@document(frozen=True)
class StatedError(Failure):
    """The error of a failed command.

    Attributes:
        problems: All faults of a configuration.
        layers: The layers that prevent a standalone plan.
    """

    problems: tuple[StatedProblem, ...] = member(records(StatedProblem), absent=())
    layers: tuple[UnplaceableLayer, ...] = member(records(UnplaceableLayer), absent=())


@document(frozen=True)
class FinishedStep:
    """A step that ended: its status and its duration in seconds. "cancelled" means that the board's
    job was cancelled.
    """

    name: str = member(text())
    status: str = member(choice("done", "reused", "failed", "cancelled"))
    seconds: float = member(number(0.0, 1e12))
    detail: str = member(text(most=1 << 18))


@document(frozen=True)
class StatedConstraint:
    """A constraint of a placement that cannot be met with the others.

    Attributes:
        kind: "pin", "bound", "cores", "gpu", "max_loadables", "pool", "max_transitions" or
            "min_loadable_layers".
        text: The constraint in words.
        why: The obstacle; "" if the constraint alone can be met.
    """

    kind: str = member(text())
    text: str = member(long_text)
    why: str = member(long_text)


@document(frozen=True)
class UnscaledLayer:
    """A layer that needs a missing scale, and the device that runs it without the scale."""

    layer: str = member(long_text)
    runs: str = member(text())


@document(frozen=True)
class UnscaledTensor:
    """A tensor without a scale, and the layers that need it."""

    tensor: str = member(long_text)
    layers: tuple[UnscaledLayer, ...] = member(records(UnscaledLayer))


@document(frozen=True)
class ErrorParts:
    """Further parts of an error's document. Parts without a class here have theirs in
    ``edgekit.pipeline.failed_command``, by which a saved error is read.

    Attributes:
        steps: The steps of a run that ended, as ``edgekit.run/1`` has them.
        accuracy: Of a build below the gate, as ``edgekit.run/1`` has it.
        built: How the build differs from the plan, ``edgekit.built/1``.
        parse: The nodes that the parser refuses, as in ``edgekit.check/1``.
        conflict: The smallest set of constraints that conflict.
        binding: The limit that makes the rates or deadlines of several networks infeasible.
        missing: Tensors without a scale, and the layers that need it.
        reasons: Why measurements cannot be compared.
        taken_back: The release that the board has rolled back.
    """

    steps: tuple[FinishedStep, ...] | None = member(records(FinishedStep), absent=None)
    accuracy: object = member(anything, absent=None)
    built: object = member(anything, absent=None)
    parse: object = member(anything, absent=None)
    conflict: tuple[StatedConstraint, ...] | None = member(records(StatedConstraint), absent=None)
    binding: object = member(anything, absent=None)
    missing: tuple[UnscaledTensor, ...] | None = member(records(UnscaledTensor), absent=None)
    reasons: tuple[str, ...] | None = member(array(long_text), absent=None)
    taken_back: object = member(anything, absent=None)


@document(frozen=True, kw_only=True)
class ErrorDocument(ErrorParts):
    """``edgekit.error/1``: the error, and related parts of other documents."""

    error: StatedError = member(record(StatedError))
