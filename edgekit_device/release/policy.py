"""The limits by which a board judges a release before and after the switch."""

from __future__ import annotations

from typing import Optional

from edgekit_device.protocol.codec import document, integer, member, nullable, number, read, record
from edgekit_device.protocol.fields import DAY_S

_TIMEOUT = number(1e-3, float(DAY_S))


@document(frozen=True)
class Timeouts:
    """Seconds after which a deployment's state is aborted."""

    refit_s: float = member(_TIMEOUT, absent=600.0, always=True)
    test_s: float = member(_TIMEOUT, absent=300.0, always=True)


@document(frozen=True)
class Policy:
    """The limits of the health check; the keys of ``deploy.health``.

    Attributes:
        latency_ms: Maximum of the median latency; None for no limit.
        accuracy_min: Minimum of the bundle's metric; None for no limit.
        measure_s: Seconds of measuring before the switch.
        soak_s: Seconds of checks after the switch.
        soak_every_s: Seconds between two checks.
        keep: Number of releases that stay on the board.
        timeouts: Timeouts of the states.
    """

    latency_ms: Optional[float] = member(nullable(number(1e-6, 1e9)), absent=None, always=True)
    accuracy_min: Optional[float] = member(nullable(number(-1e9, 1e9)), absent=None, always=True)
    measure_s: float = member(number(0.0, 600.0), absent=0.5, always=True)
    soak_s: float = member(number(0.0, float(DAY_S)), absent=0.0, always=True)
    soak_every_s: float = member(number(0.01, float(DAY_S)), absent=1.0, always=True)
    keep: int = member(integer(1, 1 << 20), absent=3, always=True)
    timeouts: Timeouts = member(record(Timeouts), absent=Timeouts(), always=True)


def read_policy(value: object) -> Policy:
    """Checks a request's policy; None gives the defaults.

    Raises:
        DeviceError: "policy.invalid", for the first wrong field.
    """
    if value is None:
        return Policy()
    hint = "see docs/health.md for the fields"
    return read(Policy, value, code="policy.invalid", hint=hint)
