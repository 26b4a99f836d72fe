"""Layers of two precisions in one build: pools, CBUF, sparsity, forecast and plan follow each."""

from collections.abc import Mapping

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.memory import cbuf_use, loadable_sizes, predict_need, report_memory
from edgekit.dla.sparsity import assess_sparsity
from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import place
from edgekit.targets.loader import get
from tests.dla.test_quantization import QUANTIZED

ORIN = get("jetson-agx-orin-64gb")


def convolutions(count: int = 4, channels: int = 64, side: int = 256) -> Network:
    """Convolutions c0, c1, ... from tensor t0 to t1 to t2 ..."""
    shape = (1, channels, side, side)
    params = {"kernel": (3, 3), "out_maps": channels, "groups": 1, "stride": (1, 1)}
    params |= {"pads": (1, 1, 1, 1), "dilation": (1, 1)}
    tensors = {f"t{i}": Tensor(f"t{i}", shape, "float32") for i in range(count + 1)}
    macs = channels * channels * 9 * side * side
    layers = tuple(
        Layer(
            f"c{i}",
            "CONVOLUTION",
            "Conv",
            (f"c{i}",),
            (f"c{i}",),
            (f"t{i}",),
            (f"t{i + 1}",),
            params,
            macs,
            channels * channels * 9,
        )
        for i in range(count)
    )
    return Network("n", layers, tensors, ("t0",), (f"t{count}",))


NET = convolutions()
EVERY = dict.fromkeys(NET.tensors, 0.1)


def internal_bytes(net: Network, precision: str | Mapping[str, str]) -> int:
    """What the tensors between all layers of the network take, as one loadable."""
    return loadable_sizes(net, [layer.name for layer in net.layers], ORIN, precision).tensors


def judged(scales: Mapping[str, float] | None, precision: str = "int8") -> Judgement:
    return judge(NET, ORIN, precision=precision, tensorrt="10.3", scales=scales)


def test_a_scale_for_the_input_alone_is_an_fp16_build() -> None:
    """No layer has all its scales, so every figure is that of --precision fp16."""
    lone, half = judged({"t0": 0.1}), judged(None, "fp16")
    assert report_memory(NET, lone, ORIN) == report_memory(NET, half, ORIN)
    found, wanted = assess_sparsity(NET, lone, ORIN), assess_sparsity(NET, half, ORIN)
    assert found == wanted
    assert {r.rule for one in found.convolutions for r in one.reasons} >= {"sparsity.precision"}
    assert forecast(NET, lone, ORIN) == forecast(NET, half, ORIN)
    mixed = place(NET, lone, ORIN, precision="int8")
    assert {layer.precision for layer in mixed.layers} == {"fp16"}
    assert mixed.predicted == place(NET, half, ORIN, precision="fp16").predicted


@pytest.mark.parametrize("count", range(6))
def test_a_mixed_loadable_lies_between_the_two(count: int) -> None:
    scales = dict.fromkeys(list(NET.tensors)[:count], 0.1)
    (mixed,) = report_memory(NET, judged(scales), ORIN)
    (low,) = report_memory(NET, judged(EVERY), ORIN)
    (high,) = report_memory(NET, judged(None, "fp16"), ORIN)
    assert low.raw.local_dram <= mixed.raw.local_dram <= high.raw.local_dram
    assert low.need.local_dram <= mixed.need.local_dram <= high.need.local_dram


def test_a_tensor_between_two_precisions_takes_the_larger_format() -> None:
    """32 KiB in CHW32 and 64 KiB in CHW16: 32 channels of 32x32."""
    net = convolutions(3, channels=32, side=32)
    inner = {"c0": "int8", "c1": "int8", "c2": "int8"}
    assert internal_bytes(net, inner) == 2 * 32 * 1024
    for one, wanted in (("c0", 3), ("c1", 4), ("c2", 3)):
        mixed = {**inner, one: "fp16"}
        assert internal_bytes(net, mixed) == wanted * 32 * 1024
    assert predict_need(net, ["c0", "c1", "c2"], ORIN, inner) == predict_need(
        net, ["c0", "c1", "c2"], ORIN
    )


def test_a_narrow_tensor_pads_to_the_larger_vector() -> None:
    """One channel is 32 bytes a pixel in either format; 17 are 32 in INT8 and 64 in FP16."""
    for channels, factor in ((1, 1), (17, 2)):
        net = convolutions(2, channels=channels, side=8)
        whole = internal_bytes(net, "int8")
        mixed = internal_bytes(net, {"c0": "int8", "c1": "fp16"})
        assert mixed == factor * whole


def test_cbuf_takes_the_precision_of_each_layer() -> None:
    net = convolutions(2, channels=1024, side=32)
    low, high = (cbuf_use(net, precision)[0].banks for precision in ("int8", "fp16"))
    assert low < high
    mixed = cbuf_use(net, {"c0": "fp16", "c1": "int8"})
    assert [use.banks for use in mixed] == [high, low]


def test_q_and_dq_make_int8_whatever_was_requested() -> None:
    both = [
        judge(QUANTIZED, ORIN, precision=precision, tensorrt="11.4.1")
        for precision in ("int8", "fp16")
    ]
    reports = [report_memory(QUANTIZED, found, ORIN) for found in both]
    assert reports[0] == reports[1]
    broken = [
        {
            one.layer: {r.rule for r in one.reasons}
            for one in assess_sparsity(QUANTIZED, j, ORIN).convolutions
        }
        for j in both
    ]
    assert broken[0] == broken[1]
    assert "sparsity.precision" not in broken[0]["conv"]
    assert "sparsity.precision" in broken[0]["late"]
    # the tensor between "d1" and "late" is read in FP16, the others are INT8
    (one,), _ = reports[0], reports[1]
    inner = dict.fromkeys(both[0].precisions, "int8")
    assert one.raw.local_dram > internal_bytes(QUANTIZED, inner)


def test_layers_left_in_fp16_are_judged_planned_and_counted_as_such() -> None:
    found = judge(NET, ORIN, precision="int8", tensorrt="10.3", fp16_layers={"c1"})
    assert dict(found.precisions) == {"c0": "int8", "c1": "fp16", "c2": "int8", "c3": "int8"}
    assert found.verdicts["c1"].precision == "fp16"
    placed = {x.name: x.precision for x in place(NET, found, ORIN, precision="int8").layers}
    assert placed == found.precisions
    (retained,), (low,) = report_memory(NET, found, ORIN), report_memory(NET, judged(EVERY), ORIN)
    assert retained.raw.local_dram > low.raw.local_dram
    # with scales for some tensors, what lacks them and what is kept are both FP16
    some = judge(
        NET,
        ORIN,
        precision="int8",
        tensorrt="10.3",
        scales={"t0": 0.1, "t1": 0.1, "t2": 0.1},
        fp16_layers={"c0"},
    )
    assert [some.precisions[x] for x in ("c0", "c1", "c2", "c3")] == [
        "fp16",
        "int8",
        "fp16",
        "fp16",
    ]
    typed = judge(QUANTIZED, ORIN, tensorrt="11.4.1", fp16_layers={"conv"})
    assert typed.precisions == judge(QUANTIZED, ORIN, tensorrt="11.4.1").precisions


def test_a_rule_of_fp16_alone_holds_for_a_layer_left_in_fp16() -> None:
    """Some widths fit the convolution buffer with INT8 weights and not with FP16 ones."""
    wide = {n: convolutions(2, channels=n, side=32) for n in (256, 512, 1024, 2048, 4096)}
    found = {
        n: (
            judge(net, ORIN, tensorrt="10.3"),
            judge(net, ORIN, tensorrt="10.3", fp16_layers={"c1"}),
        )
        for n, net in wide.items()
    }
    split = [
        (low, retained)
        for low, retained in found.values()
        if low.verdicts["c1"].ok and not retained.verdicts["c1"].ok
    ]
    assert split
    for _, retained in split:
        assert retained.verdicts["c0"].ok
        assert {reason.rule for reason in retained.verdicts["c1"].reasons} <= {
            "convolution.cbuf",
            "convolution.cbuf_limit",
        }
