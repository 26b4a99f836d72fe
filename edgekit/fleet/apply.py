"""``edgekit fleet apply``: deploys to each board of an inventory the release that the inventory
assigns, so that new boards and boards that were away catch up. Meant for cron.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgekit.bundles.manifest import Bundle
from edgekit.config.loader import Config, open_config
from edgekit.deployment.client import BoardClient
from edgekit.documents import Coded, Document
from edgekit.errors import EdgekitError, UsageError
from edgekit.files import cache_folder
from edgekit.fleet.boards import Answer, LastAnswers, ServedRelease, board_address
from edgekit.fleet.bundles import signing_key_line
from edgekit.fleet.drive import TAKEN_BACK, UNKNOWN_SIGNER
from edgekit.fleet.driver import RETRIED_CODES, BoardPool, Deployed, Driver, Found, SshDriver
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.progress import RolloutReporter
from edgekit.fleet.store import RolloutStore, Row, deployment_terms
from edgekit.fleet.waves import ENDED, FleetBoard, RolloutSettings
from edgekit.pipeline.boards.requests import to_failure
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.build import check_bundle
from edgekit.pipeline.steps.bundle import read_bundle
from edgekit.text import counted, listed
from edgekit_device.errors import family
from edgekit_device.files import take_lock
from edgekit_device.protocol.failure import Failure

AppliedState = Literal["current", "updated", "away", "failed", "in-rollout", "not-begun"]


class AppliedBoard(Document):
    """A board with an assigned release.

    Attributes:
        state: "current": already served it; "updated": serves it now; "away": unreachable;
            "in-rollout": left to an unfinished rollout; "not-begun": skipped after too many
            failures.
        wanted: Digest of the assigned bundle.
        release: The release that serves now; None if unknown.
        error: Why the board does not serve the assigned bundle.
    """

    board: str
    host: str
    app: str
    state: AppliedState
    wanted: str
    release: str | None
    error: Annotated[Failure, Coded()] | None


class Applied(Document):
    """``edgekit.fleet.apply/1``: the outcome for the boards of an inventory.

    Attributes:
        select: The selector of the boards.
        state: "done" (even if boards are away), "failed" or "stopped".
        counts: Number of boards by state.
        failure: Why it failed.
    """

    schema_: Literal["edgekit.fleet.apply/1"] = Field(alias="schema")
    inventory: str
    select: str | None
    state: Literal["done", "failed", "stopped"]
    counts: dict[str, int]
    boards: list[AppliedBoard]
    failure: Annotated[Failure, Coded()] | None


@dataclass(frozen=True, slots=True)
class _AssignedBundle:
    """A board's bundle, and the configuration with its deployment settings."""

    bundle: Bundle
    config: Config


def apply(
    store: RolloutStore,
    inventory: str | Path,
    *,
    selector: str | None = None,
    parallel: int = 8,
    most_failed: int = 1,
    accept_host_key: bool = False,
    trust_key: bool = False,
    reporter: RolloutReporter | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Applied:
    """Deploys to each board the release that the inventory assigns, with one attempt a board.

    Args:
        store: The rollouts; boards of an unfinished rollout are skipped.
        inventory: The boards and their releases.
        selector: Selects boards; None for all.
        parallel: Number of boards at a time.
        most_failed: Failures after which no further board is started. A board that refuses a
            bundle that it took back is no failure.
        accept_host_key: Accept unknown host keys this once.
        trust_key: Make boards trust the keys of the configurations.
        reporter: Receives the progress.
        stopped: Called several times a second; once it returns True, no further board is started.

    Raises:
        UsageError: "fleet.no-release": no selected board has a release; "fleet.applying": another
            process applies the inventory.
        EdgekitError: The inventory, a configuration or a bundle is invalid; no board was changed.
    """
    reporter = reporter or RolloutReporter()
    members = select(load_inventory(inventory), selector)
    wanted = _read(members, str(inventory))
    with _hold_lock(store.folder / "apply.lock"):
        return _Apply(
            store, wanted, parallel, most_failed, accept_host_key, trust_key, reporter, stopped
        ).run([member for member in members if member.name in wanted], str(inventory), selector)


def _read(members: tuple[FleetBoard, ...], where: str) -> dict[str, _AssignedBundle]:
    """Returns the bundle and configuration of each board, by its name."""
    read: dict[tuple[Path, Path], _AssignedBundle] = {}
    found = {}
    for member in members:
        release = member.release
        if release is None:
            continue
        source = member.config or release.config
        if source is None:
            raise UsageError(
                "this board has a bundle, and no configuration for its deployment",
                code="fleet.no-release",
                where=member.where,
                hint="add edgekit_config, the configuration that the bundle was made from",
            )
        key = (source, release.bundle)
        if key not in read:
            config = open_config(source)
            with Pipeline(config) as pipeline:
                read[key] = _AssignedBundle(read_bundle(pipeline.context, release.bundle), config)
        found[member.name] = read[key]
    if not found:
        raise UsageError(
            "no board of the inventory is meant to serve a release",
            code="fleet.no-release",
            where=where,
            hint="add `releases: [{config: net.yaml, bundle: net.ekb}]` to the inventory "
            "(docs/fleet.md)",
        )
    return found


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        if not take_lock(lock.fileno()):
            raise UsageError(
                "another edgekit fleet apply is running with this state folder",
                code="fleet.applying",
                where=str(path),
                hint="wait until it ends",
            )
        yield


class _Apply:
    """One run of ``apply``; collects the outcome of each board."""

    def __init__(
        self,
        store: RolloutStore,
        wanted: dict[str, _AssignedBundle],
        parallel: int,
        most_failed: int,
        accept_host_key: bool,
        trust_key: bool,
        reporter: RolloutReporter,
        stopped: Callable[[], bool],
    ) -> None:
        self._store, self._wanted = store, wanted
        # no retries: the next run of cron tries again
        self._settings = RolloutSettings(parallel=parallel, deadline_s=0.0)
        self._most, self._failed = most_failed, 0
        self._reporter, self._stopped = reporter, stopped
        self._states: dict[str, AppliedState] = {}
        self._errors: dict[str, Failure] = {}
        self._deployed: dict[str, Deployed] = {}
        self._drivers: dict[str, Driver] = {
            config.path: SshDriver(
                str(config.file.name),
                self._bundle,
                state_folder=cache_folder(),
                terms_of=lambda member: deployment_terms(wanted[member.name].config),
                accept_host_key=accept_host_key,
                trust=signing_key_line(config) if trust_key else None,
            )
            for config in {bundle.config.path: bundle.config for bundle in wanted.values()}.values()
        }

    def run(self, members: list[FleetBoard], inventory: str, selector: str | None) -> Applied:
        busy = self._in_rollouts(members)
        self._states.update(dict.fromkeys(busy, "in-rollout"))
        rows = [Row(member.name, 0, member) for member in members if member.name not in busy]
        self._reporter.begin("apply", "done", rows)
        BoardPool(self._settings, self._should_stop).each(
            rows,
            self._deploy,
            begin=lambda row: self._reporter.board(row.name, "running"),
            done=self._record_deployment,
            failed=self._record_failure,
        )
        self._reporter.end()
        self._remember(members)
        boards = [self._board(member) for member in members]
        failure = self._failure()
        cut = self._stopped() and any(board.state == "not-begun" for board in boards)
        return Applied(
            schema="edgekit.fleet.apply/1",
            inventory=inventory,
            select=selector,
            state="stopped" if cut else "failed" if failure else "done",
            counts=dict(sorted(Counter(board.state for board in boards).items())),
            boards=boards,
            failure=failure,
        )

    def _in_rollouts(self, members: list[FleetBoard]) -> set[str]:
        """Returns the boards in an unfinished rollout of their application."""
        # by address, because names are only unique within an inventory
        places = {
            (rollout.facts.app, board_address(row.reached))
            for rollout in self._store.rollouts()
            if rollout.facts.state not in ENDED
            for row in rollout.boards.values()
        }
        return {
            member.name
            for member in members
            if (self._wanted[member.name].bundle.name, board_address(member)) in places
        }

    def _should_stop(self) -> bool:
        return self._failed > self._most or self._stopped()

    def _bundle(self, client: BoardClient, member: FleetBoard) -> Bundle:
        wanted = self._wanted[member.name]
        if wanted.bundle.manifest.backend != "reference":
            with Pipeline(wanted.config) as pipeline:
                check_bundle(pipeline.boards, client, wanted.bundle.manifest)
        return wanted.bundle

    def _deploy(self, row: Row) -> Deployed:
        driver = self._drivers[self._wanted[row.name].config.path]
        # nothing to record before the change: apply never rolls a board back
        found: Found = lambda before, digest: None  # noqa: E731
        return driver.deploy(row.reached, found)

    def _record_deployment(self, row: Row, answer: Deployed) -> None:
        self._deployed[row.name] = answer
        self._states[row.name] = "updated" if answer.changed else "current"
        self._reporter.board(row.name, "done")

    def _record_failure(self, row: Row, error: EdgekitError, again: bool) -> None:
        away = error.code in RETRIED_CODES
        self._states[row.name] = "away" if away else "failed"
        self._errors[row.name] = to_failure(error)
        # a refusal by one board is no evidence about the bundle on other boards
        self._failed += not away and family(error.code) != "install"
        self._reporter.board(row.name, "skipped" if away else "failed", self._errors[row.name])

    def _remember(self, members: list[FleetBoard]) -> None:
        """Stores the boards' releases for ``fleet status --inventory``."""
        seen, now = LastAnswers(self._store.folder), time.time()
        before, answers = seen.read(), {}
        for member in members:
            if (deployed := self._deployed.get(member.name)) is None:
                continue
            place, app = board_address(member), self._wanted[member.name].bundle.name
            known = before.get(place)
            apps = {served.app: served for served in known.apps} if known else {}
            old = apps.get(app)
            same = old is not None and old.release == deployed.release
            since = old.since if old is not None and same else None
            apps[app] = ServedRelease(
                app=app, release=deployed.release, digest=deployed.digest, since=since
            )
            answers[place] = Answer(at=now, apps=[apps[name] for name in sorted(apps)])
        seen.add(answers)

    def _board(self, member: FleetBoard) -> AppliedBoard:
        deployed, wanted = self._deployed.get(member.name), self._wanted[member.name].bundle
        return AppliedBoard(
            board=member.name,
            host=member.board.host,
            app=wanted.name,
            state=self._states.get(member.name, "not-begun"),
            wanted=wanted.digest,
            release=deployed.release if deployed else None,
            error=self._errors.get(member.name),
        )

    def _failure(self) -> Failure | None:
        failed = [name for name, state in self._states.items() if state == "failed"]
        if not failed:
            return None
        codes = {self._errors[name].code for name in failed}
        rest = "; no further board was begun" if self._failed > self._most else ""
        hint = "see why with edgekit status BOARD; change the release in the inventory if it is bad"
        if TAKEN_BACK in codes:
            hint = (
                "a board that took the release back keeps it away: give the inventory another one, "
                "or install it there with edgekit deploy CONFIG --again"
            )
        if UNKNOWN_SIGNER in codes:
            hint = "with --trust-key the boards trust the configuration's signing key from now on"
        return Failure(
            "fleet.failures",
            f"{counted(len(failed), 'board')} failed: {listed(sorted(failed), 3)}{rest}",
            "",
            hint,
        )
