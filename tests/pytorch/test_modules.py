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
