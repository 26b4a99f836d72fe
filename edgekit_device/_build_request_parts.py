"""Parts of a build request: layers, tensors, and values from known sets."""

from __future__ import annotations

import re
from typing import Any, List, Tuple

from . import _checks as check
from ._build_types import IoSpec, LayerSpec
from ._types import DTYPES

__all__ = ["PRECISIONS", "choice", "choices", "enums", "flag", "ios", "layers", "tensors"]

PRECISIONS = ("fp32", "fp16", "int8")
_ENUM = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")


def layers(value: Any, where: str) -> Tuple[LayerSpec, ...]:
    """The plan's layers, of different names."""
    fields = ("name", "builder_name", "nodes", "kind", "device", "precision")
    layers = []
    for n, item in enumerate(check.array(value, where)):
        at = "{}[{}]".format(where, n)
        found = check.record(item, at, fields)
        layers.append(
            LayerSpec(
                name=check.text(found["name"], at + ".name"),
                builder_name=check.text(found["builder_name"], at + ".builder_name"),
                nodes=check.names(found["nodes"], at + ".nodes"),
                kind=check.text(found["kind"], at + ".kind"),
                device=choice(found["device"], at + ".device", ("GPU", "DLA")),
                precision=choice(found["precision"], at + ".precision", PRECISIONS),
            )
        )
    if len({layer.name for layer in layers}) != len(layers):
        check.fail(where, "two layers have one name")
    return tuple(layers)


def tensors(value: Any, where: str) -> Tuple[IoSpec, ...]:
    """The network's inputs or outputs: static, unformatted."""
    found = []
    for n, item in enumerate(check.array(value, where, 1)):
        at = "{}[{}]".format(where, n)
        fields = check.record(item, at, ("name", "dtype", "shape"))
        found.append(
            IoSpec(
                check.text(fields["name"], at + ".name"),
                choice(fields["dtype"], at + ".dtype", tuple(DTYPES)),
                check.shape(fields["shape"], at + ".shape"),
            )
        )
    return _different(found, where)


def ios(value: Any, where: str) -> Tuple[IoSpec, ...]:
    """An engine's inputs or outputs."""
    found = []
    for n, item in enumerate(check.array(value, where, 1)):
        at = "{}[{}]".format(where, n)
        fields = check.record(item, at, ("name", "dtype", "shape", "formats", "scale"))
        scale = fields["scale"]
        found.append(
            IoSpec(
                name=check.text(fields["name"], at + ".name"),
                dtype=choice(fields["dtype"], at + ".dtype", tuple(DTYPES)),
                shape=_open_shape(fields["shape"], at + ".shape"),
                formats=enums(fields["formats"], at + ".formats"),
                scale=None if scale is None else check.number(scale, at + ".scale", 0.0, 3.4e38),
            )
        )
    return _different(found, where)


def _different(found: List[IoSpec], where: str) -> Tuple[IoSpec, ...]:
    if len({item.name for item in found}) != len(found):
        check.fail(where, "two tensors have one name")
    return tuple(found)


def _open_shape(value: Any, where: str) -> Tuple[int, ...]:
    return tuple(check.integer(size, where, -1, 1 << 40) for size in check.array(value, where))


def flag(value: Any, where: str) -> bool:
    """A bool."""
    if not isinstance(value, bool):
        check.fail(where, "expected true or false")
    return value


def choice(value: Any, where: str, known: Tuple[str, ...]) -> str:
    """One of ``known``."""
    found = check.text(value, where)
    if found not in known:
        check.fail(where, "{!r} is none of {}".format(found[:80], ", ".join(known)))
    return found


def choices(value: Any, where: str, known: Tuple[str, ...]) -> Tuple[str, ...]:
    """Different ones of ``known``."""
    return tuple(choice(item, where, known) for item in check.names(value, where))


def enums(value: Any, where: str) -> Tuple[str, ...]:
    """Names as members of TensorRT's enums have them."""
    found = check.names(value, where)
    for name in found:
        if not _ENUM.match(name):
            check.fail(where, "{!r} is no name of a TensorRT enum".format(name[:80]))
    return found
