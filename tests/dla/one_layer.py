"""A network of one hand-made layer, for testing single rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import LayerVerdict
from edgekit.network.model import Layer, Network, Tensor
from edgekit.targets.loader import get

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
DRIVE = "drive-orin"


def network_of(
    kind: str,
    inputs: Sequence[Sequence[int]] = ((1, 64, 16, 16),),
    output: Sequence[int] = (1, 64, 16, 16),
    *,
    op: str = "",
    dtype: str = "float32",
    **params: Any,
) -> Network:
    """One layer that reads ``inputs`` and writes ``output``."""
    tensors = {f"in{i}": Tensor(f"in{i}", tuple(s), dtype) for i, s in enumerate(inputs)}
    tensors["out"] = Tensor("out", tuple(output), dtype)
    names = tuple(tensors)[:-1]
    layer = Layer("x", kind, op, ("x",), ("x",), names, ("out",), params)
    return Network("net", (layer,), tensors, names, ("out",))


def verdict(
    kind: str,
    *,
    board: str = ORIN,
    precision: str = "int8",
    tensorrt: str | None = None,
    **more: Any,
) -> LayerVerdict:
    """The verdict on a network of one layer."""
    net = network_of(kind, **more)
    return judge(net, get(board), precision=precision, tensorrt=tensorrt).verdicts["x"]


def rules_of(found: LayerVerdict) -> set[str]:
    """The ids of the rules in a verdict's reasons."""
    return {reason.rule for reason in found.reasons}


def convolution(
    kernel: Sequence[int] = (3, 3),
    *,
    channels: int = 64,
    size: Sequence[int] = (16, 16),
    maps: int = 64,
    **more: Any,
) -> dict[str, Any]:
    """Parameters of a convolution within all limits, but for what is given."""
    rank = len(kernel)
    window = {"stride": (1,) * rank, "pads": (0,) * 2 * rank, "dilation": (1,) * rank, "groups": 1}
    return {
        "inputs": [(1, channels, *size)],
        "output": (1, maps, *size),
        "kernel": tuple(kernel),
        "out_maps": maps,
        **window,
        **more,
    }
