"""The ``edgekit.compiled/1`` document of a compiled network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.documents import ClockName, Coded, Count, Device, Digest, Document, Figure, TargetName
from edgekit.placement.plan import Plan
from edgekit.pytorch.document import Exported
from edgekit.text import align

_CLOCKS = {
    "board-measured": "measured on a board",
    "cpu-measured": "measured on this machine's CPU",
}


class PlacedModule(Document):
    """A module, or part of a module, that is entirely on a single device."""

    module: str = Field(description='Its path; "" for the operators of the network itself.')
    where: Device | Literal["PyTorch", "ONNX Runtime"] = Field(
        description="GPU, DLA0, DLA1, PyTorch; or ONNX Runtime, of a left-out module whose network "
        "was no module of this process."
    )
    us: Figure | None = Field(
        description="Microseconds of its layers in one inference, or of the call of a left-out "
        "module; null if that was not measured."
    )
    clock: ClockName | Literal["unknown"] = Field(
        description="Where the time is from: predicted by the cost model, or measured on a board; "
        "of a left-out module cpu-measured: on the CPU of the machine that compiled, and no "
        "board's time; unknown if it was not measured."
    )
    bytes: Count = Field(
        description="Bytes read from other devices and parts in one inference; of a left-out "
        "module, bytes read and returned."
    )


class CompiledPart(Document):
    """A part of the network that is an application."""

    name: str = Field(description="The application's.")
    file: str = Field(description="Its ONNX file.")
    inputs: list[str]
    outputs: list[str]
    digest: Digest = Field(description="SHA-256 of its bundle's manifest.")
    backend: str = Field(description='Who runs it: "reference" is ONNX Runtime on a CPU.')
    plan: Annotated[Plan, Coded()]


class Compiled(Document):
    """A compiled network."""

    schema_: Literal["edgekit.compiled/1"] = Field(alias="schema")
    target: TargetName
    board: str | None = Field(
        description="Where it runs; null: the reference backend on this machine's CPU, which gives "
        "the values of the target's precisions and not its times."
    )
    exported: Exported
    parts: list[CompiledPart] = Field(description="In the order of the network.")
    modules: list[PlacedModule] = Field(description="In the order of the network.")
    notes: list[str]

    def __str__(self) -> str:
        """Returns the modules as a table, for people."""
        rows = [("module", "where", "time", "crosses")]
        for module in self.modules:
            clock = _CLOCKS.get(module.clock, module.clock)
            time = "not measured" if module.us is None else f"{module.us:.1f} us {clock}"
            rows.append(
                (module.module or "(the network)", module.where, time, f"{module.bytes:,} B")
            )
        where = f"runs on {self.board}" if self.board else "runs on this machine's CPU"
        head, notes = f"compiled for {self.target}; {where}", [self.exported.words(), *self.notes]
        return "\n".join([head, *align(rows), *notes])
