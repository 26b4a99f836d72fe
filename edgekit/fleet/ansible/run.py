"""``edgekit fleet deploy --driver ansible``: runs the exported playbook, passes its outcome on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.config.loader import open_config
from edgekit.errors import EnvironmentLack
from edgekit.fleet.ansible.export import Exported, export
from edgekit.fleet.hints import ansible_folder, playbook_command, rollout_name, state_folder
from edgekit.fleet.inventory import find_program
from edgekit.fleet.waves import DEFAULT_WAVES
from edgekit.pipeline.progress import Progress
from edgekit.text import counted

_PLUGINS, _PLUGIN = Path(__file__).with_name("callback"), "edgekit_recap"


@dataclass(slots=True)
class _PlaybookOutcome:
    """How Ansible ended: its exit status, its recap by board, and its last error of no board."""

    code: int = 0
    recap: Mapping[str, Any] | None = None
    error: str = ""
    interrupted: bool = False


def deploy_by_ansible(
    config: str | Path,
    inventory: Path,
    *,
    state: Path | None = None,
    name: str | None = None,
    selector: str | None = None,
    canary: int = 0,
    waves: str = DEFAULT_WAVES,
    budget: str = "0",
    parallel: int = 8,
    bundle: Path | None = None,
    trust_key: bool = False,
    again: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Writes the export, runs its ``deploy.yml`` and returns an ``edgekit.fleet.ansible-run/1``.

    Ctrl-C stops Ansible; boards that are under way end by themselves what they began.

    Args:
        config: The configuration of the application.
        inventory: The boards.
        state: The folder of the fleet's state; the export is in ``ansible/NAME`` there.
        name: The rollout's; one that was there before is brought up to date and run again.
        selector: Which boards.
        canary: Boards of a first wave of their own.
        waves: As of ``make_waves``.
        budget: Percent of a wave's boards that may fail, "5%".
        parallel: Boards at a time, Ansible's forks.
        bundle: Instead of building one.
        trust_key: Whether boards are to trust the configuration's signing key from now on.
        again: Whether boards put back what was taken back on them.
        progress: Where a build reports.
        say: Called with each line that Ansible prints.

    Raises:
        EnvironmentLack: "fleet.no-ansible".
        EdgekitError: What ``export`` raises; then nothing was begun.
    """
    program = find_program("ansible-playbook")
    if program is None:
        raise EnvironmentLack(
            "ansible-playbook is not installed",
            code="fleet.no-ansible",
            hint="pip install 'edgekit[ansible]', or use --driver ssh",
        )
    app, state = str(open_config(config).file.name), state or state_folder()
    name = rollout_name(name, app, lambda new: ansible_folder(state, new).exists())
    folder = ansible_folder(state, name).resolve()
    made = export(
        folder,
        config,
        inventory=inventory,
        selector=selector,
        bundle=bundle,
        canary=canary,
        waves=waves,
        budget=budget,
        trust_key=trust_key,
        again=again,
        private=True,
        progress=progress,
    )
    say(f"{name}: Ansible runs deploy.yml in {folder}")
    command = [program, "-i", "inventory.yml", "--forks", str(parallel), "deploy.yml"]
    return _document(name, app, made, _run(command, folder, say))


def _run(command: list[str], folder: Path, say: Callable[[str], None]) -> _PlaybookOutcome:
    recap = folder / "recap.json"
    recap.unlink(missing_ok=True)
    # ansible-playbook starts further programs of Ansible's, which are in its folder
    own = {
        "PATH": (str(Path(command[0]).parent), os.pathsep),
        "ANSIBLE_CALLBACK_PLUGINS": (str(_PLUGINS), os.pathsep),
        "ANSIBLE_CALLBACKS_ENABLED": (_PLUGIN, ","),
    }
    env = {
        **os.environ,
        **{key: between.join(filter(None, (value, os.environ.get(key))))
           for key, (value, between) in own.items()},
        "EDGEKIT_RECAP": str(recap),
    }  # fmt: skip
    ended = _PlaybookOutcome()
    # a session of its own: Ctrl-C reaches Ansible once, from here
    with subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        while True:
            try:
                for line in process.stdout:
                    say(line.rstrip("\n"))
                    if line.startswith(("ERROR", "[ERROR]")):
                        ended.error = line.strip()
                ended.code = process.wait()
                break
            except KeyboardInterrupt:
                if ended.interrupted:
                    process.terminate()
                    raise
                ended.interrupted = True
                process.send_signal(signal.SIGINT)
                say("Ansible is stopped; boards that have started finish on their own")
    if recap.is_file():
        ended.recap = json.loads(recap.read_text(encoding="utf-8"))
    return ended


def _document(name: str, app: str, made: Exported, ended: _PlaybookOutcome) -> dict[str, Any]:
    numbers = [number for number, size in enumerate(made.waves, 1) for _ in range(size)]
    boards = [
        {"board": board, "wave": wave, **_board(board, ended.recap)}
        for board, wave in zip(made.order, numbers, strict=True)
    ]
    counts = dict(sorted(Counter(row["state"] for row in boards).items()))
    failure = None
    if ended.recap and set(counts) != {"ok"}:
        text = ", ".join(f"{count} {state}" for state, count in counts.items())
        failure = {
            "code": "fleet.failures",
            "message": f"not all of {counted(len(boards), 'board')} have the release: {text}",
        }
    elif not ended.interrupted and (ended.recap is None or ended.code):
        why = f": {ended.error}" if ended.error else ""
        failure = {
            "code": "fleet.ansible",
            "message": f"ansible-playbook failed with exit status {ended.code}{why}",
        }
    if failure:
        failure.update(where=name, hint=playbook_command(Path(made.folder)))
    state = "interrupted" if ended.interrupted else "failed" if failure else "done"
    return {
        "schema": "edgekit.fleet.ansible-run/1",
        "rollout": name,
        "app": app,
        "state": state,
        "folder": made.folder,
        "bundles": [list(row) for row in made.bundles],
        "exit_status": ended.code,
        "counts": counts,
        "boards": boards,
        "failure": failure,
        "notes": list(made.notes),
    }


def _board(name: str, recap: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns what Ansible's recap says of a board."""
    found = (recap or {}).get(name)
    if found is None:
        # waves that were not begun are in no recap
        return {"state": "unknown" if recap is None else "not-begun", "changed": None,
                "error": None}  # fmt: skip
    state = "unreachable" if found["unreachable"] else "failed" if found["failures"] else "ok"
    error = None
    if state != "ok":
        why = found["why"] if isinstance(found["why"], dict) else {"message": found["why"]}
        code = "board.unreachable" if state == "unreachable" else "board.failed"
        error = {
            "code": str(why.get("code") or code),
            "message": " ".join(str(why.get("message") or "Ansible gave no reason").split()),
            "where": name,
            "hint": str(why.get("hint") or ""),
        }
    return {"state": state, "changed": found["changed"] > 0, "error": error}
