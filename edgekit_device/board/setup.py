"""The command ``setup``: lets the account set power modes and read clocks. It first shows its
commands, and can undo them.

The sudoers file allows only exact commands with exact arguments: this board's power modes, locking
and restoring clocks, reading the clocks of the DLA and the memory, tegrastats at two rates. It is
checked with ``visudo -c`` before it is moved into place. The command never prompts for a password:
if sudo requires one, it leaves a script for the user to run.
"""

from __future__ import annotations

import argparse
import grp
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, List, NamedTuple, Optional, Tuple

from edgekit_device.account import account_name
from edgekit_device.board.inventory import account_groups
from edgekit_device.board.power_tools import CLOCKS_FILE, read_modes
from edgekit_device.board.tegrastats import SetupRecord
from edgekit_device.errors import map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    dump,
    load,
    member,
    nullable,
    text,
)
from edgekit_device.store.root import Root

SUDOERS = "/etc/sudoers.d/edgekit"
_GROUPS = ("video", "render")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# only root can read them; JetPack 5 and 6 have different ones
_CLOCKS = (
    *(
        "/sys/kernel/debug/clk/dla{}_{}/clk_rate".format(core, part)
        for core in (0, 1)
        for part in ("core", "falcon")
    ),
    *("/sys/kernel/debug/bpmp/debug/clk/nafll_dla{}_core/rate".format(core) for core in (0, 1)),
    "/sys/kernel/debug/bpmp/debug/clk/emc/rate",
)
_INTERVALS = ("100", "1000")
_TIMEOUT_S = 60.0


class Account(NamedTuple):
    """The account to set up: its name, True if it is root, and the names of its groups."""

    name: str
    root: bool
    groups: List[str]


@document(frozen=True)
class SetupAnswer:
    """The answer of ``setup``.

    Attributes:
        sudoers: The text of ``file``.
        groups: The groups that the account is added to or removed from.
        script: A script for the user to run if sudo requires a password.
        text: A text for people.
    """

    sudoers: str = member(text(most=1 << 18))
    file: str = member(text())
    groups: Tuple[str, ...] = member(array(text()))
    script: Optional[str] = member(nullable(text()))
    state: str = member(choice("shown", "applied", "undone", "unneeded", "by-hand", "failed"))
    text: str = member(text(most=1 << 19))


def do_setup(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> SetupAnswer:
    """Shows the changes, or with --apply makes them; --undo reverts them."""
    account = Account(account_name(), os.geteuid() == 0, account_groups())
    return setup(root.folder, account, undo=arguments.undo, apply=arguments.apply)


def setup(
    folder: Path,
    account: Account,
    *,
    undo: bool = False,
    apply: bool = False,
    system: Path = Path("/"),
) -> SetupAnswer:
    """Sets up an account as ``do_setup``; ``folder`` is ROOT, which records the changes."""
    record_file = folder / "setup.json"
    record = load(SetupRecord, record_file)
    before = () if record is None else record.groups
    sudoers = sudoers_text(account.name, system)
    if undo:
        # only groups that setup added, not those that the account had before
        groups = [name for name in before if name in _GROUPS]
    else:
        groups = [name for name in _GROUPS if name not in account.groups and _group_exists(name)]
    if undo:
        leave = [["gpasswd", "-d", account.name, name] for name in groups]
        commands = [["rm", "-f", SUDOERS], *leave]
    else:
        commands = _commands(folder, account, groups)
    answer = SetupAnswer(sudoers, SUDOERS, tuple(groups), None, "shown", "")
    if account.root:
        return replace(answer, state="unneeded", text="the account is root and needs no setup")
    if undo and record is None:
        return replace(answer, state="unneeded", text="edgekit has not changed anything here")
    # another edgekit, or other power modes after an update, need another file
    if not undo and record is not None and record.sudoers == sudoers and not groups:
        return replace(answer, state="unneeded", text="it is already set up")
    shown = "\n".join(" ".join(shlex.quote(word) for word in command) for command in commands)
    if not apply:
        what = "is undone with" if undo else "writes {}:\n{}\nwith".format(SUDOERS, sudoers)
        return replace(answer, state="shown", text="setup {}\n{}".format(what, shown))
    folder.mkdir(parents=True, exist_ok=True)
    with map_os_errors(str(folder)):
        write_durably(folder / "edgekit.sudoers", sudoers.encode("ascii"))
    # in order: visudo has checked the file before it is installed
    problem = _run_all(commands)
    if problem == "sudo":
        script = folder / "setup.sh"
        with map_os_errors(str(folder)):
            write_durably(script, "#!/bin/sh\nset -e\n{}\n".format(shown).encode("ascii"))
        words = "sudo asks for a password here; run on the board:\n  sudo sh {}".format(script)
        return replace(answer, state="by-hand", text=words, script=str(script))
    if problem:
        return replace(answer, state="failed", text=problem)
    with map_os_errors(str(folder)):
        if undo:
            record_file.unlink()
            return replace(answer, state="undone", text="removed {}".format(SUDOERS))
        # also groups of earlier runs, which an undo must remove
        added = tuple(sorted({*before, *groups}))
        write_durably(record_file, dump(SetupRecord(sudoers, added)))
    more = "; groups apply from the next login" if groups else ""
    return replace(answer, state="applied", text="set up{}".format(more))


def sudoers_text(user: str, system: Path = Path("/")) -> str:
    """Returns the sudoers file: exact commands with exact arguments of the installed programs."""
    allowed: List[str] = []
    nvpmodel, clocks = _program("nvpmodel", system), _program("jetson_clocks", system)
    if nvpmodel:
        allowed += [nvpmodel + " -q", nvpmodel + " -q --verbose", nvpmodel + " -p --verbose"]
        allowed += ["{} -m {}".format(nvpmodel, mode.id) for mode in read_modes(system)]
    if clocks:
        # "" allows only the command without arguments (sudoers(5)); --restore writes the file's
        # values as root, so the account must not be able to write that file
        allowed += [clocks + ' ""', clocks + " --show"]
        allowed += [
            "{} {} {}".format(clocks, option, CLOCKS_FILE) for option in ("--store", "--restore")
        ]
        remove = _program("rm", system)
        allowed += ["{} -f {}".format(remove, CLOCKS_FILE)] if remove else []
    tegrastats = _program("tegrastats", system)
    if tegrastats:
        allowed += ["{} --interval {}".format(tegrastats, rate) for rate in _INTERVALS]
        allowed.append(tegrastats + " --stop")
    cat = _program("cat", system)
    if cat:
        allowed += ["{} {}".format(cat, path) for path in _CLOCKS]
    head = "# edgekit doctor --setup; edgekit doctor --setup --undo takes it back\n"
    lines = ["{} ALL=(root) NOPASSWD: {}\n".format(user, command) for command in allowed]
    return head + "".join(lines)


def _commands(folder: Path, account: Account, groups: List[str]) -> List[List[str]]:
    made = str(folder / "edgekit.sudoers")
    found = [
        ["visudo", "-c", "-f", made],
        # the mode of sudo's own files (sudoers(5))
        ["install", "-m", "0440", "-o", "root", "-g", "root", made, SUDOERS],
    ]
    if groups:
        found.append(["usermod", "-aG", ",".join(groups), account.name])
    return found


def _run_all(commands: List[List[str]]) -> str:
    """Runs each command as root; returns "", an error, or "sudo" if sudo requires a password."""
    for number, command in enumerate(commands):
        try:
            process = subprocess.run(
                ["sudo", "-n", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            return "sudo is not on this board"
        except (OSError, subprocess.TimeoutExpired) as error:
            return "sudo {}: {}".format(command[0], error)
        if process.returncode:
            lines = process.stdout.decode("utf-8", "replace").strip().splitlines()
            last = lines[-1] if lines else "exit status {}".format(process.returncode)
            # the first command shows if sudo needs a password
            if number == 0 and last.startswith("sudo:"):
                return "sudo"
            return "{} failed, and the later steps were not run: {}".format(" ".join(command), last)
    return ""


def _program(name: str, system: Path) -> Optional[str]:
    for folder in _PATH.split(":"):
        if (system / folder.lstrip("/") / name).is_file():
            return folder + "/" + name
    return shutil.which(name) if system == Path("/") else None


def _group_exists(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
