"""The convolution buffer: the documented formula, and both sides of its limit."""

import pytest

from edgekit.dla.memory import cbuf_banks, cbuf_use
from edgekit.network.model import Layer, Network, Tensor
from tests.dla.one_layer import convolution, rules_of, verdict


def test_the_convolution_of_trt_3499() -> None:
    """512 -> 256, 3x3 on 512x80x160: 9 banks in INT8, 16 in FP16, refused by 8.5.2 for both."""
    assert cbuf_banks(512, (3, 3), 1, 160, "int8") == 9
    assert cbuf_banks(512, (3, 3), 1, 160, "fp16") == 16
    layer = convolution((3, 3), channels=512, size=(80, 160), maps=256)
    for precision in ("int8", "fp16"):
        for release, ok, rule in (("8.5.2", False, "cbuf_limit"), ("10.3", True, "cbuf_unsure")):
            full = verdict("CONVOLUTION", precision=precision, tensorrt=release, **layer)
            assert (full.ok, full.certainty) == (ok, "disputed")
            assert rules_of(full) == {f"convolution.{rule}"}
    half = convolution((3, 3), channels=512, size=(80, 80), maps=256)
    assert verdict("CONVOLUTION", precision="int8", **half).certainty == "certain"


def test_one_bank_more_is_refused() -> None:
    wider = convolution((3, 3), channels=512, size=(80, 176), maps=256)
    found = verdict("CONVOLUTION", precision="fp16", **wider)
    assert (found.ok, found.certainty) == (False, "certain")
    assert rules_of(found) == {"convolution.cbuf"}
    assert verdict("CONVOLUTION", precision="int8", **wider).ok


@pytest.mark.parametrize(
    ("channels", "kernel", "dilation", "width", "precision", "banks"),
    [
        (3, (7, 7), 1, 224, "int8", 1 + 2),
        (64, (1, 1), 1, 56, "int8", 1 + 1),
        (2048, (1, 1), 1, 7, "fp16", 1 + 1),
        (512, (3, 3), 1, 28, "fp16", 1 + 3),
        (256, (3, 3), 4, 60, "int8", 1 + 5),
        (8192, (3, 3), 1, 8, "int8", 3 + 6),
    ],
)
def test_formula(
    channels: int, kernel: tuple[int, int], dilation: int, width: int, precision: str, banks: int
) -> None:
    assert cbuf_banks(channels, kernel, dilation, width, precision) == banks


@pytest.mark.parametrize(
    ("width", "precision", "banks", "near"),
    [
        (416, "fp16", 14, False),
        (448, "fp16", 15, True),
        (480, "fp16", 16, True),
        (481, "fp16", 17, True),
        (480, "int8", 9, False),
    ],
)
def test_near_the_limit_is_a_warning_whatever_the_verdict(
    width: int, precision: str, banks: int, near: bool
) -> None:
    """One row of 512 channels: W pixels of 32 (FP16) or 16 (INT8) vectors, and the kernel."""
    shapes = {"in": (1, 512, 1, width), "out": (1, 8, 1, width)}
    tensors = {name: Tensor(name, shape, "float32") for name, shape in shapes.items()}
    params = {"kernel": (1, 1), "out_maps": 8, "dilation": (1, 1), "groups": 1}
    conv = Layer("c", "CONVOLUTION", "Conv", ("c",), ("c",), ("in",), ("out",), params)
    relu = Layer("r", "ACTIVATION", "Relu", ("r",), ("r",), ("in",), ("out",))
    net = Network("n", (conv, relu), tensors, ("in",), ("out",))
    (use,) = cbuf_use(net, precision)
    assert (use.layer, use.banks, use.available, use.near) == ("c", banks, 16, near)
    assert "3499" in use.source
