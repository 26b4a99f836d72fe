"""``edgekit top``: one look and a live page of a real sshd board whose /sys is a copy."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.benchmark.monitor import Top, live_sample
from edgekit.cli.main import app
from edgekit.cli.monitor import Resized
from edgekit.deployment.embedded_sshd import sshd
from edgekit.errors import BoardError, UsageError
from edgekit.pipeline.boards import addresses, live
from edgekit.reports.terminal.top import page
from edgekit_device.board.samples import LiveSample
from tests.boards.fixtures import need_sshd
from tests.edgekit_device.monitor_lines import fake_board
from tests.security.security_fuzz import times

BOARD_ID = "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A configuration whose board has a board's files, and the environment to ask it in."""
    need_sshd()
    folder = tmp_path_factory.mktemp("top")
    fake = fake_board(folder / "system")
    (fake / "proc/device-tree/compatible").write_text(BOARD_ID, "ascii")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nEDGEKIT_SYSTEM={fake} exec {sys.executable} "$@"\n', "ascii")
    python.chmod(0o755)
    (folder / "home/.ssh").mkdir(parents=True)
    with sshd(folder / "board") as server:
        board = server.board
        config = folder / "app.yaml"
        config.write_text(
            "version: 1\nname: app\nmodel: {builtin: light_resnet50}\n"
            "target: jetson-agx-orin-64gb\ndeploy:\n  boards:\n"
            f"    - {{name: lab, host: {board.host}, port: {board.port}, user: {board.user},\n"
            f"       key: {board.key}, host_key: '{board.host_key}', root: {board.root},\n"
            f"       python: {python}}}\n",
            "utf-8",
        )
        env = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        env.update(HOME=str(folder / "home"), EDGEKIT_CACHE=str(folder / "cache"))
        yield config, env


def test_one_look(
    where: tuple[Path, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, env = where
    for name in ("HOME", "EDGEKIT_CACHE"):
        monkeypatch.setenv(name, env[name])
    assert app(["top", str(config), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.top/1"
    assert (document["board"], document["target"]) == ("lab", "jetson-agx-orin-64gb")
    assert document["sample"]["runtime_status"] == {"dla0": "active", "dla1": "suspended"}
    assert document["facts"]["l4t"] == "36.4.3"
    assert document["sources"] == ["sysfs", "proc"]
    assert document["total_mw"] is None  # one rail of three
    # what is no terminal gets one page
    assert app(["top", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lab  NVIDIA Jetson AGX Orin")
    assert any(line.startswith("GPU") and "42 %" in line for line in lines)
    assert any(line.startswith("DLA0") and line.endswith("active") for line in lines)
    assert any("VDD_GPU_SOC 5.06 W" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.few(1)
@pytest.mark.parametrize(("key", "status"), [(b"q", 0), (b"\x03", 130)])
def test_live_until_a_key(where: tuple[Path, dict[str, str]], key: bytes, status: int) -> None:
    config, env = where
    child, terminal = pty.fork()
    if child == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "edgekit", "top", str(config), "--every", "0.1"],
            {**env, "TERM": "xterm"},
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    said = read_until(terminal, lambda text: text.count(b"GPU") >= 3)
    assert b"\x1b[?1049h" in said  # a screen of its own
    if key == b"q":  # Ctrl-Z: as other programs do it
        cbreak = termios.tcgetattr(terminal)[3]
        os.write(terminal, b"\x1a")
        said = read_until(terminal, lambda text: b"\x1b[?1049l" in text)
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
        assert termios.tcgetattr(terminal)[3] & termios.ICANON
        os.kill(child, signal.SIGCONT)
        said = read_until(terminal, lambda text: text.count(b"GPU") >= 2)
        assert b"\x1b[?1049h" in said
        assert termios.tcgetattr(terminal)[3] == cbreak
    os.write(terminal, key)
    said = read_until(terminal, lambda text: False)
    assert b"\x1b[?1049l" in said  # and the old one again
    assert b"Traceback" not in said
    assert (b"interrupted" in said) == (status == 130)
    assert b"finished steps" not in said
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


def test_a_dumb_terminal_gets_one_plain_page(where: tuple[Path, dict[str, str]]) -> None:
    config, env = where
    child, terminal = pty.fork()
    if child == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "edgekit", "top", str(config)],
            {**env, "TERM": "dumb"},
        )
    said = read_until(terminal, lambda text: False)
    assert b"GPU" in said
    assert b"\x1b" not in said
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_size_draws_the_page_again_but_never_within_a_drawing() -> None:
    drawn = []
    before = signal.getsignal(signal.SIGWINCH)
    with Resized(lambda: drawn.append("again")) as resized:
        signal.raise_signal(signal.SIGWINCH)
        assert drawn == ["again"]
        with resized.waits():
            signal.raise_signal(signal.SIGWINCH)
            drawn.append("whole")
        assert drawn == ["again", "whole", "again"]
    assert signal.getsignal(signal.SIGWINCH) == before


def test_a_narrow_page_has_all_cores_and_what_slows_the_board_first() -> None:
    cores = [{"percent": 10.0 + core, "mhz": 2201} for core in range(12)]
    line = {"t_s": 0.0, "cpu": cores, "other": {"cooling": {"gpu-throttle-alert": 1}}}
    (top,) = shown_of(line)
    lines = page(top, 40).plain.splitlines()
    assert lines[1].startswith("slowed  gpu-throttle-alert")
    assert max(map(len, lines)) <= 40
    assert all(f"{10 + core} %" in "\n".join(lines) for core in range(12))


def shown_of(line: dict[str, Any], name: str = "lab") -> list[Top]:
    """The documents of a board that sends this line."""

    class Sent(Cut):
        def __init__(self) -> None:
            super().__init__()
            self.name = name

        def sample(self, reported: Callable[[LiveSample], bool], **how: int) -> None:
            reported(live_sample(line, "lab"))

    found: list[Top] = []
    with patch.object(addresses, "open_client", lambda board, **options: Sent()):
        live.watch_board(live.select_board("lab"), "lab", lambda top: bool(found.append(top)))
    return found


def read_until(terminal: int, true: Callable[[bytes], bool]) -> bytes:
    """What a terminal shows until that is true, or until its program has ended."""
    said = b""
    end = time.monotonic() + 300
    while not true(said):
        assert time.monotonic() < end, said[-2000:]
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return said
        if not data:
            return said
        said += data
    return said


class Cut:
    """Clients that tell two samples each, then are cut; the third connection goes on."""

    def __init__(self) -> None:
        self.connections = 0
        self.name = "lab"

    def __enter__(self) -> Cut:
        self.connections += 1
        if self.connections == 2:
            raise BoardError("no route", code="board.unreachable", where="lab")
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def status(self) -> Any:
        net = SimpleNamespace(current="000001-aa", deployment=None, serving=None)
        return SimpleNamespace(apps={"net": net})

    def sample(self, reported: Callable[[LiveSample], bool], *, interval_ms: int) -> None:
        first = {"facts": {"module": "M"}, "power_mode": "30W"} if self.connections == 1 else {}
        for number in range(2):
            if not reported(live_sample({"t_s": float(number), **first}, "lab")):
                return
            first = {}
        raise BoardError("the connection was cut", code="board.connection-lost", where="lab")


def test_a_cut_is_shown_and_the_board_queried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, pauses, seen = Cut(), [], []
    monkeypatch.setattr(addresses, "open_client", lambda board, **options: cut)

    def reported(top: Top) -> bool:
        seen.append(top.connection)
        assert (top.facts.module, top.power_mode) == ("M", "30W")
        assert top.apps["net"].current == "000001-aa"
        return len(seen) < 6

    board = live.select_board("lab")
    live.watch_board(board, "lab", reported, pause=pauses.append)
    assert seen == [None, None, "the connection was cut", "no route", None, None]
    assert len(pauses) == 2


def test_who_looks_each_minute_has_a_first_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[dict[str, int]] = []

    class Slow(Cut):
        def sample(self, reported: Callable[[LiveSample], bool], **how: int) -> None:
            requested.append(how)
            reported(live_sample({"t_s": float(len(requested))}, "lab"))

    monkeypatch.setattr(addresses, "open_client", lambda board, **options: Slow())
    seen: list[float] = []

    def reported(top: Top) -> bool:
        seen.append(top.sample.t_s)
        return len(seen) < 2

    live.watch_board(live.select_board("lab"), "lab", reported, interval_ms=60_000)
    assert seen == [1.0, 2.0]
    assert requested == [{"interval_ms": 500, "count": 1}, {"interval_ms": 60_000}]


def test_a_board_that_was_never_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut()
    cut.connections = 1
    monkeypatch.setattr(addresses, "open_client", lambda board, **options: cut)
    with pytest.raises(BoardError, match="no route"):
        live.watch_board(live.select_board("lab"), "lab", lambda document: True)
    with pytest.raises(UsageError):
        live.select_board("lab", "another")


_ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda one: (
        st.lists(one, max_size=3)
        | st.dictionaries(
            st.sampled_from(["GR3D", "NVDLA0", "percent", "mhz", "now", "used_bytes", "serving"]),
            one,
        )
    ),
    max_leaves=6,
)
_GROUPS = ("engines", "cpu", "ram", "rails_mw", "temperatures_c", "other", "runtime_status")


@pytest.mark.whole
@times(60)
@given(st.lists(_ODD, min_size=10, max_size=10))
def test_the_page_bears_what_a_board_may_send(odd: list[Any]) -> None:
    # all of it, and each part alone, which is more often what a board may send
    sent = dict(zip((*_GROUPS, "facts", "warnings", "sources"), odd, strict=False))
    for line in (sent, *({name: value} for name, value in sent.items())):
        with contextlib.suppress(BoardError):
            for top in shown_of({"t_s": 0.0, **line}, "a\x1b[2Jb"):
                shown = page(top, 80)
                assert "\x1b" not in shown.plain
                assert max(map(len, shown.plain.splitlines())) <= 80
