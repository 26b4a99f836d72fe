"""Small graphs as people have them, one for each form that the rewriting list names.

Each entry says what should be left off the DLA of AGX Orin with FP16 once it is rewritten: the
operators of the nodes behind the layers on the GPU, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from edgekit.network.model import Model
from tests.rewriting.nets import net, node, weight

BOOL = TensorProto.BOOL


@dataclass(frozen=True)
class Entry:
    """A graph of the zoo: how to make it, and what stays on the GPU afterwards.

    ``int8`` and ``xavier``: the same for INT8, and for AGX Xavier in FP16; None if not tested.
    """

    make: Callable[[], Model]
    left: tuple[str, ...]
    int8: tuple[str, ...] | None = None
    xavier: tuple[str, ...] | None = None


ZOO: dict[str, Entry] = {}


def entry(*left, **others):
    def add(make):
        ZOO[make.__name__.replace("_", "-")] = Entry(make, left, **others)
        return make

    return add


def between(*nodes, shape=(1, 8, 16, 16), weights=None, out="h", maps=8, opset=13, **options):
    """``nodes`` (from "c" to ``out``) between two convolutions, so that a break shows."""
    all_weights = {
        "w0": weight(maps, shape[1], 3, 3),
        "w1": weight(4, options.pop("out_maps", maps), 1, 1),
        **(weights or {}),
    }
    return net(
        [
            node("Conv", "x w0", "c", "first", pads=[1, 1, 1, 1]),
            *nodes,
            node("Conv", f"{out} w1", "y", "last"),
        ],
        {"x": shape, **options.pop("inputs", {})},
        ["y"],
        all_weights,
        opset,
    )


@entry()
def global_average_pool_7():
    return between(node("GlobalAveragePool", "c", "h"), shape=(1, 8, 7, 7))


@entry()
def global_average_pool_13():
    return between(node("GlobalAveragePool", "c", "h"), shape=(1, 8, 13, 13))


@entry()
def global_average_pool_56():
    return between(node("GlobalAveragePool", "c", "h"), shape=(1, 8, 56, 56))


@entry()
def reduce_mean_over_the_image():
    return between(node("ReduceMean", "c", "h", axes=[2, 3], keepdims=1))


@entry()
def reduce_mean_opset_18():
    return between(node("ReduceMean", "c axes", "h"), weights={"axes": [2, 3]}, opset=18)


@entry()
def reduce_mean_over_channels():
    return between(node("ReduceMean", "c", "h", axes=[1], keepdims=1), out_maps=1)


@entry()
def reduce_sum_over_the_image():
    return between(node("ReduceSum", "c axes", "h"), weights={"axes": [2, 3]}, shape=(1, 8, 7, 7))


@entry("Sqrt", "Div", int8=("Sqrt",))
def normalized_features():
    # as SSD's conv4_3 and PyTorch's F.normalize have it
    return between(node("ReduceL2", "c", "n", axes=[1], keepdims=1), node("Div", "c n", "h"))


@entry(*["LpNormalization"] * 5, int8=("Sqrt",))
def normalized_by_the_operator():
    # in FP16 the comparison with 0 is one more change of device, which takes longer
    return between(node("LpNormalization", "c", "h", axis=1))


@entry()
def large_max_pool():
    return between(node("MaxPool", "c", "h", kernel_shape=[13, 13], pads=[6, 6, 6, 6]))


@entry("Gemm")
def classifier_of_torchvision():
    return net(
        [
            node("Conv", "x w0", "c", pads=[1, 1, 1, 1]),
            node("GlobalAveragePool", "c", "p"),
            node("Flatten", "p", "f", axis=1),
            node("Gemm", "f m b", "y", "fc", transB=1),
        ],
        {"x": (1, 8, 7, 7)},
        ["y"],
        {"w0": weight(16, 8, 3, 3), "m": weight(10, 16), "b": weight(10)},
    )


@entry("Reshape")
def classifier_of_vgg():
    return net(
        [
            node("Conv", "x w0", "c", pads=[1, 1, 1, 1]),
            node("Flatten", "c", "f"),
            node("Gemm", "f m1 b1", "g1", "fc6", transB=1),
            node("Relu", "g1", "r1"),
            node("Gemm", "r1 m2 b2", "g2", "fc7", transB=1),
            node("Relu", "g2", "r2"),
            node("Gemm", "r2 m3 b3", "g3", "fc8", transB=1),
            node("Softmax", "g3", "y", axis=1),
        ],
        {"x": (1, 8, 7, 7)},
        ["y"],
        {
            "w0": weight(8, 8, 3, 3),
            "m1": weight(32, 392),
            "b1": weight(32),
            "m2": weight(32, 32),
            "b2": weight(32),
            "m3": weight(10, 32),
            "b3": weight(10),
        },
    )


@entry("Reshape")
def matmul_and_add():
    return net(
        [
            node("Conv", "x w0", "c"),
            node("Squeeze", "c axes", "s"),
            node("MatMul", "s m", "g"),
            node("Add", "g b", "a"),
            node("Tanh", "a", "y"),
        ],
        {"x": (1, 8, 3, 3)},
        ["y"],
        {"w0": weight(8, 8, 3, 3), "axes": [2, 3], "m": weight(8, 10), "b": weight(10)},
    )


def shuffle(groups, channels, side):
    part = channels // groups
    return [
        node("Reshape", "c s1", "a"),
        node("Transpose", "a", "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "t s2", "h"),
    ], {"s1": [1, groups, part, side, side], "s2": [1, channels, side, side]}


@entry()
def channel_shuffle():
    nodes, shapes = shuffle(2, 8, 16)
    return between(*nodes, weights=shapes)


@entry()
def channel_shuffle_of_a_sum():
    nodes, shapes = shuffle(4, 8, 16)
    nodes[0].input[0] = "q"
    return between(node("Add", "c x", "q"), *nodes, weights=shapes)


@entry()
def shufflenet_v1_unit():
    nodes, shapes = shuffle(4, 16, 16)
    nodes[0].input[0], nodes[-1].output[0] = "r", "s"
    sizes = ((1, 16), (2, 16), (3, 64))
    norms = {f"{k}{i}": np.abs(weight(n, seed=i)) + 0.5 for i, n in sizes for k in "gbmv"}
    return between(
        node("Conv", "c k1", "d1", group=4),
        node("BatchNormalization", "d1 g1 b1 m1 v1", "n1"),
        node("Relu", "n1", "r"),
        *nodes,
        node("Conv", "s k2", "d2", group=16, pads=[1, 1, 1, 1]),
        node("BatchNormalization", "d2 g2 b2 m2 v2", "n2"),
        node("Conv", "n2 k3", "d3", group=4),
        node("BatchNormalization", "d3 g3 b3 m3 v3", "n3"),
        node("Add", "n3 c", "e"),
        node("Relu", "e", "h"),
        maps=64,
        out_maps=64,
        weights={
            **shapes,
            **norms,
            "k1": weight(16, 16, 1, 1),
            "k2": weight(16, 1, 3, 3),
            "k3": weight(64, 4, 1, 1),
        },
    )


@entry()
def space_to_depth():
    return between(node("SpaceToDepth", "c", "h", blocksize=2), out_maps=32)


@entry()
def depth_to_space():
    return between(node("DepthToSpace", "c", "h", blocksize=2), out_maps=2)


@entry()
def pixel_shuffle():
    return between(node("DepthToSpace", "c", "h", blocksize=2, mode="CRD"), out_maps=2)


@entry()
def focus():
    cuts, parts, constants = [], [], {"axes": [2, 3], "ends": [999, 999], "steps": [2, 2]}
    for i, start in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        constants[f"start{i}"] = list(start)
        cuts.append(node("Slice", f"c start{i} ends axes steps", f"s{i}"))
        parts.append(f"s{i}")
    return between(*cuts, node("Concat", parts, ["h"], axis=1), weights=constants, out_maps=32)


@entry()
def hard_swish():
    return between(node("HardSwish", "c", "h"), opset=14)


@entry()
def hard_swish_of_an_exporter():
    return between(
        node("Add", "c three", "a"),
        helper.make_node("Clip", ["a", "zero", "six"], ["k"], "clip"),
        node("Mul", "c k", "m"),
        node("Div", "m six", "h"),
        weights={"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)},
    )


@entry()
def hard_sigmoid():
    return between(node("HardSigmoid", "c", "h", alpha=1 / 6, beta=0.5))


@entry()
def silu():
    return between(node("Sigmoid", "c", "s"), node("Mul", "c s", "h"))


@entry()
def gelu_sigmoid():
    return between(
        node("Mul", "c k", "a"),
        node("Sigmoid", "a", "s"),
        node("Mul", "c s", "h"),
        weights={"k": np.float32(1.702)},
    )


@entry()
def clip_below_zero():
    return between(
        node("Clip", "c lo hi", "h"), weights={"lo": np.float32(-1), "hi": np.float32(1)}
    )


@entry()
def clip_to_a_half():
    bounds = {"lo": np.float32(0), "hi": np.float32(0.5)}
    return between(node("Clip", "c lo hi", "h"), weights=bounds)


@entry()
def one_minus():
    return between(node("Sub", "one c", "h"), weights={"one": np.float32(1)})


@entry()
def divided_by_a_constant():
    return between(node("Div", "c k", "h"), weights={"k": weight(1, 8, 1, 1) + 3})


@entry()
def frozen_batch_norm():
    constants = {name: weight(1, 8, 1, 1, seed=i) + 2 for i, name in enumerate("mvsb")}
    return between(
        node("Sub", "c m", "p"),
        node("Div", "p v", "q"),
        node("Mul", "q s", "r"),
        node("Add", "r b", "h"),
        weights=constants,
    )


@entry()
def negated():
    return between(node("Neg", "c", "h"))


@entry()
def padded_convolution():
    return between(node("Pad", "c pads", "h"), weights={"pads": [0, 0, 1, 1, 0, 0, 1, 1]})


@entry()
def large_stride():
    return between(
        node("Conv", "c k", "h", strides=[10, 10]),
        shape=(1, 8, 40, 40),
        weights={"k": weight(8, 8, 3, 3)},
    )


@entry()
def large_kernel():
    return between(
        node("Conv", "c k", "h", pads=[20, 0, 20, 0]),
        shape=(1, 8, 48, 48),
        weights={"k": weight(8, 8, 41, 1)},
    )


@entry()
def padded_deconvolution():
    return between(
        node("ConvTranspose", "c k", "h", strides=[2, 2], pads=[1, 1, 1, 1]),
        weights={"k": weight(8, 8, 4, 4)},
    )


@entry()
def grouped_deconvolution():
    return between(
        node("ConvTranspose", "c k", "h", strides=[2, 2], group=8),
        weights={"k": weight(8, 1, 2, 2)},
    )


@entry()
def resize_to_sizes():
    return between(
        helper.make_node(
            "Resize",
            ["c", "", "", "sizes"],
            ["h"],
            "resize",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        weights={"sizes": [1, 8, 32, 32]},
    )


@entry()
def resize_nearest_as_torch_writes_it():
    return between(
        helper.make_node(
            "Resize",
            ["c", "", "s"],
            ["h"],
            "resize",
            mode="nearest",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
        ),
        weights={"s": np.float32([1, 1, 2, 2])},
    )


@entry()
def split_in_two():
    return between(
        node("Split", "c parts", "a b", axis=1),
        node("Add", "a b", "h"),
        weights={"parts": [4, 4]},
        out_maps=4,
    )


@entry()
def gather_channels():
    return between(node("Gather", "c i", "h", axis=1), weights={"i": [7, 0, 3, 3, 5]}, out_maps=5)


@entry()
def gather_a_range():
    return between(node("Gather", "c i", "h", axis=1), weights={"i": [2, 3, 4]}, out_maps=3)


@entry()
def spatial_attention():
    return between(
        node("Conv", "c k", "a", "attend"),
        node("Sigmoid", "a", "s"),
        node("Mul", "c s", "h"),
        weights={"k": weight(1, 8, 1, 1)},
    )


@entry()
def squeeze_and_excite():
    return between(
        node("GlobalAveragePool", "c", "p"),
        node("Conv", "p k1 b1", "q"),
        node("Relu", "q", "r"),
        node("Conv", "r k2 b2", "e"),
        node("HardSigmoid", "e", "s", alpha=1 / 6, beta=0.5),
        node("Mul", "c s", "h"),
        weights={
            "k1": weight(2, 8, 1, 1),
            "b1": weight(2),
            "k2": weight(8, 2, 1, 1),
            "b2": weight(8),
        },
    )


@entry()
def transposed_there_and_back():
    return between(
        node("Transpose", "c", "t", perm=[0, 2, 3, 1]),
        node("Relu", "t", "r"),
        node("Transpose", "r", "h", perm=[0, 3, 1, 2]),
    )


@entry()
def reshaped_there_and_back():
    return between(
        node("Reshape", "c s1", "a"),
        node("Sigmoid", "a", "s"),
        node("Reshape", "s s2", "h"),
        weights={"s1": [1, 8, 256], "s2": [1, 8, 16, 16]},
    )


@entry()
def masked():
    mask = (np.arange(16 * 16 * 8).reshape(1, 8, 16, 16) % 3 == 0).astype(np.float32)
    return between(
        node("Cast", "mask", "m", to=BOOL),
        node("Where", "m c zero", "h"),
        weights={"mask": mask, "zero": np.float32(0)},
    )


@entry()
def repeated_along_the_channels():
    return between(
        node("Conv", "c k", "a", "attend"),
        node("Expand", "a s", "h"),
        weights={"k": weight(1, 8, 1, 1), "s": [1, 8, 16, 16]},
    )


@entry("Reshape", "Reshape")
def one_dimensional():
    return net(
        [
            node("Conv", "x w0 b0", "c", pads=[1, 1]),
            node("Relu", "c", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2], strides=[2]),
            node("Conv", "p w1", "d"),
            node("LeakyRelu", "d", "y", alpha=0.1),
        ],
        {"x": (1, 4, 64)},
        ["y"],
        {"w0": weight(8, 4, 3), "b0": weight(8), "w1": weight(8, 8, 3)},
    )
