"""A configuration's runtime settings of TensorRT (`trt/runtime.yaml`), and their support by a
board's release.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from edgekit.knowledge import data_folder, read_facts
from edgekit.targets.board import Target
from edgekit.targets.releases import parse_version
from edgekit.tensorrt.releases import TensorRTRelease, release_facts, sources
from edgekit.text import listed
from edgekit_device.protocol.codec import document
from edgekit_device.protocol.manifest import MemorySettings


@document(frozen=True)
class RuntimeRow:
    """A runtime setting of engines.

    Attributes:
        what: Its effect in words.
        where: The key of a configuration, and functions of the board's package, that set it.
        source: Keys of sources.
        guide: The section of NVIDIA's guide.
        names: Names in TensorRT's API; a release must have at least one. Empty for CUDA's settings.
        compute_capability: The GPU's smallest compute capability.
    """

    what: str
    where: tuple[str, ...]
    source: tuple[str, ...]
    guide: str
    names: tuple[str, ...] = ()
    compute_capability: str = ""

    @property
    def since(self) -> str:
        """The first release that has it; empty if that is older than all known releases."""
        names = release_facts().names
        releases = (names[name].since or "" for name in self.names)
        return min(releases, key=lambda text: parse_version(text) if text else (), default="")

    def why_unsupported(self, on: TensorRTRelease, target: Target) -> str:
        """Returns why a board does not support it; empty if it does."""
        if self.names and not any(on.has(name) for name in self.names):
            return f"TensorRT {on.text} has no {self.names[0]}"
        return target.lacking_capability(self.compute_capability)


@document(frozen=True)
class RuntimeFacts:
    """``trt/runtime.yaml``: the rows by setting."""

    settings: Mapping[str, RuntimeRow]


@cache
def runtime_rows() -> Mapping[str, RuntimeRow]:
    """Returns the rows of ``trt/runtime.yaml`` by setting."""
    path = data_folder("trt") / "runtime.yaml"
    return read_facts(RuntimeFacts, path, "edgekit.tensorrt-runtime/1").settings


def dropped_settings(
    memory: MemorySettings, on: TensorRTRelease, target: Target
) -> tuple[str, ...]:
    """Returns a bundle's settings without effect on a board, each as a sentence."""
    default = MemorySettings()
    rows, notes = runtime_rows(), []
    for name in ("shared", "persistent_cache", "weight_budget"):
        row = rows[name]
        if getattr(memory, name) != getattr(default, name) and (
            why := row.why_unsupported(on, target)
        ):
            titles = listed(sources(row.source), most=9)
            notes.append(f"{row.where[0]} has no effect: {why} ({titles})")
    return tuple(notes)
