"""The document of `edgekit top`, and the reader of a board's samples; the samples and
``edgekit.monitor/1`` are defined in ``edgekit_device.board.samples``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from edgekit.documents import Coded, Document, Number
from edgekit.errors import BoardError
from edgekit.targets.jetpack import jetpack_of_l4t
from edgekit_device.board.samples import LiveSample, MonitorFacts, Sample
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, member, nullable, read
from edgekit_device.protocol.failure import Failed
from edgekit_device.protocol.serving import ServingStatus


@document(frozen=True)
class ShownSample(Sample):
    """A sample; the first sample has the sampling period in milliseconds."""

    interval_ms: float | None = member(nullable(fields.reading), absent=None)


class ShownApp(Document):
    """An application on the board."""

    current: str | None = Field(description="the release that serves")
    deployment: str | None = Field(description="state of its newest deployment")
    serving: Annotated[ServingStatus, Coded()] | Annotated[Failed, Coded()] | None = Field(
        description="the server's answer"
    )


class Top(Document):
    """The current state of a board."""

    schema_: Literal["edgekit.top/1"] = Field(alias="schema")
    board: str
    target: str | None = Field(description="null: the board's module is not known")
    connection: str | None = Field(description="why the connection was cut; null: it is there")
    power_mode: str | None
    warnings: list[str]
    unknown: dict[str, int] = Field(description="how often fields came that are not known")
    sources: list[str]
    facts: Annotated[MonitorFacts, Coded()]
    total_mw: Number | None = Field(description="null: not all rails of the total were read")
    sample: Annotated[ShownSample, Coded()]
    apps: dict[str, ShownApp]


def live_sample(line: object, board: str) -> LiveSample:
    """Returns the sample in a line of the board's command ``sample``.

    Raises:
        BoardError: "board.protocol": it is no sample.
    """
    try:
        return read(LiveSample, line)
    except DeviceError as error:
        fault = f"{error.where}: {error.message}" if error.where else error.message
        raise BoardError(
            f"the board's sample is not valid: {fault}",
            code="board.protocol",
            where=board,
            hint="use the same version of edgekit_device and edgekit",
        ) from None


def with_release_warning(warnings: Sequence[str], l4t: str | None) -> tuple[str, ...]:
    """Returns the warnings; adds a warning if ``targets/`` does not have the Jetson Linux
    release.
    """
    if not l4t or jetpack_of_l4t(l4t):
        return tuple(warnings)
    warning = (
        f"Jetson Linux {l4t[:40]!r} is unknown to edgekit (targets/_jetpack.yaml): its "
        "monitors are read as those of the nearest release"
    )
    return (*warnings, *([] if warning in warnings else [warning]))
