"""The job "build" from its request to its result, with the double as the board's TensorRT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edgekit_device.protocol.manifest import TensorEntry
from edgekit_device.runtime.golden import golden_inputs
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import document_for

GOLDEN = [{"seed": 3, "inputs": {"x": {"low": -1.0, "high": 1.0}}, "lane": None}]
GPU = {"device": "GPU", "gpu_fallback": False}


@pytest.mark.few(3)
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0"])
def test_a_plan_is_built_looked_at_and_reported(version: str, make: Any) -> None:
    on = make(version)
    document = toys.request(document_for(version), tensorrt=version)
    result = on.run(document)
    (entry,) = result["engines"]
    assert result["schema"] == "edgekit.build.result/1"
    assert entry["tensorrt"].startswith(version)
    assert (entry["attempt"], [one["ok"] for one in entry["attempts"]]) == (0, [True])
    dtype = "float16" if version.startswith("11") else "float32"
    size = np.dtype(dtype).itemsize
    x = {"name": "x", "mode": "input", "dtype": dtype, "shape": [1, 3, 8, 8], "format": "LINEAR"}
    assert entry["io"][0] == {
        **x,
        "strides": [192 * size, 64 * size, 8 * size, size],
        "scale": None,
    }
    assert [io["name"] for io in entry["io"]] == ["x", "y"]
    assert len(on.blob(entry["engine"])) == entry["bytes"]
    names = json.loads(on.blob(entry["inspector"]))["Layers"]
    assert len(entry["layers"]) == len(names)
    on_dla = [one for one in entry["layers"] if one["device"] == "DLA"]
    assert len(on_dla) == (0 if version == "10.16.1" else 1)
    assert entry["unmapped"] == []
    assert b"[GpuLayer]" in on.blob(entry["log"])
    assert on.offences() == []


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_a_person_sees_how_far_it_is(version: str, make: Any) -> None:
    on = make(version)
    on.run(toys.request(golden=GOLDEN))
    lines = (on.context.folder / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    steps = [event for event in events if event["phase"] == "build lane0"]
    # before IProgressMonitor nothing but the log's stages is known
    reported = {event["text"] for event in steps if event["total"] == 0}
    assert ("placing layers" in reported) == (version == "8.6.1")
    assert any(event["total"] for event in steps)
    assert (events[-1]["phase"], events[-1]["done"]) == ("golden vectors", 1)


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0"])
def test_a_stripped_plan_is_refitted_and_gives_the_networks_own_outputs(
    version: str, make: Any
) -> None:
    on = make(version)
    attempts = [{"flags": ["STRIP_PLAN"], "gives_up": ""}]
    given = document_for(version, attempts=attempts)
    dtype = given["inputs"][0]["dtype"]
    network = toys.ends([1, 3, 8, 8], [1, 5], dtype)
    result = on.run(toys.request(given, golden=GOLDEN, network=network))
    (entry,) = result["engines"]
    assert (entry["stripped"], entry["refit"]) == (True, "identical")
    assert entry["bytes"] < entry["full_bytes"] == len(on.blob(entry["full"]))
    assert {"w1", "w2", "b1", "b2"} <= set(entry["weights"])
    assert entry["weights"]["w1"] == {"dtype": dtype, "shape": [8, 3, 3, 3], "count": 216}
    (case,) = result["golden"]
    reported = case["outputs"]["y"]
    found = np.frombuffer(on.blob(reported["digest"]), reported["dtype"]).reshape(reported["shape"])
    tensor = TensorEntry("x", dtype, (1, 3, 8, 8), "LINEAR", ())
    feeds = golden_inputs([tensor], 3, {"x": (-1.0, 1.0)})
    wanted = ort.InferenceSession(toys.toy_onnx(typed=dtype)).run(["y"], feeds)[0]
    np.testing.assert_allclose(
        found.astype("float32"), wanted.astype("float32"), rtol=0.1, atol=0.02
    )
    assert np.abs(found).max() > 0
    assert on.offences() == []


@pytest.mark.parametrize(("version", "dtype"), [("8.6.1", "int32"), ("10.3.0", "int64")])
def test_indices_are_the_networks_type_outside_of_an_engine_that_narrows_them(
    version: str, dtype: str, make: Any
) -> None:
    on, model = make(version), toys.index_onnx()
    given = toys.engine(
        **GPU,
        model=toys.sha(model),
        layers=[
            toys.layer("cast", "GPU", "fp16", "CAST"),
            toys.layer("argmax", "GPU", "fp16", "TOPK"),
        ],
        precisions=["fp16"],
        calibration=None,
        pools={},
        inputs=[toys.io("x", [1, 6, 4], dtype)],
        outputs=[toys.io("y", [1, 4], dtype)],
    )
    network = toys.ends([1, 6, 4], [1, 4], "int64")
    golden = [{"seed": 3, "inputs": {"x": {"low": -50.0, "high": 50.0}}, "lane": None}]
    result = on.run(toys.request(given, golden=golden, network=network), model)
    assert [io["dtype"] for io in result["engines"][0]["io"]] == [dtype, dtype]
    reported = result["golden"][0]["outputs"]["y"]
    assert reported["dtype"] == "int64"
    found = np.frombuffer(on.blob(reported["digest"]), "int64").reshape(reported["shape"])
    feeds = golden_inputs([TensorEntry("x", "int64", (1, 6, 4), "LINEAR", ())], 3, {"x": (-50, 50)})
    np.testing.assert_array_equal(found, ort.InferenceSession(model).run(["y"], feeds)[0])
    assert on.offences() == []


def test_weights_that_lie_outside_of_the_model_are_found(make: Any, tmp_path: Path) -> None:
    model, data = toys.outside_onnx(tmp_path / "outside")
    given = toys.engine(
        model=toys.sha(model),
        data={"weights.bin": toys.sha(data)},
        attempts=[{"flags": ["STRIP_PLAN"], "gives_up": ""}],
    )
    on = make("10.3.0")
    (entry,) = on.run(toys.request(given), model, data)["engines"]
    assert entry["weights"]["w1"]["shape"] == [8, 3, 3, 3]
    assert entry["full_bytes"] > entry["bytes"]


@pytest.mark.parametrize(("more", "line"), [({}, 64), ({"dla": "1.0"}, 32)])
def test_loadables_and_plans_of_a_split_build(more: dict[str, str], line: int, make: Any) -> None:
    on = make("10.3.0")
    first = toys.loadable("lane0.segment0")
    tail = toys.engine(
        "lane0.segment1",
        **GPU,
        outputs=[toys.io("y", [1, 5], "float32", formats=["LINEAR"])],
    )
    result = on.run(toys.request(first, tail, **more))
    one, two = result["engines"]
    assert (one["kind"], two["kind"]) == ("loadable", "plan")
    # nothing on the board opens a loadable but cuDLA: its borders are those that were asked for
    assert [(io["format"], io["scale"]) for io in one["io"]] == [
        ("DLA_HWC4", 0.05),
        ("CHW32", 0.05),
    ]
    assert one["io"][0]["strides"] == [8 * line, 1, line, 4]
    assert (one["refit"], one["stripped"], one["full"], one["layers"]) == ("none", False, None, [])
    assert on.offences() == []


def test_engines_of_lanes_that_are_alike_are_built_once(make: Any) -> None:
    on = make("10.3.0")
    document = toys.request(toys.engine("lane0"), toys.engine("lane1"))
    document["lanes"] = [{"share": 0.5, "engines": ["lane0"]}, {"share": 0.5, "engines": ["lane1"]}]
    result = on.run(document)
    assert [one["key"] for one in result["engines"]] == ["lane0", "lane1"]
    assert result["engines"][0]["log"] == result["engines"][1]["log"]


def test_another_release_than_planned_is_said(make: Any) -> None:
    on = make("10.7.0", starts=True)
    result = on.run(toys.request(tensorrt="10.3"))
    assert "planned for TensorRT 10.3, built with 10.7.0" in result["notes"]
