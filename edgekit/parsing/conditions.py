"""Conditions of rows of ``trt/operators.yaml``: the parser's refusals that depend on a node's
shapes, values and attributes together. Each function returns True if the parser refuses the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import onnx

from edgekit.network.graph import Node, node_proto
from edgekit.network.loading.bodies import BRANCHES, UNLIMITED, Scope, graphs
from edgekit.network.protos import reads
from edgekit_device.protocol.codec import document

Shape = tuple[int, ...]
# the parser's defaults other than 0 (getActivationDefaultAlpha, getActivationDefaultBeta)
_ALPHA = {
    "Elu": 1.0,
    "HardSigmoid": 0.2,
    "LeakyRelu": 0.01,
    "ScaledTanh": 1.0,
    "ThresholdedRelu": 1.0,
}
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0}


@document(frozen=True)
class Case:
    """A node with the known facts about its inputs.

    Attributes:
        node: The node.
        shape_of: Returns a tensor's shape; None if unknown.
        value_of: Returns a constant's values; None for any other tensor.
        bodies: Returns the node's bodies as far as they can be evaluated.
    """

    node: Node
    shape_of: Callable[[str], Shape | None]
    value_of: Callable[[str], np.ndarray | None]
    bodies: Callable[[], Mapping[str, Scope]] = dict

    def shape(self, index: int) -> Shape | None:
        """Returns the shape of an input; None if unknown or omitted."""
        name = self.node.input(index)
        return self.shape_of(name) if name else None

    def value(self, index: int) -> np.ndarray | None:
        """Returns the values of an input; None if not constant, or omitted."""
        name = self.node.input(index)
        return self.value_of(name) if name else None


def _vector_by_stack(case: Case) -> bool:
    """Detects a vector times a stack of matrices: the importer drops the result's first
    dimension."""
    vector, stack = case.shape(0), case.shape(1)
    if vector is None or stack is None:
        return False
    return len(vector) == 1 and len(stack) > 2 and stack[0] != 1


def _unlike_values(case: Case) -> bool:
    """Detects keys and values of different shapes: IAttention requires equal shapes."""
    keys, values = case.shape(1), case.shape(2)
    return keys is not None and values is not None and keys != values


def _mask(case: Case) -> bool:
    """Detects a mask that does not broadcast to queries by keys."""
    query, key, mask = case.shape(0), case.shape(1), case.shape(3)
    if query is None or key is None or mask is None:
        return False
    # the batch and the heads can always be broadcast
    wanted = (query[-2], key[-2])
    # a mask of lower rank broadcasts from the last axis
    found = (1, 1, *mask)[-2:]
    return any(size not in (1, full) for size, full in zip(found, wanted, strict=True))


def _other_axes(case: Case) -> bool:
    """Detects a Resize whose axes are not all dimensions in order."""
    shape = case.shape(0)
    return shape is None or list(case.node.attrs["axes"]) != list(range(len(shape)))


def _resize_scales(case: Case) -> tuple[list[float], int] | None:
    """Returns the constant scales of all dimensions, and the number that the node has; None if
    unknown."""
    attrs, inputs = case.node.attrs, case.node.inputs
    if "scales" in attrs:  # Upsample before opset 9
        scales = list(attrs["scales"])
        return scales, len(scales)
    # since opset 11 Resize has the input roi before the scales
    found = case.value(2 if len(inputs) > 2 else 1)
    if found is None or found.ndim != 1:
        return None
    scales = found.tolist()
    if "axes" not in attrs:
        return scales, len(scales)
    shape = case.shape(0)
    if shape is None:
        return None
    full = [1.0] * len(shape)
    for axis, scale in zip(attrs["axes"], scales, strict=False):
        full[axis] = scale
    return full, len(scales)


def _scaled_beyond(most: int, case: Case) -> bool:
    """Detects scales other than 1 before the last dimensions (canUseNDResize of the parser)."""
    found = _resize_scales(case)
    if found is None:
        return False
    scales, given = found
    return any(scale != 1 for scale in scales[: max(given - most, 0)])


def _other_rounding(case: Case) -> bool:
    """Detects a nearest_mode other than the default."""
    return bool(case.node.attrs.get("nearest_mode", "round_prefer_floor") != "round_prefer_floor")


def _uneven(case: Case) -> bool:
    """Detects a split dimension that is not a multiple of the number of outputs."""
    shape, attrs = case.shape(0), case.node.attrs
    return shape is not None and shape[attrs.get("axis", 0)] % attrs["num_outputs"] != 0


def _other_than_all_axes(case: Case) -> bool:
    """Detects axes as an input, or noop_with_empty_axes, with which not every dimension is
    reduced."""
    axes = case.value(1)
    if case.node.input(1) and axes is None:
        return True
    if axes is None or not axes.size:
        return bool(case.node.attrs.get("noop_with_empty_axes", 0))
    shape = case.shape(0)
    return shape is None or {axis % len(shape) for axis in axes.tolist()} != {*range(len(shape))}


def _unlike_passes(case: Case) -> bool:
    """Detects a recurrent operator whose reverse pass has other activations than the forward
    pass."""
    attrs = case.node.attrs
    names = list(attrs.get("activations", ()))
    half = len(names) // 2
    if names[:half] != names[half:]:
        return True
    for key, defaults in (("activation_alpha", _ALPHA), ("activation_beta", _BETA)):
        given = list(attrs.get(key, ()))
        values = given + [defaults.get(name, 0.0) for name in names[len(given) :]]
        numbers = np.array(values, np.float32)
        if not np.array_equal(numbers[:half], numbers[half:]):
            return True
    return False


def _uint8_value(case: Case) -> bool:
    """Detects a value of uint8."""
    return bool(case.node.attrs["value"].data_type == onnx.TensorProto.UINT8)


def _padding(case: Case) -> Iterator[int]:
    """Yields the padding of each dimension that results in ConvTranspose's output_shape."""
    attrs, shape, weights = case.node.attrs, case.shape(0), case.shape(1)
    if shape is None or weights is None:
        return
    # output_shape may have the batch and channels as well: the last sizes are spatial
    kernel, wanted = weights[2:], list(attrs["output_shape"])[2 - len(shape) :]
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    parts: Sequence[Sequence[int]] = (
        attrs.get("strides", ones),
        attrs.get("dilations", ones),
        attrs.get("output_padding", zeros),
    )
    for size, taps, out, stride, dilation, extra in zip(
        shape[2:], kernel, wanted, *parts, strict=True
    ):
        # 0 is an unknown size
        if size:
            yield stride * (size - 1) + extra + (taps - 1) * dilation + 1 - out


def _negative_padding(case: Case) -> bool:
    """Detects an output_shape that is larger than ConvTranspose's result without padding."""
    if case.node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    # the parser puts half of the padding at the begin, rounded towards 0
    return any(padding <= -2 for padding in _padding(case))


def _unlimited(case: Case) -> bool:
    """Detects a Loop without a trip count; exporters also write the largest number."""
    limit = case.value(0)
    return not case.node.input(0) or (limit is not None and int(limit.max()) >= UNLIMITED)


def _body_reads(position: int, case: Case) -> bool:
    """Detects a Loop whose body reads its iteration number (0) or its condition (1)."""
    body = graphs(node_proto(case.node))["body"]
    name = body.input[position].name
    read = {tensor for part in body.node for tensor in reads(part)}
    return name in read or any(value.name == name for value in body.output)


def _scan_outputs(case: Case) -> list[str]:
    """Returns the scan outputs of a Loop that have names."""
    return [name for name in case.node.outputs[max(len(case.node.inputs) - 2, 0) :] if name]


def _collects_early(case: Case) -> bool:
    """Detects a Loop with a trip count and scan outputs that may end earlier: TensorRT returns the
    results of all iterations."""
    if _unlimited(case) or not _scan_outputs(case):
        return False
    body, inner = graphs(node_proto(case.node))["body"], case.bodies().get("body")
    if not case.node.input(1) or inner is None:
        return False
    goes_on, start = inner.value(body.output[0].name), case.value(1)
    always = goes_on is not None and bool(goes_on.all())
    return not always or start is None or not start.all()


def _grows(case: Case) -> bool:
    """Detects a carried tensor whose shape changes in an iteration."""
    first = 1 if case.node.op == "Loop" else 0
    states = len(case.node.inputs) - (2 if first else case.node.attrs["num_scan_inputs"])
    body, inner = graphs(node_proto(case.node)).get("body"), case.bodies().get("body")
    if body is None or inner is None:
        return False
    for before, after in zip(body.input[2 * first :], body.output[first:], strict=False):
        given, made = inner.type_and_shape(before.name), inner.type_and_shape(after.name)
        states -= 1
        if states >= 0 and given is not None and made is not None and given[1] != made[1]:
            return True
    return False


def _unlike_branches(case: Case) -> bool:
    """Detects branches whose results have different shapes."""
    found, bodies = graphs(node_proto(case.node)), case.bodies()
    if len(bodies) < len(BRANCHES):
        return False
    sides = [
        [bodies[at].type_and_shape(value.name) for value in found[at].output] for at in BRANCHES
    ]
    pairs = zip(*sides, strict=False)
    return any(left and right and left[1] != right[1] for left, right in pairs)


#: Conditions by name, for ``condition`` of a row.
CONDITIONS: Mapping[str, Callable[[Case], bool]] = {
    "collects_early": _collects_early,
    "collects_unlimited": lambda case: _unlimited(case) and bool(_scan_outputs(case)),
    "grows": _grows,
    "mask": _mask,
    "negative_padding": _negative_padding,
    "no_states": lambda case: len(case.node.inputs) == case.node.attrs["num_scan_inputs"],
    "other_axes": _other_axes,
    "other_rounding": _other_rounding,
    "other_than_all_axes": _other_than_all_axes,
    "reads_condition": partial(_body_reads, 1),
    "reads_iteration": lambda case: _unlimited(case) and _body_reads(0, case),
    "scaled_beyond_2": partial(_scaled_beyond, 2),
    "scaled_beyond_3": partial(_scaled_beyond, 3),
    "uneven": _uneven,
    "uint8_value": _uint8_value,
    "unlike_branches": _unlike_branches,
    "unlike_passes": _unlike_passes,
    "unlike_values": _unlike_values,
    "vector_by_stack": _vector_by_stack,
}
