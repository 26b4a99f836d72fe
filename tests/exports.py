"""The real exports in tests/data/exports: graphs from public exporters, with seeded weights.

scripts/make_exports.py makes them. A stored graph has no large weights: a record in the tensor's
``doc_string`` gives the distribution, and ``load`` draws the values from a stream that depends on
the tensor's name and shape alone.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import TensorProto

from edgekit.network.synthetic import stream

__all__ = ["FLOATS", "FOLDER", "RECORD", "Export", "digest", "exports", "load", "tensors"]

FOLDER = Path(__file__).parent / "data/exports"
FLOATS = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}
RECORD = "seeded "


@dataclass(frozen=True)
class Export:
    """A row of index.yaml.

    Attributes:
        name: The file's name without its suffixes.
        family: What the network is for.
        package: Where the network's code comes from, with its version.
        licence: The SPDX name of that package's licence.
        exporter: What wrote the ONNX file, with its version.
        opset: Version of ONNX's own operators.
        inputs: Shape by input name.
        sha256: Digest of the packed file.
    """

    name: str
    family: str
    package: str
    licence: str
    exporter: str
    opset: int
    inputs: dict[str, list[int]]
    sha256: str

    @property
    def path(self) -> Path:
        """The packed file."""
        return FOLDER / f"{self.name}.onnx.xz"


def exports() -> tuple[Export, ...]:
    """Returns the exports in the order of their names."""
    rows = yaml.safe_load((FOLDER / "index.yaml").read_text(encoding="utf-8"))
    return tuple(Export(**row) for row in rows["exports"])


def load(name: str, folder: Path = FOLDER, *, zeros: bool = False) -> onnx.ModelProto:
    """Returns the export ``name`` of a folder with its seeded weights, or quickly with zeros."""
    packed = (folder / f"{name}.onnx.xz").read_bytes()
    model = onnx.load_model_from_string(lzma.decompress(packed))
    for tensor in tensors(model.graph):
        _restore(tensor, zeros)
    return model


def tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yields the initializers and the values of Constant nodes, those of inner graphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from tensors(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                yield attribute.t


def _restore(tensor: TensorProto, zeros: bool) -> None:
    """Draws the values of a tensor whose record stands in for them."""
    if not tensor.doc_string.startswith(RECORD):
        return
    if zeros:
        tensor.raw_data = np.zeros(tuple(tensor.dims), FLOATS[tensor.data_type]).tobytes()
        tensor.ClearField("doc_string")
        return
    mean, deviation, low, high = map(float, tensor.doc_string.removeprefix(RECORD).split())
    shape = tuple(tensor.dims)
    drawn = stream("weight", tensor.name, shape).standard_normal(shape, dtype=np.float32)
    values = np.clip(drawn * np.float32(deviation) + np.float32(mean), low, high)
    tensor.raw_data = values.astype(FLOATS[tensor.data_type]).tobytes()
    tensor.ClearField("doc_string")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
