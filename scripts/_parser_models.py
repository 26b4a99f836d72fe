"""The models that are compared: real exports, and the onnx package's tests of single nodes."""

from __future__ import annotations

import importlib
import lzma
import math
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from edgekit.errors import EdgekitError
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from tests.exports import exports, load, tensors
from tests.flow_networks import flow_names, flow_network

__all__ = [
    "export_model",
    "export_names",
    "export_proto",
    "flow_model",
    "flow_names",
    "node_modules",
    "node_tests",
]

_CASES = "onnx.backend.test.case.node"
# files of seeded weights; those of larger networks take seconds to write, and a smaller network of
# their kind has every comparison
_LARGEST = 130 << 20
# these compute their expected values for seconds, of which only the shapes are needed here
_POOLS = frozenset({"averagepool", "lppool", "maxpool"})
# whole numbers that a test feeds and a file has as constants: shapes, axes, sizes, indices
_WHOLE = (np.dtype("int64"), np.dtype("int32"))


def export_names() -> list[str]:
    """The real exports, the largest first."""
    sizes = {}
    for row in exports():
        graph = onnx.load_model_from_string(lzma.decompress(row.path.read_bytes())).graph
        sizes[row.name] = sum(math.prod(tensor.dims) * 4 for tensor in tensors(graph))
    return sorted((n for n in sizes if sizes[n] <= _LARGEST), key=lambda name: -sizes[name])


def export_model(name: str) -> Model:
    """A real export with its seeded weights, as edgekit loads it."""
    return canonical(load(name), None, source=name)


def export_proto(name: str) -> onnx.ModelProto:
    """A real export as its file has it, with its seeded weights."""
    return load(name)


def flow_model(name: str) -> Model:
    """A network with a loop or a conditional, as edgekit loads it."""
    return canonical(flow_network(name), None, source=name)


def node_modules() -> list[str]:
    """The modules of the onnx package that define tests of nodes."""
    package = importlib.import_module(_CASES)
    return [
        module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"
    ]


def node_tests(module: str) -> Iterator[tuple[str, Model]]:
    """The tests of a module, as far as edgekit loads their models.

    A test that feeds whole numbers, which real files have as constants, counts with constants
    where edgekit loads it only so.
    """
    package: Any = importlib.import_module(_CASES)
    before = len(package._NodeTestCases)
    if module in _POOLS:
        _patch_pools()
    importlib.import_module(f"{_CASES}.{module}")
    for case in package._NodeTestCases[before:]:
        if case.model is None:
            continue
        found = _load_model(case.model, case.data_sets[0][0])
        if found is not None:
            yield case.name, found


def _load_model(proto: onnx.ModelProto, values: Sequence[Any]) -> Model | None:
    try:
        return canonical(proto, None)
    except EdgekitError:
        pass
    fed = dict(zip((value.name for value in proto.graph.input), values, strict=False))
    constant = {
        name: value
        for name, value in fed.items()
        if isinstance(value, np.ndarray) and value.dtype in _WHOLE
    }
    if not constant or len(constant) == len(fed):
        return None
    try:
        return canonical(_with_constants(proto, constant), None)
    except EdgekitError:
        return None


def _with_constants(proto: onnx.ModelProto, constant: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    inputs = [value for value in copy.graph.input if value.name not in constant]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constant.items()
    )
    return copy


def _patch_pools() -> None:
    common: Any = importlib.import_module("onnx.reference.ops.op_pool_common")

    def pool(
        padded: np.ndarray,
        x_shape: Sequence[int],
        kernel: Any,
        strides: Any,
        out_shape: Sequence[int],
        *_: Any,
        **__: Any,
    ) -> np.ndarray:
        return np.zeros((*x_shape[:2], *out_shape), padded.dtype)

    common.pool = pool
