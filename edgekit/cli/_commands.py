"""The commands by name, found without importing them, and how their help is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click

from edgekit.errors import UsageError

__all__ = [
    "SUMMARIES",
    "Commands",
    "action",
    "argument",
    "command",
    "command_with_actions",
    "write_examples",
]

# what each does, in the order of a project's life; the module edgekit.cli._NAME holds it
SUMMARIES = {
    "init": "Write a commented YAML configuration.",
    "targets": "List the boards with their DLA cores and power modes.",
    "doctor": "Say what a board has, lacks and can do; --setup prepares it.",
    "check": "Say which layers can run on a DLA, and for the others which rule they break.",
    "explain": "Print a DLA rule with its limit, its source and what to do about it.",
    "rewrite": "Apply every rewrite that improves the verdict, each proved on random inputs.",
    "calibrate": "Measure INT8 scales with ONNX Runtime, in TensorRT's calibration cache format.",
    "plan": "Place layers on GPU and DLA and predict latency, throughput and energy.",
    "build": "Build the engines of a configuration and compare them with FP32.",
    "jobs": "List, follow, read and cancel what boards are building by themselves.",
    "bundle": "Pack the engines, without their weights, into one signed file.",
    "deploy": "Ship, refit, self-test and switch to a new release; the old one is kept.",
    "status": "Say what boards serve, deploy and keep.",
    "top": "Show a board live: GPU, DLA, memory, power, temperatures, releases.",
    "releases": "List the releases on boards.",
    "rollback": "Switch boards back to the release before.",
    "remove": "Remove a release or an application from boards.",
    "fleet": "Bring a release to many boards in waves; pause, resume, roll back, compare.",
    "trust": "Say whose signatures a board believes; add, remove and revoke keys.",
    "serve": "Keep a release loaded on a board, behind a socket: start, ask or end its server.",
    "refit": "Ship only the tensors that changed and refit the engines on the board.",
    "infer": "Run one inference on the board.",
    "bench": "Measure latency and throughput by trtexec's method and write a trace.",
    "trace": "Put measurements of bench, Nsight Systems, trtexec and cuDLA on one timeline.",
    "tune": "Plan, build and measure until no plan that is left can be better.",
    "history": "List what was measured, with commit, bundle and board; show, mark, export, prune.",
    "compare": "Say whether one measurement really differs from another; 1 for a regression.",
    "report": "Do what is not done yet and write the report.",
    "run": "Run all steps: check, rewrite, calibrate, plan, build, bundle, deploy, refit, "
    "bench, ...",
}


class Commands(click.Group):
    """A group that imports a command when it is called, so that none waits for another's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the help."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Imports a command.

        Raises:
            UsageError: There is none of that name.
        """
        if cmd_name not in SUMMARIES:
            from difflib import get_close_matches

            near = " or ".join(map(repr, get_close_matches(cmd_name, SUMMARIES)))
            raise UsageError(
                f"No such command {cmd_name!r}." + (f" Did you mean {near}?" if near else ""),
                hint="edgekit --help",
            )
        found: click.Command = import_module(f"edgekit.cli._{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes names and summaries."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the example."""
        write_examples(formatter, self.epilog)


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


class _Command(click.Command):
    actions: Mapping[str, tuple[str, str]] = {}

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Hands over to an action where the first argument names one."""
        if args and args[0] in self.actions:
            module, _ = self.actions[args[0]]
            action: click.Command = getattr(
                import_module(f"edgekit.cli.{module}"), args[0].replace("-", "_")
            )
            return action.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        if args and self.actions and args[0].isidentifier():
            places = sum(isinstance(item, click.Argument) for item in self.params)
            too_many = not any(word.startswith("-") for word in args[: places + 1])
            _no_action(args[0], self.actions, surely=too_many and len(args) > places)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses options whose value is empty, as a shell's unset variable leaves them.

        Below it could be taken for an option that was not given, which often means all.
        """
        left = super().parse_args(ctx, args)
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
            with formatter.section(f"Actions (instead of {instead}; each has its own --help)"):
                formatter.write_dl([(name, text) for name, (_, text) in self.actions.items()])


def _no_action(name: str, actions: Mapping[str, Any], *, surely: bool) -> None:
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


def command(name: str, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns the decorator that makes a function the command ``name`` of SUMMARIES.

    ``example`` ends the help: command lines, one a line.
    """
    return click.command(name, cls=_Command, help=SUMMARIES[name], epilog=example)


def command_with_actions(
    name: str, example: str, actions: Mapping[str, tuple[str, str]]
) -> Callable[[Callable[..., None]], click.Command]:
    """Returns :func:`command`'s decorator for a command that is also ``NAME ACTION ...``.

    Args:
        name: A name of SUMMARIES.
        example: As for :func:`command`.
        actions: By action the module ``edgekit.cli.MODULE``, which has a command of the action's
            name with underscores, and one sentence for the help. A model of an action's name is
            given as ``./NAME``.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        made = command(name, example)(function)
        assert isinstance(made, _Command)
        made.actions = actions
        return made

    return decorate


def action(summary: str, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns the decorator that makes a function an action of a command."""
    return click.command(cls=_Command, help=summary, epilog=example)
