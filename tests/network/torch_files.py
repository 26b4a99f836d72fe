"""Small ONNX files with module names as PyTorch's two exporters write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from tests.network.onnx_making import make, node, values, write

CONV, LINEAR = "torch.nn.modules.conv.Conv2d", "torch.nn.modules.linear.Linear"
NORM, RELU = "torch.nn.modules.batchnorm.BatchNorm2d", "torch.nn.modules.activation.ReLU"
SEQUENTIAL = "torch.nn.modules.container.Sequential"
CLASSES = {
    "": "lenet.LeNet",
    "feat": "lenet.Feat",
    "feat.conv1": CONV,
    "feat.bn": NORM,
    "classifier": SEQUENTIAL,
    "classifier.0": LINEAR,
    "classifier.1": RELU,
    "classifier.2": LINEAR,
}
WEIGHTS = {
    "feat.conv1.weight": values([6, 1, 5, 5]),
    "feat.conv2.weight": values([16, 6, 5, 5]),
    "classifier.0.weight": values([120, 256]),
    "classifier.2.weight": values([10, 120]),
}


def scoped(
    one: onnx.NodeProto, path: str, operator: str, classes: Mapping[str, str] = CLASSES
) -> onnx.NodeProto:
    """Gives a node the metadata that the dynamo exporter writes."""
    around = [p for p in classes if not p or path == p or path.startswith(f"{p}.")]
    scopes = [*around, operator]
    kinds = [*(classes[p] for p in around), f"aten.{operator}.default"]
    one.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
    one.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=repr(kinds))
    one.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File /home/me/lenet.py")
    return one


def dynamo_nodes() -> list[onnx.NodeProto]:
    """LeNet as torch 2.13 exports it: the BatchNorm after the second Conv is folded into it."""
    return [
        scoped(node("Conv", "x feat.conv1.weight", "c1", name="n0"), "feat.conv1", "conv2d"),
        scoped(node("Relu", "c1", "r1", name="n1"), "feat", "relu"),
        scoped(
            node("MaxPool", "r1", "p1", name="n2", kernel_shape=[2, 2], strides=[2, 2]),
            "feat",
            "max_pool2d",
        ),
        scoped(
            node("Conv", "p1 feat.conv2.weight", "c2", name="n3"),
            "feat.bn",
            "_native_batch_norm_legit_no_training",
        ),
        scoped(
            node("MaxPool", "c2", "p2", name="n4", kernel_shape=[2, 2], strides=[2, 2]),
            "feat",
            "max_pool2d_1",
        ),
        scoped(node("Flatten", "p2", "f", name="n5"), "", "flatten"),
        scoped(
            node("Gemm", "f classifier.0.weight", "l1", name="n6", transB=1),
            "classifier.0",
            "linear",
        ),
        scoped(node("Relu", "l1", "r2", name="n7"), "classifier.1", "relu_1"),
        scoped(
            node("Gemm", "r2 classifier.2.weight", "y", name="n8", transB=1),
            "classifier.2",
            "linear_1",
        ),
    ]


def legacy_nodes() -> list[onnx.NodeProto]:
    """The same as the exporter before it does: opset 17 at most."""
    names = [
        "/feat/conv1/Conv",
        "/feat/Relu",
        "/feat/MaxPool",
        "/feat/conv2/Conv",
        "/feat/MaxPool_1",
        "/Flatten",
        "/classifier/classifier.0/Gemm",
        "/classifier/classifier.1/Relu",
        "/classifier/classifier.2/Gemm",
    ]
    nodes = dynamo_nodes()
    for one, name in zip(nodes, names, strict=True):
        one.name = name
        del one.metadata_props[:]
    return nodes


def lenet(folder: Path, nodes: list[onnx.NodeProto], **more: np.ndarray) -> Path:
    """Writes LeNet's file and returns its path."""
    return write(make(nodes, {"x": [1, 1, 28, 28]}, ["y"], {**WEIGHTS, **more}), folder)
