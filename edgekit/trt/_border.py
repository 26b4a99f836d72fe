"""Types and formats of the tensors that cross an engine's border.

A loadable takes and gives INT8 or FP16 in the DLA's formats alone. What a GPU engine exchanges with
one has the same type and, where the GPU has that format too, the same format: so nothing is
reformatted in between (INT8 in CHW32). Formats by type and side: NVIDIA's guides "DLA runtime
configuration" and, for the GPU, "I/O Formats".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.dla import shared_with_gpu, vector_format
from edgekit.errors import BuildError

if TYPE_CHECKING:
    from edgekit.build import Cut
    from edgekit.network import Network
    from edgekit.placement import Loadable

__all__ = ["Border", "borders_of", "entry"]


@dataclass(frozen=True, slots=True)
class Border:
    """A tensor at engines' borders.

    Attributes:
        dtype: NumPy type name.
        on_dla: Format in loadables that read or write it; empty where none does.
        scale: Its scale when it is INT8.
    """

    dtype: str
    on_dla: str = ""
    scale: float | None = None

    def format_on(self, device: str) -> str:
        """Returns the format on a device, "GPU" or a DLA core.

        The GPU takes the DLA's format where it has it too; elsewhere the loader packs and unpacks.
        """
        if device != "GPU":
            return self.on_dla
        shared = self.on_dla and shared_with_gpu(self.on_dla, self.dtype)
        return self.on_dla if shared else "LINEAR"


def borders_of(
    network: Network,
    cuts: Sequence[Cut],
    loadables: Sequence[Loadable],
    precisions: Mapping[str, str],
    scales: Mapping[str, float] | None,
    types: Mapping[str, str],
) -> dict[str, Border]:
    """Returns type and format of every tensor that the cuts read or write.

    Args:
        network: The layer graph.
        cuts: Segments in running order.
        loadables: The plan's, with the formats that it chose.
        precisions: Precision by layer.
        scales: INT8 scale by tensor; None where the types in the model count (strong typing).
        types: NumPy type by tensor, as the model has it.

    Raises:
        BuildError: "build.border": a loadable would have to exchange a type that no DLA has.
    """
    chosen = {frozenset(x.layers): x.formats for x in loadables}
    touching = _precisions(network, precisions)
    found: dict[str, Border] = {}
    for cut in cuts:
        if cut.device == "GPU":
            continue
        formats = chosen.get(frozenset(cut.layers), {})
        for name in (*cut.outputs, *cut.inputs):
            if name not in found:
                found[name] = _on_dla(name, cut, formats, touching, scales, types)
    for cut in cuts:
        for name in (*cut.inputs, *cut.outputs):
            found.setdefault(name, Border(types[name]))
    return found


def _precisions(network: Network, precisions: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the precisions of the layers that touch each tensor, views included."""
    found: dict[str, set[str]] = {}
    for layer in network.layers:
        for name in (*layer.inputs, *layer.outputs):
            for each in {name, network.views.get(name, name)}:
                found.setdefault(each, set()).add(precisions.get(layer.name, "fp16"))
    return found


def _on_dla(
    name: str,
    cut: Cut,
    formats: Mapping[str, str],
    touching: Mapping[str, set[str]],
    scales: Mapping[str, float] | None,
    types: Mapping[str, str],
) -> Border:
    if types[name] not in ("float32", "float16") or (scales is None and types[name] == "float32"):
        raise BuildError(
            f"the tensor is {types[name]}, and a loadable on {cut.device} takes INT8 or FP16",
            code="build.border",
            where=name,
            hint="build.mode: hybrid lets TensorRT convert it; or pin its layer to the GPU",
        )
    scales = scales or {}
    int8 = touching.get(name, set()) == {"int8"} and name in scales and types[name] == "float32"
    dtype = "int8" if int8 else "float16"
    chosen = formats.get(name) or vector_format(dtype)
    return Border(dtype, chosen, float(scales[name]) if int8 else None)


def entry(name: str, border: Border, device: str, shape: Sequence[int]) -> dict[str, Any]:
    """Returns an input or output of an engine as a build request has it."""
    return {
        "name": name,
        "dtype": border.dtype,
        "shape": list(shape),
        "formats": [border.format_on(device)],
        "scale": border.scale,
    }
