"""What a tuning takes over from one before it that was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._listed import counted
from edgekit.errors import EdgekitError
from edgekit.pipeline._tune_trials import Trial

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning

__all__ = ["replay"]


def replay(tuning: Tuning) -> float:
    """Reads the tuning's journal into its trials and returns the seconds spent on them."""
    from edgekit.placement import plan_from_json

    journal, trials, spent = tuning.journal, tuning.trials, 0.0
    forms = _forms(tuning)
    for entry in journal.entries if journal else ():
        tuning.ended = entry if entry["event"] == "end" else None
        if tuning.ended is not None:
            continue
        if entry["event"] == "trial":
            expected = entry.get("expected")
            trials.append(Trial(
                entry["number"], plan_from_json(entry["plan"]), entry["key"], entry["origin"],
                entry["why"], tuple(expected) if expected else None,
                form=entry.get("form", tuning.form),
            ))  # fmt: skip
            continue
        # a number that was begun twice was measured the last time
        trial = next((t for t in reversed(trials) if t.number == entry.get("number")), None)
        if trial is None or entry.get("key", trial.key) != trial.key:
            continue  # the line that it began with is damaged
        spent = max(spent, float(entry.get("spent_s") or 0))
        if entry["event"] == "run" and trial.form in forms:
            tuning.keep(trial, entry["run"], entry["at"], entry.get("turn"))
        elif entry["event"] == "dropped":
            trial.dropped = entry["why"]
    # one that was begun and neither measured nor dropped is tried again
    trials[:] = [t for t in trials if t.form in forms and (t.runs or t.dropped)]
    if trials and not (trials[0].origin == "start" and trials[0].runs):
        trials.clear()  # all others are compared with the starting plan
    if trials and journal:
        tried = counted(len(trials), "plan")
        tuning.notes.append(f"{tried} of before this command: {journal.path}")
        if journal.damaged:
            lines = counted(journal.damaged, "line")
            tuning.notes.append(f"{lines} of it that a cut or a hand damaged left out")
    return spent


def _forms(tuning: Tuning) -> set[str]:
    """Returns the networks whose plans are taken over: the other one only where it is tried."""
    entries = tuning.journal.entries if tuning.journal else ()
    named = {entry.get("form") for entry in entries}
    if tuning.other is not None and tuning.other.name in named:
        try:
            tuning.take_other()
        except EdgekitError as error:
            tuning.notes.append(f"plans of the network {tuning.other.name} are left out: {error}")
    return set(tuning.forms)
