"""Fleets: one bundle for many boards, in waves that stop and go back when too many fail.

An inventory says which boards there are (``load_inventory``, ``select``); ``Fleet`` holds rollouts,
whose state is in SQLite so that they survive this process; a ``Driver`` is how a board is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.fleet._bench import bench
    from edgekit.fleet._driver import Deployed, Driver, SshDriver
    from edgekit.fleet._fleet import Fleet
    from edgekit.fleet._inventory import Inventory, load_inventory
    from edgekit.fleet._select import select
    from edgekit.fleet._store import Store
    from edgekit.fleet._told import Lines, Silent, Told
    from edgekit.fleet._types import Member, Settings
    from edgekit.fleet._waves import DEFAULT_WAVES, make_waves

__all__ = [
    "DEFAULT_WAVES",
    "Deployed",
    "Driver",
    "Fleet",
    "Inventory",
    "Lines",
    "Member",
    "Settings",
    "Silent",
    "SshDriver",
    "Store",
    "Told",
    "bench",
    "load_inventory",
    "make_waves",
    "select",
]

__getattr__ = lazy(
    __name__,
    {
        "_bench": "bench",
        "_driver": "Deployed Driver SshDriver",
        "_fleet": "Fleet",
        "_inventory": "Inventory load_inventory",
        "_select": "select",
        "_store": "Store",
        "_told": "Lines Silent Told",
        "_types": "Member Settings",
        "_waves": "DEFAULT_WAVES make_waves",
    },
)
