"""Rollouts: begin, drive wave by wave, pause, abort, roll back. Each action is recorded before it
runs, so that a restarted process continues with the rest.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgekit.config.loader import Config, open_config
from edgekit.errors import ConfigError, Problem, UsageError
from edgekit.files import cache_folder
from edgekit.fleet.ansible.run import AnsibleRun, ansible_heads, saved_run
from edgekit.fleet.bundles import (
    Bundles,
    config_digest,
    first_bundles,
    keep_bundle,
    signing_key_line,
)
from edgekit.fleet.drive import NOT_LISTED, TAKEN_BACK, TOO_FEW_REACHED, Drive, switched_rows
from edgekit.fleet.driver import Driver, SshDriver
from edgekit.fleet.hints import (
    action_command,
    ansible_folder,
    playbook_command,
    rollout_name,
    state_folder,
)
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.progress import RolloutReporter
from edgekit.fleet.status import (
    FleetListing,
    FleetRollout,
    Rehearsal,
    RehearsedBoard,
    rollout_document,
    rollout_listing,
)
from edgekit.fleet.store import Rollout, RolloutFacts, RolloutStore, Row, deployment_terms
from edgekit.fleet.waves import (
    DEFAULT_WAVES,
    ENDED,
    LEFT,
    FleetBoard,
    RolloutSettings,
    check_budget,
    least_reached,
    make_waves,
)
from edgekit.pipeline.progress import Progress
from edgekit.text import counted
from edgekit_device.errors import family
from edgekit_device.protocol.failure import Failure

DriverFor = Callable[[Rollout, Bundles], Driver]
"""Returns the driver of a rollout's boards."""


class Fleet:
    """The rollouts of one state folder.

    Args:
        folder: The state folder; None for the default folder.
        driver_for: Returns the driver of a rollout; None for SSH.
        reporter: Receives the progress of rollouts.
        progress: Called with the progress of builds.
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
        self._driver_for = driver_for or partial(_ssh_driver, accept_host_key=accept_host_key)
        self.reporter = reporter or RolloutReporter()
        self._progress = progress
        self._notes: list[str] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.reporter.end()

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
        """Records a rollout with the bundles of its boards, without changing a board; returns its
        name.

        Raises:
            ConfigError: The configuration or the inventory is invalid.
            UsageError: No board is selected, or waves, budget or name are invalid.
        """
        settings = settings or RolloutSettings()
        check_budget(settings.budget)
        configs, split = _read(config, inventory, selector, canary, waves)
        least_reached(settings.min_reached, sum(map(len, split)))
        opened = configs[_absolute_path(config)]
        app = str(opened.file.name)
        # before the builds, which may take long: a taken name is refused at once
        name = self._new_name(name, app)
        # if a bundle cannot be built, no rollout is recorded
        made = first_bundles(self.store.folder, configs, opened, bundle, self._progress)
        now = time.time()
        facts = RolloutFacts(
            name=name,
            app=app,
            config=_absolute_path(config),
            config_digest={key: config_digest(own) for key, own in configs.items()},
            bundle=_absolute_path(bundle) if bundle else None,
            bundles={key: keep_bundle(self.store.folder, own) for key, own in made.items()},
            inventory=_absolute_path(inventory),
            selector=selector,
            settings=settings,
            terms={key: deployment_terms(own) for key, own in configs.items()},
            trust=trust_key,
            canary=canary,
            waves=waves,
            created_at=now,
            updated_at=now,
            boards=tuple(Row(m.name, number, m) for number, wave in enumerate(split) for m in wave),
        )
        # a rollout that failed before it changed a board frees its name
        self.store.create(facts, instead=_changed_nothing)
        return name

    def dry_run_deploy(
        self,
        config: str | Path,
        inventory: str | Path,
        *,
        selector: str | None = None,
        canary: int = 0,
        waves: str = DEFAULT_WAVES,
        settings: RolloutSettings | None = None,
        name: str | None = None,
    ) -> Rehearsal:
        """Returns the boards that a rollout would reach, without building, recording or connecting.

        Arguments and errors are those of ``begin``.
        """
        settings = settings or RolloutSettings()
        check_budget(settings.budget)
        configs, split = _read(config, inventory, selector, canary, waves)
        app = str(configs[_absolute_path(config)].file.name)
        rows = tuple(
            RehearsedBoard(member.name, member.board.host, number)
            for number, wave in enumerate(split, 1)
            for member in wave
        )
        least = least_reached(settings.min_reached, len(rows))
        return Rehearsal("deploy", self._new_name(name, app), app, rows, least)

    def dry_run_rollback(self, name: str, *, wave: int | None = None) -> Rehearsal:
        """Returns the boards that would be rolled back, without connecting.

        Arguments and errors are those of ``roll_back``.
        """
        rollout = self.rollout(name)
        _check_wave(rollout, wave)
        rows = tuple(
            RehearsedBoard(row.name, row.host, row.wave + 1, row.digest, row.before)
            for row in switched_rows(rollout, wave)
        )
        return Rehearsal("rollback", name, rollout.facts.app, rows)

    def drive(self, name: str, *, stopped: Callable[[], bool] = lambda: False) -> FleetRollout:
        """Continues a rollout to its end or to a pause; returns its document.

        Raises:
            UsageError: The rollout has ended, does not exist, or runs in another process.
        """
        rollout = self.rollout(name)
        with rollout.driven():
            self._reopen(rollout)
            return self._drive(rollout, stopped)

    def roll_back(
        self, name: str, *, wave: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> FleetRollout:
        """Rolls the boards of a rollout, or of one wave, back to their previous releases."""
        rollout = self.rollout(name)
        with rollout.driven():
            _check_wave(rollout, wave)
            rollout.request("")
            rollout.set(state="rolling-back", scope=wave, error=None)
            return self._drive(rollout, stopped)

    def request(self, name: str, action: str) -> str:
        """Requests "pause" or "abort"; returns the state, "pausing" while its driver ends.

        Raises:
            UsageError: The rollout has ended, or is being rolled back.
        """
        rollout = self.rollout(name)
        state, alive = rollout.facts.state, rollout.is_driven()
        if state in ENDED:
            raise _ended_error(rollout)
        if state == "rolling-back" and (alive or action == "pause"):
            hint = f"{action_command('resume', name, self.store.folder)} continues that"
            if alive:
                hint = "stop the process that does it with Ctrl-C; a resume continues it later"
            # resuming after a pause would deploy again
            raise UsageError(
                f"{name} is being rolled back", code="fleet.rolling-back", where=name, hint=hint
            )
        if alive:
            rollout.request(action)
            return "pausing" if action == "pause" else "aborting"
        with rollout.driven():
            for row in rollout.boards.values() if action == "abort" else ():
                if row.state in LEFT:
                    rollout.set_board(row.name, state="aborted")
            ended = "aborted" if action == "abort" else "paused"
            rollout.set(state=ended)
        return ended

    def rollout(self, name: str) -> Rollout:
        """Returns a rollout.

        Raises:
            UsageError: The rollout does not exist.
        """
        with contextlib.suppress(KeyError):
            return self.store.rollout(name)
        if (by_ansible := ansible_folder(self.store.folder, Path(name).name)).is_dir():
            raise UsageError(
                f"{name} is run by Ansible, so edgekit has no state of this rollout",
                code="fleet.by-ansible",
                where=str(by_ansible),
                hint=playbook_command(by_ansible.resolve()),
            )
        there = [rollout.name for rollout in self.store.rollouts()[:8]]
        raise UsageError(
            f"no rollout {name!r}" + ("" if there else "; there are none yet"),
            code="fleet.no-rollout",
            hint=f"rollouts: {', '.join(there)}" if there else "edgekit fleet deploy starts one",
        )

    def ansible_run(self, name: str) -> AnsibleRun | None:
        """Returns the record of the last Ansible run; None if Ansible did not run the rollout."""
        folder = ansible_folder(self.store.folder, Path(name).name)
        return None if self.store.has(name) else saved_run(folder)

    def listing(self) -> FleetListing:
        """Returns all rollouts, also those by Ansible."""
        return rollout_listing(self.store, ansible_heads(self.store.folder))

    def document(self, name: str) -> FleetRollout:
        """Returns a rollout's document from its present state."""
        rollout = self.rollout(name)
        return rollout_document(rollout, driven=rollout.is_driven(), notes=self._notes)

    def _new_name(self, name: str | None, app: str) -> str:
        there = {rollout.name: rollout for rollout in self.store.rollouts()}
        name = rollout_name(name, app, there.__contains__)
        if name in there and not _changed_nothing(there[name]):
            status = action_command("status", name, self.store.folder)
            raise UsageError(
                f"rollout {name!r} already exists (state {there[name].facts.state})",
                code="fleet.name",
                hint=f"{status} shows its progress; or give another --name",
            )
        return name

    def _drive(self, rollout: Rollout, stopped: Callable[[], bool]) -> FleetRollout:
        rollout.set(driver=f"process {os.getpid()} on {socket.gethostname()}")
        members = _current_members(rollout, self._note)
        bundles = Bundles(rollout, progress=self._progress)
        driver = self._driver_for(rollout, bundles)
        Drive(rollout, members, driver, self.reporter, stopped=stopped).run()
        self.reporter.end()
        return rollout_document(rollout, driven=False, notes=self._notes)

    def _reopen(self, rollout: Rollout) -> None:
        """Reopens a rollout; if it was complete, skipped boards are tried again."""
        state = rollout.facts.state
        if state == "rolling-back":
            return
        skipped = [row for row in rollout.boards.values() if row.state == "skipped"]
        if state in ENDED and (state != "done" or not skipped):
            raise _ended_error(rollout)
        error = rollout.facts.error
        if state == "done" or (error is not None and error.code == TOO_FEW_REACHED):
            for row in skipped:
                rollout.set_board(row.name, state="pending", error=None)
            rollout.set(wave=min(row.wave for row in skipped))
        # an earlier request to pause must not stop it at once
        rollout.request("")
        rollout.set(state="running", error=None)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self.reporter.note(text)


def _ended_error(rollout: Rollout) -> UsageError:
    name, state, error = rollout.name, rollout.facts.state, rollout.facts.error
    failed = state == "failed"
    codes = {row.error.code for row in rollout.boards.values() if row.error is not None}
    back = f"; roll it back with: {action_command('rollback', name, rollout.folder)}"
    again = rollout.deploy_command(*(["--again"] if TAKEN_BACK in codes else []))
    return UsageError(
        f"{name} has ended: {state}" + (f": {error.message}" if failed and error else ""),
        code="fleet.ended",
        where=name,
        hint=f"try again with: {again}" + ("" if state == "rolled-back" else back),
    )


def _changed_nothing(rollout: Rollout) -> bool:
    """Returns True if a rollout failed before it changed a board: its name is free again."""

    def untouched(row: Row) -> bool:
        # ``before`` is recorded before a board changes; a board that refuses a bundle does not
        # change
        refused = row.error is not None and family(row.error.code) in ("bundle", "install")
        return row.state in ("failed", "aborted", "skipped") and (row.before is None or refused)

    return rollout.facts.state == "failed" and all(map(untouched, rollout.boards.values()))


def _check_wave(rollout: Rollout, wave: int | None) -> None:
    if wave is not None and wave >= rollout.waves:
        raise UsageError(f"{rollout.name} has waves 1 to {rollout.waves}", where=rollout.name)


def _read(
    config: str | Path, inventory: str | Path, selector: str | None, canary: int, waves: str
) -> tuple[dict[str, Config], list[list[FleetBoard]]]:
    """Returns a rollout's configurations by path (the given and the boards' own), and its waves."""
    members = select(load_inventory(inventory), selector)
    opened = open_config(config)
    configs = {_absolute_path(config): opened}
    for member in members:
        if member.config is not None and str(member.config) not in configs:
            own = open_config(member.config)
            configs[str(member.config)] = _app_config(own, str(opened.file.name), member)
    return configs, make_waves(members, canary, waves)


def _absolute_path(path: str | Path) -> str:
    """Returns a file's absolute path, because a rollout may be resumed from another folder."""
    return str(Path(path).absolute())


def _app_config(config: Config, app: str, member: FleetBoard) -> Config:
    """Returns a board's own configuration if it has the rollout's application."""
    if config.file.name != app:
        problem = Problem(
            f"the configuration of {member.name} is for {config.file.name!r}, but the rollout "
            f"is for {app!r}",
            config.document.where(("name",)),
            "a rollout deploys one application: use one name in both configurations",
        )
        raise ConfigError([problem], code="fleet.other-app")
    return config


def _ssh_driver(rollout: Rollout, bundles: Bundles, *, accept_host_key: bool) -> Driver:
    """Returns the SSH driver of a rollout's boards, with the terms from its start."""
    facts, trust = rollout.facts, None
    if facts.trust:
        with contextlib.suppress(ConfigError):  # the file may be gone; boards already trust the key
            trust = signing_key_line(open_config(facts.config))
    return SshDriver(
        facts.app,
        bundles,
        state_folder=cache_folder(),
        terms_of=lambda m: facts.terms[str(m.config or facts.config)],
        put_back=facts.settings.again,
        reason=f"the rollout {rollout.name} was rolled back",
        accept_host_key=accept_host_key,
        trust=trust,
    )


def _current_members(rollout: Rollout, note: Callable[[str], None]) -> dict[str, FleetBoard]:
    """Returns the boards' addresses from the inventory, else from the rollout's record.

    Args:
        rollout: The rollout; boards that the inventory no longer has are skipped.
        note: Called with notes for the user.
    """
    members = {row.name: row.reached for row in rollout.boards.values()}
    inventory = rollout.facts.inventory
    try:
        now = {member.name: member for member in load_inventory(inventory)}
    except ConfigError as error:
        if error.code != "fleet.no-inventory":
            raise
        note(f"{inventory} no longer exists: boards are reached at the addresses it had")
        return members
    for name, row in rollout.boards.items():
        if name not in now and row.state in ("pending", "offline"):
            text = "it is no longer in the inventory"
            not_listed = Failure(NOT_LISTED, text, name, "")
            rollout.set_board(name, state="skipped", error=not_listed)
            note(f"{name}: {text}: skipped")
        # a board that only moved to another line of the inventory is unchanged
        elif name in now and replace(now[name], where=members[name].where) != members[name]:
            rollout.set_board(name, member=now[name])
            members[name] = now[name]
    if more := sorted(set(now) - set(members)):
        note(
            f"not in this rollout: {counted(len(more), 'board')} of the inventory (added later "
            f"or not selected), the first is {more[0]}"
        )
    return members
