"""Which tensors' shapes depend on values, and which inputs' values make shapes."""

from typing import Any

# operators whose outputs are as long as their values say
_BY_VALUE = {"NonZero", "NonMaxSuppression", "Compress", "Unique"}
# operators whose inputs of these places are shapes, or parts of them
_SHAPES = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Resize": (2, 3),
    "Pad": (1,),
    "TopK": (1,),
}


def by_value(model: Any) -> set[str]:
    """Names of tensors that come of an operator whose output is as long as its values say."""
    found: set[str] = set()
    for node in model.graph.node:
        if node.op_type in _BY_VALUE or found & set(node.input):
            found.update(node.output)
    return found


def make_shapes(model: Any) -> set[str]:
    """Names of inputs whose values make shapes: shape tensors, which lie on the host."""
    wanted: set[str] = set()
    for node in reversed(model.graph.node):
        for place in _SHAPES.get(node.op_type, ()):
            wanted.update(node.input[place : place + 1])
        if wanted & set(node.output) and node.op_type != "Shape":
            wanted.update(node.input)
    return wanted & {one.name for one in model.graph.input}
