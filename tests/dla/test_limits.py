"""Both sides of every limit, on hand-made layers: what is at the limit passes, one beyond fails."""

from typing import Any

import pytest

from edgekit.targets.loader import get
from tests.dla.one_layer import DRIVE, ORIN, XAVIER, convolution, rules_of, verdict

CONV = "CONVOLUTION"
DECONV = "DECONVOLUTION"

BOTH_SIDES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("convolution.kernel", CONV, convolution((32, 32), channels=4),
     convolution((33, 32), channels=4)),
    ("convolution.padding", CONV, convolution((32, 32), channels=4, pads=(31, 31, 31, 31)),
     convolution((32, 32), channels=4, pads=(0, 0, 32, 0))),
    ("convolution.padding_kernel", CONV, convolution((3, 3), pads=(2, 2, 2, 2)),
     convolution((3, 3), pads=(0, 3, 0, 0))),
    ("convolution.padding_kernel", CONV, convolution((3, 3), dilation=(2, 2), pads=(4, 4, 4, 4)),
     convolution((3, 3), dilation=(2, 2), pads=(0, 5, 0, 0))),
    ("convolution.stride", CONV, convolution(stride=(8, 8)), convolution(stride=(1, 9))),
    ("convolution.dilation", CONV, convolution(dilation=(32, 32)), convolution(dilation=(33, 1))),
    ("convolution.output_maps", CONV, convolution(maps=8192), convolution(maps=8193)),
    ("convolution.groups", CONV, convolution(groups=8192), convolution(groups=8193)),
    ("convolution.dims", CONV, convolution(), convolution((3, 3, 3), size=(8, 8, 8))),
    ("convolution.weights", CONV, convolution(),
     convolution(inputs=[(1, 64, 16, 16), (64, 64, 3, 3)])),
    ("general.batch", CONV, convolution(inputs=[(4096, 64, 16, 16)]),
     convolution(inputs=[(4097, 64, 16, 16)])),
    ("general.dimension", "ACTIVATION", {"function": "RELU", "inputs": [(1, 8192, 1, 1)]},
     {"function": "RELU", "inputs": [(1, 8193, 1, 1)]}),
    ("general.type", "ACTIVATION", {"function": "RELU", "dtype": "float16"},
     {"function": "RELU", "dtype": "int64"}),
    ("deconvolution.kernel", DECONV, convolution((1, 128)), convolution((1, 127))),
    ("deconvolution.kernel", DECONV, convolution((32, 1)), convolution((33, 1))),
    ("deconvolution.stride", DECONV, convolution(stride=(96, 1)), convolution(stride=(95, 1))),
    ("deconvolution.square_kernel", DECONV, convolution((22, 22)), convolution((23, 23))),
    ("deconvolution.square_kernel", DECONV, convolution((32, 31)), convolution((32, 32))),
    ("deconvolution.square_stride", DECONV, convolution(stride=(22, 22)),
     convolution(stride=(23, 23))),
    ("deconvolution.padding", DECONV, convolution(), convolution(pads=(0, 0, 1, 0))),
    ("deconvolution.groups", DECONV, convolution(), convolution(groups=2)),
    ("deconvolution.dilation", DECONV, convolution(), convolution(dilation=(1, 2))),
    ("pooling.window", "POOLING", {"mode": "MAX", "kernel": (8, 8)},
     {"mode": "MAX", "kernel": (9, 8)}),
    ("pooling.padding", "POOLING", {"mode": "MAX", "kernel": (8, 8), "pads": (7, 7, 7, 7)},
     {"mode": "MAX", "kernel": (8, 8), "pads": (8, 0, 0, 0)}),
    ("pooling.stride", "POOLING", {"mode": "MAX", "kernel": (2, 2), "stride": (16, 16)},
     {"mode": "MAX", "kernel": (2, 2), "stride": (17, 1)}),
    ("pooling.function", "POOLING", {"mode": "AVERAGE", "kernel": (2, 2)},
     {"mode": "MAX_AVERAGE_BLEND", "kernel": (2, 2)}),
    ("activation.function", "ACTIVATION", {"function": "LEAKY_RELU"}, {"function": "ELU"}),
    ("activation.clip_upper", "ACTIVATION", {"function": "CLIP", "alpha": 0.0, "beta": 127.0},
     {"function": "CLIP", "alpha": 0.0, "beta": 127.5}),
    ("activation.clip_upper", "ACTIVATION", {"function": "CLIP", "alpha": 0.0, "beta": 1.0},
     {"function": "CLIP", "alpha": 0.0, "beta": 0.5}),
    ("activation.clip_lower", "ACTIVATION", {"function": "CLIP", "alpha": 0.0, "beta": 6.0},
     {"function": "CLIP", "alpha": -1.0, "beta": 6.0}),
    ("prelu.slope", "PARAMETRIC_RELU", {}, {"inputs": [(1, 64, 16, 16)] * 2}),
    ("elementwise.function", "ELEMENTWISE", {"function": "SUB"}, {"function": "XOR"}),
    ("elementwise.broadcast", "ELEMENTWISE",
     {"function": "SUM", "inputs": [(2, 64, 16, 16), (2, 64, 1, 1)]},
     {"function": "SUM", "inputs": [(2, 64, 16, 16), (2, 64, 1, 16)]}),
    ("elementwise.broadcast", "ELEMENTWISE",
     {"function": "SUM", "inputs": [(2, 64, 16, 16), (2, 1, 1, 1)]},
     {"function": "SUM", "inputs": [(2, 64, 16, 16), (1, 64, 1, 1)]}),
    ("scale.mode", "SCALE", {"mode": "CHANNEL"}, {"mode": "ROW"}),
    ("scale.power", "SCALE", {"mode": "CHANNEL", "power": 1.0}, {"mode": "CHANNEL", "power": 2.0}),
    ("lrn.window", "LRN", {"window": 9}, {"window": 11}),
    ("concatenation.axis", "CONCATENATION", {"axis": 1, "inputs": [(1, 32, 16, 16)] * 2},
     {"axis": 2, "inputs": [(1, 64, 8, 16)] * 2}),
    ("concatenation.inputs", "CONCATENATION", {"axis": 1, "inputs": [(1, 32, 16, 16)] * 2},
     {"axis": 1}),
    ("resize.sizes", "RESIZE", {"mode": "NEAREST", "scales": (1.0, 1.0, 2.0, 2.0)},
     {"mode": "NEAREST", "scales": (1.0, 1.0, 2.0, 2.0), "sizes": (1, 64, 32, 32)}),
    ("resize.scales", "RESIZE", {"mode": "NEAREST", "scales": (1.0, 1.0, 2.0, 2.0)},
     {"mode": "NEAREST", "scales": (1.0, 2.0, 2.0, 2.0)}),
    ("resize.integers", "RESIZE", {"mode": "NEAREST", "scales": (1.0, 1.0, 2.0, 2.0)},
     {"mode": "NEAREST", "scales": (1.0, 1.0, 2.0, 2.5)}),
    ("resize.nearest_scale", "RESIZE", {"mode": "NEAREST", "scales": (1.0, 1.0, 32.0, 32.0)},
     {"mode": "NEAREST", "scales": (1.0, 1.0, 33.0, 1.0)}),
    ("resize.linear_scale", "RESIZE", {"mode": "LINEAR", "scales": (1.0, 1.0, 4.0, 4.0)},
     {"mode": "LINEAR", "scales": (1.0, 1.0, 5.0, 1.0)}),
    ("resize.mode", "RESIZE", {"mode": "LINEAR", "scales": (1.0, 1.0, 4.0, 4.0)},
     {"mode": "CUBIC", "scales": (1.0, 1.0, 4.0, 4.0)}),
    ("slice.stride", "SLICE", {"starts": (0, 0, 0, 0), "sizes": (1, 2, 2, 2), "strides": (1,) * 4},
     {"starts": (0, 0, 0, 0), "sizes": (1, 2, 2, 2), "strides": (1, 1, 2, 1)}),
    ("slice.batch", "SLICE", {"starts": (0, 1, 0, 0), "sizes": (1, 2, 2, 2)},
     {"starts": (0, 1, 0, 0), "sizes": (0, 2, 2, 2)}),
    ("slice.rank", "SLICE", {}, {"inputs": [(1, 2, 3, 4, 5)]}),
    ("slice.mode", "SLICE", {"mode": "WRAP"}, {"mode": "REFLECT"}),
    ("slice.fill", "SLICE", {"mode": "FILL", "value": 0.0}, {"mode": "FILL", "value": 1.0}),
    ("softmax.axis", "SOFTMAX", {"axis": 1}, {"axis": 0}),
    ("softmax.size", "SOFTMAX", {"axis": 1, "inputs": [(1, 8192, 1, 1)]},
     {"axis": 1, "inputs": [(1, 8192, 1, 2)]}),
    ("softmax.size", "SOFTMAX", {"axis": 1, "inputs": [(4, 8192, 1, 1)]},
     {"axis": 1, "inputs": [(4, 1025, 2, 1)]}),
    ("softmax.size", "SOFTMAX", {"axis": 3, "inputs": [(1, 2, 2, 1024)]},
     {"axis": 3, "inputs": [(1, 2, 2, 1025)]}),
    ("unary.function", "UNARY", {"function": "ABS"}, {"function": "EXP"}),
    ("shuffle.rank", "SHUFFLE", {"mode": "RESHAPE"}, {"mode": "RESHAPE", "output": (1, 16384)}),
    ("shuffle.batch", "SHUFFLE", {"mode": "TRANSPOSE", "perm": (0, 2, 1, 3)},
     {"mode": "TRANSPOSE", "perm": (1, 0, 2, 3)}),
    ("shuffle.mode", "SHUFFLE", {"mode": "RESHAPE"}, {"mode": "DEPTH_TO_SPACE"}),
    ("reduce.function", "REDUCE", {"function": "MAX", "axes": (2, 3)},
     {"function": "AVG", "axes": (2, 3)}),
    ("reduce.axes", "REDUCE", {"function": "MAX", "axes": (1,)}, {"function": "MAX", "axes": (0,)}),
    ("reduce.rank", "REDUCE", {"function": "MAX", "axes": (2, 3), "output": (1, 64, 1, 1)},
     {"function": "MAX", "axes": (2, 3), "output": (1, 64)}),
]  # fmt: skip


@pytest.mark.parametrize("precision", ["int8", "fp16"])
@pytest.mark.parametrize(("rule", "kind", "inside", "beyond"), BOTH_SIDES)
def test_both_sides(
    rule: str, kind: str, inside: dict[str, Any], beyond: dict[str, Any], precision: str
) -> None:
    good = verdict(kind, precision=precision, **inside)
    assert good.ok, good.reasons
    bad = verdict(kind, precision=precision, **beyond)
    assert not bad.ok
    assert rule in rules_of(bad)
    for reason in bad.reasons:
        assert all((reason.message, reason.found, reason.limit, reason.source, reason.fix))


@pytest.mark.parametrize("kind", ["CONSTANT", "MATRIX_MULTIPLY", "TOPK", "GATHER", "PLUGIN_V2"])
def test_kinds_that_no_dla_has(kind: str) -> None:
    assert not verdict(kind).ok


def test_fp32_never_runs_on_a_dla() -> None:
    found = verdict("ACTIVATION", function="RELU", precision="fp32")
    assert not found.ok
    assert rules_of(found) == {"general.fp32"}


@pytest.mark.parametrize(
    ("board", "tensorrt", "drives"),
    [
        (ORIN, "8.5.2", True),
        (ORIN, "10.3.0.30", True),
        (ORIN, "10.7", True),
        (ORIN, "10.7.0", True),
        (ORIN, "10.8", False),
        (ORIN, "11.3", False),
        (ORIN, "11.4.0", False),
        (ORIN, "11.4.1", True),
        ("jetson-orin-nx-16gb", "10.7", True),
        ("jetson-orin-nx-16gb", "11.4.1", False),
        (XAVIER, "8.5.2", True),
        (XAVIER, "8.6.2", False),
        (XAVIER, "10.3", False),
        ("jetson-orin-nano-8gb", "10.3", False),
        ("jetson-agx-thor", "11.4.1", False),
    ],
)
def test_which_tensorrt_drives_which_dla(board: str, tensorrt: str, drives: bool) -> None:
    found = verdict("ACTIVATION", function="RELU", board=board, tensorrt=tensorrt, precision="fp16")
    assert found.ok is drives
    if not drives and get(board).dla.cores:
        assert rules_of(found) == {"general.tensorrt"}
        assert found.reasons[0].found == f"TensorRT {tensorrt.removesuffix('.0')} on {board}"


def test_average_pooling_on_xavier_counts_its_padding() -> None:
    pool = {"mode": "AVERAGE", "kernel": (3, 3), "board": XAVIER, "precision": "fp16"}
    padded = {**pool, "pads": (1, 1, 1, 1)}
    refused = verdict("POOLING", **padded, count_include_pad=False)
    assert rules_of(refused) == {"pooling.inclusive"}
    assert verdict("POOLING", **padded, count_include_pad=True).ok
    assert verdict("POOLING", **pool, pads=(0, 0, 0, 0), count_include_pad=False).ok
    on_orin = {**padded, "board": ORIN}
    assert verdict("POOLING", **on_orin, count_include_pad=False).ok


def test_softmax_runs_on_orin_only() -> None:
    assert verdict("SOFTMAX", axis=1).ok
    assert rules_of(verdict("SOFTMAX", axis=1, board=XAVIER)) == {"softmax.generation"}


@pytest.mark.parametrize(
    ("kind", "params", "since", "before"),
    [
        ("ELEMENTWISE", {"function": "DIV"}, "8.6.12", "8.6.2"),
        ("ELEMENTWISE", {"function": "POW", "uniform_constant": True}, "8.6.12", "8.6.2"),
        ("UNARY", {"function": "SIN"}, "8.6.12", "8.6.2"),
        ("UNARY", {"function": "ATAN"}, "8.6.12", "8.6.2"),
        ("REDUCE", {"function": "MAX", "axes": (2, 3)}, "8.6.12", "8.6.2"),
        ("ELEMENTWISE", {"function": "SUB", "board": XAVIER}, "8.0", "7.1"),
        (
            "ACTIVATION",
            {"function": "RELU", "inputs": [(33, 64, 16, 16)], "board": XAVIER},
            "8.0",
            "7.1",
        ),
        (
            "RESIZE",
            {
                "mode": "LINEAR",
                "scales": (1.0, 1.0, 2.0, 2.0),
                "coordinates": "HALF_PIXEL",
                "selector": "FORMULA",
            },
            "8.5.2",
            "8.4.1",
        ),
    ],
)
def test_since_which_release(kind: str, params: dict[str, Any], since: str, before: str) -> None:
    params = {"board": DRIVE, **params}
    assert verdict(kind, tensorrt=since, **params).ok
    assert not verdict(kind, tensorrt=before, **params).ok


@pytest.mark.parametrize(
    ("coordinates", "selector", "rounding", "ok"),
    [
        ("ASYMMETRIC", "FORMULA", "FLOOR", True),
        ("HALF_PIXEL", "FORMULA", "HALF_DOWN", True),
        ("HALF_PIXEL", "FORMULA", "HALF_UP", True),
        ("HALF_PIXEL", "FORMULA", "FLOOR", False),
        ("ASYMMETRIC", "FORMULA", "HALF_DOWN", False),
        ("ALIGN_CORNERS", "FORMULA", "FLOOR", False),
    ],
)
def test_resize_combinations(coordinates: str, selector: str, rounding: str, ok: bool) -> None:
    found = verdict(
        "RESIZE",
        mode="NEAREST",
        scales=(1.0, 1.0, 2.0, 2.0),
        coordinates=coordinates,
        selector=selector,
        rounding=rounding,
    )
    assert found.ok is ok


def test_int8_only_functions() -> None:
    assert verdict("UNARY", function="COS", precision="int8").ok
    refused = verdict("UNARY", function="COS", precision="fp16")
    assert not refused.ok
    assert rules_of(refused) == {"unary.int8"}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("ELEMENTWISE", {"function": "MIN", "op": "Min"}),
        ("UNARY", {"function": "ATAN", "op": "Atan"}),
        ("UNARY", {"function": "ATANH", "op": "Atanh"}),
        ("ELEMENTWISE", {"function": "POW", "op": "Pow"}),
        ("REDUCE", {"function": "MAX", "axes": (1,), "op": "ReduceMax"}),
        ("SLICE", {"mode": "FILL", "value": 0.0, "op": "Pad"}),
        ("SLICE", {"mode": "WRAP"}),
        ("SHUFFLE", {"mode": "TRANSPOSE", "perm": (0, 2, 1, 3), "board": XAVIER}),
        ("CONVOLUTION", convolution(channels=512, size=(80, 160), precision="fp16")),
    ],
)
def test_allowed_but_disputed(kind: str, params: dict[str, Any]) -> None:
    found = verdict(kind, **params)
    assert found.ok
    assert found.certainty == "disputed"
    for reason in found.reasons:
        assert ";" in reason.source  # both sides are named


def test_disputed_refusals() -> None:
    flatten = verdict("SHUFFLE", mode="RESHAPE", output=(1, 16384), op="Flatten")
    assert (flatten.ok, flatten.certainty) == (False, "disputed")
    low = verdict("UNARY", function="ABS", inputs=[(1, 64)], output=(1, 64))
    assert (low.ok, low.certainty) == (False, "disputed")
    average = verdict("REDUCE", function="AVG", axes=(2, 3), output=(1, 64), op="ReduceMean")
    assert (average.ok, average.certainty) == (False, "certain")


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("ACTIVATION", {"function": "RELU", "inputs": [(1, 64)], "output": (1, 64)}),
        ("ELEMENTWISE", {"function": "SUM", "inputs": [(1, 9, 8), (1, 9, 8)], "output": (1, 9, 8)}),
    ],
)
def test_below_four_dimensions_the_builder_counts_what_no_plan_places(
    kind: str, params: dict[str, Any]
) -> None:
    found = verdict(kind, **params)
    assert (found.ok, found.placeable, found.certainty) == (True, False, "disputed")
    assert [reason.rule for reason in found.reasons] == ["general.rank_shuffles"]


def test_the_operator_matrix_lends_its_fix() -> None:
    found = verdict("UNARY", function="NEG", op="Neg")
    assert "op_reconstruction/Neg.py" in found.reasons[0].fix
