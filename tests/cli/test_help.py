"""Every example of --help is a command that can be copied: one a line, whole, and understood."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edgekit.cli.main import COMMANDS, _root


def named() -> Iterator[str]:
    """Every command, and every action of one, as it is called."""
    yield ""
    for name in COMMANDS:
        yield name
        found = _root.get_command(click.Context(_root), name)
        for action in getattr(found, "commands", getattr(found, "actions", ())):
            yield f"{name} {action}"


def help_of(words: list[str], width: int) -> str:
    """What ``edgekit WORDS --help`` prints in a terminal of so many columns."""
    context = _root.make_context("edgekit", [*words], terminal_width=width, resilient_parsing=True)
    command: click.Command = _root
    if words:
        found = _root.get_command(context, words[0])
        assert found is not None
        if isinstance(found, click.Group) and len(words) > 1:
            found = found.get_command(context, words[1])
            assert found is not None
        elif len(words) > 1:
            found = getattr(found, "actions")[words[1]]  # noqa: B009
        command = found
    return command.get_help(click.Context(command, context, terminal_width=width))


def examples(text: str) -> list[str]:
    """The commands of a help's end."""
    _, found, end = text.rpartition("\nExample")
    assert found
    return end.splitlines()[1:]


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("name", list(named()))
def test_examples_are_whole_commands(
    name: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = examples(help_of(name.split(), width))
    assert lines
    for line in lines:
        assert line.startswith("  edgekit ")
        assert line == line.rstrip()
        words = shlex.split(line)[1:]
        if ">" in words:
            words = words[: words.index(">")]
        for word in words:
            if word.endswith(".npz"):  # an option that takes what is there only
                Path(word).touch()
        parse(words)
        assert not name or " ".join(words).startswith(name.split(maxsplit=1)[0])


def parse(words: list[str]) -> None:
    """Parses a command line as the program does, and runs nothing."""
    context = _root.make_context("edgekit", list(words))
    command: click.Group = _root
    rest = list(words)
    while True:
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        if isinstance(found, click.Group):
            command = found
            continue
        found.make_context(name, list(rest), parent=context)
        return


def test_one_a_line_on_the_narrowest_terminal() -> None:
    text = help_of(["plan"], 40)
    assert any(len(line) > 80 for line in examples(text))
    assert '--what-if "pin conv* GPU; mode 30W"' in text
