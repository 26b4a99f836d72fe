"""``tune``: tunes a configuration on its board, writes the result files and reports progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from edgekit import timeouts
from edgekit.config.loader import Config
from edgekit.errors import UsageError
from edgekit.files import write_json
from edgekit.pipeline.cache import Cache, json_digest
from edgekit.pipeline.outputs import check_output_folder
from edgekit.pipeline.progress import Progress
from edgekit.placement.plan import OBJECTIVES
from edgekit.tuning.board import BoardMeasurer, trial_config
from edgekit.tuning.document import Tuned, snippet, tune_document
from edgekit.tuning.journal import TuningJournal
from edgekit.tuning.records import (
    PROFILE_NAME,
    check_conditions,
    check_network,
    locked_folder,
    read_table,
)
from edgekit.tuning.session import Tuning, nothing_known
from edgekit.tuning.trials import TuningRequest

SNIPPET_NAME = "tuned.yaml"


def tune(
    config: Config,
    request: TuningRequest | None = None,
    *,
    out: Path | None = None,
    tables: Sequence[Path] = (),
    keep: bool = False,
    anew: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
    cache: Cache | None = None,
    **settings: Any,
) -> Tuned:
    """Tunes a configuration on its first board.

    An interrupted tuning is continued. The application that serves on the board is not touched.

    Args:
        config: The configuration.
        request: Objective and limits; an empty objective means the configuration's.
        out: Folder of the results; ``edgekit-out/NAME/tune`` if None.
        tables: ``edgekit.profile/1`` files of earlier tunings, which count as measured.
        keep: Leave the trials' application on the board.
        anew: Ignore earlier measurements and begin anew.
        on_note: Called with a progress line every few seconds.
        progress: Also called with every step of every trial.
        cache: As for ``Pipeline``.
        settings: Further arguments of ``Pipeline`` (accept_host_key, trust_key, force).

    Raises:
        UsageError: "tune.objective"; "tune.nothing-known": a budget of 0, and no earlier tuning;
            "tune.busy": another process tunes in the folder.
        EnvironmentLack: "tune.no-power".
        DataError: Earlier times are unreadable, or do not belong to this tuning ("profile.merge").
        EdgekitError: The starting plan cannot be built, deployed or measured.
    """
    request = request or TuningRequest(objective="")
    request = replace(request, objective=_objective(config, request.objective))
    folder = out or Path("edgekit-out") / config.file.name / "tune"
    check_output_folder(folder)
    known = [read_table(path) for path in tables]
    file = folder / "journal.jsonl"
    # before anything is built: a budget of 0 only reports what an earlier tuning measured
    if request.budget_s == 0 and (anew or not file.exists()):
        raise nothing_known(str(folder))
    trial = trial_config(config, request.objective, folder)
    used = cache or Cache()
    pulse = TuningProgress(on_note, progress)
    measurer = BoardMeasurer(
        trial, folder / "build", used, keep=keep, on_note=on_note, progress=pulse, **settings
    )
    # the lock first, so that it is released last: it also guards the trials' application, which the
    # measurer removes when it exits
    with locked_folder(folder), pulse, measurer:
        began = time.monotonic()
        measurer.connect_board()
        # before the first build, which takes minutes; the conditions need its plan
        notes = [check_network(table, measurer, measurer.other) for table in known]
        pulse.announce("the configuration's plan", "building it for the first board")
        start = measurer.start
        for table in known:
            check_conditions(table, start)
        journal = TuningJournal(
            file,
            json_digest(request.objective, measurer.identity),
            anew=anew,
            # a command that measures nothing must not rename the journal of another tuning
            keeps=request.budget_s == 0,
        )
        tuning = Tuning(
            [measurer, *filter(None, [measurer.other])],
            request,
            journal,
            [table.document for table in known],
            pulse.announce,
            before_s=time.monotonic() - began,
        )
        tuning.notes += filter(None, notes)
        tuning.notes += measurer.board_notes(config)
        if measurer.clock == "cpu-measured" and config.file.placement.bounds.model_dump(
            exclude_none=True
        ):
            tuning.notes.append("the bounds are for the board and are not applied to CPU times")
        tuning.run()
        # before the files are written: trials that stay on the board are a note of the document
        measurer.clean()
        tuning.notes += measurer.notes
        return _write_results(config, tuning, folder, measurer)


def _objective(config: Config, request: str) -> str:
    objective = request or str(config.file.placement.objective)
    if objective not in OBJECTIVES:
        raise UsageError(
            f"cannot tune for {objective!r}",
            code="tune.objective",
            hint=f"use one of {', '.join(OBJECTIVES)}",
        )
    return objective


def _write_results(config: Config, tuning: Tuning, folder: Path, measurer: BoardMeasurer) -> Tuned:
    names = {
        "profile": PROFILE_NAME,
        "snippet": SNIPPET_NAME,
        "journal": "journal.jsonl",
        "document": "tune.json",
    }
    files = {key: str(folder / name) for key, name in names.items()}
    profile = Path(files["profile"])
    # first, because the snippet is checked by planning with this file
    write_json(profile, tuning.table(tuning.winner.network).to_json())
    text = snippet(config, tuning, profile, measurer.first.context)
    Path(files["snippet"]).write_text(text, encoding="utf-8")
    document = tune_document(tuning, name=config.file.name, files=files)
    write_json(Path(files["document"]), document.to_json())
    return document


class TuningProgress:
    """The progress of trials; a context manager that prints a line at least every few seconds.

    Args:
        say: Prints a line.
        inner: Also called with every step; None: only long steps are named.
        clock: Monotonic time source, in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        inner: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._inner, self._clock = say, inner, clock
        self._what, self._step, self._more = "the configuration's plan", "", ""
        self._last = self._since = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tune-pulse", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(timeouts.TUNE_SILENT_S / 4):
            self.beat()

    def beat(self) -> None:
        """Prints the current step if no line was printed for long."""
        now = self._clock()
        if now - self._last < timeouts.TUNE_SILENT_S:
            return
        doing = " ".join(word for word in (self._step, self._more) if word)
        self._line(f"{self._what}{': ' if doing else ''}{doing}, {now - self._since:.0f} s")

    def announce(self, what: str, more: str = "") -> None:
        """Prints the tuning's current action."""
        self._what, self._step, self._more = what, "", ""
        self._since = self._clock()
        self._line(f"{what}: {more}" if more else what)

    def begin(self, number: int, total: int, name: str) -> None:
        """Notes that a step of a trial begins."""
        self._step, self._more = name, ""
        if self._inner is not None:
            self._inner.begin(number, total, name)

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Notes the progress of the current step."""
        self._more = f"{text} {100 * min(1.0, done / total):.0f} %".strip() if total > 0 else text
        if self._inner is not None:
            self._inner.update(done, total, text, at=at)

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """Notes that a step ended."""
        self._step = self._more = ""
        if self._inner is not None:
            self._inner.end(name, status, seconds, detail)

    def note(self, text: str) -> None:
        """Passes on a step's note, which is of interest only beside the other steps."""
        if self._inner is not None:
            self._inner.note(text)

    def detail(self, text: str) -> None:
        """As ``note``."""
        if self._inner is not None:
            self._inner.detail(text)

    def _line(self, text: str) -> None:
        self._last = self._clock()
        self._say(text)
