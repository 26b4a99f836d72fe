"""The ``edgekit.export/1`` document of an export."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from edgekit.documents import Coded, Count, Digest, Document, Figure, Number, Release, omitted
from edgekit.network.left_modules import LeftModule

Exporter = Literal["dynamo", "legacy"]
Plain: TypeAlias = "bool | int | float | str | None"


class Tensor(Document):
    """An input or output of the ONNX file.

    Attributes:
        shape: Sizes of the axes.
    """

    name: str
    shape: list[Count]
    type: str = Field(description='In the file, by NumPy\'s name: "float32".')
    torch_type: str = Field(
        description="In PyTorch, without the prefix: a bfloat16 module is float32 in the file."
    )
    range: tuple[Number, Number] | None = omitted(
        None, description="The smallest and the largest number of the example, of an input."
    )


class Structure(Document):
    """The structure of a module's result: a tensor, a constant, or a list, tuple or dict of
    structures.
    """

    kind: Literal["tensor", "constant", "list", "tuple", "dict"]
    name: str | None = omitted(None, description="The output, of a tensor.")
    value: str | bool | int | float | None = omitted(None, description="Of a constant.")
    keys: list[str] = omitted([], description="Of a dict, a dataclass or a named tuple.")
    items: list[Structure] = omitted([], description="In order.")
    type: str = omitted("", description="The class, of other dicts and tuples than Python's own.")


class Arguments(Document):
    """The call signature of the network."""

    parameters: list[str] = Field(description="The names of positional arguments, in order.")
    leaves: list[str] = omitted(
        [], description="Of a program: the names of all tensors and constants, in order."
    )
    constants: dict[str, Plain] = Field(
        description="By name, the network's fixed arguments. Values other than numbers, flags and "
        "texts are in Python's notation."
    )
    defaults: dict[str, Plain] = omitted(
        {}, description="Of a module, by name: the default of an argument."
    )


class Agreement(Document):
    """The comparison of the ONNX file (in ONNX Runtime) with PyTorch."""

    inputs: Count = Field(description="How many were compared: the example, and random ones.")
    difference: Figure = Field(
        description="The largest of a number, by its output's largest magnitude; of integers and "
        "flags a hundredth may differ."
    )
    tolerance: Figure = Field(description="The largest difference that passes.")
    output: str = Field(description="The output with the largest difference.")


class Exported(Document):
    """An ONNX file that was exported from a PyTorch network, or passed to ``edgekit.compile``."""

    schema_: Literal["edgekit.export/1"] = Field(alias="schema")
    file: str = Field(description="The ONNX file.")
    source: str = Field(description="The module's class, the file or the factory.")
    kind: Literal["module", "program", "torchscript", "onnx"]
    torch: str | None = Field(description="PyTorch's version; null of an ONNX file.")
    exporter: Exporter | None = Field(description="Null of an ONNX file.")
    opset: Count = Field(description="The file's version of ai.onnx.")
    tensorrt: Release = Field(description="The release that exporter and opset were chosen for.")
    inputs: list[Tensor]
    outputs: list[Tensor]
    arguments: Arguments
    result: Structure = Field(
        description="The module's result; of an ONNX file its output, or a tuple of outputs."
    )
    structure: Digest = Field(description="SHA-256 of the network without the weights' values.")
    weights: Digest = Field(description="SHA-256 of the weights' values.")
    agreement: Agreement | None = Field(description="Null of an ONNX file.")
    cached: bool = Field(description="Whether the file was made before.")
    notes: list[str]
    left: list[Annotated[LeftModule, Coded()]] = omitted(
        [], description="In the order of the network."
    )
    dimensions: dict[str, str] = omitted(
        {},
        description="Ranges of the file's open axes by name, as `model.dimensions` takes them: the "
        "smallest size, the example's where it is not the largest, and the largest.",
    )

    def __str__(self) -> str:
        """Returns the file and its exporter as text."""
        return f"{self.file}: {self.words()}"

    def words(self) -> str:
        """Returns the exporter and the difference from PyTorch as text."""
        if self.agreement is None:
            return f"an ONNX file in opset {self.opset}"
        return (
            f"exported from PyTorch {self.torch} by the {self.exporter} exporter in opset "
            f"{self.opset}; differs from PyTorch by {self.agreement.difference:.2g} of an output's "
            f"largest value (tolerance {self.agreement.tolerance:.2g})"
        )
