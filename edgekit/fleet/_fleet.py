"""Rollouts from their beginning to their end: begin, drive, pause, abort, take back."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._data import cache_folder
from edgekit._listed import counted
from edgekit.errors import ConfigError, Problem, UsageError
from edgekit.fleet._bundles import Bundles, config_digest, signer_of
from edgekit.fleet._document import document_of
from edgekit.fleet._drive import Drive
from edgekit.fleet._driver import Driver, SshDriver
from edgekit.fleet._hints import (
    ansible_folder,
    by_hand,
    ended,
    going_back,
    name_taken,
    rollout_name,
    state_folder,
)
from edgekit.fleet._inventory import Inventory, load_inventory
from edgekit.fleet._lock import driven, is_driven
from edgekit.fleet._select import select
from edgekit.fleet._store import Store
from edgekit.fleet._told import Silent, Told
from edgekit.fleet._types import ENDED, Member, Settings
from edgekit.fleet._waves import DEFAULT_WAVES, check_budget, make_waves

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.config import Config
    from edgekit.pipeline import Progress

__all__ = ["DriverFor", "Fleet"]

DriverFor = Callable[[Mapping[str, Any], Bundles], Driver]
"""Returns what drives a rollout's boards."""


class Fleet:
    """The rollouts of one state folder.

    Args:
        folder: Where the state is kept; a folder of edgekit's own when None.
        driver_for: Returns the driver; None: boards are reached over SSH.
        told: Where rollouts are told.
        progress: Where builds are told.
        accept_host_key: Accept boards' unknown host keys this once.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        driver_for: DriverFor | None = None,
        told: Told | None = None,
        progress: Progress | None = None,
        accept_host_key: bool = False,
    ) -> None:
        self.store = Store(folder or state_folder())
        self._driver_for = driver_for or partial(_over_ssh, accept_host_key=accept_host_key)
        self._told = told or Silent()
        self._progress = progress
        self._notes: list[str] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._told.close()
        self.store.close()

    def begin(
        self,
        config: str | Path,
        inventory: str | Path,
        *,
        selector: str | None = None,
        canary: int = 0,
        waves: str = DEFAULT_WAVES,
        settings: Settings | None = None,
        name: str | None = None,
        bundle: Path | None = None,
        trust_key: bool = False,
    ) -> str:
        """Writes a rollout down, with what its boards get; no board is touched. Returns its name.

        Raises:
            ConfigError: The configuration or the inventory is wrong.
            UsageError: Nothing is selected; waves, budget or name make no sense.
        """
        from edgekit.config import open_config

        settings = settings or Settings()
        check_budget(settings.budget)
        opened = open_config(config)
        listed = load_inventory(inventory)
        members = select(listed.members, selector)
        split = make_waves(members, canary, waves)
        app = str(opened.file.name)
        configs = {str(Path(config)): opened}
        for member in members:
            if member.config is not None and str(member.config) not in configs:
                configs[str(member.config)] = _of_app(open_config(member.config), app, member)
        name = self._new_name(name, app)
        row = {
            "name": name,
            "app": app,
            "config": str(Path(config)),
            "config_digest": json.dumps({key: config_digest(c) for key, c in configs.items()}),
            "bundle": str(bundle) if bundle else None,
            "inventory": str(inventory),
            "inventory_digest": listed.digest,
            "selector": selector,
            "settings": asdict(settings),
            "terms": {key: _terms_of(one) for key, one in configs.items()},
            "trust": int(trust_key),
            "state": "paused",
        }
        boards = [
            {"name": m.name, "wave": number, "state": "pending", "entry": m.entry(),
             "labels": dict(m.labels)}
            for number, wave in enumerate(split)
            for m in wave
        ]  # fmt: skip
        # a bundle that cannot be had leaves no rollout behind
        made = _first_bundles(self.store, self._progress, row, configs, bundle, opened)
        rollout = self.store.create(row, boards)
        bundles = Bundles(self.store, rollout)
        for key, one in made.items():
            bundles.put(key, one)
        return name

    def drive(self, name: str, *, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Goes on with a rollout to its end, or until a pause; returns its document.

        Raises:
            UsageError: It has ended, there is none of that name, or another process drives it.
        """
        with driven(self.store.folder, self.rollout(name)["id"], name):
            # as the last driver left it
            return self._driven(self._reopened(self.rollout(name)), stopped)

    def roll_back(
        self, name: str, *, wave: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Takes every board of a rollout, or of one wave, back to what served before it."""
        rollout = self.rollout(name)
        with driven(self.store.folder, rollout["id"], name):
            waves = {row["wave"] for row in self.store.boards(rollout["id"])}
            if wave is not None and wave not in waves:
                raise UsageError(f"{name} has waves 1 to {max(waves) + 1}", where=name)
            self.store.set_rollout(
                rollout["id"], state="rolling-back", scope=wave, error=None, wish=""
            )
            return self._driven(self.rollout(name), stopped)

    def ask(self, name: str, wish: str) -> str:
        """Asks for "pause" or "abort"; returns the state, "pausing" while its driver ends.

        Raises:
            UsageError: The rollout has ended, or is being taken back.
        """
        rollout = self.rollout(name)
        if rollout["state"] in ENDED:
            raise ended(rollout, self.store.folder)
        alive = is_driven(self.store.folder, rollout["id"])
        if rollout["state"] == "rolling-back" and (alive or wish == "pause"):
            raise going_back(rollout, self.store.folder, driven=alive)
        self.store.set_rollout(rollout["id"], wish=wish)
        if alive:
            return "pausing" if wish == "pause" else "aborting"
        with driven(self.store.folder, rollout["id"], name):
            if wish == "abort":
                for row in self.store.boards(rollout["id"]):
                    if row["state"] in ("pending", "offline", "running"):
                        self.store.set_board(rollout["id"], row["name"], state="aborted")
            state = "aborted" if wish == "abort" else "paused"
            self.store.set_rollout(rollout["id"], state=state, wish="")
        return state

    def rollout(self, name: str | None = None) -> dict[str, Any]:
        """Returns a rollout's row, the newest without a name.

        Raises:
            UsageError: There is none.
        """
        if name is not None:
            with contextlib.suppress(KeyError):
                return self.store.rollout(name)
            if (by_ansible := ansible_folder(self.store.folder, Path(name).name)).is_dir():
                raise UsageError(
                    f"{name} is run by Ansible, and edgekit keeps no state of it",
                    code="fleet.by-ansible",
                    where=str(by_ansible),
                    hint=by_hand(by_ansible.resolve()),
                )
        there = [row["name"] for row in self.store.rollouts()]
        if name is None and there:
            return self.store.rollout(there[0])
        shown = ", ".join(there[:8]) or "none yet; edgekit fleet deploy begins one"
        raise UsageError(
            f"no rollout {name!r}" if name else "there is no rollout",
            code="fleet.no-rollout",
            where=str(self.store.path),
            hint=f"there are: {shown}",
        )

    def document(self, name: str | None = None) -> dict[str, Any]:
        """Returns the ``edgekit.fleet/1`` of a rollout, as the state has it now."""
        rollout = self.rollout(name)
        alive = is_driven(self.store.folder, rollout["id"])
        return document_of(self.store, rollout, driven=alive, notes=self._notes)

    def _new_name(self, name: str | None, app: str) -> str:
        there = {row["name"]: row for row in self.store.rollouts()}
        name = rollout_name(name, app, there.__contains__)
        if name in there:
            id = there[name]["id"]
            skipped = any(row["state"] == "skipped" for row in self.store.boards(id))
            alive = is_driven(self.store.folder, id)
            raise name_taken(there[name], self.store.folder, skipped=skipped, driven=alive)
        return name

    def _driven(self, rollout: dict[str, Any], stopped: Callable[[], bool]) -> dict[str, Any]:
        name, id = str(rollout["name"]), rollout["id"]
        who = f"process {os.getpid()} on {socket.gethostname()}"
        self.store.set_rollout(id, driver=who)
        members = _members_now(self.store, rollout, self._note)
        bundles = Bundles(self.store, rollout, progress=self._progress)
        with contextlib.closing(self._driver_for(rollout, bundles)) as driver:
            Drive(self.store, rollout, members, driver, self._told, stopped=stopped).run()
        self._told.close()
        return document_of(self.store, self.rollout(name), driven=False, notes=self._notes)

    def _reopened(self, rollout: dict[str, Any]) -> dict[str, Any]:
        """Lets a rollout go on; one that is done tries again what was skipped."""
        id = rollout["id"]
        if rollout["state"] == "rolling-back":
            return rollout
        if rollout["state"] == "done":
            skipped = [row for row in self.store.boards(id) if row["state"] == "skipped"]
            if not skipped:
                raise ended(rollout, self.store.folder)
            for row in skipped:
                self.store.set_board(id, row["name"], state="pending", error=None)
            self.store.set_rollout(id, wave=min(row["wave"] for row in skipped))
        elif rollout["state"] in ENDED:
            raise ended(rollout, self.store.folder)
        self.store.set_rollout(id, state="running", wish="", error=None)
        return self.rollout(str(rollout["name"]))

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._told.note(text)


# what is settled when a rollout begins


def _first_bundles(
    store: Store,
    progress: Progress | None,
    row: Mapping[str, Any],
    configs: Mapping[str, Config],
    file: Path | None,
    config: Config,
) -> dict[str, Bundle]:
    """Returns by key the bundles that no board has to build; told before a rollout is written."""
    if file is not None:
        from edgekit.pipeline import Pipeline

        with Pipeline(config) as pipeline:
            return {"file": pipeline.packing.read(file)}
    bundles = Bundles(store, {**row, "id": -1}, progress=progress)
    return {
        key: bundle
        for source, one in configs.items()
        if (made := bundles.first(Path(source), one)) is not None
        for key, bundle in [made]
    }


def _terms_of(config: Config) -> dict[str, Any]:
    """Returns what a deployment is given beside its bundle, as ``edgekit deploy`` gives it."""
    deploy = config.file.deploy
    return {
        "keep": deploy.keep,
        "policy": deploy.health.policy(),
        "source": "\n".join(deploy.mirror) or None,
    }


def _of_app(config: Config, app: str, member: Member) -> Config:
    """Returns a board's own configuration if it is of the rollout's application."""
    if config.file.name != app:
        problem = Problem(
            f"the configuration of {member.name} is of {config.file.name!r}, the rollout of "
            f"{app!r}",
            config.document.where(("name",)),
            "a rollout brings one application: give both configurations one name",
        )
        raise ConfigError([problem], code="fleet.other-app")
    return config


# how a rollout's boards are reached when it goes on


def _over_ssh(rollout: Mapping[str, Any], bundles: Bundles, *, accept_host_key: bool) -> Driver:
    """Returns the driver of a rollout's boards over SSH, on the terms it began with."""
    return SshDriver(
        rollout["app"],
        bundles,
        state_folder=cache_folder(),
        terms_of=lambda m: {
            **rollout["terms"][str(m.config or rollout["config"])],
            "put_back": bool(rollout["settings"].get("again")),
        },
        reason=f"the rollout {rollout['name']} was taken back",
        idle=2 * int(rollout["settings"]["parallel"]),
        accept_host_key=accept_host_key,
        trust=_signer(rollout),
    )


def _signer(rollout: Mapping[str, Any]) -> str | None:
    """Returns the public key that boards are to trust from now on, or None."""
    from edgekit.config import open_config

    if rollout["trust"]:
        with contextlib.suppress(ConfigError):  # it may be gone; boards trust the key by now
            return signer_of(open_config(rollout["config"]))
    return None


def _members_now(
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
