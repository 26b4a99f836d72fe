"""``edgekit init`` writes a configuration that is valid."""

import re

import onnx
import pytest
from onnx import helper

from edgekit.config.loader import load_config
from edgekit.config.template import write_template
from edgekit.errors import ModelError, UsageError
from tests import exports
from tests.network.onnx_making import make
from tests.pipeline.nets import small_net


def test_a_model_next_to_it_or_elsewhere(tmp_path):
    (tmp_path / "nets").mkdir()
    small_net(tmp_path / "nets" / "My Net.onnx")
    path = write_template(
        str(tmp_path / "nets" / "My Net.onnx"), "jetson-agx-xavier", tmp_path / "c.yaml"
    )
    config = load_config(path)
    assert config.file.name == "my-net"
    assert config.file.target == "jetson-agx-xavier"
    assert config.resolve(config.file.model.onnx).exists()


def test_open_sizes_are_named(tmp_path):
    def write(*sizes):
        net = make([helper.make_node("Relu", ["in: 0"], ["y"])], {"in: 0": sizes}, ["y"])
        onnx.save(net, tmp_path / "open.onnx")

    write("N", 3, 8, 8)
    path = write_template(str(tmp_path / "open.onnx"), "jetson-agx-orin-64gb", tmp_path / "c.yaml")
    model = load_config(path).file.model
    # the batch alone is open: a shape would not let --batch give another
    assert (model.batch, model.shapes) == (1, {})
    write("N", 3, "h", 8)
    write_template(
        str(tmp_path / "open.onnx"), "jetson-agx-orin-64gb", tmp_path / "c.yaml", overwrite=True
    )
    assert load_config(path).file.model.shapes == {"in: 0": [1, 3, 224, 8]}
    write(2, 3, "h", 8)
    write_template(
        str(tmp_path / "open.onnx"),
        "jetson-agx-orin-64gb",
        tmp_path / "c.yaml",
        batch=4,
        overwrite=True,
    )
    assert load_config(path).file.model.shapes == {"in: 0": [2, 3, 224, 8]}


def test_a_recognised_head_cuts_the_network(tmp_path):
    onnx.save(exports.load("yolo11n"), tmp_path / "yolo.onnx")
    small_net(tmp_path / "other.onnx")
    yolo, other = (
        write_template(str(tmp_path / f"{name}.onnx"), "jetson-agx-orin-64gb", tmp_path / name)
        for name in ("yolo", "other")
    )
    assert load_config(yolo).file.model.head == "auto"
    assert load_config(other).file.model.head is None
    # the commented settings are valid, too
    text = re.sub(r"^# (?=calibration|accuracy|detection)", "", yolo.read_text(), flags=re.M)
    yolo.write_text(text)
    file = load_config(yolo).file
    assert (file.accuracy.metric, file.calibration.data) == ("boxes", "images/")
    assert "as those of Ultralytics" in text


def test_a_builtin_with_a_seed(tmp_path):
    path = write_template("builtin:light_vgg19?seed=3", "jetson-agx-orin-64gb", tmp_path / "c.yaml")
    config = load_config(path)
    assert (config.file.model.builtin, config.file.model.seed) == ("light_vgg19", 3)
    assert config.file.name == "light_vgg19"


def test_an_existing_file_stays(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("mine")
    with pytest.raises(UsageError):
        write_template("builtin:light_vgg19", "jetson-agx-orin-64gb", path)
    assert path.read_text() == "mine"
    write_template("builtin:light_vgg19", "jetson-agx-orin-64gb", path, overwrite=True)
    assert "light_vgg19" in path.read_text()


def test_wrong_board_and_wrong_model(tmp_path):
    with pytest.raises(UsageError):
        write_template("builtin:light_vgg19", "jetson-tx9", tmp_path / "c.yaml")
    with pytest.raises(ModelError):
        write_template(str(tmp_path / "none.onnx"), "jetson-agx-xavier", tmp_path / "c.yaml")
    assert list(tmp_path.iterdir()) == []
