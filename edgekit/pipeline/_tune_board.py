"""Plans built and measured on the configuration's first board, beside what serves there.

They go to an application of their own, ``NAME-tune-XXXXXX``, whose health checks are off (a slower
plan must be measured, not refused) and which is removed in the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from edgekit.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.deploy import BoardClient
    from edgekit.pipeline._cache import Cache
    from edgekit.pipeline._pipeline import Pipeline
    from edgekit.placement import Ask, Plan

__all__ = ["BoardMeasurer", "trial_config"]

_KEEP = 100
_LONGEST = 64
_ONCE = ("check", "rewrite", "calibrate", "plan", "build")  # steps that a plan needs one time
_OFF = ("latency_ms", "latency_factor", "accuracy_min", "samples", "labels")


def trial_config(config: Config, objective: str, out: Path) -> Config:
    """Returns the configuration of trials: another application, one board, no health checks.

    Args:
        config: The user's.
        objective: What is tuned for.
        out: The folder of the tuning, which names the application.
    """
    from edgekit.config._load import check_config
    from edgekit.pipeline._cache import digest_of

    value: dict[str, Any] = dict(config.document.value)
    ending = f"-tune-{digest_of(str(out.absolute()))[:6]}"
    value["name"] = str(config.file.name)[: _LONGEST - len(ending)].rstrip("._-") + ending
    value["placement"] = {**value.get("placement", {}), "objective": objective}
    deploy = dict(value.get("deploy", {}))
    health = {k: v for k, v in deploy.get("health", {}).items() if k not in _OFF}
    deploy["health"] = {**health, "soak_s": 0, "measure_s": 0}
    deploy["keep"] = _KEEP
    if deploy.get("boards"):
        deploy["boards"] = list(deploy["boards"])[:1]
    value["deploy"] = deploy
    return check_config(dataclasses.replace(config.document, value=value), config.folder, "")


class BoardMeasurer:
    """Measures plans (``_tune.Measurer``); a context manager, at whose end the board is clean.

    Args:
        config: Of :func:`trial_config`.
        out: Folder of the trials' results.
        cache: As for ``Pipeline``.
        keep: Leave the application on the board.
        settings: Further arguments of ``Pipeline``.

    Attributes:
        again_s: Seconds that a plan took beside building it, so far; 0 before the first.
    """

    def __init__(
        self, config: Config, out: Path, cache: Cache, *, keep: bool = False, **settings: Any
    ) -> None:
        self.config = config
        self.app = str(config.file.name)
        self.notes: list[str] = []
        self._out, self._cache, self._settings = out, cache, settings
        self._keep_app = keep
        self._stack = contextlib.ExitStack()
        self._client: BoardClient | None = None
        self._kept: tuple[str, ...] = ()
        self.again_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.clean()
        finally:
            self._stack.close()

    def _open(self, config: Config | None = None) -> Pipeline:
        from edgekit.pipeline._pipeline import Pipeline

        pipeline = Pipeline(
            config or self.config, out=self._out, cache=self._cache, **self._settings
        )
        if self._client is not None:
            pipeline.boards.use([self._client])
        return pipeline

    @cached_property
    def first(self) -> Pipeline:
        """The pipeline of the starting plan; it holds the connection to the board."""
        return self._stack.enter_context(self._open())

    @cached_property
    def start(self) -> Plan:
        """The plan to begin with, once its build passes the accuracy gate."""
        pipeline = self.first
        self._client = pipeline.boards.clients()[0]
        pipeline.build()
        self._kept = tuple(pipeline.work.kept)
        return pipeline.work.plan

    @property
    def ask(self) -> Ask:
        """What is placed; known with the starting plan."""
        _ = self.start
        ask = self.first.work.ask
        if self.clock == "board-measured":
            return ask
        # microseconds of the board: no bound of a CPU's time
        return dataclasses.replace(ask, options=dataclasses.replace(ask.options, bounds={}))

    @cached_property
    def backend(self) -> str:
        """Who builds."""
        return self.first.building.backend

    @property
    def clock(self) -> str:
        """Whose time is measured."""
        return "cpu-measured" if self.backend == "reference" else "board-measured"

    @property
    def origin(self) -> dict[str, Any]:
        """Backend of the measurements."""
        return {"backend": self.backend}

    @property
    def identity(self) -> list[Any]:
        """What tells this board's and configuration's measurements from others'."""
        _ = self.start
        assert self._client is not None
        pipeline = self.first
        board = pipeline.boards.identity(self._client)
        return [board, self.backend, list(pipeline.work.plan_identity), self.config.file.name]

    def busy(self) -> list[str]:
        """Returns applications that serve on the board while it measures."""
        if self._client is None:
            return []
        try:
            apps = self._client.status()["apps"]
        except (EdgekitError, KeyError):
            return []
        return [name for name, one in apps.items() if one.get("serving") and name != self.app]

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """Builds, deploys and measures a plan.

        Raises:
            EdgekitError: What fails; the plan is then out.
        """
        _ = self.start
        config = self.config
        if self._kept or config.file.accuracy.fallback != "none":
            from edgekit.config import open_config

            # what a plan must keep in FP16 was found with the first; one that needs more is out
            config = open_config(config, accuracy={"fallback": "none"})
        with self._open(config) as pipeline:
            pipeline.work.take(plan, self._kept)
            found = pipeline.bench()
            took = (one["seconds"] for one in pipeline._steps.done if one["name"] not in _ONCE)
            self.again_s = max(self.again_s, sum(took))
            return found

    def clean(self) -> None:
        """Removes the trials from the board, unless they are to stay."""
        if self._client is None or self._keep_app:
            return
        try:
            if self.app in self._client.releases(self.app).get("apps", {}):
                self._client.remove(self.app)
        except EdgekitError as error:
            self.notes.append(
                f"the trials could not be removed from the board ({error.message}): "
                f"edgekit remove BOARD --app {self.app}"
            )
