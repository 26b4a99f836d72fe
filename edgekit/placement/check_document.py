"""The documents of ``edgekit check``: ``edgekit.check/1`` of a model, ``edgekit.checks/1`` of
several, ``edgekit.layer/1`` and ``edgekit.sparsity/1``.

Times are predicted, in microseconds; sizes are bytes; "macs" are multiply-accumulates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.loadables import SLOTS
from edgekit.dla.memory import CbufUse, LoadableMemory
from edgekit.dla.sparsity import SparseConvolution, Sparsity
from edgekit.dla.verdicts import LayerVerdict, MemoryNeed, SlotReason
from edgekit.errors import GateError
from edgekit.network.graph import LEFT
from edgekit.network.module_tree import (
    CHECK_TIMES,
    HEAD,
    RIGHT,
    LayerPlace,
    ModuleTotals,
    module_totals,
    tree_rows,
)
from edgekit.parsing.nvidia import ParserResult
from edgekit.parsing.table import Parse
from edgekit.placement.buckets import Bucket, RangeCost
from edgekit.placement.control_flow import why_uncounted
from edgekit.placement.costs.kernel_costs import BYTES
from edgekit.placement.cuts import Cut
from edgekit.placement.forecast import Fix, Forecast, macs_fraction
from edgekit.removed import FormerDict
from edgekit.text import PYTORCH, align, counted, percent, printable
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    anything,
    array,
    choice,
    document,
    flag,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
)

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement
    from edgekit.network.model import Network, Tensor


# bytes of an element of a type that no precision changes
_OTHER = {"int64": 8, "float64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}


@document(frozen=True, kw_only=True)
class JudgedLayer:
    """The facts about a layer in every list of layers.

    Attributes:
        name: Its name.
        kind: TensorRT's layer type.
        nodes: Its ONNX nodes.
        origin: The ONNX nodes that it was made from or inserted for.
        dla: The DLA's verdict and its reasons.
        placed: "DLA" or "GPU"; None without a placement, and for a left-out module.
        graph_output: True if it writes an output of the network.
        macs: Its multiply-accumulates.
        steps: A recurrence's sequential steps, or the iterations of a Loop or Scan if known.
        opaque: Why its cost is unknown: "plugin", "imported" or "shapes"; "left" for a left-out
            module.
        weight_bytes: Bytes of its weights, in the precision of its verdict.
        output_bytes: Bytes of its outputs; index and boolean tensors keep their type.
        dropped: The rule that keeps its candidate on the GPU.
        rewrites: Rewrites that allow it on the DLA.
        module: Path of its PyTorch module; "" for the network, and if the file names no modules.
    """

    name: str = member(long_text)
    kind: str = member(long_text)
    nodes: tuple[str, ...] = member(array(long_text))
    origin: tuple[str, ...] = member(array(long_text), key="from")
    dla: LayerVerdict = member(record(LayerVerdict))
    placed: str | None = member(nullable(fields.device_kind))
    graph_output: bool = member(flag)
    macs: int = member(fields.count)
    steps: int | None = member(nullable(fields.count), absent=None)
    opaque: str = member(long_text, absent="")
    weight_bytes: int = member(fields.count)
    output_bytes: int = member(fields.count)
    dropped: str | None = member(nullable(long_text), default=None)
    rewrites: tuple[str, ...] = member(array(long_text), default=())
    module: str = member(long_text, absent="")


@document(frozen=True, kw_only=True)
class CheckedLayer(JudgedLayer):
    """A layer of a check; ``loadable`` is the number of the loadable that holds it.

    Attributes:
        loadable: Number of the loadable that holds it.
    """

    loadable: int | None = member(nullable(fields.count), default=None)


@document(frozen=True)
class CheckSummary:
    """The number of layers by device, and the DLA's share of the multiply-accumulates.

    Attributes:
        layers: Number of layers.
        dla_layers: Number of layers on a DLA.
        gpu_layers: Number of layers on the GPU; 0 without a placement.
        dla_macs_fraction: The DLA's share of the multiply-accumulates, 0 to 1.
    """

    layers: int = member(fields.count)
    dla_layers: int = member(fields.count)
    gpu_layers: int = member(fields.count)
    dla_macs_fraction: float = member(fields.share)


@document(frozen=True, kw_only=True)
class CheckCounts(CheckSummary):
    """A check's counts.

    Attributes:
        candidates: Groups of layers that the builder would form on the cores.
        loadables: Number of these groups that the cores hold.
    """

    candidates: int = member(fields.count)
    loadables: int = member(fields.count)


@document(frozen=True, kw_only=True)
class BriefCheck(CheckCounts):
    """A check's figures in other documents.

    Attributes:
        transitions: Changes between GPU and DLA.
        predicted: Predicted times; None without a prediction.
    """

    transitions: int = member(fields.count)
    predicted: Forecast | None = member(nullable(record(Forecast)))


@document(frozen=True)
class Verdict:
    """A check's summary for other steps.

    Attributes:
        figures: Its figures.
        multiplies: True if any layer has multiply-accumulates.
        uncounted: True if there are layers that no figure counts.
    """

    figures: BriefCheck = member(record(BriefCheck))
    multiplies: bool = member(flag)
    uncounted: bool = member(flag)


@document(frozen=True)
class UnknownCost:
    """A layer that no figure counts; the reason is "plugin", "imported", "shapes", "trip_count",
    "body" or "formula".
    """

    layer: str = member(long_text)
    operator: str = member(long_text)
    why: str = member(long_text)
    plugin: Mapping[str, object] | None = member(nullable(mapping(anything, long_text)))


@document(frozen=True)
class CoreMemory:
    """The total need of a core's loadables by pool, and the limit of each pool, in bytes."""

    need: MemoryNeed = member(record(MemoryNeed))
    limits: MemoryNeed = member(record(MemoryNeed))


@document(frozen=True, kw_only=True)
class _ModelDocument(FormerDict):
    """A document about a model on a board."""

    model: str = member(long_text)
    target: str = member(fields.target)
    precision: str = member(fields.precision)
    tensorrt: str = member(fields.release)


@document(frozen=True, kw_only=True)
class Check(_ModelDocument):
    """An ``edgekit.check/1``: the DLA's verdict on each layer, TensorRT's own placement by
    prediction, and fixes.

    Attributes:
        model: The file.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: The TensorRT release of the rules.
        tensorrt_sources: Releases that sources name for the JetPack, if they differ.
        dla_unstated: Why it is unknown if the release supports the DLA.
        layers: In graph order.
        candidates: Candidate loadables.
        loadables: Candidates that are kept.
        summary: Number of layers by device.
        unknown_cost: Layers that no figure counts.
        max_loadables: Loadables that a core holds.
        transitions: Changes between GPU and DLA in an inference.
        predicted: Times; None for a board without cost data, if the parser refuses the model, and
            if no layer that takes time has a cost model.
        fixes: Fixes, the best first.
        fixes_together: The first fixes combined, if that gains more.
        cuts: Cuts that take the network's first part off the GPU, the least GPU time first.
        memory: The loadables' memory.
        memory_refused: Memory of candidates that a memory limit keeps on the GPU.
        memory_core: The loadables' total memory by core.
        memory_disputes: By pool, its default size in other sources.
        without_slot: Why layers that the DLA allows are in no loadable.
        sparsity: Possible savings of 2:4 sparse weights.
        parse: The result of the parser of the board's TensorRT.
        parser: The result of NVIDIA's own parser, if it was run.
        warnings: Further warnings.
        modules: PyTorch's modules, each before its submodules; empty if the file names none.
        buckets: The listed shapes of a range, the checked shape first; empty without a range.
        range: The cost of the range; None without a range.
    """

    schema: str = member(choice("edgekit.check/1"), default="edgekit.check/1")
    tensorrt_sources: str = member(long_text, absent="")
    dla_unstated: str = member(long_text, absent="")
    layers: tuple[CheckedLayer, ...] = member(records(CheckedLayer))
    candidates: int = member(fields.count)
    loadables: int = member(fields.count)
    summary: CheckSummary = member(record(CheckSummary))
    unknown_cost: tuple[UnknownCost, ...] = member(records(UnknownCost))
    max_loadables: int = member(fields.count)
    transitions: int = member(fields.count)
    predicted: Forecast | None = member(nullable(record(Forecast)))
    fixes: tuple[Fix, ...] = member(records(Fix))
    fixes_together: Fix | None = member(nullable(record(Fix)))
    cuts: tuple[Cut, ...] = member(records(Cut), absent=())
    memory: tuple[LoadableMemory, ...] = member(records(LoadableMemory))
    memory_refused: tuple[LoadableMemory, ...] = member(records(LoadableMemory))
    memory_core: CoreMemory = member(record(CoreMemory))
    memory_disputes: Mapping[str, str] = member(mapping(long_text))
    without_slot: SlotReason | None = member(nullable(record(SlotReason)))
    sparsity: Sparsity = member(record(Sparsity))
    parse: Parse = member(record(Parse))
    parser: ParserResult | None = member(nullable(record(ParserResult)), absent=None)
    warnings: tuple[str, ...] = member(array(long_text))
    modules: tuple[ModuleTotals, ...] = member(records(ModuleTotals), absent=())
    buckets: tuple[Bucket, ...] = member(records(Bucket), absent=())
    range: RangeCost | None = member(nullable(record(RangeCost)), absent=None)

    def __str__(self) -> str:
        """Returns the verdict and the tree of modules as text."""
        summary = self.summary
        lines = [
            f"{self.model} for {self.target}, {self.precision.upper()}, TensorRT {self.tensorrt}"
        ]
        for problem in self.parse.problems:
            place = f" in {problem.place}" if problem.place else ""
            lines.append(
                f"{problem.operator} {problem.node}{place}: {problem.message}; {problem.fix}"
            )
        if self.placed:
            macs = percent(summary.dla_macs_fraction)
            lines.append(
                f"{summary.dla_layers:,} of {counted(summary.layers, 'layer')} and {macs} of the "
                "MACs run on the DLA"
            )
        if self.predicted is not None:
            alone = self.predicted.gpu_only_us
            lines.append(f"predicted {self.predicted.auto_us:,.1f} µs; GPU alone {alone:,.1f} µs")
        rows = [list(row.values()) for row in tree_rows(self.modules)]
        if rows:
            lines += ["", *align([HEAD, *rows], [name in RIGHT for name in HEAD])]
            lines += [CHECK_TIMES] if self.predicted else []
        return printable("\n".join([*lines, *(f"note: {warning}" for warning in self.warnings)]))

    @property
    def placed(self) -> bool:
        """True if there is a placement; a network that cannot be parsed has none."""
        return self.parse.ok or any(layer.placed for layer in self.layers)

    def failures(
        self, fail_under: float | None = None, max_loadables: int | None = None
    ) -> list[GateError]:
        """Returns an error for each missed limit; only the parser's if the model is not parsed.

        Args:
            fail_under: Least share of the multiply-accumulates on the DLA, in percent.
            max_loadables: Most loadables.
        """
        found = []
        share = self.summary.dla_macs_fraction
        if not self.parse.ok:  # without a placement no limit applies
            found.append(self.parse.refusal())
        elif fail_under is not None and 100 * share < fail_under:
            known = "known " if self.unknown_cost else ""
            # as in the verdict, with enough digits to be below the limit
            digits = next((n for n in range(1, 6) if round(100 * share, n) < fail_under), 6)
            found.append(
                GateError(
                    f"{percent(share, digits)} of the {known}MACs would run on the DLA, below the "
                    f"limit of {fail_under:g} %",
                    code="check.below-threshold",
                    hint="run check without --json to see why the rest cannot, and which fixes "
                    "help",
                )
            )
        if self.parse.ok and max_loadables is not None and self.loadables > max_loadables:
            found.append(
                GateError(
                    f"{counted(self.loadables, 'loadable')}, above the limit of {max_loadables}",
                    code="check.too-many-loadables",
                    hint="run check without --json to see which layers split the network",
                )
            )
        for error in found:
            error.where = self.model
        return found


@document(frozen=True)
class TensorFacts:
    """A tensor: its name, shape and NumPy type.

    Attributes:
        shape: Sizes of the axes.
    """

    name: str = member(long_text)
    shape: tuple[int, ...] = member(array(integer(-1, 1 << 62)))
    dtype: str = member(long_text)


@document(frozen=True, kw_only=True)
class LayerFacts(JudgedLayer):
    """All facts about a layer.

    Attributes:
        op: Its ONNX operator.
        precision: The precision of its verdict.
        inputs: The tensors that it reads.
        outputs: The tensors that it writes.
        params: Its parameters; "inf", "-inf" and "nan" are texts.
        weights: Names of its weights.
        predicted_us: Its predicted time.
        loadable: The loadable that holds it.
        cbuf: Its banks of the convolution buffer.
        sparsity: Possible savings of 2:4 sparse weights.
    """

    op: str = member(long_text)
    precision: str = member(fields.precision)
    inputs: tuple[TensorFacts, ...] = member(records(TensorFacts))
    outputs: tuple[TensorFacts, ...] = member(records(TensorFacts))
    params: Mapping[str, object] = member(mapping(anything, long_text))
    weights: tuple[str, ...] = member(array(long_text))
    predicted_us: float | None = member(nullable(fields.figure))
    loadable: LoadableMemory | None = member(nullable(record(LoadableMemory)))
    cbuf: CbufUse | None = member(nullable(record(CbufUse)))
    sparsity: SparseConvolution | None = member(nullable(record(SparseConvolution)))


@document(frozen=True)
class PredictedLoadable:
    """The candidate of a name in a log.

    Attributes:
        name: The builder's name.
        layers: In graph order.
        kept: True if it goes to the DLA.
        dropped: The rule that keeps it on the GPU.
        memory: Its memory; None if no slot is left for it.
    """

    name: str = member(long_text)
    layers: tuple[str, ...] = member(array(long_text))
    kept: bool = member(flag)
    dropped: str | None = member(nullable(long_text))
    memory: LoadableMemory | None = member(nullable(record(LoadableMemory)))


@document(frozen=True, kw_only=True)
class LayerCheck(_ModelDocument):
    """An ``edgekit.layer/1``: all facts about a layer, a node or a loadable.

    Attributes:
        name: The requested name.
        folded: Why a node of the file is not a layer.
        loadable: The named loadable.
        layers: The layers.
    """

    schema: str = member(choice("edgekit.layer/1"), default="edgekit.layer/1")
    name: str = member(long_text)
    folded: str | None = member(nullable(long_text))
    loadable: PredictedLoadable | None = member(nullable(record(PredictedLoadable)))
    layers: tuple[LayerFacts, ...] = member(records(LayerFacts))


@document(frozen=True, kw_only=True)
class SparsityCheck(Sparsity, _ModelDocument):
    """An ``edgekit.sparsity/1``: 2:4 sparsity of each convolution, read from its weights."""

    schema: str = member(choice("edgekit.sparsity/1"), default="edgekit.sparsity/1")


def checked_modules(
    network: Network, layers: Sequence[CheckedLayer], forecast: Forecast | None
) -> tuple[ModuleTotals, ...]:
    """Returns a checked network's modules, each before its submodules."""
    times = forecast.layer_us if forecast else {}
    places = {
        layer.name: LayerPlace(PYTORCH)
        if layer.opaque == LEFT
        else LayerPlace(layer.placed or "", times.get(layer.name), rules_against(layer))
        for layer in layers
    }
    return module_totals(network.whole, places)


def rules_against(layer: CheckedLayer) -> list[str]:
    """Returns the rules that keep a layer off the DLA."""
    if not layer.dla.ok:
        return [reason.rule for reason in layer.dla.reasons]
    return [layer.dropped or SLOTS] if layer.placed == "GPU" else []


def judged_layers(network: Network, judgement: Judgement) -> tuple[CheckedLayer, ...]:
    """Returns the layers of a judged network, with the loadables that hold them.

    Bytes are in the precision of a layer's verdict (4 for fp32, 2 for fp16, 1 for int8), except for
    index and boolean tensors, which keep their type.
    """
    outputs, every = set(network.outputs), network.whole
    groups = [group for group in judgement.candidates if group.retained]
    number = {name: index for index, group in enumerate(groups) for name in group.layers}
    dropped = {name: g.dropped for g in judgement.candidates if g.dropped for name in g.layers}
    found = []
    for layer in every.layers:
        precision = judgement.precision_of(layer.name)
        found.append(
            CheckedLayer(
                name=layer.name,
                kind=layer.kind,
                nodes=layer.nodes,
                origin=layer.origin,
                dla=judgement.verdicts[layer.name],
                placed=None if layer.opaque == LEFT else judgement.placed.get(layer.name),
                graph_output=any(name in outputs for name in layer.outputs),
                macs=layer.macs,
                steps=layer.params.get("steps", layer.params.get("trip_count")),
                opaque=layer.opaque,
                weight_bytes=layer.weight_elements * BYTES[precision],
                output_bytes=sum(tensor_bytes(every.tensors[n], precision) for n in layer.outputs),
                loadable=number.get(layer.name),
                dropped=dropped.get(layer.name),
                module=layer.module,
            )
        )
    return tuple(found)


def make_summary(network: Network, judgement: Judgement) -> CheckSummary:
    """Returns the number of layers by device; without a placement no layer counts as placed."""
    layers = len(network.whole.layers)
    left = [layer for layer in network.whole.layers if layer.opaque == LEFT]
    on_dla = [la for la in network.layers if judgement.placed.get(la.name) == "DLA"]
    return CheckSummary(
        layers=layers,
        dla_layers=len(on_dla),
        gpu_layers=layers - len(on_dla) - len(left) if judgement.placed else 0,
        dla_macs_fraction=macs_fraction(network, on_dla),
    )


def unknown_costs(network: Network) -> tuple[UnknownCost, ...]:
    """Returns the layers whose cost and multiply-accumulates no figure includes."""
    return tuple(
        UnknownCost(
            layer=layer.name,
            operator=layer.op,
            why=why_uncounted(layer),
            plugin=dict(layer.params) if layer.opaque == "plugin" else None,
        )
        for layer in network.layers
        if not layer.formula
    )


def make_verdict(check: Check) -> Verdict:
    """Returns a check's summary for other steps."""
    figures = BriefCheck(
        **vars(check.summary),
        candidates=check.candidates,
        loadables=check.loadables,
        transitions=check.transitions,
        predicted=without_layers(check.predicted),
    )
    return Verdict(figures, any(layer.macs for layer in check.layers), bool(check.unknown_cost))


def without_layers(forecast: Forecast | None) -> Forecast | None:
    """Returns a prediction without the times of single layers."""
    return None if forecast is None else replace(forecast, layer_us={})


def judged_fields(layer: JudgedLayer) -> dict[str, Any]:
    """Returns a layer's fields of ``JudgedLayer``, as arguments of ``LayerFacts``."""
    return {item.name: getattr(layer, item.name) for item in dataclasses.fields(JudgedLayer)}


def tensor_bytes(tensor: Tensor, precision: str) -> int:
    """Returns the bytes of a tensor that a layer of a precision writes, without padding."""
    return tensor.elements * _OTHER.get(tensor.dtype, BYTES[precision])
