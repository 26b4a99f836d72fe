"""How a command is declared: its name, its actions, its example, and how its help is laid out.
``edgekit.cli.main`` has the table of all commands with what each does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click
import click.shell_completion

from edgekit.errors import UsageError


def write_examples(formatter: click.HelpFormatter, examples: str | None) -> None:
    """Writes examples that can be copied: one a line, however long, and as it is typed."""
    lines = (examples or "").splitlines()
    if lines:
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            for line in lines:
                formatter.write(f"  {line}\n")


class _Argument(click.Argument):
    """A positional argument that the help explains."""

    def __init__(self, *args: Any, summary: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.summary = summary

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Returns the name that the help gives it, and not its choices."""
        return f"'{self.human_readable_name}'"

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Returns what a shell offers: files where nothing else is known, and actions."""
        item = click.shell_completion.CompletionItem
        found = super().shell_complete(ctx, incomplete)
        if not found and isinstance(self.type, click.types.StringParamType):
            found = [item(incomplete, type="file")]
        actions = getattr(ctx.command, "actions", {}) if self is ctx.command.params[0] else {}
        return [*found, *(item(name) for name in actions if name.startswith(incomplete))]


class Command(click.Command):
    """A command of edgekit; ``edgekit NAME ACTION ...`` runs one of its actions."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.actions: dict[str, click.Command] = {}

    def action(
        self, name: str, summary: str, example: str, more: str | None = None
    ) -> Callable[[Callable[..., None]], click.Command]:
        """Returns the decorator that makes a function the action ``name``.

        ``summary`` is its line in this command's help, ``more`` the text of its own help if that
        says more. A model of an action's name is given as ``./NAME``.
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
        """Hands over to an action where the first argument names one."""
        if args and args[0] in self.actions:
            action = self.actions[args[0]]
            return action.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        if args and args[0].isidentifier():
            _check_removed(f"{info_name} {args[0]}")
        if args and self.actions and args[0].isidentifier():
            places = sum(isinstance(item, click.Argument) for item in self.params)
            too_many = not any(word.startswith("-") for word in args[: places + 1])
            _no_action(args[0], self.actions, surely=too_many and len(args) > places)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses options whose value is empty, as a shell's unset variable leaves them.

        Below it could be taken for an option that was not given, which often means all.
        """
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not say whose option it is
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
    """Raises UsageError with what to do instead of a command or an option that was removed."""
    from edgekit.removed import COMMANDS

    words = words.removeprefix("edgekit ")
    if words in COMMANDS:
        raise UsageError(f"edgekit {words} no longer exists", hint=COMMANDS[words])


def _no_action(name: str, actions: Collection[str], *, surely: bool) -> None:
    """Refuses a slip of an action's name where there is no such file either.

    ``surely``: too much follows for the command without an action, so it can be nothing else.
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
        # made anew each time: in click 8.1 such a decorator serves one command only
        return click.argument(name, cls=_Argument, summary=summary, **attributes)(function)

    return decorate


def command(name: str, example: str) -> Callable[[Callable[..., None]], Command]:
    """Returns the decorator that makes a function the command ``name``.

    ``example`` ends the help: command lines, one a line. The table in ``edgekit.cli.main`` has the
    summary.
    """
    return click.command(name, cls=Command, epilog=example)
