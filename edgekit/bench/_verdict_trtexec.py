"""What trtexec says of the same plans (``--with-trtexec``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.bench._verdict import Judged, Measured

__all__ = ["judge"]


def judge(measured: Measured, judged: Judged) -> None:
    """Judges the cross-check, where there was one."""
    told = measured.facts.get("trtexec")
    if not isinstance(told, Mapping):
        return
    if told.get("why"):
        judged.unseen(f"trtexec's times: {told['why']}")
    most = measured.limit("trtexec_share")
    for one in told.get("engines") or ():
        share, name = one.get("difference"), f"{one.get('device')} segment {one.get('index')}"
        if share is None:
            judged.unseen(f"trtexec's times of {name}: {one.get('why') or 'it told none'}")
        elif abs(share) > most:
            judged.no(
                "bench.trtexec-differs",
                f"{name}: median {one['ours_ms']:.3f} ms, trtexec's {one['trtexec_ms']:.3f} ms "
                f"({share:+.1%}, more than {most:.0%})",
                share, most,
                "edgekit bench CONFIG --with-trtexec --lock-clocks --duration 10; if it stays, "
                "report it with both logs", by="trtexec_share"
            )  # fmt: skip
