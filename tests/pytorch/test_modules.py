"""Modules as they really are: training mode, buffers, nested inputs and outputs, short types; and
what no network can express, by source line.
"""

import inspect

import numpy as np
import onnxruntime
import pytest

import edgekit
from edgekit.errors import ModelError, UsageError

ORIN = "jetson-agx-orin-64gb"


def exported(module, args, kwargs=None, exporter="legacy"):
    return edgekit.export(module, args, kwargs, target=ORIN, exporter=exporter)


def line_of(nets, owner, text):
    """Returns "nets.py:12" of a line of a class."""
    lines, start = inspect.getsourcelines(owner)
    at = next(number for number, line in enumerate(lines) if text in line)
    return f"{nets.__file__}:{start + at}"


def test_a_module_in_training_is_copied_and_does_not_change(nets):
    torch = nets.torch
    module = nets.Counted().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    keys, gradients = set(vars(module)), torch.is_grad_enabled()
    made = exported(module, (torch.randn(2, 3, 8, 8),))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training
    assert module.inner[1].training
    assert set(vars(module)) == keys
    assert torch.is_grad_enabled() == gradients
    assert all(one.grad is None and one.requires_grad for one in module.parameters())
    assert any("training mode" in note for note in made.notes)
    assert any("buffer 'calls'" in note and "fixed" in note for note in made.notes)


def test_nested_inputs_and_outputs_have_names(nets):
    torch = nets.torch
    batch, mask = {"image": torch.randn(1, 3, 8, 8)}, torch.ones(1, 1, 8, 8)
    module = nets.Nested()
    made = exported(module, (batch,), {"scale": 2.0, "mask": mask})
    assert [one.name for one in made.inputs] == ["batch_image", "mask"]
    names = ["out", "more_0_where", "more_0_score", "image"]
    assert [one.name for one in made.outputs] == names
    assert "fixed in the network: scale=2.0" in made.notes
    result = made.result
    assert (result.kind, result.keys) == ("dict", ["out", "more", "image"])
    pair, nothing, text = result.items[1].items
    assert (pair.kind, pair.keys, pair.type) == ("tuple", ["where", "score"], "Boxes")
    assert (nothing.value, text.value) == (None, "classes")
    session = onnxruntime.InferenceSession(made.file, providers=["CPUExecutionProvider"])
    feed = {"batch_image": batch["image"].numpy(), "mask": mask.numpy()}
    found = dict(zip(names, session.run(names, feed), strict=True))
    with torch.no_grad():
        expected = module(batch, scale=2.0, mask=mask)
    np.testing.assert_allclose(found["out"], expected["out"], atol=1e-5)
    np.testing.assert_allclose(found["more_0_score"], expected["more"][0].score, atol=1e-5)
    np.testing.assert_array_equal(found["image"], batch["image"])


def test_an_lstm_with_and_without_its_state(nets):
    torch = nets.torch
    x, state = torch.randn(1, 5, 8), (torch.randn(1, 1, 16), torch.randn(1, 1, 16))
    made = exported(nets.Recurrent(), (x, state))
    assert [one.name for one in made.inputs] == ["x", "state_0", "state_1"]
    assert [one.name for one in made.outputs] == ["output_0", "output_1_0", "output_1_1"]
    assert [one.name for one in exported(nets.Recurrent(), (x,)).inputs] == ["x"]


@pytest.mark.parametrize(("kind", "file"), [("float16", "float16"), ("bfloat16", "float32")])
def test_modules_of_short_types(nets, kind, file):
    dtype = getattr(nets.torch, kind)
    made = exported(nets.lenet().to(dtype), (nets.image().to(dtype),))
    assert [(one.type, one.torch_type) for one in made.inputs] == [(file, kind)]
    assert [(one.type, one.torch_type) for one in made.outputs] == [(file, kind)]
    assert made.agreement.difference <= made.agreement.tolerance < 0.1
    assert any("bfloat16" in note for note in made.notes) == (kind == "bfloat16")


def test_a_module_in_channels_last(nets):
    last = nets.torch.channels_last
    made = exported(nets.lenet().to(memory_format=last), (nets.image().to(memory_format=last),))
    assert made.inputs[0].shape == [1, 1, 32, 32]


def test_attention_is_exported_as_operators_of_onnx(nets):
    enabled = nets.torch.backends.mha.get_fastpath_enabled()
    made = exported(nets.Attends().eval(), (nets.torch.randn(1, 5, 8),))
    assert made.agreement.difference <= made.agreement.tolerance
    assert nets.torch.backends.mha.get_fastpath_enabled() == enabled


def test_an_operator_deep_inside_is_named_by_its_whole_path(nets):
    inner = nets.Around(nets.Eigenvalues())
    with pytest.raises(ModelError, match=r"module 'blocks\.1\.blocks\.1' \(Eigenvalues\)") as no:
        exported(nets.Around(inner), (nets.torch.randn(4, 4),))
    assert 'leave=["blocks.1.blocks.1"]' in no.value.hint


def test_a_branch_on_sizes_is_no_control_flow(nets):
    made = exported(nets.Sizes(), (nets.torch.randn(1, 5),))
    assert made.outputs[0].shape == [1, 3]


def test_what_depends_on_earlier_calls_or_chance_is_refused(nets):
    x = nets.torch.randn(2, 4)
    with pytest.raises(ModelError, match="buffer 'mean'") as refused:
        exported(nets.Remembering(), (x,))
    assert refused.value.code == "torch.state"
    with pytest.raises(ModelError, match="random") as refused:
        exported(nets.Dropping(), (x,))
    assert refused.value.code == "torch.random"


@pytest.mark.parametrize("exporter", ["legacy", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_control_flow_is_refused_by_source_line(nets, exporter):
    with pytest.raises(ModelError) as refused:
        exported(nets.Around(nets.Router()), (nets.torch.randn(4, 4),), exporter=exporter)
    error = refused.value
    assert error.code == "torch.control_flow"
    assert "module 'blocks.1' (Router)" in error.message
    assert error.where == line_of(nets, nets.Router, "x.sum() > 0")
    assert 'leave=["blocks.1"]' in error.hint
    if exporter == "dynamo":
        second = line_of(nets, nets.Router, "x.max() > 1")
        assert any(second in line for line in error.details)


@pytest.mark.parametrize("exporter", ["legacy", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_an_operator_without_onnx_is_named_with_its_module(nets, capfd, exporter):
    with pytest.raises(
        ModelError, match=r"linalg_eig.* in module 'blocks.1' \(Eigenvalues\)"
    ) as no:
        exported(nets.Around(nets.Eigenvalues()), (nets.torch.randn(4, 4),), exporter=exporter)
    assert no.value.code == "torch.operator"
    assert line_of(nets, nets.Eigenvalues, "eigvals") in no.value.message
    assert 'leave=["blocks.1"]' in no.value.hint
    assert capfd.readouterr() == ("", "")


def test_an_example_that_does_not_fit_is_named_with_its_place(nets):
    with pytest.raises(UsageError, match=r"'feat\.conv1'") as refused:
        exported(nets.lenet(), (nets.torch.randn(1, 3, 32, 32),))
    assert "1x3x32x32:float32" in refused.value.hint


def test_inputs_that_a_module_writes_to_stay_as_they_are(nets):
    x = nets.torch.randn(2, 4)
    before = x.clone()
    made = exported(nets.Writing(), (x,))
    assert nets.torch.equal(x, before)
    assert any("input 'x': written to by each call" in note for note in made.notes)
    session = onnxruntime.InferenceSession(made.file, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], (before + 1) * 2)


def test_the_legacy_exporter_keeps_inputs_that_nothing_reads_and_sizes_that_are_no_tensors(nets):
    torch = nets.torch
    args = (torch.randn(3), torch.randn(2, 4), torch.randint(0, 3, (2,)))
    made = exported(nets.Mixed(), args)
    inputs = [(one.name, one.shape, one.type) for one in made.inputs]
    assert inputs[0] == ("before", [3], "float32")
    assert inputs[2] == ("after", [2], "int64")
    assert [one.name for one in made.outputs] == ["output_0", "output_2"]
    assert made.result.items[1].value == 2


@pytest.mark.parametrize("how", ["numpy", "list"])
def test_values_that_python_reads_are_refused_by_source_line(nets, how):
    with pytest.raises(ModelError) as refused:
        exported(nets.Around(nets.Reading(how)), (nets.torch.randn(4, 4),))
    assert refused.value.code == "torch.control_flow"
    text = "x.numpy()" if how == "numpy" else "x.tolist()"
    assert refused.value.where == line_of(nets, nets.Reading, text)


def test_an_output_whose_size_depends_on_values_is_refused_by_source_line(nets):
    with pytest.raises(ModelError, match="decide the size") as refused:
        exported(nets.Around(nets.Selecting(False)), (nets.torch.randn(4, 4),))
    assert refused.value.code == "torch.dynamic_shapes"
    assert refused.value.where == line_of(nets, nets.Selecting, "x[x > 0]")
    made = exported(nets.Selecting(True), (nets.torch.randn(4, 4),))
    assert made.outputs[0].shape == []


@pytest.mark.slow
def test_gradients_that_are_switched_on_and_off(nets):
    made = exported(nets.Gradients(), (nets.torch.randn(2, 4),), exporter="dynamo")
    assert made.agreement.difference <= made.agreement.tolerance


def test_complex_numbers_are_refused(nets):
    class Spectrum(nets.torch.nn.Module):
        def forward(self, x):
            return nets.torch.fft.fft(x)

    with pytest.raises(ModelError, match="complex") as refused:
        exported(Spectrum(), (nets.torch.randn(4, 4),))
    assert "view_as_real" in refused.value.hint


def test_an_object_is_opened_once_its_class_is_registered(nets):
    torch = nets.torch
    args = (torch.randn(2), nets.Pair(torch.randn(2), torch.randn(2)))
    with pytest.raises(UsageError, match="object of Pair") as refused:
        exported(nets.OfPairs(), args)
    assert "register_dataclass" in refused.value.hint
    torch.export.register_dataclass(nets.Pair)
    made = exported(nets.OfPairs(), args)
    assert [one.name for one in made.inputs] == ["x", "pair_left", "pair_right"]


def test_a_compiled_or_parallel_module_is_the_one_inside_it(nets):
    nn = nets.torch.nn
    inner = nn.Sequential(nn.Linear(4, 4), nets.torch.compile(nn.Linear(4, 4), backend="eager"))
    made = exported(nn.DataParallel(inner), (nets.torch.randn(2, 4),))
    assert made.source == "torch.nn.modules.container.Sequential"
    assert {one.module for one in edgekit.check(made.file, target=ORIN).modules} >= {"0", "1"}
    assert type(inner[1]).__name__ == "OptimizedModule"


def test_hooks_of_the_network_itself_see_its_own_arguments_and_result(nets):
    nn = nets.torch.nn
    module, x = nn.Sequential(nn.Linear(4, 4)), nets.torch.randn(2, 4)
    module.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    module.register_forward_hook(lambda _, args, result: {"sum": result + args[0]})
    made = exported(module, (x,))
    assert [one.name for one in made.outputs] == ["sum"]
    session = onnxruntime.InferenceSession(made.file, providers=["CPUExecutionProvider"])
    wanted = module(x)["sum"].detach()
    np.testing.assert_allclose(session.run(None, {"input": x.numpy()})[0], wanted, atol=1e-5)
