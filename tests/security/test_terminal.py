"""Nothing that others wrote steers a terminal or a browser: the command line's output is text."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.cli.main import main
from edgekit.errors import BoardError
from edgekit.reports.html.page import write_report
from edgekit.text import write_page
from tests.cli.board_fakes import FakeBoard, job_row, lend
from tests.reports import large_run

# a title, a cleared screen, C1, a name that reads backwards, DEL, an overwritten line, markup
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj.exe\x7f\rok\x08\u2066\u2028[link=http://e]z[/link]"
# what edgekit takes for a name, too
NAME = "\x9b31m\u202egpj.exe\u2066\u200b\u2028\x85[link=http://e]z[/link]"
TARGET = ["--target", "jetson-agx-orin-64gb"]
HEAD = "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\n"
QUOTED = json.dumps(EVIL)
_OWN = re.compile(r"\x1b\[[0-9;]*m")  # colours


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Returns a command's status and all that it printed, which is text and no control."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    printed = capfd.readouterr()
    for text in (printed.out, printed.err):
        assert harmless(text)
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out + printed.err


def harmless(text: str) -> bool:
    """Whether all of a text is shown as it stands."""
    return all(char.isprintable() or char in "\n\t\u202f\xa0" for char in text)


def network(path: Path, *, domain: str = "", op: str = "Relu", **names: str) -> str:
    """Writes a network that has hostile names."""
    node = helper.make_node(
        op, [names.get("input", "x")], ["y"], names.get("node", "n"), domain=domain
    )
    shape = [1, 8, 8, 8]
    graph = helper.make_graph(
        [node],
        names.get("graph", "g"),
        [helper.make_tensor_value_info(names.get("input", "x"), TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        doc_string=names.get("doc", ""),
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain or "a.b", 1)],
        producer_name=names.get("producer", ""),
        ir_version=8,
    )
    helper.set_model_props(model, {names.get("key", "k"): names.get("value", "v")})
    onnx.save(model, path)
    return str(path)


@pytest.mark.few(20)
@pytest.mark.parametrize(
    "names",
    [
        {"node": EVIL},
        {"node": NAME, "op": "NonZero"},
        {"node": NAME, "input": NAME},
        {"op": NAME, "domain": NAME},
        {"domain": EVIL},
        {"op": EVIL},
        {"op": EVIL, "domain": "a.b"},
        {"graph": EVIL, "doc": EVIL, "producer": EVIL},
        {"key": EVIL, "value": EVIL},
        {"key": "edgekit.rewrite", "value": EVIL},
    ],
    ids="-".join,
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "--by-layer"],
        ["check", "--json"],
        ["check", "--layer", EVIL],
        ["plan"],
        ["rewrite"],
        ["init"],
    ],
    ids=lambda words: "-".join(words[:2]).replace(EVIL, ""),
)
def test_names_of_a_model(
    arguments: list[str],
    names: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = network(tmp_path / "m.onnx", **names)
    status, text = run(capfd, arguments[0], model, *arguments[1:], *TARGET)
    assert status in (0, 1, 2)
    assert "Traceback" not in text
    assert status or "edgekit" in text or "layer" in text


@pytest.mark.parametrize("more", [[], ["-v"], ["--markdown", "-"], ["--json"]])
def test_names_of_a_build_log(
    more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "build.log"
    lines = (
        f"[TRT] [W] {NAME}: DLA only supports slicing 4 dimensional tensors.",
        f"[TRT] [W] Layer '{NAME}' (SLICE): Unsupported on DLA. Switching",
        f"[TRT] [W] Layer '{NAME}2' (SHUFFLE): Unsupported on DLA. Switching",
        f"[TRT] [I] [GpuLayer] SLICE: {NAME}",
        f"[TRT] [I] [DlaLayer] {{ForeignNode[{NAME}...{NAME}2]}}",
        f"[E] Unknown option: {NAME}",
        f"[E] {NAME}",
        f"[I] Selected Device: {NAME}",
    )
    path.write_text("\n".join(lines), "utf-8")
    status, text = run(capfd, "explain-log", str(path), *more)
    assert status == 0
    assert "gpj.exe" in text


def test_a_models_name_in_json_is_the_models(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = network(tmp_path / "m.onnx", node=NAME)
    _, text = run(capfd, "check", model, *TARGET, "--json", "-q")
    assert json.loads(text)["layers"][0]["name"] == NAME
    text = run(capfd, "check", "a\\\x7f\x9b.onnx", *TARGET, "--json", "-q")[1]
    assert json.loads(text.splitlines()[0])["error"]["where"] == "a\\\x7f\x9b.onnx"


YAML = {
    "key": f"{HEAD}model: {{onnx: m.onnx}}\n{QUOTED}: 1\n",
    "nested key": f"{HEAD}model: {{onnx: m.onnx, {QUOTED}: 1}}\n",
    "value": f"{HEAD}model: {{onnx: {QUOTED}}}\n",
    "name": f"version: 1\nname: {QUOTED}\ntarget: a\nmodel: {{onnx: m.onnx}}\n",
    "target": f"version: 1\nname: a\ntarget: {QUOTED}\nmodel: {{onnx: m.onnx}}\n",
    "choice": f"{HEAD}model: {{onnx: m.onnx}}\nprecision: {QUOTED}\n",
    "tag": f"{HEAD}model: !!python/object:{QUOTED[:8]} 1\n",
    "anchor": f"{HEAD}model: *a\u202eb\n",
    "syntax": f"{HEAD}model: [\u009b31m\n",
    "raw": f"{HEAD}model: {EVIL}\n",
    "twice": f"{HEAD}{QUOTED}: 1\n{QUOTED}: 2\n",
    "board": f"{HEAD}model: {{onnx: m.onnx}}\ndeploy: {{boards: [{{name: {QUOTED}, host: h}}]}}\n",
    "host": f"{HEAD}model: {{onnx: m.onnx}}\ndeploy: {{boards: [{{name: a, host: {QUOTED}}}]}}\n",
    "environment": HEAD + "model: {onnx: m.onnx}\ndeploy: {boards: [{name: a, host: '${EVIL}'}]}\n",
    "environment unset": HEAD
    + "model: {onnx: m.onnx}\ndeploy: {boards: [{name: a, host: '${NO_SUCH}', key: \"\\x9b\"}]}\n",
}


@pytest.mark.parametrize("command", ["check", "status", "run", "history"])
@pytest.mark.parametrize("source", YAML)
def test_a_configuration(
    source: str,
    command: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVIL", EVIL)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(YAML[source], "utf-8", errors="surrogatepass", newline="")
    status, text = run(capfd, command, str(path))
    assert status in (0, 2, 3)
    assert "Traceback" not in text
    assert status or (command, source) in (("history", source), ("status", "value"))


WORDS = [
    [EVIL],
    ["check", EVIL],
    ["check", "m.onnx", "--target", EVIL],
    ["check", "m.onnx", f"--{EVIL}"],
    ["check", "m.onnx", "--cache", EVIL, *TARGET],
    ["explain", EVIL],
    ["explain-log", EVIL],
    ["compare", EVIL, "last"],
    ["history", EVIL],
    ["status", EVIL],
    ["trace", EVIL],
    ["plan", "m.onnx", *TARGET, "--objective", EVIL],
    ["plan", "m.onnx", *TARGET, "--power-mode", EVIL],
    ["fleet", EVIL],
    ["fleet", "status", "--state", EVIL],
    ["serve", "h", EVIL],
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words).replace(EVIL, "EVIL"))
def test_words_of_the_command_line_and_file_names(
    words: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / EVIL))
    network(tmp_path / "m.onnx")
    run(capfd, *words)
    run(capfd, *words, "--json")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("command", "content"),
    [
        (["check", "{file}", *TARGET], "not a model"),
        (
            ["check", "m.onnx", "--cache", "{file}", *TARGET],
            f"TRT-100300-EntropyCalibration2\n{EVIL}: 3c010a14\n",
        ),
        (
            ["check", "m.onnx", "--compare-log", "{file}", *TARGET],
            f"[TRT] [W] Layer {EVIL} is not supported\n[TRT] ---------- Layers Running on DLA\n"
            f"[TRT] [DlaLayer] {{ForeignNode[{EVIL}]}}\n",
        ),
        (["compare", "{file}", "{file}"], json.dumps({"schema": "edgekit.bench/1", EVIL: EVIL})),
        (["trace", "{file}"], json.dumps({"schema": EVIL})),
        (["fleet", "deploy", "c.yaml", "--inventory", "{file}"], f"boards: [{{{QUOTED}: 1}}]\n"),
        (
            ["fleet", "deploy", "c.yaml", "--inventory", "{file}"],
            f"boards: [{{name: {QUOTED}, host: h}}]\n",
        ),
        (["plan", "m.onnx", "--profile", "{file}", *TARGET], json.dumps([{"name": EVIL}])),
        (["report", "{file}"], json.dumps({"schema": EVIL})),
        (["deploy", "c.yaml", "--bundle", "{file}"], EVIL),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, list) else "",
)
def test_files_of_hostile_content_and_name(
    command: list[str],
    content: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(f"{HEAD}model: {{onnx: m.onnx}}\n")
    file = tmp_path / EVIL.replace("/", "_")
    file.write_text(content, "utf-8")
    words = [word.format(file=file) if word == "{file}" else word for word in command]
    _, text = run(capfd, *words)
    assert "Traceback" not in text


class Hostile(FakeBoard):
    """A board all of whose words are hostile."""

    note = EVIL

    def status(self, app: str | None = None) -> dict[str, Any]:
        error = {"code": EVIL, "message": EVIL, "where": EVIL, "hint": EVIL}
        deployment = {
            "state": EVIL,
            "state_at": EVIL,
            "alive": False,
            "operator": EVIL,
            "job": EVIL,
            "error": error,
        }
        serving = {"state": EVIL, "last_error": error, "release": EVIL, "socket": EVIL}
        changed = {"release": EVIL, "changes": [{"what": EVIL, "from": EVIL, "to": EVIL}]}
        facts = {
            "current": EVIL,
            "previous": EVIL,
            "deployment": deployment,
            "releases": [],
            "history": [],
            "serving": serving,
            "changed": changed,
            "error": error,
        }
        return {
            "schema": "edgekit.board-status/1",
            "board": {"python": EVIL},
            "free_bytes": 1,
            "apps": {EVIL: facts},
            "store": {"blobs": 1, "bytes": 2, "partial_bytes": 0},
        }

    def releases(self, app: str | None = None) -> dict[str, Any]:
        rows = [{"id": EVIL, "digest": EVIL, "signer": EVIL, "staged_at": EVIL, "ready": True}]
        return {"apps": {EVIL: {"current": EVIL, "previous": EVIL, "releases": rows}}}

    def trust(self) -> dict[str, Any]:
        return {"signers": [{"name": EVIL, "type": EVIL, "fingerprint": EVIL}], "revoked": []}

    def probe(self) -> dict[str, Any]:
        raise BoardError(EVIL, code=EVIL, where=EVIL, hint=EVIL)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["releases"],
        ["jobs"],
        ["jobs", "list"],
        ["doctor"],
        ["serve", "status"],
        ["trust"],
        ["trust", "list"],
    ],
    ids="-".join,
)
@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["text", "json"])
def test_a_boards_answers(
    words: list[str],
    json_too: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = {"code": EVIL, "message": EVIL}
    row = job_row("failed", error=error, name=EVIL, phase=EVIL, kind=EVIL)
    lend(monkeypatch, Hostile("lab", row))
    if words[0] == "serve":
        run(capfd, "serve", "lab", "status", *json_too)
        return
    run(capfd, *words, "lab", *json_too)


BANNERS = {
    "lines before the version": f"{EVIL}\r\n" * 3,
    "version": f"SSH-2.0-{EVIL}\r\n",
    "no SSH": f"HTTP/1.1 400 {EVIL}\r\n\r\n",
    "old": f"SSH-1.5-{EVIL}\r\n",
    "garbage after the version": f"SSH-2.0-x\r\n{EVIL * 100}",
}


@pytest.fixture
def talker() -> Iterator[Callable[[str], int]]:
    """Returns what starts a server that says something to whoever connects, and its port."""
    servers: list[socket.socket] = []

    def start(text: str) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            while True:
                try:
                    peer = server.accept()[0]
                except OSError:
                    return
                with peer, contextlib.suppress(OSError):  # who connected may be gone at any time
                    peer.settimeout(120)
                    peer.sendall(text.encode("utf-8"))
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.parametrize("banner", BANNERS)
@pytest.mark.parametrize("command", [["status"], ["doctor"], ["top", "--once"]], ids=lambda c: c[0])
def test_what_a_server_says_before_its_key_is_known(
    command: list[str],
    banner: str,
    talker: Callable[[str], int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "c.yaml"
    port = talker(BANNERS[banner])
    boards = f"[{{name: lab, host: 127.0.0.1, port: {port}, user: a}}]"
    path.write_text(f"{HEAD}model: {{onnx: m.onnx}}\ndeploy: {{boards: {boards}}}\n")
    status, _ = run(capfd, *command, str(path))
    assert status in (3, 4)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command", [["check"], ["check", "--by-layer"], ["plan"]], ids=lambda c: c[-1]
)
def test_on_a_terminal_only_the_own_colours(command: list[str], tmp_path: Path) -> None:
    model = network(tmp_path / "m.onnx", node=NAME)
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "edgekit", command[0], model, *TARGET, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:
        pass
    finally:
        os.close(ours)
    text = said.decode("utf-8").replace("\r\n", "\n")
    assert _OWN.search(text)
    assert not done.returncode
    assert harmless(_OWN.sub("", text))
    assert harmless(_OWN.sub("", done.stderr.decode("utf-8")))
    assert "\\x9b31m" in text or command[-1] != "--by-layer"


def test_a_report_of_hostile_names(tmp_path: Path) -> None:
    write_report(large_run.hostile(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert harmless(text)
    assert large_run.HOSTILE not in text
    assert "<script>alert" not in text


def test_a_page_keeps_colours_and_no_other_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    write_page("\x1b[1;31mred\x1b[0m \x1b[2J\x1b[9A\x1b]0;title\x07\n")
    shown = capsys.readouterr().out
    assert re.findall("\x1b\\[?[0-9;]*.", shown) == ["\x1b[1;31m", "\x1b[0m"]
    assert "\x07" not in shown
