"""What one QuantizeLinear or DequantizeLinear does, and whether implicit INT8 can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["Constants", "Grid", "Problems", "grid_of"]

_LISTED = 5
# the middle of uint8: codes - 128 are those of int8, value for value
_MIDDLE = 128
# what a QuantizeLinear without zero point and output_dtype gives
_UINT8 = 2
_AGAIN = (
    "quantise again with symmetric INT8 (onnxruntime.quantization: activation_type and "
    'weight_type QInt8, extra_options {"ActivationSymmetric": True, "WeightSymmetric": True})'
)
#: by code: what is wrong with those that are listed, and what to do
_FAULTS: dict[str, tuple[str, str]] = {
    "qdq.zero_point": (
        "asymmetric quantisation: implicit INT8 has no zero points, nor UINT8 from 0",
        _AGAIN,
    ),
    "qdq.type": ("quantised to a type that implicit INT8 does not have", _AGAIN),
    "qdq.axis": (
        "an activation with one scale for each channel: implicit INT8 has one for the tensor",
        "quantise activations per tensor; only weights may have a scale for each channel",
    ),
    "qdq.blocked": (
        "blocked quantisation (block_size): implicit INT8 has no blocks",
        "quantise activations per tensor and weights per output channel",
    ),
    "qdq.scale_computed": (
        "a scale or zero point that the network computes (dynamic quantisation)",
        "quantise statically: scales must be constants of the file",
    ),
    "qdq.scale_value": (
        "a scale that is no positive finite number",
        "calibrate again; a tensor that is always zero takes any scale, such as 1",
    ),
    "qdq.pair": (
        "DequantizeLinear with other scales than its QuantizeLinear",
        "implicit INT8 cannot rescale between the two: give both nodes one scale",
    ),
    "qdq.integer": (
        "computes on integers (QOperator format or dynamic quantisation)",
        "export the Q/DQ format: quantize_static(..., quant_format=QuantFormat.QDQ)",
    ),
    "qdq.open": (
        "an input or output of the network that holds INT8 codes",
        "let the network begin with QuantizeLinear and end with DequantizeLinear, or cut it "
        "there with model.outputs (--outputs)",
    ),
    "qdq.subgraph": (
        "quantised inside a body of If, Loop or Scan",
        "export the model without control flow around quantised layers",
    ),
    "qdq.conflict": (
        "quantised with different scales, and implicit INT8 has one for a tensor",
        "share one quantiser between the readers, or take the larger scale: edgekit calibrate "
        "from-qdq --unequal largest",
    ),
}


class Problems:
    """Collects what cannot be translated, so that all of a kind are told at once."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[str, str]]] = {}

    def add(self, code: str, name: str, detail: str = "") -> None:
        """Notes a problem of a node or tensor."""
        self._found.setdefault(code, []).append((name, detail))

    def refuse(self, where: str) -> None:
        """Raises ModelError for the kind of problem that was met first, if any was."""
        for code, rows in self._found.items():
            what, hint = _FAULTS[code]
            told = [f"{name!r}" + (f" ({detail})" if detail else "") for name, detail in rows]
            raise ModelError(
                f"{what}: {listed(told, _LISTED)}",
                code=code,
                where=rows[0][0] or where,
                hint=hint,
            )


class Constants:
    """The constants of a model by name, also those whose values stand beside the graph."""

    def __init__(self, model: Model) -> None:
        self._weights = model.weights
        self._stubs = {tensor.name: tensor for tensor in model.proto.graph.initializer}

    def __contains__(self, name: object) -> bool:
        return name in self._stubs

    def __getitem__(self, name: str) -> np.ndarray:
        from onnx import numpy_helper

        if name in self._weights:
            return self._weights[name]
        return numpy_helper.to_array(self._stubs[name])

    def kind(self, name: str) -> str:
        """The ONNX name of a constant's type in small letters: "int8", "float8e4m3fn"."""
        return type_name(self._stubs[name].data_type)


def type_name(elem: int) -> str:
    """Returns ONNX's name of an element type, in small letters."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(elem)).lower()


@dataclass(frozen=True, eq=False)
class Grid:
    """The values that codes stand for: ``scale * code``, the code signed and symmetric.

    Attributes:
        node: The QuantizeLinear or DequantizeLinear.
        scale: One value, or one for each index of ``axis``; float32.
        axis: Of the tensor, where there are several scales.
        shift: What stands for zero: 128 for UINT8, otherwise 0.
        kind: "int8", "uint8" or "int32" (a bias).
        exact: The scale's own type ("float32", "float16"), which dequantising gives.
    """

    node: str
    scale: np.ndarray
    axis: int | None
    shift: int
    kind: str
    exact: str

    @property
    def step(self) -> float:
        """The scale of a tensor that has one."""
        return float(self.scale.reshape(-1)[0])

    def same(self, other: Grid) -> bool:
        """Whether both have the same scales and zero."""
        import numpy as np

        return self.shift == other.shift and np.array_equal(
            self.scale.reshape(-1), other.scale.reshape(-1)
        )

    def along(self, values: np.ndarray) -> np.ndarray:
        """Returns the scale in a shape that broadcasts over ``values``."""
        if self.axis is None:
            return self.scale.reshape(())
        shape = [1] * values.ndim
        shape[self.axis] = -1
        return self.scale.reshape(shape)


def grid_of(
    node: onnx.NodeProto,
    constants: Constants,
    known: Mapping[str, tuple[str, int]],
    problems: Problems,
) -> Grid | None:
    """Reads one node; None where it cannot be translated, which ``problems`` then has.

    Forms of ai.onnx 10 to 23: a scale of rank 0, or of rank 1 with ``axis``; the zero point may
    be absent, and then ``output_dtype`` (opset 21) or UINT8 is the type; ``block_size`` is
    refused.

    Args:
        node: QuantizeLinear or DequantizeLinear.
        constants: The model's.
        known: Type name and rank by tensor.
        problems: Where faults are noted.
    """
    import numpy as np

    given: dict[str, Any] = {item.name: item.i for item in node.attribute}
    inputs = [*node.input, "", ""]
    data, scale_name, zero_name = inputs[:3]
    is_constant = data in constants
    if given.get("block_size"):
        problems.add("qdq.blocked", node.name, f"block_size {given['block_size']}")
        return None
    for name in (scale_name, zero_name):
        if name and name not in constants:
            problems.add("qdq.scale_computed", node.name, name)
            return None
    kind = _kind(node, zero_name, given, constants, known)
    if kind not in ("int8", "uint8") and not (kind == "int32" and is_constant):
        problems.add("qdq.type", node.name, kind)
        return None
    zero = np.asarray(constants[zero_name]) if zero_name else np.zeros((), np.int32)
    shift = _MIDDLE if kind == "uint8" else 0
    if (zero.astype(np.int64) != shift).any():
        found = sorted({int(value) for value in zero.reshape(-1)[:_LISTED]})
        problems.add("qdq.zero_point", node.name, f"{kind}, zero point {_few(found)}")
        return None
    raw = np.asarray(constants[scale_name])
    scale = raw.astype(np.float32)
    if not np.isfinite(scale).all() or (scale < 0).any() or (not is_constant and not scale.all()):
        problems.add("qdq.scale_value", node.name, scale_name)
        return None
    if scale.size == 1:
        return Grid(node.name, scale, None, shift, kind, str(raw.dtype))
    if scale.ndim != 1:
        problems.add("qdq.blocked", node.name, f"scale of shape {list(scale.shape)}")
        return None
    axis = int(given.get("axis", 1)) % max(known.get(data, ("", 1))[1], 1)
    return Grid(node.name, scale, axis, shift, kind, str(raw.dtype))


def _kind(
    node: onnx.NodeProto,
    zero: str,
    given: Mapping[str, Any],
    constants: Constants,
    known: Mapping[str, tuple[str, int]],
) -> str:
    if zero:
        return constants.kind(zero)
    if node.op_type == "DequantizeLinear":
        data = node.input[0]
        return constants.kind(data) if data in constants else known.get(data, ("int8", 0))[0]
    return type_name(int(given.get("output_dtype", 0)) or _UINT8)


def _few(values: list[int]) -> str:
    return " and ".join(map(str, values[:3])) + (" ..." if len(values) > 3 else "")
