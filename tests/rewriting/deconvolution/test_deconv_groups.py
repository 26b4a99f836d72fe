"""deconv-groups: block-diagonal weights, in parts where there are channels enough."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.deconvolution.models import deconv, found
from tests.rewriting.nets import assert_rewrites, assert_untouched, ops
from tests.tries import tries

GROUPS = "deconv-groups"


@pytest.mark.parametrize(
    ("channels", "groups", "parts"),
    [(128, 2, 2), (128, 4, 2), (128, 128, 2), (96, 3, 1), (640, 10, 5), (130, 2, 2)],
)
def test_many_channels_come_in_parts(channels, groups, parts):
    model = deconv((1, channels, 2, 3), (2, 2), maps=1, strides=[2, 2], group=groups)
    made = assert_rewrites(model, GROUPS)
    alone = ["ConvTranspose"]
    split = ["Slice", "ConvTranspose"] * parts + ["Concat"]
    assert ops(made) == (alone if parts == 1 else split)
    assert refused(made) == []


@settings(max_examples=tries(15))
@given(st.data())
def test_any_groups(data):
    groups, each = data.draw(st.integers(2, 4)), data.draw(st.sampled_from([1, 2, 3, 40, 64]))
    rest = {"pads": [1, 0, 0, 1]} if data.draw(st.booleans()) else {"dilations": [1, 2]}
    model = deconv(
        (data.draw(st.integers(1, 2)), groups * each, 2, 3),
        (2, data.draw(st.integers(2, 3))),
        maps=data.draw(st.integers(1, 3)),
        bias=data.draw(st.booleans()),
        strides=[2, 1],
        group=groups,
        **rest,
    )
    made = assert_rewrites(model, GROUPS)
    assert all(attrs.get("group", 1) == 1 for attrs in found(made, "ConvTranspose"))


def test_what_is_left_alone():
    assert_untouched(deconv((1, 4, 5, 6), (3, 3), strides=[2, 2]), GROUPS)
    assert_untouched(deconv((1, 4, 6), (4,), group=2), GROUPS)
