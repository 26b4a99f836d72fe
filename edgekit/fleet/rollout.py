"""Rollouts from their beginning to their end: begin, drive wave by wave, pause, abort, take back.
What is to be done is on record before it is done, so a restarted driver does only the rest.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgekit import timeouts
from edgekit.config.loader import Config, open_config
from edgekit.errors import ConfigError, EdgekitError, Problem, UsageError
from edgekit.fleet.bundles import Bundles, config_digest, first_bundles, keep_bundle, signer_of
from edgekit.fleet.driver import RETRIED_CODES, BoardPool, Deployed, Driver, SshDriver
from edgekit.fleet.hints import (
    ACCEPT_KEY,
    UNKNOWN_HOST_KEY,
    action_command,
    ansible_folder,
    playbook_command,
    resume_command,
    rollout_name,
    state_folder,
)
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.progress import RolloutReporter
from edgekit.fleet.store import (
    FleetRollout,
    Rehearsal,
    RehearsedBoard,
    Rollout,
    RolloutFacts,
    RolloutStore,
    Row,
    Terms,
    document_of,
)
from edgekit.fleet.waves import (
    DEFAULT_WAVES,
    ENDED,
    LEFT,
    FleetBoard,
    RolloutSettings,
    State,
    allowed_failures,
    check_budget,
    make_waves,
)
from edgekit.knowledge import cache_folder
from edgekit.pipeline.boards.requests import failure_of
from edgekit.pipeline.progress import Progress
from edgekit.text import counted, listed
from edgekit_device.protocol.failure import Failure

UNKNOWN_SIGNER = "bundle.unknown-signer"
NONE_REACHED = "fleet.none-reached"
DriverFor = Callable[[Rollout, Bundles], Driver]
"""Returns what drives a rollout's boards."""


class Drive:
    """One run of a driver over a rollout. A board that was "running" when the driver before died is
    queried for what it serves, and only what is left is done.

    Args:
        rollout: The rollout.
        members: Its boards by name, as they are reached now.
        driver: How a board is reached.
        reporter: Gets the progress.
        stopped: Returns whether this process is to stop (Ctrl-C); then the rollout pauses.
        clock: Seconds of no day.
    """

    def __init__(
        self,
        rollout: Rollout,
        members: Mapping[str, FleetBoard],
        driver: Driver,
        reporter: RolloutReporter,
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rollout = rollout
        self._members = members
        self._driver = driver
        self._reporter = reporter
        self._settings = rollout.facts.settings
        self._stopped = stopped
        self._clock = clock
        self._failed = self._allowed = 0  # of the wave
        self._strangers: list[str] = []  # boards whose host keys are not known
        self._left_behind: set[str] = set()  # boards that could not be taken back

    def run(self) -> str:
        """Goes on to the end, or until a pause; returns the rollout's state."""
        rollout = self._rollout
        if rollout.facts.state == "rolling-back":
            return self._go_back()
        for wave in range(rollout.facts.wave, rollout.waves):
            rollout.set(wave=wave, state="running")
            rows = rollout.wave(wave)
            self._reporter.begin(f"wave {wave + 1}/{rollout.waves}", "done", rows)
            self._allowed = allowed_failures(self._settings.budget, len(rows))
            self._failed = sum(row.state == "failed" for row in rows)
            self._deploy(rows)
            if not self._exceeded() and not self._requested() and not self._strangers:
                self._soak(wave)
            if self._exceeded():
                return self._refuse(wave, len(rows))
            if self._strangers:
                return self._wait_for_keys()
            if requested := self._requested():
                return self._leave(requested)
            if wave + 1 < rollout.waves and (away := self._none_reached(wave)):
                return self._wait_for_boards(wave, away)
        return self._end("done")

    def _none_reached(self, wave: int) -> list[Row]:
        """Returns the boards of a wave that were away, if no board at all has the release yet."""
        if any(row.state == "done" for row in self._rollout.boards.values()):
            return []
        return [
            row
            for row in self._rollout.wave(wave)
            if row.state == "skipped" and row.error is not None and row.error.code in RETRIED_CODES
        ]

    # the end of a rollout that was not its goal

    def _leave(self, requested: str) -> str:
        if requested == "abort":
            self._abort_left()
        return self._end("aborted" if requested == "abort" else "paused")

    def _abort_left(self) -> None:
        for row in self._rollout.boards.values():
            if row.state in LEFT:
                self._set(row, "aborted", row.error)

    def _end(self, state: str, **more: Any) -> str:
        self._rollout.set(state=state, **more)
        self._rollout.request("")  # which is met
        return state

    def _wait_for_keys(self) -> str:
        """Pauses: a key that is accepted is all that is missing, and nothing was done there."""
        name, folder = self._rollout.name, self._rollout.folder
        once = resume_command(name, folder, UNKNOWN_HOST_KEY)
        error = Failure(
            UNKNOWN_HOST_KEY,
            f"the host key of {counted(len(self._strangers), 'board')} is not "
            f"known: {listed(sorted(self._strangers), 3)}; nothing was changed "
            "there, and the rollout is paused",
            name,
            f"{ACCEPT_KEY}; {once} accepts the keys they present, once",
        )
        return self._end("paused", error=error)

    def _wait_for_boards(self, wave: int, away: list[Row]) -> str:
        """Pauses: that the release works was seen on no board."""
        name = self._rollout.name
        for row in away:
            self._set(row, "pending", row.error)
        what = f"{listed([row.name for row in away], 3)} could not be reached"
        resume = resume_command(name, self._rollout.folder)
        error = Failure(
            NONE_REACHED,
            f"Wave {wave + 1}: no board serves the release ({what}), so no further "
            "wave begins; the rollout is paused",
            name,
            "switch a board of the wave on, or remove those that stay off from the "
            f"inventory; then {resume}",
        )
        self._reporter.note(error.message)
        return self._end("paused", error=error)

    def _refuse(self, wave: int, size: int) -> str:
        name, budget = self._rollout.name, self._settings.budget
        why: dict[str, list[str]] = defaultdict(list)
        for row in self._rollout.wave(wave):
            if row.state == "failed" and row.error is not None:
                why[row.error.code].append(row.name)
        reasons = "; ".join(f"{code}: {listed(names, 3)}" for code, names in why.items())
        hint = (
            f"see why with {action_command('status', name, self._rollout.folder)}, then "
            "start a new rollout"
        )
        if set(why) == {UNKNOWN_SIGNER}:
            hint = self._unknown_signer()
        error = Failure(
            "fleet.failures",
            f"Wave {wave + 1}: {self._failed} of {size} boards failed "
            f"(allowed: {self._allowed}, --max-failures {budget}): {reasons}",
            name,
            f"the wave was rolled back; {hint}",
        )
        self._reporter.note(f"{error.message}; rolling back the wave")
        self._rollout.set(state="rolling-back", scope=wave, error=error)
        return self._go_back()

    def _exceeded(self) -> bool:
        return self._failed > self._allowed

    def _requested(self) -> str:
        if self._stopped():
            return "pause"
        return self._rollout.requested()

    # a wave

    def _deploy(self, rows: list[Row]) -> None:
        self._pool(
            lambda: self._exceeded() or bool(self._requested()) or bool(self._strangers)
        ).each(
            [row for row in rows if row.state in LEFT],
            self._deploy_one,
            begin=self._begin,
            done=self._done,
            failed=self._not_done,
        )

    def _begin(self, row: Row) -> None:
        self._set(row, "running", attempts=row.attempts + 1)

    def _deploy_one(self, row: Row) -> Deployed:
        name = row.name

        def found(before: str, digest: str) -> None:
            # what served before this rollout, not before a second try of it
            known = row.before
            self._rollout.set_board(name, before=before if known is None else known, digest=digest)

        return self._driver.deploy(self._members[name], found)

    def _done(self, row: Row, answer: Deployed) -> None:
        self._set(
            row,
            "done",
            release=answer.release,
            digest=answer.digest,
            bytes_sent=row.bytes_sent + answer.bytes_sent,
            seconds=answer.seconds,
        )

    def _not_done(self, row: Row, error: EdgekitError, again: bool) -> None:
        error_facts = failure_of(error)
        if error.code == UNKNOWN_SIGNER:
            error_facts = replace(error_facts, hint=self._unknown_signer())
        if error.code == UNKNOWN_HOST_KEY and row.before is None:
            self._strangers.append(row.name)
            self._set(row, "pending", error_facts)
        elif again:
            self._set(row, "offline", error_facts)
        elif (
            error.code in RETRIED_CODES and row.before is None and self._settings.offline == "skip"
        ):
            self._set(row, "skipped", error_facts)
        else:
            self._failed += 1
            self._set(row, "failed", error_facts)

    def _unknown_signer(self) -> str:
        if self._rollout.facts.trust:
            return (
                "the bundle is signed with another key than the configuration's: add that key "
                "to the boards with edgekit trust"
            )
        return (
            "start a new rollout with --trust-key, which adds the configuration's signing key "
            "to the boards' trusted keys; or add a key with edgekit trust"
        )

    # after a wave

    def _soak(self, wave: int) -> None:
        """Waits, then checks that each board still serves what it was given."""
        if not self._settings.soak_s:
            return
        rows = [row for row in self._rollout.wave(wave) if row.state == "done"]
        if rows:
            self._reporter.note(
                f"wave {wave + 1}: watching the boards for {self._settings.soak_s:g} s"
            )
        end = self._clock() + self._settings.soak_s
        while rows and (left := end - self._clock()) > 0:
            if self._requested():
                return
            time.sleep(min(left, timeouts.TICK_S))
        self._pool(lambda: bool(self._requested())).each(
            rows,
            lambda row: self._driver.serving(self._members[row.name]),
            begin=lambda row: None,
            done=self._soaked,
            failed=lambda row, error, again: None if again else self._not_soaked(row, error),
        )

    def _soaked(self, row: Row, digest: str) -> None:
        if digest == row.digest:
            return
        text = f"it went back to {digest[:12]}" if digest else "it has no current release"
        given = row.digest or ""
        self._not_soaked(
            row,
            EdgekitError(
                f"{text} instead of {given[:12]}",
                code="fleet.went-back",
                where=row.name,
                hint="the board or an operator rolled it back: see edgekit releases",
            ),
        )

    def _not_soaked(self, row: Row, error: EdgekitError) -> None:
        self._failed += 1
        self._set(row, "failed", failure_of(error))

    # taking a wave or a rollout back

    def _go_back(self) -> str:
        """Takes back what switched, of the rollout's ``scope``; boards that never did stay."""
        rollout, scope = self._rollout, self._rollout.facts.scope
        rows = _switched(rollout, scope)
        which = "" if scope is None else f" wave {scope + 1}/{rollout.waves}"
        self._reporter.begin(f"rolling back{which}", "rolled-back", rows)
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
        self._abort_left()
        if left := [row.name for row in rows if row.name in self._left_behind]:
            rollout.set(error=self._not_all_back(left))
        return self._end("failed" if rollout.facts.error else "rolled-back")

    def _not_all_back(self, left: list[str]) -> Failure:
        facts = self._rollout.facts
        name, before, scope = facts.name, facts.error, facts.scope
        problem = f"{listed(left)} could not be rolled back"
        wave = () if scope is None else ("--wave", str(scope + 1))
        rollback = action_command("rollback", name, self._rollout.folder, *wave)
        return Failure(
            before.code if before else "fleet.not-rolled-back",
            f"{before.message}; {problem}" if before else problem,
            name,
            f"try again: {rollback}",
        )

    def _back_one(self, row: Row) -> bool:
        return self._driver.back(self._members[row.name], row.digest or "", row.before or "")

    def _is_back(self, row: Row, changed: bool) -> None:
        self._left_behind.discard(row.name)
        # a failed board that never switched stays failed: that says more
        if changed or row.state != "failed":
            self._set(row, "rolled-back", row.error)

    def _not_back(self, row: Row, error: EdgekitError) -> None:
        self._left_behind.add(row.name)
        # why it failed stays in the message; a second try to take it back says its own reason alone
        cause = row.cause or (row.error.message if row.error else "")
        message = f"{cause and f'{cause}; '}not rolled back: {error.message}"
        self._set(row, row.state, replace(failure_of(error), message=message), cause)

    # of all of these

    def _pool(self, stop: Callable[[], bool]) -> BoardPool:
        return BoardPool(self._settings, stop, clock=self._clock)

    def _set(
        self, row: Row, state: State, error: Failure | None = None, cause: str = "", **values: Any
    ) -> None:
        if cause != row.cause:
            values["cause"] = cause
        self._rollout.set_board(row.name, state=state, error=error, **values)
        self._reporter.board(row.name, state, error)


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
        self._reporter = reporter or RolloutReporter()
        self._progress = progress
        self._notes: list[str] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._reporter.end()

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
        configs, split = _read(config, inventory, selector, canary, waves)
        opened = configs[_place(config)]
        app = str(opened.file.name)
        name = self._new_name(name, app)
        # a bundle that cannot be had leaves no rollout
        made = first_bundles(self.store.folder, configs, opened, bundle, self._progress)
        now = time.time()
        facts = RolloutFacts(
            name=name,
            app=app,
            config=_place(config),
            config_digest={key: config_digest(one) for key, one in configs.items()},
            bundle=_place(bundle) if bundle else None,
            bundles={key: keep_bundle(self.store.folder, one) for key, one in made.items()},
            inventory=_place(inventory),
            selector=selector,
            settings=settings,
            terms={key: _terms_of(one) for key, one in configs.items()},
            trust=trust_key,
            created_at=now,
            updated_at=now,
            boards=tuple(Row(m.name, number, m) for number, wave in enumerate(split) for m in wave),
        )
        self.store.create(facts)
        return name

    def dry_run_deploy(
        self,
        config: str | Path,
        inventory: str | Path,
        *,
        selector: str | None = None,
        canary: int = 0,
        waves: str = DEFAULT_WAVES,
        budget: str = "0",
        name: str | None = None,
    ) -> Rehearsal:
        """Returns which boards a rollout would reach.

        Nothing is built, written down or connected to. Arguments and errors as of ``begin``;
        ``budget`` is of its settings.
        """
        check_budget(budget)
        configs, split = _read(config, inventory, selector, canary, waves)
        app = str(configs[_place(config)].file.name)
        rows = tuple(
            RehearsedBoard(member.name, member.board.host, number)
            for number, wave in enumerate(split, 1)
            for member in wave
        )
        return Rehearsal("deploy", self._new_name(name, app), app, rows)

    def dry_run_rollback(self, name: str, *, wave: int | None = None) -> Rehearsal:
        """Returns which boards would be taken back.

        No board is connected to. Arguments and errors as of ``roll_back``.
        """
        rollout = self.rollout(name)
        _check_wave(rollout, wave)
        rows = tuple(
            RehearsedBoard(row.name, row.host, row.wave + 1, row.digest, row.before)
            for row in _switched(rollout, wave)
        )
        return Rehearsal("rollback", name, rollout.facts.app, rows)

    def drive(self, name: str, *, stopped: Callable[[], bool] = lambda: False) -> FleetRollout:
        """Goes on with a rollout to its end, or until a pause; returns its document.

        Raises:
            UsageError: It has ended, there is none of that name, or another process drives it.
        """
        rollout = self.rollout(name)
        with rollout.driven():
            self._reopen(rollout)
            return self._driven(rollout, stopped)

    def roll_back(
        self, name: str, *, wave: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> FleetRollout:
        """Takes every board of a rollout, or of one wave, back to what served before it."""
        rollout = self.rollout(name)
        with rollout.driven():
            _check_wave(rollout, wave)
            rollout.request("")
            rollout.set(state="rolling-back", scope=wave, error=None)
            return self._driven(rollout, stopped)

    def request(self, name: str, action: str) -> str:
        """Requests "pause" or "abort"; returns the state, "pausing" while its driver ends.

        Raises:
            UsageError: The rollout has ended, or is being taken back.
        """
        rollout = self.rollout(name)
        state, alive = rollout.facts.state, rollout.is_driven()
        if state in ENDED:
            raise _ended(rollout)
        if state == "rolling-back" and (alive or action == "pause"):
            hint = f"{action_command('resume', name, self.store.folder)} continues that"
            if alive:
                hint = "stop the process that does it with Ctrl-C; a resume continues it later"
            # a pause would be ended by a resume, which deploys again
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
            UsageError: There is none.
        """
        with contextlib.suppress(KeyError):
            return self.store.rollout(name)
        if (by_ansible := ansible_folder(self.store.folder, Path(name).name)).is_dir():
            raise UsageError(
                f"{name} is run by Ansible, so edgekit has no state of it",
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

    def document(self, name: str) -> FleetRollout:
        """Returns a rollout as the state has it now."""
        rollout = self.rollout(name)
        return document_of(rollout, driven=rollout.is_driven(), notes=self._notes)

    def _new_name(self, name: str | None, app: str) -> str:
        there = {rollout.name: rollout for rollout in self.store.rollouts()}
        name = rollout_name(name, app, there.__contains__)
        if name in there:
            status = action_command("status", name, self.store.folder)
            raise UsageError(
                f"rollout {name!r} already exists (state {there[name].facts.state})",
                code="fleet.name",
                hint=f"{status} shows its progress; or give another --name",
            )
        return name

    def _driven(self, rollout: Rollout, stopped: Callable[[], bool]) -> FleetRollout:
        rollout.set(driver=f"process {os.getpid()} on {socket.gethostname()}")
        members = _members_now(rollout, self._note)
        bundles = Bundles(rollout, progress=self._progress)
        driver = self._driver_for(rollout, bundles)
        Drive(rollout, members, driver, self._reporter, stopped=stopped).run()
        self._reporter.end()
        return document_of(rollout, driven=False, notes=self._notes)

    def _reopen(self, rollout: Rollout) -> None:
        """Lets a rollout go on; one that is done tries again what was skipped."""
        state = rollout.facts.state
        if state == "rolling-back":
            return
        skipped = [row for row in rollout.boards.values() if row.state == "skipped"]
        if state in ENDED and (state != "done" or not skipped):
            raise _ended(rollout)
        if state == "done":
            for row in skipped:
                rollout.set_board(row.name, state="pending", error=None)
            rollout.set(wave=min(row.wave for row in skipped))
        rollout.request("")
        rollout.set(state="running", error=None)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._reporter.note(text)


def _ended(rollout: Rollout) -> UsageError:
    name, state = rollout.name, rollout.facts.state
    back = f", {action_command('rollback', name, rollout.folder)} rolls this one back"
    return UsageError(
        f"{name} has ended: {state}",
        code="fleet.ended",
        where=name,
        hint="start another with edgekit fleet deploy" + ("" if state == "rolled-back" else back),
    )


def _check_wave(rollout: Rollout, wave: int | None) -> None:
    if wave is not None and wave >= rollout.waves:
        raise UsageError(f"{rollout.name} has waves 1 to {rollout.waves}", where=rollout.name)


def _switched(rollout: Rollout, scope: int | None) -> list[Row]:
    """Returns the boards of a wave, or of all, that a rollout may have changed."""
    return [
        row
        for row in rollout.boards.values()
        # "before" was written down before the board was changed
        if (scope is None or row.wave == scope)
        and row.before is not None
        and row.before != row.digest
        and row.state in ("done", "failed", "running", "offline")
    ]


def _read(
    config: str | Path, inventory: str | Path, selector: str | None, canary: int, waves: str
) -> tuple[dict[str, Config], list[list[FleetBoard]]]:
    """Returns a rollout's configurations by path (the named one and boards' own), and its waves."""
    members = select(load_inventory(inventory), selector)
    opened = open_config(config)
    configs = {_place(config): opened}
    for member in members:
        if member.config is not None and str(member.config) not in configs:
            own = open_config(member.config)
            configs[str(member.config)] = _of_app(own, str(opened.file.name), member)
    return configs, make_waves(members, canary, waves)


def _place(path: str | Path) -> str:
    """Returns the path that a rollout keeps of a file: it may be resumed from another folder."""
    return str(Path(path).absolute())


def _terms_of(config: Config) -> Terms:
    """Returns a deployment's terms apart from its bundle, as ``edgekit deploy`` sends them."""
    deploy = config.file.deploy
    return Terms(deploy.keep, deploy.health.policy())


def _of_app(config: Config, app: str, member: FleetBoard) -> Config:
    """Returns a board's own configuration if it is of the rollout's application."""
    if config.file.name != app:
        problem = Problem(
            f"the configuration of {member.name} is for {config.file.name!r}, but the rollout "
            f"is for {app!r}",
            config.document.where(("name",)),
            "a rollout deploys one application: use one name in both configurations",
        )
        raise ConfigError([problem], code="fleet.other-app")
    return config


def _over_ssh(rollout: Rollout, bundles: Bundles, *, accept_host_key: bool) -> Driver:
    """Returns the driver of a rollout's boards over SSH, on the terms it began with."""
    facts, trust = rollout.facts, None
    if facts.trust:
        with contextlib.suppress(ConfigError):  # it may be gone; boards trust the key by now
            trust = signer_of(open_config(facts.config))
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


def _members_now(rollout: Rollout, note: Callable[[str], None]) -> dict[str, FleetBoard]:
    """Returns how the boards are reached: as the inventory says now, else as it said before.

    Args:
        rollout: The rollout; boards that the inventory no longer has are skipped.
        note: Called with what a person should know of it.
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
            not_listed = Failure("fleet.not-listed", text, name, "")
            rollout.set_board(name, state="skipped", error=not_listed)
            note(f"{name}: {text}: skipped")
        elif name in now and replace(now[name], where=members[name].where) != members[name]:
            rollout.set_board(name, member=now[name])
            members[name] = now[name]
    if more := sorted(set(now) - set(members)):
        note(
            f"not in this rollout: {counted(len(more), 'board')} of the inventory (added later "
            f"or not selected), the first is {more[0]}"
        )
    return members
