"""What a long command without steps tells: lines where no terminal is; a short one says nothing."""

import threading

from edgekit.cli.main import app
from edgekit.cli.output import Heartbeat
from edgekit.text import printable_output
from tests.pipeline.nets import small_net


def test_lines_say_what_it_is_at(capsys):
    beat = Heartbeat("check")
    beat("reading the model")
    ends = iter([False, True])

    def wait(seconds):
        beat("judging 7 layers\x1b[2J")
        return next(ends)

    with printable_output():  # as main() has it
        beat.lines(wait)
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("check: reading the model, ")
    assert second.startswith("check: judging 7 layers")
    assert "\x1b" not in second


def test_a_short_command_and_a_quiet_one_say_nothing(capsys):
    before = threading.active_count()
    for quiet in (False, True):
        with Heartbeat("check", quiet=quiet) as beat:
            beat("reading")
        assert threading.active_count() == before
    assert capsys.readouterr().err == ""


def test_a_check_reports_its_stages(tmp_path, monkeypatch):
    small_net(tmp_path / "net.onnx")
    reported = []

    class Reported(Heartbeat):
        def __init__(self, name, *, quiet):
            super().__init__(name, quiet=True)
            reported.append((name, quiet))

        def __call__(self, text):
            reported.append(text)

    monkeypatch.setattr("edgekit.cli.check.Heartbeat", Reported)
    assert app(["check", str(tmp_path / "net.onnx"), "-t", "jetson-agx-orin-64gb", "-q"]) == 0
    assert reported[:2] == [("check", True), "reading the model"]
    assert "judging 10 layers" in reported
