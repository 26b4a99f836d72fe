"""``edgekit fleet deploy``: begins a rollout and drives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS
from edgekit.cli._fleet_show import finish, finish_ansible
from edgekit.errors import UsageError

__all__ = ["command"]

_SECONDS = click.FloatRange(min=0, max=30 * 86400)
#: What Ansible does not do, by parameter.
_SSH_ALONE = {
    "soak_s": "--soak",
    "deadline_s": "--deadline",
    "offline": "--offline",
    "accept_host_key": "--accept-host-key",
}

#: How a rollout goes on, as fields of ``edgekit.fleet.Settings``, and who does it.
_going_on = o.all_of(
    click.option(
        "--max-failures",
        "budget",
        default="0",
        show_default=True,
        help="Boards of a wave that may fail, N or P%; with more, the wave is rolled back.",
    ),
    click.option(
        "--parallel",
        type=click.IntRange(1, 256),
        default=8,
        show_default=True,
        help="Boards that are worked on at a time.",
    ),
    click.option(
        "--soak",
        "soak_s",
        type=_SECONDS,
        default=0,
        help="Seconds that a wave is watched before the next one begins.",
    ),
    click.option(
        "--deadline",
        "deadline_s",
        type=_SECONDS,
        default=600,
        show_default=True,
        help="Seconds that a board which cannot be reached is tried again.",
    ),
    click.option(
        "--offline",
        type=click.Choice(("skip", "fail")),
        default="skip",
        show_default=True,
        help="What a board counts as that was away all along.",
    ),
    click.option(
        "--driver",
        type=click.Choice(("ssh", "ansible")),
        default="ssh",
        show_default=True,
        help="Who deploys: this process over SSH, or ansible-playbook, which runs the export.",
    ),
)


@action(
    ACTIONS["deploy"][1],
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --canary 2\n"
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --select site=a "
    "--waves 5,25%,100% --max-failures 5% --soak 60\n"
    "edgekit fleet deploy configs/resnet50-orin.yaml -i fleet.yaml --driver ansible --parallel 25",
)
@o.config
@f.inventory
@f.select
@click.option(
    "--canary", type=click.IntRange(min=0), default=0, help="Boards of a wave before all."
)
@click.option(
    "--waves",
    default="10%,50%,100%",
    show_default=True,
    help="How far the rollout is after each wave, in boards or percent.",
)
@_going_on
@click.option("--name", help="Name of the rollout (the application's and the time).")
@click.option("--bundle", type=o.FILE, help="Install this bundle instead of building one.")
@o.again
@f.state
@o.boards
@o.talk
def command(
    config: str,
    inventory: Path,
    selector: str | None,
    canary: int,
    waves: str,
    name: str | None,
    bundle: Path | None,
    again: bool,
    state: Path | None,
    accept_host_key: bool,
    trust_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    budget: str,
    parallel: int,
    soak_s: float,
    deadline_s: float,
    offline: Literal["skip", "fail"],
    driver: Literal["ssh", "ansible"],
) -> None:
    talk: dict[str, Any] = {"quiet": quiet or json, "verbose": verbose}
    which: dict[str, Any] = {
        "selector": selector,
        "canary": canary,
        "waves": waves,
        "name": name,
        "bundle": bundle,
        "trust_key": trust_key,
    }
    if driver == "ansible":
        from edgekit.fleet._ansible_run import deploy

        _refuse_ssh_alone(click.get_current_context())
        document = deploy(
            config,
            inventory,
            state=state,
            budget=budget,
            parallel=parallel,
            again=again,
            progress=o.progress(**talk),
            say=(lambda line: None) if quiet else (lambda line: click.echo(line, err=True)),
            **which,
        )
        finish_ansible(document, json)
        return
    from edgekit.fleet import Settings

    settings = Settings(
        parallel=parallel,
        budget=budget,
        soak_s=soak_s,
        deadline_s=deadline_s,
        offline=offline,
        again=again,
    )
    with f.open_fleet(state, **talk, accept_host_key=accept_host_key) as fleet:
        made = fleet.begin(config, inventory, settings=settings, **which)
        with f.stops(lambda text: click.echo(text, err=True)) as stopped:
            document = fleet.drive(made, stopped=stopped)
    finish(document, fleet.store.folder, json, stopped.met, accept_host_key)


def _refuse_ssh_alone(context: click.Context) -> None:
    from edgekit.fleet._hints import ACCEPT_KEY

    for parameter, option in _SSH_ALONE.items():
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} is nothing that Ansible does",
                code="fleet.ansible-option",
                hint=ACCEPT_KEY if parameter == "accept_host_key" else
                "leave it out, or take --driver ssh",
            )  # fmt: skip
