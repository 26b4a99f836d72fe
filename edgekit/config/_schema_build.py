"""The ``build`` section: how engines are made, and what a board's container is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgekit.config._section import Section

__all__ = ["BuildSection", "ContainerSection"]

Text = Annotated[str, Field(min_length=1)]


class BuildSection(Section):
    """How engines are built; what goes together on which release: [tensorrt.md](tensorrt.md)."""

    mode: Literal["hybrid", "standalone", "split"] = Field(
        "hybrid",
        description="`hybrid`: DLA with GPU fallback; `standalone`: DLA loadables only; `split`: "
        "segments on GPU and DLA cores as a pipeline.",
    )
    backend: Literal["auto", "reference", "tensorrt", "trtexec"] = Field(
        "auto", description="`auto`: the reference backend without a board that has TensorRT."
    )
    strip: Literal["auto"] | bool = Field(
        "auto", description="Take the weights out of the engines and refit on the board."
    )
    refit: Literal["identical", "any"] | list[Text] = Field(
        "identical",
        description="Which weights a TensorRT engine takes: those that it was built with, any "
        "(slower: fewer fusions), or the named ones.",
        examples=[["head.weight"]],
    )
    version_compatible: Literal["auto"] | bool = Field(
        "auto", description="Build engines that a newer TensorRT can load."
    )
    lean: Literal["auto", "embedded", "external"] = Field(
        "auto",
        description="Where a version compatible engine's lean runtime is: in the engine (code that "
        "the board runs, so for signed bundles only) or on the board; `auto` is `external`.",
    )
    hardware_compatible: bool = Field(
        False, description="Build engines for other GPUs too; no Jetson has it."
    )
    constraints: Literal["prefer", "obey"] = Field(
        "prefer",
        description="Whether the builder prefers the plan's precisions or must obey them (up to "
        "TensorRT 10; later the types in the network count).",
    )
    optimization_level: int | None = Field(
        None, ge=0, le=5, description="How long the builder searches; TensorRT's own when absent."
    )
    workspace_mib: int | None = Field(
        None, ge=1, le=1 << 20, description="The GPU memory that a layer may use while it runs."
    )
    strict: bool = Field(
        False, description="Fail where the engine's placement differs from the plan."
    )
    timing_cache: bool = Field(
        True, description="Keep timings on the board and use them again for the next build."
    )

    @field_validator("refit")
    @classmethod
    def _names(cls, refit: str | list[str]) -> str | list[str]:
        if refit == []:
            raise ValueError("name the weights, or give 'identical' or 'any'")
        if isinstance(refit, list) and len(set(refit)) < len(refit):
            raise ValueError("a weight is named twice")
        return refit


class ContainerSection(Section):
    """A container on the board in which the loader runs (`docker run`)."""

    image: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$",
        description="Its image, which must be on the board or where its docker finds it.",
        examples=["nvcr.io/nvidia/l4t-tensorrt:r10.3.0-runtime"],
    )
    runtime: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = Field(
        "nvidia", description="Docker's runtime; `null` for docker's default."
    )
    options: list[Text] = Field(
        default_factory=list,
        description="More options for `docker run`, one word each.",
        examples=[["--device", "/dev/nvhost-ctrl"]],
    )
