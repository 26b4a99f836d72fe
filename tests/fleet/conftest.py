"""Fixtures of this folder: a rollout of doubles, and real sshd boards."""

import pytest

from edgekit.fleet.rollout import Fleet
from edgekit.fleet.waves import RolloutSettings
from tests.boards.bundles import hand_made
from tests.boards.fixtures import home
from tests.command_line import typed
from tests.fleet.fleet_doubles import Boards, write_inventory
from tests.pipeline.nets import small_config

__all__ = ["home"]

QUICK = {"retry_s": 0.001, "most_s": 0.002, "deadline_s": 600.0}


class Given:
    """A state folder, an inventory, a configuration with its bundle given, and doubles."""

    def __init__(self, folder):
        from edgekit.bundles.files import write

        self.folder = folder
        self.config = small_config(folder)
        self.config.write_text(self.config.read_text().replace("name: small", "name: net"))
        self.bundle = write(hand_made(), folder / "net.ekb", stripped=False)
        self.inventory = write_inventory(folder / "fleet.yaml")
        self.boards = Boards()

    def fleet(self):
        return self.fleet_in(self.folder / "state")

    def fleet_in(self, state):
        return Fleet(state, driver_for=lambda rollout, bundles: self.boards)

    def begin(self, fleet, **options):
        settings = RolloutSettings(**{**QUICK, **options.pop("settings", {})})
        options = {"name": "one", **options}
        return fleet.begin(
            self.config, self.inventory, bundle=self.bundle, settings=settings, **options
        )

    def rollout(self, **options):
        with self.fleet() as fleet:
            return fleet.drive(self.begin(fleet, **options))


@pytest.fixture
def given(tmp_path):
    return Given(tmp_path)


@pytest.fixture
def run(given, monkeypatch):
    """Runs ``edgekit fleet`` on boards in memory; returns status, stdout and stderr."""
    monkeypatch.setattr("edgekit.fleet.rollout.SshDriver", lambda *_, **__: given.boards)
    return lambda *arguments: tuple(typed("fleet", *arguments))
