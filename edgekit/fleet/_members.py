"""How a rollout's boards are reached when it goes on: the inventory may be another by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgekit._listed import counted
from edgekit.errors import ConfigError
from edgekit.fleet._inventory import Inventory, load_inventory
from edgekit.fleet._store import Store
from edgekit.fleet._types import Member

__all__ = ["members_now"]


def members_now(
    store: Store, rollout: Mapping[str, Any], note: Callable[[str], None]
) -> dict[str, Member]:
    """Returns how the boards are reached: as the inventory says now, else as it said then.

    Args:
        store: The state; boards that the inventory no longer has are skipped there.
        rollout: The rollout's row.
        note: Told what a person should know of it.
    """
    rows = store.boards(rollout["id"])
    then = {r["name"]: Member.of_entry(r["name"], r["entry"], r["labels"]) for r in rows}
    try:
        now = load_inventory(rollout["inventory"])
    except ConfigError as error:
        if error.code != "fleet.no-inventory":
            raise
        note(f"{rollout['inventory']} is gone: boards are reached as it said before")
        return then
    if now.digest == rollout["inventory_digest"]:
        return then
    return _changed(store, note, rollout, rows, then, now)


def _changed(
    store: Store,
    note: Callable[[str], None],
    rollout: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    then: dict[str, Member],
    now: Inventory,
) -> dict[str, Member]:
    found = {member.name: member for member in now.members}
    for row in rows:
        name = row["name"]
        if name not in found and row["state"] in ("pending", "offline"):
            told = {"code": "fleet.not-listed", "message": "it is no longer in the inventory",
                    "where": name, "hint": ""}  # fmt: skip
            store.set_board(rollout["id"], name, state="skipped", error=told)
            note(f"{name} is no longer in the inventory: skipped")
        elif name in found and found[name].entry() != then[name].entry():
            store.set_board(rollout["id"], name, entry=found[name].entry())
    if more := sorted(set(found) - set(then)):
        note(
            f"not in this rollout: {counted(len(more), 'board')} of the inventory that came later "
            f"or had not been selected, {more[0]} first"
        )
    return {**then, **{name: found[name] for name in then if name in found}}
