"""Small networks and judgements to hold logs against."""

from __future__ import annotations

from pathlib import Path

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Network
from edgekit.targets.loader import get
from tests.dla.builder import Builder

ORIN = "jetson-agx-orin-64gb"


def classifier(path: Path, *, names: str = "new") -> Network:
    """Convolution, ReLU, global average, flatten, Gemm; the average stays on the GPU."""
    new = names == "new"
    b = Builder(x=(1, 8, 16, 16))
    y = b.conv("/stem/Conv" if new else "Conv_0", "x", 8, 16)
    y = b.add("Relu", "/stem/Relu" if new else "Relu_1", y)
    y = b.add("GlobalAveragePool", "/pool/GlobalAveragePool" if new else "pool_2", y)
    y = b.add("Flatten", "/flat/Flatten" if new else "flat_3", y)
    weights = (b.weight("head.weight", (10, 16)), b.weight("head.bias", (10,)))
    y = b.add("Gemm", "/head/Gemm" if new else "Gemm_4", y, *weights, transB=1)
    return b.network(path, y)


def ladder(path: Path, rungs: int) -> Network:
    """So many convolutions, each behind an average over everything but the channels."""
    b = Builder(x=(1, 8, 4, 4))
    y = "x"
    for rung in range(rungs):
        y = b.conv(f"c{rung}", y, 8, 8, 1)
        if rung == 2:
            y = b.add("Relu", "extra", y)
        y = b.add("ReduceMean", f"m{rung}", y, axes=[2, 3], keepdims=1)
    return b.network(path, y)


def judged(network: Network, **options: object) -> Judgement:
    return judge(network, get(ORIN), **options)  # type: ignore[arg-type]
