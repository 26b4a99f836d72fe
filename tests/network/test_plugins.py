"""The user's own plugins: what they write, and how this machine runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.config.loader import parse_config
from edgekit.errors import ConfigError, EdgekitError
from edgekit.network.expressions import parse_size
from edgekit.network.functions import UserFunction
from edgekit.network.loading.load import load
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.plugins import HINT, OutputForm, Plugin, function_failure
from edgekit.network.session import session

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)
WEIGHT2 = RANDOM.standard_normal((4, 4, 1, 1)).astype(np.float32)
FOLD = """
import numpy as np

def fold(x, *, stride):
    return x[:, :, :: stride[0], :: stride[1]]

def ones(x, *, stride):
    return np.ones_like(x)

def two(x, *, stride):
    return x, x.sum(axis=(2, 3))

def text(x, *, stride):
    return "text"

def none(x, *, stride):
    return None

def half(x, *, stride):
    return x[:, :, :: stride[0], :: stride[1]].astype(np.float16)

def broken(x, *, stride):
    raise KeyError("nothing here")

def double(x, *, stride):
    return x[:, :, :: stride[0], :: stride[1]].astype(np.float64)

def scaled(x, input_scale, output_scale, stride):
    return x

def writes(x, *, stride):
    x[:] = 0
    return np.zeros((1, 4, 4, 4), np.float32)

def nan(x, *, stride):
    return x[:, :, :: stride[0], :: stride[1]] * np.nan

def larger_than_zeros(x, *, stride):
    return x[:, :, ::2, ::2] if not x.any() else x
"""


def network(folder: Path, *, domain: str = "acme", output: Sequence[int] | None = None) -> Path:
    """x, Conv, Fold and a Conv that reads it; a sum of what was before and after a second Fold."""
    fold = {"domain": domain, "stride": [2, 2], "plugin_version": "1"}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Fold", ["c"], ["f"], name="fold", **fold),
        helper.make_node("Conv", ["f", "w2"], ["d"], name="conv2"),
        helper.make_node("Fold", ["d"], ["g"], name="again", **fold),
        helper.make_node("GlobalMaxPool", ["c"], ["top"], name="top"),
        helper.make_node("Mul", ["g", "top"], ["y"], name="join"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(WEIGHT2, "w2")],
        value_info=[helper.make_tensor_value_info("f", TensorProto.FLOAT, output)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    (folder / "folds.py").write_text(FOLD)
    return path


def own(folder: Path, function: str = "fold", **given: Any) -> Plugin:
    found = None
    if function:
        found = UserFunction(
            f"folds:{function}", [folder], function_failure, hint=HINT, about="call it"
        )
    return Plugin("Fold", "acme", function=found, where="f.yaml:3:1", **given)


def stated(*sizes: int | str, dtype: str = "x0") -> tuple[OutputForm, ...]:
    read = tuple(size if isinstance(size, int) else parse_size(size) for size in sizes)
    return (OutputForm(read, dtype, tuple(f"f.yaml:9:{n}" for n in range(len(sizes)))),)


HALF = stated("x0[0]", "x0[1]", "x0[2] // stride[0]", "(x0[-1] - 1) // stride[1] + 1")


@pytest.fixture
def proto_of(tmp_path: Path) -> Callable[..., Path]:
    return lambda **given: network(tmp_path, **given)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("x0[2] * x1[0]", 32),
        ("-x0[-1] % 5", 2),
        ("min(x0[1], 2) + max(n, 9, 4)", 11),
        ("((x0[2] + 2 * pads[0] - kernel[0]) // stride[0]) + 1", 4),
        ("+n", 3),
        ("x0[n - 1]", 8),
        ("10 // 3 - 1", 2),
    ],
)
def test_an_expression_has_pythons_value(text: str, value: int) -> None:
    attributes = {"kernel": [3, 3], "stride": [2, 2], "pads": [1, 1], "n": 3}
    assert parse_size(text).value([(1, 4, 8, 8), (4,)], attributes) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x0", "x0 is an input"),
        ("1.5", "is not allowed"),
        ("x0[2] / 2", "is not allowed"),
        ("x0[2] ** 2", "is not allowed"),
        ("open('f')", "is not allowed"),
        ("x0.shape", "is not allowed"),
        ("x0[1:]", "is not allowed"),
        ("min()", "is not allowed"),
        ("True", "is not allowed"),
        ("[1]", "is not allowed"),
        ("x0[2", "is no expression"),
        ("", "is no expression"),
        ("a; b", "is no expression"),
        ("1 + " * 64 + "1", "256 characters"),
        ("min(*x0)", "is not allowed"),
        ("x0[0] if 1 else 2", "is not allowed"),
        ("'a'", "is not allowed"),
    ],
)
def test_what_is_no_expression(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x2[0]", "2 inputs, so there is no x2"),
        ("x0[4]", "no x0[4]"),
        ("x1[-2]", "no x1[-2]"),
        ("steps", "no attribute 'steps'; its whole numbers are stride, n"),
        ("stride", "stride[0]"),
        ("n[0]", "no list of whole numbers"),
        ("mode", "no whole number"),
        ("scales[0]", "no list of whole numbers"),
        ("x0[0] // (n - 3)", "divides by zero"),
        ("x0[0] % 0", "divides by zero"),
        ("steps[0]", "no attribute 'steps'"),
    ],
)
def test_an_expression_that_does_not_fit(text: str, words: str) -> None:
    attributes = {"stride": [2, 2], "n": 3, "mode": "max", "scales": [0.5]}
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_size(text).value([(1, 4, 8, 8), (4,)], attributes)
    assert words in str(caught.value)


def test_expressions_give_the_shapes_after_a_plugin(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, "", outputs=HALF)])
    assert model.graph.shape("f") == (1, 4, 4, 4)
    assert model.graph.shape("y") == (1, 4, 2, 2)
    assert not model.graph.unknown


@pytest.mark.parametrize(
    ("function", "words", "hint"),
    [
        (
            "double",
            "folds:double returned float64 for output 'f' of node 'fold' (Fold)",
            "return the input's type",
        ),
        (
            "scaled",
            "cannot be called without input_scale and output_scale",
            "input_scale=0.0, output_scale=0.0",
        ),
    ],
)
def test_a_function_that_no_network_can_be_run_with(
    proto_of: Callable[..., Path], tmp_path: Path, function: str, words: str, hint: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        load(proto_of(), plugins=[own(tmp_path, function)])
    assert caught.value.code == "model.plugin"
    assert words in caught.value.message
    assert "node 'fold' (Fold)" in caught.value.message
    assert caught.value.where == str(tmp_path / "folds.py")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("outputs", "where", "words"),
    [
        (stated(1, "x0[7]"), "f.yaml:9:1", "'x0[7]' does not fit node 'fold' (Fold): x0 has 4"),
        (stated(1, "x0[1] - 4"), "f.yaml:9:1", "node 'fold' (Fold) is 0"),
        (stated(1, "stride"), "f.yaml:9:1", "its attribute 'stride' is a list"),
        (HALF + HALF, "f.yaml:3:1", "node 'fold' (Fold) has 1 outputs, but"),
    ],
)
def test_outputs_that_do_not_fit_name_node_and_place(
    proto_of: Callable[..., Path], tmp_path: Path, outputs: Any, where: str, words: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        load(proto_of(), plugins=[own(tmp_path, outputs=outputs)])
    assert (caught.value.code, caught.value.where) == ("model.plugin", where)
    assert words in caught.value.message


def test_a_file_that_says_another_shape_is_refused(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(EdgekitError, match=r"makes 'f' \[1, 4, 4, 4\], but the file says"):
        load(proto_of(output=[1, 4, 9, 9]), plugins=[own(tmp_path, outputs=HALF)])


@pytest.mark.parametrize(
    ("plugin", "hint"),
    [
        (Plugin("Fould"), "'acme::Fold'"),
        (Plugin("Fold", "acne"), "'acme::Fold'"),
        (Plugin("Convv"), "'Conv'"),
        (Plugin("Unlike", "other"), "op_type"),
    ],
)
def test_an_operator_that_the_network_lacks(
    proto_of: Callable[..., Path], plugin: Plugin, hint: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        load(proto_of(), plugins=[plugin])
    assert caught.value.code == "model.plugin"
    assert plugin.title in caught.value.message
    assert hint in caught.value.hint


def test_a_built_in_network_lacks_an_operator_likewise(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(
        "version: 1\nname: net\nmodel: {builtin: light_squeezenet, plugins: [Foo]}\n"
        "target: jetson-agx-orin-64gb\n"
    )
    for command in (edgekit.check, edgekit.plan):
        with pytest.raises(EdgekitError) as caught:
            command(path)
        assert caught.value.code == "model.plugin"
        assert "has no operator 'Foo'" in caught.value.message


@pytest.mark.parametrize(("key", "value"), [("version", "2"), ("namespace", "edgekit")])
def test_a_plugin_that_the_parser_would_not_find(
    proto_of: Callable[..., Path], tmp_path: Path, key: str, value: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        load(proto_of(), plugins=[own(tmp_path, outputs=HALF, **{key: value})])
    assert f"plugin_{key}" in caught.value.message
    assert f"plugin_{key}={value!r}" in caught.value.hint
    there = {"version": "1", "namespace": ""}[key]
    assert f"or write {key}: {there!r} here" in caught.value.hint


def test_tensorrt_11_takes_the_domain_as_namespace(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, outputs=HALF, namespace="acme")])
    assert not model.graph.unknown


def test_a_network_runs_through_its_plugins(proto_of: Callable[..., Path], tmp_path: Path) -> None:
    model = load(proto_of(), plugins=[own(tmp_path)])
    assert before_opaque(model) is model
    x = RANDOM.standard_normal((1, 3, 8, 8)).astype(np.float32)
    whole = session(model, outputs=["c", "g", "y"])
    c, g, y = whole.run(["c", "g", "y"], {"x": x})
    second = np.einsum("oi,nihw->nohw", WEIGHT2[:, :, 0, 0], c[:, :, ::2, ::2])
    assert np.allclose(g, second[:, :, ::2, ::2], rtol=1e-5, atol=1e-5)
    assert np.allclose(y, g * c.max(axis=(2, 3), keepdims=True), rtol=1e-5)
    (described,) = whole.get_inputs()
    assert (described.name, described.type, described.shape) == ("x", "tensor(float)", [1, 3, 8, 8])


def test_what_no_output_needs_does_not_run(proto_of: Callable[..., Path], tmp_path: Path) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, "broken", outputs=HALF)])
    feed = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    assert session(model, outputs=["top"]).run(None, feed)[0].shape == (1, 4, 1, 1)


def test_a_function_reads_weights(tmp_path: Path) -> None:
    weight = RANDOM.standard_normal((1, 4, 8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Scaled", ["c", "s"], ["y"], name="own", domain="acme"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(weight, "s")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    (tmp_path / "own.py").write_text("def scaled(x, s):\n    return x * s\n")
    (tmp_path / "net.yaml").write_text(
        "version: 1\nname: net\nmodel:\n  onnx: net.onnx\n  plugins:\n"
        "    - {operator: 'acme::Scaled', python: 'own:scaled'}\n"
        "target: jetson-agx-orin-64gb\nprecision: fp16\n"
    )
    assert edgekit.build(tmp_path / "net.yaml").accuracy.cosine > 0.9999
    function = UserFunction(
        "own:scaled", [tmp_path], function_failure, hint=HINT, about="call it by itself"
    )
    own = Plugin("Scaled", "acme", function=function)
    whole = session(load(tmp_path / "net.onnx", plugins=[own]), outputs=["c", "y"])
    # whoever gets the memory of a model that is gone writes into it
    others = [np.full(weight.shape, np.nan, np.float32) for _ in range(64)]
    before, after = whole.run(None, {"x": RANDOM.standard_normal((1, 3, 8, 8), np.float32)})
    np.testing.assert_array_equal(after, before * weight)
    assert len(others) == 64


def test_without_a_function_the_part_before_it_runs(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, "", outputs=HALF)])
    assert before_opaque(model).graph.outputs == ("c", "top")


@pytest.mark.parametrize(
    ("function", "words", "hint"),
    [
        (
            "ones",
            "returned float32 [1, 4, 8, 8] for output 'f', which is float32 [1, 4, 4, 4]",
            "correct the function, or 'outputs' of its plugin (f.yaml:3:1)",
        ),
        (
            "half",
            "returned float16 [1, 4, 4, 4] for output 'f', which is float32",
            "correct the function, or 'outputs'",
        ),
        ("two", "returned 2 arrays for 1 outputs", "a tuple of arrays"),
        ("text", "a value of type str", "returns an array"),
        ("none", "returned None", "returns an array"),
        ("broken", "folds:broken failed: KeyError: 'nothing here'", "call it"),
        ("missing", "has no function 'missing'", ""),
    ],
)
def test_a_wrong_result_names_node_function_and_file(
    proto_of: Callable[..., Path], tmp_path: Path, function: str, words: str, hint: str
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, function, outputs=HALF)])
    with pytest.raises(EdgekitError) as caught:
        session(model).run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})
    assert caught.value.code == "model.plugin"
    assert words in caught.value.message
    assert "node 'fold' (Fold)" in caught.value.message
    assert f"{tmp_path / 'folds.py'}" in caught.value.where
    assert hint in caught.value.hint


def test_a_shape_that_depends_on_values_is_refused_when_it_runs(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, "larger_than_zeros")])
    with pytest.raises(EdgekitError, match=r"float32 \[1, 4, 8, 8\] for output 'f'") as caught:
        session(model).run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})
    assert "may not depend on the values" in caught.value.hint


def test_a_function_cannot_change_what_others_read(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    model = load(proto_of(), plugins=[own(tmp_path, "writes", outputs=HALF)])
    whole = session(model, outputs=["c", "f"])
    c, f = whole.run(["c", "f"], {"x": np.ones((1, 3, 8, 8), np.float32)})
    assert c.any()
    assert not f.any()


CONFIG = """version: 1
name: net
model:
  onnx: net.onnx
  plugins:
    - {operator: acme::Fold, %s}
target: jetson-agx-orin-64gb
calibration: {count: 2}
"""


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("outputs: [{shape: [1, 'x0']}]", "x0 is an input"),
        ("outputs: [{shape: ['open(1)']}]", "is not allowed"),
        ("outputs: [{shape: [0]}]", "at least 1"),
        ("outputs: [{shape: [1], type: float64}]", "float16"),
        ("formats: [int8]", "formats"),
        ("python: folds", "python"),
        ("library: a.so, source: a", "'library' or 'source'"),
        ("outputs: [], typo: 1", "typo"),
    ],
)
def test_a_wrong_section_is_an_error_of_its_line(keys: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(CONFIG % keys, "f.yaml", Path())
    assert words in str(caught.value)
    assert all(problem.where.startswith("f.yaml:6:") for problem in caught.value.problems)


def test_an_operator_has_one_plugin() -> None:
    text = CONFIG % "version: '1'"
    text = text.replace("target", "    - acme::Fold\ntarget")
    with pytest.raises(ConfigError, match="'acme::Fold' is listed twice"):
        parse_config(text, "f.yaml", Path())


def test_a_function_that_makes_nan_is_what_to_correct(
    proto_of: Callable[..., Path], tmp_path: Path
) -> None:
    proto_of()
    path = tmp_path / "net.yaml"
    path.write_text(CONFIG % "python: 'folds:nan'")
    with pytest.raises(EdgekitError, match=r"node 'fold' .* from folds:nan") as caught:
        edgekit.calibrate(path)
    assert caught.value.code == "calibration.nonfinite"
    assert caught.value.where == str(tmp_path / "folds.py")
    assert "correct the function" in caught.value.hint
    assert "preprocessing" not in caught.value.hint


def test_a_changed_function_is_measured_anew(proto_of: Callable[..., Path], tmp_path: Path) -> None:
    proto_of()
    path = tmp_path / "net.yaml"
    path.write_text(CONFIG % "python: 'folds:fold', formats: ['fp16:chw']")

    def scale() -> float:
        return float(edgekit.calibrate(path).scales["g"])

    before = scale()
    assert scale() == before
    (tmp_path / "other").mkdir()
    changed = FOLD.replace(":: stride[1]]", ":: stride[1]] * 2", 1)
    (tmp_path / "other" / "doubled.py").write_text(changed)
    path.write_text(CONFIG % "python: 'other.doubled:fold', formats: ['fp16:chw']")
    assert scale() == pytest.approx(4 * before, rel=0.01)
