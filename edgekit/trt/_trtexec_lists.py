"""Values of trtexec's flags that are lists: layers, tensors, shapes, memory pools.

Its parser (samples/common/sampleOptions.cpp) splits a list at every comma, an item at its last
colon, and takes single quotes away; there is no escape. So a name may have a colon, and a name with
a comma or a quote cannot be told. A star stands for any text: a name with one means other layers
too, and an exact name wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edgekit.dla import parse_version
from edgekit.errors import BuildError
from edgekit.trt._releases import within
from edgekit.trt._trtexec_flags import Trtexec, flag_facts

__all__ = ["devices", "formats", "output_types", "parted", "pools", "precisions", "shapes"]

_MIB = 1 << 20
_UNNAMED = "(Unnamed Layer*"
Layers = Sequence[Mapping[str, Any]]


def devices(layers: Layers) -> str:
    """Returns --layerDeviceTypes: the layers that must not be on the DLA, which is the default."""
    return _list((n, "GPU") for x in layers if x["device"] == "GPU" for n in _names(x))


def parted(layers: Layers) -> list[str]:
    """Returns the GPU's layers of which the parser names a part alone (`builder_name` tells)."""
    gpu = (x for x in layers if x["device"] == "GPU")
    return [x["name"] for x in gpu if _UNNAMED in x["builder_name"] and x["nodes"]]


def precisions(layers: Layers, skip: Callable[[str], bool] = lambda precision: False) -> str:
    """Returns --layerPrecisions, without the layers whose types are no choice."""
    own = set(flag_facts()["without_precision"])
    chosen = [x for x in layers if x["kind"] not in own and not skip(x["precision"])]
    return _list((n, x["precision"]) for x in chosen for n in _names(x))


def output_types(layers: Layers, lowest: str) -> str:
    """Returns --layerOutputTypes of the layers that the plan keeps above the lowest precision."""
    return precisions(layers, lambda precision: precision == lowest)


def formats(tensors: Sequence[Mapping[str, Any]], on: Trtexec) -> str:
    """Returns --inputIOFormats or --outputIOFormats: a type and its formats for each tensor.

    Raises:
        BuildError: trtexec of that release has no such type or format (code "trtexec.format").
    """
    facts = flag_facts()
    told = []
    for tensor in tensors:
        kind = facts["types"].get(tensor["dtype"])
        names = [facts["formats"].get(name) for name in tensor["formats"] or ["LINEAR"]]
        if kind is None or not within(kind, on.version) or None in names:
            raise BuildError(
                f"trtexec of TensorRT {on.tensorrt} takes no tensor of type {tensor['dtype']} "
                f"with format {' or '.join(tensor['formats']) or 'LINEAR'}",
                code="trtexec.format",
                where=tensor["name"],
                hint="build with build.backend: tensorrt",
            )
        told.append(f"{kind['name']}:{'+'.join(names)}")
    return ",".join(told)


def pools(limits: Mapping[str, int], on: Trtexec) -> tuple[str, list[str]]:
    """Returns --memPoolSize (MiB, exact), and the pools that this trtexec does not know."""
    known = flag_facts()["pools"]
    told, unknown = [], []
    for name, size in limits.items():
        row = known.get(name)
        if row is None or ("since" in row and on.version < parse_version(row["since"])):
            unknown.append(name)
        else:
            told.append(f"{row['name']}:{_decimal(size)}")
    return ",".join(told), unknown


def shapes(profile: Mapping[str, Mapping[str, Sequence[int]]], which: str) -> str:
    """Returns --minShapes, --optShapes or --maxShapes of a profile; ``which`` is min, opt, max."""
    return _list(
        (name, "x".join(map(str, sizes[which])) or "scalar") for name, sizes in profile.items()
    )


def _names(layer: Mapping[str, Any]) -> list[str]:
    """A network being built has a layer for each ONNX node, of its name; kernels come later."""
    return list(layer["nodes"]) or [layer["builder_name"] or layer["name"]]


def _list(items: Iterable[tuple[str, str]]) -> str:
    told = []
    for name, value in items:
        bad = next((c for c in flag_facts()["unsayable"] if c in name), "")
        if bad or not name:
            raise BuildError(
                f"trtexec cannot be told the name {name!r}: {bad!r} means something else to it"
                if bad
                else "trtexec cannot be told of a layer without a name",
                code="trtexec.name",
                where=name,
                hint="rename the node, or build with build.backend: tensorrt",
            )
        told.append(f"{name}:{value}")
    return ",".join(dict.fromkeys(told))


def _decimal(size: int) -> str:
    """Bytes as MiB, without an exponent and without rounding (2**20 has 20 binary places)."""
    whole, rest = divmod(size, _MIB)
    return f"{whole}.{rest * 10**20 // _MIB:020d}".rstrip("0").rstrip(".")
