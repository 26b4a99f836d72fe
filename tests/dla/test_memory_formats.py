"""Pool sizes and tensor formats."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.dla.explanation import explain
from edgekit.dla.formats import FORMATS, border_refusal, nbytes, strides
from edgekit.dla.memory import loadable_sizes, pool_limits, predict_need
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import write
from tests.dla.builder import Builder
from tests.dla.test_candidates import graph

ORIN = get("jetson-agx-orin-64gb")


def test_internal_tensors_live_from_their_writer_to_their_last_reader() -> None:
    """8 channels of 4x4 take 512 bytes in CHW32: 4 * 4 * 32."""
    chain = graph({"a": "", "b": "a", "c": "b", "d": "c"})
    # a writes, b reads it and writes: two at once; d's result leaves the loadable
    for precision in ("int8", "fp16"):
        assert loadable_sizes(chain, list("abcd"), ORIN, precision).tensors == 2 * 512
    skip = graph({"a": "", "b": "a", "c": "b", "d": "c a"})
    assert loadable_sizes(skip, list("abcd"), ORIN, "int8").tensors == 3 * 512
    assert loadable_sizes(chain, ["a"], ORIN, "int8").tensors == 0


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_hardly_any_tensors_have_the_minimum(precision: str) -> None:
    """512 live bytes: 2 MiB is the least that any build showed, in either precision."""
    pair = graph({"a": "", "b": "a", "c": "b"})
    assert predict_need(pair, ["a", "b", "c"], ORIN, precision).local_dram == 2 << 20
    assert explain("memory.local_dram").to_json()["certainty"] == "disputed"


@pytest.mark.parametrize(
    ("rows", "count", "precision", "mebibytes"),
    [(850, 2, "int8", 8), (850, 3, "fp16", 8), (100, 2, "int8", 2), (100, 3, "fp16", 2)],
)
def test_products_of_rows_have_the_pools_of_the_log(
    tmp_path: Path, rows: int, count: int, precision: str, mebibytes: int
) -> None:
    """DETR's projections side by side, without a tensor between them; a product of one row is
    ResNet-50's classifier with 2 MiB."""
    b = Builder(x=(rows, 256))
    made = [
        b.add("Gemm", f"g{i}", "x", b.weight(f"w{i}", (256, 256)), b.weight(f"b{i}", (256,)))
        for i in range(count)
    ]
    net = b.network(tmp_path, *made)
    names = [f"g{i}" for i in range(count)]
    assert predict_need(net, names, ORIN, precision).local_dram == mebibytes << 20


@pytest.mark.parametrize(
    ("queries", "keys", "precision", "mebibytes"),
    [(850, 850, "int8", 4), (850, 850, "fp16", 4), (100, 850, "int8", 4), (100, 100, "int8", 2)],
)
def test_what_crosses_the_border_is_in_the_pool(
    tmp_path: Path, queries: int, keys: int, precision: str, mebibytes: int
) -> None:
    """DETR's two products by a constant: nothing lies between them."""
    b = Builder(q=(1, 8, queries, 32), k=(1, 8, 32, keys))
    root = b.constant("root", 0.42, np.float32)
    made = [b.add("Mul", f"times_{name}", name, root) for name in "qk"]
    net = b.network(tmp_path, *made)
    pool = predict_need(net, ["times_q", "times_k"], ORIN, precision).local_dram
    assert pool == mebibytes << 20


@given(st.sets(st.integers(0, 9), min_size=1), st.sampled_from(["int8", "fp16"]))
def test_pools_are_powers_of_two_within_the_limits(chosen: set[int], precision: str) -> None:
    names = [f"n{i}" for i in range(10)]
    net = graph({name: names[i - 1] if i else "" for i, name in enumerate(names)})
    need = predict_need(net, [names[i] for i in chosen], ORIN, precision)
    limits = pool_limits(ORIN)
    for size, limit in zip(write(need).values(), write(limits).values(), strict=True):
        assert size & (size - 1) == 0
        assert 4096 <= size <= limit


def test_xavier_shares_four_mebibytes_of_sram() -> None:
    assert pool_limits(get("jetson-agx-xavier")).managed_sram == 4 << 20
    assert pool_limits(ORIN).managed_sram == 1 << 20


@pytest.mark.parametrize(
    ("shape", "dtype", "form", "generation", "expected", "size"),
    [
        ((1, 3, 224, 224), "float32", "LINEAR", "2.0", (602112, 200704, 896, 4), 602112),
        ((1, 1000), "float32", "LINEAR", "2.0", (4000, 4), 4000),
        ((1, 3, 10, 20), "int8", "DLA_LINEAR", "2.0", (1920, 640, 64, 1), 1920),
        ((1, 3, 10, 33), "float16", "DLA_LINEAR", "1.0", (3840, 1280, 128, 2), 3840),
        ((2, 3, 10, 20), "int8", "DLA_HWC4", "2.0", (1280, 1, 128, 4), 2560),
        ((2, 3, 10, 20), "int8", "DLA_HWC4", "1.0", (960, 1, 96, 4), 1920),
        ((1, 1, 10, 20), "float16", "DLA_HWC4", "2.0", (640, 2, 64, 2), 640),
        ((1, 2048, 7, 7), "int8", "CHW32", "2.0", (100352, 1568, 224, 32), 100352),
        ((1, 33, 2, 2), "int8", "CHW32", "2.0", (256, 128, 64, 32), 256),
        ((4, 17, 2, 2), "float16", "CHW16", "2.0", (256, 128, 64, 32), 1024),
    ],
)
def test_strides_and_sizes(
    shape: tuple[int, ...],
    dtype: str,
    form: str,
    generation: str,
    expected: tuple[int, ...],
    size: int,
) -> None:
    assert strides(shape, dtype, form, generation) == expected
    assert nbytes(shape, dtype, form, generation) == size


@given(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 3, 4]), st.integers(1, 9), st.integers(1, 70)),
    st.sampled_from(
        [
            ("int8", "DLA_LINEAR"),
            ("float16", "DLA_LINEAR"),
            ("int8", "DLA_HWC4"),
            ("float16", "DLA_HWC4"),
            ("int8", "CHW32"),
            ("float16", "CHW16"),
        ]
    ),
    st.sampled_from(["1.0", "2.0"]),
)
def test_every_element_has_its_own_place_inside(
    shape: tuple[int, int, int, int], kind: tuple[str, str], generation: str
) -> None:
    dtype, form = kind
    size = {"int8": 1, "float16": 2}[dtype]
    n, c, h, w = strides(shape, dtype, form, generation)
    vector = {"CHW32": 32, "CHW16": 16}.get(form)
    seen = set()
    for a in range(shape[0]):
        for b in range(shape[1]):
            channel = b // vector * c + b % vector * size if vector else b * c
            for i in {0, shape[2] - 1}:
                for j in {0, shape[3] - 1}:
                    seen.add(a * n + channel + i * h + j * w)
    wanted = shape[0] * shape[1] * len({0, shape[2] - 1}) * len({0, shape[3] - 1})
    assert len(seen) == wanted
    total = nbytes(shape, dtype, form, generation)
    assert max(seen) + size <= total
    assert total >= math.prod(shape) * size


def test_what_a_format_cannot_hold() -> None:
    with pytest.raises(ValueError, match="1, 3 or 4 channels"):
        strides((1, 2, 4, 4), "int8", "DLA_HWC4")
    with pytest.raises(ValueError, match="unknown format"):
        strides((1, 2, 4, 4), "int8", "CHW64")
    with pytest.raises(ValueError, match="element size"):
        strides((1, 2, 4, 4), "complex64", "LINEAR")
    assert len(FORMATS) == 5


@pytest.mark.parametrize(
    ("form", "dtype", "role", "channels", "readers", "rule"),
    [
        ("DLA_LINEAR", "int8", "input", 64, ("SCALE",), None),
        ("DLA_LINEAR", "float16", "output", 64, (), None),
        ("DLA_LINEAR", "float32", "input", 64, (), "formats.type"),
        ("CHW16", "float16", "output", 5, (), None),
        ("CHW16", "int8", "output", 5, (), "formats.type"),
        ("CHW32", "int8", "input", 5, (), None),
        ("CHW32", "float16", "input", 5, (), "formats.type"),
        ("DLA_HWC4", "int8", "input", 3, ("CONVOLUTION", "CONVOLUTION"), None),
        ("DLA_HWC4", "int8", "input", 3, ("CONVOLUTION", "SCALE"), "formats.reader"),
        ("DLA_HWC4", "float16", "input", 4, (), None),
        ("DLA_HWC4", "int8", "input", 2, ("CONVOLUTION",), "formats.channels"),
        ("DLA_HWC4", "int8", "input", 5, ("CONVOLUTION",), "formats.channels"),
        ("DLA_HWC4", "int8", "output", 4, (), "formats.role"),
        ("LINEAR", "float16", "input", 3, (), "formats.native"),
    ],
)
def test_what_may_cross_a_border(
    form: str, dtype: str, role: str, channels: int, readers: tuple[str, ...], rule: str | None
) -> None:
    found = border_refusal(form, dtype, role, channels=channels, readers=readers)
    assert (found.rule if found else None) == rule
    if found:
        assert found.source
        assert found.fix
        assert explain(found.rule).to_json()["fix"] == found.fix


def test_unknown_words_about_formats() -> None:
    with pytest.raises(ValueError, match="unknown format"):
        border_refusal("CHW4", "int8", "input", channels=3)
    with pytest.raises(ValueError, match="unknown role"):
        border_refusal("CHW32", "int8", "inputs", channels=3)
    with pytest.raises(ValueError, match="generation"):
        strides((1, 2, 4, 4), "int8", "DLA_LINEAR", "3.0")


def test_convolutions_that_read_hwc4() -> None:
    def rule(form: str, dtype: str, reader: str, groups: int) -> str | None:
        found = border_refusal(
            form,
            dtype,
            "input",
            channels=4,
            readers=("CONVOLUTION",),
            reader_dtype=reader,
            groups=groups,
        )
        return found.rule if found else None

    assert rule("DLA_HWC4", "int8", "int8", 4) is None
    assert rule("DLA_HWC4", "int8", "int8", 5) == "convolution.groups_hwc4"
    assert rule("DLA_LINEAR", "int8", "int8", 5) is None
    assert rule("DLA_HWC4", "float16", "int8", 1) == "convolution.hwc4_type"
    assert rule("DLA_HWC4", "int8", "float16", 1) == "convolution.hwc4_type"
    assert rule("DLA_LINEAR", "float16", "int8", 1) is None
