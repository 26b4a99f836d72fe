"""Convolutions of one axis as those of two."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.convolution.models import conv
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node
from tests.tries import tries

ONE = "conv-1d"


def test_a_sequence_is_an_image_of_width_one():
    after = assert_rewrites(conv((2, 6, 20), (8, 6, 5), pads=[2, 2], strides=[2]), ONE)
    assert [n.name for n in after.proto.graph.node] == ["conv:image", "conv", "conv:sequence"]
    assert refused(after) == ["SHUFFLE", "SHUFFLE"]


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.tuples(*[st.integers(0, 3)] * 2),
    st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    st.booleans(),
)
@settings(max_examples=tries(25))
def test_any_sequence(kernel, stride, dilation, pads, auto, grouped):
    attrs = {"strides": [stride], "dilations": [dilation], "group": 2 if grouped else 1}
    if auto == "NOTSET":
        attrs["pads"] = list(pads)
    else:
        attrs |= {"auto_pad": auto, "dilations": [1]}
    weights = (4, 2 if grouped else 4, kernel)
    assert_rewrites(conv((1, 4, 17), weights, bias=not grouped, **attrs), ONE)


def test_images_and_computed_weights_stay():
    assert_untouched(conv((1, 3, 6, 6), (4, 3, 3, 3)), ONE)
    computed = net([node("Conv", "x v", "y")], {"x": (1, 3, 8), "v": (4, 3, 3)}, ["y"])
    assert_untouched(computed, ONE)
