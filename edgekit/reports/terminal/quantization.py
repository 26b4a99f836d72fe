"""The error of INT8 by layer, and the scales that constraints changed, as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType, group

from edgekit.network.module_names import enclosing_modules
from edgekit.quantize.scales import ChangedScale
from edgekit.reference.accuracy import (
    NOT_KNOWN,
    Accuracy,
    accuracy_text,
    describe_metric,
    describe_parts,
    describe_snr,
)
from edgekit.reference.sensitivity import (
    ModuleImpact,
    ProposedLayers,
    RankedKernel,
    SensitivityRanking,
)
from edgekit.reports.terminal.layout import paragraph, table
from edgekit.reports.text import WIDTH, Page, names_in_columns
from edgekit.text import counted, sentence
from edgekit_device.runtime.deviation import decibels

_CHANGES_SHOWN = 10
_LEAST_BITS = 0.05  # smaller losses are shown as "0.0"
_CHANGES_HEAD = ("tensor", "scale", "was", "bits lost", "rule", "by")
_LAYERS_SHOWN = 20
_LAYERS_HEAD = ("SNR", "cosine", "top-1", "device", "in INT8 alone")


def changes_text(
    changes: Sequence[ChangedScale], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns the ``changes`` of an ``edgekit.scales/1`` as text, worst first; the rest counted."""
    page = Page(width, colour=colour)
    verb = "was" if len(changes) == 1 else "were"
    many = f"{counted(len(changes), 'scale')} {verb} widened"
    page.add(f"{many}, because the hardware cannot rescale there:")
    costly = [change for change in changes if change.bits >= _LEAST_BITS][:_CHANGES_SHOWN]
    rows = [_change_row(change) for change in costly or changes[:1]]
    names_in_columns(
        page,
        _CHANGES_HEAD,
        rows,
        width=width,
        spared=("by", "rule"),
        right=("scale", "was", "bits lost"),
    )
    if len(changes) > len(rows):
        page.add(f"and {len(changes) - len(rows)} that lose less (--json has all)", style="dim")
    return str(page)


def _change_row(change: ChangedScale) -> dict[str, str]:
    layers = change.layers
    return {
        "tensor": change.tensor,
        "scale": f"{change.new:.5g}",
        "was": "none" if change.old is None else f"{change.old:.5g}",
        "bits lost": f"{change.bits:.1f}",
        "rule": change.rule,
        "by": layers[0] + (f" and {len(layers) - 1} more" if layers[1:] else ""),
    }


@group()
def sensitivity_text(
    document: SensitivityRanking, *, width: int = WIDTH
) -> Iterator[RenderableType]:
    """Returns an ``edgekit.sensitivity/1`` as text: the ranking and the proposal."""
    kernels = document.kernels
    yield table(_LAYERS_HEAD, [_layer_row(row, width) for row in kernels[:_LAYERS_SHOWN]], "rrrll")
    if len(kernels) > _LAYERS_SHOWN:
        yield paragraph(
            f"and {len(kernels) - _LAYERS_SHOWN} that cost less (--json has all)", style="dim"
        )
    if document.modules:
        yield ""
        yield from _modules(document.modules)
        yield ""
    floats = document.floats
    for row in floats[:_LAYERS_SHOWN]:
        rule = f" [{row.rule}]" if row.rule else ""
        yield paragraph(f"not INT8: {row.layer}: {row.why}{rule}")
    if len(floats) > _LAYERS_SHOWN:
        yield paragraph(f"and {len(floats) - _LAYERS_SHOWN} more that are not INT8", style="dim")
    if document.proposal is not None and document.proposal.reached:
        yield paragraph(_proposal(document.proposal, len(kernels)))
    for note in document.notes:
        yield paragraph(f"note: {sentence(note)}", style="yellow")


def _modules(modules: Sequence[ModuleImpact]) -> Iterator[RenderableType]:
    """Yields the modules, limited to a readable number of levels of the tree."""
    deep = {module.module: len(enclosing_modules(module.module)) - 1 for module in modules}
    levels = sorted(set(deep.values()))
    fits = [
        level for level in levels if sum(depth <= level for depth in deep.values()) <= _LAYERS_SHOWN
    ]
    # at least the network and its direct parts, however many there are
    most = max([levels[:2][-1], *fits])
    yield table(
        ("worst SNR", "cosine", "kernels", "device", "not INT8", "module"),
        [
            (
                "" if module.cosine is None else decibels(module.snr_db, module.snr_db is None),
                "" if module.cosine is None else f"{module.cosine:.6f}",
                f"{module.kernels:,}",
                ", ".join(module.devices),
                f"{module.floats:,}" if module.floats else "",
                "  " * deep[module.module] + (module.module or "(the network)"),
            )
            for module in modules
            if deep[module.module] <= most
        ],
        "rrrlr",
    )


def _layer_row(row: RankedKernel, width: int) -> Sequence[str]:
    ends = f" ({', '.join(row.place)})" if row.place else ""
    limit = max(20, width - 40)
    layers = row.name + ends
    if len(layers) > limit:
        layers = f"{layers[: limit - 3 - len(ends)]}...{ends}"
    return (
        describe_snr(row),
        f"{row.cosine:.6f}",
        f"{100 * row.top1_agreement:.1f} %",
        row.device,
        layers,
    )


def _proposal(found: ProposedLayers, kernels: int) -> str:
    metric = found.metric
    if not found.int8.judged:
        return f"{metric} with all layers in INT8 is {NOT_KNOWN}: no layers are proposed"
    before, after = (describe_metric(accuracy, metric) for accuracy in (found.int8, found.accuracy))
    if not found.fp16_layers:
        least = "" if found.min is None else f" {found.min:.10g}"
        return f"all layers in INT8 reach {metric}{least}: {before}"
    proof = "each of them is needed" if found.minimal else "not proven minimal"
    return (
        f"{found.kernels} of {kernels} kernels in FP16 bring {metric} from "
        f"{before} to {after}; {proof} ({found.builds} builds measured)"
    )


def accuracy_headline(accuracy: Accuracy, metric: str, minimum: float | None) -> str:
    """Returns the network's accuracy against FP32 in one line, with the gate's metric and limit."""
    figures = (
        f"against FP32: cosine {accuracy.cosine:.6f}, "
        f"top-1 agreement {100 * accuracy.top1_agreement:.0f} %"
    )
    if accuracy.boxes is not None:
        figures += f", boxes {accuracy.boxes:.3f} ({accuracy.objects})"
    return accuracy_text(accuracy, figures, metric, minimum)


def accuracy_lines(accuracy: Accuracy, *, emulated: bool) -> list[str]:
    """Returns an accuracy's data, and warnings about details that the overall figures hide."""
    constant = [output.output for output in accuracy.constant]
    return [
        f"on {accuracy.data}" + (", emulated on this CPU" if emulated else ""),
        *describe_parts(accuracy.groups, accuracy.scores, constant),
    ]
