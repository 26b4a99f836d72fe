"""Declaration of commands: name, actions, example, and layout of the help. ``edgekit.cli.main`` has
the table of all commands with their summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click
import click.shell_completion

from edgekit.errors import UsageError


def write_examples(formatter: click.HelpFormatter, examples: str | None) -> None:
    """Writes examples for copying: unwrapped, each on a line."""
    lines = (examples or "").splitlines()
    if lines:
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            for line in lines:
                formatter.write(f"  {line}\n")


class _Argument(click.Argument):
    """A positional argument with a text in the help."""

    def __init__(self, *args: Any, summary: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.summary = summary

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Returns the name in the help, without the choices."""
        return f"'{self.human_readable_name}'"

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Returns a shell's completions: files by default, and actions."""
        item = click.shell_completion.CompletionItem
        found = super().shell_complete(ctx, incomplete)
        if not found and isinstance(self.type, click.types.StringParamType):
            found = [item(incomplete, type="file")]
        actions = getattr(ctx.command, "actions", {}) if self is ctx.command.params[0] else {}
        return [*found, *(item(name) for name in actions if name.startswith(incomplete))]


class Command(click.Command):
    """A command of edgekit; ``edgekit NAME ACTION ...`` runs an action."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.actions: dict[str, click.Command] = {}

    def action(
        self, name: str, summary: str, example: str, more: str | None = None
    ) -> Callable[[Callable[..., None]], click.Command]:
        """Returns the decorator that makes a function the action ``name``.

        ``summary`` is its line in this command's help, ``more`` a longer text for its own help. A
        model with an action's name is given as ``./NAME``.
        """

        def decorate(function: Callable[..., None]) -> click.Command:
            made = click.command(
                name, cls=Command, help=more or summary, short_help=summary, epilog=example
            )(function)
            self.actions[name] = made
            return made

        return decorate

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Runs the action if the first argument names an action."""
        if args and args[0] in self.actions:
            action = self.actions[args[0]]
            return action.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        if args and args[0].isidentifier():
            _check_removed(f"{info_name} {args[0]}")
        # only words that look like an action: a model has a dot, a colon or a slash
        if args and self.actions and args[0].isidentifier():
            places = sum(isinstance(item, click.Argument) for item in self.params)
            # an option's value among them would be counted as an argument
            too_many = not any(word.startswith("-") for word in args[: places + 1])
            _no_action(args[0], self.actions, surely=too_many and len(args) > places)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses options with an empty value, for example from an unset shell variable.

        Later code could treat it as an absent option, which often means all.
        """
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not set the option's command
            if isinstance(error, click.NoSuchOption):
                _check_removed(f"{ctx.command_path} {error.option_name}")
            raise
        for item in self.params:
            value = ctx.params.get(item.name or "")
            if isinstance(item, click.Option) and (
                value == "" or (item.multiple and isinstance(value, tuple) and "" in value)
            ):
                form = f"{item.opts[-1]} {item.metavar}; " if item.metavar else ""
                raise UsageError(
                    f"{item.opts[-1]} is empty", hint=f"{form}{ctx.command_path} --help"
                )
        return left

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.epilog)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (item.human_readable_name, item.summary)
            for item in self.params
            if isinstance(item, _Argument)
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)
        if self.actions:
            instead = self.params[0].human_readable_name
            with formatter.section(f"Actions (in place of {instead}; each has its own --help)"):
                formatter.write_dl(
                    [(name, found.short_help or "") for name, found in self.actions.items()]
                )


def _check_removed(words: str) -> None:
    """Raises UsageError with the replacement of a removed command or option."""
    from edgekit.removed import COMMANDS

    words = words.removeprefix("edgekit ")
    if words in COMMANDS:
        raise UsageError(f"edgekit {words} no longer exists", hint=COMMANDS[words])


def _no_action(name: str, actions: Collection[str], *, surely: bool) -> None:
    """Refuses a mistyped action name if there is no such file.

    ``surely``: there are too many arguments for the command without an action.
    """
    from difflib import get_close_matches
    from pathlib import Path

    near = get_close_matches(name, actions, 1)
    if (near or surely) and not Path(name).exists():
        raise UsageError(
            f"No such action or model {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
            hint=f"actions: {', '.join(actions)}",
        )


def argument(name: str, summary: str, **attributes: Any) -> Callable[[Any], Any]:
    """Returns the decorator of a positional argument; ``attributes`` are click's."""

    def decorate(function: Any) -> Any:
        # created each time: in click 8.1 such a decorator can only be used for a single command
        return click.argument(name, cls=_Argument, summary=summary, **attributes)(function)

    return decorate


def command(name: str, example: str) -> Callable[[Callable[..., None]], Command]:
    """Returns the decorator that makes a function the command ``name``.

    ``example`` ends the help: command lines, each on a line. The table in ``edgekit.cli.main`` has
    the summary.
    """
    return click.command(name, cls=Command, epilog=example)
