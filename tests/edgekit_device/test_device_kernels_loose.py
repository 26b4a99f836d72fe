"""Lines that begin at any byte: each way of reading and writing them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit_device._kernels_exact import divides
from edgekit_device._kernels_plan import Numbers, plan, set_scale
from tests.edgekit_device.kernel_emulator import Emulator, layout, same, stored, turned, values

_STEP = 0.037


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize(
    ("form", "inner", "order", "dtype", "way"),
    [
        ("CHW32", "int8", "HWC", "uint8", {"WINDOW": 1}),
        ("CHW16", "float16", "HWC", "float32", {"WINDOW": 1}),
        ("DLA_LINEAR", "int8", "HWC", "int8", {"WINDOW": 2, "STRAIGHT": 1}),
        ("DLA_LINEAR", "float16", "HWC", "uint8", {"WINDOW": 2, "QUICK": 0}),
        ("CHW32", "int8", "LINEAR", "float16", {"STAGED": 1, "WINDOW": 0}),
        ("CHW16", "float16", "LINEAR", "uint8", {"STAGED": 1, "WINDOW": 0}),
        ("DLA_LINEAR", "int8", "LINEAR", "uint8", {"ROLLED": 1, "STRAIGHT": 1, "QUICK": 4}),
    ],
)
# pixels shorter than a run, of several vectors, lines of several blocks and of several images
@pytest.mark.parametrize("shape", [(3, 5, 2, 201), (2, 63, 3, 75), (1, 33, 1, 1201)])
def test_what_is_unpacked_where_lines_begin_at_any_byte(
    emulator: Emulator,
    form: str,
    inner: str,
    order: str,
    dtype: str,
    way: dict[str, int],
    shape: tuple[int, ...],
) -> None:
    src = layout(form, inner, shape, _STEP if inner == "int8" else None)
    dst = layout(order, dtype, shape, _STEP if dtype == "int8" else None)
    launch = plan(src, dst)
    assert {name: dict(launch.defines)[name] for name in way} == way
    tensor = values(np.random.default_rng(8), shape, inner)
    wanted = stored(turned(tensor, src, dst), dst)
    assert same(emulator.run(launch, stored(tensor, src), wanted.nbytes), wanted)


@pytest.mark.parametrize("order", ["LINEAR", "HWC"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "float32"])
@pytest.mark.parametrize(("form", "inner"), [("CHW32", "int8"), ("DLA_LINEAR", "int8")])
def test_what_is_packed_from_lines_that_begin_at_any_byte(
    emulator: Emulator, form: str, inner: str, dtype: str, order: str
) -> None:
    for shape in ((2, 37, 3, 75), (1, 64, 1, 131)):
        src = layout(order, dtype, shape, 0.11 if dtype == "int8" else None)
        dst = layout(form, inner, shape, _STEP)
        launch = plan(src, dst)
        tensor = values(np.random.default_rng(9), shape, dtype)
        wanted = stored(turned(tensor, src, dst), dst)
        assert same(emulator.run(launch, stored(tensor, src), wanted.nbytes), wanted), (src, dst)


def test_quotients_by_channels_and_places_are_whole_ones() -> None:
    for channels, width in ((5, 201), (63, 1913), (64, 1920), (37, 1)):
        shape = (1, channels, 3, width)
        numbers = plan(layout("CHW32", "int8", shape, 0.1), layout("HWC", "int8", shape, 0.1))
        if "WINDOW" not in dict(numbers.defines):
            continue
        for i, by in enumerate((channels, 3 * width)):
            magic, moves = int(numbers.numbers.magic[i]), int(numbers.numbers.moves[i])
            near = [k * by + j for k in (1, 977, (1 << 31) // by) for j in (-1, 0, by - 1)]
            for one in (*near, 0, (1 << 31) - 1):
                if 0 <= one < 1 << 31:
                    assert one * magic >> moves == one // by


@pytest.mark.parametrize("scale", [0.0078722, 1 / 3, 0.037, 1.0, 7.3e-5, 1e-30, 3e20])
def test_one_step_of_the_division_is_taken_only_where_ties_agree(scale: float) -> None:
    numbers = Numbers()
    set_scale(numbers, scale)
    assert divides("float32", numbers) in {1, 2}
    # a reciprocal that is far off needs more than one step
    numbers.inverse *= 1.01
    assert divides("float32", numbers) == 2


def test_halves_are_quantised_by_two_products_only_where_all_agree(emulator: Emulator) -> None:
    ways = set()
    tensor = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[None, None, None]
    for scale in (0.037, 0.2):
        src = layout("LINEAR", "float16", tensor.shape)
        dst = layout("DLA_LINEAR", "int8", tensor.shape, scale)
        launch = plan(src, dst)
        ways.add(dict(launch.defines)["QUICK"])
        wanted = stored(turned(tensor, src, dst), dst)
        assert same(emulator.run(launch, stored(tensor, src), wanted.nbytes), wanted)
    assert ways == {0, 3}
