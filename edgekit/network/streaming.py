"""Runs a large model in ONNX Runtime piece by piece: only one piece's weights are in memory.

ONNX Runtime copies every weight into the layout of its kernels, which needs the size of the model
again. Here a piece is opened, runs all inputs of a group, and is closed before the next piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edgekit.files import forget_pages
from edgekit.network.model import entries
from edgekit.network.protos import has_bodies, reads
from edgekit.network.session import (
    Argument,
    lent_value,
    open_session,
    output_value_info,
    piece,
    runtime_error,
    session,
    with_outputs,
)

if TYPE_CHECKING:
    from edgekit.network.model import Model

Feed = Mapping[str, np.ndarray]

#: Bytes of a model's weights as float32 above which it runs in pieces.
LARGE_BYTES = 256 << 20
# bytes of a piece's weights as float32, to which ONNX Runtime converts float16 and codes
_PIECE_BYTES = 96 << 20
# most bytes of a group's tensors between pieces, and most inputs of a group
_BETWEEN_BYTES = 64 << 20
_TOGETHER = 32
# assumed ratio of the bytes between pieces to those of an input, until measured
_WIDEST = 16
_FLOAT_BYTES = 4


def float_bytes(weights: Mapping[str, np.ndarray]) -> int:
    """Returns the bytes of weights as float32, without reading them."""
    return sum(_FLOAT_BYTES * value.size for value in entries(weights).values())


def is_large(*weights: Mapping[str, np.ndarray]) -> bool:
    """Returns True if a model with these weights, of all its parts, runs in pieces."""
    return sum(map(float_bytes, weights)) > LARGE_BYTES


def group_inputs(inputs: Iterable[Feed], runs: Sequence[Any]) -> Iterator[list[Feed]]:
    """Yields the inputs in the groups that run together: one by one if no run is streamed.

    Args:
        inputs: Inputs by name, one dict an inference.
        runs: The sessions, each of which runs a group before the next group is requested. A session
            whose attribute ``streams`` is true is streamed, and its ``between`` is the bytes that
            it keeps between pieces for each input.
    """
    feeds = iter(inputs)
    if not any(getattr(run, "streams", False) for run in runs):
        yield from ([feed] for feed in feeds)
        return
    between = 0
    for first in feeds:
        between = between or _WIDEST * sum(value.nbytes for value in first.values())
        more = min(_TOGETHER, _BETWEEN_BYTES // max(between, 1)) - 1
        yield [first, *islice(feeds, max(0, more))]
        # measured now: later groups are as large as the limit allows
        between = sum(getattr(run, "between", 0) for run in runs)


def run_group(session: Any, outputs: Sequence[str], group: Sequence[Feed]) -> list[list[Any]]:
    """Returns a session's outputs for each input of a group, in their order."""
    if isinstance(session, StreamedSession):
        return session.run_group(outputs, group)
    return [session.run(list(outputs), dict(feed)) for feed in group]


def model_session(model: Model, *, outputs: Sequence[str]) -> Any:
    """Returns ``session(model, outputs=outputs)``, or a session in pieces if the weights are large.

    Raises:
        ModelError: As ``session``; a session in pieces raises some errors in its first run.
    """
    # functions of plugins already divide a session into pieces
    if is_large(model.weights) and not any(plugin.function for plugin in model.plugins):
        made = stream_session(
            with_outputs(model.proto, outputs), model.weights, partial(_open_piece, model)
        )
        if made is not None:
            return made
    return session(model, outputs=outputs)


def _open_piece(model: Model, data: bytes, lent: Mapping[str, Any]) -> Any:
    try:
        return open_session(data, lent, arena=False)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise runtime_error(model, error) from error


@dataclass(frozen=True, eq=False)
class _Piece:
    """Consecutive nodes.

    Attributes:
        nodes: The nodes, and those that compute their constants.
        inputs: Tensors that they read from earlier pieces and from the model's inputs.
        outputs: Tensors that later pieces read, and the model's outputs.
        weights: The weights that they read.
        dropped: Tensors that are not needed after this piece.
    """

    nodes: list[onnx.NodeProto]
    inputs: list[str]
    outputs: list[str]
    weights: list[str]
    dropped: list[str]


class StreamedSession:
    """An ``InferenceSession`` for a model whose weights do not fit into memory together.

    Cuts are only made before nodes that read weights: ONNX Runtime fuses a convolution or matrix
    product with its bias and the following nodes, so the results are those of a single session.

    Args:
        proto: The model; its weights are stubs.
        weights: The weights' values; a lazily computed weight is computed for its piece alone.
        open_piece: Creates an ``InferenceSession`` from a serialised model and its weights, which
            the session does not copy.

    Attributes:
        streams: True.
        between: Most bytes between pieces for an input; 0 before the first run.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        open_piece: Callable[[bytes, Mapping[str, Any]], Any],
    ) -> None:
        self._proto, self._weights, self._open = proto, weights, open_piece
        graph = proto.graph
        held = {tensor.name for tensor in graph.initializer}
        self._inputs = [value for value in graph.input if value.name not in held]
        self._outputs = [value.name for value in graph.output]
        self._types = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
        self._pieces = list(_pieces(proto, weights))
        self.streams = True
        self.between = 0

    def get_inputs(self) -> list[Any]:
        """Returns the inputs as an ``InferenceSession`` does: name, type and shape."""
        return [Argument.of(value) for value in self._inputs]

    def run(self, outputs: Sequence[str] | None, feed: Feed) -> list[Any]:
        """Runs one inference, as an ``InferenceSession`` does."""
        return self.run_group(outputs, [feed])[0]

    def run_group(self, outputs: Sequence[str] | None, group: Sequence[Feed]) -> list[list[Any]]:
        """Runs an inference of each input; all inputs pass a piece before the next piece."""
        names = list(outputs or self._outputs)
        alive: list[dict[str, Any]] = [dict(feed) for feed in group]
        for part in self._pieces:
            data = piece(self._proto, part.nodes, part.outputs, self._types).SerializeToString()
            lent = {name: lent_value(self._weights[name]) for name in part.weights}
            session = self._open(data, lent)
            self._types.update(
                (value.name, output_value_info(value)) for value in session.get_outputs()
            )
            for values in alive:
                made = session.run(part.outputs, {name: values[name] for name in part.inputs})
                values.update(zip(part.outputs, made, strict=True))
                self.between = max(self.between, sum(value.nbytes for value in values.values()))
                for name in set(part.dropped) - set(names):
                    values.pop(name, None)
            # before the pages of its weights are released, which it reads in place
            del session
            for name in part.weights:
                value = entries(self._weights)[name]
                if isinstance(value, np.ndarray):
                    forget_pages(value)
        return [[values[name] for name in names] for values in alive]


def stream_session(
    proto: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    open_piece: Callable[[bytes, Mapping[str, Any]], Any],
) -> StreamedSession | None:
    """Returns a session in pieces; None for a model that cannot be cut.

    The arguments are those of :class:`StreamedSession`.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    # no piece has a node that writes such an output
    if any(value.name in constants for value in proto.graph.output):
        return None
    return StreamedSession(proto, weights, open_piece)


def _pieces(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> Iterator[_Piece]:
    groups = _group_nodes(proto, weights)
    wanted = {value.name for value in proto.graph.output}
    later: list[set[str]] = []
    for nodes in reversed(groups):
        later.append(set(wanted))
        # nodes that compute constants are in each piece that reads the constants
        own = {name for node in nodes for name in node.output}
        wanted |= {name for node in nodes for name in reads(node)} - own
    constants = {tensor.name for tensor in proto.graph.initializer}
    made: set[str] = {value.name for value in proto.graph.input} - constants
    for nodes, after in zip(groups, reversed(later), strict=True):
        written = [name for node in nodes for name in node.output if name]
        read = list(dict.fromkeys(name for node in nodes for name in reads(node)))
        inputs = [name for name in read if name in made]
        outputs = [name for name in written if name in after]
        if not outputs:  # no output needs the piece
            continue
        made.update(outputs)
        gone = sorted(name for name in made if name not in after)
        made.difference_update(gone)
        yield _Piece(nodes, inputs, outputs, [name for name in read if name in weights], gone)


def _group_nodes(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
) -> list[list[onnx.NodeProto]]:
    """Returns the nodes of each piece, with the nodes that compute its constants."""
    graph = proto.graph
    fixed = {tensor.name for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    sizes = {name: _FLOAT_BYTES * value.size for name, value in entries(weights).items()}
    makers: dict[str, int] = {}
    groups: list[list[onnx.NodeProto]] = [[]]
    held: set[str] = set()  # tensors that the group's nodes read
    present: set[str] = set()  # outputs of its constant nodes
    total = 0
    for number, node in enumerate(graph.node):
        read = reads(node)
        # other nodes without inputs, such as RandomNormal, are not constant
        constant = fixed.issuperset(read) if read else node.op_type == "Constant"
        if constant and not outputs & set(node.output) and not has_bodies(node):
            fixed.update(node.output)
            makers.update(dict.fromkeys(node.output, number))
            continue
        needed, own = _constant_nodes(read, makers, graph.node)
        more = sum(sizes.get(name, 0) for name in own - held)
        if more and groups[-1] and total + more > _PIECE_BYTES:
            groups.append([])
            held, present, total = set(), set(), 0
            # the new group holds none of them yet
            more = sum(sizes.get(name, 0) for name in own)
        for maker in (graph.node[place] for place in needed):
            if not present.intersection(maker.output):
                groups[-1].append(maker)
                present.update(maker.output)
        groups[-1].append(node)
        held |= own
        total += more
    return groups


def _constant_nodes(
    read: Iterable[str], makers: Mapping[str, int], nodes: Sequence[onnx.NodeProto]
) -> tuple[list[int], set[str]]:
    """Returns the nodes that compute the constants among ``read``, in order, and all tensors
    read."""
    found: set[int] = set()
    own: set[str] = set()
    left = list(read)
    while left:
        name = left.pop()
        if name in own:
            continue
        own.add(name)
        if name in makers and makers[name] not in found:
            found.add(makers[name])
            left += reads(nodes[makers[name]])
    return sorted(found), own
