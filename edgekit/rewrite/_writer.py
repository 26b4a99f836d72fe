"""What a rewrite writes its replacement with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._recorded import recipe_of
from edgekit.rewrite._types import Fixed, Match, Node, TooLargeError

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph

__all__ = ["LARGEST", "Writer"]

#: Elements of the constants that a step may add to the network: 32 MiB in FP32. To read more than
#: that takes a board longer than the layers take that such a constant would replace.
LARGEST = 8 << 20
# nodes of one replacement: an LSTM of 64 steps in both directions takes some 2,000
_MOST_NODES = 4096


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
        self._counts: dict[tuple[str, bool], int] = {}
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
            TooLargeError: Too many nodes for one replacement.
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
        if len(self.nodes) >= _MOST_NODES:
            raise TooLargeError(f"more than {_MOST_NODES} nodes")
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

        Raises:
            TooLargeError: As :meth:`room`.
        """
        import numpy as np

        array = np.asarray(value)
        self.room(*array.shape)
        if array.dtype.kind == "f":
            array, dtype = array.astype(np.float64, copy=False), dtype or self._float_type(like)
        elif array.dtype.kind == "b":
            dtype = "bool"
        else:
            array, dtype = array.astype(np.int64), "int64"
        item = Fixed(self._new_tensor(f"{self._anchor.name}:{role}"), array, dtype)
        self.fixed.append(item)
        self._known.add(item.name)
        return item.name

    def room(self, *shape: int) -> None:
        """Call this before a constant is made whose size depends on the network's shapes.

        Raises:
            TooLargeError: A step may not bring a constant of this shape.
        """
        if math.prod(shape) > LARGEST:
            raise TooLargeError(f"a constant of {shape}")

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
        return self._free_name(
            stem, lambda name: self._graph.taken(name) or name in self._tensors, self._tensors
        )

    def _new_name(self, stem: str) -> str:
        return self._free_name(
            stem,
            lambda name: name in self._names or (self._graph.has(name) and name not in self._free),
            self._names,
        )

    def _free_name(self, stem: str, taken: Callable[[str], bool], names: set[str]) -> str:
        """Returns the first free one of ``stem``, ``stem_1``, ... and adds it to ``names``."""
        # the numbers below were found taken before: counting from 1 each time would be quadratic
        key = stem, names is self._tensors
        count = self._counts.get(key, 0)
        name = f"{stem}_{count}" if count else stem
        while taken(name):
            count += 1
            name = f"{stem}_{count}"
        self._counts[key] = count
        names.add(name)
        return name
