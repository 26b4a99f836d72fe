"""Tensors that need not be counted: their counts follow from those of what their node reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.network import SAME_VALUES

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model, Network
    from edgekit.quantize._histogram import Histogram

__all__ = ["Derived", "derive", "derived", "merged", "sided"]


@dataclass(frozen=True)
class Derived:
    """How a tensor's values come from others: "same" values, "relu" of them, "all" of several."""

    kind: str
    sources: tuple[str, ...]


def derived(model: Model, network: Network, names: Collection[str]) -> dict[str, Derived]:
    """Returns the tensors of ``names`` whose counts follow exactly, in graph order.

    Where only some rows of a run count, they must be the same rows: axis 0 stays where it is.
    """
    known = set(names)
    types = _types(model, network)
    found: dict[str, Derived] = {}
    for node in model.proto.graph.node:
        if not node.output or node.output[0] not in known or node.domain not in ("", "ai.onnx"):
            continue
        out = node.output[0]
        sources = tuple(node.input if node.op_type == "Concat" else node.input[:1])
        if not sources or not known.issuperset(sources):
            continue
        kind = _kind(node)
        tensors = [types[name] for name in (out, *sources)]
        first = {shape[:1] for shape, _ in tensors}
        if kind and len(first) == 1 and first != {()} and len({dtype for _, dtype in tensors}) == 1:
            found[out] = Derived(kind, sources)
    return found


def merged(model: Model, network: Network) -> list[str]:
    """Returns float tensors of moves that no layer has: TensorRT merges moves with each other."""
    types = _types(model, network)
    floats = ("float32", "float16")
    return [
        node.output[0]
        for node in model.proto.graph.node
        if node.op_type in SAME_VALUES
        and node.output[0] not in network.tensors
        and types.get(node.output[0], ((), ""))[1] in floats
    ]


def _types(model: Model, network: Network) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns shape and type by tensor, also of those that no layer has."""
    from onnx import helper

    graph = model.proto.graph
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type:
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            found[value.name] = shape, str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found | {n: (tuple(t.shape), t.dtype) for n, t in network.tensors.items()}


def _kind(node: onnx.NodeProto) -> str:
    from onnx import helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Relu":
        return "relu"
    if node.op_type == "Concat":
        # below zero it counts from the last axis, which may be the first
        return "all" if given.get("axis", 1) > 0 else ""
    if node.op_type == "Transpose":
        return "same" if next(iter(given.get("perm", [-1]))) == 0 else ""
    # a third input of Dropout switches it on
    return "same" if node.op_type in SAME_VALUES and len(node.input) < 3 else ""


def sided(made: Mapping[str, Derived]) -> set[str]:
    """Returns the tensors whose sides must be counted apart, since a Relu's counts come of them."""
    found: set[str] = set()
    for name in reversed(list(made)):
        if made[name].kind == "relu" or name in found:
            found.update(made[name].sources)
    return found


def derive(made: Mapping[str, Derived], counted: dict[str, Histogram]) -> None:
    """Adds the histograms of derived tensors to those that were counted."""
    for name, how in made.items():
        first, *others = (counted[source] for source in how.sources)
        if how.kind == "relu":
            counted[name] = first.rectified()
        else:
            counted[name] = first.joined(others)
