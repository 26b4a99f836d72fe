"""The summary of ``edgekit plan`` on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgekit.report import _text as text
from edgekit.report._document import AIMS, comparison
from edgekit.report._layers import sharing_words
from edgekit.report._plan_answers import UNITS, proof
from edgekit.report._terminal import prediction_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from edgekit.placement import Plan

__all__ = ["summary_plan"]

SHOWN = 8  # loadables and reformats listed before "and N more"


def summary_plan(plan: Plan) -> RenderableType:
    """Returns the placement in short: the objective with its proof, devices, loadables with their
    memory and formats, reformats, predictions beside baselines, and what the builder must be told.
    """
    from rich.console import Group
    from rich.text import Text

    from edgekit.placement import frame_times, source_of

    head = f"{plan.target} {plan.power_mode}, {plan.precision.upper()}, TensorRT {plan.tensorrt}"
    parts: list[RenderableType] = [
        Text(text.clean(head), style="bold"), Text(_objective(plan), style="bold"),
        Text("\n".join(_told(plan))), Text(), _devices(plan),
    ]  # fmt: skip
    if lost := sharing_words(frame_times(plan)):
        parts.append(Text(lost))
    if plan.loadables:
        parts += [Text(), _loadables(plan)]
    if plan.reformats:
        parts += [Text(), Text("\n".join(_reformats(plan)))]
    parts += [
        Text(),
        prediction_table(
            list(comparison(plan)), plan.objective, source_of(plan.measured), len(plan.unknown_cost)
        ),
    ]
    parts += [Text(line) for line in _builder(plan)]
    parts += [Text(f"note: {text.clean(note)}", style="yellow") for note in plan.notes]
    return Group(*parts)


def _devices(plan: Plan) -> Table:
    """Returns how busy each device is in a frame of each plan, launches and hand-overs included."""
    from rich.table import Table

    from edgekit.placement import plan_devices

    several = len(plan.plans) > 1
    table = Table(box=None, padding=(0, 2, 0, 0))
    if several:
        table.add_column("plan", header_style="dim", justify="right")
    table.add_column("device", header_style="dim")
    busy = "busy" if plan.measured and plan.measured["fraction"] else "busy (predicted)"
    for name in ("layers", "segments", busy):
        table.add_column(name, justify="right", header_style="dim")
    for number in range(len(plan.plans)):
        for row in plan_devices(plan, number):
            table.add_row(
                *([str(number + 1)] if several else []), row["device"], text.count(row["layers"]),
                text.count(row["segments"]), text.microseconds(row["busy_us"]),
            )  # fmt: skip
    return table


def _objective(plan: Plan) -> str:
    from edgekit.placement import plan_summary, source_of

    summary = plan_summary(plan)
    value = UNITS[summary["unit"]](summary["value"])
    band = _band(plan)
    show = UNITS[summary["unit"]]
    kind = "assumed" if plan.extrapolated else "80 %"
    wide = band is not None and band[0] < band[1]
    range_ = f" ({kind} band: {show(band[0])} to {show(band[1])})" if band and wide else ""
    if plan.unknown_cost:
        range_ += f" without {text.counted(len(plan.unknown_cost), 'layer')} of unknown cost"
    source = source_of(plan.measured)
    if plan.objective == "energy" and source != "predicted":
        source = f"power predicted, times {source}"
    return f"{plan.objective} {value}{range_}, {source}; {proof(summary)}"


def _band(plan: Plan) -> tuple[float, float] | None:
    """Returns what the model's error lets the objective lie in, or None."""
    if plan.objective == "period":
        low, high = plan.bands.get("throughput_qps", (0.0, 0.0))
        return (1e6 / high, 1e6 / low) if low else None
    return plan.bands.get(AIMS[plan.objective][0])


def _told(plan: Plan) -> Iterator[str]:
    from edgekit.placement import plan_summary, value_of

    if len(plan.plans) > 1:
        yield f"{len(plan.plans)} plans share the frames"
        for number, part in enumerate(plan.plans, 1):
            latency = f", {text.microseconds(part.predicted.latency_us)}" if part.predicted else ""
            yield (
                f"  plan {number}: {text.percent(part.share)}{latency}, "
                f"{text.counted(part.transitions, 'device change')}, "
                f"{text.counted(len(part.reformats), 'reformat')}"
            )
    else:
        yield text.counted(plan.transitions, "device change")
    if all(layer.device == "GPU" for share in plan.plans for layer in share.layers):
        auto = plan.baselines.get("tensorrt_auto")
        if plan.kept_off:
            few = " and ".join(text.clean(one) for one in plan.kept_off)
            keep = "keeps" if len(plan.kept_off) == 1 else "keep"
            yield f"GPU alone: {few} {keep} everything off the DLA"
        elif auto is not None and auto != plan.predicted:
            show = UNITS[plan_summary(plan)["unit"]]
            breaks = plan.baselines_keep.get("tensorrt_auto") is False
            beside = ", which breaks what was asked," if breaks else ""
            theirs, ours = value_of(plan.objective, auto), value_of(plan.objective, plan.predicted)
            yield (
                f"GPU alone: nothing that the DLA could take is worth it for {plan.objective}; "
                f"TensorRT's automatic DLA{beside} reaches {show(theirs)}, "
                f"the GPU alone {show(ours)} (predicted)"
            )
        else:
            yield "GPU alone"
    elif _alike(plan):
        yield (
            "the GPU alone lies within the model's error of this plan: measure both on the board"
        )
    if plan.measured:
        unmatched = plan.measured["unmatched"]
        if unmatched:
            yield f"{text.counted(len(unmatched), 'row')} of the profile matched no layer"


def _alike(plan: Plan) -> bool:
    """Whether the model cannot tell the plan from the GPU alone."""
    from edgekit.placement import value_of

    alone, band = plan.baselines.get("gpu_only"), _band(plan)
    if alone is None or band is None or alone == plan.predicted:
        return False
    return band[0] <= value_of(plan.objective, alone) <= band[1]


def _loadables(plan: Plan) -> Table:
    from rich.table import Table
    from rich.text import Text

    several = len(plan.plans) > 1
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in (*(["plan"] if several else []), "loadable", "layers", *text.POOLS.values()):
        table.add_column(name, justify="right", header_style="dim", no_wrap=True)
    table.add_column("formats", header_style="dim", overflow="fold")
    for loadable in plan.loadables[:SHOWN]:
        memory = loadable.memory.to_json()
        formats = dict.fromkeys(loadable.formats.values())
        table.add_row(
            *([str(loadable.plan + 1)] if several else []),
            f"DLA{loadable.core}", text.count(len(loadable.layers)),
            *(text.size(memory[key]) for key in text.POOLS),
            Text(text.clean(", ".join(formats)) or text.ABSENT),
        )  # fmt: skip
    if len(plan.loadables) > SHOWN:
        table.add_row(f"and {len(plan.loadables) - SHOWN} more")
    return table


def _reformats(plan: Plan) -> Iterator[str]:
    several = len(plan.plans) > 1
    for number in range(len(plan.plans)):
        own = [one for one in plan.reformats if one.plan == number]
        total = text.microseconds(sum(one.us for one in own))
        whose = f"plan {number + 1}: " if several else ""
        yield f"{whose}{text.counted(len(own), 'reformat')} on the GPU, {total}"
        for one in sorted(own, key=lambda one: -one.us)[:SHOWN]:
            us, tensor = text.microseconds(one.us), text.clean(one.tensor)
            yield f"  {us:>8}  {one.source} -> {one.goal}  {tensor}, {one.clock}"
        if len(own) > SHOWN:
            yield f"  and {len(own) - SHOWN} more; --json lists them"


def _builder(plan: Plan) -> Iterator[str]:
    """Says what to set so that TensorRT's builder ends at this plan."""
    if not plan.builder or not plan.loadables:
        return
    several = len(plan.plans) > 1
    yield ""
    for number, part in enumerate(plan.plans, 1):
        builder = part.builder or plan.builder
        types = builder["device_types"]
        on_dla = sum(device == "DLA" for device in types.values())
        what, where = "it", "builder"
        if several:
            what, where = f"plan {number}", f"plans[{number - 1}].builder"
        if not on_dla:
            yield f"plan {number} runs on the GPU alone"
            continue
        yield (
            f"to build {what}: set the device type of {text.counted(on_dla, 'layer')} to DLA and "
            f"of {len(types) - on_dla} to GPU (--json: {where}.device_types)"
        )
        if builder["matches"]:
            whose = "its" if several else "these"
            yield f"TensorRT's builder is predicted to end at {whose} loadables"
