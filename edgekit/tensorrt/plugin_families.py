"""The kinds of plugins that a TensorRT release supports, and the entry points of their libraries
(``trt/plugins.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from edgekit.knowledge import data_folder, read_facts
from edgekit.targets.releases import parse_version
from edgekit.tensorrt.releases import ReleaseRange
from edgekit_device.protocol.codec import document


@document(frozen=True, kw_only=True)
class PluginFamily(ReleaseRange):
    """A kind of plugin.

    Attributes:
        what: The code that a user writes.
        travels: A board's need to run an engine with it: "library", "python" (the module), or
            "plan" (only the plan).
        deprecated: The first release in which it is deprecated; None if it is not deprecated.
        names: Names of the Python API that came with it.
    """

    what: str
    travels: str
    deprecated: str | None = None
    names: tuple[str, ...]
    source: tuple[str, ...]

    def is_deprecated(self, tensorrt: str) -> bool:
        """Returns True if it is deprecated in a release."""
        if self.deprecated is None:
            return False
        return parse_version(tensorrt) >= parse_version(self.deprecated)


@document(frozen=True, kw_only=True)
class EntryPoint(ReleaseRange):
    """An exported function that returns a library's plugin creators."""

    source: tuple[str, ...]


@document(frozen=True)
class PluginFacts:
    """``trt/plugins.yaml``."""

    families: Mapping[str, PluginFamily]
    entry_points: Mapping[str, EntryPoint]


@cache
def plugin_facts() -> PluginFacts:
    """Returns ``trt/plugins.yaml``."""
    return read_facts(
        PluginFacts, data_folder("trt") / "plugins.yaml", "edgekit.tensorrt-plugins/1"
    )


def families(tensorrt: str) -> dict[str, PluginFamily]:
    """Returns the kinds of plugins that a release supports, by name, the oldest kind first."""
    version = parse_version(tensorrt)
    return {n: family for n, family in plugin_facts().families.items() if family.covers(version)}


def entry_points(tensorrt: str) -> tuple[str, ...]:
    """Returns the exported names that a release's ``load_library`` looks for."""
    version = parse_version(tensorrt)
    return tuple(n for n, point in plugin_facts().entry_points.items() if point.covers(version))
