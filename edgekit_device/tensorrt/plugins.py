"""The plugins that engines need: their libraries are loaded before a model is parsed or an engine
is deserialised, and then the creator of each must be registered. Start with ``load_plugins``.

A library is code. A bundle's library is loaded only after a check of the signature, from a copy in
this process's memory that has the digest of the signed manifest.

IPluginRegistry.load_library returns None without a message if a library cannot be loaded, or has no
entry point that TensorRT knows. So a library is first opened here, with all symbols resolved, and
the registry is checked afterwards.
"""

from __future__ import annotations

import ctypes
import difflib
import os
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from edgekit_device.errors import DeviceError, counted, listed, map_os_errors
from edgekit_device.files import Buffer, memory_file
from edgekit_device.protocol.manifest import PluginEntry
from edgekit_device.trust.bundle import Checked, read_checked

#: The entry points by which load_library gets a library's creators; a library without these
#: registers its creators when it is opened (REGISTER_TENSORRT_PLUGIN).
ENTRY_POINTS = ("getCreators", "getPluginCreators")
_SHOWN = 5

# by digest: the descriptors stay open, since the linker identifies an open library by its path
_HELD: Dict[str, str] = {}
# by module of TensorRT: the creators that each loaded library registered, which the module's
# registry never removes
_LOADED: Dict[Any, Dict[str, Tuple["Creator", ...]]] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class PluginFile:
    """A plugin, and the path of its library; None where this board's TensorRT has the plugin."""

    entry: PluginEntry
    path: Optional[str]


@dataclass(frozen=True)
class Creator:
    """A creator in a registry."""

    name: str
    version: str
    namespace: str

    def __str__(self) -> str:
        space = ", namespace {!r}".format(self.namespace) if self.namespace else ""
        return "{!r} (version {!r}{})".format(self.name, self.version, space)


def plugin_files(
    entries: Sequence[PluginEntry], read: Callable[[str], Buffer]
) -> Tuple[PluginFile, ...]:
    """Returns plugins with their libraries in memory.

    Args:
        entries: The plugins.
        read: Returns a blob's bytes, checked against its digest.
    """
    found = []
    for entry in entries:
        with _LOCK:
            if entry.library is not None and entry.library not in _HELD:
                with map_os_errors(entry.name):
                    _HELD[entry.library] = _write_memory_file(read(entry.library))
        found.append(PluginFile(entry, _HELD.get(entry.library or "")))
    return tuple(found)


def bundle_plugins(checked: Checked) -> Tuple[PluginFile, ...]:
    """Returns the plugins of a bundle.

    Raises:
        DeviceError: "plugin.unsigned": it has libraries without a trusted signature; "blob.*".
    """
    entries = checked.manifest.plugins
    if checked.signer is None and any(entry.library is not None for entry in entries):
        raise DeviceError(
            "the bundle has libraries of plugins, and no trusted signature covers them",
            code="plugin.unsigned",
            where=checked.files.where,
            hint="sign the bundle and add its signer with trust; --trust-unsigned loads no code",
        )
    return plugin_files(entries, lambda digest: read_checked(checked, digest))


def library_paths(plugins: Sequence[PluginFile]) -> List[str]:
    """Returns the paths of the libraries, each once."""
    return list(dict.fromkeys(plugin.path for plugin in plugins if plugin.path is not None))


def load_plugins(trt: Any, logger: Any, plugins: Sequence[PluginFile], where: str = "") -> None:
    """Registers TensorRT's own plugins, loads libraries, and checks each plugin's creator.

    Args:
        trt: The module whose registry gets the plugins; a process loads a library only once.
        logger: TensorRT's logger.
        plugins: The plugins.
        where: The place in messages.

    Raises:
        DeviceError: "plugin.load": a library cannot be opened; "plugin.creator": a creator is not
            registered.
    """
    # as in trtexec; the lean runtime does not have its own plugins
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    if not plugins:
        return
    # the process's registry, which all runtimes of the module share
    registry = trt.get_plugin_registry()
    with _LOCK:
        loaded = _LOADED.setdefault(trt, {})
        for plugin in plugins:
            if plugin.path is not None and plugin.path not in loaded:
                # the difference shows which creators are this library's, for the error below
                before = set(list_creators(registry))
                _load(registry, plugin, where)
                loaded[plugin.path] = tuple(c for c in list_creators(registry) if c not in before)
    creators = list_creators(registry)
    for plugin in plugins:
        entry = plugin.entry
        if Creator(entry.operator, entry.version, entry.namespace) not in creators:
            library_creators = loaded[plugin.path] if plugin.path is not None else None
            raise _no_creator(entry, creators, library_creators, where)


def list_creators(registry: Any) -> List[Creator]:
    """Returns the creators of a registry, in its order."""
    if hasattr(registry, "all_creators"):
        registered = registry.all_creators
    else:  # before 10.0
        registered = registry.plugin_creator_list
    return [
        Creator(
            str(getattr(creator, "name", "")),
            str(getattr(creator, "plugin_version", "")),
            str(getattr(creator, "plugin_namespace", "")),
        )
        for creator in registered
    ]


def _write_memory_file(data: Buffer) -> str:
    handle = memory_file()
    view = memoryview(data)
    # os.write may write less than it is given (POSIX)
    while view:
        view = view[os.write(handle, view) :]
    return "/proc/self/fd/{}".format(handle)


def _load(registry: Any, plugin: PluginFile, where: str) -> None:
    path, name = str(plugin.path), plugin.entry.name
    try:
        # RTLD_NOW resolves every symbol here, with a message; RTLD_LOCAL keeps its symbols from
        # other libraries
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        # the path is this process's descriptor, which no user knows
        reason = str(error).replace(path, name)
        if reason.startswith(name + ": cannot open"):
            # glibc skips a file for another machine as if it were missing
            reason = name + " is built for another processor than this board's"
        raise DeviceError(
            "the plugin's library cannot be loaded: {}".format(reason),
            code="plugin.load",
            where=where,
            hint=_load_remedy(reason),
        ) from error
    # IPluginRegistry.load_library exists since 8.6
    dynamic = any(hasattr(library, entry) for entry in ENTRY_POINTS)
    if dynamic and hasattr(registry, "load_library"):
        registry.load_library(path)


def _load_remedy(said: str) -> str:
    if "undefined symbol" in said:
        return (
            "link it against the library that gives the symbol, in the version of this board; "
            "`nm -D --undefined-only` lists the missing symbols"
        )
    if "cannot open shared object file" in said:
        return (
            "install its libraries on the board, or compile it against this board's TensorRT and "
            "CUDA; `ldd` lists the missing ones"
        )
    if "another processor" in said or "ELF" in said:
        return "compile it on the board: source: FOLDER in model.plugins"
    if "GLIBC" in said or "version `" in said:
        return "compile it on the board, or in a container of its JetPack: the C library is older"
    return "compile it against this board's TensorRT and CUDA"


def _no_creator(
    entry: PluginEntry,
    known: Sequence[Creator],
    own: Optional[Sequence[Creator]],
    where: str,
) -> DeviceError:
    wanted = Creator(entry.operator, entry.version, entry.namespace)
    near = nearest_creator(wanted, known)
    if own is not None:
        has = "{} registers {}".format(entry.name, listed(map(str, own), _SHOWN) or "no creator")
    else:
        has = "the registry has {}".format(counted(len(known), "creator"))
        has += ", the nearest {}".format(near) if near is not None else ", none like it"
    return DeviceError(
        "no creator of the plugin {} is registered; {}".format(wanted, has),
        code="plugin.creator",
        where=where,
        hint=_creator_remedy(wanted, near, own),
    )


def nearest_creator(wanted: Creator, known: Sequence[Creator]) -> Optional[Creator]:
    """Returns the creator with the most similar name; None if no name is similar."""
    names: Set[str] = {creator.name for creator in known}
    # case counts in TensorRT's names, but not for a suggestion
    folded = {name.casefold(): name for name in sorted(names)}
    found = [wanted.name] if wanted.name in names else []
    found += [folded[n] for n in difflib.get_close_matches(wanted.name.casefold(), folded, n=1)]
    if not found:
        return None
    same_name = [creator for creator in known if creator.name == found[0]]
    # of one name, the creator that differs least
    return max(
        same_name,
        key=lambda creator: (
            creator.namespace == wanted.namespace,
            creator.version == wanted.version,
        ),
    )


def _creator_remedy(
    wanted: Creator, near: Optional[Creator], own: Optional[Sequence[Creator]]
) -> str:
    if near is not None and near.name == wanted.name:
        differ = []
        if near.version != wanted.version:
            differ.append("version: {!r} (the node's plugin_version)".format(near.version))
        if near.namespace != wanted.namespace:
            differ.append("namespace: {!r} (the node's plugin_namespace)".format(near.namespace))
        return "write in model.plugins, and in the model, {}".format(" and ".join(differ))
    if near is not None:
        return "did you mean {!r}? The operator and the creator have one name".format(near.name)
    if own is not None:
        return (
            "a library gives its creators by getCreators (before TensorRT 10 getPluginCreators), "
            "or registers them with REGISTER_TENSORRT_PLUGIN"
        )
    return (
        "give its library in model.plugins (library or source). Where another program brings it, "
        "such as DeepStream (custom-lib-path) or Isaac ROS, that library must be loaded before the "
        "engine"
    )
