"""``tuned.yaml``: the sections with which a configuration plans as the winner; tried, not hoped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError
from edgekit.pipeline._tune_forms import CAME, CAME_SECTION, REWRITTEN
from edgekit.pipeline._tune_pins import pins_of

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline._tune import Tuning
    from edgekit.pipeline._work import Work

__all__ = ["snippet"]

_MANY = 200


def snippet(config: Config, tuning: Tuning, profile: Path, work: Work) -> str:
    """Returns the text: whole sections, which may take the place of the configuration's own.

    Which network it is stands there, too: whether the rewrites are used is otherwise decided by
    predictions, and differently with a profile.

    Args:
        config: The user's.
        tuning: One that ended.
        profile: The file of the winner's times, already written.
        work: The starting plan's; it plans anew with what is written here.
    """
    import yaml

    from edgekit.config._load import TUNED_HEAD

    winner = tuning.winner
    head = [
        f"{TUNED_HEAD} ({tuning.wish.objective}, {tuning.measurer.clock}), for",
        f"# {config.path or config.file.name}",
        "# This is no configuration by itself: in a copy of that one, take its own sections of",
        "# these names out and put these in their place.",
    ]
    own = config.file.placement.model_dump(mode="json", exclude_unset=True)
    placement = {**own, "objective": tuning.wish.objective}
    sections: dict[str, Any] = {**_rewrite(config, winner.form), "placement": placement}
    found = None
    if tuning.measurer.clock == "board-measured":
        measured = {k: v for k, v in placement.items() if k != "layer_info"}
        measured["profile"] = str(profile.absolute())
        found = _checked(tuning, work, {**sections, "placement": measured})
    if found is None:
        if len(winner.plan.plans) > 1:
            head.append("# A mix of plans cannot be pinned: planning may end a little elsewhere.")
        elif len(pins := pins_of(winner.plan)) > _MANY:
            head.append("# Too many layers to pin: planning may end a little elsewhere.")
        else:
            placement["pin"] = pins
            found = _checked(tuning, work, sections)
            if found is None:
                head.append("# With these pins planning ends a little elsewhere: compare.")
    text = yaml.safe_dump(dict(found or sections), sort_keys=False)
    return "\n".join([*head, text])


def _rewrite(config: Config, form: str) -> dict[str, Any]:
    """Returns the section that settles which network it is; nothing where there is one only."""
    if form == REWRITTEN:
        own = config.file.rewrite.model_dump(mode="json", exclude_unset=True)
        return {"rewrite": {**own, "always": True}}
    return {"rewrite": dict(CAME_SECTION)} if form == CAME else {}


def _checked(tuning: Tuning, work: Work, sections: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the sections if planning with them gives the winner, of its network."""
    from edgekit.placement._trial_pieces import signature

    winner = tuning.winner
    measurer = tuning.form_of(winner).measurer
    try:
        again = work.variant(**sections)
        again.explains = False
        again.keep(getattr(measurer, "kept", ()))
        same = again.model_digest == tuning.form_of(winner).model
        return sections if same and signature(again.plan) == winner.key else None
    except EdgekitError:
        return None
