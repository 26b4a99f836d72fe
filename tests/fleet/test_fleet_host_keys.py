"""A host key that nobody knows pauses a rollout; and what a rollout took back stays taken back."""

import json

import pytest

from edgekit.bundles.files import write
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.cli import main
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards
from tests.pipeline.nets import small_config

__all__ = ["boards"]

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]


@pytest.fixture
def fleet(tmp_path, boards, capsys):
    """One board behind sshd, whose host key is not pinned, and ``edgekit fleet``."""
    board = boards(tmp_path / "board").board
    key = ensure_key(tmp_path / "key")
    (tmp_path / "board" / "allowed_signers").write_text(
        allowed_signers_line(tmp_path / "key.pub") + "\n"
    )
    config = small_config(tmp_path / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        f"version: 1\nboards:\n  - {{name: cam, host: {board.host}, port: {board.port}, user: "
        f"{board.user}, key: {board.key}, root: {tmp_path / 'board'}, python: {board.python}}}\n"
    )
    files = []
    for seed in range(2):
        bundle = hand_made(seed=seed)
        signed = bundle.signed(sign(bundle.manifest_bytes, key))
        files.append(str(write(signed, tmp_path / f"{seed}.ekb", stripped=False)))

    def call(action, *words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main.main(["fleet", action, *words, "--state", str(tmp_path / "state"), "--json"])
        document = json.loads(capsys.readouterr().out)
        return caught.value.code, document

    def deploy(name, seed, *more):
        return call(
            "deploy",
            str(config),
            "-i",
            str(inventory),
            "--name",
            name,
            "--bundle",
            files[seed],
            *more,
        )

    return call, deploy


def test_an_unknown_host_key_costs_no_rollout_its_name(fleet, tmp_path):
    call, deploy = fleet
    status, document = deploy("june", 0)
    assert (status, document["state"], document["failure"]["code"]) == (
        1,
        "paused",
        "board.unknown-host-key",
    )
    assert "cam" in document["failure"]["message"]
    for word in ("ssh-keygen -lf", "host_key:", "edgekit fleet resume june --accept-host-key"):
        assert word in document["failure"]["hint"]
    (row,) = document["boards"]
    assert (row["state"], row["error"]["code"]) == ("pending", "board.unknown-host-key")
    assert "SHA256:" in row["error"]["message"]
    assert not (tmp_path / "board" / "apps").exists()
    # until it is accepted it stays so
    assert call("resume", "june")[1]["state"] == "paused"
    status, document = call("resume", "june", "--accept-host-key")
    assert (status, document["state"], document["failure"]) == (0, "done", None)
    assert document["boards"][0]["state"] == "done"


def test_what_a_rollout_took_back_stays_until_it_is_put_back(fleet, tmp_path):
    _, deploy = fleet
    call = lambda *words: fleet[0](*words, "--accept-host-key")  # noqa: E731
    serving = tmp_path / "board" / "apps" / "net" / "current"
    assert deploy("one", 0, "--accept-host-key")[0] == 0
    old = serving.resolve().name
    assert deploy("two", 1, "--accept-host-key")[0] == 0
    assert call("rollback", "two")[0] == 0
    assert serving.resolve().name == old
    status, document = deploy("three", 1, "--accept-host-key")
    assert status == 1
    error = document["boards"][0]["error"]
    assert (error["code"], "rollout two" in error["message"]) == ("install.taken-back", True)
    assert "--again" in error["hint"]
    assert serving.resolve().name == old
    status, _ = deploy("four", 1, "--accept-host-key", "--again")
    assert (status, serving.resolve().name != old) == (0, True)
    # also where nothing served before, and the application was removed for it
    assert call("rollback", "four")[0] == 0
    assert call("rollback", "one")[0] == 0
    assert not serving.exists()
    assert deploy("five", 0, "--accept-host-key")[1]["boards"][0]["error"]["code"] == (
        "install.taken-back"
    )
