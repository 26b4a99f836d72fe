"""Runs a build on this machine with ONNX Runtime, segment by segment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edgekit.errors import BuildError, DataError, ModelError
from edgekit.network.session import lent_value, open_session
from edgekit.network.streaming import (
    Feed,
    StreamedSession,
    group_inputs,
    is_large,
    run_group,
    stream_session,
)
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight
from edgekit.reference.build import full_engine

if TYPE_CHECKING:
    from edgekit.network.plugins import Plugin

# ONNX Runtime's names of NumPy's float types; the other names are NumPy's
_ORT_TYPES = {"float32": "float", "float64": "double", "float16": "float16"}


class Runner:
    """One lane of a reference build, loaded.

    Args:
        artefacts: The build.
        lane: Index into ``artefacts.lanes``.
        stripped: Load stripped engines and refit them (as a board does), or engines with their
            weights inside. Both give the same outputs bit for bit.
        optimise: ONNX Runtime's graph optimisations.
        threads: Threads for one operator; 0 leaves it to ONNX Runtime.

    Weights of more than ``LARGE_BYTES`` as float32 are streamed: engines are stripped, and run
    piece by piece at each ``run``. ``run_group`` runs several inputs through each piece.

    Attributes:
        streams: True if weights are streamed.
        between: Bytes that an input keeps between pieces; 0 if no weights are streamed.

    Raises:
        BuildError: ONNX Runtime refuses an engine; names segment and node.
    """

    def __init__(
        self,
        artefacts: Artefacts,
        *,
        lane: int = 0,
        stripped: bool = True,
        optimise: bool = True,
        threads: int = 0,
    ) -> None:
        self.artefacts = artefacts
        self.segments = artefacts.lanes[lane][1]
        self.between = 0
        weights = {
            # by engine: lanes and segments may share one
            digest: _missing_weights(artefacts.engines[digest], artefacts.weights, artefacts.values)
            for digest in {segment.engine for segment in self.segments}
        }
        large = is_large(*weights.values())
        self._sessions = [
            _load(
                artefacts,
                segment,
                weights[segment.engine],
                stripped=stripped,
                large=large,
                optimise=optimise,
                threads=threads,
            )
            for segment in self.segments
        ]
        self.streams = any(isinstance(session, StreamedSession) for session in self._sessions)

    def run(self, inputs: Feed, *, observe: bool = False) -> dict[str, np.ndarray]:
        """Runs one inference.

        Args:
            inputs: Arrays by network input name.
            observe: Also return every tensor that crosses a segment border.

        Raises:
            DataError: Input names, shapes or types do not fit.
            ModelError: ``model.shape_conflict``: a tensor does not have the shape given for it.
            BuildError: ONNX Runtime failed; names segment and node.
        """
        return self.run_group([inputs], observe=observe)[0]

    def run_all(
        self, inputs: Iterable[Feed], *, observe: bool = False
    ) -> Iterator[tuple[Feed, dict[str, np.ndarray]]]:
        """Yields each input with ``run``'s result, in groups if weights are streamed."""
        for group in group_inputs(inputs, [self]):
            yield from zip(group, self.run_group(group, observe=observe), strict=True)

    def run_group(
        self, group: Sequence[Feed], *, observe: bool = False
    ) -> list[dict[str, np.ndarray]]:
        """Runs an inference of each input; arguments and errors as in ``run``."""
        artefacts = self.artefacts
        for inputs in group:
            if set(inputs) != set(artefacts.inputs):
                raise DataError(
                    f"inputs are {', '.join(map(repr, inputs)) or 'none'}",
                    code="data.inputs",
                    hint=f"the network's inputs are {', '.join(map(repr, artefacts.inputs))}",
                )
        tensors: list[dict[str, np.ndarray]] = [dict(inputs) for inputs in group]
        for segment, session in zip(self.segments, self._sessions, strict=True):
            feeds = [{name: values[name] for name in segment.inputs} for values in tensors]
            for feed, inputs in zip(feeds, group, strict=True):
                _check(session, feed, inputs)
            try:
                results = run_group(session, segment.outputs, feeds)
            except ModelError:  # a plugin's function
                raise
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                raise _failure(artefacts, segment, error) from error
            for values, made in zip(tensors, results, strict=True):
                values.update(zip(segment.outputs, made, strict=True))
                _check_sizes(session, values)
            if isinstance(session, StreamedSession):
                inside = sum(value.nbytes for value in tensors[0].values()) + session.between
                self.between = max(self.between, inside)
        if observe:
            return tensors
        return [{name: values[name] for name in artefacts.outputs} for values in tensors]


def run(
    artefacts: Artefacts,
    inputs: Mapping[str, np.ndarray],
    *,
    lane: int = 0,
    stripped: bool = True,
    observe: bool = False,
) -> dict[str, np.ndarray]:
    """Loads a lane and runs one inference; see :class:`Runner` for more than one."""
    return Runner(artefacts, lane=lane, stripped=stripped).run(inputs, observe=observe)


def _load(
    artefacts: Artefacts,
    segment: EngineSegment,
    weights: Mapping[str, np.ndarray],
    *,
    stripped: bool,
    large: bool,
    optimise: bool,
    threads: int,
) -> Any:
    opened = partial(open_session, optimise=optimise, threads=threads, plugins=artefacts.functions)
    engine = artefacts.engines[segment.engine]
    try:
        # a session with plugins is cut at their nodes already
        if large and not artefacts.functions:
            proto = onnx.ModelProto.FromString(engine)
            # no arena: each piece would keep its own
            made = stream_session(proto, weights, partial(opened, arena=False))
            if made is not None:
                return made
        if not stripped and not large:
            return opened(full_engine(artefacts, segment.engine), {})
        return opened(engine, {name: lent_value(value) for name, value in weights.items()})
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise _failure(artefacts, segment, error) from error


def open_engine(
    engine: bytes,
    weights: Mapping[str, Weight],
    values: Mapping[str, np.ndarray],
    name: str,
    *,
    threads: int = 0,
    plugins: Sequence[Plugin] = (),
) -> Any:
    """Opens a single stripped engine; it keeps no memory between runs, because many are opened.

    Raises:
        BuildError: ONNX Runtime refuses it; ``name`` identifies the engine.
    """
    lent = {name: lent_value(v) for name, v in _missing_weights(engine, weights, values).items()}
    try:
        return open_session(engine, lent, threads=threads, arena=False, plugins=plugins)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise BuildError(
            f"ONNX Runtime failed in {name!r}: {' '.join(str(error).split())}",
            code="build.runtime",
            where=name,
            hint="check that ONNX Runtime can run the model",
        ) from error


def _missing_weights(
    engine: bytes, weights: Mapping[str, Weight], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the weights that a stripped engine lacks, in its form: equal bytes are kept once."""
    graph = onnx.ModelProto.FromString(engine).graph
    found = {}
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            weight = weights[tensor.name]
            value = values[weight.digest]
            if value.dtype.name != weight.dtype:
                # weights of equal bytes share a value, which has the type of the first
                value = value.reshape(-1).view(weight.dtype)
            found[tensor.name] = value.reshape(weight.shape)
    return found


def _check(session: Any, feed: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> None:
    """Checks the caller's arrays against the engine's inputs."""
    for spec in session.get_inputs():
        # tensors between segments come from other engines, which were checked when planned
        if spec.name not in inputs:
            continue
        array = feed[spec.name]
        shape = list(spec.shape)
        known = all(isinstance(size, int) for size in shape)
        name = str(array.dtype)
        type_ = f"tensor({_ORT_TYPES.get(name, name)})"
        if (known and list(array.shape) != shape) or type_ != spec.type:
            raise DataError(
                f"input {spec.name!r} is {array.dtype} {list(array.shape)}",
                code="data.shape",
                where=spec.name,
                hint=f"the engine expects {spec.type} {shape}",
            )


def _check_sizes(session: Any, tensors: Mapping[str, np.ndarray]) -> None:
    """Checks an engine's results against the shapes that it was planned for."""
    if not hasattr(session, "get_outputs"):
        return  # in pieces, around plugins
    for spec in session.get_outputs():
        shape, found = list(spec.shape), list(tensors[spec.name].shape)
        if all(isinstance(size, int) for size in shape) and found != shape:
            raise ModelError(
                f"{spec.name!r} is {found} on these inputs, but the plan has {shape}",
                code="model.shape_conflict",
                where=spec.name,
                hint="a shape under model.shapes (--shape) must hold for all inputs; without it "
                "layers that read the tensor run on the board alone",
            )


def _failure(artefacts: Artefacts, segment: EngineSegment, error: Exception) -> BuildError:
    text = " ".join(str(error).split())
    node = _named_node(artefacts.engines[segment.engine], text)
    at = f" at node {node!r}" if node else ""
    return BuildError(
        f"ONNX Runtime failed in segment {segment.index} ({segment.device}){at}: {text}",
        code="build.runtime",
        where=node or f"segment {segment.index}",
        hint="check that ONNX Runtime can run the model",
    )


def _named_node(engine: bytes, text: str) -> str:
    """Returns the node named in a message, for any wording of the message."""
    nodes = onnx.ModelProto.FromString(engine).graph.node
    found = [n for n in nodes if re.search(rf"(?<!\w){re.escape(n.name)}(?!\w)", text)]
    if not found:
        # many messages name only the operator
        found = [n for n in nodes if re.search(rf"(?<!\w){n.op_type}(?!\w)", text)]
    # a name may be a part of another
    return max((n.name for n in found), key=len, default="")
