import io

import pytest
from rich.console import Console

from edgekit.reports.document import report_document
from edgekit.reports.terminal.summary import terminal_summary
from edgekit.reports.text import change
from tests.reports import handmade_run
from tests.reports.test_report_html import HOSTILE, hostile_facts


def printed(show, **options):
    out = io.StringIO()
    console = Console(file=out, width=80, **options)
    show(console)
    return out.getvalue()


def summary(facts, **options):
    document = report_document(facts)
    return printed(lambda console: terminal_summary(document, console), **options)


def test_colours_only_on_a_terminal_and_without_no_color(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" not in summary(handmade_run.facts())
    assert "\x1b[33m" in summary(handmade_run.facts(), force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in summary(handmade_run.facts(), force_terminal=True)


def test_names_from_the_model_are_neither_markup_nor_escapes():
    text = summary(handmade_run.facts(name="[red]net[/red]\x1b]0;title\x07"))
    assert "[red]net[/red]" in text
    assert "\x1b" not in text
    assert "\x1b" not in summary(hostile_facts())
    assert HOSTILE[:20] in summary(hostile_facts())


def test_long_paths_are_not_broken():
    path = "edgekit-out/" + "very-long-name/" * 12 + "report.html"
    assert path in summary(handmade_run.facts(files={"report": path}))


@pytest.mark.parametrize(
    ("percent", "shown"),
    [
        (2310.4, "+2,310 %"),
        (-47.71, "-47.7 %"),
        (1.234, "+1.23 %"),
        (-0.0512, "-0.0512 %"),
        (99.96, "+100 %"),
    ],
)
def test_changes_are_readable(percent, shown):
    assert change(percent) == shown
