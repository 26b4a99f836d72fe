"""Tensors in the DLA's formats: bit for bit, zero padding, any buffer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.formats import element_strides, nbytes, pack, stored_shape, strides, unpack
from edgekit.errors import DataError
from tests.tries import tries

GENERATIONS = ("1.0", "2.0")
CASES = [
    ("int8", "DLA_LINEAR"),
    ("float16", "DLA_LINEAR"),
    ("int8", "DLA_HWC4"),
    ("float16", "DLA_HWC4"),
    ("int8", "CHW32"),
    ("float16", "CHW16"),
    ("int8", "LINEAR"),
    ("float32", "LINEAR"),
]


def noise(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Every bit pattern, NaNs with payloads and signed zeros among them."""
    count = math.prod(shape) * np.dtype(dtype).itemsize
    bits = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    return bits.view(dtype).reshape(shape)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


@settings(max_examples=tries(150))
@given(st.data())
def test_round_trip_is_bit_for_bit_and_padding_is_unread(data: st.DataObject) -> None:
    dtype, form = data.draw(st.sampled_from(CASES))
    generation = data.draw(st.sampled_from(GENERATIONS))
    channels = st.sampled_from([1, 3, 4]) if form == "DLA_HWC4" else st.integers(1, 70)
    side = st.integers(1, 40)
    shape = (data.draw(st.integers(1, 3)), data.draw(channels), data.draw(side), data.draw(side))
    tensor = noise(shape, dtype)
    stored = pack(tensor, form, generation)
    assert stored.dtype == tensor.dtype
    assert stored.nbytes == nbytes(shape, dtype, form, generation)
    assert same_bits(unpack(stored, shape, dtype, form, generation), tensor)

    garbage = np.full(stored.nbytes, 0xA5, np.uint8)
    again = pack(tensor, form, generation, out=garbage)
    assert np.shares_memory(again, garbage)
    assert same_bits(again, stored)
    # what is not an element is zero; and it may be anything on the way back
    is_element = pack(np.ones(shape, dtype), form, generation) != 0
    assert np.count_nonzero(is_element) == tensor.size
    assert not stored.view(f"u{stored.itemsize}")[~is_element].any()
    dirty = stored.view(f"u{stored.itemsize}").copy()
    dirty[~is_element] = 0x5A
    flat = dirty.reshape(-1).view(np.uint8)
    assert same_bits(unpack(flat, shape, dtype, form, generation), tensor)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(("dtype", "form"), CASES)
def test_elements_lie_where_the_strides_say(dtype: str, form: str, generation: str) -> None:
    shape = (2, 3 if form == "DLA_HWC4" else 37, 3, 21)
    tensor = noise(shape, dtype)
    memory = pack(tensor, form, generation).tobytes()
    n, c, h, w = strides(shape, dtype, form, generation)
    size = np.dtype(dtype).itemsize
    assert element_strides(shape, dtype, form, generation) == tuple(
        step // size for step in (n, c, h, w)
    )
    vector = {"CHW16": 16, "CHW32": 32}.get(form, 1)
    for b, channel, y, x in [(0, 0, 0, 0), (1, 1, 2, 20), (0, 2, 1, 7), (1, shape[1] - 1, 2, 19)]:
        at = b * n + channel // vector * c + channel % vector * size + y * h + x * w
        assert memory[at : at + size] == tensor[b, channel, y, x].tobytes()


@pytest.mark.parametrize(("dtype", "form"), [("int8", "CHW32"), ("float16", "CHW16")])
def test_many_blocks_and_threads_give_the_same(dtype: str, form: str) -> None:
    shape = (2, 50, 201, 301)
    tensor = noise(shape, dtype)
    vector = 32 if form == "CHW32" else 16
    padded = np.zeros((2, -(-50 // vector) * vector, 201, 301), dtype)
    padded.view("u1")[:, :50] = tensor.view("u1")
    expected = padded.reshape(2, -1, vector, 201, 301).transpose(0, 1, 3, 4, 2)
    stored = pack(tensor, form)
    assert same_bits(stored, np.ascontiguousarray(expected))
    out = np.empty(shape, dtype)
    back = unpack(stored, shape, dtype, form, out=out)
    assert np.shares_memory(back, out)
    assert same_bits(back, tensor)


def test_other_ranks_and_views() -> None:
    classifier = noise((1000,), "int8")
    assert pack(classifier, "CHW32").shape == stored_shape((1000,), "int8", "CHW32")
    assert same_bits(unpack(pack(classifier, "CHW32"), (1000,), "int8", "CHW32"), classifier)
    images = noise((2, 2, 3, 6, 10), "int8")
    assert stored_shape(images.shape, "int8", "DLA_HWC4") == (4, 6, 16, 4)
    turned = images.transpose(0, 1, 2, 4, 3)
    assert same_bits(pack(turned, "DLA_HWC4"), pack(np.ascontiguousarray(turned), "DLA_HWC4"))


def test_buffers_that_do_not_fit() -> None:
    tensor = noise((1, 3, 4, 4), "int8")
    with pytest.raises(DataError, match="has 5 bytes, the format needs 512") as caught:
        pack(tensor, "CHW32", out=np.empty(5, np.int8))
    assert (caught.value.code, bool(caught.value.hint)) == ("format.buffer", True)
    with pytest.raises(DataError, match="needs 512"):
        unpack(np.empty(511, np.int8), (1, 3, 4, 4), "int8", "CHW32")
    with pytest.raises(DataError, match="has 513 bytes, the format needs 512"):
        unpack(np.empty(513, np.int8), (1, 3, 4, 4), "int8", "CHW32")
    with pytest.raises(DataError, match="gaps"):
        unpack(np.empty((512, 2), np.int8)[:, 0], (1, 3, 4, 4), "int8", "CHW32")
    frozen = np.empty(512, np.int8)
    frozen.flags.writeable = False
    with pytest.raises(DataError, match="read-only"):
        pack(tensor, "CHW32", out=frozen)
    with pytest.raises(DataError, match="read-only"):
        unpack(tensor, (48,), "int8", "LINEAR", out=frozen[:48])


@pytest.mark.parametrize(
    ("dtype", "form"), [("float32", "CHW16"), ("int8", "CHW16"), ("float16", "CHW32")]
)
def test_a_type_that_the_format_does_not_hold_is_refused(dtype: str, form: str) -> None:
    with pytest.raises(DataError, match=dtype) as refused:
        pack(np.zeros((1, 4, 2, 2), dtype), form)
    assert "CHW16" in refused.value.hint
    with pytest.raises(DataError, match=dtype):
        unpack(np.zeros(1024, np.uint8), (1, 4, 2, 2), dtype, form)


def test_another_byte_order_is_turned() -> None:
    tensor = np.arange(24, dtype=np.float16).reshape(1, 3, 2, 4)
    assert same_bits(pack(tensor.astype(">f2"), "CHW16"), pack(tensor, "CHW16"))
