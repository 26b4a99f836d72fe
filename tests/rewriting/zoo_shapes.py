"""More of the zoo: what moves, joins, resizes and reduces, and classifiers."""

import numpy as np
from onnx import helper

from tests.rewriting.nets import net, node, weight
from tests.rewriting.zoo import between, entry


def resize(source, target, scales, **attributes):
    """A Resize by scales that are called "s", and these scales."""
    named = helper.make_node("Resize", [source, "", "s"], [target], "resize", **attributes)
    return named, {"s": np.float32(scales)}


MINIMUM = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


@entry("Reshape", int8=("Reshape",), xavier=("Reshape",))
def mean_without_its_axes():
    return net(
        [node("Conv", "x w", "c"), node("ReduceMean", "c", "y", axes=[2, 3], keepdims=0)],
        {"x": (1, 8, 13, 13)},
        ["y"],
        {"w": weight(8, 8, 1, 1)},
    )


@entry(xavier=("ReduceMax",))
def spatial_attention_of_cbam():
    return between(
        node("ReduceMean", "c", "a", axes=[1]),
        node("ReduceMax", "c", "b", axes=[1]),
        node("Concat", "a b", "d", axis=1),
        node("Conv", "d k", "f", pads=[3, 3, 3, 3]),
        node("Sigmoid", "f", "s"),
        node("Mul", "c s", "h"),
        weights={"k": weight(1, 2, 7, 7)},
    )


@entry(int8=(), xavier=())
def coordinate_attention():
    return between(
        node("ReduceMean", "c", "a", axes=[3]),
        node("ReduceMean", "c", "b", axes=[2]),
        node("Transpose", "b", "bt", perm=[0, 1, 3, 2]),
        node("Concat", "a bt", "d", axis=2),
        node("Conv", "d k", "f"),
        node("Relu", "f", "r"),
        node("Split", "r parts", "u v", axis=2),
        node("Transpose", "v", "vt", perm=[0, 1, 3, 2]),
        node("Sigmoid", "u", "su"),
        node("Sigmoid", "vt", "sv"),
        node("Mul", "c su", "m"),
        node("Mul", "m sv", "h"),
        weights={"k": weight(8, 8, 1, 1), "parts": [16, 16]},
    )


@entry(int8=(), xavier=())
def joined_along_the_width():
    return between(node("Relu", "c", "r"), node("Concat", "c r x", "h", axis=-1))


@entry(int8=(), xavier=())
def gather_rows():
    return between(node("Gather", "c i", "h", axis=2), weights={"i": [3, 1, 4, 1, 5]})


@entry(int8=(), xavier=())
def rolled():
    return between(
        node("Slice", "c four end a", "p"),
        node("Slice", "c zero four a", "q"),
        node("Concat", "p q", "h", axis=3),
        weights={"four": [4], "end": [999], "zero": [0], "a": [3]},
    )


@entry(int8=(), xavier=())
def split_along_the_height():
    return between(
        node("Split", "c parts", "a b", axis=2),
        node("Concat", "a b", "h", axis=1),
        weights={"parts": [8, 8]},
        out_maps=16,
    )


@entry(int8=(), xavier=())
def resized_in_height_alone():
    made, weights = resize("c", "h", [1, 1, 2, 1], **MINIMUM)
    return between(made, weights=weights)


@entry(int8=(), xavier=())
def bilinear():
    made, weights = resize("c", "h", [1, 1, 2, 2], **LINEAR)
    return between(made, weights=weights)


@entry(int8=(), xavier=())
def bilinear_with_aligned_corners():
    how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    made, weights = resize("c", "h", [1, 1, 2, 2], **how)
    return between(made, weights=weights)


@entry(int8=(), xavier=())
def cubic():
    made, weights = resize("c", "h", [1, 1, 2, 2], **{**LINEAR, "mode": "cubic"})
    return between(made, weights=weights, shape=(1, 8, 8, 8))


@entry(int8=(), xavier=())
def bilinear_of_one_pixel():
    sizes = helper.make_node("Resize", ["p", "", "", "s"], ["u"], "resize", **LINEAR)
    return between(
        node("GlobalAveragePool", "c", "p"),
        sizes,
        node("Concat", "c u", "h", axis=1),
        weights={"s": [1, 8, 16, 16]},
        out_maps=16,
    )


@entry(int8=(), xavier=())
def resize_of_opset_10():
    return between(
        node("Resize", "c s", "e", mode="nearest"),
        node("GlobalAveragePool", "e", "h"),
        weights={"s": np.float32([1, 1, 2, 2])},
        shape=(1, 8, 8, 8),
        opset=10,
    )


@entry(int8=(), xavier=())
def blocks_as_torch_writes_them():
    return between(
        node("Reshape", "c s1", "a"),
        node("Transpose", "a", "t", perm=[0, 1, 3, 5, 2, 4]),
        node("Reshape", "t s2", "d"),
        node("Reshape", "d s3", "e"),
        node("Transpose", "e", "f", perm=[0, 1, 4, 2, 5, 3]),
        node("Reshape", "f s4", "g"),
        node("Conv", "g k", "h"),
        weights={
            "s1": [1, 8, 8, 2, 8, 2],
            "s2": [1, 32, 8, 8],
            "s3": [1, 8, 2, 2, 8, 8],
            "s4": [1, 8, 16, 16],
            "k": weight(8, 8, 1, 1),
        },
    )


@entry(int8=(), xavier=())
def scattered_by_elements():
    indices = np.broadcast_to(np.int64([1, 3]).reshape(1, 2, 1, 1), (1, 2, 16, 16))
    return between(
        node("Slice", "x zero two one", "u"),
        node("ScatterElements", "c i u", "h", axis=1),
        weights={"i": indices, "zero": [0], "two": [2], "one": [1]},
    )


@entry(xavier=("Softmax",))
def softmax_of_classes_per_pixel():
    return between(node("Softmax", "c", "h", axis=1))


# each a reshape with the transposition beside it, which is one shuffle
@entry("Transpose", "Reshape", int8=("Transpose", "Reshape"), xavier=("Transpose", "Reshape"))
def products_of_tokens():
    return net(
        [
            node("MatMul", "x m", "g"),
            node("Add", "g b", "a"),
            node("Relu", "a", "r"),
            node("MatMul", "r m2", "y"),
        ],
        {"x": (1, 49, 64)},
        ["y"],
        {"m": weight(64, 32), "b": weight(32), "m2": weight(32, 64)},
    )
