"""The documents of a server: requests and answers on its socket, its status, and serving.json
(docs/serving.md). Messages also have the protocol's version.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    nullable,
    number,
    record,
    records,
    shape,
    text,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.manifest import DTYPES, ShapeRange

_WITHIN = number(1e-9, 3600.0)
_NAME = nullable(text())


@document(frozen=True)
class ServedTensor:
    """An input or output of the release that serves.

    Attributes:
        shape: Sizes of the axes; -1 for an output's size that depends on input values.
    """

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape(-1))


@document(frozen=True)
class ServedVariant:
    """A shape, or a range of shapes, of the release that serves.

    Attributes:
        profiles: Ranges of shapes by input; empty for a single shape.
    """

    inputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    outputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    profiles: Tuple[Mapping[str, ShapeRange], ...] = member(
        array(mapping(record(ShapeRange))), absent=()
    )


@document(frozen=True)
class PlacedTensor:
    """A tensor in shared memory: ``offset`` in bytes."""

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape())
    offset: int = member(fields.count)


@document(frozen=True)
class MemoryRegion:
    """A part of shared memory, in bytes."""

    offset: int = member(fields.count)
    bytes: int = member(fields.count)


@document(frozen=True)
class Request:
    """A request without memory."""

    op: str = member(choice("status", "describe", "reload", "stop"))


@document(frozen=True)
class RunRequest:
    """A request to run the model: the places of its inputs, and the space for its outputs."""

    inputs: Tuple[PlacedTensor, ...] = member(records(PlacedTensor, by="name"))
    space: MemoryRegion = member(record(MemoryRegion), key="room")
    op: str = member(choice("run"), default="run")
    within_s: Optional[float] = member(_WITHIN, absent=None)


@document(frozen=True)
class RunAnswer:
    """The places of the outputs; ``release`` is the release that computed them."""

    release: str = member(text())
    outputs: Tuple[PlacedTensor, ...] = member(records(PlacedTensor, by="name"))
    engine_ms: float = member(number(0.0, 1e12))


@document(frozen=True)
class Description:
    """The answer of "describe": the release that serves.

    Attributes:
        variants: All its shapes, if it has several; ``inputs`` and ``outputs`` are the first.
    """

    release: str = member(text())
    digest: str = member(text())
    inputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    outputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    variants: Tuple[ServedVariant, ...] = member(records(ServedVariant), absent=())


@document(frozen=True)
class Ready:
    """The first message of a worker: the release that it has loaded.

    Attributes:
        variants: As in ``Description``.
    """

    digest: str = member(text())
    inputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    outputs: Tuple[ServedTensor, ...] = member(records(ServedTensor, by="name"))
    variants: Tuple[ServedVariant, ...] = member(records(ServedVariant), absent=())


@document(frozen=True)
class FailedAnswer:
    """An answer that is an error; with "serve.room" ``bytes`` is the space that outputs need."""

    error: Failure = member(record(Failure))
    bytes: Optional[int] = member(fields.count, absent=None)
    release: Optional[str] = member(text(), absent=None)


@document(frozen=True)
class Latency:
    """Latency of the last requests, from a request's arrival to its answer.

    Attributes:
        p50: Median, in milliseconds.
        p99: 99th percentile, in milliseconds.
        of_last: Number of requests that these figures cover.
    """

    p50: float = member(number(0.0, 1e12))
    p99: float = member(number(0.0, 1e12))
    of_last: int = member(fields.count)


@document(frozen=True)
class LastError(Failure):
    """An error and its time."""

    at: str = member(text())


@document(frozen=True)
class ServingStatus:
    """A server's status, ``edgekit.serving/1``; docs/serving.md describes each field.

    Attributes:
        pid: Process id of the server.
        workers: The workers' processes.
        requests: Number of answers to requests since the server's start.
        errors: Number of these that failed through the server or an engine.
        refused: Number of these that were refused: a wrong request, or a full queue.
        restarts: Number of workers that crashed, hung or failed repeatedly.
        running: Number of requests that run now.
        queue: Number of requests that wait.
        queue_most: Largest number of requests that may wait.
        clients: Number of connections.
    """

    app: str = member(text())
    release: Optional[str] = member(_NAME)
    digest: Optional[str] = member(_NAME)
    pid: int = member(fields.count)
    workers: Tuple[int, ...] = member(array(fields.count))
    socket: str = member(text())
    uptime_s: float = member(number(0.0, 1e12))
    requests: int = member(fields.count)
    errors: int = member(fields.count)
    refused: int = member(fields.count)
    restarts: int = member(fields.count)
    running: int = member(fields.count)
    queue: int = member(fields.count)
    queue_most: int = member(fields.count)
    clients: int = member(fields.count)
    latency_ms: Optional[Latency] = member(nullable(record(Latency)))
    loading: Optional[str] = member(_NAME)
    last_error: Optional[LastError] = member(nullable(record(LastError)))
    stopping: bool = member(flag)
    schema: str = member(choice("edgekit.serving/1"), default="edgekit.serving/1")


@document(frozen=True)
class StatusAnswer:
    """The answer of "status" and "reload"."""

    serving: ServingStatus = member(record(ServingStatus))


@document(frozen=True)
class StopAnswer:
    """The answer of "stop": the server's process id."""

    pid: int = member(fields.count)


@document(frozen=True)
class ServingRecord:
    """serving.json: the server's process id and its socket; None if no server runs."""

    pid: Optional[int] = member(nullable(fields.count), default=None)
    socket: Optional[str] = member(_NAME, default=None)
    schema: str = member(choice("edgekit.serving-record/1"), default="edgekit.serving-record/1")
