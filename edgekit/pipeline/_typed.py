"""INT8 on strongly typed releases (from TensorRT 11.4.1 on): Q/DQ nodes instead of a cache.

Planning, costs and the reference build go by the plain network, its scales and the precision that
each layer has between Q/DQ nodes. The nodes themselves are no layers of the plan: they take no
time, for each is a part of the kernel that writes or reads its tensor (assumed; NVIDIA's DLA
operator matrix says of both "can be collapsed to INT8 scaling factor"). Where INT8 and FP16 meet,
the plan pays for the reformat as in any other build.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._cache import digest_of
from edgekit.pipeline._calibrating import Calibrating

if TYPE_CHECKING:
    from edgekit.dla import Lowering
    from edgekit.network import Model
    from edgekit.pipeline._tied import Binding
    from edgekit.quantize import Ranges, Scales, Translated
    from edgekit.targets import Target

__all__ = ["Typed", "is_typed", "lowered_note", "typed_note", "typed_translation"]


class Typed(Calibrating):
    """From the rewritten network and its scales to the model that the board builds from."""

    @cached_property
    def plan_scales(self) -> Scales | None:
        """The INT8 scales of what is built."""
        raise NotImplementedError

    def _tied(self, bound: Binding) -> Scales:
        """The scales; on strongly typed releases with the tensors that have Q/DQ nodes."""
        return self._with_nodes(super()._tied(bound))

    def scales_by(self, ranges: Ranges, method: str, bound: Binding | None = None) -> Scales:
        """Returns the scales of measured ranges, likewise."""
        return self._with_nodes(super().scales_by(ranges, method, bound))

    def _with_nodes(self, scales: Scales) -> Scales:
        if scales.quantised is not None or not self.lowers:
            return scales
        quantised = frozenset(self._lowered(scales).tensors)
        digest = digest_of([scales.digest, sorted(quantised)])
        return replace(scales, quantised=quantised, digest=digest)

    def _lowered(self, scales: Scales) -> Lowering:
        from edgekit.dla import lowering

        network = self.network
        return lowering(network, scales.scales, self.fp16_layers(network))

    @property
    def typed(self) -> Model:
        """The Q/DQ model: the user's own where nothing was rewritten, or else a lowered one."""
        from edgekit.quantize import to_qdq

        scales = self.plan_scales
        assert scales is not None, "asked for where the release is strongly typed"
        if self.translated is not None and self.model is self.source and not self._keeps_more:
            return self.named
        network = self.network
        return to_qdq(self.model, network, scales.scales, fp16_layers=self.fp16_layers(network))

    @property
    def typed_identity(self) -> list[Any]:
        """What ``typed`` depends on."""
        scales = self.plan_scales
        fp16 = sorted(self.fp16_layers(self.network))
        return [
            self.named.digest, self.model_digest, self._keeps_more, fp16,
            scales and dict(scales.scales),
        ]  # fmt: skip

    @property
    def _keeps_more(self) -> bool:
        """Whether layers stay in FP16 that the user's Q/DQ model has in INT8, or scales differ."""
        section = self.file.calibration
        return bool(section.fp16_layers or self.kept or section.cache)


def is_typed(target: Target, tensorrt: str, precision: str) -> bool:
    """Says whether INT8 on the DLA of a board needs Q/DQ nodes with a TensorRT release."""
    from edgekit.dla import drives_dla, reads_qdq

    return precision == "int8" and drives_dla(target, tensorrt) and reads_qdq(target, tensorrt)


def typed_note(tensorrt: str) -> str:
    """Says that a plain network will be lowered."""
    return (
        f"TensorRT {tensorrt} is strongly typed and reads no calibration cache: the network is "
        "lowered to Q/DQ nodes with its scales (edgekit calibrate to-qdq writes the model)"
    )


def lowered_note(model: Model, tensorrt: str) -> list[str]:
    """Says that a model will be lowered, unless it has Q/DQ nodes and stays as it is."""
    from edgekit.quantize import has_qdq

    return [] if has_qdq(model) else [typed_note(tensorrt)]


def typed_translation(model: Model) -> tuple[Translated | None, str]:
    """Takes the Q/DQ nodes of a model out for planning; it is built as it is.

    Layers that are not between Q/DQ nodes stay in FP16, as they are in the model.

    Returns:
        The plain network and its scales, None where there is no such form or nothing to take out;
        and what a person should know.
    """
    from edgekit.dla import by_quantization
    from edgekit.errors import ModelError
    from edgekit.network import layers
    from edgekit.quantize import from_qdq, has_qdq

    if not has_qdq(model):
        return None, ""
    try:
        found = from_qdq(model)
    except ModelError as error:
        return None, (
            f"the Q/DQ nodes are layers of the plan, for there is no plain form of the model "
            f"({error.message})"
        )
    network = layers(model)
    precisions = by_quantization(network)
    halves = dict.fromkeys(
        name
        for layer in network.layers
        if precisions[layer.name] == "fp16"
        for name in (layer.nodes or layer.origin)
    )
    return replace(found, fp16_nodes=tuple({**dict.fromkeys(found.fp16_nodes), **halves})), ""
