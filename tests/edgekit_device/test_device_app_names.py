"""An app that is not there: the answer names those that are."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from edgekit_device import DeviceError
from edgekit_device._deploy_back import do_rollback
from edgekit_device._root import Root
from edgekit_device._store_commands import do_remove


@pytest.mark.parametrize("command", [do_remove, do_rollback])
def test_who_errs_in_a_name_is_told_the_names(tmp_path: Path, command: object) -> None:
    root = Root(tmp_path)
    arguments = argparse.Namespace(app="nett", release=None, reason=None)
    for names, told in (((), "none"), (("net", "other"), "net, other")):
        for name in names:
            (tmp_path / "apps" / name).mkdir(parents=True)
        with pytest.raises(DeviceError) as caught:
            command(root, arguments, io.BytesIO())  # type: ignore[operator]
        assert (caught.value.code, caught.value.where) == ("app.unknown", "nett")
        assert caught.value.hint == f"there are: {told}"
