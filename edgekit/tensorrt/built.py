"""A board's build of a plan, for documents and reports."""

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
        bytes: Size of the deployed engine.
        full_bytes: Size with its weights; None if unknown.
        lean_embedded: True if it contains the lean runtime.
        refit: Weights that can be refitted: "any", "identical", "individual" or "none".
        dla_core: The DLA core that it uses.
        attempt: Which of ``attempts`` succeeded.
        seconds: Time of the build.
        settings: Values of the builder's settings read back from TensorRT, by key of ``build``.
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
    """A build on a board.

    Attributes:
        job: The board's job.
        fingerprint: The board's fingerprint.
        tensorrt: The board's TensorRT.
        plan: The plan compared with the build; None if they were not compared.
        notes: Notes for the user.
    """

    board: str = member(text())
    job: str = member(text())
    fingerprint: Mapping[str, str] = member(mapping(text()))
    tensorrt: str = member(text())
    engines: tuple[BoardEngine, ...] = member(records(BoardEngine))
    plan: BuiltComparison | None = member(nullable(record(BuiltComparison)))
    notes: tuple[str, ...] = member(array(text(most=1 << 18)))
