"""Where the time of a deployment goes, as ``-v`` tells it; over a real sshd."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli.main import app
from edgekit.deployment.agent import Agent
from edgekit.deployment.ssh import SshTransport
from tests.boards.fixtures import StartBoard, boards, home
from tests.cli.test_taken_back import BOARD
from tests.pipeline.nets import small_config

__all__ = ["boards", "home"]


@pytest.mark.whole
@pytest.mark.boards
def test_each_command_on_the_board_is_reported_with_its_seconds(
    boards: StartBoard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extra = BOARD.format(b=boards().board, root=tmp_path / "lab")
    config = small_config(tmp_path / "config", precision="fp16", extra=extra)
    run, channels, commands = SshTransport.run, [], []

    def counted(self: SshTransport, argv: Any, **more: Any) -> Any:
        channels.append(argv)
        return run(self, argv, **more)

    def run_command(self: Agent, argv: Any, **more: Any) -> Any:
        commands.append(argv[0])
        return run_by_agent(self, argv, **more)

    run_by_agent = Agent.run
    monkeypatch.setattr(SshTransport, "run", counted)
    monkeypatch.setattr(Agent, "run", run_command)

    def deploy(*words: str) -> list[str]:
        """Returns the lines about the board; every command is among them, in order."""
        channels.clear()
        commands[:] = ["agent"]
        command = ["deploy", str(config), "--out", str(tmp_path / "out"), "--trust-key", *words]
        assert app(command) == 0
        said = map(str.strip, capsys.readouterr().err.splitlines())
        # a line within a step names it
        named = (re.match(r"(?:\[.*?\] \S+: )?(lab: .*)", line) for line in said)
        lines = [found[1] for found in named if found]
        reported = [line for line in lines if "lab: command " in line]
        assert all(re.search(r"[:,] \d+\.\d{3} s$", line) for line in lines)
        if words:
            assert len(channels) == 1
            assert len(commands) == len(reported)
            for number, (command, line) in enumerate(zip(commands, reported, strict=True), 1):
                assert line.startswith(f"lab: command {number}: {command}: ")
            assert any(line.startswith("lab: connecting: ") for line in lines)
            assert lines[-1].startswith(f"lab: {len(commands)} commands, ")
        return lines

    first = "\n".join(deploy("-v"))
    assert ": receive: " in first
    for state in ("verifying", "refitting", "testing", "switching", "soaking"):
        assert f"lab: the board's job: {state}: " in first
    unchanged = "\n".join(deploy("-v"))
    assert ": offer: " in unchanged
    assert "receive" not in unchanged
    assert "job" not in unchanged
    assert not any("command" in line or "job" in line for line in deploy())
