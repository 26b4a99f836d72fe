"""Writes a LeNet for handwritten digits whose first pooling is CustomPool, and ten digits.

    python examples/plugin/make_lenet.py

Its files are in the repository: lenet.onnx, digits.npz and calibration.npz. It trains the network
of ``examples/digits`` on scikit-learn's digits, and replaces the first MaxPool by a node of the
custom operator.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

HERE = Path(__file__).resolve().parent
DOMAIN, OPERATOR = "edgekit.examples", "CustomPool"
REPLACED = "p1"
CALIBRATION = 64


def main() -> int:
    sys.path.insert(0, str(HERE.parent / "digits"))
    import network
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images / 16).astype(np.float32)[:, None]
    # the last image of each digit is kept from the training
    shown = np.array([np.flatnonzero(found.target == digit)[-1] for digit in range(10)])
    rest = np.delete(np.arange(len(images)), shown)
    params = network.train(
        network.initial(0), images[rest], found.target[rest], epochs=20, rate=3e-3, seed=0
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.onnx"
        network.export(params, path)
        model = onnx.load(path)
    onnx.save(with_custom_pool(model), HERE / "lenet.onnx")
    np.savez_compressed(HERE / "digits.npz", x=images[shown], labels=found.target[shown])
    np.savez_compressed(HERE / "calibration.npz", x=images[rest][:CALIBRATION])
    return 0


def with_custom_pool(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replaces one MaxPool by CustomPool, with the plugin's fields as attributes."""
    (place,) = (i for i, node in enumerate(model.graph.node) if node.name == REPLACED)
    plain = model.graph.node[place]
    custom = helper.make_node(
        OPERATOR,
        list(plain.input),
        list(plain.output),
        name=plain.name,
        domain=DOMAIN,
        # how TensorRT's parser finds the plugin, beside the operator's name
        plugin_version="1",
        plugin_namespace="edgekit",
        # the plugin's fields; the Python plugin needs every field
        kernel=[2, 2],
        stride=[2, 2],
        padding=[0, 0],
        mode="max",
        count_include_pad=1,
        # 0: TensorRT knows the scales
        input_scale=0.0,
        output_scale=0.0,
    )
    model.graph.node.remove(plain)
    model.graph.node.insert(place, custom)
    model.graph.name = "lenet"
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    sys.exit(main())
