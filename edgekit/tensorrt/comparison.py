"""The plan compared with TensorRT's build (`edgekit.built/1`): layers on another device, and
verdicts that the builder's answers contradict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.dla.verdicts import Judgement
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    member,
    nullable,
    record,
    records,
    text,
)

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.placement.plan import PlacedLayer, Plan
    from edgekit.tensorrt.requests import RequestedLane
    from edgekit_device.build.request import BuildResult, InspectedLayer


_SHOWN = 5


@document(frozen=True, kw_only=True)
class Disagreement:
    """A layer for which ``can_run_on_DLA`` contradicts edgekit's verdict."""

    layer: str = member(fields.name)
    ours: bool = member(flag)
    builder: bool = member(flag)
    certainty: str = member(text())
    rules: tuple[str, ...] = member(array(text()))


@document(frozen=True, kw_only=True)
class Capability:
    """The answers of ``can_run_on_DLA``, by number of layers.

    Attributes:
        asked: Number of layers queried.
    """

    asked: int = member(fields.count)
    disagree: tuple[Disagreement, ...] = member(records(Disagreement))


@document(frozen=True, kw_only=True)
class Misplaced:
    """A layer on another device than planned; ``builder`` "slots": the core had no slot left."""

    layer: str = member(fields.name)
    plan: str = member(fields.device_kind)
    builder: str = member(choice(*fields.DEVICE_KINDS, "slots"))
    words: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class BuiltLoadables:
    """Number of loadables planned, built, and equal in both.

    Attributes:
        plan: Number of loadables of the plan.
        builder: Number of loadables that the builder made.
        same: Number of loadables equal in both.
    """

    plan: int = member(fields.count)
    builder: int = member(fields.count)
    same: int = member(fields.count)


@document(frozen=True, kw_only=True)
class BuiltPlacement:
    """The plan's devices and those of the builder's log.

    Attributes:
        layers: Number of layers compared.
    """

    evidence: str = member(text())
    layers: int = member(fields.count)
    differ: tuple[Misplaced, ...] = member(records(Misplaced))
    loadables: BuiltLoadables = member(record(BuiltLoadables))
    warnings: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class InspectedLoadables:
    """Number of loadables planned, and of loadables in the engine inspector's list.

    Attributes:
        plan: Number of loadables of the plan.
        engine: Number of loadables that the engine inspector lists.
    """

    plan: int = member(fields.count)
    engine: int = member(fields.count)


@document(frozen=True, kw_only=True)
class ComparedEngine:
    """An engine and its plan.

    Attributes:
        placement: None without a log, or if the log is not of one whole engine.
        inspector: None if it names no layer's type.
        reformats: Remaining reformats of inputs and outputs.
        unmapped: Layers of the builder that are not in the model.
    """

    key: str = member(text())
    device: str = member(fields.device)
    capability: Capability = member(record(Capability))
    placement: BuiltPlacement | None = member(nullable(record(BuiltPlacement)))
    inspector: InspectedLoadables | None = member(nullable(record(InspectedLoadables)))
    reformats: tuple[str, ...] = member(fields.names)
    unmapped: tuple[str, ...] = member(fields.names)


@document(frozen=True, kw_only=True)
class BuiltComparison(FormerDict):
    """``edgekit.built/1``: differences of a build from the plan; ``differences`` are sentences."""

    schema: str = member(choice("edgekit.built/1"), default="edgekit.built/1")
    engines: tuple[ComparedEngine, ...] = member(records(ComparedEngine))
    differences: tuple[str, ...] = member(array(long_text))
    same: bool = member(flag)


def compare_build(
    network: Network,
    judgement: Judgement,
    plan: Plan,
    lanes: Sequence[RequestedLane],
    result: BuildResult,
    logs: Mapping[str, str],
) -> BuiltComparison:
    """Returns the differences of a build from the plan.

    Three things are compared: the answers of ``can_run_on_DLA`` with edgekit's verdicts, layer by
    layer; the devices in the builder's log with the plan's devices; and the loadables, by the log
    and by the engine inspector, which lists each as one layer. At a border between segments whose
    format both sides have, a reformat in the inspector's list counts as a difference.

    Args:
        network: The layer graph.
        judgement: edgekit's verdicts.
        plan: The requested plan.
        lanes: The engines of the request.
        result: The board's answer.
        logs: The builder's log by engine key; may lack some.
    """
    built = {answer.key: answer for answer in result.engines}
    engines = []
    for number, lane in enumerate(lanes):
        placed = plan.plans[number].layers
        for engine in lane.engines:
            answer = built[engine.key]
            # only the log of an engine that is the whole network lists all loadables of the plan
            whole = len(lane.engines) == 1 and engine.kind == "plan" and engine.device != "GPU"
            log = logs.get(engine.key) if whole else None
            engines.append(
                ComparedEngine(
                    key=engine.key,
                    device=engine.device,
                    capability=_capability(judgement, answer.can_run_on_dla),
                    placement=None
                    if log is None
                    else _placement(network, judgement, plan, number, placed, log),
                    inspector=_count_inspected(plan, number, answer.layers) if whole else None,
                    reformats=tuple(answer.reformats),
                    unmapped=tuple(answer.unmapped),
                )
            )
    differences = tuple(text for compared in engines for text in _describe_difference(compared))
    return BuiltComparison(engines=tuple(engines), differences=differences, same=not differences)


def _capability(judgement: Judgement, answers: Mapping[str, bool]) -> Capability:
    wrong = []
    for name, answer in answers.items():
        verdict = judgement.verdicts.get(name)
        if verdict is not None and verdict.ok != answer:
            wrong.append(
                Disagreement(
                    layer=name,
                    ours=verdict.ok,
                    builder=answer,
                    certainty=verdict.certainty,
                    rules=tuple(reason.rule for reason in verdict.reasons),
                )
            )
    return Capability(asked=len(answers), disagree=tuple(wrong))


def _count_inspected(
    plan: Plan, number: int, layers: Sequence[InspectedLayer]
) -> InspectedLoadables | None:
    """Counts the loadables that the inspector lists; None if it gives no layer's type."""
    if not any(layer.device for layer in layers):
        return None
    planned = sum(loadable.plan == number for loadable in plan.loadables)
    inside = sum(layer.device == "DLA" for layer in layers)
    return InspectedLoadables(plan=planned, engine=inside)


def _placement(
    network: Network,
    judgement: Judgement,
    plan: Plan,
    number: int,
    placed: Sequence[PlacedLayer],
    log: str,
) -> BuiltPlacement:
    """Compares the plan's devices with the builder's lists of layers."""
    devices = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in placed}
    ours = [loadable.layers for loadable in plan.loadables if loadable.plan == number]
    requested = replace(judgement, placed={**judgement.placed, **devices})
    found = compare(network, requested, parse_log(log.splitlines()))
    wrong = [
        Misplaced(layer=x.layer, plan=devices[x.layer], builder=x.builder, words=tuple(x.words))
        for x in found.layers
        # a DLA-capable layer that the plan puts on the GPU is no difference
        if x.layer in devices
        and x.builder in ("DLA", "GPU", "slots")
        and (x.builder == "DLA") != (devices[x.layer] == "DLA")
    ]
    theirs = [frozenset(x.built) for x in found.loadables if x.built]
    wanted = [frozenset(layers) for layers in ours]
    return BuiltPlacement(
        evidence=found.evidence,
        layers=len(devices),
        differ=tuple(wrong),
        loadables=BuiltLoadables(
            plan=len(ours),
            builder=len(theirs),
            same=sum(group in theirs for group in wanted),
        ),
        warnings=tuple(found.warnings),
    )


def _describe_difference(compared: ComparedEngine) -> list[str]:
    """Returns an engine's differences as sentences."""
    texts = []
    for wrong in compared.capability.disagree:
        word = "can" if wrong.builder else "cannot"
        own = "cannot" if wrong.builder else "can"
        why = f" ({', '.join(wrong.rules)})" if wrong.rules else ""
        texts.append(
            f"{wrong.layer}: {word} run on a DLA according to TensorRT, {own} according to "
            f"edgekit{why}"
        )
    place = compared.placement
    if place is not None:
        for moved in place.differ:
            why = f": {moved.words[0]}" if moved.words else ""
            on = "GPU" if moved.builder == "slots" else moved.builder
            texts.append(f"{moved.layer}: planned on the {moved.plan}, built on the {on}{why}")
        count = place.loadables
        if place.evidence == "placement" and count.plan != count.builder:
            texts.append(f"{compared.key}: {count.plan} loadables planned, {count.builder} built")
    inside = compared.inspector
    # the log has more details, and distinguishes loadables of Q/DQ nodes alone from the others
    silent = place is None or place.evidence != "placement"
    if silent and inside is not None and inside.plan != inside.engine:
        texts.append(
            f"{compared.key}: {inside.plan} loadables planned, {inside.engine} in the engine "
            "(engine inspector)"
        )
    if compared.reformats:
        names, more = compared.reformats[:_SHOWN], len(compared.reformats) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        texts.append(
            f"{compared.key}: the engine still reformats inputs or outputs: "
            f"{', '.join(names)}{rest}"
        )
    return texts
