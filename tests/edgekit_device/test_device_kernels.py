"""The pack kernel against the NumPy packer, bit for bit, without a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgekit_device.arrays.formats import pack
from edgekit_device.cuda.kernels import Layout, plan_kernel
from edgekit_device.errors import DeviceError
from tests.edgekit_device.kernel_emulator import Emulator, layout, same, stored, turned, values

_FORMATS = (
    ("DLA_LINEAR", "int8"),
    ("DLA_LINEAR", "float16"),
    ("DLA_HWC4", "int8"),
    ("DLA_HWC4", "float16"),
    ("CHW16", "float16"),
    ("CHW32", "int8"),
)
_TYPES = ("float32", "float16", "uint8", "int8")
_SCALE = 0.037
# odd sizes, lines that are no multiple of anything, and one of whole words
_FEW = ((1, 1, 3, 67), (1, 3, 5, 7), (2, 4, 4, 64))
_MANY = ((1, 3, 5, 7), (1, 33, 3, 13), (2, 64, 8, 16))


_OUTER = list(itertools.product(_TYPES, ("LINEAR", "HWC")))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(tmp_path_factory.mktemp("kernels"))


def _layouts(
    form: str, inner: str, dtype: str, shape: tuple[int, ...], order: str, generation: str = "2.0"
) -> tuple[Layout, Layout]:
    step = _SCALE if inner == "int8" else None
    own = None if dtype != "int8" else step or 0.11
    return layout(order, dtype, shape, own), layout(form, inner, shape, step, generation)


def _equal(emulator: Emulator, src: Layout, dst: Layout, generation: str = "2.0") -> bool:
    tensor = values(np.random.default_rng(5), src.shape, src.dtype)
    wanted = stored(turned(tensor, src, dst), dst, generation)
    found = emulator.run(plan_kernel(src, dst), stored(tensor, src, generation), wanted.nbytes)
    return same(found, wanted)


# each is compiled
@pytest.mark.few(4)
@pytest.mark.parametrize(("form", "inner"), _FORMATS)
@pytest.mark.parametrize(("dtype", "order"), _OUTER)
def test_packing_and_unpacking_equal_numpy(
    emulator: Emulator, form: str, inner: str, dtype: str, order: str
) -> None:
    for shape in _FEW if form == "DLA_HWC4" else _MANY:
        for generation in ("1.0", "2.0") if form == "DLA_HWC4" else ("2.0",):
            outer, dla = _layouts(form, inner, dtype, shape, order, generation)
            for src, dst in ((outer, dla), (dla, outer)):
                assert _equal(emulator, src, dst, generation), (src, dst)


@pytest.mark.whole
@pytest.mark.parametrize("order", ["LINEAR", "HWC"])
@pytest.mark.parametrize(("form", "inner"), [one for one in _FORMATS if one[0] != "DLA_HWC4"])
# lines of several blocks of threads that end within a run, each line at another first byte
@pytest.mark.parametrize("shape", [(2, 37, 9, 39), (1, 3, 2, 1201), (3, 130, 1, 3)])
def test_lines_that_begin_at_any_byte_equal_numpy(
    emulator: Emulator, form: str, inner: str, order: str, shape: tuple[int, ...]
) -> None:
    for dtype in ("float32", inner):
        outer, dla = _layouts(form, inner, dtype, shape, order)
        for src, dst in ((outer, dla), (dla, outer)):
            assert _equal(emulator, src, dst), (src, dst)


def test_padding_of_channels_last_is_zero_and_unread(emulator: Emulator) -> None:
    # lines of 8 pixels of 6 channels, for 7 and 5
    padded = Layout("float32", (2, 5, 3, 7), "HWC", (3 * 8 * 6 * 4, 4, 8 * 6 * 4, 6 * 4))
    tensor = values(np.random.default_rng(5), padded.shape, "float32")
    memory = pack(tensor, "HWC", padded.strides)
    dla = layout("CHW16", "float16", padded.shape)
    half = stored(turned(tensor, padded, dla), dla)
    assert same(
        emulator.run(plan_kernel(dla, padded), half, memory.nbytes),
        pack(half_values(tensor), "HWC", padded.strides),
    )
    memory[:, :, 7:] = np.nan
    memory[..., 5:] = np.nan
    assert same(emulator.run(plan_kernel(padded, dla), memory, half.nbytes), half)


def half_values(tensor: np.ndarray) -> np.ndarray:
    """The values that float16 leaves of them, as float32."""
    with np.errstate(over="ignore"):
        return tensor.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("scale", [0.0078722, 1 / 3, 0.037, 1.0, 7.3e-5, 1e-30, 3e20])
def test_steps_are_those_of_a_division(emulator: Emulator, scale: float) -> None:
    # values next to every tie, where a rounding error of the quotient shows
    step = np.float32(scale)
    ties = (np.arange(-130, 131, dtype=np.float32) + np.float32(0.5)) * step
    near = [ties]
    for direction in (np.inf, -np.inf):
        moved = ties
        for _ in range(3):
            moved = np.nextafter(moved, np.float32(direction))
            near.append(moved)
    rng = np.random.default_rng(2)
    near.append((rng.uniform(-140, 140, 4096).astype(np.float32)) * step)
    tensor = np.concatenate(near)[None, None, None]
    src = layout("LINEAR", "float32", tensor.shape)
    dst = layout("DLA_LINEAR", "int8", tensor.shape, float(step))
    wanted = stored(turned(tensor, src, dst), dst)
    assert same(emulator.run(plan_kernel(src, dst), tensor, wanted.nbytes), wanted)


@pytest.mark.parametrize(
    ("src", "dst"),
    [("uint8", "int8"), ("int8", "int8"), ("float16", "int8"), ("int8", "uint8")],
)
# at 2 every other value of a byte is a tie
@pytest.mark.few(5)
@pytest.mark.parametrize("scale", [0.0078722, 1 / 3, 0.2, 1.7, 2.0])
def test_every_value_of_a_small_type_has_its_step(
    emulator: Emulator, src: str, dst: str, scale: float
) -> None:
    size = np.dtype(src).itemsize
    codes = np.arange(1 << 8 * size, dtype=f"u{size}").view(src)[None, None, None]
    a = layout("LINEAR", src, codes.shape, 0.1 if src == "int8" else None)
    b = layout("DLA_LINEAR", "int8", codes.shape, scale)
    if dst == "uint8":
        a, b = layout("DLA_LINEAR", src, codes.shape, scale), layout("LINEAR", dst, codes.shape)
    wanted = stored(turned(codes, a, b), b)
    assert same(emulator.run(plan_kernel(a, b), stored(codes, a), wanted.nbytes), wanted)


def test_a_byte_s_step_is_a_saturated_share_where_all_values_agree() -> None:
    def quick(scale: float) -> int:
        src, dst = layout("LINEAR", "uint8", (1, 3, 4, 64)), "DLA_LINEAR"
        return dict(plan_kernel(src, layout(dst, "int8", (1, 3, 4, 64), scale)).defines)["QUICK"]

    assert [quick(scale) for scale in (0.037, 2.0)] == [1, 0]


@pytest.mark.parametrize(("form", "inner"), _FORMATS)
@pytest.mark.parametrize("order", ["LINEAR", "HWC"])
def test_lines_of_whole_words_are_moved_in_words(form: str, inner: str, order: str) -> None:
    for width, channels in itertools.product((64, 1920), (3, 64)):
        if (form == "DLA_HWC4") > (channels == 3) or (order, channels) == ("HWC", 3):
            continue
        outer, dla = _layouts(form, inner, inner, (1, channels, 8, width), order)
        for src, dst in ((outer, dla), (dla, outer)):
            defines = dict(plan_kernel(src, dst).defines)
            assert min(defines["SRC_WORD"], defines["DST_WORD"]) >= 8, (src, dst)
    odd = dict(plan_kernel(*_layouts(form, inner, inner, (1, 3, 7, 9), order)).defines)
    assert min(odd["SRC_WORD"], odd["DST_WORD"]) == 0


@pytest.mark.parametrize(
    ("src", "dst", "code"),
    [
        (Layout("float64", (1, 3, 4, 4), "LINEAR"), None, "kernels.unsupported"),
        (Layout("float32", (1, 3, 4, 4), "CHW4"), None, "kernels.unsupported"),
        (Layout("float32", (1, 3, 4, 5), "LINEAR"), None, "kernels.shape"),
        (Layout("float32", (9, 99, 9999, 999), "LINEAR"), None, "kernels.unsupported"),
        (None, layout("DLA_LINEAR", "int8", (1, 3, 4, 4)), "kernels.scale"),
        (None, layout("DLA_LINEAR", "int8", (1, 3, 4, 4), 1e-40), "kernels.scale"),
        (None, Layout("int8", (1, 3, 4, 4), "DLA_LINEAR", (), 0.1), "format.strides"),
    ],
)
def test_what_no_kernel_can_do_is_refused(
    src: Layout | None, dst: Layout | None, code: str
) -> None:
    src = src or layout("LINEAR", "float32", (1, 3, 4, 4))
    if dst is None:
        shape = src.shape if code == "kernels.unsupported" else (1, 3, 4, 4)
        dst = layout("DLA_LINEAR", "int8", shape, 0.1)
    with pytest.raises(DeviceError) as caught:
        plan_kernel(src, dst)
    assert caught.value.code == code
