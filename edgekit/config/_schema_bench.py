"""The configuration's section ``bench``."""

from __future__ import annotations

from pydantic import Field, model_validator

from edgekit.config._section import FilePath, Section

__all__ = ["BenchSection"]


class BenchSection(Section):
    """How the benchmark measures (trtexec's method)."""

    warmup_ms: float = Field(200, ge=0, le=600_000, description="Warm-up time.")
    duration_s: float = Field(3, ge=0, le=3600, description="Measure at least this long.")
    iterations: int = Field(10, ge=1, le=1_000_000, description="Measure at least this often.")
    streams: int = Field(
        1, ge=1, le=64, description="Frames in flight at once, each in a stream of its own."
    )
    graph: bool = Field(
        False, description="Replay frames as a CUDA graph; TensorRT has none with a DLA."
    )
    spin: bool | None = Field(
        None, description="Wait for the GPU spinning, or blocked; as CUDA chooses when absent."
    )
    transfers: bool = Field(True, description="Copy inputs and outputs for each frame.")
    sleep_ms: float = Field(0, ge=0, le=60_000, description="Pause after each frame.")
    inputs: FilePath = Field(
        None,
        description="Frames to measure with (.npz, .npy, images), relative to this file; the "
        "bundle's own when absent.",
        examples=["frames.npz"],
    )
    lock_clocks: bool = Field(
        False,
        description="Hold every clock at its highest (jetson_clocks) meanwhile, and restore them.",
    )
    power_mode: str | None = Field(
        None,
        description="Power mode to measure in, by name or id, and to come back from; the board's "
        "present one when absent.",
        examples=["MAXN"],
    )
    with_trtexec: bool = Field(
        False, description="Measure the same plans with trtexec, too, and compare."
    )
    monitor_ms: float = Field(
        100,
        ge=0,
        le=60_000,
        description="Between two looks at clocks, temperatures, power and load; 0: do not look.",
    )
    idle_s: float | None = Field(
        None,
        ge=0,
        le=600,
        description="Watch the board idle this long first: the baseline of its power. 2 s on a "
        "board with TensorRT, not at all on the reference backend when absent.",
    )

    @model_validator(mode="after")
    def _can_look(self) -> BenchSection:
        if 0 < self.monitor_ms < _LEAST_MS:
            raise ValueError(f"monitor_ms is 0 (off) or at least {_LEAST_MS}")
        return self


_LEAST_MS = 10
