"""The limit that keeps several networks from being placed together, for the error's document."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.errors import GateError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, choice, document, mapping, member, records, write


@document(frozen=True)
class LateNetwork:
    """A network, its latency in the best timetable and its deadline, in microseconds."""

    network: str = member(fields.name)
    latency_us: float = member(fields.figure)
    deadline_us: float = member(fields.figure)


@document(frozen=True)
class BindingLimit:
    """The binding limit: several networks' rates, deadlines or limits cannot be met.

    Attributes:
        kind: "deadline": a network is too slow alone; "busy": a device has too much to do;
            "slots": too few loadables a core; "deadlines": not all can be kept; "contention": not
            with memory contention; "placement": limits that all share rule out any placement.
        network: The network that is too slow alone.
        needs_us: Its least latency alone, in microseconds.
        deadline_us: Its deadline, in microseconds.
        limit: Largest number of loadables per core.
        devices: Devices with too much work.
        utilisation: Fraction of a cycle that each device works; more than 1 is too much.
        networks: The late networks.
    """

    kind: str = member(choice("deadline", "busy", "slots", "deadlines", "contention", "placement"))
    network: str | None = member(fields.name, absent=None)
    needs_us: float | None = member(fields.figure, absent=None)
    deadline_us: float | None = member(fields.figure, absent=None)
    limit: int | None = member(fields.count, absent=None)
    devices: tuple[str, ...] | None = member(array(fields.device), absent=None)
    utilisation: Mapping[str, float] | None = member(
        mapping(fields.figure, fields.device), absent=None
    )
    networks: tuple[LateNetwork, ...] | None = member(records(LateNetwork), absent=None)


def infeasible(message: str, hint: str, binding: BindingLimit) -> GateError:
    """Returns the error of rates, deadlines or limits that no placement meets."""
    error = GateError(message, code="plan.infeasible", hint=hint)
    error.extra["binding"] = write(binding)
    return error
