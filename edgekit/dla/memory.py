"""Memory of loadables: managed SRAM, local DRAM (tensors), global DRAM (weights), broken limits,
and the banks of the convolution buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from edgekit.dla.checks import Facts
from edgekit.dla.fact_files import PoolDefault, memory_facts
from edgekit.dla.formats import nbytes
from edgekit.dla.rule_files import join_titles
from edgekit.dla.rules import load_rules
from edgekit.dla.verdicts import Judgement, LoadableCandidate, MemoryNeed
from edgekit.network.model import name_between
from edgekit.text import counted
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    long_text,
    member,
    nullable,
    record,
    records,
)

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network
    from edgekit.targets.board import Target


_CHW = 3
# precision: (NumPy type, tensor format)
_STORAGE = {"int8": ("int8", "CHW32"), "fp16": ("float16", "CHW16")}
# an index lives as long as its network
_INDEXES: WeakKeyDictionary[Network, _NetworkIndex] = WeakKeyDictionary()
_DRAM = ("local_dram", "global_dram")


@document(frozen=True)
class CbufUse:
    """The banks of one convolution out of ``available``.

    ``near`` is True if the number is close to the limit or beyond it. Boards and the documented
    formula may then disagree: a warning, independent of the verdict.

    Attributes:
        banks: Banks that the convolution needs.
        available: Banks of a core.
    """

    layer: str = member(long_text)
    banks: int = member(fields.count)
    available: int = member(fields.count)
    near: bool = member(flag)
    source: str = member(long_text)
    fix: str = member(long_text)


def cbuf_use(network: Network, precision: str | Mapping[str, str]) -> tuple[CbufUse, ...]:
    """Returns the banks of every two-dimensional convolution, in graph order.

    Args:
        network: The layer graph.
        precision: "int8" or "fp16", of all layers or by layer name.
    """
    facts = memory_facts().cbuf
    rule = load_rules().rules["convolution.cbuf_unsure"]
    found = []
    for layer in network.layers:
        if layer.kind != "CONVOLUTION" or not layer.inputs:
            continue
        own = precision if isinstance(precision, str) else precision[layer.name]
        banks = conv_banks(Facts(layer.params), network.tensors[layer.inputs[0]].shape, own)
        if banks is not None:
            near = banks >= facts.near
            source = join_titles(rule.source)
            found.append(CbufUse(layer.name, banks, facts.banks, near, source, rule.fix))
    return tuple(found)


def conv_banks(params: Facts, shape: Sequence[int], precision: str) -> int | None:
    """Returns the banks of a convolution by its parameters and its input's shape.

    None if its kernel is not two-dimensional or its input has no C, H and W.
    """
    kernel = params.get("kernel")
    if kernel is None or len(kernel) != 2 or len(shape) <= _CHW:
        return None
    height, width = kernel
    dilation = params.get("dilation") or (1, 1)
    groups = params.get("groups") or 1
    return cbuf_banks(shape[-3], (height, width), dilation[0], shape[-1], precision, groups)


def cbuf_banks(
    channels: int,
    kernel: tuple[int, int],
    dilation_h: int,
    width: int,
    precision: str,
    groups: int = 1,
) -> int:
    """Returns the banks for one kernel and for the input rows that it reads.

    The formula of the TensorRT 8.5 guide: ``ceil(round_up(C kh kw b, 128) / 32768)`` banks for one
    kernel, which has the channels of one group, and ``ceil(ceil(ceil(C b / 32) W / 4) ((kh - 1) d
    + 1) / 256)`` for the rows; b is 1 byte for INT8 and 2 for FP16. Its sizes are those of the open
    NVDLA: 16 banks of 256 entries of 128 bytes.

    Args:
        channels: Input channels.
        kernel: Height and width.
        dilation_h: Dilation of the height.
        width: Input width.
        precision: "int8" or "fp16".
        groups: Number of groups.
    """
    facts = memory_facts().cbuf
    size = 1 if precision == "int8" else 2
    height, kernel_width = kernel
    kernel_bytes = channels // max(groups, 1) * height * kernel_width * size
    padded = -(-kernel_bytes // facts.kernel_multiple) * facts.kernel_multiple
    weight_banks = -(-padded // facts.bank_bytes)
    vectors = -(-channels * size // facts.vector_bytes)
    entries = -(-vectors * width // facts.vectors_per_entry)
    rows = (height - 1) * dilation_h + 1
    return weight_banks + -(-entries * rows // facts.entries_per_bank)


class Sizes(NamedTuple):
    """Sizes of a loadable in bytes: its pools, and the tensors and weights in them."""

    need: MemoryNeed
    tensors: int
    weights: int
    # by the size of their types; builds were seen to take more
    documented_weights: int
    documented_need: MemoryNeed


class _NetworkIndex:
    """Readers of each tensor and layers by name: made once per network, so that the cost of a
    loadable depends on its own layers only."""

    def __init__(self, network: Network) -> None:
        self.place = {layer.name: index for index, layer in enumerate(network.layers)}
        self.readers = network.consumers()
        self.outputs = frozenset(network.outputs)


def predict_need(
    network: Network,
    layers: Sequence[str],
    target: Target,
    precision: str | Mapping[str, str] = "int8",
) -> MemoryNeed:
    """Returns the smallest legal pools that hold a loadable, predicted.

    Each pool is a power of two. Local DRAM holds the peak of the tensors between the loadable's
    layers, and the tensors at its border; global DRAM holds its weights. Floors, factors and
    extras come from the verbose builds named in ``dla/memory.yaml``, and are exact for those
    (ResNet-50 and DETR).

    Args:
        network: The layer graph.
        layers: The names of the loadable's layers.
        target: The board.
        precision: "int8" or "fp16", of all layers or by layer name ("fp32" and missing layers
            count as "fp16": no DLA computes in FP32).
    """
    return loadable_sizes(network, layers, target, precision).need


def loadable_sizes(
    network: Network, layers: Sequence[str], target: Target, precision: str | Mapping[str, str]
) -> Sizes:
    """Returns pools, tensors and weights of a loadable; arguments as for :func:`predict_need`."""
    chosen = _in_graph_order(network, layers)
    generation = target.dla.layouts
    facts = memory_facts()
    smallest = facts.smallest
    tensors, local = _local_dram(network, chosen, precision, generation)
    weights = weight_bytes(network, chosen, precision, generation)
    documented = weight_bytes(network, chosen, precision, generation, documented=True)
    sram = facts.managed_sram.default
    if target.dla.sram_bytes:
        sram = min(sram, target.dla.sram_bytes)
    # with the weights' size as seen in builds, and as documented
    predicted, least = (
        MemoryNeed(
            managed_sram=_pool_size(sram, smallest),
            local_dram=_pool_size(max(local, facts.local_dram.floor or 0), smallest),
            global_dram=_pool_size(max(size, facts.global_dram.floor or 0), smallest),
        )
        for size in (weights, documented)
    )
    return Sizes(predicted, tensors, weights, documented, least)


def _local_dram(
    network: Network,
    chosen: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> tuple[int, int]:
    """Returns two sizes in bytes: the inner tensors, and local DRAM with the border's tensors."""
    facts = memory_facts()
    extra, borders = facts.local_extra, facts.local_borders
    live = _live_bytes(network, chosen, precision, generation)
    factor = facts.local_factor
    # the peak, which may be at another layer for each sum
    inside = max(math.ceil(factor.int8 * int8 + factor.fp16 * fp16) for int8, fp16 in live)
    tensors = max(int8 + fp16 for int8, fp16 in live)
    # a loadable without inner tensors had no extra bytes in the builds either
    if inside:
        # the extra bytes of a precision are taken once, however few layers have it
        most = max(extra.of(_storage_type(layer.name, precision)) for layer in chosen)
        inside += min(most, math.ceil(extra.of_tensors * tensors))
    border = _border_bytes(network, chosen, precision, generation)
    products = (layer for layer in chosen if layer.params.get("gemm"))
    rows = (network.tensors[layer.outputs[0]].shape[0] for layer in products)
    # the DLA runs a matrix product of several rows row by row
    row_bytes = sum(count for count in rows if count > 1) * facts.local_rows.value
    # the factor of the border includes the border itself, which is added once
    both = border + max(tensors, math.ceil((borders.value - 1) * border))
    return tensors, max(inside, both) + row_bytes


def _border_bytes(
    network: Network,
    chosen: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> int:
    """Returns the bytes of the tensors that enter and leave a loadable."""
    uses = _index_network(network)
    inside = {layer.name for layer in chosen}
    written = {name for layer in chosen for name in layer.outputs}
    found: dict[str, int] = {}
    for layer in chosen:
        entering = (name for name in layer.inputs if name not in written)
        leaving = (
            name
            for name in layer.outputs
            if name in uses.outputs
            or any(reader.name not in inside for reader in uses.readers.get(name, ()))
        )
        width = _storage_type(layer.name, precision)
        for name in (*entering, *leaving):
            size = nbytes(network.tensors[name].shape, *_STORAGE[width], generation)
            # layers of two precisions may read a tensor: it is stored once, in the larger format
            found[name] = max(size, found.get(name, 0))
    return sum(found.values())


def pool_limits(target: Target) -> MemoryNeed:
    """Returns the largest pools that a build gets by default, in bytes.

    Managed SRAM is the hardware's (on Xavier shared by all cores); the DRAM pools are TensorRT's
    defaults, which are also the documented limits for weights and internal tensors.
    """
    facts = memory_facts()
    return MemoryNeed(
        managed_sram=target.dla.sram_bytes,
        local_dram=facts.local_dram.default,
        global_dram=facts.global_dram.default,
    )


def _live_bytes(
    network: Network,
    layers: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> list[tuple[int, int]]:
    """Returns the bytes alive while each layer runs, as INT8 and as FP16.

    ``layers`` are in graph order. A tensor lives from the layer that writes it to its last reader.
    The loadable's inputs and outputs are the caller's memory and do not count. Between layers of
    two precisions a tensor counts in the larger format.
    """
    uses = _index_network(network)
    inside = {layer.name for layer in layers}
    last = {name: index for index, layer in enumerate(layers) for name in layer.inputs}
    alive = dict.fromkeys(_STORAGE, 0)
    held: dict[str, tuple[str, int]] = {}
    # so that the maximum exists without inner tensors
    found = [(0, 0)]
    for index, layer in enumerate(layers):
        for name in layer.outputs:
            readers = uses.readers.get(name, ())
            leaves = name in uses.outputs or any(r.name not in inside for r in readers)
            if name in last and not leaves:
                shape = network.tensors[name].shape
                users = (layer, *readers)
                widths = dict.fromkeys(_storage_type(user.name, precision) for user in users)
                sizes = {w: nbytes(shape, *_STORAGE[w], generation) for w in widths}
                held[name] = max(sizes.items(), key=lambda item: item[1])
                alive[held[name][0]] += held[name][1]
        # before the inputs end: they are alive with the outputs while the layer runs
        found.append((alive["int8"], alive["fp16"]))
        # a layer may read a tensor twice
        for name in set(layer.inputs):
            if last[name] == index and name in held:
                width, size = held.pop(name)
                alive[width] -= size
    return found


def _storage_type(layer: str, precision: str | Mapping[str, str]) -> str:
    own = precision if isinstance(precision, str) else precision.get(layer)
    return "int8" if own == "int8" else "fp16"


def weight_bytes(
    network: Network,
    layers: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
    *,
    documented: bool = False,
) -> int:
    """Returns the bytes of weights in global DRAM, with the padding of the channels.

    Convolution weights take two bytes each in either precision (one byte does not explain the
    build log's pools); biases, scales and slopes take four on Orin (FP19) and two on Xavier.
    With ``documented`` they take the size of their type: one byte in INT8. ``precision`` is as for
    :func:`predict_need`; ``generation`` is the DLA's, "1.0" (Xavier) or "2.0" (Orin).
    """
    facts = memory_facts()
    sizes = facts.convolution_weight_bytes
    other = facts.other_weight_bytes.of(generation)
    total = 0
    for layer in layers:
        params = layer.params
        width = _storage_type(layer.name, precision)
        multiple = facts.channel_multiple.of(width)
        each = sizes.documented.of(width) if documented else sizes.value
        if layer.kind in {"CONVOLUTION", "DECONVOLUTION"} and layer.inputs:
            groups = params.get("groups", 1)
            maps = _round_up(params.get("out_maps", 1), facts.map_multiple.value)
            inputs = network.tensors[layer.inputs[0]].shape[1]
            # a grouped convolution keeps only its own channels
            per_kernel = _round_up(inputs, multiple) if groups == 1 else -(-inputs // groups)
            total += maps * per_kernel * math.prod(params.get("kernel", (1,))) * each
            total += maps * other
        elif layer.weight_elements:
            # slopes, scales and other weights
            total += _round_up(layer.weight_elements, multiple) * other
    return total


def _index_network(network: Network) -> _NetworkIndex:
    found = _INDEXES.get(network)
    if found is None:
        found = _INDEXES[network] = _NetworkIndex(network)
    return found


def _in_graph_order(network: Network, layers: Sequence[str]) -> list[Layer]:
    """Returns the layers of these names in graph order; cost is linear in their number."""
    place = _index_network(network).place
    return [network.layers[index] for index in sorted({place[name] for name in layers})]


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f}".removesuffix(".0") + " MiB"


def _pool_size(size: int, smallest: int) -> int:
    # the next power of two
    return 1 << (max(size, smallest) - 1).bit_length()


@document(frozen=True)
class BrokenLimit:
    """A limit that a loadable breaks; sizes in bytes.

    ``need`` is compared with ``limit``: it is the pool for ``memory.pool``, and the tensors or
    weights themselves for the other rules. ``documented`` is that size with weights as large as
    their type: if it fits and ``need`` does not, the limit is disputed, not broken.

    Attributes:
        need: Bytes compared with the limit.
        limit: Bytes allowed.
        documented: Bytes with weights as large as their type.
    """

    pool: str = member(long_text)
    rule: str = member(long_text)
    need: int = member(fields.count)
    limit: int = member(fields.count)
    documented: int = member(fields.count)
    source: str = member(long_text)
    fix: str = member(long_text)

    @property
    def text(self) -> str:
        """The size over the limit, and the limit, as a clause about the loadable; sizes in MiB."""
        pool, need, limit = self.pool.replace("_dram", " DRAM"), _mib(self.need), _mib(self.limit)
        if self.documented == self.need:
            return f"it needs {need} of {pool}, and the limit is {limit}"
        return (
            f"it needs {_mib(self.documented)} of {pool} by the documented size of its weights and "
            f"{need} by the size measured in a build, and the limit is {limit}"
        )


@document(frozen=True)
class RawMemory:
    """Bytes in a loadable: the peak of internal tensors, in the DLA's formats (``local_dram``), and
    weights with their padding (``global_dram``).

    Attributes:
        local_dram: Peak of the internal tensors, in bytes.
        global_dram: Bytes of weights with their padding.
    """

    local_dram: int = member(fields.count)
    global_dram: int = member(fields.count)


@document(frozen=True)
class LoadableMemory:
    """The predicted memory of one loadable; sizes in bytes.

    Attributes:
        name: The builder's name, ``{ForeignNode[FIRST...LAST]}``.
        first: Its first layer.
        last: Its last layer.
        layers: In graph order.
        need: The smallest legal pools.
        raw: The tensors and weights in them.
        limits: The largest size of each pool.
        broken: Limits that do not hold; empty if all do.
        disputed: Limits that hold by the documented size of the weights, but not by the size that
            builds were seen to take; they keep no layer off the DLA.
        number: Its index among a check's loadables, in a report about one layer; else None.
        retained: True if it becomes a loadable: the core has a slot, and no memory limit is broken.
    """

    name: str = member(long_text)
    first: str = member(long_text)
    last: str = member(long_text)
    layers: tuple[str, ...] = member(array(long_text))
    need: MemoryNeed = member(record(MemoryNeed))
    raw: RawMemory = member(record(RawMemory))
    limits: MemoryNeed = member(record(MemoryNeed))
    broken: tuple[BrokenLimit, ...] = member(records(BrokenLimit))
    disputed: tuple[BrokenLimit, ...] = member(records(BrokenLimit))
    number: int | None = member(nullable(fields.count), absent=None)
    retained: bool = True

    @property
    def refusal(self) -> str:
        """Why it stays on the GPU, as a warning; empty if it breaks no limit."""
        if not self.broken:
            return ""
        limit = self.broken[0]
        return (
            f"{self.name} stays on the GPU ({counted(len(self.layers), 'layer')}, predicted): "
            f"{limit.text} ({limit.rule}; {limit.source}): {limit.fix}"
        )


def report_memory(
    network: Network,
    judgement: Judgement,
    target: Target,
    limits: MemoryNeed | None = None,
) -> tuple[LoadableMemory, ...]:
    """Predicts the memory of every candidate, in graph order; linear in the network.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdict for ``target``.
        target: The board.
        limits: The pools that the build is given; :func:`pool_limits` when None.
    """
    allowed = pool_limits(target) if limits is None else limits
    precision = judgement.precisions or judgement.precision
    return tuple(
        _loadable_memory(network, group, target, precision, allowed)
        for group in judgement.candidates
    )


def drop_oversized(
    network: Network,
    groups: Sequence[LoadableCandidate],
    target: Target,
    precision: str | Mapping[str, str],
) -> tuple[LoadableCandidate, ...]:
    """Returns the candidates; those that break a memory limit are no longer retained.

    TensorRT offloads the candidates one by one. A candidate that needs more than a pool may hold
    falls back to the GPU, and its slot stays empty. A disputed limit changes no candidate.

    Args:
        network: The layer graph.
        groups: The candidates, of which those with a slot are retained.
        target: The board.
        precision: As for :func:`predict_need`.
    """
    limits = pool_limits(target)

    def check_limits(group: LoadableCandidate) -> LoadableCandidate:
        over = find_broken_limits(loadable_sizes(network, group.layers, target, precision), limits)
        broken = next((limit for limit in over if limit.certain), None)
        return replace(group, retained=False, dropped=broken.rule) if broken else group

    # a candidate without a slot keeps that reason
    return tuple(check_limits(group) if group.retained else group for group in groups)


def core_memory(loadables: Iterable[LoadableMemory]) -> MemoryNeed:
    """Returns the pools of the kept loadables on one core: DRAM adds up, managed SRAM is shared."""
    return combine_needs(loadable.need for loadable in loadables if loadable.retained)


def combine_needs(needs: Iterable[MemoryNeed]) -> MemoryNeed:
    """Returns the pools of loadables with these needs that share one core."""
    each = list(needs)
    how = memory_facts().totals
    total = {
        pool: sum(sizes) if getattr(how, pool) == "sum" else max(sizes, default=0)
        for pool in ("managed_sram", *_DRAM)
        for sizes in [[getattr(need, pool) for need in each]]
    }
    return MemoryNeed(**total)


def pool_disputes(target: Target) -> dict[str, str]:
    """Returns other sources' statements about the pools' defaults on this board, by pool."""
    pools = ("managed_sram", *_DRAM)
    disputes = {pool: default_disputes(pool).get(target.dla.generation) for pool in pools}
    return {pool: text for pool, text in disputes.items() if text}


def default_disputes(pool: str) -> dict[str, str]:
    """Returns other sources' statements about a pool's default, by DLA generation."""
    fact: PoolDefault = getattr(memory_facts(), pool)
    ours = join_titles(fact.source)
    return {
        generation: f"{row.text} ({join_titles(row.source)}; against: {ours})"
        for generation, row in fact.disputed.items()
    }


def _loadable_memory(
    network: Network,
    group: LoadableCandidate,
    target: Target,
    precision: str | Mapping[str, str],
    limits: MemoryNeed,
) -> LoadableMemory:
    sizes = loadable_sizes(network, group.layers, target, precision)
    broken, disputed = split_broken_limits(network, group.layers, target, precision, limits)
    place = _index_network(network).place
    first, last = (network.layers[place[group.layers[end]]] for end in (0, -1))
    return LoadableMemory(
        name=name_between(first, last),
        first=group.layers[0],
        last=group.layers[-1],
        layers=group.layers,
        retained=group.retained,
        need=sizes.need,
        raw=RawMemory(local_dram=sizes.tensors, global_dram=sizes.weights),
        limits=limits,
        broken=broken,
        disputed=disputed,
    )


def split_broken_limits(
    network: Network,
    layers: Sequence[str],
    target: Target,
    precision: str | Mapping[str, str],
    limits: MemoryNeed,
) -> tuple[tuple[BrokenLimit, ...], tuple[BrokenLimit, ...]]:
    """Returns the limits that layers break as one loadable, and those that are disputed.

    Args:
        network: The layer graph.
        layers: The names of the loadable's layers.
        target: The board.
        precision: As for :func:`predict_need`.
        limits: The largest size of each pool.
    """
    found: dict[bool, list[BrokenLimit]] = {True: [], False: []}
    for over in find_broken_limits(loadable_sizes(network, layers, target, precision), limits):
        fix = _suggest_fix(network, layers, target, precision, limits, over)
        found[over.certain].append(_describe_limit(over, fix))
    return tuple(found[True]), tuple(found[False])


class OverLimit(NamedTuple):
    """A size over a limit, in bytes; ``certain`` if the documented size is over the limit too.

    ``pool``, ``rule``, ``need``, ``documented`` and ``limit`` are those of :class:`BrokenLimit`.
    """

    pool: str
    rule: str
    need: int
    documented: int
    limit: int
    certain: bool


def find_broken_limits(sizes: Sizes, limits: MemoryNeed) -> tuple[OverLimit, ...]:
    """Returns the limits that a loadable of such sizes breaks, at most one per DRAM pool."""
    raw = {
        "local_dram": (sizes.tensors, sizes.tensors),
        "global_dram": (sizes.weights, sizes.documented_weights),
    }
    rules = {rule.pool: rule for rule in memory_facts().rules if rule.pool}
    found = []
    for pool in _DRAM:
        rule, most = rules[pool].id, rules[pool].bytes
        taken, documented = raw[pool]
        need, allowed = getattr(sizes.need, pool), getattr(limits, pool)
        least = getattr(sizes.documented_need, pool)
        over = [
            OverLimit(pool, rule, taken, documented, most, documented >= most),
            OverLimit(pool, "memory.pool", need, least, allowed, least > allowed),
        ]
        broken = [
            *([over[0]] if taken >= most else ()),
            *([over[1]] if need > allowed else ()),
        ]
        if broken:
            # a certain refusal by a smaller pool outweighs a disputed one
            found.append(next((limit for limit in broken if limit.certain), broken[0]))
    return tuple(found)


def _describe_limit(over: OverLimit, fix: str) -> BrokenLimit:
    source = join_titles(load_rules().rules[over.rule].source)
    facts = memory_facts()
    if over.pool == "local_dram" and over.rule == "memory.pool":
        source = f"{source}; {join_titles(facts.local_borders.source)}"
    elif not over.certain:
        source = f"{source}; against: {join_titles(facts.convolution_weight_bytes.source)}"
    return BrokenLimit(over.pool, over.rule, over.need, over.limit, over.documented, source, fix)


def _suggest_fix(
    network: Network,
    layers: Sequence[str],
    target: Target,
    precision: str | Mapping[str, str],
    limits: MemoryNeed,
    over: OverLimit,
) -> str:
    """Returns the ways to bring a loadable below a limit, without those that cannot help.

    More loadables do not help if a single layer is over the limit, INT8 does not if the need stays
    too large, and no pool can be larger than the board's memory.
    """

    def still_over(chosen: Sequence[str], width: str | Mapping[str, str]) -> OverLimit | None:
        found = find_broken_limits(loadable_sizes(network, chosen, target, width), limits)
        return next((limit for limit in found if limit.pool == over.pool), None)

    def no_better(limit: OverLimit | None) -> bool:
        return limit is not None and limit.certain >= over.certain

    # a layer that is over the limit by itself
    single = next((name for name in layers if no_better(still_over([name], precision))), None)
    in_int8 = any(_storage_type(name, precision) == "int8" for name in layers)
    batch = max(
        math.prod(network.tensors[name].shape[:-_CHW])
        for layer in _in_graph_order(network, layers)
        for name in (*layer.inputs[:1], *layer.outputs)
    )
    facts = Facts(kind=over.pool, single=single is not None, board=over.need < target.dram.bytes)
    option = (
        over.pool.replace("_dram", "DRAM").replace("local", "Local").replace("global", "Global")
    )
    words = {
        "int8": "" if in_int8 or no_better(still_over(layers, "int8")) else "use INT8, ",
        "smaller": "a smaller batch or input size" if batch > 1 else "a smaller input size",
        "layer": single or "",
        "pool": f"edgekit plan --pool {over.pool}={over.need >> 20}MiB, "
        f"trtexec --memPoolSize=dla{option}:{over.need >> 20}",
    }
    rule = load_rules().rules[over.rule]
    fix = next((way.fix for way in rule.ways if way.when(facts) is None), rule.fix)
    return fix.format_map(words)
