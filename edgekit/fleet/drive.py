"""One run over a rollout: deploys wave by wave, checks each wave, and rolls back if too many boards
fail. Each action is recorded before it runs, so that a restarted run continues with the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edgekit import timeouts
from edgekit.errors import EdgekitError
from edgekit.fleet.driver import RETRIED_CODES, BoardPool, Deployed, Driver
from edgekit.fleet.hints import ACCEPT_KEY, UNKNOWN_HOST_KEY, action_command, resume_command
from edgekit.fleet.progress import RolloutReporter
from edgekit.fleet.store import Rollout, Row
from edgekit.fleet.waves import LEFT, FleetBoard, State, allowed_failures, least_reached
from edgekit.pipeline.boards.requests import to_failure
from edgekit.text import counted, listed
from edgekit_device.protocol.failure import Failure

UNKNOWN_SIGNER = "bundle.unknown-signer"
TAKEN_BACK = "install.taken-back"
NONE_REACHED = "fleet.none-reached"
NOT_LISTED = "fleet.not-listed"
TOO_FEW_REACHED = "fleet.too-few-reached"


class Drive:
    """One run over a rollout. A board that was "running" when an earlier process died is asked for
    its release, and only the remaining work is done.

    Args:
        rollout: The rollout.
        members: Its boards by name, with their present addresses.
        driver: Deploys to boards.
        reporter: Receives the progress.
        stopped: Returns True once this process should stop (Ctrl-C); the rollout then pauses.
        clock: Monotonic time source, in seconds.
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
        self._strangers: list[str] = []  # boards with unknown host keys
        self._left_behind: set[str] = set()  # boards that could not be rolled back

    def run(self) -> str:
        """Runs to the end or to a pause; returns the rollout's state."""
        rollout = self._rollout
        if rollout.facts.state == "rolling-back":
            return self._roll_back_scope()
        for wave in range(rollout.facts.wave, rollout.waves):
            rollout.set(wave=wave, state="running")
            rows = rollout.wave(wave)
            self._reporter.begin(f"wave {wave + 1}/{rollout.waves}", "done", rows)
            self._allowed = allowed_failures(self._settings.budget, len(rows))
            self._failed = sum(row.state == "failed" for row in rows)
            self._deploy(rows)
            if not self._exceeded() and not self._requested() and not self._strangers:
                self._soak(wave)
            # too many failures count before keys and requests: the wave goes back in any case
            if self._exceeded():
                return self._refuse(wave, len(rows))
            if self._strangers:
                return self._wait_for_keys()
            if requested := self._requested():
                if requested == "abort":
                    self._abort_left()
                return self._end("aborted" if requested == "abort" else "paused")
            if wave + 1 < rollout.waves and (away := self._none_reached(wave)):
                return self._wait_for_boards(wave, away)
        return self._finish()

    def _finish(self) -> str:
        """Ends a rollout after its last wave, if enough boards were reached."""
        # without the boards that the inventory no longer has
        rows = [
            row
            for row in self._rollout.boards.values()
            if row.error is None or row.error.code != NOT_LISTED
        ]
        away = [row.name for row in rows if row.state == "skipped"]
        least = least_reached(self._settings.min_reached, len(rows)) if rows else 0
        if len(rows) - len(away) >= least:
            return self._end("done")
        name, folder = self._rollout.name, self._rollout.folder
        error = Failure(
            TOO_FEW_REACHED,
            f"{len(rows) - len(away)} of {counted(len(rows), 'board')} were reached (needed: "
            f"{least}, --min-reached {self._settings.min_reached}); {listed(away, 3)} "
            "could not be reached, and the rollout is paused",
            name,
            f"try them again with {resume_command(name, folder)}; end the rollout as it is with "
            f"{action_command('abort', name, folder)}",
        )
        self._reporter.note(error.message)
        return self._end("paused", error=error)

    def _none_reached(self, wave: int) -> list[Row]:
        """Returns a wave's unreachable boards if no board has the release yet."""
        if any(row.state == "done" for row in self._rollout.boards.values()):
            return []
        return [
            row
            for row in self._rollout.wave(wave)
            if row.state == "skipped" and row.error is not None and row.error.code in RETRIED_CODES
        ]

    # ends other than success

    def _abort_left(self) -> None:
        for row in self._rollout.boards.values():
            if row.state in LEFT:
                self._set(row, "aborted", row.error)

    def _end(self, state: str, **more: Any) -> str:
        self._rollout.set(state=state, **more)
        self._rollout.request("")  # the request is fulfilled
        return state

    def _wait_for_keys(self) -> str:
        """Pauses until the user accepts host keys; no board with an unknown key was changed."""
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
        """Pauses, because no board has confirmed that the release works."""
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
        status = action_command("status", name, self._rollout.folder)
        again = self._rollout.deploy_command(*(["--again"] if TAKEN_BACK in why else []))
        hint = f"see why with {status}; try again with: {again}"
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
        self._rollout.set(state="rolling-back", scope=wave, refused=wave, error=error)
        return self._roll_back_scope()

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
            done=self._record_deployment,
            failed=self._record_failure,
        )

    def _begin(self, row: Row) -> None:
        self._set(row, "running", attempts=row.attempts + 1)

    def _deploy_one(self, row: Row) -> Deployed:
        name = row.name

        def found(before: str, digest: str) -> None:
            # the release before this rollout, not before its second attempt
            known = row.before
            self._rollout.set_board(name, before=before if known is None else known, digest=digest)

        try:
            return self._driver.deploy(self._members[name], found)
        except EdgekitError as error:
            if error.code not in RETRIED_CODES and row.before is not None:
                # for people: most failed boards still serve their previous release
                with contextlib.suppress(EdgekitError):
                    serves = self._driver.serving(self._members[name])
                    self._rollout.set_board(name, serves=serves)
            raise

    def _record_deployment(self, row: Row, answer: Deployed) -> None:
        self._set(
            row,
            "done",
            release=answer.release,
            digest=answer.digest,
            # the sum over all attempts
            bytes_sent=row.bytes_sent + answer.bytes_sent,
            seconds=answer.seconds,
        )

    def _record_failure(self, row: Row, error: EdgekitError, again: bool) -> None:
        error_facts = to_failure(error)
        if error.code == UNKNOWN_SIGNER:
            error_facts = replace(error_facts, hint=self._unknown_signer())
        if error.code == TAKEN_BACK:
            hint = f"to deploy it anyway: {self._rollout.deploy_command('--again')}"
            error_facts = replace(error_facts, hint=hint)
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
        """Waits, then checks that each board still serves its new release."""
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
            done=self._check_soaked,
            failed=lambda row, error, again: None if again else self._fail_soaked(row, error),
        )

    def _check_soaked(self, row: Row, digest: str) -> None:
        if digest == row.digest:
            return
        self._rollout.set_board(row.name, serves=digest)
        text = f"it went back to {digest[:12]}" if digest else "it has no current release"
        given = row.digest or ""
        self._fail_soaked(
            row,
            EdgekitError(
                f"{text} instead of {given[:12]}",
                code="fleet.went-back",
                where=row.name,
                hint="the board or an operator rolled it back: see edgekit releases",
            ),
        )

    def _fail_soaked(self, row: Row, error: EdgekitError) -> None:
        self._failed += 1
        self._set(row, "failed", to_failure(error))

    # rolling back a wave or a rollout

    def _roll_back_scope(self) -> str:
        """Rolls back the boards in the rollout's ``scope`` that switched."""
        rollout, scope = self._rollout, self._rollout.facts.scope
        rows = switched_rows(rollout, scope)
        which = "" if scope is None else f" wave {scope + 1}/{rollout.waves}"
        self._reporter.begin(f"rolling back{which}", "rolled-back", rows)
        if rows:
            self._pool(self._stopped).each(
                rows,
                self._roll_back_board,
                begin=lambda row: None,
                done=self._record_rollback,
                failed=lambda row, error, again: self._record_failed_rollback(row, error),
            )
        # the state stays "rolling-back", so that a resume continues it
        if self._stopped():
            return "rolling-back"
        self._abort_left()
        if left := [row.name for row in rows if row.name in self._left_behind]:
            rollout.set(error=self._rollback_failure(left))
        return self._end("failed" if rollout.facts.error else "rolled-back")

    def _rollback_failure(self, left: list[str]) -> Failure:
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

    def _roll_back_board(self, row: Row) -> bool:
        # the board itself succeeded and goes back because of others: it may get the bundle again
        others_failed = row.wave == self._rollout.facts.refused and row.state != "failed"
        return self._driver.back(
            self._members[row.name], row.digest or "", row.before or "", others_failed=others_failed
        )

    def _record_rollback(self, row: Row, changed: bool) -> None:
        if changed and row.serves is not None:
            self._rollout.set_board(row.name, serves=row.before)
        self._left_behind.discard(row.name)
        # a failed board that never switched keeps the state "failed", which is more precise
        if changed or row.state != "failed":
            self._set(row, "rolled-back", row.error)

    def _record_failed_rollback(self, row: Row, error: EdgekitError) -> None:
        self._left_behind.add(row.name)
        # the message keeps the first reason; a second attempt to roll back has only its own
        cause = row.cause or (row.error.message if row.error else "")
        message = f"{cause and f'{cause}; '}not rolled back: {error.message}"
        self._set(row, row.state, replace(to_failure(error), message=message), cause)

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


def switched_rows(rollout: Rollout, scope: int | None) -> list[Row]:
    """Returns the boards of a wave, or of all waves, that a rollout may have changed."""
    return [
        row
        for row in rollout.boards.values()
        # "before" is recorded before the board changes
        if (scope is None or row.wave == scope)
        and row.before is not None
        and row.before != row.digest
        and row.state in ("done", "failed", "running", "offline")
    ]
