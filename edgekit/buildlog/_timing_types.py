"""The timings of a build log as values: what the builder measured, and what it chose."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ChosenReformat", "Combination", "ConsoleRow", "EngineLayer", "EngineTensor", "OnnxNode",
    "ReformatTiming", "Timings", "UnitTiming",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Combination:
    """Formats that a unit was timed with, input by input and output by output, as printed.

    ``us`` is the time of the fastest tactic in microseconds; None where the builder took it from
    its cache or found no tactic.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    us: float | None


@dataclass(frozen=True, slots=True)
class UnitTiming:
    """A unit of the engine (a GPU layer, or a loadable) and its timings, in the builder's order.

    ``runners`` are the kinds of kernels that were timed ("DLA", "CaskConvolution", ...).
    """

    name: str
    runners: tuple[str, ...]
    combinations: tuple[Combination, ...]

    @property
    def on_dla(self) -> bool:
        """Whether it is a loadable; Myelin's subgraphs on the GPU have the same names."""
        if self.runners:
            return any(runner.startswith("DLA") for runner in self.runners)
        return False


@dataclass(frozen=True, slots=True)
class ReformatTiming:
    """A conversion of a tensor between two formats, in microseconds.

    ``tensor`` is empty where the builder did not name it. ``outward``: towards the caller's format
    of a network output.
    """

    tensor: str
    outward: bool
    source: str
    goal: str
    us: float


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node as the parser printed it; tensors without constants' values, in order."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenReformat:
    """A reformat that the builder put into the engine; ``unit`` reads or writes the tensor."""

    unit: str
    tensor: str
    source: str
    goal: str


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """A tensor of the finished engine and its format, such as ``Int8[1,3:4,224,224]``."""

    name: str
    format: str


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """A layer of the finished engine."""

    kind: str
    name: str
    inputs: tuple[EngineTensor, ...] = ()
    outputs: tuple[EngineTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsoleRow:
    """A row of the table that trtexec --dumpProfile prints; ``us`` is the average."""

    name: str
    us: float


@dataclass(frozen=True)
class Timings:
    """What a log says of times.

    Attributes:
        units: In the builder's order, which is a topological one.
        reformats: Every measured pair of formats by tensor.
        nodes: The ONNX nodes that the parser printed.
        shapes: Tensor shapes that the parser printed, by name.
        inputs: Names of the network's inputs.
        outputs: Names of the network's outputs.
        chosen: Reformats that the builder put in.
        engine: Layers of the finished engine.
        table: The table of --dumpProfile.
        run_us: Means of trtexec's performance summary: "gpu", "h2d", "d2h", "host".
        io_formats: As trtexec prints them, such as "fp32:CHW".
        finished: The builder had chosen its tactics when the log ended.
        sms: Multiprocessors of the GPU that it was measured on; 0 where the log does not say.
    """

    units: tuple[UnitTiming, ...] = ()
    reformats: tuple[ReformatTiming, ...] = ()
    nodes: tuple[OnnxNode, ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    chosen: tuple[ChosenReformat, ...] = ()
    engine: tuple[EngineLayer, ...] = ()
    table: tuple[ConsoleRow, ...] = ()
    run_us: tuple[tuple[str, float], ...] = ()
    io_formats: tuple[str, ...] = ()
    finished: bool = False
    sms: int = 0
