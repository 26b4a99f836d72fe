"""An installation as the steps of a run, and what a Ctrl-C says while a board works alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.pipeline._hosts import job_command

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.deploy import BoardClient
    from edgekit.pipeline._steps import Step, Steps
    from edgekit.pipeline._work import Work

__all__ = ["BoardTimes", "Installing", "Watched"]

_STEPS = ("deploy", "refit", "self-test")
# phases of an installation by the step they belong to; the others belong to the step before
_STEP_OF = {"hello": "deploy", "refit": "refit", "selftest": "self-test"}
_BYTES = {"loader": "sending edgekit's loader", "send": "sending the bundle",
          "download": "the board downloads the bundle"}  # fmt: skip
_SHOWN = {"stage": "the board checks the bundle", "soak": "the board watches the new release",
          "switch": "the board switches to the new release"}  # fmt: skip


class Installing:
    """The steps deploy, refit and self-test of one board, as ``install`` tells of its phases."""

    def __init__(self, client: BoardClient, bundle: Bundle, steps: Steps) -> None:
        self._client = client
        self._steps = steps
        self._stack = contextlib.ExitStack()
        self._begun: list[Step] = []
        self._details = {
            "deploy": f"board {client.name}: {client.note}",
            "refit": f"{counted(len(bundle.manifest['weights']), 'tensor')} from the board's store",
            "self-test": "golden vectors of the unstripped build",
        }

    def __enter__(self) -> Installing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def progress(self, phase: str, done: int, total: int) -> None:
        """What ``install`` calls."""
        from edgekit.report._text import size

        name = _STEP_OF.get(phase)
        if name and done == 0 and (not self._begun or self._begun[-1].name != name):
            self._begin(name)
        elif phase in _BYTES and total > 1:
            self._steps.progress.update(done, total, f"{_BYTES[phase]}, {size(total)}")
        elif phase == "soak" and total > 1:
            self._steps.progress.update(done, total, _SHOWN[phase])
        elif phase in _SHOWN and done == 0:
            self._steps.progress.update(0, 0, _SHOWN[phase])

    def reused(self, release: str, *, other: bool = False) -> None:
        """The bundle served already; ``other``: no, and another release serves in its place."""
        detail = f"{self._client.name} serves {release}"
        if other:
            detail += ", another release than this configuration's"
        for name in _STEPS:
            if all(step.name != name for step in self._begun):
                self._begin(name)
            self._begun[-1].reuse(detail)

    def _begin(self, name: str) -> None:
        # every step has its line, also where the board has nothing to do in it
        for before in _STEPS[: _STEPS.index(name)]:
            if all(step.name != before for step in self._begun):
                self._begin(before)
                self._begun[-1].reuse("nothing to do")
        self._stack.close()
        step = self._stack.enter_context(self._steps.step(name))
        step.detail = self._details[name]
        self._begun.append(step)


class BoardTimes:
    """Tells, where a command is verbose, where the time of a board's commands goes."""

    def __init__(self, name: str, work: Work) -> None:
        self._name, self._work = name, work
        self._began = time.monotonic()
        self._starts = 0
        self._seconds = 0.0

    def command(self, name: str, seconds: float, starts: int) -> None:
        """What ``BoardClient.on_command`` calls."""
        first = self._starts + 1
        self._starts += starts
        self._seconds += seconds
        which = f"starts {first} to {self._starts}" if starts > 1 else f"start {first}"
        self._tell(f"Python {which}: {name}: {seconds:.3f} s")

    def connected(self) -> None:
        """The connection is open; what commands took meanwhile is theirs."""
        self._tell(f"connecting: {time.monotonic() - self._began - self._seconds:.3f} s")

    def ended(self, job: Iterable[Mapping[str, Any]]) -> None:
        """What the states of the board's job took, and all commands so far."""
        for step in job:
            if isinstance(step.get("seconds"), int | float):
                self._tell(f"the board's job: {step.get('state')}: {step['seconds']:.3f} s")
        self._tell(f"{counted(self._starts, 'Python start')}, {self._seconds:.3f} s")

    def _tell(self, text: str) -> None:
        self._work.detail(f"{self._name}: {text}")


class Watched:
    """Says at a Ctrl-C that the board goes on, once it does."""

    def __init__(self, work: Work, client: BoardClient) -> None:
        self._work = work
        self._client = client
        self._job = ""

    def begins(self, job: str) -> None:
        """The board works alone from here on."""
        self._job = job

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._job or kind is None or not issubclass(kind, KeyboardInterrupt):
            return
        name, config = self._client.name, self._work.config
        if not config.file.deploy.boards:
            return  # edgekit's own board, which is asked with the same command alone
        attach = job_command("attach", self._job, config, name)
        cancel = job_command("cancel", self._job, config, name)
        self._work.tell(
            f"{name} goes on by itself: the same command joins it, `{attach}` follows it, "
            f"`{cancel}` takes it back"
        )
