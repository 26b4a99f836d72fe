"""The cost of the loader: a call, a load, a refit, and the gain of several frames in flight.

    python benchmarks/loader.py

All on this machine's processor by the reference backend, each beside its bound: ONNX Runtime
alone on the same segments, reading and hashing the bundle once, a memory copy of the weights, and
the stages one after the other. The compared works take turns and the best of each counts, so that
other work of the machine hits both.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import yaml
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

import edgekit_device
from edgekit.config.loader import load_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline

_FRAMES = 24
# layers of light_resnet50: the first take half of its time on a processor
_FIRST = ("conv1", "bn1", "relu1", "maxpool", "stage2.*", "stage3.*")
_LAST = ("stage4.*", "stage5.*", "avgpool")


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_overhead("tiny network", _bundle(folder, "tiny", _tiny(folder)), 4000, 9)
        resnet = {"model": {"builtin": "light_resnet50", "seed": 0}}
        full = _bundle(folder, "resnet50", {**resnet, "precision": "fp32"})
        measure_overhead("light_resnet50", full, 5, 9)
        # two large segments that take about as long as each other on a processor
        first = [{"layers": glob, "device": "DLA0"} for glob in _FIRST]
        last = [{"layers": glob, "device": "DLA1"} for glob in _LAST]
        pins = [*first, *last, {"layers": "fc:rows", "device": "GPU"}]
        placement = {"objective": "period", "dla_cores": [0, 1], "pin": pins}
        stages = {**resnet, "build": {"mode": "split"}, "placement": placement}
        measure_overhead("light_resnet50 split", split := _bundle(folder, "split", stages), 5, 9)
        measure_load(full)
        measure_refit(full)
        measure_pipeline(split)


def measure_overhead(title: str, bundle: Path, calls: int, rounds: int) -> None:
    """A call of the model beside ONNX Runtime on the same segments and arrays."""
    model = edgekit_device.load(bundle, trust_unsigned=True)
    inputs = _inputs(model)
    lane = model.lanes[model._main]
    steps = [
        (model.engines[s.engine, s.device]._session, list(s.outputs), s.inputs)
        for s in lane.segments
    ]

    def alone() -> None:
        values = dict(inputs)
        for session, outputs, reads in steps:
            feeds = {name: values[name] for name in reads}
            values.update(zip(outputs, session.run(outputs, feeds), strict=True))

    own, ours = _time_in_turns(alone, lambda: model(inputs), calls, rounds)
    print(
        f"{title:<22} {len(steps):3} segments: ONNX Runtime {own * 1e6:9.1f} us, model(inputs) "
        f"{ours * 1e6:9.1f} us: {(ours - own) * 1e6:+.1f} us, {(ours / own - 1) * 100:+.2f} %"
    )


def measure_load(bundle: Path) -> None:
    """Loading beside reading and hashing the file once, and ONNX Runtime's own part."""
    size = bundle.stat().st_size

    def read() -> None:
        digest = hashlib.sha256()
        with bundle.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)

    bound, whole = _time_in_turns(
        read, lambda: edgekit_device.load(bundle, trust_unsigned=True), 1, 7
    )
    model = edgekit_device.load(bundle, trust_unsigned=True, verify=False)
    _, opening = _time_in_turns(
        read, lambda: edgekit_device.load(bundle, trust_unsigned=True, verify=False), 1, 7
    )
    print(
        f"load, {size / 1e6:.0f} MB: {whole * 1e3:.0f} ms; read and hash once "
        f"{bound * 1e3:.0f} ms; without hashing weights {opening * 1e3:.0f} ms, "
        f"{len(model.engines)} sessions opened"
    )


def measure_refit(bundle: Path) -> None:
    """Measures refitting a stripped engine, beside opening the same engine with its weights."""
    from edgekit_device.runtime.model import check_path
    from edgekit_device.runtime.reference import open_engines
    from edgekit_device.trust.bundle import read_checked, weight_array

    checked = check_path(bundle, None, True)
    manifest = checked.manifest
    arrays = {name: weight_array(checked, entry) for name, entry in manifest.weights.items()}
    total = sum(array.nbytes for array in arrays.values())
    places = {name: np.zeros_like(array) for name, array in arrays.items()}
    whole = []
    for digest in {s.engine for lane in manifest.lanes for s in lane.segments}:
        proto = ModelProto.FromString(read_checked(checked, digest))
        for place, tensor in enumerate(proto.graph.initializer):
            if tensor.name in arrays:
                value = numpy_helper.from_array(arrays[tensor.name], tensor.name)
                proto.graph.initializer[place].CopyFrom(value)
        whole.append(proto.SerializeToString())

    def copy() -> None:
        for name, array in arrays.items():
            np.copyto(places[name], array)

    def unstripped() -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        for data in whole:
            ort.InferenceSession(
                data, options, disabled_optimizers=["Pad_Fusion", "ClipQuantRewrite"]
            )

    copied, _ = _time_in_turns(copy, copy, 1, 9)
    opened, refitted = _time_in_turns(unstripped, lambda: open_engines(checked), 1, 7)
    print(
        f"refit, {total / 1e6:.0f} MB of weights: stripped engines opened with them in "
        f"{refitted * 1e3:.0f} ms, ONNX Runtime alone with them inside {opened * 1e3:.0f} ms: "
        f"{(refitted - opened) * 1e3:+.1f} ms; a memory copy takes {copied * 1e3:.1f} ms"
    )


def measure_pipeline(bundle: Path) -> None:
    """Frames in flight over the stages beside one frame at a time; every stage on one thread."""
    model = edgekit_device.load(bundle, trust_unsigned=True, threads=1)
    frames = [_inputs(model, seed) for seed in range(_FRAMES)]
    alone, flight = _time_in_turns(
        lambda: [model(frame) for frame in frames], lambda: list(model.stream(frames)), 1, 3
    )
    apart = [model(frame) for frame in frames]
    equal = all(
        a[name].tobytes() == b[name].tobytes()
        for a, b in zip(apart, model.stream(frames), strict=True)
        for name in a
    )
    print(
        f"split over {', '.join(model.devices)}: {_FRAMES / alone:.1f} frames/s one at a time, "
        f"{_FRAMES / flight:.1f} in flight: {alone / flight:.2f} times; bit-equal: {equal}"
    )


def _time_in_turns(
    first: Callable[[], Any], second: Callable[[], Any], calls: int, rounds: int
) -> tuple[float, float]:
    """Returns the best seconds a call of each, in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, call in enumerate((first, second)):
            began = time.perf_counter()
            for _ in range(calls):
                call()
            best[place] = min(best[place], (time.perf_counter() - began) / calls)
    return best[0], best[1]


def _inputs(model: edgekit_device.Model, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {t.name: random.random(t.shape).astype(t.dtype) for t in model.inputs}


def _tiny(folder: Path) -> dict[str, Any]:
    shape = [1, 4, 4, 4]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4, 1, 1], [0.5] * 16)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "tiny", values[:1], values[1:], [weight])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(folder / "tiny.onnx"))
    return {"model": {"onnx": "tiny.onnx"}}


def _bundle(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    config = {
        "version": 1,
        "name": name,
        "target": "jetson-agx-orin-64gb",
        "precision": "fp16",
        **settings,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    full = folder / f"{name}-full.ekb"
    with Pipeline(load_config(str(file)), out=folder / name, cache=Cache(folder)) as opened:
        opened.bundle(full=full)
    return full


if __name__ == "__main__":
    main()
