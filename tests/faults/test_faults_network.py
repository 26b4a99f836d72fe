"""A slow link that loses packets: a network namespace whose loopback tc spoils, sshd inside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boards.fixtures import need_sshd
from tests.faults.conftest import Pair
from tests.faults.fault_report import Faults
from tests.faults.forked_board import APP, POLICY, Zygote, copy_of

pytestmark = [pytest.mark.boards, pytest.mark.slow]

_NETEM = [
    "netem delay 40ms 10ms loss 3% rate 2mbit",
    "netem delay 10ms reorder 25% duplicate 5% corrupt 1%",
]
# for kernels without netem: a bucket this small loses what does not fit
_BUCKET = ["tbf rate 1mbit burst 3kb limit 9kb"]
# runs in a network namespace of its own: its loopback is the bad link, to everybody inside
_PROGRAM = """
import pickle, subprocess, sys
from dataclasses import replace
from pathlib import Path
from edgekit.deployment.client import BoardClient
from edgekit.deployment.embedded_sshd import sshd
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
root, bundle, loader, policy, spoil = pickle.loads(Path(sys.argv[1]).read_bytes())
subprocess.run(["ip", "link", "set", "lo", "up", "mtu", "1500"], check=True)
subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", *spoil.split()], check=True)
with sshd(root) as server:
    board = replace(server.board, kind="remote")
    client = BoardClient(board, connect(board), loader)
    release = install(bundle, client, policy=policy)
    client.close()
    print(subprocess.run(["tc", "-s", "qdisc", "show", "dev", "lo"], capture_output=True,
                         text=True, check=True).stdout)
"""


def _namespace() -> list[str]:
    """The words before a command that runs it in a network namespace."""
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "-Urn"]


def _spoils() -> list[str]:
    """What this kernel can do to a link; skips where it is nothing."""
    for some in (_NETEM, _BUCKET):
        trial = f"ip link set lo up mtu 1500 && tc qdisc add dev lo root {some[0]}"
        argv = [*_namespace(), "sh", "-c", trial]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run(argv, capture_output=True, check=False).returncode == 0:
                return some
    pytest.skip("needs unshare, ip, tc and a kernel with netem or tbf")


@pytest.mark.whole
@pytest.mark.parametrize("index", range(len(_NETEM)))
def test_slow_and_lossy_link(
    index: int,
    pair: Pair,
    loader: Path,
    zygote: Zygote,
    tmp_path: Path,
    home: Path,
    faults: Faults,
) -> None:
    import pickle

    need_sshd()
    spoils = _spoils()
    if index >= len(spoils):
        pytest.skip("this kernel has no netem")
    root = copy_of(pair.board, tmp_path / "board")
    reported = tmp_path / "told"
    reported.write_bytes(pickle.dumps((root, pair.new, loader, POLICY, spoils[index])))
    faults.injected("slow and lossy link")
    done = subprocess.run(
        [*_namespace(), sys.executable, "-c", _PROGRAM, str(reported)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert spoils[index].split()[0] in done.stdout
    check = {"root": str(root), "app": APP, "allowed": [pair.new.digest]}
    found = zygote.run(check=check).check
    assert found is not None
    assert found["problems"] == [], found
    faults.survived("slow and lossy link")
