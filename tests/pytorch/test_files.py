"""Files and factories: a child process loads and exports them, and nothing is unpickled unasked."""

import hashlib
import io
import os
import warnings
import zipfile

import pytest

import edgekit
from edgekit.errors import ModelError, UsageError

ORIN = "jetson-agx-orin-64gb"


class Command:
    """What runs a command where it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def program(nets, tmp_path):
    """A file of torch.export."""
    path = tmp_path / "lenet.pt2"
    made = nets.torch.export.export(nets.lenet(), (nets.image(),), strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets.torch.export.save(made, path)
    return path


def pickled(nets, path, value):
    nets.torch.save(value, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_program_is_exported_and_kept(program, tmp_path):
    made = edgekit.export(program, target=ORIN, save=tmp_path / "lenet.onnx")
    assert (made.kind, made.source, made.exporter) == ("program", "lenet.pt2", "dynamo")
    assert made.file == str(tmp_path / "lenet.onnx")
    assert [one.name for one in made.inputs] == ["x"]
    again = edgekit.export(program, target=ORIN)
    assert again.cached
    assert again.weights == made.weights


@pytest.mark.slow
def test_a_program_whose_example_is_a_pickle_is_not_loaded(nets, program, tmp_path):
    mark, evil = tmp_path / "ran", tmp_path / "evil.pt2"
    content = io.BytesIO()
    nets.torch.save(Command(f"touch {mark}"), content)
    with zipfile.ZipFile(program) as before, zipfile.ZipFile(evil, "w") as after:
        for entry in before.infolist():
            sample = "sample_inputs" in entry.filename
            after.writestr(entry.filename, content.getvalue() if sample else before.read(entry))
    with pytest.raises(ModelError) as refused:
        edgekit.export(evil, target=ORIN)
    assert refused.value.code == "torch.untrusted"
    assert hashlib.sha256(evil.read_bytes()).hexdigest() in refused.value.hint
    assert not mark.exists()


@pytest.mark.slow
def test_a_torchscript_file_by_the_legacy_exporter(nets, tmp_path):
    path = tmp_path / "lenet.torchscript"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets.torch.jit.trace(nets.lenet(), nets.image()).save(path)
    made = edgekit.export(path, (nets.image(),), target=ORIN)
    assert (made.kind, made.exporter, made.opset) == ("torchscript", "legacy", 17)
    assert any("deprecated TorchScript" in note for note in made.notes)


@pytest.mark.slow
def test_a_factory_gives_a_module_and_its_example(nets):
    factory = "tests.pytorch.nets:lenet_with_example"
    made = edgekit.export(factory, target=ORIN, exporter="legacy")
    assert (made.kind, made.source) == ("module", factory)
    assert made.inputs[0].shape == [1, 1, 32, 32]


@pytest.mark.slow
def test_a_factory_that_fails_is_named_with_its_line(nets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_nets.py").write_text("def make():\n    raise RuntimeError('no weights here')\n")
    with pytest.raises(ModelError, match="no weights here") as refused:
        edgekit.export("my_nets:make", inputs={"x": "1x4"}, target=ORIN)
    assert refused.value.code == "torch.factory"
    assert refused.value.where.endswith("my_nets.py:2")
    with pytest.raises(ModelError, match="No module named 'none'") as refused:
        edgekit.export("none.at.all:make", inputs={"x": "1x4"}, target=ORIN)
    assert refused.value.where == "none.at.all:make"


@pytest.mark.slow
def test_a_pickle_is_loaded_with_its_digest_alone(nets, tmp_path):
    path = tmp_path / "lenet.pt"
    digest = pickled(nets, path, nets.lenet())
    with pytest.raises(ModelError, match="a PyTorch pickle") as refused:
        edgekit.export(path, (nets.image(),), target=ORIN)
    assert refused.value.code == "torch.untrusted"
    assert digest in refused.value.hint
    with pytest.raises(UsageError, match=digest):
        edgekit.export(path, (nets.image(),), target=ORIN, trust="0" * 64)
    made = edgekit.export(path, (nets.image(),), target=ORIN, trust=digest, exporter="legacy")
    assert made.source == "lenet.pt"


@pytest.mark.parametrize("old", [False, True])
def test_a_file_of_weights_is_refused_with_what_to_do(nets, tmp_path, old):
    path = tmp_path / "weights.pth"
    state = nets.lenet().state_dict()
    nets.torch.save(state, path, _use_new_zipfile_serialization=not old)
    with pytest.raises(ModelError, match="weights without a network") as refused:
        edgekit.export(path, (nets.image(),), target=ORIN)
    assert "load_state_dict" in refused.value.hint


def test_an_ultralytics_checkpoint_is_refused_with_what_to_do(nets, tmp_path):
    path = tmp_path / "yolo.pt"
    # protocol 2: GLOBAL, an empty tuple, REDUCE
    code = b"\x80\x02cultralytics.nn.tasks\nDetectionModel\n)R."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("yolo/data.pkl", code)
    with pytest.raises(ModelError, match="an Ultralytics checkpoint") as refused:
        edgekit.export(path, (nets.image(),), target=ORIN)
    assert "export(format='onnx')" in refused.value.hint


def test_what_is_no_file_of_pytorch(nets, tmp_path):
    text = tmp_path / "net.py"
    text.write_text("import torch\n")
    with pytest.raises(UsageError, match="no PyTorch file"):
        edgekit.export(text, (nets.image(),), target=ORIN)
    with pytest.raises(ModelError, match="does not exist"):
        edgekit.export(tmp_path / "none.pt2", (nets.image(),), target=ORIN)
