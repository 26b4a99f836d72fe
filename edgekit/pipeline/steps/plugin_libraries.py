"""The libraries of a configuration's plugins: checked before a board is connected, and handed to
its build.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edgekit.network.loading.opaque import plugin_of
from edgekit.pipeline.steps.load import source
from edgekit.tensorrt.plugin_library import (
    PluginLibraries,
    PluginLibrary,
    check_library,
    read_library,
)
from edgekit.text import listed
from edgekit_device.protocol.manifest import PluginEntry

if TYPE_CHECKING:
    from edgekit.config.schema import PluginSection
    from edgekit.pipeline.context import Context


def check_libraries(context: Context) -> None:
    """Refuses the libraries that no board of the configuration can load.

    Raises:
        DataError: "plugin.library", "plugin.machine", "plugin.tensorrt".
    """
    for number, plugin in enumerate(context.file.model.plugins):
        if plugin.library is not None:
            _checked(context, number, plugin)


def libraries_of(context: Context) -> PluginLibraries:
    """Returns what a board must load for the configuration's network.

    A plugin without a library is among them where the network has a node of its operator: the board
    looks for its creator before it parses the model.

    Raises:
        DataError: As of ``check_libraries``.
    """
    entries: dict[PluginEntry, None] = {}
    blobs: dict[str, bytes] = {}
    for number, plugin in enumerate(context.file.model.plugins):
        library = None if plugin.library is None else _checked(context, number, plugin)
        digest = None if library is None else hashlib.sha256(library.data).hexdigest()
        if library is not None and digest is not None:
            blobs[digest] = library.data
        for version, namespace in _asked(context, plugin, needed=library is not None):
            file = "" if library is None else library.name
            entries[PluginEntry(plugin.name, version, namespace, digest, file)] = None
    names = dict.fromkeys(entry.file for entry in entries if entry.file)
    if names:
        context.note(
            f"the engines need {listed(names)}: edgekit's loader loads it from the bundle; another "
            "program (trtexec, DeepStream, Isaac ROS) must load it before the engine"
        )
    return PluginLibraries(tuple(entries), blobs)


def _asked(context: Context, plugin: PluginSection, *, needed: bool) -> dict[tuple[str, str], None]:
    """The versions and namespaces of a plugin's creator: the section's where it says them, else
    those that the nodes ask TensorRT's parser for.
    """
    domain = plugin.operator.rpartition("::")[0]
    nodes = [
        plugin_of(node)
        for node in source(context).graph.nodes()
        if node.op == plugin.name and domain in ("", node.domain)
    ]
    given = plugin.model_fields_set
    found: dict[tuple[str, str], None] = {}
    for node in nodes:
        version = plugin.version if "version" in given else node["plugin_version"]
        namespace = plugin.namespace if "namespace" in given else node["plugin_namespace"]
        found[version, namespace] = None
    return found or ({(plugin.version, plugin.namespace): None} if needed else {})


def _checked(context: Context, number: int, plugin: PluginSection) -> PluginLibrary:
    where = context.config.document.where(("model", "plugins", number, "library"))
    library = read_library(context.config.resolve(str(plugin.library)), where)
    context.note(*check_library(library, context.tensorrt, where))
    return library
