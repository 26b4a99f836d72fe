"""``tune``: a configuration tuned on its board, and the files that it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.pipeline._tune import Tuning
from edgekit.pipeline._tune_begin import nothing_known, too_short
from edgekit.pipeline._tune_board import BoardMeasurer, trial_config
from edgekit.pipeline._tune_document import tune_document
from edgekit.pipeline._tune_lock import alone_in
from edgekit.pipeline._tune_progress import Pulse
from edgekit.pipeline._tune_snippet import snippet
from edgekit.pipeline._tune_tables import PROFILE_NAME, belongs, read_table, same_conditions
from edgekit.pipeline._tune_wish import Wish

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline._cache import Cache
    from edgekit.pipeline._progress import Progress

__all__ = ["PROFILE_NAME", "SNIPPET_NAME", "tune"]

SNIPPET_NAME = "tuned.yaml"


def tune(
    config: Config,
    wish: Wish | None = None,
    *,
    out: Path | None = None,
    tables: Sequence[Path] = (),
    keep: bool = False,
    anew: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
    cache: Cache | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Tunes a configuration on its first board and returns the ``edgekit.tune/1``.

    A tuning that was cut off is carried on. What serves on the board is left alone.

    Args:
        config: The configuration.
        wish: How far to go; its objective is the configuration's when it is empty.
        out: Folder of the results; ``edgekit-out/NAME/tune`` when None.
        tables: ``edgekit.profile/1`` files of earlier tunings, which count as measured.
        keep: Leave the trials' application on the board.
        anew: Begin anew, whatever was measured before.
        tell: Told of what happens, a line each, every few seconds.
        progress: Told every step of every trial, too.
        cache: As for ``Pipeline``.
        settings: Further arguments of ``Pipeline`` (accept_host_key, trust_key, force).

    Raises:
        UsageError: "tune.objective"; "tune.nothing-known": a budget of 0, and no tuning before;
            "tune.busy": another process tunes in the folder.
        EnvironmentLack: "tune.no-power".
        DataError: Earlier times that are none, or of something else ("profile.merge").
        EdgekitError: The starting plan cannot be built, deployed or measured.
    """
    from edgekit.pipeline._cache import Cache, digest_of
    from edgekit.pipeline._outputs import may_fill
    from edgekit.pipeline._tune_journal import Journal

    wish = wish or Wish(objective="")
    wish = replace(wish, objective=_objective(config, wish.objective))
    folder = out or Path("edgekit-out") / config.file.name / "tune"
    may_fill(folder)
    known = [read_table(path) for path in tables]
    file = folder / "journal.jsonl"
    if wish.budget_s == 0 and (anew or not file.exists()):
        raise nothing_known(str(folder))
    trial = trial_config(config, wish.objective, folder)
    used = cache or Cache()
    pulse = Pulse(tell, progress)
    measurer = BoardMeasurer(
        trial, folder / "build", used, keep=keep, tell=tell, progress=pulse, **settings
    )
    with alone_in(folder), pulse, measurer:
        began = time.monotonic()
        measurer.ask_board()
        notes = [belongs(table, measurer) for table in known]
        if not file.exists() and (short := too_short(wish, config.file.bench)):
            pulse.tell(short)
        pulse.tell("the configuration's plan: building it for the first board")
        start, ask = measurer.start, measurer.ask
        for table in known:
            same_conditions(table, start)
        journal = Journal(
            file, digest_of(wish.objective, measurer.identity), anew=anew,
            keeps=wish.budget_s == 0,
        )  # fmt: skip
        tuning = Tuning(
            ask, start, measurer, wish, journal, [table.document for table in known],
            pulse.tell, model=measurer.first.work.model_digest,
            before_s=time.monotonic() - began, form=measurer.name, other=measurer.other,
        )  # fmt: skip
        tuning.notes += filter(None, notes)
        tuning.notes += measurer.taken_back(config)
        tuning.notes += measurer.left(config.file.name)
        if measurer.clock == "cpu-measured" and config.file.placement.bounds.model_dump(
            exclude_none=True
        ):
            tuning.notes.append("the bounds are the board's, and no CPU's time is held to them")
        tuning.notes += [
            f"{app} serves on the board meanwhile: both disturb each other's times"
            for app in measurer.busy()
        ]
        tuning.run()
        measurer.clean()
        tuning.notes += measurer.notes
        return _written(config, tuning, folder, measurer)


def _objective(config: Config, wish: str) -> str:
    from edgekit.placement import OBJECTIVES

    objective = wish or str(config.file.placement.objective)
    if objective not in OBJECTIVES:
        raise UsageError(
            f"nothing can be tuned for {objective!r}", code="tune.objective",
            hint=f"one of {', '.join(OBJECTIVES)}",
        )  # fmt: skip
    return objective


def _written(
    config: Config, tuning: Tuning, folder: Path, measurer: BoardMeasurer
) -> dict[str, Any]:
    from edgekit.bench import write_json

    names = {"profile": PROFILE_NAME, "snippet": SNIPPET_NAME, "journal": "journal.jsonl",
             "document": "tune.json"}  # fmt: skip
    files = {key: str(folder / name) for key, name in names.items()}
    profile = Path(files["profile"])
    write_json(profile, tuning.table(tuning.form_of(tuning.winner)))
    text = snippet(config, tuning, profile, measurer.first.work)
    Path(files["snippet"]).write_text(text, encoding="utf-8")
    document = tune_document(tuning, name=config.file.name, files=files)
    write_json(Path(files["document"]), document)
    return document
