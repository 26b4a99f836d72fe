"""ONNX Runtime on a large model, a piece at a time: only one piece's weights are in memory.

ONNX Runtime keeps every weight in the form that its kernels read, a whole model once more. Here a
piece is opened, runs all inputs of a group, and is closed before the next one is opened.
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
    piece,
    refused,
    session,
    typed,
    with_outputs,
)

if TYPE_CHECKING:
    from edgekit.network.model import Model

Feed = Mapping[str, np.ndarray]

#: Bytes of a model's weights as float32 above which it runs in pieces.
LARGE_BYTES = 256 << 20
# bytes of a piece's weights as float32, which is what ONNX Runtime makes of halves and of codes
_PIECE_BYTES = 96 << 20
# bytes of what is between pieces, of the inputs that run together, and the most of these
_BETWEEN_BYTES = 64 << 20
_TOGETHER = 32
# times the bytes of an input that are between pieces, until it is known
_WIDEST = 16
_FLOAT_BYTES = 4


def float_bytes(weights: Mapping[str, np.ndarray]) -> int:
    """Returns what weights take as float32; none is read for it."""
    return sum(_FLOAT_BYTES * value.size for value in entries(weights).values())


def is_large(*weights: Mapping[str, np.ndarray]) -> bool:
    """Tells whether a model with these weights, of all its parts, runs in pieces."""
    return sum(map(float_bytes, weights)) > LARGE_BYTES


def grouped(inputs: Iterable[Feed], runs: Sequence[Any]) -> Iterator[list[Feed]]:
    """Yields the inputs in the groups that run together: one by one where nothing is streamed.

    Args:
        inputs: Inputs by name, one dict an inference.
        runs: What runs each group before the next one is requested; of streamed ones the attribute
            ``streams`` tells which are streamed, and ``between`` the bytes that these kept of one
            input.
    """
    feeds = iter(inputs)
    if not any(getattr(one, "streams", False) for one in runs):
        yield from ([feed] for feed in feeds)
        return
    between = 0
    for first in feeds:
        between = between or _WIDEST * sum(value.nbytes for value in first.values())
        more = min(_TOGETHER, _BETWEEN_BYTES // max(between, 1)) - 1
        yield [first, *islice(feeds, max(0, more))]
        between = sum(getattr(one, "between", 0) for one in runs)


def run_group(session: Any, outputs: Sequence[str], group: Sequence[Feed]) -> list[list[Any]]:
    """Returns a session's outputs for each input of a group, in their order."""
    if isinstance(session, StreamedSession):
        return session.run_group(outputs, group)
    return [session.run(list(outputs), dict(feed)) for feed in group]


def model_session(model: Model, *, outputs: Sequence[str]) -> Any:
    """Returns ``session(model, outputs=outputs)``; one in pieces where its weights are large.

    Raises:
        ModelError: As ``session``; of one in pieces, some are raised by the first run.
    """
    if is_large(model.weights) and not any(one.function for one in model.plugins):
        made = streamed(
            with_outputs(model.proto, outputs), model.weights, partial(_open_piece, model)
        )
        if made is not None:
            return made
    return session(model, outputs=outputs)


def _open_piece(model: Model, data: bytes, lent: Mapping[str, Any]) -> Any:
    try:
        return open_session(data, lent, arena=False)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise refused(model, error) from error


@dataclass(frozen=True, eq=False)
class _Piece:
    """Consecutive nodes.

    Attributes:
        nodes: The nodes, and those that compute their constants.
        inputs: What they read of earlier pieces and of the model's inputs.
        outputs: What later pieces read, and the model's outputs.
        weights: The weights that they read.
        dropped: Tensors that no later piece reads.
    """

    nodes: list[onnx.NodeProto]
    inputs: list[str]
    outputs: list[str]
    weights: list[str]
    dropped: list[str]


class StreamedSession:
    """What an ``InferenceSession`` does, for a model whose weights are too large to be held.

    A cut is only made before a node that reads weights: ONNX Runtime joins a convolution or matrix
    product with what follows it, and with its bias, so that the results are those of one session.

    Args:
        proto: The model; its weights are stubs.
        weights: Their values; one that is computed on request is computed for its piece alone.
        open_piece: Makes an ``InferenceSession`` of a serialised model and its lent weights.

    Attributes:
        streams: True.
        between: Bytes that one input keeps between pieces, at most; 0 before the first run.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        open_piece: Callable[[bytes, Mapping[str, Any]], Any],
    ) -> None:
        self._proto, self._weights, self._open = proto, weights, open_piece
        graph = proto.graph
        held = {one.name for one in graph.initializer}
        self._inputs = [one for one in graph.input if one.name not in held]
        self._outputs = [one.name for one in graph.output]
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
        """Runs an inference of each input, all of them through a piece before the next one."""
        names = list(outputs or self._outputs)
        alive: list[dict[str, Any]] = [dict(feed) for feed in group]
        for one in self._pieces:
            session = self._opened(one)
            self._types.update((value.name, typed(value)) for value in session.get_outputs())
            for values in alive:
                made = session.run(one.outputs, {name: values[name] for name in one.inputs})
                values.update(zip(one.outputs, made, strict=True))
                self.between = max(self.between, sum(value.nbytes for value in values.values()))
                for name in set(one.dropped) - set(names):
                    values.pop(name, None)
            del session
            for name in one.weights:
                value = entries(self._weights)[name]
                if isinstance(value, np.ndarray):
                    forget_pages(value)
        return [[values[name] for name in names] for values in alive]

    def _opened(self, one: _Piece) -> Any:
        data = piece(self._proto, one.nodes, one.outputs, self._types).SerializeToString()
        return self._open(data, {name: lent_value(self._weights[name]) for name in one.weights})


def streamed(
    proto: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    open_piece: Callable[[bytes, Mapping[str, Any]], Any],
) -> StreamedSession | None:
    """Returns a session in pieces; None for a model that cannot be cut.

    Arguments as of :class:`StreamedSession`.
    """
    constants = {one.name for one in proto.graph.initializer}
    if any(one.name in constants for one in proto.graph.output):
        return None
    return StreamedSession(proto, weights, open_piece)


def _pieces(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> Iterator[_Piece]:
    groups = _groups(proto, weights)
    wanted = {one.name for one in proto.graph.output}
    later: list[set[str]] = []
    for nodes in reversed(groups):
        later.append(set(wanted))
        # what computes constants is in each piece that reads them
        own = {name for node in nodes for name in node.output}
        wanted |= {name for node in nodes for name in reads(node)} - own
    constants = {one.name for one in proto.graph.initializer}
    made: set[str] = {one.name for one in proto.graph.input} - constants
    for nodes, after in zip(groups, reversed(later), strict=True):
        written = [name for node in nodes for name in node.output if name]
        read = list(dict.fromkeys(name for node in nodes for name in reads(node)))
        inputs = [name for name in read if name in made]
        outputs = [name for name in written if name in after]
        if not outputs:  # what no output needs
            continue
        made.update(outputs)
        gone = sorted(name for name in made if name not in after)
        made.difference_update(gone)
        yield _Piece(nodes, inputs, outputs, [name for name in read if name in weights], gone)


def _groups(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
) -> list[list[onnx.NodeProto]]:
    """Nodes by piece, each with the nodes that compute its constants."""
    graph = proto.graph
    fixed = {one.name for one in graph.initializer}
    outputs = {one.name for one in graph.output}
    sizes = {name: _FLOAT_BYTES * value.size for name, value in entries(weights).items()}
    makers: dict[str, int] = {}
    groups: list[list[onnx.NodeProto]] = [[]]
    held: set[str] = set()  # what the group's nodes read
    present: set[str] = set()  # what its nodes of constants write
    total = 0
    for number, node in enumerate(graph.node):
        read = reads(node)
        constant = fixed.issuperset(read) if read else node.op_type == "Constant"
        if constant and not outputs & set(node.output) and not has_bodies(node):
            fixed.update(node.output)
            makers.update(dict.fromkeys(node.output, number))
            continue
        needed, own = _constants_of(read, makers, graph.node)
        more = sum(sizes.get(name, 0) for name in own - held)
        if more and groups[-1] and total + more > _PIECE_BYTES:
            groups.append([])
            held, present, total = set(), set(), 0
            more = sum(sizes.get(name, 0) for name in own)
        for maker in (graph.node[place] for place in needed):
            if not present.intersection(maker.output):
                groups[-1].append(maker)
                present.update(maker.output)
        groups[-1].append(node)
        held |= own
        total += more
    return groups


def _constants_of(
    read: Iterable[str], makers: Mapping[str, int], nodes: Sequence[onnx.NodeProto]
) -> tuple[list[int], set[str]]:
    """The nodes that compute the constants of what is read, in order, and all that is read."""
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
