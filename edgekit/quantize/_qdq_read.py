"""Reads a Q/DQ model: which tensor has which scale, and what its quantised constants are.

A quantised tensor is known by the float tensor that stays when the Q/DQ nodes are gone: the one
that QuantizeLinear reads (steps 1 and 2 of NVIDIA's qdq-translator). Nodes between the two that
only move codes move floats afterwards, so their results are quantised tensors as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.network import QDQ
from edgekit.quantize._qdq_grid import Constants, Grid, Problems, grid_of, type_name

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model

__all__ = ["Fixed", "Reading", "Use", "read_qdq"]

# a QuantizeLinear gives INT8 to them as well as to DequantizeLinear: values stay what they are
_MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
_INTEGER = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)


@dataclass(frozen=True, eq=False)
class Use:
    """One quantisation of a tensor.

    Attributes:
        grid: Of the QuantizeLinear.
        before: What quantised the same tensor before it (a DequantizeLinear whose result is
            quantised again), or None.
    """

    grid: Grid
    before: Use | None = None


@dataclass(frozen=True, eq=False)
class Fixed:
    """A quantised constant.

    Attributes:
        tensor: The tensor that takes the dequantised values: the result of the QuantizeLinear
            that reads a float constant, or of the DequantizeLinear that reads codes.
        source: The constant of the file: floats or codes.
        grid: Its scales.
        codes: Whether the file holds codes.
    """

    tensor: str
    source: str
    grid: Grid
    codes: bool


@dataclass(eq=False)
class Reading:
    """What the Q/DQ nodes of a model say.

    Attributes:
        uses: The quantisations of a tensor, by the float tensor that stays.
        roots: That tensor, by the result of each DequantizeLinear.
        fixed: The quantised constants.
        plain: Names of the nodes that turn into Identity.
        integers: Tensors that held codes and hold floats afterwards.
        direct: Uses whose result something else than a QuantizeLinear reads.
        floats: By quantised tensor that is also read unquantised, the nodes that do so.
    """

    uses: dict[str, list[Use]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    fixed: list[Fixed] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    integers: set[str] = field(default_factory=set)
    direct: set[Use] = field(default_factory=set)
    floats: dict[str, list[str]] = field(default_factory=dict)


def read_qdq(model: Model) -> Reading:
    """Reads the Q/DQ nodes of a model.

    Raises:
        ModelError: Codes ``qdq.*``: it has none, or some that implicit INT8 cannot express; all
            of a kind are named.
    """
    reader = _Reader(model)
    for node in model.proto.graph.node:
        reader.take(node)
    reader.finish()
    return reader.reading


class _Reader:
    """Goes through the nodes in graph order."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self._model = model
        self._constants = Constants(model)
        self._known = {
            value.name: (
                type_name(value.type.tensor_type.elem_type),
                len(value.type.tensor_type.shape.dim),
            )
            for value in (*graph.value_info, *graph.input, *graph.output)
        }
        self._known.update(
            {item.name: (type_name(item.data_type), len(item.dims)) for item in graph.initializer}
        )
        self._problems = Problems()
        self.reading = Reading()
        # tensors of codes: what they are the codes of, and on which grid; no use for constants
        self._codes: dict[str, tuple[str, Grid, Use | None]] = {}
        # results of DequantizeLinear nodes
        self._given: dict[str, Use] = {}

    def take(self, node: onnx.NodeProto) -> None:
        if node.op_type == "QuantizeLinear":
            self._quantize(node)
        elif node.op_type == "DequantizeLinear":
            self._dequantize(node)
        elif node.op_type in _INTEGER:
            self._problems.add("qdq.integer", node.name, node.op_type)
        else:
            self._other(node)

    def _quantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = grid_of(node, self._constants, self._known, self._problems)
        self.reading.integers.add(target)
        if source in self._constants:
            if grid is not None:
                self.reading.fixed.append(Fixed(target, source, grid, codes=False))
                self._codes[target] = target, grid, None
            return
        self.reading.plain.append(node.name)
        if grid is None:
            return
        if grid.axis is not None:
            self._problems.add("qdq.axis", source, node.name)
            return
        root = self.reading.roots.get(source, source)
        use = Use(grid, self._given.get(source))
        self.reading.uses.setdefault(root, []).append(use)
        self._codes[target] = root, grid, use

    def _dequantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = grid_of(node, self._constants, self._known, self._problems)
        if source in self._constants:
            if grid is not None:
                self.reading.fixed.append(Fixed(target, source, grid, codes=True))
            return
        self.reading.plain.append(node.name)
        if source not in self._codes:
            # where the QuantizeLinear itself is at fault, that is told
            if source not in self.reading.integers:
                self._problems.add("qdq.open", source, f"read by {node.name}")
            return
        root, before, use = self._codes[source]
        if grid is not None and not grid.same(before):
            detail = f"{grid.step:g}, and {before.step:g} in {before.node}"
            self._problems.add("qdq.pair", node.name, detail)
        if use is not None:
            self.reading.roots[target] = root
            self._given[target] = use

    def _other(self, node: onnx.NodeProto) -> None:
        from onnx import AttributeProto

        bodies = [item.g for item in node.attribute if item.type == AttributeProto.GRAPH]
        if any(inner.op_type in QDQ for body in bodies for inner in body.node):
            self._problems.add("qdq.subgraph", node.name)
        held = [name for name in node.input if name in self._codes]
        if held:
            self._move(node, held)

    def _move(self, node: onnx.NodeProto, held: list[str]) -> None:
        """A node that reads codes: what only moves them is one that moves floats."""
        sources = {self._codes[name][1].step for name in held}
        joins = node.op_type == "Concat" and len(held) == len(node.input) and len(sources) == 1
        if not joins and (node.op_type not in _MOVES or list(node.input[:1]) != held):
            self._problems.add("qdq.integer", node.name, node.op_type)
            return
        _, grid, use = self._codes[held[0]]
        for name in filter(None, node.output):
            self._codes[name] = name, grid, use
            self.reading.integers.add(name)
            if use is not None:
                self.reading.uses.setdefault(name, []).append(use)

    def finish(self) -> None:
        """Refuses what cannot be translated.

        Raises:
            ModelError: See :func:`read_qdq`.
        """
        from edgekit.errors import ModelError

        graph = self._model.proto.graph
        for node in graph.node:
            if node.op_type == "QuantizeLinear":
                continue
            self.reading.direct.update(self._given[x] for x in node.input if x in self._given)
            for name in node.input:
                if name in self.reading.uses and name not in self._codes:
                    self.reading.floats.setdefault(name, []).append(node.name)
        for value in graph.output:
            if value.name in self._given:
                self.reading.direct.add(self._given[value.name])
            if value.name in self.reading.integers:
                self._problems.add("qdq.open", value.name, "an output of the network")
        self._problems.refuse(self._model.source)
        if not any(node.op_type in QDQ for node in graph.node):
            raise ModelError(
                "the model has no QuantizeLinear or DequantizeLinear nodes",
                code="qdq.none",
                where=self._model.source,
                hint="it is plain already: edgekit calibrate measures its scales",
            )
