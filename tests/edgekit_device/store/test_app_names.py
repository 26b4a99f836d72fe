"""An app that is not there: the answer names those that are."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.store.root import Root
from tests.edgekit_device.device_board import run_command


@pytest.mark.parametrize("command", ["remove", "rollback"])
def test_who_errs_in_a_name_is_reported_the_names(tmp_path: Path, command: str) -> None:
    root = Root(tmp_path)
    for names, reported in (((), "none"), (("net", "other"), "net, other")):
        for name in names:
            (tmp_path / "apps" / name).mkdir(parents=True)
        with pytest.raises(DeviceError) as caught:
            run_command(root, [command, "--app", "nett"])
        assert (caught.value.code, caught.value.where) == ("app.unknown", "nett")
        assert caught.value.hint == f"available: {reported}"
