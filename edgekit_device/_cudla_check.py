"""Compares what a loadable says of its tensors with what the bundle's manifest says.

Seen on an Orin (github.com/NVIDIA/cuda-samples issue 192): names end with an apostrophe; an INT8
input of (1, 3, 512, 960) in DLA_HWC4 is NHWC with c = 4 and the strides (1, 3840, 0, 0); an INT8
output of (1, 64, 32, 60) in DLA_LINEAR is NCHW with the strides (1, 64, 2048, 2048). So the second
stride is a line, the third a plane (or a plane of vectors), and zero says nothing.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from ._cudla_types import DATA_FORMATS, DATA_TYPES, TensorDescriptor
from ._errors import DeviceError
from ._packing import four, stored_shape

__all__ = ["in_order", "stored_bytes"]

_FORMATS = {
    "DLA_LINEAR": ("NCHW",), "DLA_HWC4": ("NHWC",), "CHW16": ("NCxHWx",), "CHW32": ("NCxHWx",)
}  # fmt: skip
_ITEM = {"int8": 1, "uint8": 1, "float16": 2}
_LONGEST = 80
_PAGE = 4096  # memory beyond the tensor that does no harm


def in_order(descriptors: Sequence[TensorDescriptor], ios: Sequence[Any], role: str) -> List[Any]:
    """Returns the manifest's entries in the order of the loadable's tensors.

    Args:
        descriptors: The loadable's inputs or outputs.
        ios: The manifest's (``IoEntry``), in any order.
        role: "input" or "output", for messages.

    Raises:
        DeviceError: "cudla.mismatch", naming both sides of what differs.
    """
    names = [_text(one) for one in descriptors]
    if len(descriptors) != len(ios):
        wanted = ", ".join(io.name for io in ios)
        raise _mismatch(
            "{} {}s ({})".format(len(names), role, ", ".join(names)),
            "{} ({})".format(len(ios), wanted),
            role,
        )
    found = []
    left = list(ios)
    for descriptor, name in zip(descriptors, names):  # noqa: B905
        fits = [io for io in left if _same_name(name, io.name)]
        if not fits:
            raise _mismatch(
                "the {} {!r}".format(role, name.rstrip("'")),
                "only {}".format(", ".join(repr(io.name) for io in left)),
                name,
            )
        # the longest, should one name begin another
        io = max(fits, key=lambda one: len(one.name))
        left.remove(io)
        _compare(descriptor, io, role)
        found.append(io)
    return found


def stored_bytes(io: Any) -> int:
    """Bytes of a tensor in its format, padding included."""
    size = _ITEM[io.dtype]
    for length in stored_shape(io.shape, _ITEM[io.dtype], io.format, io.strides):
        size *= length
    return size


def _text(descriptor: TensorDescriptor) -> str:
    return bytes(descriptor.name).decode("utf-8", "replace")


def _same_name(given: str, name: str) -> bool:
    plain = given.rstrip("'")
    return name in {given, plain} or (len(given) >= _LONGEST and name.startswith(plain))


def _compare(descriptor: TensorDescriptor, io: Any, role: str) -> None:
    if io.format not in _FORMATS or io.dtype not in _ITEM:
        raise DeviceError(
            "no loadable has {} {} as its {}".format(io.dtype, io.format, role),
            code="cudla.mismatch",
            where=io.name,
        )
    pairs: List[Tuple[str, Any, Any, bool]] = []
    form = DATA_FORMATS.get(descriptor.data_format, str(descriptor.data_format))
    kind = DATA_TYPES.get(descriptor.data_type, str(descriptor.data_type))
    batch, channels, height, width = four(io.shape)
    # a picture of one channel is the same memory in either order
    formats = _FORMATS[io.format] + (("NCHW", "NHWC") if channels == 1 else ())
    pairs.append(("format", form, io.format, form in formats or form == "UNKNOWN"))
    pairs.append(("type", kind, io.dtype, kind in {io.dtype, "unknown"}))
    stored = stored_shape(io.shape, _ITEM[io.dtype], io.format, io.strides)
    held = stored[3] if io.format == "DLA_HWC4" else channels
    shape = (descriptor.n, descriptor.c, descriptor.h, descriptor.w)
    same = shape[0] == batch and shape[2:] == (height, width) and shape[1] in {channels, held}
    pairs.append(("shape", list(shape), [batch, channels, height, width], same))
    nbytes = stored_bytes(io)
    pairs.append(("size", descriptor.size, nbytes, 0 <= descriptor.size - nbytes < _PAGE))
    for position, axis, name, says in (
        (1, 2, "line stride", height > 1),
        (2, 1, "plane stride", io.format != "DLA_HWC4" and channels > _vector(io.format)),
    ):
        given = int(descriptor.stride[position])
        wanted = io.strides[axis]
        pairs.append((name, given, wanted, not says or not given or given == wanted))
    for what, given, wanted, equal in pairs:
        if not equal:
            raise _mismatch(
                "the {} {}".format(what, given), "{} {}".format(what, wanted), _text(descriptor)
            )


def _vector(form: str) -> int:
    return {"CHW16": 16, "CHW32": 32}.get(form, 1)


def _mismatch(loadable: str, manifest: str, where: str) -> DeviceError:
    return DeviceError(
        "the loadable has {}, the manifest {}".format(loadable, manifest),
        code="cudla.mismatch",
        where=where,
        hint="build the bundle again for this board",
    )
