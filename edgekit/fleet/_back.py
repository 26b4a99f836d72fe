"""Taking a wave or a rollout back: the half of a drive that both its ends share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from edgekit._listed import listed
from edgekit.errors import EdgekitError
from edgekit.fleet._driver import Driver
from edgekit.fleet._hints import ask
from edgekit.fleet._pool import Pool
from edgekit.fleet._store import Store
from edgekit.fleet._told import Told
from edgekit.fleet._types import LEFT, Member, Row, Settings

__all__ = ["Back"]


class Back:
    """What one run of a driver over a rollout has, and how it takes boards back.

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

    def _pool(self, stop: Callable[[], bool]) -> Pool:
        return Pool(self._settings, stop, clock=self._clock)

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

    def _set(
        self, row: Row, state: str, error: Mapping[str, Any] | None = None, **values: Any
    ) -> None:
        row.update(state=state, error=error, **values)
        self._store.set_board(self._id, row["name"], state=state, error=error, **values)
        self._told.board(row["name"], state, error)
