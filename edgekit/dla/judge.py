"""The verdict of every layer, and the placement on the DLA that TensorRT would choose.

``release_warnings`` returns warnings about a TensorRT release besides the verdicts.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.dla.checks import Facts, RuleFailure
from edgekit.dla.facts import LayerFacts, LayerGraph
from edgekit.dla.loadables import find_working_candidates
from edgekit.dla.memory import drop_oversized
from edgekit.dla.precision import (
    QUANTIZATION,
    plan_lowering,
    precision_by_scales,
    precisions_by_qdq,
)
from edgekit.dla.rule_files import ANY_KIND, Operator, Rule
from edgekit.dla.rules import Rules, load_rules, loadables_per_core
from edgekit.dla.verdicts import Judgement, LayerVerdict, verdict_reason
from edgekit.error_document import VerdictReason
from edgekit.errors import UsageError
from edgekit.network.graph import LEFT
from edgekit.network.model import QDQ, Layer, Network
from edgekit.targets.loader import get, names
from edgekit.targets.releases import (
    jetpack_support_ended,
    missing_jetpack_note,
    parse_version,
    release_for,
    supports_dla,
    unstated_dla_reason,
)
from edgekit.text import counted
from edgekit_device.protocol.fields import PRECISIONS
from edgekit_device.versions import Version

if TYPE_CHECKING:
    from edgekit.targets.board import Target


# if this rule is no longer in force, a network is strongly typed and may contain Q/DQ nodes
_EXPLICIT_RULE = "general.explicit_quantization"
_COMPOSED_RULE = "operators.composed"
# by the cause of an opaque layer: the rule that it breaks, and that rule's limit
_OPAQUE = {
    "plugin": ("general.plugin", "TensorRT's built-in layers"),
    "imported": ("general.kind", "the layer types of the DLA chapter"),
    "left": ("general.kind", "layers of the network itself"),
    "shapes": ("general.dynamic_shapes", "shapes known at build time"),
}


def first_qdq_release() -> str:
    """Returns the first TensorRT release that reads Q/DQ nodes for a DLA."""
    since = load_rules().rules[_EXPLICIT_RULE].until
    assert since is not None, "the rule ended with a release"
    return since


def qdq_hint() -> str:
    """Returns the needs of INT8 on a DLA, before and since TensorRT reads Q/DQ nodes there."""
    since = first_qdq_release()
    boards = [name for name in names() if get(name).dla.cores and supports_dla(get(name), since)]
    return (
        f"before TensorRT {since}, INT8 on the DLA needs a calibration cache (edgekit calibrate "
        f"--save); Q/DQ nodes need --tensorrt {since} or later on {' or '.join(boards)}"
    )


def reads_qdq(target: Target, tensorrt: str) -> bool:
    """Returns True if a TensorRT release may place layers of a Q/DQ model on a board's DLA.

    Otherwise (below 11.4.1) INT8 on the DLA is implicit: a plain model and a calibration cache.
    The rule general.explicit_quantization has the sources.

    Raises:
        UsageError: ``tensorrt`` is no release.
    """
    rule = load_rules().rules[_EXPLICIT_RULE]
    return not rule.holds_for("QUANTIZE", target.dla.generation, parse_version(tensorrt))


def dispute_composed(network: Network, rules: Rules, verdicts: dict[str, LayerVerdict]) -> None:
    """Marks layers as disputed if the rules allow them and the matrix does not expose the operator.

    Args:
        network: The layer graph.
        rules: With the operator matrix.
        verdicts: By layer name; changed in place.
    """
    nodes: dict[tuple[str, ...], list[Layer]] = {}
    for layer in network.layers:
        row = rules.operators.get(layer.op)
        if row is not None and row.composed:
            # the parser makes several layers of the node; the matrix has one operator
            nodes.setdefault(layer.origin, []).append(layer)
    rule = rules.rules[_COMPOSED_RULE]
    for layers in nodes.values():
        # a refused layer already keeps the whole operator off the DLA
        if not all(verdicts[layer.name].ok for layer in layers):
            continue
        op = layers[0].op
        yes = [
            title
            for layer in layers
            for title in rules.sources_allowing(layer.kind, layer.params.get("function"))
        ]
        reason = verdict_reason(
            rule, RuleFailure(op, rule.limit, op), Facts(), rules.operators[op], yes
        )
        for layer in layers:
            known = verdicts[layer.name]
            verdicts[layer.name] = replace(
                known, certainty="disputed", reasons=(*known.reasons, reason)
            )


def release_warnings(network: Network, judgement: Judgement, target: Target) -> tuple[str, ...]:
    """Returns one sentence for every note whose condition some layers meet, with their number.

    The warning of a release newer than all sources comes first: its verdicts are those of the
    newest known release. The notes are those with ``counts`` and ``warning`` under ``dla/``.
    Besides the facts of other rules they can read ``allowed`` (the verdict) and ``precision`` (the
    layer's judged precision). Layers are not read for a release without such notes.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdicts.
        target: The board.
    """
    rules = load_rules()
    version = parse_version(judgement.tensorrt)
    newer = release_notes(target, judgement.tensorrt)
    generation = target.dla.generation
    notes = [
        rule
        for rule in rules
        if rule.counts is not None and rule.holds_for(ANY_KIND, generation, version)
    ]
    if not notes or not generation:
        return newer
    graph = LayerGraph(network)
    met = dict.fromkeys((rule.id for rule in notes), 0)
    for layer in network.layers:
        facts = LayerFacts(layer, graph, Facts())
        facts["precision"] = judgement.precision_of(layer.name)
        facts["allowed"] = judgement.verdicts[layer.name].ok
        for rule in notes:
            met[rule.id] += rule.counts is not None and rule.counts(facts) is not None
    warnings = []
    for rule in notes:
        if count := met[rule.id]:
            layers = f"{counted(count, 'layer')} {'is' if count == 1 else 'are'}"
            text = rule.warning.format(tensorrt=judgement.tensorrt, layers=layers)
            warnings.append(f"{text} ({rule.id})")
    return (*newer, *warnings)


def release_notes(target: Target, release: str) -> tuple[str, ...]:
    """Returns notes about a release that hold for any network.

    The release is newer than all sources, so that the rules of the newest known release are used;
    or no JetPack brings it to the board.
    """
    newest, notes = load_rules().newest, []
    newer = parse_version(release) > parse_version(newest)
    if newer:
        notes.append(
            f"TensorRT {release} is newer than the newest release in edgekit's sources ({newest}): "
            f"the rules of {newest} are used"
        )
    if why := unstated_dla_reason(target, release):
        notes.append(
            f"Whether TensorRT {release} supports the DLA of {target.name} is not stated: {why}; "
            f"{newest} is the newest release that is stated to"
        )
    # a JetPack may bring a newer release later
    if not newer or jetpack_support_ended(target):
        notes += [missing] if (missing := missing_jetpack_note(target, release)) else []
    return tuple(notes)


def judge(
    network: Network,
    target: Target,
    *,
    precision: str = "int8",
    tensorrt: str | None = None,
    scales: Mapping[str, float] | None = None,
    max_loadables: int | None = None,
    fp16_layers: Collection[str] = frozenset(),
    lowers: bool = False,
) -> Judgement:
    """Judges every layer for a board, and groups the allowed layers into loadables.

    With "int8" a layer runs in INT8 if its tensors have scales, in FP16 otherwise; without
    ``scales`` every tensor is taken to have a scale. If TensorRT reads Q/DQ nodes, the network's
    types decide instead: INT8 between a DequantizeLinear and a QuantizeLinear, FP16 elsewhere.

    Args:
        network: The layer graph.
        target: The board.
        precision: "fp32", "fp16" or "int8".
        tensorrt: TensorRT release; None for the board's usual release.
        scales: INT8 scales by tensor.
        max_loadables: Loadables that a DLA core may hold, if fewer than possible.
        fp16_layers: Layers kept out of INT8; a strongly typed network defines them itself.
        lowers: True if a plain network gets Q/DQ nodes before a TensorRT that reads no scales
            builds it (:func:`edgekit.dla.precision.plan_lowering`): the lowered network is judged.

    Raises:
        UsageError: Unknown precision, or a TensorRT that was never released for the board.
    """
    if precision not in PRECISIONS:
        raise UsageError(
            f"unknown precision {precision!r}",
            code="precision.unknown",
            hint=f"choose one of {', '.join(PRECISIONS)}",
        )
    release = release_for(target, tensorrt)
    version = parse_version(release)
    rules = load_rules()
    quantised = any(layer.kind in QUANTIZATION for layer in network.layers)
    explicit = not rules.rules[_EXPLICIT_RULE].holds_for("QUANTIZE", target.dla.generation, version)
    lowered = lowers and explicit and precision == "int8" and not quantised
    common = Facts(
        precision=precision,
        target=target.name,
        generation=target.dla.generation,
        dla_cores=target.dla.cores,
        tensorrt=release,
        has_quantization=quantised or lowered,
        # Q/DQ nodes of weights have no layers
        has_qdq_nodes=quantised or not QDQ.isdisjoint(network.operators),
        # a lowered network carries its scales in Q/DQ nodes instead
        gives_scales=scales is not None and not lowered,
        tensorrt_drives_dla=supports_dla(target, release),
        drives_newest=supports_dla(target, rules.newest),
        kind_supported=True,
        known_releases=f"{rules.oldest} to {rules.newest}",
        release_known=parse_version(rules.oldest) <= version <= parse_version(rules.newest),
    )
    generation = target.dla.generation
    # with the constants that remain layers: they get verdicts, but no place in a loadable
    whole = network.whole
    refusal = _network_refusal(rules, common, generation, version)
    precisions: dict[str, str] = {}
    # a refusal of the network outweighs the layers' own reasons
    if refusal is not None:
        verdicts = {layer.name: LayerVerdict(ok=False, reasons=refusal) for layer in whole.layers}
    else:
        if lowered:
            precisions = plan_lowering(network, scales, fp16_layers).precisions
        elif not explicit:
            precisions = {
                layer.name: precision_by_scales(layer, precision, scales, fp16_layers)
                for layer in whole.layers
            }
        else:
            precisions = precisions_by_qdq(whole)
        layer_judge = _LayerJudge(whole, generation, version, rules, common)
        verdicts = {
            layer.name: layer_judge.judge(layer, precisions[layer.name]) for layer in whole.layers
        }
        dispute_composed(whole, rules, verdicts)
    held = loadables_per_core(version)
    slots = held if max_loadables is None else min(max_loadables, held)
    able = {n: v.ok for n, v in verdicts.items()}
    groups = find_working_candidates(network, able, QUANTIZATION, slots, precisions or precision)
    # after the slots are given: a dropped candidate's slot stays empty
    groups = drop_oversized(network, groups, target, precisions or precision)
    on_dla = {name for group in groups if group.retained for name in group.layers}
    placed = {layer.name: "DLA" if layer.name in on_dla else "GPU" for layer in whole.layers}
    return Judgement(target.name, precision, release, verdicts, groups, placed, slots, precisions)


def _network_refusal(
    rules: Rules, common: Facts, generation: str, version: Version
) -> tuple[VerdictReason, ...] | None:
    for rule in rules:
        if not rule.network or rule.check is None:
            continue
        if not rule.holds_for(ANY_KIND, generation, version):
            continue
        # a check returns None if it holds: here the condition fails
        if rule.when is not None and rule.when(common) is not None:
            continue
        failure = rule.check(common)
        if failure is not None:
            return (verdict_reason(rule, failure, common),)
    return None


@lru_cache(1024)
def _active_rules(kind: str, generation: str, version: Version) -> tuple[Rule, ...]:
    """Returns the rules that hold for a layer kind, DLA generation and TensorRT release."""
    return tuple(
        rule
        for rule in load_rules()
        if not rule.network
        and (rule.check is not None or rule.runs_in)
        and rule.holds_for(kind, generation, version)
    )


class _LayerJudge:
    """Judges the layers of one network for one DLA generation and TensorRT release."""

    def __init__(
        self,
        network: Network,
        generation: str,
        version: Version,
        rules: Rules,
        common: Facts,
    ) -> None:
        self._graph = LayerGraph(network)
        self._generation = generation
        self._version = version
        self._rules = rules
        self._common = common
        # verdicts of layers that do not depend on their neighbours, by all facts that they read
        self._cache: dict[Hashable, LayerVerdict] = {}

    def judge(self, layer: Layer, precision: str) -> LayerVerdict:
        """Judges a layer that is built for ``precision``; equal layers are judged once."""
        if layer.opaque:
            self._graph.refused.add(layer.name)
            return self._judge_opaque(layer)
        key = self._key(layer, precision)
        verdict = self._cache.get(key)
        if verdict is None:
            self._graph.neighbours_read = False
            verdict = self._judge_new(layer, precision)
            # a verdict that depends on neighbours holds for this layer alone
            if not self._graph.neighbours_read:
                self._cache[key] = verdict
        if not verdict.ok:
            self._graph.refused.add(layer.name)
        return verdict

    def _judge_opaque(self, layer: Layer) -> LayerVerdict:
        """Returns the verdict for a layer with unknown shapes: its only reason."""
        name, limit = _OPAQUE[layer.opaque]
        rule = self._rules.rules[name]
        facts = LayerFacts(layer, self._graph, self._common)
        broken = RuleFailure(layer.op, limit, layer.op)
        # no change of the layer itself brings it to the DLA
        reason = replace(verdict_reason(rule, broken, facts), mends=False)
        if layer.opaque == LEFT:
            module = f"the module {layer.params['module']!r}"
            reason = replace(
                reason,
                found=module,
                message=f"{module} is left out of the network",
                fix="give leave without it",
            )
        return LayerVerdict(ok=False, reasons=(reason,))

    def _key(self, layer: Layer, precision: str) -> Hashable:
        tensors = self._graph.tensors
        forms = [(tensors[name].shape, tensors[name].dtype) for name in layer.inputs]
        forms += [(tensors[name].shape, tensors[name].dtype) for name in layer.outputs]
        # as text: 1 and 1.0 are equal, but messages print them differently
        return (
            layer.kind,
            layer.op,
            bool(layer.nodes),
            precision,
            len(layer.inputs),
            tuple(forms),
            repr(layer.params),
        )

    def _judge_new(self, layer: Layer, precision: str) -> LayerVerdict:
        kind = layer.kind
        facts = LayerFacts(layer, self._graph, self._common)
        facts["kind_supported"] = kind in self._rules.kinds
        facts["precision"] = precision
        # the matrix is about nodes of the model, not about layers that the parser inserts
        row = self._rules.operators.get(layer.op) if layer.nodes else None
        refusals: list[tuple[Rule, VerdictReason]] = []
        risks: list[tuple[Rule, VerdictReason]] = []
        runs_in = precision
        for rule in _active_rules(kind, self._generation, self._version):
            if precision not in rule.precisions:
                continue
            if rule.when is not None and rule.when(facts) is not None:
                continue
            # no restriction: such a rule only sets the precision
            if rule.check is None:
                runs_in = rule.runs_in
                continue
            failure = rule.check(facts)
            if failure is not None:
                findings = risks if rule.effect == "risk" else refusals
                findings.append((rule, verdict_reason(rule, failure, facts, row)))
        # the matrix is asked last: only a layer that the rules allow can contradict it
        if not refusals and row is not None and not row.composed:
            self._check_matrix(row, facts, refusals, risks)
        # the reasons of a refused layer are its refusals; risks matter only if it is allowed
        found = refusals or risks
        disputed = bool(found) and all(rule.certainty == "disputed" for rule, _ in found)
        return LayerVerdict(
            ok=not refusals,
            certainty="disputed" if disputed else "certain",
            reasons=tuple(reason for _, reason in found),
            precision="" if refusals else runs_in,
            needs_gpu=any(rule.needs_gpu for rule, _ in found),
        )

    def _check_matrix(
        self,
        row: Operator,
        facts: LayerFacts,
        refusals: list[tuple[Rule, VerdictReason]],
        risks: list[tuple[Rule, VerdictReason]],
    ) -> None:
        """Adds the operator matrix's reasons for a layer that the layer rules allow."""
        if row.settled_by:
            return
        by_id = self._rules.rules
        if row.trt == "native":
            if row.since and self._version < parse_version(row.since):
                rule = by_id["operators.since"]
                broken = RuleFailure(row.name, f"TensorRT {row.since}", row.name)
                refusals.append((rule, verdict_reason(rule, broken, facts)))
            return
        # computed at build time: there is no layer to judge
        if row.trt == "folded":
            return
        rule = by_id["operators.not_exposed"]
        broken = RuleFailure(row.name, "native", row.name)
        yes = self._rules.sources_allowing(facts["kind"], facts["function"])
        risks.append((rule, verdict_reason(rule, broken, facts, row, yes)))
