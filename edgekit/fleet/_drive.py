"""Drives a rollout: wave by wave, what is to be done is on record before it is done.

Nothing is kept in memory that a restart would miss. A board that was "running" when its driver died
is asked what it serves, and only what is left is done.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from edgekit._listed import counted, listed
from edgekit.errors import EdgekitError
from edgekit.fleet._driver import AWAY, Deployed, Driver
from edgekit.fleet._hints import ACCEPT_KEY, UNKNOWN_HOST_KEY, ask, going_on
from edgekit.fleet._pool import Pool
from edgekit.fleet._store import Store
from edgekit.fleet._told import Told
from edgekit.fleet._types import LEFT, Member, Row, Settings
from edgekit.fleet._waves import allowed_failures

__all__ = ["UNKNOWN_SIGNER", "Drive"]

UNKNOWN_SIGNER = "bundle.unknown-signer"

_TICK_S = 0.2


class Drive:
    """One run of a driver over a rollout.

    Args:
        store: The state.
        rollout: The rollout's row.
        members: Its boards by name, as they are reached now.
        driver: How a board is asked.
        told: Where it is told.
        stopped: Whether this process was asked to stop (Ctrl-C); then it pauses.
        clock: Seconds of no day.
    """

    def __init__(
        self,
        store: Store,
        rollout: Mapping[str, Any],
        members: Mapping[str, Member],
        driver: Driver,
        told: Told,
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._id = int(rollout["id"])
        self._rollout = rollout
        self._members = members
        self._driver = driver
        self._told = told
        self._settings = Settings(**rollout["settings"])
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
            self._told.wave(wave, waves, rows)
            self._allowed = allowed_failures(self._settings.budget, len(rows))
            self._failed = sum(row["state"] == "failed" for row in rows)
            self._deploy(rows)
            if not self._exceeded() and not self._wish() and not self._strangers:
                self._soak(wave)
            if self._exceeded():
                return self._refuse(wave, len(rows))
            if self._strangers:
                return self._wait_for_keys()
            if wish := self._wish():
                return self._leave(wish)
        self._store.set_rollout(self._id, state="done", wish="")
        return "done"

    # the end of a rollout that was not its goal

    def _leave(self, wish: str) -> str:
        if wish == "abort":
            for row in self._store.boards(self._id):
                if row["state"] in LEFT:
                    self._set(row, "aborted")
        state = "aborted" if wish == "abort" else "paused"
        self._store.set_rollout(self._id, state=state, wish="")
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
        once = going_on(name, folder, error)
        error["hint"] = f"{ACCEPT_KEY}; {once} accepts what they show this once"
        self._store.set_rollout(self._id, state="paused", wish="", error=error)
        return "paused"

    def _refuse(self, wave: int, size: int) -> str:
        name, budget = str(self._rollout["name"]), self._settings.budget
        why: dict[str, list[str]] = defaultdict(list)
        for row in self._store.boards(self._id, wave):
            if row["state"] == "failed":
                why[row["error"]["code"]].append(row["name"])
        reasons = "; ".join(f"{code}: {listed(names, 3)}" for code, names in why.items())
        hint = f"see why with {ask('status', name, self._store.folder)}, then begin anew"
        if set(why) == {UNKNOWN_SIGNER}:
            hint = self._unknown_signer()
        error = {
            "code": "fleet.failures",
            "message": f"{self._failed} of {counted(size, 'board')} of wave {wave + 1} failed, "
            f"{self._allowed} may (--max-failures {budget}): {reasons}",
            "where": name,
            "hint": f"the wave was rolled back; {hint}",
        }
        self._told.note(f"{error['message']}; the wave is rolled back")
        self._store.set_rollout(self._id, state="rolling-back", scope=wave, error=error)
        self._rollout = self._store.rollout(str(self._rollout["name"]))
        return self._go_back()

    def _exceeded(self) -> bool:
        return self._failed > self._allowed

    def _wish(self) -> str:
        if self._stopped():
            return "pause"
        return self._store.wish(self._id)

    # a wave

    def _deploy(self, rows: list[Row]) -> None:
        self._pool(lambda: self._exceeded() or bool(self._wish()) or bool(self._strangers)).each(
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
        told = error.to_json()["error"]
        if error.code == UNKNOWN_SIGNER:
            told["hint"] = self._unknown_signer()
        if error.code == UNKNOWN_HOST_KEY and row["before"] is None:
            self._strangers.append(str(row["name"]))
            self._set(row, "pending", told)
        elif again:
            self._set(row, "offline", told)
        elif error.code in AWAY and row["before"] is None and self._settings.offline == "skip":
            self._set(row, "skipped", told)
        else:
            self._failed += 1
            self._set(row, "failed", told)

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
        """Waits, then asks each board whether it still serves what it was given."""
        if not self._settings.soak_s:
            return
        rows = [row for row in self._store.boards(self._id, wave) if row["state"] == "done"]
        if rows:
            self._told.note(f"wave {wave + 1}: watched for {self._settings.soak_s:g} s")
        end = self._clock() + self._settings.soak_s
        while rows and (left := end - self._clock()) > 0:
            if self._wish():
                return
            time.sleep(min(left, _TICK_S))
        self._pool(lambda: bool(self._wish())).each(
            rows,
            lambda row: self._driver.serving(self._members[row["name"]]),
            begin=lambda row: None,
            done=self._soaked,
            failed=lambda row, error, again: None if again else self._not_soaked(row, error),
        )

    def _soaked(self, row: Row, digest: str) -> None:
        if digest == row["digest"]:
            return
        told = f"it serves {digest[:12]} again" if digest else "it serves nothing any more"
        self._not_soaked(
            row,
            EdgekitError(
                f"{told}, not {row['digest'][:12]}",
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
            # before is on record since before it was changed
            if (scope is None or row["wave"] == scope)
            and row["before"] is not None
            and row["before"] != row["digest"]
            and row["state"] in ("done", "failed", "running", "offline")
        ]
        for row in rows:
            row["stays"] = False
        self._told.back(scope, 1 + max((row["wave"] for row in every), default=0), rows)
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
        self._store.set_rollout(self._id, state=state, wish="")
        return state

    def _not_all_back(self, left: list[str]) -> dict[str, str]:
        name = str(self._rollout["name"])
        before = self._rollout["error"]
        told = f"{listed(left)} could not be rolled back"
        scope = self._rollout["scope"]
        wave = () if scope is None else ("--wave", str(scope + 1))
        return {
            "code": before["code"] if before else "fleet.not-rolled-back",
            "message": f"{before['message']}; {told}" if before else told,
            "where": name,
            "hint": f"try them again: {ask('rollback', name, self._store.folder, *wave)}",
        }

    def _back_one(self, row: Row) -> bool:
        return self._driver.back(self._members[row["name"]], row["digest"], row["before"])

    def _is_back(self, row: Row, changed: bool) -> None:
        row["stays"] = False
        # a failed board that never switched stays failed: that says more
        if changed or row["state"] != "failed":
            self._set(row, "rolled-back", row["error"])

    def _not_back(self, row: Row, error: EdgekitError) -> None:
        told = error.to_json()["error"]
        row["stays"] = True
        # why it failed stays told; a second try to take it back says its own reason alone
        old = row["error"]["message"].partition("not rolled back: ")[0] if row["error"] else ""
        old = f"{old.removesuffix('; ')}; " if old else ""
        told["message"] = f"{old}not rolled back: {error.message}"
        self._set(row, row["state"], told)

    # of all of these

    def _pool(self, stop: Callable[[], bool]) -> Pool:
        return Pool(self._settings, stop, clock=self._clock)

    def _set(
        self, row: Row, state: str, error: Mapping[str, Any] | None = None, **values: Any
    ) -> None:
        row.update(state=state, error=error, **values)
        self._store.set_board(self._id, row["name"], state=state, error=error, **values)
        self._told.board(row["name"], state, error)
