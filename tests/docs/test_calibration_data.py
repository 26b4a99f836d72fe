"""The examples of docs/calibration.md on calibration data run as they stand."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from edgekit.cli import main
from edgekit.config.loader import parse_config
from edgekit.quantize.data.images import IMAGE_OPTIONS, IMAGE_SUFFIXES, PRESETS, ImageOptions
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
SECTION = re.search(r"\n## Calibration data\n(.*?)(?=\n## |\Z)", PAGE, re.S)[1]


FIRST = PAGE.split("\n## ")[0]


def blocks(language: str, text: str = SECTION) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


LINES = [line for block in blocks("sh", FIRST + SECTION) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    small_net(path / "model.onnx")
    random = np.random.default_rng(0)
    np.savez(path / "samples.npz", x=random.standard_normal((8, 3, 16, 16)))
    (path / "images").mkdir()
    for index in range(3):
        pixels = random.integers(0, 256, (300, 280, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path / "images" / f"{index}.jpg")
    (code,) = blocks("python")
    (path / "feed.py").write_text(code)
    yield path
    sys.modules.pop("feed", None)


@pytest.mark.parametrize("line", LINES)
def test_example(line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "kept"))
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q", "--json"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    document = json.loads(captured.out)
    assert arguments[arguments.index("--data") + 1] in document["data"]
    assert document["scales"]["x"] > 0


def test_the_configuration_is_valid():
    (text,) = blocks("yaml")
    start = "version: 1\nname: n\nmodel: {onnx: m.onnx}\ntarget: jetson-agx-orin-64gb\n"
    section = parse_config(start + text, "page", Path()).file.calibration
    assert (section.preset, section.resize) == ("imagenet", 256)


def test_the_tables_have_every_key_and_preset():
    keys, presets = re.findall(r"\| (?:Key|Preset) \|.*\n\|[-|]+\n((?:\|.*\n)+)", SECTION)
    named = {key for row in keys.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == IMAGE_OPTIONS
    reported = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)`", presets, re.M))
    for name, preset in PRESETS.items():
        assert ImageOptions(**yaml.safe_load(f"{{{reported[name]}}}")) == preset
    assert reported.keys() == PRESETS.keys()
    assert all(f"`{suffix}`" in SECTION for suffix in IMAGE_SUFFIXES)
