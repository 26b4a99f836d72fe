"""``edgekit completion``, and what a shell is offered for an argument: boards, rules, rewrites.

A module that a list comes from is imported when a shell asks for it.
"""

from __future__ import annotations

import os
import shlex

import click

from edgekit import api
from edgekit.cli.commands import argument, command
from edgekit.errors import EdgekitError

VARIABLE = "_EDGEKIT_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


def targets(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the boards that begin so."""
    return [name for name in api.known_names("targets") if name.startswith(begun)]


def precisions(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the precisions that begin so."""
    return [name for name in ("int8", "fp16", "fp32") if name.startswith(begun)]


def rules(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the ids, families and operators that begin so: what ``explain`` takes."""
    return [name for name in api.known_names("rules") if name.lower().startswith(begun.lower())]


def rewrites(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the rewrites that begin so, behind those of a list that are there already."""
    before, comma, last = begun.rpartition(",")
    names = api.known_names("rewrites")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete(root: click.Command, instruction: str) -> int:
    """Answers a shell's request, such as "bash_complete"; the words are in its variables."""
    from click.shell_completion import shell_complete

    if instruction == "bash_complete":
        _without_equals()
    try:
        return shell_complete(root, {}, "edgekit", VARIABLE, instruction)
    except EdgekitError:
        return 0  # of a command line with a mistake nothing is known


def _without_equals() -> None:
    """For bash the ``=`` of ``--option=value`` is a word; the shell's variables lose it."""
    from click.shell_completion import split_arg_string

    words, place = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    if words[place : place + 1] == ["="]:  # nothing of the value is there yet
        place += 1
        words.insert(place, "")
    os.environ["COMP_CWORD"] = str(place - words[:place].count("="))
    os.environ["COMP_WORDS"] = shlex.join(word for word in words if word != "=")


@command(
    "completion",
    "edgekit completion bash > ~/.local/share/bash-completion/completions/edgekit\n"
    "edgekit completion zsh > ~/.zfunc/_edgekit\n"
    "edgekit completion fish > ~/.config/fish/completions/edgekit.fish",
)
@argument("shell", ", ".join(_SHELLS) + ".", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    context = click.get_current_context().find_root()
    made = kind(context.command, {}, "edgekit", VARIABLE)
    # not made.source(), which starts a bash to ask for its version
    print(made.source_template % made.source_vars())
