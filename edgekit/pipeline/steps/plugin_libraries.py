"""The libraries of a configuration's plugins: compiled on a board from their sources, and passed to
its build.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edgekit.deployment.answers import protocol_error
from edgekit.deployment.requirements import board_kind
from edgekit.network.loading.opaque import plugin_creator_key
from edgekit.pipeline.steps.board_job import fetch_blobs, run_board_job
from edgekit.pipeline.steps.load import source, user_model
from edgekit.pipeline.steps.plugin_sections import read_plugin_library, read_plugin_source
from edgekit.tensorrt.plugin_library import (
    PluginLibraries,
    PluginLibrary,
    check_library,
    parse_library,
)
from edgekit.text import listed
from edgekit_device.build.plugin_source import CompiledPlugin
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import PluginEntry

if TYPE_CHECKING:
    from edgekit.config.schema import PluginSection
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.context import Context
    from edgekit.tensorrt.plugin_source import PluginSource
    from edgekit_device.board.probe import Probe


def required_libraries(context: Context, client: BoardClient, probe: Probe) -> PluginLibraries:
    """Returns the libraries that a board must load for the network; it compiles sources first.

    A plugin without a library is included if the network has a node of its operator: the board
    looks for its creator before it parses the model.

    Args:
        context: The configuration.
        client: The board.
        probe: The board's facts.

    Raises:
        DataError: As raised by ``check_libraries``, also for libraries that the board compiled.
        BoardError: "plugin.compile", "plugin.cmake".
    """
    entries: dict[PluginEntry, None] = {}
    blobs: dict[str, bytes] = {}
    for number, plugin in enumerate(context.file.model.plugins):
        library = _read_or_compile(context, client, probe, number, plugin)
        digest = None if library is None else hashlib.sha256(library.data).hexdigest()
        if library is not None and digest is not None:
            blobs[digest] = library.data
        for version, namespace in _creator_keys(context, number, needed=library is not None):
            file = "" if library is None else library.name
            # a dict as an ordered set: nodes of one plugin may ask for the same creator
            entries[PluginEntry(plugin.name, version, namespace, digest, file)] = None
    names = dict.fromkeys(entry.file for entry in entries if entry.file)
    if names:
        context.note(
            f"the engines need {listed(names)}: edgekit's loader loads it from the bundle; another "
            "program (trtexec, DeepStream, Isaac ROS) must load it before the engine"
        )
    return PluginLibraries(tuple(entries), blobs)


def _creator_keys(context: Context, number: int, *, needed: bool) -> list[tuple[str, str]]:
    """Returns the versions and namespaces of a plugin's creator: the section's if it has them, else
    those that the nodes request from TensorRT's parser.
    """
    own = user_model(context).plugins[number]
    nodes = [
        plugin_creator_key(node)
        for node in source(context).graph.nodes()
        if node.op == own.operator and own.domain in (None, node.domain)
    ]
    # TensorRT's parser assumes these values for a node without the attributes
    if needed and not nodes:
        nodes = [{"plugin_version": "1", "plugin_namespace": ""}]
    found = [
        (
            node["plugin_version"] if own.version is None else own.version,
            node["plugin_namespace"] if own.namespace is None else own.namespace,
        )
        for node in nodes
    ]
    return list(dict.fromkeys(found))


def _read_or_compile(
    context: Context, client: BoardClient, probe: Probe, number: int, plugin: PluginSection
) -> PluginLibrary | None:
    if plugin.library is not None:
        return read_plugin_library(context, number, plugin)
    if plugin.source is None:
        return None
    made, data = _compile(context, client, probe, read_plugin_source(context, number, plugin))
    where = f"{client.name}: {plugin.source}"
    library = parse_library(made.file, data, where)
    context.note(*check_library(library, context.tensorrt, where))
    return library


def _compile(
    context: Context, client: BoardClient, probe: Probe, source: PluginSource
) -> tuple[CompiledPlugin, bytes]:
    """Compiles sources on a board, or returns the earlier result of a board of its kind."""
    request, blobs = source.request()
    cache = context.cache
    kind = board_kind(probe.fingerprint) or (client.name,)
    key = cache.key("plugin", write(request), list(kind))
    made = None if context.force else cache.find(CompiledPlugin, "plugin", key)
    if made is None or not cache.has_blobs([made.library]):
        # on the board: only there are its compiler, headers and libraries those of its TensorRT
        job, result = run_board_job(context, client, "plugin", request, blobs)
        if not isinstance(result, CompiledPlugin):
            raise protocol_error(f"job {job} did not answer with a library", client.name)
        made = result
        fetch_blobs(context, client, [made.library])
        cache.keep("plugin", key, made)
    return made, cache.blob(made.library)
