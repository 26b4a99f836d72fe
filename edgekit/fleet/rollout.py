"""Rollouts from their beginning to their end: begin, drive wave by wave, pause, abort, take back.
What is to be done is on record before it is done, so a restarted driver does only the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.bundles.manifest import Bundle
from edgekit.config.loader import Config, open_config
from edgekit.errors import ConfigError, EdgekitError, Problem, UsageError
from edgekit.fleet.bundles import Bundles, config_digest, signer_of
from edgekit.fleet.driver import UNREACHABLE_CODES, BoardPool, Deployed, Driver, SshDriver
from edgekit.fleet.hints import (
    ACCEPT_KEY,
    UNKNOWN_HOST_KEY,
    action_command,
    ansible_folder,
    name_taken,
    playbook_command,
    refuse_ended,
    refuse_pause,
    resume_command,
    rollout_name,
    state_folder,
)
from edgekit.fleet.inventory import Inventory, load_inventory, select
from edgekit.fleet.progress import RolloutReporter, SilentReporter
from edgekit.fleet.store import RolloutStore, document_of, driven, is_driven
from edgekit.fleet.waves import (
    DEFAULT_WAVES,
    ENDED,
    LEFT,
    FleetBoard,
    RolloutSettings,
    Row,
    allowed_failures,
    check_budget,
    make_waves,
)
from edgekit.knowledge import cache_folder
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import Progress
from edgekit.pipeline.steps.bundle import read_bundle
from edgekit.text import counted, listed

# Drives a rollout: wave by wave, what is to be done is on record before it is done.
#
# Nothing is held in memory that a restart would miss. A board that was "running" when its driver
# died is queried for what it serves, and only what is left is done.


UNKNOWN_SIGNER = "bundle.unknown-signer"
_TICK_S = 0.2
DriverFor = Callable[[Mapping[str, Any], Bundles], Driver]
"""Returns what drives a rollout's boards."""


class Drive:
    """One run of a driver over a rollout.

    Args:
        store: The state.
        rollout: The rollout's row.
        members: Its boards by name, as they are reached now.
        driver: How a board is reached.
        reporter: Gets the progress.
        stopped: Returns whether this process is to stop (Ctrl-C); then the rollout pauses.
        clock: Seconds of no day.
    """

    def __init__(
        self,
        store: RolloutStore,
        rollout: Mapping[str, Any],
        members: Mapping[str, FleetBoard],
        driver: Driver,
        reporter: RolloutReporter,
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._id = int(rollout["id"])
        self._rollout = rollout
        self._members = members
        self._driver = driver
        self._reporter = reporter
        self._settings = RolloutSettings(**rollout["settings"])
        self._stopped = stopped
        self._clock = clock
        self._failed = self._allowed = 0  # of the wave
        self._strangers: list[str] = []  # boards whose host keys are not known

    def run(self) -> str:
        """Goes on to the end, or until a pause; returns the rollout's state."""
        if self._rollout["state"] == "rolling-back":
            return self._go_back()
        waves = 1 + max((row["wave"] for row in self._store.boards(self._id)), default=0)
        for wave in range(int(self._rollout["wave"]), waves):
            self._store.set_rollout(self._id, wave=wave, state="running")
            rows = self._store.boards(self._id, wave)
            self._reporter.wave(wave, waves, rows)
            self._allowed = allowed_failures(self._settings.budget, len(rows))
            self._failed = sum(row["state"] == "failed" for row in rows)
            self._deploy(rows)
            if not self._exceeded() and not self._requested() and not self._strangers:
                self._soak(wave)
            if self._exceeded():
                return self._refuse(wave, len(rows))
            if self._strangers:
                return self._wait_for_keys()
            if requested := self._requested():
                return self._leave(requested)
        self._store.set_rollout(self._id, state="done", requested="")
        return "done"

    # the end of a rollout that was not its goal

    def _leave(self, requested: str) -> str:
        if requested == "abort":
            for row in self._store.boards(self._id):
                if row["state"] in LEFT:
                    self._set(row, "aborted")
        state = "aborted" if requested == "abort" else "paused"
        self._store.set_rollout(self._id, state=state, requested="")
        return state

    def _wait_for_keys(self) -> str:
        """Pauses: a key that is accepted is all that is missing, and nothing was done there."""
        name, folder = str(self._rollout["name"]), self._store.folder
        error = {
            "code": UNKNOWN_HOST_KEY,
            "message": f"the host key of {counted(len(self._strangers), 'board')} is not known: "
            f"{listed(sorted(self._strangers), 3)}; nothing was changed there, and the rollout is "
            "paused",
            "where": name,
        }
        once = resume_command(name, folder, error)
        error["hint"] = f"{ACCEPT_KEY}; {once} accepts what they show this once"
        self._store.set_rollout(self._id, state="paused", requested="", error=error)
        return "paused"

    def _refuse(self, wave: int, size: int) -> str:
        name, budget = str(self._rollout["name"]), self._settings.budget
        why: dict[str, list[str]] = defaultdict(list)
        for row in self._store.boards(self._id, wave):
            if row["state"] == "failed":
                why[row["error"]["code"]].append(row["name"])
        reasons = "; ".join(f"{code}: {listed(names, 3)}" for code, names in why.items())
        hint = f"see why with {action_command('status', name, self._store.folder)}, then begin anew"
        if set(why) == {UNKNOWN_SIGNER}:
            hint = self._unknown_signer()
        error = {
            "code": "fleet.failures",
            "message": f"{self._failed} of {counted(size, 'board')} of wave {wave + 1} failed, "
            f"{self._allowed} may (--max-failures {budget}): {reasons}",
            "where": name,
            "hint": f"the wave was rolled back; {hint}",
        }
        self._reporter.note(f"{error['message']}; the wave is rolled back")
        self._store.set_rollout(self._id, state="rolling-back", scope=wave, error=error)
        self._rollout = self._store.rollout(str(self._rollout["name"]))
        return self._go_back()

    def _exceeded(self) -> bool:
        return self._failed > self._allowed

    def _requested(self) -> str:
        if self._stopped():
            return "pause"
        return self._store.request(self._id)

    # a wave

    def _deploy(self, rows: list[Row]) -> None:
        self._pool(
            lambda: self._exceeded() or bool(self._requested()) or bool(self._strangers)
        ).each(
            [row for row in rows if row["state"] in LEFT],
            self._deploy_one,
            begin=self._begin,
            done=self._done,
            failed=self._not_done,
        )

    def _begin(self, row: Row) -> None:
        row["attempts"] += 1
        self._set(row, "running", attempts=row["attempts"])

    def _deploy_one(self, row: Row) -> Deployed:
        name = str(row["name"])

        def found(before: str, digest: str) -> None:
            # what served before this rollout, not before a second try of it
            if row["before"] is None:
                row["before"] = before
            row["digest"] = digest
            self._store.set_board(self._id, name, before=row["before"], digest=digest)

        return self._driver.deploy(self._members[name], found)

    def _done(self, row: Row, answer: Deployed) -> None:
        self._set(
            row,
            "done",
            release=answer.release,
            digest=answer.digest,
            bytes_sent=row["bytes_sent"] + answer.bytes_sent,
            seconds=answer.seconds,
        )

    def _not_done(self, row: Row, error: EdgekitError, again: bool) -> None:
        error_facts = error.to_json()["error"]
        if error.code == UNKNOWN_SIGNER:
            error_facts["hint"] = self._unknown_signer()
        if error.code == UNKNOWN_HOST_KEY and row["before"] is None:
            self._strangers.append(str(row["name"]))
            self._set(row, "pending", error_facts)
        elif again:
            self._set(row, "offline", error_facts)
        elif (
            error.code in UNREACHABLE_CODES
            and row["before"] is None
            and self._settings.offline == "skip"
        ):
            self._set(row, "skipped", error_facts)
        else:
            self._failed += 1
            self._set(row, "failed", error_facts)

    def _unknown_signer(self) -> str:
        if self._rollout["trust"]:
            return (
                "the bundle is signed with another key than the configuration's, which the boards "
                "were told to trust: let them trust that one with edgekit trust"
            )
        return (
            "begin anew with --trust-key, which lets the boards trust the configuration's signing "
            "key from then on; or bring them a key with edgekit trust"
        )

    # after a wave

    def _soak(self, wave: int) -> None:
        """Waits, then checks that each board still serves what it was given."""
        if not self._settings.soak_s:
            return
        rows = [row for row in self._store.boards(self._id, wave) if row["state"] == "done"]
        if rows:
            self._reporter.note(f"wave {wave + 1}: watched for {self._settings.soak_s:g} s")
        end = self._clock() + self._settings.soak_s
        while rows and (left := end - self._clock()) > 0:
            if self._requested():
                return
            time.sleep(min(left, _TICK_S))
        self._pool(lambda: bool(self._requested())).each(
            rows,
            lambda row: self._driver.serving(self._members[row["name"]]),
            begin=lambda row: None,
            done=self._soaked,
            failed=lambda row, error, again: None if again else self._not_soaked(row, error),
        )

    def _soaked(self, row: Row, digest: str) -> None:
        if digest == row["digest"]:
            return
        text = f"it serves {digest[:12]} again" if digest else "it serves nothing any more"
        self._not_soaked(
            row,
            EdgekitError(
                f"{text}, not {row['digest'][:12]}",
                code="fleet.went-back",
                where=str(row["name"]),
                hint="the board went back by itself, or somebody took it back: edgekit releases",
            ),
        )

    def _not_soaked(self, row: Row, error: EdgekitError) -> None:
        self._failed += 1
        self._set(row, "failed", error.to_json()["error"])

    # taking a wave or a rollout back

    def _go_back(self) -> str:
        """Takes back what switched, of the rollout's ``scope``; boards that never did stay."""
        scope, every = self._rollout["scope"], self._store.boards(self._id)
        rows = [
            row
            for row in every
            # "before" was written down before the board was changed
            if (scope is None or row["wave"] == scope)
            and row["before"] is not None
            and row["before"] != row["digest"]
            and row["state"] in ("done", "failed", "running", "offline")
        ]
        for row in rows:
            row["stays"] = False
        self._reporter.back(scope, 1 + max((row["wave"] for row in every), default=0), rows)
        if rows:
            self._pool(self._stopped).each(
                rows,
                self._back_one,
                begin=lambda row: None,
                done=self._is_back,
                failed=lambda row, error, again: self._not_back(row, error),
            )
        if self._stopped():
            return "rolling-back"
        for row in self._store.boards(self._id):
            if row["state"] in LEFT:
                self._set(row, "aborted")
        if left := [row["name"] for row in rows if row["state"] != "rolled-back" and row["stays"]]:
            self._store.set_rollout(self._id, error=self._not_all_back(left))
            self._rollout = self._store.rollout(str(self._rollout["name"]))
        state = "failed" if self._rollout["error"] else "rolled-back"
        self._store.set_rollout(self._id, state=state, requested="")
        return state

    def _not_all_back(self, left: list[str]) -> dict[str, str]:
        name = str(self._rollout["name"])
        before = self._rollout["error"]
        problem = f"{listed(left)} could not be rolled back"
        scope = self._rollout["scope"]
        wave = () if scope is None else ("--wave", str(scope + 1))
        rollback = action_command("rollback", name, self._store.folder, *wave)
        return {
            "code": before["code"] if before else "fleet.not-rolled-back",
            "message": f"{before['message']}; {problem}" if before else problem,
            "where": name,
            "hint": f"try them again: {rollback}",
        }

    def _back_one(self, row: Row) -> bool:
        return self._driver.back(self._members[row["name"]], row["digest"], row["before"])

    def _is_back(self, row: Row, changed: bool) -> None:
        row["stays"] = False
        # a failed board that never switched stays failed: that says more
        if changed or row["state"] != "failed":
            self._set(row, "rolled-back", row["error"])

    def _not_back(self, row: Row, error: EdgekitError) -> None:
        error_facts = error.to_json()["error"]
        row["stays"] = True
        # why it failed stays in the message; a second try to take it back says its own reason alone
        old = row["error"]["message"].partition("not rolled back: ")[0] if row["error"] else ""
        old = f"{old.removesuffix('; ')}; " if old else ""
        error_facts["message"] = f"{old}not rolled back: {error.message}"
        self._set(row, row["state"], error_facts)

    # of all of these

    def _pool(self, stop: Callable[[], bool]) -> BoardPool:
        return BoardPool(self._settings, stop, clock=self._clock)

    def _set(
        self, row: Row, state: str, error: Mapping[str, Any] | None = None, **values: Any
    ) -> None:
        row.update(state=state, error=error, **values)
        self._store.set_board(self._id, row["name"], state=state, error=error, **values)
        self._reporter.board(row["name"], state, error)


class Fleet:
    """The rollouts of one state folder.

    Args:
        folder: Where the state is stored; a folder of edgekit's own when None.
        driver_for: Returns the driver; None: boards are reached over SSH.
        reporter: Gets rollouts' progress.
        progress: Called with builds' progress.
        accept_host_key: Accept boards' unknown host keys this once.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        driver_for: DriverFor | None = None,
        reporter: RolloutReporter | None = None,
        progress: Progress | None = None,
        accept_host_key: bool = False,
    ) -> None:
        self.store = RolloutStore(folder or state_folder())
        self._driver_for = driver_for or partial(_over_ssh, accept_host_key=accept_host_key)
        self._reporter = reporter or SilentReporter()
        self._progress = progress
        self._notes: list[str] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._reporter.close()
        self.store.close()

    def begin(
        self,
        config: str | Path,
        inventory: str | Path,
        *,
        selector: str | None = None,
        canary: int = 0,
        waves: str = DEFAULT_WAVES,
        settings: RolloutSettings | None = None,
        name: str | None = None,
        bundle: Path | None = None,
        trust_key: bool = False,
    ) -> str:
        """Writes a rollout down, with what its boards get; no board is touched. Returns its name.

        Raises:
            ConfigError: The configuration or the inventory is wrong.
            UsageError: Nothing is selected; waves, budget or name make no sense.
        """
        settings = settings or RolloutSettings()
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
        # a bundle that cannot be had leaves no rollout
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
                rollout["id"], state="rolling-back", scope=wave, error=None, requested=""
            )
            return self._driven(self.rollout(name), stopped)

    def request(self, name: str, action: str) -> str:
        """Requests "pause" or "abort"; returns the state, "pausing" while its driver ends.

        Raises:
            UsageError: The rollout has ended, or is being taken back.
        """
        rollout = self.rollout(name)
        if rollout["state"] in ENDED:
            raise refuse_ended(rollout, self.store.folder)
        alive = is_driven(self.store.folder, rollout["id"])
        if rollout["state"] == "rolling-back" and (alive or action == "pause"):
            raise refuse_pause(rollout, self.store.folder, driven=alive)
        self.store.set_rollout(rollout["id"], requested=action)
        if alive:
            return "pausing" if action == "pause" else "aborting"
        with driven(self.store.folder, rollout["id"], name):
            if action == "abort":
                for row in self.store.boards(rollout["id"]):
                    if row["state"] in ("pending", "offline", "running"):
                        self.store.set_board(rollout["id"], row["name"], state="aborted")
            state = "aborted" if action == "abort" else "paused"
            self.store.set_rollout(rollout["id"], state=state, requested="")
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
                    hint=playbook_command(by_ansible.resolve()),
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
            Drive(self.store, rollout, members, driver, self._reporter, stopped=stopped).run()
        self._reporter.close()
        return document_of(self.store, self.rollout(name), driven=False, notes=self._notes)

    def _reopened(self, rollout: dict[str, Any]) -> dict[str, Any]:
        """Lets a rollout go on; one that is done tries again what was skipped."""
        id = rollout["id"]
        if rollout["state"] == "rolling-back":
            return rollout
        if rollout["state"] == "done":
            skipped = [row for row in self.store.boards(id) if row["state"] == "skipped"]
            if not skipped:
                raise refuse_ended(rollout, self.store.folder)
            for row in skipped:
                self.store.set_board(id, row["name"], state="pending", error=None)
            self.store.set_rollout(id, wave=min(row["wave"] for row in skipped))
        elif rollout["state"] in ENDED:
            raise refuse_ended(rollout, self.store.folder)
        self.store.set_rollout(id, state="running", requested="", error=None)
        return self.rollout(str(rollout["name"]))

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._reporter.note(text)


def _first_bundles(
    store: RolloutStore,
    progress: Progress | None,
    row: Mapping[str, Any],
    configs: Mapping[str, Config],
    file: Path | None,
    config: Config,
) -> dict[str, Bundle]:
    """Returns by key the bundles that need no board to build, before a rollout is written."""
    if file is not None:
        with Pipeline(config) as pipeline:
            return {"file": read_bundle(pipeline.context, file)}
    bundles = Bundles(store, {**row, "id": -1}, progress=progress)
    return {
        key: bundle
        for source, one in configs.items()
        if (made := bundles.first(Path(source), one)) is not None
        for key, bundle in [made]
    }


def _terms_of(config: Config) -> dict[str, Any]:
    """Returns a deployment's terms apart from its bundle, as ``edgekit deploy`` sends them."""
    deploy = config.file.deploy
    return {
        "keep": deploy.keep,
        "policy": deploy.health.policy(),
        "source": "\n".join(deploy.mirror) or None,
    }


def _of_app(config: Config, app: str, member: FleetBoard) -> Config:
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
    if rollout["trust"]:
        with contextlib.suppress(ConfigError):  # it may be gone; boards trust the key by now
            return signer_of(open_config(rollout["config"]))
    return None


def _members_now(
    store: RolloutStore, rollout: Mapping[str, Any], note: Callable[[str], None]
) -> dict[str, FleetBoard]:
    """Returns how the boards are reached: as the inventory says now, else as it said then.

    Args:
        store: The state; boards that the inventory no longer has are skipped there.
        rollout: The rollout's row.
        note: Called with what a person should know of it.
    """
    rows = store.boards(rollout["id"])
    then = {r["name"]: FleetBoard.of_entry(r["name"], r["entry"], r["labels"]) for r in rows}
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
    store: RolloutStore,
    note: Callable[[str], None],
    rollout: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    then: dict[str, FleetBoard],
    now: Inventory,
) -> dict[str, FleetBoard]:
    found = {member.name: member for member in now.members}
    for row in rows:
        name = row["name"]
        if name not in found and row["state"] in ("pending", "offline"):
            error = {"code": "fleet.not-listed", "message": "it is no longer in the inventory",
                    "where": name, "hint": ""}  # fmt: skip
            store.set_board(rollout["id"], name, state="skipped", error=error)
            note(f"{name} is no longer in the inventory: skipped")
        elif name in found and found[name].entry() != then[name].entry():
            store.set_board(rollout["id"], name, entry=found[name].entry())
    if more := sorted(set(found) - set(then)):
        note(
            f"not in this rollout: {counted(len(more), 'board')} of the inventory that came later "
            f"or had not been selected, {more[0]} first"
        )
    return {**then, **{name: found[name] for name in then if name in found}}
