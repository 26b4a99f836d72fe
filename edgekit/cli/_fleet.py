"""``edgekit fleet``: one release for many boards, in waves; its actions by name."""

from __future__ import annotations

from importlib import import_module

import click

from edgekit.cli._commands import SUMMARIES, write_examples
from edgekit.errors import UsageError

__all__ = ["ACTIONS", "command"]

#: By action the module ``edgekit.cli.MODULE``, which has a ``command``, and a sentence.
ACTIONS = {
    "deploy": ("_fleet_deploy", "Bring a release to an inventory's boards, wave by wave."),
    "status": ("_fleet_status", "Say how rollouts are, board by board."),
    "pause": ("_fleet_pause", "Let a rollout finish the boards it works on, and stop."),
    "resume": ("_fleet_resume", "Go on with a rollout, also after this machine was restarted."),
    "abort": ("_fleet_abort", "End a rollout; boards that are done keep the new release."),
    "rollback": ("_fleet_rollback", "Take a rollout's boards back to what served before it."),
    "export": ("_fleet_export", "Write a rollout for Ansible: inventory, playbooks and role."),
    "bench": ("_fleet_bench", "Measure an inventory's boards and compare them."),
}


class _Actions(click.Group):
    """Imports an action when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ACTIONS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in ACTIONS:
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, ACTIONS, 1)
            raise UsageError(
                f"No such action {cmd_name!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
                hint=f"actions: {', '.join(ACTIONS)}",
            )
        found: click.Command = import_module(f"edgekit.cli.{ACTIONS[cmd_name][0]}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Actions (each has its own --help)"):
            formatter.write_dl([(name, text) for name, (_, text) in ACTIONS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.epilog)


@click.group(
    "fleet",
    cls=_Actions,
    help=SUMMARIES["fleet"],
    epilog="edgekit fleet deploy configs/resnet50-orin.yaml --inventory fleet.yaml --canary 2",
    invoke_without_command=True,
)
@click.pass_context
def command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        context.exit(UsageError.exit_code)
