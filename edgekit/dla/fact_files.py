"""Facts under ``dla/`` besides the layer rules: memory, tensor formats, structured sparsity."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from edgekit.dla.rule_files import Rule, RuleSource, sources, texts
from edgekit.knowledge import data_folder, read_document
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    integer,
    long_text,
    mapping,
    member,
    number,
    record,
    records,
)

_count = integer(1, 1 << 62)
_real = number(0, 1 << 62)
_TYPES = ("int8", "float16")
_HOW = choice("sum", "largest")


@document(frozen=True, eq=False)
class Fact:
    """A number and its sources, and its derivation if no source states it."""

    value: int = member(_count)
    source: tuple[RuleSource, ...] = member(sources)
    derived: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class Factor:
    """A factor, as :class:`Fact`."""

    value: float = member(_real)
    source: tuple[RuleSource, ...] = member(sources)
    derived: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class ByPrecision:
    """A number of bytes or channels for each precision of a DLA."""

    int8: int = member(fields.count)
    fp16: int = member(fields.count)
    source: tuple[RuleSource, ...] = member(sources, absent=())
    derived: str = member(long_text, absent="")

    def of(self, precision: str) -> int:
        """Returns the number for "int8" or "fp16"."""
        return self.int8 if precision == "int8" else self.fp16


@document(frozen=True, eq=False, kw_only=True)
class ExtraBytes(ByPrecision):
    """Bytes beyond the tensors, at most ``of_tensors`` times these."""

    of_tensors: float = member(_real)


@document(frozen=True, eq=False)
class FactorByPrecision:
    """A factor for each precision of a DLA."""

    int8: float = member(_real)
    fp16: float = member(_real)
    source: tuple[RuleSource, ...] = member(sources)
    derived: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class DisputedDefault:
    """Other sources' value of a pool's default, in bytes and in words."""

    value: int = member(_count)
    text: str = member(long_text)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class PoolDefault:
    """A pool of a loadable, in bytes.

    Attributes:
        default: A build's default size.
        source: The source of the default.
        floor: The smallest size seen in a build; None if that is the default.
        disputed: Other sources' values of the default, by DLA generation.
    """

    default: int = member(_count)
    source: tuple[RuleSource, ...] = member(sources)
    floor: int | None = member(_count, absent=None)
    disputed: Mapping[str, DisputedDefault] = member(mapping(record(DisputedDefault)), absent=dict)


@document(frozen=True, eq=False, kw_only=True)
class WeightBytes(Fact):
    """Bytes of a convolution's weight: as seen in builds, and as documented."""

    documented: ByPrecision = member(record(ByPrecision))


@document(frozen=True, eq=False)
class OtherWeightBytes:
    """Bytes of any other weight, by DLA generation."""

    xavier: int = member(_count, key="1.0")
    orin: int = member(_count, key="2.0")
    source: tuple[RuleSource, ...] = member(sources)

    def of(self, generation: str) -> int:
        """Returns the bytes on a DLA generation, "1.0" or "2.0"."""
        return {"1.0": self.xavier, "2.0": self.orin}[generation]


@document(frozen=True, eq=False)
class Cbuf:
    """The convolution buffer: banks, their entries, and the sizes that data are rounded up to.

    ``near``: number of banks from which the formula and boards may disagree.
    """

    banks: int = member(_count)
    bank_bytes: int = member(_count)
    kernel_multiple: int = member(_count)
    vector_bytes: int = member(_count)
    vectors_per_entry: int = member(_count)
    entries_per_bank: int = member(_count)
    near: int = member(_count)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False, kw_only=True)
class Slots(Fact):
    """Loadables that a core holds; ``before`` has other numbers for older TensorRT releases."""

    before: Mapping[str, int] = member(mapping(_count))


@document(frozen=True, eq=False)
class PoolTotals:
    """The use of each pool by a core's loadables: their "sum", or the "largest"."""

    managed_sram: str = member(_HOW)
    local_dram: str = member(_HOW)
    global_dram: str = member(_HOW)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class MemoryFacts:
    """``dla/memory.yaml``: pools, floors, paddings, the convolution buffer. Sizes are bytes.

    Attributes:
        smallest: The smallest pool.
        managed_sram: On-chip memory.
        local_dram: Pool for tensors.
        global_dram: Pool for weights.
        local_extra: Extra bytes of a precision besides the tensors inside a loadable.
        local_factor: Factor of these tensors over their sizes.
        local_borders: Bytes of the tensors that enter and leave a loadable.
        local_rows: Bytes for each row of a matrix product of several rows.
        convolution_weight_bytes: Bytes of a convolution's weight.
        other_weight_bytes: Bytes of a bias, scale or slope.
        map_multiple: Number of output maps is rounded up to a multiple of this.
        channel_multiple: Number of channels is rounded up to a multiple of this.
        cbuf: The convolution buffer.
        loadables_per_core: Number of loadables that a core holds.
        totals: How loadables add up.
        rules: Limits that a loadable can break.
    """

    schema: str = member(choice("edgekit.dla-memory/1"))
    smallest: int = member(_count)
    managed_sram: PoolDefault = member(record(PoolDefault))
    local_dram: PoolDefault = member(record(PoolDefault))
    global_dram: PoolDefault = member(record(PoolDefault))
    local_extra: ExtraBytes = member(record(ExtraBytes))
    local_factor: FactorByPrecision = member(record(FactorByPrecision))
    local_borders: Factor = member(record(Factor))
    local_rows: Fact = member(record(Fact))
    convolution_weight_bytes: WeightBytes = member(record(WeightBytes))
    other_weight_bytes: OtherWeightBytes = member(record(OtherWeightBytes))
    map_multiple: Fact = member(record(Fact))
    channel_multiple: ByPrecision = member(record(ByPrecision))
    cbuf: Cbuf = member(record(Cbuf))
    loadables_per_core: Slots = member(record(Slots))
    totals: PoolTotals = member(record(PoolTotals))
    rules: tuple[Rule, ...] = member(records(Rule))


@lru_cache(maxsize=1)
def memory_facts() -> MemoryFacts:
    """Returns ``dla/memory.yaml``."""
    return read_document(MemoryFacts, data_folder("dla") / "memory.yaml")


@document(frozen=True, eq=False)
class FormatFacts:
    """A format of a tensor (N, C, H, W) at a loadable's input or output.

    Attributes:
        layout: "linear" [N][C][H][W], "hwc" [N][H][W][C] or "vector" [N][C/v][H][W][v].
        roles: Possible roles: "input", "output"; empty for a format of the GPU alone.
        source: The source of the format.
        types: NumPy types that it holds; None for all.
        line_bytes: A line of W is padded to a multiple of these bytes, by DLA generation.
        held: Possible numbers of channels, with the number stored in memory; empty for any.
        vector: Number of adjacent channels.
        gpu: Types in which the GPU's engines support it too.
        readers: Kinds of layers that can read it; empty for all.
        most_groups: Largest number of groups of a convolution that reads it; None for no limit.
        readers_type: "same" if its type must be that of its readers.
    """

    layout: str = member(choice("linear", "hwc", "vector"))
    roles: tuple[str, ...] = member(array(choice("input", "output")))
    source: tuple[RuleSource, ...] = member(sources)
    types: tuple[str, ...] | None = member(array(choice(*_TYPES)), absent=None)
    line_bytes: Mapping[str, int] = member(mapping(_count), absent=dict)
    held: Mapping[str, int] = member(mapping(_count), absent=dict)
    vector: int = member(_count, absent=0)
    gpu: tuple[str, ...] = member(array(choice(*_TYPES)), absent=())
    readers: tuple[str, ...] = member(texts, absent=())
    most_groups: int | None = member(_count, absent=None)
    readers_type: str = member(choice("same"), absent="")


@document(frozen=True, eq=False)
class PluginFormats:
    """The formats of a plugin's tensors, in trtexec's words ("chw32"), by type ("int8")."""

    taken: Mapping[str, tuple[str, ...]] = member(mapping(texts))
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class FormatsFile:
    """``dla/formats.yaml``: the tensor formats by TensorRT's names, and the rules about them."""

    schema: str = member(choice("edgekit.dla-formats/1"))
    formats: Mapping[str, FormatFacts] = member(mapping(record(FormatFacts)))
    plugins: PluginFormats = member(record(PluginFormats))
    rules: tuple[Rule, ...] = member(records(Rule))


@lru_cache(maxsize=1)
def format_facts() -> FormatsFile:
    """Returns ``dla/formats.yaml``."""
    return read_document(FormatsFile, data_folder("dla") / "formats.yaml")


@document(frozen=True, eq=False)
class SparsePattern:
    """At least ``zeros`` of every ``of`` adjacent weights are zero."""

    zeros: int = member(_count)
    of: int = member(_count)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class SparseSaving:
    """Savings of a convolution limited by arithmetic: shares of its products and weights."""

    macs: float = member(fields.share)
    weights: float = member(fields.share)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class MeasuredGain:
    """Measured speed-ups of whole networks, the smallest and the largest."""

    least: float = member(_real)
    most: float = member(_real)
    source: tuple[RuleSource, ...] = member(sources)


@document(frozen=True, eq=False)
class SparsityFacts:
    """``dla/sparsity.yaml``: the pattern, its conditions, and its gain.

    ``kinds`` are the kinds of layers that can have it.
    """

    schema: str = member(choice("edgekit.dla-sparsity/1"))
    kinds: tuple[str, ...] = member(texts)
    pattern: SparsePattern = member(record(SparsePattern))
    saved: SparseSaving = member(record(SparseSaving))
    measured: MeasuredGain = member(record(MeasuredGain))
    rules: tuple[Rule, ...] = member(records(Rule))
    notes: tuple[Rule, ...] = member(records(Rule))


@lru_cache(maxsize=1)
def sparsity_facts() -> SparsityFacts:
    """Returns ``dla/sparsity.yaml``."""
    return read_document(SparsityFacts, data_folder("dla") / "sparsity.yaml")
