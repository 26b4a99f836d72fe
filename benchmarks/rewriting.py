"""How long rewriting takes in large networks: seconds of this machine's processor by network.

    python benchmarks/rewriting.py [--nodes 10000] [--only shuffle|channels-last|...]

Prints nodes, steps, wall-clock and processor seconds of one whole rewriting (search, proofs,
judging, the emitted model) for a Jetson AGX Orin in FP16; loading is not in them. They are no test
and depend on the machine's other work. Processor seconds seen on a server shared with other work
(two slow cores; wall-clock time has no meaning there):

    shuffle        10000 nodes,  4000 steps  6.8 s
    channels-last  10000 nodes, 10998 steps  7.9 to 8.8 s
    moves          10002 nodes, 13336 steps  4.2 s
    residual       10003 nodes,     0 steps  1.1 s
    gemms           2000 nodes,  2000 steps  1.9 s
    dense          10011 nodes,     0 steps  0.9 s
    fan-out        10001 nodes,  5001 steps  8.8 s
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit.placement.forecast import forecast
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get

_BOARD = get("jetson-agx-orin-64gb")


class Net:
    """An ONNX model while it grows: ``add`` appends a node to the last one.

    Attributes:
        last: Tensor written last.
    """

    def __init__(self, *shape: int) -> None:
        self.last = "x"
        self._shape = shape
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, op: str, *others: str, of: str | list[str] = "", **attributes: Any) -> str:
        """Appends a node that reads ``of`` (the last output without) and ``others``."""
        read = [of] if isinstance(of, str) else of
        inputs = [*(name or self.last for name in read), *others]
        self.last = f"t{len(self)}"
        self._nodes.append(
            helper.make_node(op, inputs, [self.last], f"{op}_{len(self)}", **attributes)
        )
        return self.last

    def weight(self, *shape: int) -> str:
        """Returns a new random weight."""
        name = f"w{len(self._constants)}"
        self._constants[name] = 0.1 * self._random.standard_normal(shape).astype(np.float32)
        return name

    def positive(self, *shape: int) -> str:
        """Returns a new random weight of positive numbers."""
        name = self.weight(*shape)
        self._constants[name] = np.abs(self._constants[name]) + np.float32(0.5)
        return name

    def ints(self, *values: int) -> str:
        """Returns a constant of whole numbers; equal ones are one."""
        name = "i" + "_".join(map(str, values))
        self._constants[name] = np.array(values, np.int64)
        return name

    def model(self) -> Model:
        """Returns it as a Model."""
        graph = helper.make_graph(
            self._nodes,
            "bench",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            [
                helper.make_tensor(
                    n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v.tobytes(), True
                )
                for n, v in self._constants.items()
            ],
        )
        opsets = [helper.make_opsetid("", 14)]
        return canonical(helper.make_model(graph, opset_imports=opsets), None)


def shuffle(nodes: int) -> Net:
    """Blocks with HardSwish, squeeze and excitation, and a channel shuffle."""
    net = Net(1, 8, 14, 14)
    while len(net) < nodes:
        net.add("Conv", net.weight(8, 8, 3, 3), net.weight(8), pads=[1, 1, 1, 1])
        wide = net.add("HardSwish")
        net.add("GlobalAveragePool")
        net.add("Conv", net.weight(8, 8, 1, 1))
        net.add("Relu")
        gate = net.add("HardSigmoid", alpha=1 / 6, beta=0.5)
        net.add("Mul", gate, of=wide)
        net.add("Reshape", net.ints(1, 2, 4, 14, 14))
        net.add("Transpose", perm=[0, 2, 1, 3, 4])
        net.add("Reshape", net.ints(1, 8, 14, 14))
    return net


def channels_last(nodes: int) -> Net:
    """An NHWC network as exporters write it: transpositions around every convolution."""
    net = Net(1, 14, 14, 8)
    while len(net) < nodes:
        start = net.last
        net.add("Transpose", perm=[0, 3, 1, 2])
        net.add("Conv", net.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
        net.add("Transpose", perm=[0, 2, 3, 1])
        net.add("Add", net.weight(8))
        net.add("Relu")
        net.add("Reshape", net.ints(1, 196, 8))
        net.add("Mul", net.weight(8))
        net.add("Sigmoid")
        net.add("Reshape", net.ints(1, 14, 14, 8))
        net.add("Add", start)
    return net


def moves(nodes: int) -> Net:
    """Transpositions and reshapes around element-wise operators only."""
    net = Net(1, 14, 14, 8)
    while len(net) < nodes:
        net.add("Transpose", perm=[0, 3, 1, 2])
        net.add("Relu")
        net.add("Reshape", net.ints(1, 8, 196))
        net.add("Sigmoid")
        net.add("Transpose", perm=[0, 2, 1])
        net.add("Reshape", net.ints(1, 14, 14, 8))
    return net


def residual(nodes: int) -> Net:
    """Convolutions, normalisations and sums that the DLA takes as they are."""
    net = Net(1, 8, 14, 14)
    while len(net) < nodes:
        start = net.last
        for _ in range(2):
            net.add("Conv", net.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
            net.add("BatchNormalization", *_statistics(net, 8))
            net.add("Relu")
        net.add("Add", start)
    return net


def gemms(nodes: int) -> Net:
    """Fully connected layers."""
    net = Net(1, 64)
    while len(net) < nodes:
        net.add("Gemm", net.weight(64, 64), net.weight(64), transB=1)
        net.add("Relu")
    return net


def dense(nodes: int) -> Net:
    """Blocks of sixteen layers, each of which reads all before it in its block."""
    net = Net(1, 8, 7, 7)
    net.add("Relu")
    while len(net) < nodes:
        parts = [net.last]
        for _ in range(16):
            if len(parts) > 1:
                net.add("Concat", of=list(parts), axis=1)
            depth = 8 * len(parts)
            net.add("BatchNormalization", *_statistics(net, depth))
            net.add("Relu")
            parts.append(net.add("Conv", net.weight(8, depth, 3, 3), pads=[1, 1, 1, 1]))
        net.add("Concat", of=parts, axis=1)
        net.add("Conv", net.weight(8, 8 * len(parts), 1, 1))
    return net


def fan_out(nodes: int) -> Net:
    """One tensor that every other node reads, and the sum of their outputs."""
    net = Net(1, 8, 7, 7)
    start = net.add("HardSwish")
    while len(net) < nodes:
        before = net.last
        net.add("HardSwish", of=start)
        net.add("Add", before)
    return net


def _statistics(net: Net, depth: int) -> list[str]:
    scale, shift, mean = (net.weight(depth) for _ in range(3))
    return [scale, shift, mean, net.positive(depth)]


NETS = {
    "shuffle": shuffle,
    "channels-last": channels_last,
    "moves": moves,
    "residual": residual,
    "gemms": gemms,
    "dense": dense,
    "fan-out": fan_out,
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="How long rewriting large networks takes.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--only", choices=tuple(NETS))
    given = parser.parse_args()
    for name, make in NETS.items():
        if given.only not in (None, name):
            continue
        model = make(2000 if name == "gemms" else given.nodes).model()
        count = len(model.proto.graph.node)
        wall, processor = time.perf_counter(), time.process_time()
        new, applied, notes, *_ = rewrite(
            model, _BOARD, precision="fp16", cost=lambda net, judged: forecast(net, judged, _BOARD)
        )
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(
            f"{name:14} {count:6} nodes, {len(applied):6} steps, {wall:7.2f} s, "
            f"processor {processor:7.2f} s, {len(new.proto.graph.node):6} nodes after",
            flush=True,
        )
        for note in notes[:2]:
            print("   ", note)
        kinds = Counter(item.rewrite for item in applied)
        print("   ", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(6)))


if __name__ == "__main__":
    main()
