"""How many banks of the convolution buffer a convolution needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.dla._rules import load_rules, memory_facts

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["CbufUse", "banks_of", "cbuf_banks", "cbuf_use"]

_CHW = 3


@dataclass(frozen=True, slots=True)
class CbufUse:
    """The banks of one convolution out of ``available``.

    ``near`` says that it is so close to the limit, or beyond it, that boards and the documented
    formula may disagree: a warning, whatever the verdict.
    """

    layer: str
    banks: int
    available: int
    near: bool
    source: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "layer": self.layer, "banks": self.banks, "available": self.available,
            "near": self.near, "source": self.source, "fix": self.fix,
        }  # fmt: skip


def cbuf_use(network: Network, precision: str | Mapping[str, str]) -> tuple[CbufUse, ...]:
    """Returns the banks of every two-dimensional convolution, in graph order.

    Args:
        network: The layer graph.
        precision: "int8" or "fp16", of all layers or by layer name.
    """
    facts = memory_facts()["cbuf"]
    rule = load_rules().rules["convolution.cbuf_unsure"]
    found = []
    for layer in network.layers:
        if layer.kind != "CONVOLUTION" or not layer.inputs:
            continue
        own = precision if isinstance(precision, str) else precision[layer.name]
        banks = banks_of(layer.params, network.tensors[layer.inputs[0]].shape, own)
        if banks is not None:
            near = banks >= facts["near"]
            source = "; ".join(rule.sources)
            found.append(CbufUse(layer.name, banks, facts["banks"], near, source, rule.fix))
    return tuple(found)


def banks_of(params: Mapping[str, Any], shape: Sequence[int], precision: str) -> int | None:
    """Returns the banks of a convolution by its parameters and its input's shape.

    None where it has no kernel of two sides or its input no C, H and W.
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
    """Returns the banks for one kernel and the input rows that it reads.

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
    facts = memory_facts()["cbuf"]
    size = 1 if precision == "int8" else 2
    height, kernel_width = kernel
    kernel_bytes = channels // max(groups, 1) * height * kernel_width * size
    padded = -(-kernel_bytes // facts["kernel_multiple"]) * facts["kernel_multiple"]
    weight_banks = -(-padded // facts["bank_bytes"])
    vectors = -(-channels * size // facts["vector_bytes"])
    entries = -(-vectors * width // facts["vectors_per_entry"])
    rows = (height - 1) * dilation_h + 1
    return int(weight_banks + -(-entries * rows // facts["entries_per_bank"]))
