"""What a rewrite writes its replacement with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._recorded import recipe_of
from edgekit.rewrite._types import Fixed, Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["Writer"]


class Writer:
    """Collects the nodes and constants of one replacement; names are made unique.

    A node whose inputs are all constants is a recipe: it derives a weight from others, is computed
    when the model is finished, and is kept in the model's metadata, so that a refit derives the
    weight again from other values. Write weights that come from the model's this way, from
    standard ONNX operators (Reshape, Transpose, Mul, Gather, Concat, Pad, ...), and give only
    numbers that do not depend on weights as ``constant``.

    Attributes:
        nodes: In the order written, which must be topological.
        recipes: Names of those that are recipes.
        fixed: The constants.
    """

    def __init__(self, graph: Graph, match: Match) -> None:
        self._graph = graph
        self._anchor = match.nodes[0]
        self._writers = {t: node.name for node in match.nodes for t in node.outputs if t}
        self._free = {node.name for node in match.nodes}
        self._names: set[str] = set()
        self._tensors: set[str] = set()
        self._known: set[str] = set()
        self.nodes: list[Node] = []
        self.recipes: set[str] = set()
        self.fixed: list[Fixed] = []

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        output: str = "",
        name: str = "",
        role: str = "",
        **attrs: Any,
    ) -> str:
        """Writes a node of one output and returns that output's name.

        Args:
            op: ONNX operator, in the form of ``graph.opset`` (13 or later).
            inputs: Tensors; "" for an optional one that is left out.
            output: Tensor to write; a new one when empty.
            name: The node's name. When empty it is that of the replaced node that wrote
                ``output``, or else made of the anchor's name and ``role``.
            role: What it is for, in a word; the operator when empty.
            attrs: Attributes; those that are None are left out.

        Raises:
            MalformedError: A recipe of an operator that no record may have.
        """
        return self.many(op, inputs, [output], name=name, role=role, **attrs)[0]

    def many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str = "",
        role: str = "",
        **attrs: Any,
    ) -> list[str]:
        """Writes a node of several outputs ("" for a new tensor) and returns their names."""
        stem = role or op.lower()
        recipe = all(self._constant(tensor) for tensor in inputs if tensor)
        base = next((t for t in inputs if t), "") if recipe else self._anchor.name
        written = [tensor or self._new_tensor(f"{base}:{stem}") for tensor in outputs]
        wanted = name or next((self._writers[t] for t in written if t in self._writers), "")
        node = Node(
            self._new_name(wanted or f"{base}:{stem}"),
            op,
            tuple(inputs),
            tuple(written),
            {key: value for key, value in attrs.items() if value is not None},
        )
        if recipe and any(inputs):
            # refused now, and not when the record is written and all is lost
            recipe_of(node)
            self.recipes.add(node.name)
        self.nodes.append(node)
        if recipe:
            self._known.update(written)
        return written

    def constant(
        self, value: Any, *, like: str = "", role: str = "constant", dtype: str = ""
    ) -> str:
        """Brings a constant along and returns its name.

        Args:
            value: Array, list or number. Floats are kept in float64 until the model is finished;
                whole numbers become int64, truth values bool.
            like: Activation or constant whose floating-point type it gets; that of the anchor's
                first floating-point input when empty.
            role: What it is for, in a word.
            dtype: NumPy type name where the operator asks for one whatever the activations have
                ("float32" for the scales of a Resize).
        """
        import numpy as np

        array = np.asarray(value)
        if array.dtype.kind == "f":
            array, dtype = array.astype(np.float64), dtype or self._float_type(like)
        elif array.dtype.kind == "b":
            dtype = "bool"
        else:
            array, dtype = array.astype(np.int64), "int64"
        item = Fixed(self._new_tensor(f"{self._anchor.name}:{role}"), array, dtype)
        self.fixed.append(item)
        self._known.add(item.name)
        return item.name

    def _constant(self, tensor: str) -> bool:
        return tensor in self._known or self._graph.constant(tensor)

    def _float_type(self, like: str) -> str:
        if like:
            return self._graph.dtype(like)
        for tensor in (*self._anchor.inputs, *self._anchor.outputs):
            if tensor and self._graph.floats(tensor):
                return self._graph.dtype(tensor)
        return "float32"

    def _new_tensor(self, stem: str) -> str:
        name, count = stem, 0
        while self._graph.taken(name) or name in self._tensors:
            count += 1
            name = f"{stem}_{count}"
        self._tensors.add(name)
        return name

    def _new_name(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._names or (self._graph.has(name) and name not in self._free):
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name
