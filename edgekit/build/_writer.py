"""Writes an ONNX graph piece by piece: nodes, small constants inline, weights as stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.build._types import Weight

__all__ = ["MICROSOFT", "STRIPPED", "Writer"]

STRIPPED = "stripped"
MICROSOFT = "com.microsoft"


class Writer:
    """The nodes and initializers of one engine; each tensor is made once."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.made: set[str] = set()

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Adds a node named after its output and operator, and returns the output."""
        from onnx import helper

        domain = MICROSOFT if op == "QuantizeLinear" else ""
        name = f"{output}#{op}"
        made = helper.make_node(op, inputs, [output], name=name, domain=domain, **attributes)
        self.nodes.append(made)
        self.made.add(output)
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        """Adds a small inline constant and returns its name."""
        from onnx import numpy_helper

        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(value, name)
        return name

    def keep(self, tensor: onnx.TensorProto) -> str:
        """Adds an initializer of the model as it is."""
        self.initializers.setdefault(tensor.name, tensor)
        return tensor.name

    def weight(self, weight: Weight) -> str:
        """Adds the stub of a stripped weight and returns its name."""
        import numpy as np
        import onnx
        from onnx import helper

        if weight.name not in self.initializers:
            elem = helper.np_dtype_to_tensor_dtype(np.dtype(weight.dtype))
            stub = onnx.TensorProto(name=weight.name, data_type=elem, dims=weight.shape)
            stub.data_location = onnx.TensorProto.EXTERNAL
            stub.external_data.add(key="location", value=STRIPPED)
            self.initializers[weight.name] = stub
        return weight.name

    def cast(self, source: str, target: str, elem: int) -> str:
        """Adds a Cast to an ONNX element type, once."""
        return target if target in self.made else self.node("Cast", [source], target, to=elem)

    def clip(self, source: str, target: str, low: float, high: float) -> str:
        """Adds a Clip: bounds are attributes before opset 11 and inputs since."""
        import numpy as np

        if self.opset < 11:
            return self.node("Clip", [source], target, min=low, max=high)
        bounds = [
            self.constant(f"#clip:{value!r}", np.array(value, np.float32)) for value in (low, high)
        ]
        return self.node("Clip", [source, *bounds], target)

    def reshape(self, source: str, target: str, shape: list[int]) -> str:
        """Adds a Reshape to a constant shape."""
        import numpy as np

        name = self.constant("#shape:" + ",".join(map(str, shape)), np.array(shape, np.int64))
        return self.node("Reshape", [source, name], target)

    def split(self, source: str, sizes: list[int], axis: int, target: str) -> list[str]:
        """Adds a Split: sizes are an attribute before opset 13 and an input since."""
        import numpy as np
        from onnx import helper

        names = [f"{target}{number}" for number in range(len(sizes))]
        inputs = [source]
        attributes: dict[str, Any] = {"axis": axis}
        if self.opset < 13:
            attributes["split"] = sizes
        else:
            name = "#sizes:" + ",".join(map(str, sizes))
            inputs.append(self.constant(name, np.array(sizes, np.int64)))
        self.nodes.append(
            helper.make_node("Split", inputs, names, name=f"{target}#Split", **attributes)
        )
        self.made.update(names)
        return names
