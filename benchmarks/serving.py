"""The time that a server adds to a call: round trips beside the same model in the caller's process.

    python benchmarks/serving.py

A tiny network, and one that takes 600 KB and does almost no work, on this machine's
processor by the reference backend with one thread. Both ways take turns, so that other work of the
machine hits both; the median, the 99th percentile and the best of all calls are printed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import TensorProto, helper, save

import edgekit_device
from edgekit.bundles.files import build_zipapp
from edgekit.config.loader import load_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline

_CALLS, _WARMUP = 4000, 200
_SIZES = {"tiny": (8, 1), "large": (224, 32)}


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loader = folder / "loader.pyz"
        build_zipapp(loader)
        for title, (side, stride) in _SIZES.items():
            bundle = _bundle(folder, title, side, stride)
            root = folder / "board"

            def ask(*words: str, root: Path = root) -> None:
                argv = [sys.executable, str(loader), *words, "--root", str(root)]
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

            ask("install", "--from", str(bundle), "--trust-unsigned")
            app = root / "apps" / title
            model = edgekit_device.load(app, threads=1)
            x = np.random.default_rng(0).uniform(0, 1, (1, 3, side, side)).astype(np.float32)
            inputs = {"x": x}
            ask("serve", "--app", title, "--background", "--threads", "1")
            try:
                with edgekit_device.connect(app) as client:
                    assert np.array_equal(client(inputs)["y"], model(inputs)["y"])
                    measure(f"{title}, {x.nbytes} bytes", model, client, inputs)
            finally:
                ask("serve-stop", "--app", title)


def measure(title: str, own: Callable[..., Any], served: Callable[..., Any], inputs: Any) -> None:
    """Times both ways in turns."""
    spent = np.empty((2, _CALLS))
    for number in range(-_WARMUP, _CALLS):
        for row, call in enumerate((own, served)):
            began = time.perf_counter()
            call(inputs)
            if number >= 0:
                spent[row, number] = time.perf_counter() - began
    spent *= 1e6
    print(title)
    for name, times in zip(("in this process", "served"), spent, strict=True):
        print(
            f"  {name:<16} median {np.median(times):7.0f} us   "
            f"99 % {np.percentile(times, 99):7.0f} us   best {times.min():7.0f} us"
        )
    added = np.median(spent[1]) - np.median(spent[0])
    print(
        f"  {'added':<16} median {added:7.0f} us   best {spent[1].min() - spent[0].min():25.0f} us"
    )


def _bundle(folder: Path, name: str, side: int, stride: int) -> Path:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 1, 1], [0.5] * 12)
    node = helper.make_node("Conv", ["x", "w"], ["a"], strides=[stride, stride])
    tensors = [
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape)
        for tensor, shape in (("x", [1, 3, side, side]), ("y", [1, 4, *[side // stride] * 2]))
    ]
    nodes = [node, helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(nodes, name, tensors[:1], tensors[1:], [weight])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    save(model, str(folder / f"{name}.onnx"))
    config = {
        "version": 1,
        "name": name,
        "target": "jetson-agx-orin-64gb",
        "precision": "fp16",
        "model": {"onnx": f"{name}.onnx"},
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    full = folder / f"{name}-full.ekb"
    with Pipeline(load_config(str(file)), out=folder / name, cache=Cache(folder)) as opened:
        opened.bundle(full=full)
    return full


if __name__ == "__main__":
    main()
