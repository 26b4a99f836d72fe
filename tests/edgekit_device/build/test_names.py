"""Which builder layer stands for which of the plan's."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.config import set_precisions
from edgekit_device.build.network import BuilderLayer, map_layers, read_layers
from edgekit_device.build.request import LayerSpec
from tests.edgekit_device.build import toys
from tests.trt_double import double


def spec(name: str, *nodes: str, kind: str = "ELEMENTWISE", device: str = "DLA") -> LayerSpec:
    return LayerSpec(name, name, nodes or (name,), kind, device, "int8")


def built(
    *rows: tuple[str, str, str, str, str],
) -> list[BuilderLayer]:
    """Rows of (name, kind, metadata's nodes, inputs, outputs), blanks between several."""
    return [
        BuilderLayer(n, name, kind, tuple(nodes.split()), tuple(i.split()), tuple(o.split()), None)
        for n, (name, kind, nodes, i, o) in enumerate(rows)
    ]


def devices(found: Any) -> dict[str, str]:
    return {found.layers[index].name: device for index, device in found.device.items()}


def test_names_metadata_and_taken_names() -> None:
    layers = built(
        ("a", "CONVOLUTION", "", "x", "t"),
        ("other", "ACTIVATION", "b", "t", "u"),
        ("c_7", "ACTIVATION", "", "u", "v"),
        ("d", "POOLING", "", "v", "w"),
    )
    found = map_layers(layers, [spec("a"), spec("b"), spec("c"), spec("d", device="GPU")])
    assert {layers[i].name: ours.name for i, ours in found.ours.items()} == {
        "a": "a",
        "other": "b",
        "c_7": "c",
        "d": "d",
    }
    assert (found.unmapped, found.lost) == ([], [])


def test_a_node_called_like_a_taken_name_is_itself() -> None:
    layers = built(("a_1", "ACTIVATION", "", "x", "y"), ("a", "ACTIVATION", "", "y", "z"))
    found = map_layers(layers, [spec("a", device="GPU"), spec("a_1")])
    assert devices(found) == {"a_1": "DLA", "a": "GPU"}


def test_metadata_tell_a_nodes_further_layer_from_a_node_of_its_name() -> None:
    """The parser calls HardSwish's second layer "n0_5", and the next node has that name itself."""
    layers = built(
        ("n0", "ACTIVATION", "n0", "x", "t"),
        ("n0_5", "ELEMENTWISE", "n0", "x t", "u"),
        ("n0_5_6", "CONVOLUTION", "n0_5", "u", "y"),
    )
    ours = [
        spec("n0", kind="ACTIVATION", device="GPU"),
        spec("n0_1", "n0", device="GPU"),
        spec("n0_5", kind="CONVOLUTION"),
    ]
    found = map_layers(layers, ours)
    assert devices(found) == {"n0": "GPU", "n0_5": "GPU", "n0_5_6": "DLA"}
    assert [found.ours[n].name for n in range(3)] == ["n0", "n0_1", "n0_5"]
    assert (found.unmapped, found.lost) == ([], [])


def test_what_is_inserted_follows_its_readers_or_else_its_writers() -> None:
    layers = built(
        ("w", "CONSTANT", "", "", "k"),
        ("(Unnamed Layer* 1) [Shuffle]", "SHUFFLE", "", "k", "s"),
        ("add", "ELEMENTWISE", "", "x s", "y"),
        ("reshape_after_add", "SHUFFLE", "", "y", "out"),
        ("alone", "SHUFFLE", "", "q", "r"),
    )
    found = map_layers(layers, [spec("add")])
    assert devices(found) == dict.fromkeys(
        ("w", "(Unnamed Layer* 1) [Shuffle]", "add", "reshape_after_add"), "DLA"
    )
    assert found.unmapped == ["alone"]


def test_a_chain_after_what_follows_its_writer_is_followed_too() -> None:
    layers = built(
        ("fc", "MATRIX_MULTIPLY", "", "x", "m"),
        ("bias", "CONSTANT", "", "", "b"),
        ("(Unnamed Layer* 2) [Shuffle]", "SHUFFLE", "", "b", "b4"),
        ("(Unnamed Layer* 3) [ElementWise]", "ELEMENTWISE", "", "m b4", "y"),
    )
    found = map_layers(layers, [spec("fc", device="GPU")])
    assert set(devices(found).values()) == {"GPU"}
    assert found.unmapped == []


def test_what_a_node_does_without_a_name_is_its_layers() -> None:
    """A Gemm's products and its bias have no name: the tensors inside of it tell whose they are."""
    inside = [f"(Unnamed Layer* {n}) [Some]_output" for n in range(6)]
    rows = (
        ("fc", "MATRIX_MULTIPLY", "fc", ["x"], [inside[0]]),
        ("alpha", "CONSTANT", "", [], [inside[1]]),
        ("(Unnamed Layer* 2) [ElementWise]", "ELEMENTWISE", "", inside[:2], [inside[2]]),
        ("beta", "CONSTANT", "", [], [inside[3]]),
        ("(Unnamed Layer* 4) [ElementWise]", "ELEMENTWISE", "", [inside[3], "b"], [inside[4]]),
        ("(Unnamed Layer* 5) [ElementWise]", "ELEMENTWISE", "", [inside[2], inside[4]], ["y"]),
        ("soft", "SOFTMAX", "soft", ["y"], ["z"]),
        ("(Unnamed Layer* 7) [ElementWise]", "ELEMENTWISE", "", ["z"], ["not inside"]),
        ("last", "SOFTMAX", "last", ["not inside"], ["out"]),
    )
    layers = [
        BuilderLayer(n, name, kind, tuple(nodes.split()), tuple(i), tuple(o), None)
        for n, (name, kind, nodes, i, o) in enumerate(rows)
    ]
    ours = [spec("fc", device="GPU"), spec("soft"), spec("last", device="GPU")]
    found = map_layers(layers, ours)
    assert {n: own.name for n, own in found.parts.items()} == {2: "fc", 4: "fc", 5: "fc"}
    assert {found.device[n] for n in range(6)} == {"GPU"}
    assert found.device[7] == "GPU"
    assert set(found.work()) == {"fc", "soft", "last"}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0"])
def test_a_bias_has_its_gemms_precision_and_device(version: str, precision: str) -> None:
    trt = double.module(version)
    log = BuilderLog(trt, lambda line: None)
    network = trt.Builder(log.logger).create_network(1)
    assert trt.OnnxParser(network, log.logger).parse(toys.toy_onnx())
    layers = [*(toys.layer(n, "DLA") for n in (*toys.ON_DLA, "pool", "flatten"))]
    given = toys.spec(toys.engine(layers=[*layers, toys.layer("fc", "GPU", precision)]))
    mapped = map_layers(read_layers(network), given.layers)
    set_precisions(trt, given, mapped)
    (bias,) = (x for x in mapped.layers if "y" in x.outputs)
    assert (bias.kind, mapped.device[bias.index]) == ("ELEMENTWISE", "GPU")
    # no scale is known inside of an INT8 Gemm
    assert bias.layer.precision_is_set == (precision != "int8")
    if precision != "int8":
        assert bias.layer.precision.name == {"fp32": "FLOAT", "fp16": "HALF"}[precision]


def test_a_node_of_several_layers_gives_each_its_own() -> None:
    """A Sum of three is two additions, both called as the node."""
    layers = built(
        ("sum", "ELEMENTWISE", "sum", "x y", "t"), ("sum_0", "ELEMENTWISE", "sum", "t z", "u")
    )
    ours = [spec("sum", device="DLA"), spec("sum:1", "sum", device="GPU")]
    found = map_layers(layers, ours)
    assert [found.ours[n].name for n in (0, 1)] == ["sum", "sum:1"]


def test_work_is_what_has_our_kind() -> None:
    layers = built(
        ("fc", "MATRIX_MULTIPLY", "fc", "x w", "m"),
        ("fc_w", "CONSTANT", "fc", "", "w"),
        ("fc_b", "ELEMENTWISE", "fc", "m", "y"),
        ("conv", "CONVOLUTION", "conv", "y", "z"),
    )
    found = map_layers(layers, [spec("fc", kind="CONVOLUTION"), spec("conv", kind="CONVOLUTION")])
    work = {name: [layer.name for layer in own] for name, own in found.work().items()}
    assert work == {"fc": ["fc", "fc_b"], "conv": ["conv"]}
    assert set(found.exact()) == {"conv"}


def test_layers_of_ours_that_nothing_stands_for_are_named() -> None:
    inserted = LayerSpec("reshape_after_a", "reshape_after_a", (), "SHUFFLE", "GPU", "int8")
    ours = [spec("a"), spec("gone"), inserted]
    found = map_layers(built(("a", "ACTIVATION", "", "x", "y")), ours)
    assert found.lost == ["gone"]


def test_the_inside_of_a_loop_is_on_the_gpu_as_its_border() -> None:
    """As NVIDIA's parser writes them: the loop's own layers have no node's name."""
    layers = built(
        ("stem", "CONVOLUTION", "stem", "x", "s"),
        ("(Unnamed Layer* 1) [TripLimit]", "TRIP_LIMIT", "", "n", ""),
        ("(Unnamed Layer* 2) [Recurrence]", "RECURRENCE", "", "s b", "a"),
        ("inner", "CONVOLUTION", "inner", "a", "c"),
        ("act", "ACTIVATION", "act", "c", "b"),
        ("(Unnamed Layer* 5) [LoopOutput]", "LOOP_OUTPUT", "", "a", "y0"),
        ("head", "CONVOLUTION", "head", "y0", "y"),
    )
    ours = [spec("stem"), spec("loop", kind="LOOP", device="GPU"), spec("head")]
    found = map_layers(layers, ours)
    assert {name for name, device in devices(found).items() if device == "DLA"} == {"stem", "head"}
    assert (found.unmapped, found.lost) == ([], [])


def test_the_branches_of_a_conditional_are_on_the_gpu() -> None:
    """TensorRT 11 adds graph and node to the metadata of what is in a branch."""

    class Layer:
        def __init__(self, kind: str, name: str, metadata: str, read: str, written: str) -> None:
            self.name, self.metadata = name, f"[ONNX Layer: {metadata}]"
            self.type = type("Type", (), {"name": kind})
            self._read, self._written = read.split(), written.split()
            self.num_inputs, self.num_outputs = len(self._read), len(self._written)

        def get_input(self, index: int) -> Any:
            return type("Tensor", (), {"name": self._read[index]})

        def get_output(self, index: int) -> Any:
            return type("Tensor", (), {"name": self._written[index]})

    inside = " | more (then_branch) | if (If)"
    rows = [
        Layer("CONVOLUTION", "stem", "stem", "x", "s"),
        Layer("CONDITION", "(Unnamed Layer* 1) [IfCondition]", "if", "c", ""),
        Layer("CONDITIONAL_INPUT", "s_InputLayer", f"if{inside}", "s", "i"),
        Layer("CONVOLUTION", "inner", f"inner{inside}", "i", "t"),
        Layer("CONDITIONAL_OUTPUT", "if_OutputLayer", "if", "t e", "y0"),
        Layer("CONVOLUTION", "head", "head", "y0", "y"),
    ]

    class Network:
        num_layers = len(rows)

        def get_layer(self, index: int) -> Layer:
            return rows[index]

    ours = [spec("stem"), spec("if", kind="CONDITION", device="GPU"), spec("head")]
    found = map_layers(read_layers(Network()), ours)
    assert found.layers[3].nodes == ("inner",)
    assert {name for name, device in devices(found).items() if device == "DLA"} == {"stem", "head"}
    assert (found.unmapped, found.lost) == ([], [])
