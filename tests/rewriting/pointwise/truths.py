"""Networks of truth values for tests."""

from onnx import TensorProto

from tests.rewriting.nets import net, node

SHAPE = (1, 3, 4, 5)
LOGIC = ["And", "Or", "Xor", "Not", "Where", "GreaterOrEqual", "LessOrEqual"]
BOOL = TensorProto.BOOL


def compared(name, op="Greater", left="x", right="z"):
    return node(op, [left, right], [name])


def truth_net(*nodes, outputs=("y",), shapes=None, weights=None, opset=16):
    inputs = {"x": SHAPE, "z": SHAPE, "w": SHAPE, **(shapes or {})}
    used = {k: s for k, s in inputs.items() if any(k in n.input for n in nodes)}
    ends = outputs if isinstance(outputs, dict) else list(outputs)
    return net(list(nodes), used, ends, weights, opset)
