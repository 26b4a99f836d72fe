"""More of the zoo: constants, logic, normalisations and windows."""

import numpy as np

from tests.rewriting.nets import net, node, weight
from tests.rewriting.zoo import BOOL, between, entry


@entry(int8=(), xavier=())
def one_constant_for_several():
    return between(
        node("Mul", "c k", "a"),
        node("Relu", "a", "r"),
        node("Add", "r k", "h"),
        weights={"k": np.float32(0.5)},
    )


@entry(int8=(), xavier=())
def constants_of_low_rank():
    return between(
        node("Sub", "k c", "a"),
        node("Mul", "a row", "b"),
        node("Mul", "b g", "h"),
        weights={"k": weight(1, 1, 16, 16), "row": weight(16), "g": weight(8, 1, 1)},
    )


# beside so little work the constant on the GPU is predicted to be faster than a convolution
@entry("Concat (constant)")
def coordinates_outside_the_image():
    return between(
        node("Concat", "k c", "h", axis=1), weights={"k": weight(1, 2, 16, 16)}, out_maps=10
    )


@entry(int8=(), xavier=())
def factors_of_rows_and_columns():
    return between(
        node("ReduceMean", "c", "p", axes=[3]),
        node("ReduceMean", "c", "q", axes=[2]),
        node("Mul", "p q", "m"),
        node("Mul", "c p", "n"),
        node("Add", "m n", "h"),
    )


@entry(int8=(), xavier=())
def normalised_image():
    return net(
        [node("Sub", "x m", "a"), node("Div", "a s", "b"), node("Conv", "b w", "y", pads=[1] * 4)],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"m": weight(1, 3, 1, 1), "s": np.abs(weight(1, 3, 1, 1)) + 1, "w": weight(8, 3, 3, 3)},
    )


@entry(int8=(), xavier=())
def frozen_batch_norm_of_torchvision():
    return between(
        *(node("Reshape", f"{k} one", f"{k}4") for k in "wbvm"),
        node("Add", "v4 eps", "ve"),
        node("Sqrt", "ve", "root"),
        node("Reciprocal", "root", "rs"),
        node("Mul", "w4 rs", "scale"),
        node("Mul", "m4 scale", "ms"),
        node("Sub", "b4 ms", "bias"),
        node("Mul", "c scale", "q"),
        node("Add", "q bias", "h"),
        weights={
            "w": weight(8),
            "b": weight(8),
            "v": np.abs(weight(8)) + 1,
            "m": weight(8),
            "one": [1, 8, 1, 1],
            "eps": np.float32(1e-5),
        },
    )


@entry("InstanceNormalization")  # divides by a square root: dla/reconstruction.yaml
def instance_normalisation():
    return between(
        node("InstanceNormalization", "c g b", "h"), weights={"g": weight(8), "b": weight(8)}
    )


@entry("GroupNormalization")
def group_normalisation():
    return between(
        node("GroupNormalization", "c g b", "h", num_groups=2),
        weights={"g": weight(8), "b": weight(8)},
        opset=21,
    )


@entry("LayerNormalization")
def layer_normalisation():
    return between(
        node("Transpose", "c", "t", perm=[0, 2, 3, 1]),
        node("LayerNormalization", "t g b", "n"),
        node("Transpose", "n", "h", perm=[0, 3, 1, 2]),
        weights={"g": weight(8), "b": weight(8)},
        opset=17,
    )


def compared(op):
    return between(
        node("Greater", "c lo", "a"),
        node("Less", "c hi", "b"),
        node(op, "a b", "o"),
        node("Not", "o", "n"),
        node("Where", "n c x", "h"),
        weights={"lo": np.float32(-0.5), "hi": np.float32(0.5)},
    )


# comparisons are layers of a DLA with INT8 alone, and no DLA has logic or a selection
@entry("Greater", "Less", "And", "Not", "Where", "Greater (constant)", "Less (constant)", int8=())
def both_comparisons():
    return compared("And")


@entry("Greater", "Less", "Or", "Not", "Where", "Greater (constant)", "Less (constant)", int8=())
def either_comparison():
    return compared("Or")


@entry("Greater", "Less", "Xor", "Not", "Where", "Greater (constant)", "Less (constant)", int8=())
def one_comparison_of_two():
    return compared("Xor")


# a mask that is fed is boolean, and the GPU has to cast it whatever becomes of the selection
@entry("Cast", int8=("Cast",), xavier=("Cast",))
def chosen_by_an_input():
    return between(node("Where", "m c x", "h"), inputs={"m": ((1, 8, 16, 16), BOOL)})


@entry(int8=(), xavier=())
def padded_maximum():
    return between(
        node("Relu", "c", "r"),
        node("Pad", "r p", "q"),
        node("MaxPool", "q", "h", kernel_shape=[3, 3], strides=[2, 2]),
        weights={"p": [0, 0, 1, 1, 0, 0, 1, 1]},
    )


@entry(int8=(), xavier=())
def channels_of_zeros():
    return between(node("Pad", "c p", "h"), weights={"p": [0, 2, 0, 0, 0, 2, 0, 0]}, out_maps=12)


@entry(int8=(), xavier=())
def pooling_pyramid_of_yolo():
    return between(
        *(node("MaxPool", "c", f"p{k}", kernel_shape=[k, k], pads=[k // 2] * 4) for k in (5, 9)),
        node("Concat", "c p5 p9", "h", axis=1),
        out_maps=24,
    )


@entry(int8=(), xavier=())
def average_without_its_padding():
    return between(
        node("AveragePool", "c", "a", kernel_shape=[3, 3], pads=[1] * 4),
        node("AveragePool", "a", "h", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    )


@entry(int8=(), xavier=())
def large_dilation():
    return between(
        node("Conv", "c k", "h", dilations=[1, 40], pads=[0, 40, 0, 40]),
        shape=(1, 8, 4, 96),
        weights={"k": weight(8, 8, 1, 3)},
    )
