"""A rollout's driver over SSH on a real board: its terms, what it takes back, and the benchmark."""

import json
from pathlib import Path

import pytest

from edgekit.bundles.push import push
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.cli import fleet, main
from edgekit.deployment.client import BoardClient
from edgekit.errors import BoardError
from edgekit.fleet.driver import SshDriver
from edgekit.fleet.waves import FleetBoard
from edgekit.pipeline.steps.bench import board_settings
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, remote
from tests.edgekit_device.source_servers import Handler, serving
from tests.pipeline.nets import small_config

__all__ = ["boards"]

pytestmark = [pytest.mark.slow, pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

POLICY = {"measure_s": 0.01, "latency_ms": 60_000.0}


def test_a_board_keeps_the_terms_and_goes_back_to_what_served(
    tmp_path, boards, capsys, monkeypatch
):
    key = ensure_key(tmp_path / "key")
    made = [hand_made(seed=seed) for seed in range(3)]
    one, two, three = (b.signed(sign(b.manifest_bytes, key)) for b in made)
    server = boards(tmp_path / "board")
    root = Path(server.board.root)
    (root / "allowed_signers").write_text(allowed_signers_line(Path(f"{key}.pub")) + "\n")
    member = FleetBoard(remote(server, name="cam"))
    mirror = tmp_path / "mirror"
    for bundle in (one, two, three):
        push(bundle, str(mirror))
    wanted, terms = [one], {"keep": 3, "policy": POLICY}
    driver = SshDriver("net", lambda client, m: wanted[0], state_folder=tmp_path / "cache",
                       terms_of=lambda m: terms, reason="tried")  # fmt: skip

    def journal():
        return json.loads((root / "apps/net/deployment.json").read_text())

    def deploy(bundle):
        wanted[0], found = bundle, []
        answer = driver.deploy(member, lambda *facts: found.append(facts))
        assert driver.serving(member) == bundle.digest
        return answer, found

    try:
        # blobs come from the mirror of the terms, not from here; the policy is the board's
        with serving(Handler, folder=mirror) as server_of:
            terms["source"] = server_of.url
            answer, found = deploy(one)
            assert set(server_of.blobs_requested()) == {*one.blobs, *one.weights}
        assert found == [("", one.digest)]
        # the loader and the manifest alone went over SSH
        assert answer.bytes_sent < 60_000 + sum(p.stat().st_size for p in (root / "bin").iterdir())
        policy = journal()["policy"]
        assert {name: policy[name] for name in POLICY} == POLICY
        assert policy["keep"] == 3

        # nothing served before it: the application goes
        assert driver.back(member, two.digest, "") is False
        assert driver.back(member, one.digest, "") is True
        assert driver.serving(member) == ""
        assert not (root / "apps/net/current").exists()

        # what went back stays, unless the terms say otherwise
        with pytest.raises(BoardError) as caught:
            deploy(one)
        assert caught.value.code == "install.taken-back"
        terms.update(source=None, put_back=True)
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
    finally:
        driver.close()

    config = small_config(tmp_path / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    board = member.board
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        "version: 1\nboards:\n"
        f"  - {{name: cam, host: 127.0.0.1, port: {board.port}, user: {board.user}, key: "
        f"{board.key}, host_key: '{board.host_key}', root: {root}, python: {board.python}, "
        "labels: {kind: x86}}\n"
        f"  - {{name: away, host: 127.0.0.1, port: 1, user: {board.user}, key: {board.key}, "
        f"host_key: '{board.host_key}', labels: {{kind: x86}}}}\n"
    )
    requested = []
    monkeypatch.setattr(
        "edgekit.fleet.measurement.board_settings",
        lambda *a, backend, **k: (
            requested.append(backend) or board_settings(*a, backend=backend, **k)
        ),
    )
    # what serves decides how it is measured, not what the board has
    hello = BoardClient.hello
    monkeypatch.setattr(BoardClient, "hello", lambda self: {**hello(self), "tensorrt": "10.3.0"})
    status, document = bench(capsys, config, inventory, "--select", "name=cam")
    assert status == 0
    assert requested == ["reference"]
    (row,) = document["boards"]
    assert row["release"].endswith(one.digest[:12])
    assert 0 < row["latency_ms"]["median"] < 1000
    fleet._show_bench({**document, "boards": [{**row, "iterations": 50}]})
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "-"  # no p99 of 50
    (kind,) = document["kinds"]
    assert (kind["kind"], kind["boards"], kind["slowest"]) == ("x86", 1, "cam")
    status, document = bench(capsys, config, inventory, "--select", "name=away")
    assert status == BoardError.exit_code
    assert document["boards"][0]["error"]["code"] == "board.unreachable"
    assert document["kinds"] == []


def bench(capsys, config, inventory, *more):
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main.main(["fleet", "bench", str(config), "-i", str(inventory), *more, "--json"])
    return caught.value.code, json.loads(capsys.readouterr().out)
