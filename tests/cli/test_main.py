"""Every failure is one message and one status, never a traceback."""

import io
import json
import os
import re
import subprocess
import sys

import click
import pytest

from edgekit.cli import main
from edgekit.cli.main import COMMANDS
from edgekit.errors import BoardError, GateError
from tests.pipeline.nets import small_config, small_net

TARGET = "jetson-agx-orin-64gb"


def edgekit(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pln"], "'plan'"),
        (["plan", "x.yaml", "--objectiv", "latency"], "--objective"),
        (["plan"], "Missing argument"),
        (["plan", "x.yaml", "--no-such"], "--no-such"),
        (["check", "builtin:light_resnet50"], "--target"),
        (["check", "model.onnx"], "the file does not exist"),
        (["report", "light_squeezenet"], "builtin:light_squeezenet"),
        (["bundle", "net.yaml", "--out", "net.ekb"], "-o net.ekb"),
        (["run", "model.onnx"], "run takes a configuration, not a model"),
        (["infer", "builtin:light_resnet50"], "edgekit init builtin:light_resnet50 --target"),
        (["check", "model.onnx", "-t", "jetson-agx-orin-64gb", "--shape", "x"], "--shape"),
        (["plan", "m.onnx", "-t", "jetson-agx-orin-64gb", "--dla-cores", "a"], "--dla-cores"),
    ],
)
def test_wrong_usage_is_status_2_and_one_json_document(arguments, words, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "--json"])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert set(error) >= {"code", "message", "where", "hint"}
    assert words in error["message"] + error["hint"]
    assert "Traceback" not in captured.err


def test_the_help_lists_every_command_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    out = capsys.readouterr().out
    titles = re.findall(r"(?m)^(\w.*):$", out)
    assert titles == ["Options", *main.GROUPS, "Example"]
    listed = re.findall(r"(?m)^  ([a-z][a-z-]*)  +\S", out)
    assert sorted(listed) == sorted({*COMMANDS})


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_values_of_the_environment_are_shown_by_name(form, tmp_path, monkeypatch, capsys):
    values = {"EK_HOST": "hidden-host.invalid", "EK_USER": "hiddenuser", "EK_KEYS": "/hiddenkeys"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "net.yaml"
    config.write_text(
        "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\n"
        "model: {builtin: light_squeezenet}\ndeploy:\n"
        "  boards: [{name: lab, host: '${EK_HOST}', user: '${EK_USER}', key: '${EK_KEYS}/id'}]\n"
    )
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor", str(config), *form])
    printed = "".join(capsys.readouterr())
    assert caught.value.code == 2
    assert "${EK_KEYS}/id" in printed
    assert not any(value in printed for value in values.values())


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (GateError("no", code="a.b"), 1, "a.b"),
        (BoardError("no", code="c.d"), 4, "c.d"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("the clocks go back"), 130, "interrupted"),
        (OSError(28, "No space left on device", "/x"), 3, "os.error"),
        (MemoryError(), 3, "os.memory"),
        (ZeroDivisionError("x"), 70, "internal"),
    ],
)
def test_what_is_raised_becomes_a_status(raised, status, code, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise raised

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as caught:
        main.main(["run", "x.yaml", "--json"])
    assert caught.value.code == status
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == code
    assert "Traceback" not in captured.err


def test_an_interrupt_that_a_library_wraps_keeps_its_words(monkeypatch, capsys):
    def stop(*args, **kwargs):
        try:
            raise KeyboardInterrupt("the clocks go back")
        except KeyboardInterrupt as interrupt:
            raise click.Abort from interrupt

    monkeypatch.setattr(main, "app", stop)
    monkeypatch.setattr(main, "_signals", [2])
    assert main._status(["bench"]) == 130
    assert "the clocks go back" in capsys.readouterr().err


def test_debug_shows_the_traceback_and_keeps_the_status(monkeypatch, capsys):
    monkeypatch.setattr(main, "app", lambda *a, **k: 1 / 0)
    with pytest.raises(SystemExit) as caught:
        main.main(["run", "x.yaml", "--debug"])
    assert caught.value.code == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_version_and_module_entry():
    done = edgekit("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("edgekit 0.")


def test_a_reader_that_goes_away_is_no_failure():
    done = subprocess.run(
        f"{sys.executable} -m edgekit targets | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_message(unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgekit", "targets", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 3
    assert done.stderr == "edgekit: No space left on device\n"


@pytest.mark.parametrize(
    ("closed", "status", "reported"),
    [(">&-", 3, "edgekit: stdout is closed\n"), ("2>&-", 0, ""), (">&- 2>&-", 3, "")],
)
def test_a_closed_stream_is_no_traceback(closed, status, reported):
    done = subprocess.run(
        f"{sys.executable} -m edgekit --version {closed}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == status
    assert done.stderr.partition("  hint")[0] == reported
    assert bool(done.stdout) == (status == 0)


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("command", ["targets", "explain", "plan"])
def test_no_color_means_no_escape_sequence(command, monkeypatch, tmp_path):
    small_net(tmp_path / "net.onnx")
    arguments = {
        "targets": [],
        "explain": ["general.batch"],
        "plan": [str(tmp_path / "net.onnx"), "-t", "jetson-agx-orin-64gb"],
    }
    shown = {}
    monkeypatch.setenv("TERM", "xterm-256color")
    for plain in ("", "1"):
        monkeypatch.setenv("NO_COLOR", plain)
        monkeypatch.setattr(sys, "stdout", Screen())
        monkeypatch.setattr(sys, "stderr", Screen())
        with pytest.raises(SystemExit):
            main.main([command, *arguments[command]])
        shown[plain] = sys.stdout.getvalue() + sys.stderr.getvalue()
    assert "\x1b" in shown[""]
    assert "\x1b" not in shown["1"]


LONG = '{"schema": "edgekit.bench/1", "samples_ms": [%s]}' % ("7" * 5000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "long.json"], "long.json: the file is not JSON: a number of 5,000 digits"),
        (
            ["compare", "long.json", "long.json"],
            "the file is not JSON: a number of 5,000 digits",
        ),
        (["bench", "long.json"], "long.json: this is a JSON document, but edgekit reads ONNX"),
        (["bench", "pipe.json"], "pipe.json: it cannot be read: it is a pipe, not a file"),
        (["compare", "pipe.json", "last"], "pipe.json: the file cannot be read: it is a pipe"),
        (["compare", "folder.json", "last"], "folder.json: the file cannot be read: it is a f"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_as_what_it_is(
    arguments, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "long.json").write_text(LONG)
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "sys." not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain-log", "--model"], "requires an argument.\n  hint: edgekit explain-log --help"),
        (["serve", "net.yaml", "go"], "Invalid value for 'ACTION': 'go'"),
        (["check", "small.onnx", "-t", TARGET, "--precision", "int4"], "--precision: unknown prec"),
        (["plan", "builtin:resnet50", "-t", TARGET], "builtin:resnet50: unknown built"),
        (["plan", "builtin:light_resnet50", "-t", "nano"], "4gb or jetson-orin-nano-8gb?"),
        (["calibrate", "net.yaml", "--count", "0"], "--count: 0 is too small (at least 1)"),
        (["fleet", "status", "nope"], "edgekit: no rollout 'nope'; there are none yet"),
        (["trace", "nope.json"], "hint: give a configuration, or the bench.json"),
        (["trust", "lab@192.0.2.1", "--add", "no.pub"], "hint: give a file such as"),
    ],
)
def test_a_mistake_is_called_as_it_was_typed(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_config(tmp_path).rename("net.yaml")
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_tables_in_a_pipe_have_no_blanks_at_the_ends_of_lines(capsys):
    with pytest.raises(SystemExit):
        main.main(["targets"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_bundle_is_not_valid_until_a_day_that_is_past(tmp_path, capsys):
    config = small_config(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main.main(["bundle", str(config), "--valid-until", "2020-02-29"])
    assert caught.value.code == 2
    assert "valid until 2020-02-29 is in the past" in capsys.readouterr().err
