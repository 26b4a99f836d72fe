"""What tune leaves on a board: nothing, or a sentence; and what it asks before it builds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.benchmark.monitor import live_sample
from edgekit.config.loader import open_config
from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline.cache import Cache
from edgekit.results.store import is_trial, trial_name
from edgekit.tuning.board import BoardMeasurer, leftover_notes, need_rails, remove_trials
from edgekit.tuning.run import tune
from edgekit.tuning.trials import TuningRequest, no_power_error
from edgekit_device.jobs.job import JobRow
from edgekit_device.release.releases import NO_RELEASES, AppReleases
from tests.cli.board_fakes import job_row
from tests.pipeline.nets import small_config

APP = "net-tune-0a1b2c"


class Lab:
    """A board that deploys a trial: its application can go once the job has ended."""

    name = "lab"

    def __init__(self, *apps: str, stuck: bool = False) -> None:
        self.apps = set(apps)
        self.running = (
            job_row("running", job="1", name=APP),
            job_row("running", job="2", name="net"),
            job_row("done", job="3", name=APP),
        )
        self.cancelled: list[str] = []
        self.stuck = stuck
        self.sampled: dict[str, Any] = {"t_s": 0.0}

    def jobs(self) -> tuple[JobRow, ...]:
        return self.running

    def cancel_job(self, id: str, *, grace_s: float) -> str:
        assert grace_s < 10
        self.cancelled.append(id)
        return "cancelled"

    def releases(self, app: str | None = None) -> dict[str, AppReleases]:
        # as the board does, it knows of an application that is asked for by name
        return dict.fromkeys(self.apps if app is None else [app], NO_RELEASES)

    def remove(self, app: str) -> None:
        if self.stuck or "1" not in self.cancelled:
            raise BoardError("somebody deploys", code="deploy.busy")
        self.apps.remove(app)

    def sample(self, notes: Any, **_: Any) -> None:
        assert not notes(live_sample(self.sampled, self.name))


def test_a_deployment_on_its_way_is_cancelled_and_goes() -> None:
    lab, said = Lab(APP, "net"), list[str]()
    client: Any = lab
    assert remove_trials(client, APP, said.append)
    assert (lab.cancelled, lab.apps, said) == (["1"], {"net"}, [])
    assert remove_trials(client, APP, said.append)
    assert not said


def test_what_stays_is_reported_with_the_command_that_removes_it() -> None:
    said: list[str] = []
    client: Any = Lab(APP, stuck=True)
    assert not remove_trials(client, APP, said.append)
    assert said == [
        f"the trials were left on lab as {APP} (somebody deploys); "
        f"remove them with edgekit remove BOARD --app {APP}"
    ]


def test_trials_of_another_folder_are_named() -> None:
    client: Any = Lab(APP, "net", "net-tune-ffffff", "other-tune-ffffff")
    (said,) = leftover_notes(client, "net", APP)
    assert "edgekit remove BOARD --app net-tune-ffffff" in said
    long = "n" * 64
    assert len(trial_name(long, "0a1b2c9")) == 64
    assert is_trial(trial_name(long, "0a1b2c9"), long)
    assert not is_trial("net-tune")


def test_energy_is_refused_before_anything_is_built() -> None:
    rails = SimpleNamespace(rails=SimpleNamespace(total=("VDD_IN",)))
    target: Any = rails
    lab = Lab()
    client: Any = lab
    with pytest.raises(EnvironmentLack, match="no power rails") as lack:
        need_rails(client, target)
    assert lack.value.code == "tune.no-power"
    lab.sampled = {"t_s": 0.0, "rails_mw": {"VDD_CPU": {"now": 1.0}}}
    with pytest.raises(EnvironmentLack, match="VDD_IN"):
        need_rails(client, target)
    lab.sampled = {"t_s": 0.0, "rails_mw": {"VDD_IN": {"now": 1.0}}}
    need_rails(client, target)


def test_nothing_is_said_to_be_built_where_the_board_shows_no_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def query_for(self: BoardMeasurer) -> None:
        assert self.config.file.placement.objective == "energy"
        raise no_power_error()

    monkeypatch.setattr(BoardMeasurer, "connect_board", query_for)
    config = open_config(small_config(tmp_path, precision="fp16", objective="latency"))
    said: list[str] = []
    with pytest.raises(EnvironmentLack, match="no power rails"):
        tune(
            config,
            TuningRequest("energy"),
            out=tmp_path / "tune",
            cache=Cache(),
            on_note=said.append,
        )
    assert not said
