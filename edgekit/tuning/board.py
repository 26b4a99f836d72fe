"""Builds and measures plans on the configuration's first board, beside the serving application.
Also lists leftovers of earlier tunings and checks for power rails.

Plans are deployed to a separate application, ``NAME-tune-XXXXXX``, whose health checks are off (a
slower plan must be measured, not refused) and which is removed at the end, also after a Ctrl-C.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from edgekit import timeouts
from edgekit.benchmark.document import Bench
from edgekit.config.loader import Config, check_config, open_config
from edgekit.config.schema import RewriteSection, given_keys
from edgekit.errors import BoardError, EdgekitError, UsageError
from edgekit.pipeline.boards.changes import taken_back_note
from edgekit.pipeline.cache import Cache, json_digest
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.run import HOST_STEPS
from edgekit.pipeline.steps.build import backend_for
from edgekit.pipeline.steps.plan import plan, plan_identity, query, with_plan
from edgekit.pipeline.steps.rewrite import found_rewrites, model_digest, used_rewrites
from edgekit.placement.plan import Plan
from edgekit.results.store import is_trial, trial_name
from edgekit.targets.board import Target
from edgekit.tuning.trials import ORIGINAL, ORIGINAL_SECTION, REWRITTEN, no_power_error
from edgekit_device.board.samples import LiveSample, Sample
from edgekit_device.jobs.job import LIVE

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.placement.placing import PlacementQuery


# the largest `deploy.keep`: the final turns deploy earlier plans again
_MOST_RELEASES = 100
_HEALTH_CHECKS = ("latency_ms", "accuracy_min", "samples", "labels")
_ONCE_MS = 200


def trial_config(config: Config, objective: str, out: Path) -> Config:
    """Returns the configuration of trials: separate application, single board, no health checks.

    Args:
        config: The user's.
        objective: The tuning's objective.
        out: The tuning's folder; the application's name is derived from its path.
    """
    value = dict(config.document.value)
    value["name"] = trial_name(str(config.file.name), json_digest(str(out.absolute())))
    value["placement"] = {**value.get("placement", {}), "objective": objective}
    deploy = dict(value.get("deploy", {}))
    health = {k: v for k, v in deploy.get("health", {}).items() if k not in _HEALTH_CHECKS}
    # a trial is measured by `bench`; waiting for a soak would only cost budget
    deploy["health"] = {**health, "soak_s": 0, "measure_s": 0}
    deploy["keep"] = _MOST_RELEASES
    if deploy.get("boards"):
        deploy["boards"] = list(deploy["boards"])[:1]
    value["deploy"] = deploy
    return check_config(dataclasses.replace(config.document, value=value), config.folder, "")


class BoardMeasurer:
    """A ``trials.TunedNetwork`` on its board; a context manager that cleans the board at exit.

    Args:
        config: Of :func:`trial_config`.
        out: Folder of the trials' results.
        cache: As for ``Pipeline``.
        keep: Leave the application on the board.
        on_note: Called if the application could not be removed.
        settings: Further arguments of ``Pipeline``.

    Attributes:
        name: The network's name (original or rewritten); empty if there is only a single network.
        again_s: Seconds to deploy and measure a plan, building excluded; 0 before the first plan.
    """

    def __init__(
        self,
        config: Config,
        out: Path,
        cache: Cache,
        *,
        keep: bool = False,
        on_note: Callable[[str], object] = lambda text: None,
        **settings: Any,
    ) -> None:
        self.config = config
        self.app = str(config.file.name)
        self.notes: list[str] = []
        self._out, self._cache, self._settings = out, cache, settings
        self._keep_app = keep
        self._on_note = on_note
        self._clean = False
        self._stack = contextlib.ExitStack()
        self._client: BoardClient | None = None
        self._fp16_by_gate: tuple[str, ...] = ()
        self.again_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.clean()
        finally:
            self._stack.close()

    def _open(self, config: Config | None = None) -> Pipeline:
        pipeline = Pipeline(
            config or self.config,
            out=self._out,
            cache=self._cache,
            again=True,  # edgekit's own application: an interrupted trial is repeated
            **self._settings,
        )
        if self._client is not None:
            pipeline.boards.use([self._client])
        return pipeline

    @cached_property
    def first(self) -> Pipeline:
        """The pipeline of the starting plan; it holds the connection to the board."""
        return self._stack.enter_context(self._open())

    def connect_board(self) -> None:
        """Connects to the board; EnvironmentLack ("tune.no-power") if it has no power rails."""
        self._client = self.first.boards.clients()[0]
        placement = self.config.file.placement
        if placement.objective == "energy":
            if placement.rate_hz is not None:
                raise UsageError(
                    "tune measures the energy back to back, not at a rate",
                    code="tune.rate",
                    where="placement.rate_hz",
                    hint="remove placement.rate_hz, or compare measurements of your application",
                )
            need_rails(self._client, self.first.context.target)

    @cached_property
    def start(self) -> Plan:
        """Returns the starting plan after its build passed the accuracy gate."""
        if self._client is None:
            self.connect_board()
        self.first.build()
        self._fp16_by_gate = self.first.context.fp16_by_gate
        return plan(self.first.context)

    @property
    def query(self) -> PlacementQuery:
        """The placement query; known with the starting plan."""
        _ = self.start
        found = query(self.first.context)
        if self.clock == "board-measured":
            return found
        # the board's microseconds, so a bound on CPU time does not apply
        return dataclasses.replace(found, options=dataclasses.replace(found.options, bounds={}))

    @property
    def model(self) -> str:
        """Digest of the network."""
        return model_digest(self.first.context)

    @property
    def fp16_by_gate(self) -> tuple[str, ...]:
        """Layers that the accuracy gate keeps in FP16."""
        return self._fp16_by_gate

    @cached_property
    def name(self) -> str:
        context = self.first.context
        if found_rewrites(context).model is not None:
            return REWRITTEN if used_rewrites(context).applied else ORIGINAL
        return ""

    @cached_property
    def other(self) -> BoardMeasurer | None:
        """The measurer of the other network (original or rewritten); None if only one may be tried.

        ``rewrite.always`` and ``rewrite.enable: none`` fix the network, and so does a profile,
        whose times belong to a single network.
        """
        file, name = self.config.file, self.name
        if not name or file.rewrite.always or file.placement.profile is not None:
            return None
        change = ORIGINAL_SECTION if name == REWRITTEN else RewriteSection(always=True)
        found = BoardMeasurer(
            open_config(self.config, rewrite=given_keys(change)),
            self._out,
            self._cache,
            keep=True,  # both share the application, which the first measurer removes
            **self._settings,
        )
        # one connection, closed by the first measurer
        found._client, found._stack = self._client, self._stack
        # the original network's configuration has no other network
        found.name = ORIGINAL if name == REWRITTEN else REWRITTEN
        return found

    @cached_property
    def backend(self) -> str:
        """The backend that builds."""
        return backend_for(self.first.context, self.first.boards)

    @property
    def clock(self) -> str:
        """The clock of the measured times: "cpu-measured" or "board-measured"."""
        return "cpu-measured" if self.backend == "reference" else "board-measured"

    @property
    def identity(self) -> list[Any]:
        """Identifies measurements of this board and configuration."""
        _ = self.start  # the first build decides which layers stay in FP16
        assert self._client is not None
        pipeline = self.first
        board = pipeline.boards.identity(self._client)
        return [board, self.backend, list(plan_identity(pipeline.context)), self.config.file.name]

    def board_notes(self, config: Config) -> list[str]:
        """Returns notes on other applications on the board, as sentences.

        Args:
            config: The user's.
        """
        assert self._client is not None
        client, name = self._client, str(config.file.name)
        state, notes = client.app_releases(name), []
        if state.taken_back is not None:
            notes.append(taken_back_note(client.name, state.current, state.taken_back, config.path))
        notes += leftover_notes(client, name, self.app)
        with contextlib.suppress(EdgekitError):
            notes += [
                f"{app} is running on the board at the same time: they slow each other down"
                for app, status in client.status().apps.items()
                if status.serving is not None and app != self.app
            ]
        return notes

    def measure(self, placed: Plan) -> Bench:
        """Builds, deploys and measures a plan.

        Raises:
            EdgekitError: A step failed; the plan is then dropped.
        """
        _ = self.start
        config = self.config
        if self._fp16_by_gate or config.file.accuracy.fallback != "none":
            # the starting plan fixed the FP16 layers; a plan that needs more is dropped
            config = open_config(config, accuracy={"fallback": "none"})
        with self._open(config) as pipeline:
            pipeline.context = dataclasses.replace(
                with_plan(pipeline.context, placed, self._fp16_by_gate),
                method_by_gate=self.first.context.method_by_gate,
            )
            found = pipeline.bench()
            # a plan that is measured again needs no build: the turns take only these steps
            took = (step.seconds for step in pipeline.log.done if step.name not in HOST_STEPS)
            self.again_s = max(self.again_s, sum(took))
            return found

    def clean(self) -> None:
        """Removes the trials from the board once, unless ``keep`` is set."""
        if self._client is None or self._keep_app or self._clean:
            return
        # before the removal: after a second Ctrl-C the exit must not begin it again
        self._clean = True
        remove_trials(self._client, self.app, self._note)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._on_note(text)


def remove_trials(client: BoardClient, app: str, on_note: Callable[[str], object]) -> bool:
    """Removes the trials' application; reports leftovers and how to remove them.

    A deployment is a job that continues without this process (as after a Ctrl-C) and locks the
    application, so it is cancelled first.

    Returns:
        True if the application is no longer on the board.

    Raises:
        KeyboardInterrupt: A second Ctrl-C, after the leftover was reported.
    """
    how = f"edgekit remove BOARD --app {app}"
    try:
        for job in client.jobs():
            if job.name == app and job.state in LIVE:
                client.cancel_job(job.job, grace_s=timeouts.CANCEL_TRIAL_S)
        # request every application: a board lists an unknown name without releases
        if app in client.releases():
            client.remove(app)
    except EdgekitError as error:
        on_note(
            f"the trials were left on {client.name} as {app} ({error.message}); remove them "
            f"with {how}"
        )
        return False
    except KeyboardInterrupt:
        on_note(f"the trials may have been left on {client.name} as {app}; remove them with {how}")
        raise
    return True


def leftover_notes(client: BoardClient, name: str, app: str) -> list[str]:
    """Returns sentences on trials of this configuration that other tunings left on the board.

    Args:
        client: The board.
        name: The configuration's.
        app: This tuning's own application, which it removes at the end.
    """
    try:
        apps = client.releases()
    except EdgekitError:
        return []
    return [
        f"{other} on the board holds trials of a tuning in another folder; unless that tuning "
        f"still runs, remove it with edgekit remove BOARD --app {other}"
        for other in apps
        if other != app and is_trial(other, name)
    ]


def need_rails(client: BoardClient, target: Target) -> None:
    """Reads the board's rails once.

    Raises:
        EnvironmentLack: "tune.no-power": the rails of the total power are missing.
    """
    seen: list[Sample] = []

    def stop_at_first(sample: LiveSample) -> bool:
        seen.append(sample)
        return False

    try:
        client.sample(stop_at_first, interval_ms=_ONCE_MS, count=1)
    except BoardError:
        return  # the measurement reports this more precisely
    total = target.rails.total if target.rails else ()
    there = seen[0].rails() if seen else {}
    if not there or not total:
        raise no_power_error()
    if missing := [name for name in total if name not in there]:
        raise no_power_error(f"the board does not report the power rail {', '.join(missing)}")
