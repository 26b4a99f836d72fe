"""The document of a command that failed: ``{"error": {...}}``, and what was known by then."""

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
        message: What is wrong, in a sentence.
        found: What the layer has.
        limit: What the rule allows.
        source: Where the rule stands.
        fix: What to change.
        mends: False if the fix only says to leave the layer on the GPU; not in JSON.
        rewritten: Whether the fix is ``edgekit rewrite``; not in JSON.
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
    """What failed.

    Attributes:
        problems: All faults of a configuration.
        layers: What keeps a standalone plan from being.
    """

    problems: tuple[StatedProblem, ...] = member(records(StatedProblem), absent=())
    layers: tuple[UnplaceableLayer, ...] = member(records(UnplaceableLayer), absent=())


@document(frozen=True)
class FinishedStep:
    """A step that ended: "done", "reused", "failed" or "cancelled" (the board's job was), and how
    long it took in seconds.
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
        text: As people are told it.
        why: What it runs into; "" where nothing keeps it alone from being met.
    """

    kind: str = member(text())
    text: str = member(long_text)
    why: str = member(long_text)


@document(frozen=True)
class UnscaledLayer:
    """A layer that needs a missing scale, and how it runs without."""

    layer: str = member(long_text)
    runs: str = member(text())


@document(frozen=True)
class UnscaledTensor:
    """A tensor without a scale, and the layers that need it."""

    tensor: str = member(long_text)
    layers: tuple[UnscaledLayer, ...] = member(records(UnscaledLayer))


@document(frozen=True)
class ErrorParts:
    """Parts of an error's document that say more than the error. Parts without a class here have
    theirs in ``edgekit.pipeline.failed_command``, by which a saved error is read.

    Attributes:
        steps: The steps of a run that ended, as ``edgekit.run/1`` has them.
        accuracy: Of a build below the gate, as ``edgekit.run/1`` has it.
        built: How the build differs from the plan, ``edgekit.built/1``.
        parse: What the parser refuses, as ``edgekit.check/1`` has it.
        conflict: The smallest set of constraints that conflict.
        binding: What keeps several networks' rates or deadlines from being met.
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
    """``edgekit.error/1``: the error, and parts of other documents that say more."""

    error: StatedError = member(record(StatedError))
