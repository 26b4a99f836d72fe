"""The kernels of a plan, each as a separate model: in FP32, or in INT8 as in the build.

A kernel is a group of layers that the target runs together: a convolution with the addition and the
activation after it (:mod:`edgekit.reference.numerics` decides which tensors stay inside). Run in
sequence in FP32, the kernels are the network. With a single kernel in INT8 they are the network
with only this kernel quantised, weights and activations as in the build.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from edgekit.disjoint_sets import DisjointSets
from edgekit.placement.segments import Segment, SegmentedPlan, Unit
from edgekit.quantize.scales import Scales
from edgekit.reference.numerics import Numerics, decide
from edgekit.reference.run import open_engine
from edgekit.reference.segment_model import emit
from edgekit.reference.weights import WeightStore

_BATCH = "rows"


@dataclass(frozen=True, eq=False)
class ReferenceKernel:
    """Layers that the target runs together.

    Attributes:
        layers: Their names, in graph order (a node's name if no layer has the node).
        device: "GPU", "DLA0" or "DLA1".
        precision: The build's precision: "int8", "fp16" or "fp32".
        inputs: Activation tensors that it reads from outside.
        outputs: Tensors that other kernels or the caller read.
        unscaled: Tensors whose missing scale keeps it out of INT8.
        units: Its layers' nodes.
    """

    layers: tuple[str, ...]
    device: str
    precision: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unscaled: tuple[str, ...]
    units: tuple[Unit, ...]

    @property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """Its ONNX nodes."""
        return tuple(node for unit in self.units for node in unit.nodes)


class Kernels:
    """The kernels of a plan's first variant, in an order in which they can run.

    Args:
        plan: The FP32 model with placement and precision by layer.
        scales: INT8 scales.
    """

    def __init__(self, plan: SegmentedPlan, scales: Scales | None) -> None:
        runnable = plan.runnable
        self._model, self._graph, self._cuts = runnable.model, runnable.graph, runnable.variants[0]
        # of the whole plan: a kernel alone has no neighbours, which decide where values are rounded
        self._numerics = decide(self._graph, self._cuts, scales, alone=len(runnable.variants) == 1)
        self._store = WeightStore(runnable.model)
        self._place = {node.name: at for at, node in enumerate(self._graph.computed)}
        self.inputs = self._graph.inputs
        # a constant output does not depend on the precision of kernels
        self.outputs = tuple(n for n in self._graph.outputs if n not in self._graph.derived)

    @cached_property
    def kernels(self) -> tuple[ReferenceKernel, ...]:
        """The kernels in running order."""
        units = [(segment.device, unit) for segment in self._cuts for unit in segment.units]
        merged = self._merge_units()
        groups: dict[str, list[tuple[str, Unit]]] = {}
        for device, unit in units:
            groups.setdefault(merged.root(unit.name), []).append((device, unit))
        ordered = self._running_order(list(groups.values()))
        if ordered is None:  # kernels that wait for each other: each layer is a kernel then
            ordered = self._running_order([[item] for item in units])
        assert ordered is not None, "a checked graph has no cycle"
        return tuple(ordered)

    def nbytes(self, tensor: str) -> int:
        """Returns the size of a tensor, 0 if its shape is unknown."""
        return self._graph.nbytes(tensor)

    def session(self, kernel: ReferenceKernel, *, quantised: bool, stacked: bool = False) -> Any:
        """Opens a kernel in ONNX Runtime, on one thread.

        Args:
            kernel: A kernel of :attr:`kernels`.
            quantised: In INT8 as in the build, instead of in FP32.
            stacked: For any multiple of the model's batch along the first axis. The caller must
                check that the kernel treats the rows alike.

        Raises:
            BuildError: ONNX Runtime refuses it.
        """
        nodes = tuple(sorted(kernel.nodes, key=lambda node: self._place[node.name]))
        part = Segment(
            kernel.device, kernel.layers, nodes, kernel.units, kernel.inputs, kernel.outputs
        )
        engine = emit(self._model, part, self._single_engine(kernel, quantised), self._store)
        if stacked:
            engine = self._with_dynamic_rows(engine)
        store = self._store
        return open_engine(
            engine,
            store.weights,
            store.values,
            kernel.layers[0],
            # the caller runs several calls at once
            threads=1,
            plugins=self._model.plugins,
        )

    def _single_engine(self, kernel: ReferenceKernel, quantised: bool) -> Numerics:
        # nothing is quantised in an FP32 kernel, whatever the plan
        own = {unit.name for unit in kernel.units} if quantised else set()
        written = {name for unit in kernel.units for name in unit.writes} if quantised else set()
        whole = self._numerics
        return replace(
            whole,
            precision={n: p if n in own else "fp32" for n, p in whole.precision.items()},
            rounding={n: k if n in written else "none" for n, k in whole.rounding.items()},
            exact=whole.exact & written,
        )

    def _merge_units(self) -> DisjointSets[str]:
        """Returns the names of the units of each kernel as one set."""
        sets = DisjointSets[str]()
        for segment in self._cuts:
            writer = {name: unit.name for unit in segment.units for name in unit.writes}
            for unit in segment.units:
                for name in unit.reads:
                    if name in writer and self._stays_inside(name, writer[name]):
                        sets.join(writer[name], unit.name)
        return sets

    def _stays_inside(self, tensor: str, writer: str) -> bool:
        """Returns True if a tensor between two units of an INT8 kernel is never rounded."""
        numerics = self._numerics
        return (
            numerics.precision[writer] == "int8"
            and numerics.rounding.get(tensor) == "none"
            and self._graph.is_float32(tensor)
        )

    def _running_order(self, groups: list[list[tuple[str, Unit]]]) -> list[ReferenceKernel] | None:
        made = [self._kernel(group) for group in groups]
        writer = {
            name: at for at, item in enumerate(made) for unit in item.units for name in unit.writes
        }
        waits = {
            at: {writer[name] for name in item.inputs if name in writer}
            for at, item in enumerate(made)
        }
        try:
            return [made[at] for at in TopologicalSorter(waits).static_order()]
        except CycleError:
            return None

    def _kernel(self, group: list[tuple[str, Unit]]) -> ReferenceKernel:
        # the graph's order is topological
        units = tuple(sorted((u for _, u in group), key=lambda u: self._place[u.nodes[0].name]))
        written = {name for unit in units for name in unit.writes}
        inner = {node.name for unit in units for node in unit.nodes}
        reads = dict.fromkeys(name for unit in units for name in unit.reads)
        unscaled = self._numerics.unscaled
        return ReferenceKernel(
            layers=tuple(unit.name for unit in units),
            device=group[0][0],
            precision=self._numerics.precision[units[0].name],
            inputs=tuple(name for name in reads if name not in written),
            outputs=tuple(
                name
                for unit in units
                for name in unit.writes
                if name in self._graph.outputs
                or any(reader not in inner for reader in self._graph.readers.get(name, ()))
            ),
            unscaled=tuple(name for unit in units for name in unscaled.get(unit.name, ())),
            units=units,
        )

    def _with_dynamic_rows(self, engine: bytes) -> bytes:
        """Makes the first axis of an engine's inputs, outputs and reshapes dynamic."""
        proto = onnx.ModelProto.FromString(engine)
        for value in (*proto.graph.input, *proto.graph.output):
            dims = value.type.tensor_type.shape.dim
            if dims:
                dims[0].dim_param = _BATCH
        constants = {tensor.name for tensor in proto.graph.initializer}
        for node in proto.graph.node:
            if node.op_type != "Reshape" or node.input[1] not in constants:
                continue
            ends = (node.input[0], node.output[0])
            if not self._graph.tensor_names.issuperset(ends):
                continue
            source, target = map(self._graph.shape, ends)
            # only a reshape that keeps the batch in front can keep a larger batch, too
            if source and target and source[0] == target[0] and len(target) > 1:
                # 0: the input's size
                shape = np.array([0, *target[1:]], np.int64)
                node.input[1] = f"{node.output[0]}#rows"
                proto.graph.initializer.append(numpy_helper.from_array(shape, node.input[1]))
        data: bytes = proto.SerializeToString()
        return data
