"""The values of this floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Git", "Result"]


@dataclass(frozen=True)
class Git:
    """What a project folder's files were: the commit, and whether tracked ones differed from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, eq=False)
class Result:
    """One measurement, of the history or of a file.

    Attributes:
        document: The ``edgekit.bench/1``, without "samples_ms".
        samples: The latency of each inference in the order of their measurement, ms; empty where
            they were not kept.
        label: What a person calls it: "#12", a file's name.
        id: In the history; None for a file.
        at: Unix seconds when it was recorded; None where that is not known.
        git: Of the project's folder.
        bundle: The bundle's digest.
        release: Its id on the board.
        board: ``kind:name``.
        host: The machine whose processor ran it, where the board is not a machine of its own.
        fingerprint: Module, L4T, TensorRT and versions, as far as known.
        marks: Names that people gave it.
    """

    document: Mapping[str, Any]
    samples: tuple[float, ...] = ()
    label: str = ""
    id: int | None = None
    at: float | None = None
    git: Git | None = None
    bundle: str | None = None
    release: str | None = None
    board: str = ""
    host: str = ""
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The configuration's name."""
        return str(self.document.get("name") or "")

    @property
    def clock(self) -> str:
        """ "cpu-measured", "board-measured" or "predicted"."""
        return str(self.document.get("clock") or "")

    @property
    def verdict(self) -> str | None:
        """ "VALID", "INVALID", or None where nobody judged."""
        verdict = self.document.get("verdict")
        status = verdict.get("status") if isinstance(verdict, Mapping) else None
        return str(status) if status else None

    @property
    def power_mode(self) -> str | None:
        """The mode while it was measured where the board told it, otherwise the planned one."""
        mode = (self.document.get("power") or {}).get("mode") or {}
        seen = mode.get("during") or mode.get("before") if isinstance(mode, Mapping) else mode
        seen = seen.get("name") if isinstance(seen, Mapping) else seen
        found = seen or self.document.get("power_mode")
        return str(found) if found else None

    @property
    def settings(self) -> dict[str, Any]:
        """How it was measured; warm-up, duration and iterations where a document tells no more."""
        own = self.document.get("settings")
        return dict(own) if isinstance(own, Mapping) else {}

    @property
    def runtime(self) -> dict[str, Any]:
        """The runtime with its effective flags."""
        own = self.document.get("runtime")
        return dict(own) if isinstance(own, Mapping) else {}

    def latency_ms(self, key: str) -> float | None:
        """Returns "median", "p99", ... in ms."""
        value = (self.document.get("latency_ms") or {}).get(key)
        return float(value) if isinstance(value, int | float) else None

    @property
    def throughput_qps(self) -> float | None:
        """Inferences per second over the whole measurement."""
        value = self.document.get("throughput_qps")
        return float(value) if isinstance(value, int | float) else None

    @property
    def energy_uj(self) -> float | None:
        """Energy of one inference on all rails, µJ, where the board measures power."""
        total = (self.document.get("energy") or {}).get("total")
        value = total.get("uj_per_inference") if isinstance(total, Mapping) else total
        return float(value) if isinstance(value, int | float) else None
