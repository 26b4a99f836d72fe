"""Verdicts, reasons and loadable candidates as values, and a broken rule in words: its message
and the fix that fits the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from edgekit.dla.checks import Facts, RuleFailure, show
from edgekit.dla.rule_files import Operator, Rule, Way
from edgekit.dla.rules import loadables_per_core
from edgekit.error_document import VerdictReason
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    member,
    records,
)


@document(frozen=True, kw_only=True)
class SlotReason(VerdictReason):
    """Why DLA-capable layers stay on the GPU: a core holds no more loadables."""

    layers: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class LayerVerdict:
    """The verdict of a layer: can it run on a DLA.

    Attributes:
        ok: True if it can.
        certainty: "certain", or "disputed" if the sources are silent or disagree.
        reasons: Why it cannot; if ``ok`` is True but disputed, the evidence against it.
        precision: The precision on a DLA ("fp16", "int8"); empty if it cannot run there.
        needs_gpu: The builder lets the DLA run it with a part on the GPU.
    """

    ok: bool = member(flag)
    certainty: str = member(choice("certain", "disputed"), default="certain")
    reasons: tuple[VerdictReason, ...] = member(records(VerdictReason), default=())
    precision: str = ""
    needs_gpu: bool = False

    @property
    def placeable(self) -> bool:
        """True if a plan may place it on a DLA."""
        return self.ok and not self.needs_gpu


@document(frozen=True)
class MemoryNeed:
    """Pool sizes of one loadable in bytes, powers of two of at least 4 KiB.

    Attributes:
        managed_sram: Bytes of the DLA's SRAM.
        local_dram: Bytes of DRAM for tensors.
        global_dram: Bytes of DRAM for weights.
    """

    managed_sram: int = member(fields.count)
    local_dram: int = member(fields.count)
    global_dram: int = member(fields.count)


@document(frozen=True)
class LoadableCandidate:
    """A maximal convex run of DLA-capable layers, in graph order.

    Attributes:
        layers: Names of its layers.
        retained: True if it becomes a loadable.
        dropped: The rule that prevents it: "memory.loadables" if larger candidates take all slots,
            or the memory limit that it breaks. Empty if retained.
    """

    layers: tuple[str, ...]
    retained: bool
    dropped: str = ""


@document(frozen=True, eq=False)
class Judgement:
    """The verdict of a whole network for a target, precision and TensorRT version.

    Attributes:
        verdicts: By layer name, in graph order.
        candidates: TensorRT's groups with automatic DLA placement.
        placed: "DLA" or "GPU" by layer name after the slot limit; empty for a network that the
            board's parser refuses, which has no candidates either.
        slots: Loadables that a core holds with this TensorRT release.
        precisions: Judged precision by layer name, if known by layer: "int8" or "fp16"; empty if
            the whole network was refused.
    """

    target: str
    precision: str
    tensorrt: str
    verdicts: Mapping[str, LayerVerdict]
    candidates: tuple[LoadableCandidate, ...]
    placed: Mapping[str, str]
    slots: int = field(default_factory=loadables_per_core)
    precisions: Mapping[str, str] = field(default_factory=dict)

    def precision_of(self, layer: str) -> str:
        """Returns a layer's judged precision; the requested precision if unknown."""
        return self.precisions.get(layer, self.precision)

    def unplaced(self) -> Judgement:
        """Returns the verdicts without a placement, for a network that no board can parse."""
        return replace(self, candidates=(), placed={})


class _Words(Mapping[str, str]):
    """The facts of a layer as texts, for the braces of the rule files."""

    def __init__(self, facts: Facts, value: str) -> None:
        self._facts = facts
        self._value = value

    def __getitem__(self, name: str) -> str:
        return self._value if name == "value" else show(self._facts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def verdict_reason(
    rule: Rule,
    failure: RuleFailure,
    facts: Facts,
    row: Operator | None = None,
    against: Iterable[str] = (),
) -> VerdictReason:
    """Returns why a layer is refused or unsure, in the rule's own words.

    Args:
        rule: The rule that is broken.
        failure: The failure of its check.
        facts: The layer's facts, or the network's for a rule of the whole network.
        row: The operator's row of NVIDIA's matrix, if it has one.
        against: Titles of the sources that the rule's own contradict.
    """
    words = _Words(facts, failure.value)
    found = rule.found.format_map(words) if rule.found else failure.found
    limit = rule.limit or failure.limit
    message = f"{rule.text.rstrip('.')}. Found: {found}"
    if not rule.brief:
        message += f" (allowed: {limit})"
    # the fix: the operator's own, else that of the first way that applies, else the rule's
    way: Operator | Way | Rule
    if rule.operator_fix and row is not None and row.fix:
        way = row
    else:
        way = next((way for way in rule.ways if way.when(facts) is None), rule)
    fix = way.fix.format_map(words)
    # each title once: both sides of a dispute may have the same source
    source = "; ".join(dict.fromkeys((*against, *rule.sources)))
    rewritten = way is row and row.rewritten
    return VerdictReason(rule.id, message, found, limit, source, fix, way.mends, rewritten)
