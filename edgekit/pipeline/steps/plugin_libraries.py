"""The libraries of a configuration's plugins: checked before a board is connected, and handed to
its build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.tensorrt.plugin_library import PluginLibrary, check_library, read_library

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
            context.note(*_check(context, number, plugin)[1])


def _check(context: Context, number: int, plugin: PluginSection) -> tuple[PluginLibrary, list[str]]:
    """Reads a plugin's library; returns it and what stays unknown of it."""
    where = context.config.document.where(("model", "plugins", number, "library"))
    library = read_library(context.config.resolve(str(plugin.library)), where)
    return library, check_library(library, context.tensorrt, where)
