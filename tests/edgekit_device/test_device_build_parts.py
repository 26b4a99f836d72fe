"""The build's smaller parts: progress, logs, caches, strides, the inspector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.dla.formats import strides as host_strides
from edgekit.quantize.caches import parse_cache
from edgekit_device.arrays.formats import stored_shape
from edgekit_device.build.attempt import BuilderLog, last_errors
from edgekit_device.build.builder import STEPS, Phases, TimingCache, timing_file
from edgekit_device.build.config import adapt_cache, missing_scales, read_scales
from edgekit_device.build.engine import MadeEngine, make_entry
from edgekit_device.build.inspection import (
    PlanFacts,
    reformats,
    strides,
    summarise,
)
from edgekit_device.build.request import InspectedLayer, TimingCacheUse
from edgekit_device.errors import DeviceError
from tests.edgekit_device import build_toys as toys
from tests.trt_double import double


def test_inner_phases_move_the_outer_one_and_nothing_falls() -> None:
    phases = Phases()
    phases.start("build", None, 2)
    phases.step("build", 0)
    assert phases.steps_done() == STEPS // 2
    phases.start("tactics", "build", 4)
    phases.step("tactics", 1)
    assert phases.steps_done() == STEPS * 3 // 4
    phases.finish("tactics")
    assert phases.steps_done() == STEPS * 3 // 4
    phases.step("build", 1)
    assert phases.steps_done() == STEPS


def test_phases_of_unknown_parents_and_no_steps_do_no_harm() -> None:
    phases = Phases()
    phases.step("never", 3)
    phases.start("odd", "gone", 0)
    phases.finish("odd")
    phases.finish("odd")
    assert phases.steps_done() == 0


def test_a_log_without_end_keeps_the_lines_that_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit_device.build.attempt._MOST_RETAINED", 500)
    log = BuilderLog(None, lambda line: None)
    for number in range(100):
        log.add("V", f"Tactic: {number} Time: 0.1")
    log.add("V", "[DlaLayer] {ForeignNode[a...b]}")
    log.add("E", "Error Code 10")
    assert "Tactic: 99" not in log.text()
    assert log.text().count("\n") < 20
    assert "[DlaLayer]" in log.text()
    assert "Error Code 10" in log.text()


def test_errors_are_shown_once_and_in_one_line() -> None:
    assert last_errors(["a\n b", "c", "a\n b"]) == "a b; c"


def test_scales_are_read_as_the_host_reads_them() -> None:
    data = toys.cache_text(names=["a:0", "b c", "d"])
    assert read_scales(data) == dict(parse_cache(data.decode()).scales)
    assert adapt_cache(data, "8.5.2").startswith(b"TRT-8502-EntropyCalibration2\na:0: ")
    for bad in (b"", b"hello\nx: 3d4ccccd\n"):
        with pytest.raises(DeviceError, match="not a calibration cache"):
            adapt_cache(bad, "8.5.2")
    with pytest.raises(DeviceError, match="line 2"):
        read_scales(b"TRT-8502-EntropyCalibration2\nx: zz\n")


def test_tensors_without_a_scale_are_read_from_the_warning() -> None:
    said = (
        "Missing scale and zero-point for tensor (Unnamed Layer* 3) [Shuffle]_output, expect fall "
        "back to non-int8 implementation for any layer consuming or producing given tensor"
    )
    assert missing_scales([said, "other", said]) == ["(Unnamed Layer* 3) [Shuffle]_output"]


@pytest.mark.parametrize("generation", ["1.0", "2.0"])
@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (2, 33, 4, 65), (1, 1, 1, 1), (4, 9)])
@pytest.mark.parametrize(
    ("format", "dtype"),
    [
        ("LINEAR", "float32"),
        ("DLA_LINEAR", "int8"),
        ("DLA_LINEAR", "float16"),
        ("DLA_HWC4", "int8"),
        ("CHW16", "float16"),
        ("CHW32", "int8"),
    ],
)
def test_strides_are_the_hosts(
    generation: str, shape: tuple[int, ...], format: str, dtype: str
) -> None:
    found = strides(shape, dtype, format, generation)
    try:
        wanted = host_strides(shape, dtype, format, generation)
    except ValueError:
        assert found == ()
    else:
        assert found == wanted
        if format != "LINEAR":
            stored_shape(shape, 1 if dtype == "int8" else 2, format, found)


@pytest.mark.parametrize("format", ["HWC", "HWC8", "HWC16", "CHW2", "CHW4"])
def test_strides_of_the_gpus_own_formats_fit_the_packer(format: str) -> None:
    shape = (2, 5, 3, 7)
    assert stored_shape(shape, 2, format, strides(shape, "float16", format))
    assert strides(shape, "float16", "CDHW32") == ()


def row(name: str, kind: str, *tensors: str) -> dict[str, Any]:
    return {"Name": name, "LayerType": kind, "Inputs": [{"Name": n} for n in tensors]}


def test_layers_of_the_inspector_in_all_its_forms() -> None:
    rows = [row("{ForeignNode[a...b]}", "DLA"), row("{ForeignNode[c]}", "Myelin"), {"Odd": 1}]
    for more in ({"Bindings": ["x"]}, {"I/O Tensors": [{"Name": "x"}]}):
        layers, notes = summarise(json.dumps({"Layers": rows, **more}))
        assert [layer.device for layer in layers] == ["DLA", "GPU"]
        assert len(notes) == 1
    layers, _ = summarise(json.dumps({"Layers": ["conv1 + relu1"]}))
    assert layers == (InspectedLayer("conv1 + relu1", "", ""),)
    for bad in ("", "no json", "[]", '{"Layers": 3}', "{"):
        assert summarise(bad)[0] == ()
        assert summarise(bad)[1]
        assert reformats(bad, ["x"]) == ()


def test_reformatting_is_seen_at_the_borders_alone() -> None:
    text = json.dumps({"Layers": [row("r1", "Reformat", "x"), row("r2", "Reformat", "inner")]})
    assert reformats(text, ["x", "y"]) == ("r1",)
    copy = "Reformatting CopyNode for"
    names = [
        f"{copy} Network Input x",
        f"{copy} Network Input x2",
        f"{copy} Input Tensor 0 to conv1",
    ]
    assert reformats(json.dumps({"Layers": [*names, "conv1"]}), ["x"]) == tuple(names[:1])


def test_only_borders_of_shared_formats_must_be_without_reformats() -> None:
    tensors = {
        "x": {"formats": ["LINEAR"]},  # the network's own: it is FP32 whatever reads it
        "half": {"dtype": "float16", "formats": ["LINEAR"]},  # the GPU lacks the DLA's format
        "steps": {"dtype": "int8", "formats": ["CHW32"], "scale": 0.1},
    }
    inputs = [toys.io(name, [1, 32, 8, 8], **more) for name, more in tensors.items()]
    spec = toys.spec(toys.engine(device="GPU", gpu_fallback=False, inputs=inputs))
    rows = [row(f"from {name}", "Reformat", name) for name in tensors]
    facts = PlanFacts(io=(), inspector=json.dumps({"Layers": rows}))
    made = MadeEngine("", 0, "", (), {}, (), TimingCacheUse(), "", ())
    assert make_entry(spec, 0, made, facts, None, []).reformats == ("from steps",)


def test_builds_side_by_side_keep_each_others_timings(tmp_path: Path) -> None:
    trt = double.module("10.3.0")
    log = BuilderLog(trt, lambda line: None)
    path = timing_file(tmp_path, toys.BOARD)

    def begun(*entries: str) -> tuple[TimingCache, Any]:
        config = trt.Builder(log.logger).create_builder_config()
        use = TimingCache(path)
        use.set(config)
        config.get_timing_cache()._s.entries.update(entries)
        return use, config

    first, second = begun("a"), begun("b")
    first[0].keep(first[1])
    second[0].keep(second[1])
    third = begun()
    assert third[1].get_timing_cache()._s.entries == {"a", "b"}
    assert third[0].facts.reused


def test_a_damaged_timing_cache_is_begun_anew(tmp_path: Path) -> None:
    trt = double.module("10.3.0")
    log = BuilderLog(trt, lambda line: None)
    path = tmp_path / "timing.cache"
    path.write_bytes(b"garbage")
    config = trt.Builder(log.logger).create_builder_config()
    use = TimingCache(path)
    use.set(config)
    use.keep(config)
    assert not use.facts.reused
    assert use.notes
    assert path.read_bytes() != b"garbage"
