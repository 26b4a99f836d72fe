"""``edgekit history``: what was measured."""

from __future__ import annotations

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument, command_with_actions

__all__ = ["command"]

ACTIONS = {
    "show": ("_history_acts", "Print a result with all that is known of it."),
    "mark": ("_history_acts", "Name a result, for edgekit compare baseline:NAME."),
    "export": ("_history_acts", "Write results as JSON or CSV."),
    "prune": ("_history_acts", "Forget old results."),
}


@command_with_actions(
    "history",
    "edgekit history resnet50 --board lab\nedgekit history show 12\n"
    "edgekit history mark 12 release\nedgekit history export -o results.csv\n"
    "edgekit history prune --keep 50",
    ACTIONS,
)
@argument("name", "Only this configuration's results.", required=False)
@click.option("--board", help="Only this board's.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True,
              help="So many, the newest first.")  # fmt: skip
@click.option("--repair", "mend", is_flag=True,
              help="Move a damaged file aside and keep what can be read of it.")  # fmt: skip
@o.talk
def command(
    name: str | None,
    board: str | None,
    limit: int,
    mend: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.history import Store, history_document, repair

    mended = repair() if mend else None
    with Store() as store:
        found = store.results(name=name, board=board, limit=limit)
    if json:
        o.print_json(history_document(found) | ({"repair": mended} if mended else {}))
        return
    if mended:
        told = f"moved to {mended['moved']}" if mended["repaired"] else "sound: nothing to repair"
        o.say(f"the history is {told}; {mended['kept']} results kept")
    if not found:
        o.say("nothing was measured yet" if name is None else f"no result of {name}")
        return
    from edgekit.report import history_text

    width, colour = o.paper()
    o.say_page(history_text(found, width=width, colour=colour))
