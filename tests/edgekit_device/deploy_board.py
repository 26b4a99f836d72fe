"""A board in this process: real folders, store, journal and links; engines are made up.

What a deployment does with engines runs here without a process of its own, so that a walk over
every durable write is quick; tests/faults does the same with real processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.manifest import Bundle, blob_view
from edgekit_device.deployment import states
from edgekit_device.deployment.job import deploy
from edgekit_device.deployment.request import read_request
from edgekit_device.errors import DeviceError
from edgekit_device.files import write_durably
from edgekit_device.protocol.codec import write
from edgekit_device.release.changed import FrameTimes, GoldenOutcome, Health
from edgekit_device.release.journal import RefitReport
from edgekit_device.release.offer import take_offer
from edgekit_device.release.releases import REFIT
from edgekit_device.store.partial import BlobWriter
from edgekit_device.store.root import App, Root

__all__ = ["Bench", "Cut", "bench_board", "cut_at"]


class Cut(BaseException):
    """The power is gone."""


@dataclass
class Bench:
    """A board whose engines say what the test wants.

    Attributes:
        root: Its folder.
        done: States whose work was done, in order.
        bad: By state ("refitting", "testing", "soaking") what its work raises.
        at: Called when the work of a state begins.
    """

    root: Root
    done: list[str] = field(default_factory=list)
    bad: dict[str, DeviceError] = field(default_factory=dict)
    at: Callable[[str], None] = lambda state: None

    @property
    def app(self) -> App:
        return self.root.app("toy")

    def offer(self, bundle: Bundle) -> None:
        """What ``offer`` and ``receive`` do."""
        with BlobWriter(self.root) as writer:
            for digest, blob in {**bundle.weights, **bundle.blobs}.items():
                if not self.root.store.has(digest):
                    writer.add(digest, bytes(blob_view(blob)))
        # signatures have tests of their own, and ssh-keygen its price
        take_offer(self.root, bundle.manifest_bytes, None, trust_unsigned=True)

    def deploy(self, bundle: Bundle, **more: Any) -> dict[str, Any]:
        requested = {
            "app": "toy",
            "digest": bundle.digest,
            "policy": {},
            "operator": "me",
            "trust_unsigned": True,
            **more,
        }
        return dict(write(deploy(self.root, read_request(requested))))

    def facts(self) -> tuple[str | None, str | None]:
        """What ``current`` and ``previous`` are."""
        return self.app.link("current"), self.app.link("previous")

    def work(self, state: str) -> None:
        self.at(state)
        if state in self.bad:
            raise self.bad[state]
        self.done.append(state)


def bench_board(root: Path, patch: pytest.MonkeyPatch) -> Bench:
    """Makes the board; its engines are made up until ``patch`` is undone."""
    root.mkdir(mode=0o700)
    bench = Bench(Root(root))

    def refit(root: Root, app: App, folder: Path) -> tuple[RefitReport, None]:
        bench.work("refitting")
        with app.lock():
            write_durably(folder / REFIT, b"{}\n")
        return RefitReport(release=folder.name), None

    def test(root: Root, app: App, folder: Path, *more: Any, keeps: bool = True) -> Health:
        bench.work("testing" if app.link("current") != folder.name else "soaking")
        return Health(
            folder.name,
            "a" * 64,
            "then",
            "reference",
            "cpu-measured",
            {},
            GoldenOutcome(1, True),
            None,
            FrameTimes(1.0, 1.0, 1.0, 10),
            (),
        )

    def child(
        work: Any, *, on_turn: Any, on_report: Any, stopped: Any, closes: Any = ()
    ) -> Mapping[str, Any]:
        found = work(on_turn, on_report)
        stopped()
        return dict(write(found))

    patch.setattr(states, "refit_release", refit)
    patch.setattr(states, "run_in_child", child)
    patch.setattr(states, "examine", test)
    return bench


class Changes(list[str]):
    """Changes of files' names and of their durability so far; the power goes before ``last``."""

    last = 1 << 30

    def power_goes_after(self, more: int) -> None:
        self.last = len(self) + more


@contextlib.contextmanager
def cut_at(number: int) -> Iterator[Changes]:
    """Cuts the power before the ``number``-th change of a file's name or durability."""
    seen = Changes()
    seen.last = number

    def counted(name: str, patch: pytest.MonkeyPatch) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if len(seen) >= seen.last:
                raise Cut(name)
            seen.append(name)
            return real(*arguments, **options)

        patch.setattr(os, name, call)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "symlink", "fsync", "unlink", "mkdir"):
            counted(name, patch)
        yield seen
