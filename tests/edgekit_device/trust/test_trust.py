"""Keys on a board: those of one name are told apart, and the last one does not go by chance."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.sign import allowed_signers_line, public_key
from edgekit_device.errors import DeviceError
from edgekit_device.files import locked
from edgekit_device.store.root import Root
from tests.edgekit_device.device_board import run_command

ANN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "E ann@desk"
BOB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "I bob@desk"


def tell(root: Path, **changes: Any) -> dict[str, Any]:
    stdin = io.BytesIO(json.dumps(changes).encode())
    answer: dict[str, Any] = run_command(Root(root), ["trust"], stdin)
    return answer


def test_a_name_of_several_keys_removes_none(tmp_path: Path) -> None:
    lines = [allowed_signers_line(key, "team") for key in (ANN, BOB)]
    tell(tmp_path, lines=lines)
    with pytest.raises(DeviceError) as caught:
        tell(tmp_path, remove=["team"])
    assert caught.value.code == "trust.ambiguous"
    for key in (ANN, BOB):
        assert public_key(key).fingerprint in caught.value.hint
    assert tell(tmp_path)["signers"] == ["team", "team"]
    assert tell(tmp_path, remove=[public_key(ANN).fingerprint])["removed"] == 1
    assert tell(tmp_path)["keys"][0]["fingerprint"] == public_key(BOB).fingerprint


@pytest.mark.parametrize("changes", [{"remove": ["ann@desk"]}, {"signers": []}])
def test_the_last_key_goes_only_by_force_or_when_it_is_revoked(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    for more in ({"force": True}, {"revoke": [ANN]}):
        tell(tmp_path, lines=[allowed_signers_line(ANN)])
        with pytest.raises(DeviceError) as caught:
            tell(tmp_path, **changes)
        assert (caught.value.code, "--force" in caught.value.hint) == ("trust.nobody-left", True)
        assert tell(tmp_path)["signers"] == ["ann@desk"]
        assert tell(tmp_path, **changes, **more)["signers"] == []


def test_a_key_that_is_trusted_is_not_introduced_again(tmp_path: Path) -> None:
    tell(tmp_path, lines=[allowed_signers_line(ANN, "release")])
    answer = tell(tmp_path, new=[allowed_signers_line(ANN), allowed_signers_line(BOB)])
    assert (answer["added"], answer["signers"]) == (1, ["release", "bob@desk"])
    with pytest.raises(DeviceError) as caught:
        tell(tmp_path, new=[f"* {ANN}"])
    assert caught.value.code == "trust.bad-line"


def test_who_only_looks_waits_for_nobody(tmp_path: Path) -> None:
    tell(tmp_path, lines=[allowed_signers_line(ANN)])
    with locked(tmp_path / "lock", shared=True):  # as while blobs arrive
        assert tell(tmp_path)["signers"] == ["ann@desk"]
