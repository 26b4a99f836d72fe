"""The life of a release on a board: commands, the board's folder, and what passes between them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.embedded_sshd import sshd
from tests.boards.fixtures import home, need_sshd
from tests.contracts import boards
from tests.contracts.conftest import Answer, Golden
from tests.pipeline.nets import small_config, small_net
from tests.trt_double.board import board_python, offences

__all__ = ["home"]

pytestmark = [pytest.mark.boards, pytest.mark.slow]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """One sshd for all boards of these tests: each has a folder and a Python of its own."""
    need_sshd()
    mask = os.umask(0o022)  # the server's, and so the boards'
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(sshd(tmp_path_factory.mktemp("sshd")))
        finally:
            os.umask(mask)
        yield running.board


class Life:
    """Runs commands against boards and compares what they answer, send and leave."""

    def __init__(
        self, folder: Path, server: Board, command: Callable[..., Answer], golden: Golden
    ) -> None:
        self.folder, self._server = folder, server
        self._command, self._golden = command, golden
        self._names = boards.Names()
        self._pythons: list[Path] = []
        self._reported: dict[str, str] = {}
        self._before: dict[str, Any] = {}
        self.key = boards.signing_key(folder)
        #: The folder of the goldens: a folder is recorded whole, on one class of CPU.
        self.goldens = "boards"

    def board(self, name: str, python: str | Path = sys.executable) -> str:
        """A board's row of a configuration; ``python`` is its Python."""
        own = boards.recording_python(self.folder / f"{name}-python", python)
        self._pythons.append(own)
        s = self._server
        return (
            f"{{name: {name}, host: {s.host}, port: {s.port}, user: {s.user}, key: {s.key}, "
            f'host_key: "{s.host_key}", root: {self.folder / name}, python: {own}}}'
        )

    def deploy(self, *rows: str) -> str:
        """The deploy section of a configuration with these boards."""
        lines = "".join(f"    - {row}\n" for row in rows)
        health = "health: {measure_s: 0.05}"
        return f"deploy:\n  sign_with: {self.key}\n  {health}\n  boards:\n{lines}"

    def run(
        self,
        name: str,
        *arguments: object,
        wire: bool = False,
        board: str = "",
        exact: bool = False,
        by_cpu: tuple[str, ...] = (),
    ) -> Any:
        """Runs a command and compares what it answers.

        Args:
            name: Of the goldens.
            arguments: The command line.
            wire: Whether what passed between host and board is compared.
            board: Whose folder is compared.
            exact: Whether measured numbers are compared, too.
            by_cpu: Keys of the answer that other classes of CPU round otherwise.
        """
        answer = self._command(*arguments)
        for path in sorted(self.folder.glob("*/bin/edgekit_device-*.pyz")):
            self._names.digest(path.stem.rpartition("-")[2], "<loader>")
        self._names.digest(str(answer.document.get("digest") or "no digest"), "<bundle {}>")
        for path in sorted(self.folder.glob("*/apps/*/releases/*"), key=lambda one: one.name):
            self._names.digest(path.name.rpartition("-")[2], "<bundle {}>")
        passed = {python.parent.name: boards.transcript(python) for python in self._pythons}
        self._names.logs([*passed.values()])
        measured = tuple(f"document.{key}" for key in by_cpu)
        self._compare(name, self._names(answer.contract, exact=exact), measured)
        reported = {place: [self._names(one) for one in found] for place, found in passed.items()}
        if wire:
            documents = {place: self._numbered(name, found) for place, found in reported.items()}
            self._compare(f"{name}-wire", documents)
        if board:
            now = boards.listing(self.folder / board)
            self._compare(f"{name}-board", self._names(boards.changes(self._before, now)))
            self._before = now
        return answer.document

    def _numbered(self, name: str, exchanges: list[dict[str, Any]]) -> dict[str, Any]:
        """The exchanges by number; of one that was as another before, only which."""
        found: dict[str, Any] = {}
        for number, exchange in enumerate(exchanges, 1):
            before = self._reported.setdefault(json.dumps(exchange, sort_keys=True), name)
            parts = {
                key: {str(n): part for n, part in enumerate(exchange[key], 1)}
                for key in ("sent", "answered")
            }
            key = f"{number:02} {exchange['command']}"
            found[key] = {**exchange, **parts} if before == name else f"as in {before}"
        return found

    def _compare(self, name: str, document: Any, measured: tuple[str, ...] = ()) -> None:
        paths = {
            str(self._server.port): "<port>",
            str(self._server.host_key): "<host key>",
            str(self._server.key): "<key>",
        }
        self._golden(
            f"{self.goldens}/{name}", document, words=boards.WORDS, paths=paths, measured=measured
        )


@pytest.fixture
def life(
    tmp_path: Path, home: Path, server: Board, command: Callable[..., Answer], golden: Golden
) -> Iterator[Life]:
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield Life(tmp_path, server, command, golden)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def config_of(life: Life, *rows: str, extra: str = "") -> Path:
    """A small network's configuration with these boards, or with one of the reference backend."""
    boards = rows or (life.board("lab"),)
    path = small_config(life.folder / "net", extra=life.deploy(*boards) + extra)
    # the verdict would say that the times of several frames vary, and that the machine has to do
    path.write_text(path.read_text().replace("iterations: 2", "iterations: 1, monitor_ms: 0"))
    return path


@pytest.mark.whole
def test_a_release_comes_and_goes(life: Life, warm: Path) -> None:
    config, out = config_of(life, life.board("lab", warm)), ("--out", life.folder / "out")
    life.run("bundle", "bundle", config, *out)
    life.run("deploy-untrusted", "deploy", config, *out)
    life.run("trust-add", "trust", config, "--add", f"{life.key}.pub", "--identity", "ci")
    life.run("deploy", "deploy", config, *out, wire=True, board="lab")
    life.run("deploy-again", "deploy", config, *out, wire=True)
    life.run("status", "status", config, wire=True)
    first = life.run("releases", "releases", config)
    life.run("infer", "infer", config, *out, wire=True)
    life.run("bench", "bench", config, *out, wire=True)
    small_net(life.folder / "net/small.onnx", seed=1)
    life.run("update", "deploy", config, *out, wire=True, board="lab")
    life.run("rollback", "rollback", config, "--reason", "too dark", wire=True, board="lab")
    life.run("deploy-taken-back", "deploy", config, *out)
    life.run("deploy-put-back", "deploy", config, *out, "--again")
    small_net(other := life.folder / "net/other.onnx", seed=1, scale=0.5)
    life.run("refit", "refit", config, *out, "--weights", other, wire=True, board="lab")
    life.run("jobs", "jobs", config)
    (app,) = first["boards"][0]["apps"].values()
    release = app["releases"][0]["id"]
    life.run("remove-release", "remove", config, "--release", release, board="lab")
    life.run("remove", "remove", config, "--yes", wire=True, board="lab")
    life.run("status-nothing", "status", config)


def test_a_run_and_what_shows_it(life: Life, warm: Path) -> None:
    config, out = config_of(life, life.board("lab", warm)), ("--out", life.folder / "out")
    life.run("doctor", "doctor", config)
    life.run("run", "run", config, *out, "--trust-key")
    life.run("report", "report", config, *out)
    life.run("history", "history")
    life.run("trace", "trace", life.folder / "out/bench.json", "-o", life.folder / "trace.json")
    life.run("serve-status", "serve", config, "status")
    measured = json.loads((life.folder / "out/bench.json").read_text())
    for name, factor in (("before", 1.0), ("after", 1.2)):
        samples = [factor * (1 + 0.001 * (n * 7 % 11)) for n in range(40)]
        changed = {**measured, "samples_ms": samples}
        (life.folder / f"{name}.json").write_text(json.dumps(changed))
    files = [life.folder / f"{name}.json" for name in ("before", "after")]
    life.run("compare", "compare", *files, "--force", exact=True)


@pytest.mark.whole
def test_a_rollout_to_two_boards(life: Life) -> None:
    config, state = config_of(life), ("--state", life.folder / "state")
    rows = "".join(f"  - {life.board(name)}\n" for name in ("left", "right"))
    (inventory := life.folder / "fleet.yaml").write_text(f"version: 1\nboards:\n{rows}")
    rollout = ("--name", "first", "--canary", "1", "--parallel", "1", "--trust-key")
    life.run("fleet-deploy", "fleet", "deploy", config, "-i", inventory, *rollout, *state)
    life.run("fleet-status", "fleet", "status", "first", "--boards", *state)
    life.run("fleet-list", "fleet", "status", *state)
    life.run("fleet-rollback", "fleet", "rollback", "first", *state, board="right")


@pytest.mark.whole
def test_control_of_rollouts(life: Life) -> None:
    life.goldens = "control"
    config, state = config_of(life), ("--state", life.folder / "state")
    # a board whose host key nobody knows pauses a rollout
    right = re.sub(r'host_key: "[^"]*", ', "", life.board("right"))
    (inventory := life.folder / "fleet.yaml").write_text(
        f"version: 1\nboards:\n  - {life.board('left')}\n  - {right}\n"
    )
    rollout = ("--name", "first", "--canary", "1", "--trust-key")
    life.run("fleet-deploy", "fleet", "deploy", config, "-i", inventory, *rollout, *state)
    for action in ("pause", "resume", "abort"):
        life.run(f"fleet-{action}", "fleet", action, "first", *state)
    life.run("fleet-resume-aborted", "fleet", "resume", "first", *state)
    export = ("fleet", "export", "ansible", life.folder / "ansible", "-c", config, "-i", inventory)
    life.run("fleet-export", *export)


@pytest.mark.whole
def test_control_of_jobs_and_servers(life: Life) -> None:
    life.goldens = "control"
    config, out = config_of(life), ("--out", life.folder / "out")
    life.run("deploy", "deploy", config, *out, "--trust-key")
    listed = life.run("jobs-list", "jobs", "list", config)
    (job,) = listed["boards"][0]["jobs"]
    for action in ("log", "attach", "cancel"):
        life.run(f"jobs-{action}", "jobs", action, job["job"], config)
    life.run("jobs-log-unknown", "jobs", "log", "ffff", config)
    life.run("serve-start", "serve", config, "start")
    life.run("serve-reload", "serve", config, "reload")
    life.run("serve-stop", "serve", config, "stop")
    life.run("serve-reload-stopped", "serve", config, "reload")
    full = life.folder / "full.ekb"
    life.run("bundle-full", "bundle", config, *out, "--full", full)


@pytest.mark.whole
def test_control_of_keys(life: Life) -> None:
    life.goldens = "control"
    config = config_of(life)
    other = boards.signing_key(life.folder, "other")
    trust = ("trust", config)
    life.run("trust-list-nothing", *trust, "--list")
    for key, name in ((life.key, "ci"), (other, "lab")):
        life.run(f"trust-add-{name}", *trust, "--add", f"{key}.pub", "--identity", name)
    life.run("trust-remove", *trust, "--remove", "ci")
    life.run("trust-remove-last", *trust, "--remove", "lab")
    life.run("trust-revoke", *trust, "--revoke", f"{other}.pub")
    life.run("trust-list", *trust, "--list", board="lab")


@pytest.mark.whole
def test_control_of_the_selftest(life: Life) -> None:
    life.goldens = "control"
    python = board_python(life.folder / "tensorrt", "10.3.0")
    config = config_of(life, life.board("lab", python))
    life.run("doctor-selftest", "doctor", config, "--selftest", "-o", life.folder / "self.json")
    assert offences(python) == []


@pytest.mark.whole
def test_tune(life: Life) -> None:
    config, out = config_of(life), ("--out", life.folder / "out")
    options = ("--rounds", "1", "--turns", "0", "--trust-key")
    life.run("tune", "tune", config, *out, *options)


@pytest.mark.whole
def test_a_server_on_a_board(life: Life) -> None:
    config, out = config_of(life), ("--out", life.folder / "out")
    life.run("serve-deploy", "deploy", config, *out, "--trust-key")
    life.run("top", "top", config)
    life.run("jobs-list", "jobs", "list", config)
    life.run("serve-start", "serve", config, "start", wire=True)
    life.run("serve-serving", "serve", config, "status")
    life.run("serve-stop", "serve", config, "stop")


@pytest.mark.whole
def test_acceptance_of_the_reference_backend(life: Life) -> None:
    config, out = config_of(life), ("--out", life.folder / "out")
    text = config.read_text().replace("{onnx: small.onnx}", "{builtin: light_squeezenet, seed: 0}")
    config.write_text(text)
    by_cpu = ("accuracy", "calibration", "infer")
    life.run("acceptance-reference", "run", config, *out, "--trust-key", by_cpu=by_cpu)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("version", "tensorrt", "settings"),
    [
        ("8.6.1", "8.6", {}),
        ("10.3.0", "10.3", {}),
        ("10.7.0", "10.7", {}),
        # the DLA is supported from 11.4.1 on, whose names are those of 11.4.0
        ("11.4.0", "11.4.1", {"called": "11.4.1.1"}),
    ],
    ids=["8.6", "10.3", "10.7", "11.4"],
)
def test_acceptance_of_the_tensorrt_backend(
    life: Life, version: str, tensorrt: str, settings: dict[str, str]
) -> None:
    python = board_python(life.folder / "tensorrt", version, **settings)
    row = life.board("lab", python)
    config = config_of(life, row, extra=f'tensorrt: "{tensorrt}"\nbuild: {{}}\n')
    options = ("--out", life.folder / "out", "--trust-key")
    life.run(f"acceptance-tensorrt-{tensorrt}", "run", config, *options, wire=True)
    assert offences(python) == []
