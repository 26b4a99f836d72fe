"""What a long command without steps tells: its stages, and nothing where no terminal is."""

import threading

from edgekit.cli import output
from edgekit.cli.main import app
from edgekit.cli.output import Heartbeat
from tests.pipeline.nets import small_net


def test_where_no_terminal_is_nothing_is_said_however_long_it_takes(capsys, monkeypatch):
    monkeypatch.setattr(output, "_SOON_S", 0.0)
    before = threading.active_count()
    with Heartbeat("check") as beat:
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
