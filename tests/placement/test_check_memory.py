"""What a check says of loadables over a memory limit, and of one that sources disagree on."""

from edgekit.dla.judge import judge
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.check import assess_memory, memory_warnings
from edgekit.targets.loader import get

ORIN = get("jetson-agx-orin-64gb")


def _convolution(maps: int) -> Network:
    """A 3x3 convolution of 8192 channels: 72 KiB of INT8 weights for each output map."""
    tensors = {
        "x": Tensor("x", (1, 8192, 2, 2), "float32"),
        "y": Tensor("y", (1, maps, 2, 2), "float32"),
    }
    params = {
        "kernel": (3, 3),
        "out_maps": maps,
        "groups": 1,
        "stride": (1, 1),
        "pads": (1, 1, 1, 1),
        "dilation": (1, 1),
    }
    layer = Layer("c", "CONVOLUTION", "Conv", ("c",), ("c",), ("x",), ("y",), params)
    return Network("n", (layer,), tensors, ("x",), ("y",))


def test_a_disputed_size_keeps_the_dla_and_is_reported_with_both_sources() -> None:
    for maps, disputed, refused in ((3584, 0, 0), (4096, 1, 0), (8192, 0, 1)):
        network = _convolution(maps)
        judgement = judge(network, ORIN, precision="int8", tensorrt="10.3")
        needs = assess_memory(network, judgement, ORIN)
        assert sum(len(one.disputed) for one in needs.held) == disputed
        assert len(needs.refused) == refused
        assert judgement.placed == {"c": "GPU" if refused else "DLA"}
        warnings = memory_warnings(needs)
        assert len(warnings) == disputed + refused
        if disputed:
            (sentence,) = warnings
            assert (
                "it needs 288 MiB of global DRAM by the documented size of its weights and "
                "576 MiB by the size measured in a build, and the limit is 512 MiB" in sentence
            )
            assert "NvInfer.h, comments about DLA; against: verbose TensorRT 10.3" in sentence
            assert "over more loadables" in sentence
        if refused:
            assert warnings[0].startswith("{ForeignNode[c]} stays on the GPU (1 layer, predicted)")
