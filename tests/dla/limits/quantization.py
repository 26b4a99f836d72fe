"""Q/DQ nodes: before TensorRT 11.4.1 they keep the whole network from the DLA, so not in others."""

from __future__ import annotations

import numpy as np

from tests.dla.limits.cases import ALWAYS, Case, since
from tests.dla.limits.sheet import Branch, Sheet

PLAIN = (1, 4, 2, 2)
STRONGLY_TYPED = since("11.4.1")


def _quantized(kind: str = "QuantizeLinear", axis: bool = False, whole: type = np.int8) -> Branch:
    """A QuantizeLinear and a DequantizeLinear; the one of ``kind`` is judged."""

    def draw(sheet: Sheet, name: str) -> None:
        made = sheet.input(*PLAIN)
        shape = (PLAIN[1],) if axis else ()
        for op_type in ("QuantizeLinear", "DequantizeLinear"):
            called = name if op_type == kind else f"{name}-{op_type}"
            scale = sheet.constant(np.full(shape, 0.5, np.float32))
            zero = sheet.constant(np.zeros(shape, whole))
            made = sheet.add(op_type, called, made, scale, zero, axis=1)

    return draw


CASES = [
    Case("general.quantized_axis", _quantized(), _quantized(axis=True), "each channel", "one scale",
         disputed=ALWAYS, tried=STRONGLY_TYPED),
    Case("general.quantized_axis", _quantized("DequantizeLinear"),
         _quantized("DequantizeLinear", axis=True), "each channel", "one scale",
         disputed=ALWAYS, tried=STRONGLY_TYPED),
    Case("general.quantized_type", _quantized(), _quantized(whole=np.uint8), "uint8",
         "symmetric INT8", tried=STRONGLY_TYPED, risk=True),
]  # fmt: skip
