"""A rollout's driver over SSH on a real board: its terms, and what it takes back."""

import json
from pathlib import Path

import pytest

from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.errors import BoardError
from edgekit.fleet.driver import SshDriver
from edgekit.fleet.store import Terms
from edgekit.fleet.waves import FleetBoard
from edgekit_device.protocol.codec import read
from edgekit_device.release.policy import Policy
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, remote

__all__ = ["boards"]

pytestmark = [pytest.mark.slow, pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

POLICY = Policy(measure_s=0.01, latency_ms=60_000.0)


def test_a_board_keeps_the_terms_and_goes_back_to_what_served(tmp_path, boards):
    key = ensure_key(tmp_path / "key")
    made = [hand_made(seed=seed) for seed in range(3)]
    one, two, three = (b.signed(sign(b.manifest_bytes, key)) for b in made)
    server = boards(tmp_path / "board")
    root = Path(server.board.root)
    (root / "allowed_signers").write_text(allowed_signers_line(Path(f"{key}.pub")) + "\n")
    member = FleetBoard(remote(server, name="cam"))
    wanted = [one]

    def driven(**more):
        return SshDriver(
            "net",
            lambda client, m: wanted[0],
            state_folder=tmp_path / "cache",
            terms_of=lambda m: Terms(3, POLICY),
            reason="tried",
            **more,
        )

    driver = driven()

    def journal():
        return json.loads((root / "apps/net/deployment.json").read_text())

    def deploy(bundle):
        wanted[0], found = bundle, []
        answer = driver.deploy(member, lambda *facts: found.append(facts))
        assert driver.serving(member) == bundle.digest
        return answer, found

    _, found = deploy(one)
    assert found == [("", one.digest)]
    assert read(Policy, journal()["policy"]) == POLICY

    # nothing served before it: the application goes
    assert driver.back(member, two.digest, "") is False
    assert driver.back(member, one.digest, "") is True
    assert driver.serving(member) == ""
    assert not (root / "apps/net/current").exists()

    # what went back stays, unless the terms say otherwise
    with pytest.raises(BoardError) as caught:
        deploy(one)
    assert caught.value.code == "install.taken-back"
    driver = driven(put_back=True)
    for bundle in (one, two, three):
        deploy(bundle)
    # the release before it, then one that is no longer the last
    assert driver.back(member, three.digest, two.digest) is True
    assert driver.serving(member) == two.digest
    assert driver.back(member, three.digest, two.digest) is False
    assert driver.back(member, two.digest, one.digest) is True
    assert driver.serving(member) == one.digest
    with pytest.raises(BoardError) as caught:
        driver.back(member, one.digest, "f" * 64)
    assert caught.value.code == "release.no-previous"

    # a board that still deploys the release may yet switch to it: it is waited for
    at = root / "apps/net/deployment.json"
    ended = at.read_text()
    at.write_text(json.dumps({**journal(), "state": "testing", "digest": one.digest}))
    with pytest.raises(BoardError) as caught:
        driver.back(member, one.digest, two.digest)
    assert caught.value.code == "deploy.busy"
    at.write_text(ended)
