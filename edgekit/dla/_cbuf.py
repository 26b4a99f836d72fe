"""How many banks of the convolution buffer a convolution needs."""

from __future__ import annotations

from edgekit.dla._rules import memory_facts

__all__ = ["cbuf_banks"]


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
