"""The commands and the code of docs/yolo.md run as they stand, on a trained detector."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
import edgekit_device
from edgekit.cli import main
from edgekit.quantize.data.images import ImageOptions, Preprocess, read_image
from tests.boards.fixtures import home, need_sshd
from tests.exports import load

__all__ = ["home"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "yolo.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()
]


def run(capsys: pytest.CaptureFixture[str], line: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main(shlex.split(line)[1:])
    shown = capsys.readouterr()
    assert caught.value.code == 0, shown.err
    return " ".join((shown.out + shown.err).split())


def test_the_head_of_an_export_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(load("yolov8n"), tmp_path / "yolov8n.onnx")
    monkeypatch.chdir(tmp_path)
    install, check, _ = COMMANDS
    assert install == "pip install ."
    shown = run(capsys, check)
    (note,) = re.findall(r"```text\nnote: (.*)\n```", PAGE)
    begin, _, end = note.partition("n, 80 classes")
    assert re.search(f"{begin}.*{re.escape(end)}", shown)


@pytest.mark.whole
def test_boxes_come_onto_a_picture_and_out_of_the_loader(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_sshd()
    shutil.copy(ROOT / "examples/detection/shapes.onnx", tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples/detection")
    shapes = __import__("shapes")
    for folder, count, first in (("calibration", 16, 0), ("held-out", 5, 5000)):
        shapes.write(tmp_path / "out" / folder, count, first)
    sys.modules.pop("shapes")
    (config,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (tmp_path / "yolo.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    line = COMMANDS[-1]
    shown = run(capsys, line)
    assert "square 0.8" in shown
    drawn = tmp_path / "edgekit-out/yolo/05003-detected.png"
    pixels = read_image(drawn)
    assert pixels.size == read_image(ROOT / "docs/images/detections.png").size

    edgekit.bundle("yolo.yaml", out=tmp_path / "b", full=tmp_path / "bundle.ekb")
    prepare = Preprocess.of(ImageOptions(preset="yolo"), (96, 96, 3), True, np.dtype(np.float32))
    frame = prepare(read_image(Path(shlex.split(line)[-1])))[0][None]
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    loaded = edgekit_device.load
    monkeypatch.setattr(edgekit_device, "load", lambda path: loaded(path, trust_unsigned=True))
    exec(code, {"frame": frame})
    assert "square" in capsys.readouterr().out
