"""Reads weights by the names that a refit needs from an ONNX file, without TensorRT's parser.
A batch normalisation is folded with the same bits as in TensorRT's ONNX importer.

The rules are those of onnx-tensorrt's ModelRefitter.cpp and WeightsContext.cpp (Apache-2.0,
https://github.com/onnx/onnx-tensorrt): initializers of the graph and of bodies of If, Loop and Scan
by their own names; Constant nodes by their output; weights that the importer makes itself by a
counter, in topological order: the scale and then the bias of each folded batch normalisation.
Release 10.1 GA calls them "tmp_batch_norm_weight", "tmp_batch_norm_weight_0", "..._1"; newer
releases "tmp_refittable_weight", "..._0", and also count the value of each ConstantOfShape (since
10.14, by the changelog's "Improved refit for ConstantOfShape nodes"). Both are read for every
release, and also names that are stable in every file with the node, by its first output:
"batch-norm-scale:y", "batch-norm-bias:y" and "constant-of-shape:y". This module is needed because
the lean runtime has no OnnxParserRefitter. Fields of onnx/onnx.proto: ModelProto.graph 7;
GraphProto.node 1, initializer 5; NodeProto.input 1, output 2, op_type 4, attribute 5, domain 7;
AttributeProto.name 1, f 2, i 3, t 5, g 6, floats 7, ints 8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from edgekit_device.arrays.onnx_file import (
    OnnxTensor,
    Value,
    as_bytes,
    as_text,
    decode_tensor,
    fields,
    read_tensor,
    varints,
)
from edgekit_device.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

_BATCH_NORM = "tmp_batch_norm_weight"
_REFITTABLE = "tmp_refittable_weight"
_EPSILON = 1e-5  # BatchNormalization's default (ONNX operators)

# bodies in the order in which the refitter visits them
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_PARAMETERS = 4


def fold_batch_norm(
    arrays: Sequence[np.ndarray], kinds: Sequence[Optional[str]], epsilon: float
) -> Tuple[np.ndarray, np.ndarray]:
    """Returns scale and bias.

    BuiltinOp BatchNormalization and ModelRefitter.cpp of onnx-tensorrt compute, in the
    parameters' type if all four have one narrow type and in float32 otherwise::

        scale'[i] = scale[i] / sqrtf(variance[i] + epsilon)
        bias'[i] = bias[i] - mean[i] * scale'[i]

    There epsilon, scale' and bias' have that type; intermediate values are float32, since the
    narrow types have no arithmetic: BFloat16 (bfloat16.hpp) converts to float, and half
    (ieee/half.h 1.12 of NVIDIA/TensorRT) computes with float until the assignment, rounding
    ties away from zero. A compiler may fuse float32's last line, so the last bit of a float32
    bias is not certain.

    Args:
        arrays: Scale, bias, mean and variance, one value per channel; bfloat16 as bit patterns.
        kinds: Their types: "float32", "float16", "bfloat16", ...
        epsilon: The node's epsilon.

    Raises:
        ValueError: The parameters differ in size.
    """
    import numpy as np

    if len({array.size for array in arrays}) != 1:
        raise ValueError("a BatchNormalization's parameters differ in size")
    # mixed types: the importer converts all four to float32
    kind = kinds[0] if len(set(kinds)) == 1 else None
    narrow = _NARROW.get(kind or "", _round_float32)
    scale, bias, mean, variance = (_to_float32(*pair) for pair in zip(arrays, kinds))  # noqa: B905
    # a variance of 0 or below gives infinity or NaN here as in the importer, without a warning
    with np.errstate(all="ignore"):
        small = _to_float32(narrow(np.array(epsilon, np.float32)), kind)
        factor = narrow(scale / np.sqrt(variance + small))
        return factor, narrow(bias - mean * _to_float32(factor, kind))


def _to_float32(array: np.ndarray, kind: Optional[str]) -> np.ndarray:
    import numpy as np

    if kind == "bfloat16":
        # a bfloat16 is the upper half of a float32
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


def _round_float32(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return array.astype(np.float32)


def _round_float16(array: np.ndarray) -> np.ndarray:
    """Returns the nearest float16; ties away from zero."""
    import numpy as np

    # float64 holds every float32 exactly, so that a tie is recognised
    sizes = np.abs(array.astype(np.float64))
    # value of the last bit: 10 bits below the first bit, and 2**-24 for subnormal numbers
    bits = np.ldexp(1.0, np.maximum(np.frexp(sizes)[1] - 11, -24))
    rounded: np.ndarray = np.copysign(np.floor(sizes / bits + 0.5) * bits, array)
    return rounded.astype(np.float16)


def _round_bfloat16(array: np.ndarray) -> np.ndarray:
    """Returns bfloat16 bit patterns, rounded to nearest even."""
    import numpy as np

    bits = np.ascontiguousarray(array).view(np.uint32)
    # adding just below half of the last kept bit, plus that bit, rounds ties to even without
    # branches
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


_NARROW: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float16": _round_float16,
    "bfloat16": _round_bfloat16,
}


@dataclass
class _WeightNode:
    op: str = ""
    inputs: List[str] = field(default_factory=list)
    outputs: List[str] = field(default_factory=list)
    attributes: Dict[str, Dict[int, List[Value]]] = field(default_factory=dict)


def named_weights(
    model: Union[bytes, memoryview], folder: Optional[Path], wanted: Iterable[str]
) -> Dict[str, np.ndarray]:
    """Reads the weights called ``wanted``.

    Args:
        model: An ONNX file's bytes.
        folder: Folder of its external data; None refuses external data.
        wanted: Names from ``Refitter.get_all_weights``, or the stable names by node.

    Returns:
        Arrays by name, without names that were not found; bfloat16 as uint16 bit patterns.

    Raises:
        DeviceError: "model.invalid", "model.type" or "model.external-data".
    """
    return _read(model, folder, set(wanted)).found


def weight_origins(
    model: Union[bytes, memoryview], folder: Optional[Path], wanted: Iterable[str]
) -> Dict[str, str]:
    """Returns the stable names by node of those ``wanted`` weights whose names an importer counts.

    Raises:
        DeviceError: As :func:`named_weights`.
    """
    return _read(model, folder, set(wanted)).by_node


def _read(
    model: Union[bytes, memoryview], folder: Optional[Path], wanted: Set[str]
) -> _WeightReader:
    reader = _WeightReader(folder, wanted)
    try:
        graphs = [value for number, value in fields(memoryview(model)) if number == 7]
        if not graphs:
            raise ValueError("it has no graph")
        # protobuf: of a field that is not repeated, the last one counts
        reader.graph(as_bytes(graphs[-1]))
    except (ValueError, IndexError, struct.error) as error:
        raise DeviceError(
            "not an ONNX model: {}".format(error),
            code="model.invalid",
            hint="give the .onnx file that the engine was built from",
        ) from error
    return reader


class _WeightReader:
    def __init__(self, folder: Optional[Path], wanted: Set[str]) -> None:
        self.folder = folder
        self.wanted = wanted
        self.found: Dict[str, np.ndarray] = {}
        self.by_node: Dict[str, str] = {}
        self.made = {_BATCH_NORM: 0, _REFITTABLE: 0}

    def graph(self, data: memoryview) -> None:
        nodes: List[_WeightNode] = []
        tensors: Dict[str, OnnxTensor] = {}
        for number, value in fields(data):
            if number == 1:
                nodes.append(_node(as_bytes(value)))
            elif number == 5:
                tensor = read_tensor(as_bytes(value))
                tensors[tensor.name] = tensor
                # only wanted tensors are decoded: a model may be larger than the memory
                if tensor.name in self.wanted:
                    self.found[tensor.name] = decode_tensor(tensor, self.folder)
        for node in _sort_nodes(nodes):
            if node.op == "Constant":
                self.constant(node)
            elif node.op == "BatchNormalization":
                self.batch_norm(node, tensors)
            elif node.op == "ConstantOfShape":
                self.constant_of_shape(node)
            # names of a body are unique in the whole model (ONNX), and the counters continue inside
            for body in _BODIES.get(node.op, ()):
                for graph in node.attributes.get(body, {}).get(6, [])[-1:]:
                    self.graph(as_bytes(graph))

    def constant(self, node: _WeightNode) -> None:
        import numpy as np

        name = node.outputs[0] if node.outputs else ""
        if name not in self.wanted:
            return
        for kind, values in node.attributes.items():
            if kind == "value":
                self.found[name] = decode_tensor(read_tensor(as_bytes(values[5][-1])), self.folder)
            elif kind == "value_float":
                self.found[name] = np.array(_read_floats(values[2])[-1], np.float32)
            elif kind == "value_floats":
                self.found[name] = np.array(_read_floats(values.get(7, [])), np.float32)
            elif kind in ("value_int", "value_ints"):
                numbers: List[int] = []
                for number in values.get(3 if kind == "value_int" else 8, []):
                    numbers += [number] if isinstance(number, int) else list(varints(number))
                # protobuf writes a negative integer as a varint of 64 bits
                array = np.array(numbers, np.uint64).view(np.int64)
                self.found[name] = array[-1] if kind == "value_int" else array

    def batch_norm(self, node: _WeightNode, tensors: Dict[str, OnnxTensor]) -> None:
        parameters = [tensors[name] for name in node.inputs[1:5] if name in tensors]
        if len(parameters) < _PARAMETERS:
            return  # the importer folds only this graph's initializers
        # scale and then bias, each under its older and its newer name, and by its node
        # the counters advance for every node, wanted or not
        names = [
            (self._next(_BATCH_NORM), self._next(_REFITTABLE), what + node.outputs[0])
            for what in ("batch-norm-scale:", "batch-norm-bias:")
        ]
        # folding is the costly part: not for nodes whose weights the engine has
        if not any(self.wanted.intersection(keys) for keys in names):
            return
        epsilon = _read_floats(node.attributes.get("epsilon", {}).get(2, []))
        arrays = [decode_tensor(tensor, self.folder) for tensor in parameters]
        kinds = [tensor.dtype for tensor in parameters]
        pair = fold_batch_norm(arrays, kinds, epsilon[-1] if epsilon else _EPSILON)
        for keys, array in zip(names, pair):  # noqa: B905
            self._keep(keys, array)

    def constant_of_shape(self, node: _WeightNode) -> None:
        import numpy as np

        names = (self._next(_REFITTABLE), "constant-of-shape:" + node.outputs[0])
        if not self.wanted.intersection(names):
            return
        value = node.attributes.get("value")
        # without a value it is a zero of float32
        array = np.zeros(1, np.float32)
        if value is not None:
            array = decode_tensor(read_tensor(as_bytes(value[5][-1])), self.folder)
        self._keep(names, array)

    def _keep(self, names: Sequence[str], array: np.ndarray) -> None:
        """Stores an array under its wanted names; the last name is the stable name by node."""
        named = self.wanted.intersection(names)
        self.found.update(dict.fromkeys(named, array))
        self.by_node.update(dict.fromkeys(named, names[-1]))

    def _next(self, prefix: str) -> str:
        """Returns the importer's next name: the plain name first, then _0, _1 and so on."""
        number = self.made[prefix]
        self.made[prefix] += 1
        return "{}_{}".format(prefix, number - 1) if number else prefix


def _node(data: memoryview) -> _WeightNode:
    node = _WeightNode()
    for number, value in fields(data):
        if number == 1:
            node.inputs.append(as_text(value))
        elif number == 2:
            node.outputs.append(as_text(value))
        elif number == 4:
            node.op = as_text(value)
        elif number == 5:
            name, parts = "", {}  # type: str, Dict[int, List[Value]]
            for part, content in fields(as_bytes(value)):
                if part == 1:
                    name = as_text(content)
                parts.setdefault(part, []).append(content)
            node.attributes[name] = parts
    return node


def _sort_nodes(nodes: List[_WeightNode]) -> Iterator[_WeightNode]:
    """Yields nodes after the nodes that they read, else in file order (depth first, as in the
    importer).
    """
    # the last writer of a name; ONNX graphs have one only
    writer = {name: position for position, node in enumerate(nodes) for name in node.outputs}
    yielded: Set[int] = set()
    for first in range(len(nodes)):
        # a stack instead of recursion: a deep network exceeds Python's limit
        stack = [(first, False)]
        visiting: Set[int] = set()
        while stack:
            position, ready = stack.pop()
            if position in yielded:
                continue
            if ready:
                yielded.add(position)
                yield nodes[position]
                continue
            if position in visiting:
                raise ValueError("its nodes form a cycle")
            visiting.add(position)
            # found again after all of its inputs' writers
            stack.append((position, True))
            before = [writer[name] for name in nodes[position].inputs if name in writer]
            # reversed, so that the first input's writer is visited first
            stack += [(each, False) for each in reversed(before) if each not in yielded]


def _read_floats(values: List[Value]) -> List[float]:
    # packed or single, floats are little-endian
    raw = b"".join(as_bytes(value).tobytes() for value in values)
    return [number for (number,) in struct.iter_unpack("<f", raw)]
