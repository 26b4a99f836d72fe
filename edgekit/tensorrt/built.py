"""What a board built of a plan, as documents and reports have it."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.tensorrt.comparison import BuiltComparison
from edgekit_device.build.request import AttemptResult, TimingCacheUse
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)


@document(frozen=True)
class BoardEngine:
    """An engine as a board built it.

    Attributes:
        bytes: Of the engine as it is deployed.
        full_bytes: With its weights; None where that is not known.
        lean_embedded: Whether it carries its own runtime.
        refit: Which weights it takes: "any", "identical", "individual" or "none".
        dla_core: The DLA core that it drives.
        attempt: Which of ``attempts`` succeeded.
        seconds: How long it took.
        settings: What TensorRT held of the builder's settings, by the key of ``build``.
    """

    key: str = member(text())
    bytes: int = member(fields.count)
    full_bytes: int | None = member(nullable(fields.count))
    stripped: bool = member(flag)
    version_compatible: bool = member(flag)
    lean_embedded: bool = member(flag)
    refit: str = member(text())
    dla_core: int | None = member(nullable(fields.count))
    attempt: int = member(fields.count)
    attempts: tuple[AttemptResult, ...] = member(records(AttemptResult, least=1))
    seconds: float = member(fields.figure)
    timing_cache: TimingCacheUse = member(record(TimingCacheUse))
    settings: Mapping[str, str] = member(mapping(text()), absent=dict)


@document(frozen=True)
class BoardBuild:
    """What a board built.

    Attributes:
        job: The board's job.
        fingerprint: What the board was.
        tensorrt: TensorRT there.
        plan: The plan compared with the build; None where it was not.
        notes: For people.
    """

    board: str = member(text())
    job: str = member(text())
    fingerprint: Mapping[str, str] = member(mapping(text()))
    tensorrt: str = member(text())
    engines: tuple[BoardEngine, ...] = member(records(BoardEngine))
    plan: BuiltComparison | None = member(nullable(record(BuiltComparison)))
    notes: tuple[str, ...] = member(array(text(most=1 << 18)))
