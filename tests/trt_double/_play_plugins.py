"""IPluginRegistry: the creators of a module, and libraries that bring more.

A test library says what it registers in a string, ``edgekit_test_creators``: NAME|VERSION|
NAMESPACE|FAMILY, separated by semicolons; FAMILY is V2 or V3. Nothing of C++ is called.
"""

import ctypes
from pathlib import Path
from typing import Any

from ._behaviour import plays, plays_function
from ._onnx_layers import SUPPORTED
from ._play_base import emit

#: Some of the plugins that TensorRT ships (libnvinfer_plugin).
_SHIPPED = (
    ("ROIAlign_TRT", "1", "", "V2"),
    ("EfficientNMS_TRT", "1", "", "V2"),
    ("InstanceNormalization_TRT", "1", "", "V2"),
)
_CLASSES = {"V2": "IPluginCreator", "V3": "IPluginCreatorV3One"}
Row = tuple[str, str, str, str]


def creators_of(double: Any, path: str) -> list[Row] | None:
    """What load_library finds in a library; None where it cannot be opened or has no entry."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    names = ["getPluginCreators", *(["getCreators"] if double.build >= (10,) else [])]
    if not any(hasattr(library, name) for name in names):
        return None
    listed = ctypes.c_char.in_dll(library, "edgekit_test_creators")
    text = ctypes.string_at(ctypes.addressof(listed))
    rows = [tuple(one.split("|")) for one in text.decode().split(";") if one]
    # before 10.0 nothing knows what a V3 creator is
    return [row for row in rows if _CLASSES[row[3]] in double.factory.classes]  # type: ignore[misc]


def registered(double: Any) -> dict[tuple[str, str, str], str]:
    """The family by name, version and namespace of what the module's registry has."""
    found: dict[tuple[str, str, str], str] = double.creators
    return found


def _register(double: Any, logger: Any, row: Row) -> bool:
    *key, family = row
    if tuple(key) in double.creators:
        text = f"IPluginRegistry::registerCreator: {row[0]} version {row[1]} is registered already"
        emit(double, logger, "ERROR", text)
        return False
    double.creators[tuple(key)] = family
    return True


@plays_function("init_libnvinfer_plugins")
def _init_plugins(factory: Any, logger: Any, namespace: str) -> bool:
    if not isinstance(logger, factory.classes["ILogger"]):
        raise TypeError("init_libnvinfer_plugins wants a logger")
    for *key, family in _SHIPPED:
        factory.double.creators.setdefault(tuple(key), family)
    return True


@plays_function("get_plugin_registry")
def _registry(factory: Any) -> Any:
    return factory.new("IPluginRegistry")


@plays("Runtime", "get_plugin_registry")
@plays("Builder", "get_plugin_registry")
def _own_registry(this: Any) -> Any:
    return this._s.double.factory.new("IPluginRegistry")


@plays("IPluginRegistry", "load_library")
def _load_library(this: Any, plugin_path: str) -> Any:
    double = this._s.double
    found = creators_of(double, plugin_path)
    if found is None:  # without a message, as seen with TensorRT for RTX 1.7
        return None
    if plugin_path in double.libraries:
        double.offend(f"load_library({Path(plugin_path).name}) twice")
    double.libraries.append(plugin_path)
    for row in found:
        _register(double, None, row)
    return object()


def _listed(this: Any, families: tuple[str, ...]) -> list[Any]:
    double = this._s.double
    return [
        double.factory.new(
            _CLASSES[family], name=name, plugin_version=version, plugin_namespace=namespace
        )
        for (name, version, namespace), family in double.creators.items()
        if family in families
    ]


@plays("IPluginRegistry", "get all_creators", "get all_creators_recursive")
def _all_creators(this: Any) -> list[Any]:
    return _listed(this, ("V2", "V3"))


@plays("IPluginRegistry", "get plugin_creator_list")
def _creator_list(this: Any) -> list[Any]:
    return _listed(this, ("V2",))


def plugin_key(node: Any) -> tuple[str, str, str]:
    """What the parser asks the registry for: name, version, namespace (guide, 9.3)."""
    given = {one.name: one.s.decode() for one in node.attribute if one.s}
    return (str(node.op_type), given.get("plugin_version", "1"), given.get("plugin_namespace", ""))


def without_plugins(double: Any, model: Any) -> tuple[Any, dict[str, str]]:
    """The model with identities in place of plugins; the plugins' keys by their first output."""
    import onnx

    found: dict[str, str] = {}
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for node in plain.graph.node:
        key = plugin_key(node)
        own = node.op_type not in SUPPORTED or node.domain not in ("", "ai.onnx")
        if own and key in double.creators:
            found[node.output[0]] = "|".join((*key, double.creators[key]))
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:], node.input[1:]
    return plain, found
