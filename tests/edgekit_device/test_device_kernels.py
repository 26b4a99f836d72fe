"""The pack kernels against the NumPy packer, bit for bit, without a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgekit_device._kernels import Layout
from edgekit_device._kernels_plan import plan
from tests.edgekit_device.kernel_emulator import Emulator, layout, same, stored, turned, values

_FORMATS = (
    ("DLA_LINEAR", "int8"), ("DLA_LINEAR", "float16"), ("DLA_HWC4", "int8"),
    ("DLA_HWC4", "float16"), ("CHW16", "float16"), ("CHW32", "int8"),
)  # fmt: skip
_TYPES = ("float32", "float16", "uint8", "int8")
_STEP = 0.037
_LEAST_LOOSE = 40  # of 64: few channels, and one pair of layouts, take the other way
# odd sizes, lines that are no multiple of anything, and one that fills whole blocks
_FEW = ((1, 1, 3, 67), (1, 3, 5, 7), (2, 4, 4, 64), (1, 3, 16, 128))
_MANY = ((1, 5, 7, 9), (1, 33, 3, 13), (2, 64, 8, 16))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(tmp_path_factory.mktemp("kernels"))


def _layouts(form: str, inner: str, dtype: str, shape: tuple[int, ...], order: str, gen: str):
    step = _STEP if inner == "int8" else None
    own = None if dtype != "int8" else step or 0.11
    return layout(order, dtype, shape, own), layout(form, inner, shape, step, gen)


@pytest.mark.parametrize("order", ["LINEAR", "HWC"])
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize(("form", "inner"), _FORMATS)
def test_packing_and_unpacking_equal_numpy(
    emulator: Emulator, form: str, inner: str, dtype: str, order: str
) -> None:
    rng = np.random.default_rng(5)
    shapes = _FEW if form == "DLA_HWC4" else (*_FEW[:2], *_MANY)
    for shape in shapes:
        for gen in ("1.0", "2.0") if form == "DLA_HWC4" else ("2.0",):
            outer, dla = _layouts(form, inner, dtype, shape, order, gen)
            for src, dst in ((outer, dla), (dla, outer)):
                tensor = values(rng, shape, src.dtype)
                wanted = stored(turned(tensor, src, dst), dst, gen)
                memory = stored(tensor, src, gen)
                found = emulator.run(plan(src, dst), memory, wanted.nbytes)
                assert same(found, wanted), (src, dst)


def test_lines_that_begin_at_any_byte_share_blocks(emulator: Emulator) -> None:
    # lines that end within a run, rows of several blocks of threads, each of another first byte
    rng = np.random.default_rng(6)
    loose = 0
    for shape in ((2, 37, 9, 39), (1, 3, 2, 1201)):
        for form, inner in _FORMATS:
            if form == "DLA_HWC4":
                continue
            for dtype, order in itertools.product(_TYPES[::3], ("LINEAR", "HWC")):
                outer, dla = _layouts(form, inner, dtype, shape, order, "2.0")
                for src, dst in ((outer, dla), (dla, outer)):
                    loose += dict(plan(src, dst).defines).get("LOOSE", 0) > 0
                    tensor = values(rng, shape, src.dtype)
                    wanted = stored(turned(tensor, src, dst), dst)
                    found = emulator.run(plan(src, dst), stored(tensor, src), wanted.nbytes)
                    assert same(found, wanted), (src, dst)
    assert loose > _LEAST_LOOSE


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
    assert same(emulator.run(plan(src, dst), tensor, wanted.nbytes), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
# at 2 every other value of a byte is a tie
@pytest.mark.parametrize("scale", [0.0078722, 1 / 3, 0.2, 1.7, 2.0])
def test_types_with_few_values_take_the_quick_way_only_where_it_is_exact(
    emulator: Emulator, dtype: str, scale: float
) -> None:
    size = 1 << 8 * np.dtype(dtype).itemsize
    tensor = np.arange(size, dtype=f"u{np.dtype(dtype).itemsize}").view(dtype)[None, None, None]
    src = layout("LINEAR", dtype, tensor.shape, 0.1 if dtype == "int8" else None)
    dst = layout("DLA_LINEAR", "int8", tensor.shape, scale)
    wanted = stored(turned(tensor, src, dst), dst)
    assert same(emulator.run(plan(src, dst), tensor, wanted.nbytes), wanted)


def test_a_byte_s_step_is_one_saturated_product_where_all_values_agree() -> None:
    def quick(scale: float) -> int:
        src, dst = layout("LINEAR", "uint8", (1, 3, 4, 64)), "DLA_LINEAR"
        return dict(plan(src, layout(dst, "int8", (1, 3, 4, 64), scale)).defines)["QUICK"]

    assert [quick(scale) for scale in (0.037, 2.0)] == [4, 1]


def test_vectors_move_16_bytes_where_lines_allow() -> None:
    whole = plan(layout("LINEAR", "int8", (1, 64, 8, 64)), layout("CHW32", "int8", (1, 64, 8, 64)))
    assert dict(whole.defines)["SRC_MODE"] == dict(whole.defines)["DST_MODE"] == 1
    odd = plan(layout("LINEAR", "int8", (1, 64, 7, 9)), layout("CHW32", "int8", (1, 64, 7, 9)))
    assert dict(odd.defines)["SRC_MODE"] == 3


@pytest.mark.parametrize(
    ("src", "dst", "code"),
    [
        (Layout("float64", (1, 3, 4, 4), "LINEAR"), None, "kernels.unsupported"),
        (Layout("float32", (1, 3, 4, 4), "CHW4"), None, "kernels.unsupported"),
        (Layout("float32", (1, 3, 4, 5), "LINEAR"), None, "kernels.shape"),
        (None, layout("DLA_LINEAR", "int8", (1, 3, 4, 4)), "kernels.scale"),
        (None, layout("DLA_LINEAR", "int8", (1, 3, 4, 4), 1e-40), "kernels.scale"),
        (None, Layout("int8", (1, 3, 4, 4), "DLA_LINEAR", (), 0.1), "format.strides"),
    ],
)
def test_what_no_kernel_can_do_is_told(src: Layout | None, dst: Layout | None, code: str) -> None:
    from edgekit_device._errors import DeviceError

    src = src or layout("LINEAR", "float32", (1, 3, 4, 4))
    dst = dst or layout("DLA_LINEAR", "int8", (1, 3, 4, 4), 0.1)
    with pytest.raises(DeviceError) as caught:
        plan(src, dst)
    assert caught.value.code == code
