"""Windows of convolutions and poolings: attributes with their defaults, padding resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["Window", "attributes", "window"]


@dataclass(frozen=True)
class Window:
    """Kernel, stride and dilation per spatial axis; pads begin first, then end."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]

    def params(self) -> dict[str, Any]:
        """The entries of ``Layer.params``; a 1-D window becomes the first axis of a 2-D one."""
        wide = len(self.kernel) == 1
        pads = (self.pads[0], 0, self.pads[1], 0) if wide else self.pads
        one = (1,) if wide else ()
        return {
            "kernel": (*self.kernel, *one),
            "stride": (*self.stride, *one),
            "pads": pads,
            "dilation": (*self.dilation, *one),
        }


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes as plain values, strings decoded."""
    from onnx import helper

    found = {}
    for item in node.attribute:
        value = helper.get_attribute_value(item)
        found[item.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found


def window(
    given: Mapping[str, Any], kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> Window:
    """Resolves strides, dilations and padding (auto_pad as ONNX's Conv and pools define it).

    Args:
        given: The node's attributes.
        kernel: Window size per spatial axis.
        source: Spatial input sizes.
        target: Spatial output sizes.
    """
    rank = len(kernel)
    stride = tuple(given.get("strides") or (1,) * rank)
    dilation = tuple(given.get("dilations") or (1,) * rank)
    auto = given.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        totals = [
            max((o - 1) * s + (k - 1) * d + 1 - i, 0)
            for o, s, k, d, i in zip(target, stride, kernel, dilation, source, strict=True)
        ]
        pads = split_padding(totals, lower=auto == "SAME_LOWER")
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    else:
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
    return Window(tuple(kernel), stride, pads, dilation)


def split_padding(totals: Sequence[int], *, lower: bool) -> tuple[int, ...]:
    """Halves padding per axis; the odd element goes to the begin when ``lower``."""
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (*large, *small) if lower else (*small, *large)
