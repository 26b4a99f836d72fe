"""Calibration data through the command line and the configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import edgekit
from edgekit.cli import main
from edgekit.errors import DataError
from edgekit.quantize.calibration.measure import measure
from edgekit.quantize.data.load import load_data
from tests.pipeline.nets import small_net
from tests.quantize.quantize_nets import make, node

FEED = """\
import numpy as np
print("made by the user")
def batches():
    for i in range(5):
        yield np.full((2, 3, 16, 16), {value} / (i + 1), np.float32) * np.linspace(0, 1, 16)
"""
START = ["calibrate", "model.onnx", "-t", "jetson-agx-orin-64gb"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "model.onnx")
    (tmp_path / "images").mkdir()
    for index in range(6):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 24, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    yield tmp_path
    sys.modules.pop("h2pipefeed", None)


@pytest.fixture
def run(folder, capsys):
    def reported(*arguments: str, status: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "-q"])
        captured = capsys.readouterr()
        assert caught.value.code == status, captured.err
        assert "Traceback" not in captured.err
        return captured.out, captured.err

    return reported


def scales(reported: tuple[str, str]) -> dict[str, float]:
    found: dict[str, float] = json.loads(reported[0])["scales"]
    return found


def test_options_of_the_command_are_keys_of_the_configuration(folder, run) -> None:
    options = {
        "count": 5,
        "pick": "spread",
        "resize": 18,
        "crop": 16,
        "pad": 9,
        "color": "BGR",
        "interpolation": "area",
        "scale": 2.0,
        "mean": [1.0, 2.0, 3.0],
        "std": [4.0],
        "layout": "NCHW",
        "skip_broken": True,
    }
    arguments = []
    for key, value in options.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        arguments += [f"--{key.replace('_', '-')}"] + ([] if value is True else [text])
    by_options = scales(run(*START, "--data", "images", *arguments, "--json"))
    config = {
        "version": 1,
        "name": "net",
        "model": {"onnx": "../model.onnx"},
        "target": "jetson-agx-orin-64gb",
        "calibration": {"data": "../images", **options},
    }
    (folder / "sub").mkdir()
    (folder / "sub" / "net.yaml").write_text(yaml.safe_dump(config))
    by_file = scales(run("calibrate", "sub/net.yaml", "--json"))
    by_call = edgekit.calibrate(
        "model.onnx",
        target="jetson-agx-orin-64gb",
        calibration={"data": str(folder / "images"), **options},
    ).to_json()["scales"]
    assert by_options == by_file == by_call
    assert by_options["x"] * 127 == pytest.approx((255 * 2 - 1) / 4, rel=0.05)


def test_a_function_next_to_the_configuration(folder, run, monkeypatch) -> None:
    # bytecode is told from its source by size and second: both are the same here
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "sub").mkdir()
    module = folder / "sub" / "h2pipefeed.py"
    (folder / "sub" / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: ../model.onnx}\ntarget: jetson-agx-orin-64gb\n"
        "calibration: {data: 'python:h2pipefeed:batches', method: minmax}\n"
    )
    found = []
    for value in (1.0, 1.0, 3.0):  # run, kept, and run again as the file has changed
        if not module.exists() or f", {value}," not in module.read_text():
            module.write_text(FEED.format(value=value))
            sys.modules.pop("h2pipefeed", None)
        out, err = run("calibrate", "sub/net.yaml", "--json")
        assert "only in the module file" in " ".join(json.loads(out)["notes"])
        found.append((scales((out, err))["x"], "made by the user" in err))
    assert found == [
        (np.float32(1 / 127), True),
        (np.float32(1 / 127), False),
        (np.float32(3 / 127), True),
    ]


def test_a_function_of_the_current_folder(folder, run) -> None:
    (folder / "h2pipefeed.py").write_text("def f():\n    yield [1.0]\n    return 1 / 0\n")
    _, err = run(*START, "--data", "python:h2pipefeed:f", status=2)
    assert "h2pipefeed:f[0]: input 'x' has shape [1]" in err
    (folder / "h2pipefeed.py").write_text("def f():\n    return 1 / 0\n")
    sys.modules.pop("h2pipefeed")
    _, err = run(*START, "--data", "python:h2pipefeed:f", status=2)
    assert f"{folder / 'h2pipefeed.py'}:2: python:h2pipefeed:f failed: ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mean", "a"), "--mean 'a' is not a list of numbers"),
        (("--resize", "big"), "cover, letterbox, stretch"),
        (("--resize", "18x"), "cover, letterbox, stretch"),
        (("--pad", "1.5"), "pad"),
        (("--crop", "1.5"), "0.875"),
        (("--preset", "yollo"), "yolo"),
        (("--count", "0"), "0 is too small (at least 1)"),
        (("--layout", "NHWC"), "16 channels"),
    ],
)
def test_options_that_make_no_sense(run, arguments, words) -> None:
    _, err = run(*START, "--data", "images", *arguments, status=2)
    assert words in err


def test_broken_images_are_reported_of_or_left_out(folder, run) -> None:
    (folder / "images" / "3.png").write_bytes(b"")
    _, err = run(*START, "--data", "images", status=2)
    assert f"{folder / 'images' / '3.png'}: cannot read the image" in err
    out, _ = run(*START, "--data", "images", "--skip-broken", "--json")
    assert "images are skipped" in " ".join(json.loads(out)["notes"])


def test_the_same_images_in_another_batch_size_have_the_same_ranges(folder) -> None:
    def ranges(batch: int):
        model, _ = make(
            [node("Relu", "x", "r"), node("MaxPool", "r", "y", kernel_shape=[2, 2])],
            {},
            {"x": [batch, 3, 16, 16]},
            ["y"],
        )
        data = load_data({"data": folder / "images", "mean": [0.5], "count": 5}, model)
        return measure(model, data).amax

    one = ranges(1)
    assert set(one) == {"entropy", "minmax", "percentile", "mse"}
    for batch in (2, 4, 16):
        assert ranges(batch) == one


def test_inference_takes_arrays_as_they_are(folder) -> None:
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.pipeline.steps.bench import inference_inputs

    array = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    np.save(folder / "x.npy", array)
    with Pipeline(open_config("model.onnx", target="jetson-agx-orin-64gb")) as pipeline:
        assert np.array_equal(inference_inputs(pipeline.context, folder / "x.npy")["x"], array[:1])
        with pytest.raises(DataError, match="does not exist"):
            inference_inputs(pipeline.context, Path("python:h2pipefeed:f"))


@pytest.mark.parametrize("count", [1, 3])
def test_the_inputs_that_were_read_are_counted(folder, run, count) -> None:
    some = np.random.default_rng(0).standard_normal((count, 3, 16, 16))
    np.save(folder / "some.npy", some.astype(np.float32))
    reported = f"{count} input{'s' * (count > 1)} of "
    for _ in range(2):
        document = json.loads(run(*START, "--data", "some.npy", "--json")[0])
        assert document["data"].startswith(reported)
        assert document["data"].endswith("some.npy")
    for precision in ("int8", "fp16"):
        built = edgekit.build(
            "model.onnx",
            target="jetson-agx-orin-64gb",
            precision=precision,
            calibration={"data": "some.npy"},
        )
        assert built.accuracy.data == f"{reported}some.npy"
