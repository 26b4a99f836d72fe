"""How a model was rewritten: what it carries in its metadata, as values."""

from __future__ import annotations

import base64
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.rewrite._types import MalformedError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._types import Node

__all__ = ["KEY", "OPERATORS", "SCHEMA", "Derived", "Recipe", "Record", "closure", "recipe_of"]

# a run must stand for so many elements, on average, to be shorter than they are
_RUN = 4

KEY = "edgekit.rewrite"
SCHEMA = "edgekit.rewritten/1"
#: What may derive weights: pure functions of their inputs, without bodies or randomness.
OPERATORS = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "Conv", "ConvTranspose", "Div", "Equal", "Erf",
    "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm", "Identity",
    "Log", "MatMul", "Max", "Min", "Mul", "Neg", "Not", "Pad", "Pow", "Reciprocal", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceSum", "Reshape", "Resize", "Round", "ScatterElements",
    "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile",
    "Transpose", "Unsqueeze", "Where",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """A node that derives constants from constants; attributes are numbers, texts and lists."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


def recipe_of(node: Node) -> Recipe:
    """Returns a node that derives constants in the form in which a record keeps it.

    Raises:
        MalformedError: Recipes may not have the operator, or an attribute of its kind.
    """
    if node.op not in OPERATORS or node.domain:
        raise MalformedError(f"{node.op} derives {node.outputs[0]!r}: recipes have none")
    attributes = {key: _attribute(node, value) for key, value in sorted(node.attrs.items())}
    return Recipe(node.op, node.inputs, node.outputs, attributes)


def _attribute(node: Node, value: Any) -> Any:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float | str):
        return value
    if isinstance(value, list | tuple):
        return [_attribute(node, part) for part in value]
    if hasattr(value, "item"):  # a number of NumPy's
        return value.item()
    raise MalformedError(f"{node.op} {node.name!r} has an attribute that no recipe can have")


@dataclass(frozen=True, slots=True)
class Derived:
    """Where a weight of the rewritten model comes from.

    Attributes:
        sources: The original's weights.
        recipe: Tensors that recipes write on the way to it, itself the last; empty for a constant
            that a rewrite brought along.
    """

    sources: tuple[str, ...]
    recipe: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """How a model was made of its original.

    Attributes:
        original: Digest of the model that the first rewriting started from.
        opset: ai.onnx before and after.
        rounds: The (rewrite, anchor node) of each rewriting, in order: one for a model that was
            rewritten once.
        weights: The rewritten model's weights that the original has not, by name.
        originals: Type and shape of the original's weights that recipes read.
        stations: Type and shape of what recipes derive and a model between two rewritings has as
            weights: with those of such a model nothing before them is needed.
        recipes: In topological order.
        constants: What recipes read beside weights.
        parameters: Digest of each constant of the original that is no weight, by name; rewrites
            may have read its value.
        operators: How many nodes of each operator and attributes the original has.
    """

    original: str
    opset: tuple[int, int]
    rounds: tuple[tuple[tuple[str, str], ...], ...]
    weights: Mapping[str, Derived]
    originals: Mapping[str, tuple[str, tuple[int, ...]]]
    stations: Mapping[str, tuple[str, tuple[int, ...]]]
    recipes: tuple[Recipe, ...]
    constants: Mapping[str, np.ndarray]
    parameters: Mapping[str, str]
    operators: Mapping[str, int]

    def makers(self) -> dict[str, Recipe]:
        """Returns the recipes by the tensors that they write."""
        return {name: recipe for recipe in self.recipes for name in recipe.outputs if name}

    def to_json(self) -> dict[str, Any]:
        """Returns the document that stands in the model's metadata."""
        return {
            "schema": SCHEMA,
            "original": self.original,
            "opset": list(self.opset),
            "rounds": [len(steps) for steps in self.rounds],
            "steps": [list(step) for steps in self.rounds for step in steps],
            "weights": {
                name: {"from": list(item.sources), "recipe": list(item.recipe)}
                for name, item in self.weights.items()
            },
            "originals": _types(self.originals),
            "stations": _types(self.stations),
            "recipes": [
                {"op": r.op, "inputs": list(r.inputs), "outputs": list(r.outputs),
                 "attributes": dict(r.attributes)}
                for r in self.recipes
            ],
            "constants": {name: _encoded(value) for name, value in self.constants.items()},
            "parameters": dict(self.parameters),
            "operators": dict(self.operators),
        }  # fmt: skip


def closure(
    roots: Iterable[str], makers: Mapping[str, Recipe], stop: Container[str] = ()
) -> list[str]:
    """Returns what is needed to derive tensors, in topological order, the last root at the end.

    Args:
        roots: The tensors; what several of them need is visited once.
        makers: Recipes by the tensors that they write.
        stop: Tensors that are known and not derived.
    """
    done: dict[str, None] = {}
    stack = list(roots)[::-1]
    while stack:
        top = stack[-1]
        recipe = makers.get(top) if top not in stop else None
        missing = [n for n in recipe.inputs if n and n not in done] if recipe else []
        if missing:
            stack += missing
        else:
            done[top] = None
            stack.pop()
    return list(done)


def _types(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    return {name: {"dtype": d, "shape": list(shape)} for name, (d, shape) in types.items()}


def _encoded(value: np.ndarray) -> dict[str, Any]:
    import numpy as np

    data = np.ascontiguousarray(value)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False).reshape(-1)
    found: dict[str, Any] = {"dtype": value.dtype.name, "shape": list(value.shape)}
    # equal neighbours are written once, bit for bit: masks of 0 and 1 are as large as weights
    rows = data.view(np.uint8).reshape(data.size, data.itemsize)
    starts = np.flatnonzero(np.r_[data.size > 0, (rows[1:] != rows[:-1]).any(axis=1)])
    if starts.size * _RUN < data.size:
        found["counts"] = np.diff(np.r_[starts, data.size]).tolist()
        data = data[starts]
    return {**found, "data": base64.b64encode(data.tobytes()).decode("ascii")}
