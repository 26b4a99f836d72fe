"""A small detector made by hand, whose boxes are known: it finds red and blue pixels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BOARD = "jetson-agx-orin-64gb"
STRIDE = 8


def colour_detector(
    folder: Path, *, height: int = 64, width: int = 96, batch: int | str = 1, classes: bool = True
) -> tuple[Path, Path]:
    """Writes a network and its head, and returns both files.

    The network has a place for each 8x8 pixels, and two classes: red and blue. A place's box is
    its own 8x8 pixels; its score is near 1 where they have the class's colour alone, else near 0.
    """
    # distances from the middle of a place, in places: a half to each side
    box = np.zeros((4, 3, 8, 8), np.float32)
    score = np.zeros((2, 3, 8, 8), np.float32)
    for number, channel in enumerate((0, 2)):
        score[number] = -40 / 64
        score[number, channel] = 40 / 64
    weights = {
        "box.weight": box,
        "box.bias": np.full(4, 0.5, np.float32),
        "score.weight": score,
        "score.bias": np.full(2, -20, np.float32),
    }
    places = [batch, height // STRIDE, width // STRIDE]
    nodes = [
        helper.make_node(
            "Conv",
            ["images", f"{name}.weight", f"{name}.bias"],
            [name],
            f"{name}.conv",
            strides=[STRIDE, STRIDE],
        )
        for name in ("box", "score")
    ]
    nodes += [
        helper.make_node("Sigmoid", ["score"], ["probability"], "sigmoid"),
        helper.make_node("Concat", ["box", "probability"], ["found"], "join", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, height, width])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [places[0], 6, *places[1:]])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path, head = folder / "colours.onnx", folder / "head.json"
    onnx.save(model, path)
    document = {
        "schema": "edgekit.head/1",
        "family": "colours",
        "outputs": ["box", "score"],
        "classes": ["red", "blue"] if classes else [],
        "distance": {
            "levels": [{"stride": STRIDE, "boxes": "box", "scores": "score"}],
            "bins": 1,
        },
    }
    head.write_text(json.dumps(document))
    return path, head
