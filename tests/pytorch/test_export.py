"""A module becomes an ONNX file with names, by exporter and opset of the target's TensorRT."""

import ast

import numpy as np
import onnx
import onnxruntime
import pytest

import edgekit
from edgekit.errors import EnvironmentLack, ModelError, UsageError

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"


def scopes(model):
    """Module path by node."""
    found = {}
    for node in model.graph.node:
        facts = {one.key: one.value for one in node.metadata_props}
        if "pkg.torch.onnx.name_scopes" in facts:
            found[node.name] = ast.literal_eval(facts["pkg.torch.onnx.name_scopes"])[-2]
    return found


def opset(model):
    return next(one.version for one in model.opset_import if not one.domain)


def ran(file, *inputs):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    feed = {
        one.name: value.numpy() for one, value in zip(session.get_inputs(), inputs, strict=True)
    }
    return session.run(None, feed)


@pytest.mark.slow
def test_a_module_by_the_exporter_of_programs(nets, tmp_path):
    module, x = nets.lenet(), nets.image()
    made = edgekit.export(module, (x,), target=ORIN, save=tmp_path / "lenet.onnx")
    model = onnx.load(made.file)
    assert (made.exporter, made.opset, opset(model)) == ("dynamo", 18, 18)
    assert [(one.name, one.shape, one.type) for one in made.inputs] == [
        ("x", [1, 1, 32, 32], "float32")
    ]
    assert [(one.name, one.shape) for one in made.outputs] == [("output", [1, 10])]
    assert [one.name for one in model.graph.input] == ["x"]
    assert {"feat.conv1", "feat.conv2", "classifer.fc3"} <= set(scopes(model).values())
    assert made.agreement.inputs == 3
    assert made.agreement.difference < 1e-5 < made.agreement.tolerance
    other = nets.image(7)
    np.testing.assert_allclose(ran(made.file, other)[0], module(other).detach(), atol=1e-5)

    again = edgekit.export(module, x, target=ORIN)
    assert again.cached
    assert not made.cached
    assert (again.structure, again.weights) == (made.structure, made.weights)

    trained = edgekit.export(nets.lenet(seed=5), (x,), target=ORIN)
    assert not trained.cached
    assert trained.structure == made.structure
    assert trained.weights != made.weights


@pytest.mark.slow
def test_an_old_release_gets_an_old_opset_and_keeps_the_names(nets):
    made = edgekit.export(nets.Recurrent(), (nets.torch.randn(1, 5, 8),), target=XAVIER)
    model = onnx.load(made.file)
    assert (made.exporter, made.opset, opset(model)) == ("dynamo", 17, 17)
    assert any("opset 18 to 17" in note and "8.5.2" in note for note in made.notes)
    assert {"cells", "head"} <= set(scopes(model).values())


@pytest.mark.slow
def test_an_old_release_gets_no_operator_that_its_parser_lacks(nets):
    nn = nets.torch.nn
    module, x = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)), nets.torch.randn(2, 4)
    made = edgekit.export(module, x, target=XAVIER)
    assert (made.exporter, made.opset) == ("legacy", 16)
    assert any("8.5.2 has no LayerNormalization" in note for note in made.notes)
    assert edgekit.export(module, x, target=ORIN, exporter="legacy").opset == 17


def test_the_legacy_exporter_on_request(nets):
    module, x = nets.lenet(), nets.image()
    made = edgekit.export(module, x, target=ORIN, exporter="legacy")
    model = onnx.load(made.file)
    assert (made.exporter, opset(model)) == ("legacy", 17)
    assert "/feat/conv1/Conv" in {node.name for node in model.graph.node}
    np.testing.assert_allclose(ran(made.file, x)[0], module(x).detach(), atol=1e-5)
    other = edgekit.export(nets.lenet(3), x, target=ORIN, exporter="legacy")
    assert (other.structure == made.structure, other.weights == made.weights) == (True, False)


def test_a_network_with_the_sizes_of_its_inputs(nets):
    sizes = {"x": "1x1x32x32:float32"}
    made = edgekit.export(nets.lenet(), inputs=sizes, target=ORIN, exporter="legacy")
    assert made.inputs[0].shape == [1, 1, 32, 32]
    with pytest.raises(UsageError, match="no input 'y'") as refused:
        edgekit.export(nets.lenet(), inputs={"y": "1x3"}, target=ORIN)
    assert refused.value.hint == "the inputs are x"
    with pytest.raises(UsageError, match="not the size of an input"):
        edgekit.export(nets.lenet(), inputs={"x": "1x1x32x32:letters"}, target=ORIN)


def test_a_program_is_exported_with_its_own_example(nets):
    torch = nets.torch
    program = torch.export.export(nets.lenet(), (nets.image(),), strict=False)
    made = edgekit.export(program, target=ORIN, exporter="legacy")
    assert (made.kind, made.source) == ("program", "tests.pytorch.nets.LeNet")
    assert [one.name for one in made.inputs] == ["x"]


def test_a_program_of_a_module_in_training_is_refused(nets):
    torch = nets.torch
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    program = torch.export.export(module, (torch.randn(2, 4),), strict=False)
    with pytest.raises(ModelError, match="training mode") as refused:
        edgekit.export(program, target=ORIN)
    assert "model.eval()" in refused.value.hint


def test_sizes_that_are_no_dimensions_are_refused_with_what_to_give(nets):
    with pytest.raises(UsageError, match="no Dim") as refused:
        edgekit.export(nets.lenet(), (nets.image(),), target=ORIN, dynamic_shapes={"x": {0: "n"}})
    assert "x 1x1x32x32:float32" in refused.value.hint
    with pytest.raises(UsageError) as refused:
        edgekit.export(
            nets.lenet(), kwargs={"x": nets.image()}, target=ORIN, dynamic_shapes={"x": {0: "n"}}
        )
    assert "x 1x1x32x32:float32" in refused.value.hint


def test_what_is_no_network_is_refused(nets):
    with pytest.raises(UsageError, match="an object of dict"):
        edgekit.export({}, (nets.image(),), target=ORIN)
    with pytest.raises(UsageError, match="no exporter 'tf'"):
        edgekit.export(nets.lenet(), (nets.image(),), target=ORIN, exporter="tf")
    with pytest.raises(UsageError, match="no tensor among"):
        edgekit.export(nets.lenet(), target=ORIN)


def test_without_pytorch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentLack) as lack:
        edgekit.export(object(), target=ORIN)
    assert lack.value.code == "torch.missing"
    assert "edgekit[torch]" in lack.value.hint
