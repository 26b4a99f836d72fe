"""The plugins of a configuration, before any board is queried: refusals, missing parts, and their
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgekit.errors import ConfigError, DataError
from edgekit.network.operators import has_importer
from edgekit.pipeline.context import computed
from edgekit.pipeline.steps.load import user_model

if TYPE_CHECKING:
    from edgekit.config.schema import PluginSection
    from edgekit.pipeline.context import Context
    from edgekit.tensorrt.plugin_library import PluginLibrary
    from edgekit.tensorrt.plugin_source import PluginSource


@computed(user_model, "build.mode")
def check_plugins(context: Context) -> tuple[str, ...]:
    """Returns and notes the plugins' parts that a build with TensorRT will lack, or not use.

    Raises:
        ConfigError: "trt.features": DLA loadables are to be built, which cannot have a plugin.
    """
    if not context.file.model.plugins:
        return ()
    user_model(context)  # raises the errors of the sections themselves first
    _refuse_standalone(context)
    notes = (
        note
        for number, plugin in enumerate(context.file.model.plugins)
        for note in _section_notes(context, number, plugin)
    )
    found = (*missing_plugins(context), *notes)
    context.note(*found)
    return found


def missing_plugins(context: Context) -> tuple[str, ...]:
    """Returns the requirements of a board for plugins that only this machine can compute."""
    return tuple(
        _missing_text(plugin, context.tensorrt)
        for plugin in context.file.model.plugins
        if plugin.python is not None and plugin.library is None and plugin.source is None
        if not has_importer(plugin.name)
    )


def _refuse_standalone(context: Context) -> None:
    if context.file.build.mode != "standalone":
        return
    from edgekit.tensorrt.options import RequestedBuild, RequestedFeatures, impossible_features
    from edgekit.tensorrt.releases import release

    document = context.config.document
    paths = [path for path in (("build", "mode"), ("model",)) if document.knows(path)]
    request = RequestedBuild(
        target=context.file.target,
        tensorrt=context.tensorrt,
        mode="standalone",
        dla=True,
        precision=context.file.precision,
        plugins=True,
        places={".".join(path): document.where(path) for path in paths},
    )
    own = RequestedFeatures("loadable", ("DLA_STANDALONE", "PLUGINS"), ())
    if problems := impossible_features(request, release(context.tensorrt), own):
        raise ConfigError(problems, code="trt.features")


def _section_notes(context: Context, number: int, plugin: PluginSection) -> Iterator[str]:
    if has_importer(plugin.name):
        yield (
            f"TensorRT's parser imports {plugin.name} itself and never looks for the plugin "
            f"{plugin.operator}: give the operator another name, in the model and in its plugin"
        )
    if len(user_model(context).plugins[number].formats) < len(plugin.formats):
        yield (
            f"TensorRT {context.tensorrt} is strongly typed and gives the plugin {plugin.operator} "
            "floats: its INT8 formats are not used"
        )
    try:
        if plugin.library is not None:
            yield from _read_checked_library(context, number, plugin)[1]
        elif plugin.source is not None:
            read_plugin_source(context, number, plugin)
    except DataError as error:
        # only a note: a check, a plan and this machine's build do not need the library
        hint = f" ({error.hint})" if error.hint else ""
        yield f"no board can load the plugin {plugin.operator}: {error.message}{hint}"


def _missing_text(plugin: PluginSection, tensorrt: str) -> str:
    from edgekit.tensorrt.plugin_families import families

    if any(family.travels == "plan" for family in families(tensorrt).values()):
        why = "edgekit sends no plugin that is written in Python"
    else:
        why = f"TensorRT {tensorrt} takes no Python plugin that is compiled ahead of time"
    return (
        f"no library or source brings the plugin {plugin.operator}: the board's TensorRT must have "
        f"it under the name {plugin.name}; {why}, so give a library or its source"
    )


def check_libraries(context: Context) -> None:
    """Refuses libraries and sources that no board of the configuration can load or compile.

    Raises:
        DataError: "plugin.library", "plugin.machine", "plugin.tensorrt", "plugin.source".
    """
    for number, plugin in enumerate(context.file.model.plugins):
        if plugin.library is not None:
            read_plugin_library(context, number, plugin)
        if plugin.source is not None:
            read_plugin_source(context, number, plugin)


def read_plugin_library(context: Context, number: int, plugin: PluginSection) -> PluginLibrary:
    """Returns the library of a section and notes the facts that are unknown.

    Args:
        context: The configuration.
        number: The section's place under ``model.plugins``.
        plugin: The section; it has a library.

    Raises:
        DataError: "plugin.library", "plugin.machine", "plugin.tensorrt", "plugin.family".
    """
    library, notes = _read_checked_library(context, number, plugin)
    context.note(*notes)
    return library


def _read_checked_library(
    context: Context, number: int, plugin: PluginSection
) -> tuple[PluginLibrary, list[str]]:
    from edgekit.tensorrt.plugin_library import check_library, read_library

    where = context.config.document.where(("model", "plugins", number, "library"))
    library = read_library(context.config.resolve(str(plugin.library)), where)
    return library, check_library(library, context.tensorrt, where)


def read_plugin_source(context: Context, number: int, plugin: PluginSection) -> PluginSource:
    """Returns the source folder of a section; arguments as in ``read_plugin_library``.

    Raises:
        DataError: "plugin.source".
    """
    from edgekit.tensorrt.plugin_source import read_source

    where = context.config.document.where(("model", "plugins", number, "source"))
    return read_source(context.config.resolve(str(plugin.source)), plugin.name, where)
