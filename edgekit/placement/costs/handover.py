"""Tensor hand-overs: the layouts on both sides, and the ways between them.

A loadable reads and writes a tensor in one of the DLA's formats. If the GPU's kernel has the same
layout, the hand-over is free; otherwise a GPU kernel reformats the tensor, or the loadable takes a
format that is nearer to the GPU's and is slower. Between GPU kernels of the same type in their best
formats the hand-over is free: the fitted kernel times include these reformats. From INT8 to FP16
and back, a separate kernel converts, except in parts that run fused.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.network.model import Network, Tensor
from edgekit.placement.costs.kernel_costs import Layout, padded_bytes
from edgekit.placement.costs.model import CostModel
from edgekit.placement.kernels import LayerKernel
from edgekit_device.protocol.codec import document

CALLER: Layout = ("fp32", "LINEAR")
"""The caller's layout of inputs and outputs."""


@document(frozen=True)
class HandoverWay:
    """A way over a border: ``dla_format`` at the loadable's end, and its cost.

    ``reformat_us`` is the GPU's time for the reformat from ``source`` to ``goal`` (0 without a
    reformat); ``io_us`` is the loadable's extra time over its best format; ``measured`` is True if
    the reformat's time is measured.
    """

    source: Layout
    goal: Layout
    dla_format: str
    reformat_us: float
    io_us: float
    measured: bool = False


def layout_text(layout: Layout) -> str:
    """Returns a layout in the notation of plans: "int8:CHW32"."""
    return ":".join(layout)


def read_formats(
    model: CostModel, network: Network, kernel: LayerKernel, tensor: str
) -> tuple[str, ...]:
    """Returns the formats in which a loadable can read a tensor at a kernel, the best first.

    DLA_HWC4 is for the image that the kernel's convolution reads, not for a tensor that is added.
    """
    formats = model.formats(network, kernel, "DLA0")
    if network.layers[kernel.layers[0]].inputs == (tensor,):
        return formats
    return tuple(form for form in formats if form != "DLA_HWC4")


class Handover:
    """Layouts and ways for one network; results are cached."""

    def __init__(
        self, network: Network, model: CostModel, fused: Sequence[frozenset[int]] = ()
    ) -> None:
        self._network = network
        self._model = model
        self._part_of = {i: n for n, part in enumerate(fused) for i in part}
        self._gpu: dict[tuple[int, ...], tuple[Layout, ...]] = {}
        self._ways: dict[
            tuple[str, Layout, bool, str, tuple[str, ...]], tuple[HandoverWay, ...]
        ] = {}

    def gpu(self, kernel: LayerKernel) -> tuple[Layout, ...]:
        """Returns a kernel's possible layouts on the GPU, the best first."""
        known = self._gpu.get(kernel.layers)
        if known is None:
            precision = self._precision(kernel, "GPU")
            formats = self._model.formats(self._network, kernel, "GPU")
            known = self._gpu[kernel.layers] = tuple((precision, form) for form in formats)
        return known

    @staticmethod
    def changes_type(source: Layout, goal: Layout) -> bool:
        """Returns True if the GPU converts a tensor between kernels in their best layouts."""
        return source[0] != goal[0] and "int8" in (source[0], goal[0])

    def is_fused(self, writer: LayerKernel, reader: LayerKernel) -> bool:
        """Returns True if two kernels belong to one part that the GPU runs fused."""
        part = self._part_of.get(writer.layers[0])
        return part is not None and part == self._part_of.get(reader.layers[0])

    def into(
        self, name: str, source: Layout, readers: Sequence[LayerKernel]
    ) -> tuple[HandoverWay, ...]:
        """Returns the ways of a tensor into the loadable of the first of ``readers``."""
        first = readers[0]
        formats = read_formats(self._model, self._network, first, name)
        for other in readers[1:]:
            also = read_formats(self._model, self._network, other, name)
            formats = tuple(form for form in formats if form in also) or formats
        return self._find(name, source, True, self._precision(first, "DLA0"), formats)

    def out_of(self, name: str, goal: Layout, writer: LayerKernel) -> tuple[HandoverWay, ...]:
        """Returns the ways of a tensor out of the loadable of ``writer``."""
        formats = self._model.formats(self._network, writer, "DLA0")
        writable = tuple(form for form in formats if form != "DLA_HWC4")  # DLA_HWC4 is read-only
        return self._find(name, goal, False, self._precision(writer, "DLA0"), writable)

    def _precision(self, kernel: LayerKernel, device: str) -> str:
        return self._model.layer_precision(self._network.layers[kernel.layers[0]], device)

    def _find(
        self, name: str, other: Layout, reads: bool, precision: str, formats: tuple[str, ...]
    ) -> tuple[HandoverWay, ...]:
        key = (name, other, reads, precision, formats)
        known = self._ways.get(key)
        if known is None:
            tensor = self._network.tensors[name]
            known = self._ways[key] = tuple(
                self._way(tensor, other, reads, precision, form) for form in formats
            )
        return known

    def _way(
        self, tensor: Tensor, other: Layout, reads: bool, precision: str, form: str
    ) -> HandoverWay:
        own = (precision, form)
        source, goal = (other, own) if reads else (own, other)
        # equal bytes are no work, also under two names
        us = 0.0 if self._same(tensor, own, other) else self.reformat_us(tensor, source, goal)
        direction = "read" if reads else "write"
        io = self._model.dla_io_us(tensor, form, precision, direction)
        measured = bool(us) and self._model.measured.has_reformat(tensor, source, goal)
        return HandoverWay(source, goal, form, us, max(0.0, io), measured)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the GPU's microseconds to reformat a tensor."""
        return self._model.reformat_us(tensor, source, goal)

    def _same(self, tensor: Tensor, own: Layout, other: Layout) -> bool:
        if own == other:
            return True
        linear = (own[1], other[1]) == ("DLA_LINEAR", "LINEAR") and own[0] == other[0]
        if not linear:
            return False
        generation = self._model.target.dla.layouts
        sizes = {padded_bytes(tensor.shape, layout, generation) for layout in (own, other)}
        return len(sizes) == 1  # lines without padding
