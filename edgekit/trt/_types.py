"""What is asked of TensorRT, and what becomes of it on one release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Attempt", "Choice", "Decision", "Wish"]

#: A switch of the configuration: "auto" is dropped with a note where it cannot be had.
Choice = Literal["auto"] | bool


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a configuration and its plan ask of a TensorRT build.

    Attributes:
        target: A board under ``targets/``.
        tensorrt: The release that builds, "10.3" or "10.3.0.30".
        mode: "hybrid" (plans; a DLA with GPU fallback where ``dla``), "standalone" (loadables
            alone) or "split" (loadables, and plans of the GPU's segments).
        dla: Whether the plan puts layers on a DLA.
        precision: Lowest precision: "fp32", "fp16" or "int8".
        qdq: The network has Q/DQ nodes, which give the scales; a cache gives them otherwise.
        typing: "weak" (flags and layer precisions), "strong" (types in the network), or "auto":
            what the release has for the board, weak where it has both.
        strip: Take the weights out of plans.
        refit: "identical", "any", or the names of the weights that may be changed.
        version_compatible: Plans for newer releases and the lean runtime.
        lean: "embedded" in version compatible plans, "external", or "auto" (external where the
            release can leave it out: then no plan carries code that the board would run).
        hardware_compatible: Plans for other GPUs.
        dynamic: An optimisation profile has min != max.
        profiles: Number of optimisation profiles.
        plugins: The network has custom layers.
        weight_streaming: Stream weights from host memory.
        cuda_graph: Capture the inference in a CUDA graph.
        bindings: TensorRT's Python module is where the engines are built; without it (trtexec
            alone) nobody can ask a plan which weights it takes.
        places: Where a key stands ("build.strip" -> "net.yaml:12:3"), for messages.
    """

    target: str
    tensorrt: str
    mode: Literal["hybrid", "standalone", "split"] = "hybrid"
    dla: bool = True
    precision: Literal["fp32", "fp16", "int8"] = "int8"
    qdq: bool = False
    typing: Literal["auto", "weak", "strong"] = "auto"
    strip: Choice = "auto"
    refit: Literal["identical", "any"] | tuple[str, ...] = "identical"
    version_compatible: Choice = "auto"
    lean: Literal["auto", "embedded", "external"] = "auto"
    hardware_compatible: bool = False
    dynamic: bool = False
    profiles: int = 0
    plugins: bool = False
    weight_streaming: bool = False
    cuda_graph: bool = False
    bindings: bool = True
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One way to build an engine.

    Attributes:
        flags: Names of TensorRT's BuilderFlag that it sets, in the order of the data.
        gives_up: What it lacks of what was asked, as a sentence; empty for the first.
        breaks: Whether the configuration asks outright for something that it lacks.
    """

    flags: tuple[str, ...]
    gives_up: str = ""
    breaks: bool = False


@dataclass(frozen=True)
class Decision:
    """How engines are built on one release.

    Attributes:
        typing: "weak" or "strong".
        plans: Attempts for plans, tried in order; empty where the mode makes none.
        loadables: Attempts for DLA loadables; empty where the mode makes none.
        unknown: Pairs of features of which nobody states whether they go together: a build tries.
        notes: What was dropped and why, as sentences.
    """

    typing: Literal["weak", "strong"]
    plans: tuple[Attempt, ...] = ()
    loadables: tuple[Attempt, ...] = ()
    unknown: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts of the only kind of engine that the mode makes, of plans where it is two."""
        return self.plans or self.loadables
