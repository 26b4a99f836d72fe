"""What an export is: the ``edgekit.export/1`` document."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.documents import Document, omitted

SCHEMA = "edgekit.export/1"
Exporter = Literal["dynamo", "legacy"]


class Tensor(Document):
    """An input or output of the ONNX file."""

    name: str
    shape: list[int]
    type: str = Field(description='In the file, by NumPy\'s name: "float32".')
    torch_type: str = Field(
        description="In PyTorch, without the prefix: a bfloat16 module is float32 in the file."
    )


class Structure(Document):
    """What a module returns: a tensor, a constant, or a list, tuple or dict of structures."""

    kind: Literal["tensor", "constant", "list", "tuple", "dict"]
    name: str | None = omitted(None, description="The output, of a tensor.")
    value: str | bool | int | float | None = omitted(None, description="Of a constant.")
    keys: list[str] = omitted([], description="Of a dict, a dataclass or a named tuple.")
    items: list[Structure] = omitted([], description="In order.")
    type: str = omitted("", description="The class, of other dicts and tuples than Python's own.")


class Agreement(Document):
    """How the ONNX file, run by ONNX Runtime, agrees with PyTorch."""

    inputs: int = Field(description="How many inputs were compared: the example, and random ones.")
    difference: float = Field(
        description="The largest of a number, by its output's largest magnitude; of integers and "
        "flags a hundredth may differ."
    )
    tolerance: float = Field(description="The largest difference that passes.")
    output: str = Field(description="The output with the largest difference.")


class LeftModule(Document):
    """A call of a module that stays in PyTorch: a node ``edgekit.pytorch::Module`` of the file."""

    module: str = Field(description="Its path.")
    call: int = Field(description="The call's number in the order of the network, from 0.")
    inputs: list[str] = Field(description="The tensors among its arguments.")
    outputs: list[str] = Field(description="The tensors among its results.")
    bytes: int = Field(description="What its inputs and outputs take, in the file's types.")


class Exported(Document):
    """An ONNX file that was made of a PyTorch network."""

    schema_: str = Field(alias="schema")
    file: str = Field(description="The ONNX file.")
    source: str = Field(description="The module's class, the file or the factory.")
    kind: Literal["module", "program", "torchscript"]
    torch: str = Field(description="PyTorch's version.")
    exporter: Exporter
    opset: int = Field(description="The file's version of ai.onnx.")
    tensorrt: str = Field(description="The release that exporter and opset were chosen for.")
    inputs: list[Tensor]
    outputs: list[Tensor]
    result: Structure = Field(description="What the module returns.")
    structure: str = Field(description="SHA-256 of the network without the weights' values.")
    weights: str = Field(description="SHA-256 of the weights' values.")
    agreement: Agreement
    cached: bool = Field(description="Whether the file was made before.")
    notes: list[str]
    left: list[LeftModule] = omitted([], description="In the order of the network.")

    def words(self) -> str:
        """Returns by what the file was made, and how far it is from PyTorch, for people."""
        return (
            f"exported from PyTorch {self.torch} by the {self.exporter} exporter in opset "
            f"{self.opset}; differs from PyTorch by {self.agreement.difference:.2g} of an output's "
            f"largest value (tolerance {self.agreement.tolerance:.2g})"
        )
