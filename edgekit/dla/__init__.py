"""The dla floor: verdicts from the rules under ``dla/``, loadables, memory, formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.dla._candidates import SLOTS, candidates, loadable_batch
    from edgekit.dla._cbuf import CbufUse, cbuf_banks, cbuf_use
    from edgekit.dla._channels import LEVELS, channel_axis, channel_blocks, weight_scales
    from edgekit.dla._docs import docs_page
    from edgekit.dla._explain import explain
    from edgekit.dla._explicit import drives_dla, reads_qdq
    from edgekit.dla._formats import FORMATS, element_strides, legal, nbytes, stored_shape, strides
    from edgekit.dla._formats_shared import shared_with_gpu, vector_format
    from edgekit.dla._int8 import Int8Operators, int8_operators
    from edgekit.dla._json import check_document, macs_fraction
    from edgekit.dla._judge import judge
    from edgekit.dla._limits import exceptions, limit
    from edgekit.dla._lowering import Lowering, lowering
    from edgekit.dla._memory import internal_bytes, memory, pool_limits, weight_bytes
    from edgekit.dla._memory_report import (
        BrokenLimit,
        LoadableMemory,
        core_memory,
        loadable_memory,
        memory_report,
        pool_disputes,
        within_memory,
    )
    from edgekit.dla._pack import pack, unpack
    from edgekit.dla._precision import Join, by_quantization, float_tail, uneven_joins
    from edgekit.dla._rule import GENERATIONS, Operator, Rule
    from edgekit.dla._rules import load_rules, loadables_per_core, memory_facts
    from edgekit.dla._slots import without_slot
    from edgekit.dla._sparsity import SparseConvolution, SparsityReport, sparsity
    from edgekit.dla._ties import ScaleTie, scale_tie, scale_ties
    from edgekit.dla._types import Judgement, LoadableCandidate, MemoryNeed, Reason, Verdict
    from edgekit.dla._versions import Version, parse_version
    from edgekit.dla._warnings import release_warnings

__all__ = [
    "FORMATS",
    "GENERATIONS",
    "LEVELS",
    "SLOTS",
    "BrokenLimit",
    "CbufUse",
    "Int8Operators",
    "Join",
    "Judgement",
    "LoadableCandidate",
    "LoadableMemory",
    "Lowering",
    "MemoryNeed",
    "Operator",
    "Reason",
    "Rule",
    "ScaleTie",
    "SparseConvolution",
    "SparsityReport",
    "Verdict",
    "Version",
    "by_quantization",
    "candidates",
    "cbuf_banks",
    "cbuf_use",
    "channel_axis",
    "channel_blocks",
    "check_document",
    "core_memory",
    "docs_page",
    "drives_dla",
    "element_strides",
    "exceptions",
    "explain",
    "float_tail",
    "int8_operators",
    "internal_bytes",
    "judge",
    "legal",
    "limit",
    "load_rules",
    "loadable_batch",
    "loadable_memory",
    "loadables_per_core",
    "lowering",
    "macs_fraction",
    "memory",
    "memory_facts",
    "memory_report",
    "nbytes",
    "pack",
    "parse_version",
    "pool_disputes",
    "pool_limits",
    "reads_qdq",
    "release_warnings",
    "scale_tie",
    "scale_ties",
    "shared_with_gpu",
    "sparsity",
    "stored_shape",
    "strides",
    "uneven_joins",
    "unpack",
    "vector_format",
    "weight_bytes",
    "weight_scales",
    "within_memory",
    "without_slot",
]

__getattr__ = lazy(
    __name__,
    {
        "_candidates": "SLOTS candidates loadable_batch",
        "_cbuf": "CbufUse cbuf_banks cbuf_use",
        "_channels": "LEVELS channel_axis channel_blocks weight_scales",
        "_docs": "docs_page",
        "_explain": "explain",
        "_explicit": "drives_dla reads_qdq",
        "_formats": "FORMATS element_strides legal nbytes stored_shape strides",
        "_formats_shared": "shared_with_gpu vector_format",
        "_int8": "Int8Operators int8_operators",
        "_json": "check_document macs_fraction",
        "_judge": "judge",
        "_lowering": "Lowering lowering",
        "_limits": "exceptions limit",
        "_memory": "internal_bytes memory pool_limits weight_bytes",
        "_memory_report": (
            "BrokenLimit LoadableMemory core_memory loadable_memory memory_report pool_disputes "
            "within_memory"
        ),
        "_pack": "pack unpack",
        "_rule": "GENERATIONS Operator Rule",
        "_precision": "Join by_quantization float_tail uneven_joins",
        "_rules": "load_rules loadables_per_core memory_facts",
        "_slots": "without_slot",
        "_sparsity": "SparseConvolution SparsityReport sparsity",
        "_ties": "ScaleTie scale_tie scale_ties",
        "_versions": "Version parse_version",
        "_warnings": "release_warnings",
        "_types": "Judgement LoadableCandidate MemoryNeed Reason Verdict",
    },
)
