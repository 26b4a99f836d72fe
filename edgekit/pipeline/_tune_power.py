"""Whether a board shows what it draws, asked before anything is built for ``energy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EnvironmentLack

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient
    from edgekit.targets import Target

__all__ = ["need_rails", "no_power"]

_ONCE_MS = 200


def no_power(why: str = "the board shows no power rails") -> EnvironmentLack:
    """Returns the error of a tuning for energy where no power is measured."""
    return EnvironmentLack(
        f"energy was not measured: {why}", code="tune.no-power",
        hint="tune for latency or throughput, or let the board's rails be read: see "
        "edgekit doctor --setup",
    )  # fmt: skip


def need_rails(client: BoardClient, target: Target) -> None:
    """Asks the board once for its rails.

    Raises:
        EnvironmentLack: "tune.no-power": those that make the total are not there.
    """
    from edgekit.bench import rails_of

    seen: list[dict[str, Any]] = []

    def one(sample: dict[str, Any]) -> bool:
        seen.append(sample)
        return False

    try:
        client.sample(one, interval_ms=_ONCE_MS, count=1)
    except BoardError:
        return  # the measurement says it better
    total = target.rails.total if target.rails else ()
    there = rails_of(seen[0]) if seen else {}
    if not there or not total:
        raise no_power()
    if missing := [name for name in total if name not in there]:
        raise no_power(f"the board does not show the rail {', '.join(missing)}")
