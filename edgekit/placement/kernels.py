"""Kernels: groups of layers that are placed together, because a device runs them as one.
Verdicts and pins apply to layers, costs apply to kernels; a kernel is on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

from edgekit.network.model import Layer, Network

GATE = 3  # maximum layers between a tensor and its product: SiLU has 1, Mish has 2
LONGEST = 64  # maximum layers of a kernel, which must fit a loadable


@dataclass(frozen=True, slots=True)
class LayerKernel:
    """Layers that run as one.

    Attributes:
        layers: Indices into ``Network.layers``, ascending; the last one writes the output.
        inputs: Tensors read from outside the kernel, in order of first use.
        outputs: Tensors that others read or that leave the network.
    """

    layers: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def fuse(
    network: Network,
    heads: Sequence[str],
    tails: Sequence[str],
    key: Callable[[Layer], Hashable],
) -> tuple[LayerKernel, ...]:
    """Groups layers into kernels, in graph order of their last layers.

    A layer of a kind in ``tails`` joins the kernel that ends in one of its inputs if no other layer
    reads that tensor, the kernel starts with a kind in ``heads`` and ``key`` is the same for both
    (same capability, pin and precision). An addition of two convolutions joins the later
    convolution. A gate (SiLU, HardSwish, Mish: the product of a tensor and its activation) joins as
    a whole. Only the last layer of a kernel has outputs, so the kernel graph has no cycle.
    """
    consumers = network.consumers()
    leaves = set(network.outputs)
    first, joining = frozenset(heads), frozenset(tails)
    ends: dict[str, list[int]] = {}  # last tensor of an open kernel -> its layers
    groups: list[list[int]] = []
    for index, layer in enumerate(network.layers):
        group = _open_kernel_for(network, layer, joining, ends, key)
        if group is None:
            group = [index]
            groups.append(group)
        else:
            group.append(index)
        head = network.layers[group[0]]
        started = head.kind in first and head.formula and len(group) < LONGEST
        if started and len(layer.outputs) == 1:
            tensor = layer.outputs[0]
            # an output is written to memory: no layer is fused behind it
            if tensor in leaves:
                continue
            users = consumers.get(tensor, ())
            # all layers of a gate join, or none: half a gate would read the tensor again
            gate = _gate(users, tensor, consumers, leaves) if len(users) == 2 else []
            same = [x.kind in joining and key(x) == key(layer) for x in gate]
            if len(users) == 1 or (same and all(same)):
                ends[tensor] = group
    groups.sort(key=lambda group: group[-1])
    return tuple(_kernel(network, group, consumers, leaves) for group in groups)


def _gate(
    users: Sequence[Layer],
    tensor: str,
    consumers: Mapping[str, Sequence[Layer]],
    leaves: Set[str],
) -> list[Layer]:
    """Returns the layers of a gate: the second of two readers multiplies the tensor by the first
    reader's result. Empty if there is no gate."""
    layer, product = users
    found = [product]
    for _ in range(GATE):
        if layer.inputs != (tensor,) or len(layer.outputs) != 1:
            return []
        found.append(layer)
        tensor = layer.outputs[0]
        after = consumers.get(tensor, ())
        if tensor in leaves or len(after) != 1:
            return []
        layer = after[0]
        if layer is product:
            return found if product.kind == "ELEMENTWISE" else []
    return []


def _open_kernel_for(
    network: Network,
    layer: Layer,
    tails: Set[str],
    ends: dict[str, list[int]],
    key: Callable[[Layer], Hashable],
) -> list[int] | None:
    """Returns the open kernel that ``layer`` joins: the latest kernel that ends in its inputs."""
    if layer.kind not in tails or not layer.formula:
        return None
    open_ends = [ends[name] for name in layer.inputs if name in ends]
    # a kernel has one device and one precision
    fitting = [group for group in open_ends if key(network.layers[group[-1]]) == key(layer)]
    return max(fitting, key=lambda group: group[-1], default=None)


def operations(
    network: Network, kernel: LayerKernel, joins: Callable[[Sequence[Layer], Layer], bool]
) -> tuple[LayerKernel, ...]:
    """Returns the operations that a device runs in sequence for a kernel.

    Args:
        network: The layer graph.
        kernel: Layers that are placed together.
        joins: Returns True if a device runs the next layer along with those before it.
    """
    if len(kernel.layers) == 1:
        return (kernel,)
    groups: list[list[int]] = []
    for i in kernel.layers:
        layer = network.layers[i]
        if groups and joins([network.layers[j] for j in groups[-1]], layer):
            groups[-1].append(i)
        else:
            groups.append([i])
    if len(groups) == 1:
        return (kernel,)
    found, after = [], set(kernel.outputs)
    # from the end, so that the tensors which later operations read are known
    for group in reversed(groups):
        members = [network.layers[i] for i in group]
        written = dict.fromkeys(name for layer in members for name in layer.outputs)
        read = dict.fromkeys(n for layer in members for n in layer.inputs if n not in written)
        retained = tuple(name for name in written if name in after)
        found.append(LayerKernel(tuple(group), tuple(read), retained))
        after |= set(read)
    return tuple(reversed(found))


def join(
    network: Network,
    group: Sequence[int],
    consumers: Mapping[str, tuple[Layer, ...]] | None = None,
) -> LayerKernel:
    """Returns the kernel of these layers (indices, ascending); ``consumers`` is the network's."""
    users = network.consumers() if consumers is None else consumers
    return _kernel(network, group, users, frozenset(network.outputs))


def join_groups(network: Network, groups: Sequence[Sequence[int]]) -> tuple[LayerKernel, ...]:
    """Returns the kernels of groups of layers, each as :func:`join` would."""
    consumers, leaves = network.consumers(), frozenset(network.outputs)
    return tuple(_kernel(network, group, consumers, leaves) for group in groups)


def _kernel(
    network: Network,
    group: Sequence[int],
    consumers: Mapping[str, tuple[Layer, ...]],
    leaves: Set[str],
) -> LayerKernel:
    if len(group) == 1:
        # no layer reads its own output
        layer = network.layers[group[0]]
        read = tuple(dict.fromkeys(layer.inputs))
        needed = tuple(n for n in layer.outputs if n in leaves or n in consumers)
        return LayerKernel(tuple(group), read, needed)
    members = [network.layers[i] for i in group]
    inside = {layer.name for layer in members}
    written = {name for layer in members for name in layer.outputs}
    seen = dict.fromkeys(n for layer in members for n in layer.inputs if n not in written)
    retained = [
        name
        for layer in members
        for name in layer.outputs
        if name in leaves or any(user.name not in inside for user in consumers.get(name, ()))
    ]
    return LayerKernel(tuple(group), tuple(seen), tuple(retained))
