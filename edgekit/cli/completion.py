"""``edgekit completion``, and the completions of arguments: boards, rules, rewrites, objectives,
metrics, built-in networks.

The module of a list is only imported when a shell requests it.
"""

from __future__ import annotations

import glob
import os
import shlex

import click

from edgekit import api
from edgekit.cli.commands import argument, command
from edgekit.errors import EdgekitError

VARIABLE = "_EDGEKIT_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


def targets(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the boards with this prefix."""
    return [name for name in api.known_names("targets") if name.startswith(begun)]


def precisions(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the precisions with this prefix."""
    return [name for name in ("int8", "fp16", "fp32") if name.startswith(begun)]


def objectives(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the objectives of plans with this prefix."""
    return [name for name in api.known_names("objectives") if name.startswith(begun)]


def metrics(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the metrics of measurements with this prefix."""
    return [name for name in api.known_names("metrics") if name.startswith(begun)]


def models(
    _context: click.Context, _item: click.Parameter, begun: str
) -> list[click.shell_completion.CompletionItem]:
    """Returns the built-in networks with this prefix, or the shell's files.

    Bash cannot combine names and files: files with this prefix take precedence.
    """
    item = click.shell_completion.CompletionItem
    known = [f"builtin:{name}" for name in api.known_names("builtins")] if begun else []
    named = [item(name) for name in known if name.startswith(begun)]
    if named and not glob.glob(f"{glob.escape(begun)}*"):
        return named
    return [item(begun, type="file")]


def rules(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the ids, families and operators with this prefix, for ``explain``."""
    return [name for name in api.known_names("rules") if name.lower().startswith(begun.lower())]


def rewrites(_context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns the rewrites with this prefix, appended to the list's existing items."""
    before, comma, last = begun.rpartition(",")
    names = api.known_names("rewrites")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def shapes(context: click.Context, _item: click.Parameter, begun: str) -> list[str]:
    """Returns shapes and ranges with this prefix for the open sizes of the command's ONNX file."""
    # the option without its value ended the parsing
    model = next((word for word in context.args if word.endswith(".onnx")), None)
    return (
        [shape for shape in api.proposed_shapes(model) if shape.startswith(begun)] if model else []
    )


def complete(root: click.Command, instruction: str) -> int:
    """Answers a shell's request, such as "bash_complete"; the words are in environment
    variables.
    """
    from click.shell_completion import get_completion_class, shell_complete

    start = _joined_words() if instruction == "bash_complete" else ""
    try:
        if not start:
            return shell_complete(root, {}, "edgekit", VARIABLE, instruction)
        kind = get_completion_class("bash")
        assert kind is not None
        for line in kind(root, {}, "edgekit", VARIABLE).complete().splitlines():
            what, comma, value = line.partition(",")
            # bash only replaces the text after the last colon
            print(f"{what}{comma}{value.removeprefix(start)}")
    except EdgekitError:
        pass  # no completions for an invalid command line
    return 0


def _joined_words() -> str:
    """Rejoins the words around ``=`` (``--option=value``) and ``:`` (``builtin:NAME``), which bash
    treats as separate words.

    Returns:
        The word to complete up to its last colon; "" without a colon.
    """
    from click.shell_completion import split_arg_string

    words, place = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    if words[place : place + 1] == ["="]:  # the value is still empty
        place += 1
        words.insert(place, "")
    joined: list[str] = []
    at = place
    for number, word in enumerate(words):
        if word == "=" or (joined and number and ":" in (word, words[number - 1])):
            # the place of the word to complete moves with each word joined before it
            at -= number <= place
            if word != "=":
                joined[-1] += word
        else:
            joined.append(word)
    os.environ["COMP_CWORD"] = str(at)
    os.environ["COMP_WORDS"] = shlex.join(joined)
    begun = joined[at] if at < len(joined) else ""
    return begun[: begun.rfind(":") + 1]


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
    # not made.source(), which starts bash to query its version
    print(made.source_template % made.source_vars())
