"""``edgekit fleet export ansible``: the same rollout for Ansible, past what one workstation drives.

The folder holds everything that ``ansible-playbook`` needs: the boards, the signed bundle, the
loader, and a role that calls the board's one command (``install``). Whatever Ansible does, the
board itself checks, tests, switches and goes back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.fleet._ansible_files import PIN, SETTINGS, inventory, percentage, playbooks, to_yaml
from edgekit.fleet._types import Member
from edgekit.fleet._waves import DEFAULT_WAVES, make_waves

if TYPE_CHECKING:
    from edgekit.bundle import Bundle

__all__ = [
    "Exported",
    "claim",
    "export_ansible",
    "known_hosts_text",
    "lay_out",
    "put_bundle",
    "trusted",
]

_ROLE = "edgekit_board"
_COMMENT = "Written by edgekit fleet export ansible. The waves take boards in this order."


@dataclass(frozen=True, slots=True)
class Exported:
    """A folder for Ansible.

    Attributes:
        folder: Where it is.
        boards: Number of boards.
        waves: Boards of each wave.
        bundles: App and digest of each bundle.
        notes: What a user should know.
    """

    folder: str
    boards: int
    waves: tuple[int, ...]
    bundles: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = field(default=())


def export_ansible(
    folder: Path,
    members: Sequence[Member],
    bundles: Mapping[str, Bundle],
    *,
    canary: int = 0,
    waves: str = DEFAULT_WAVES,
    budget: str = "0",
    sources: Sequence[str] = (),
    signers: Sequence[str] = (),
    policy: Mapping[str, Any] | None = None,
    known_hosts: Path | None = None,
) -> Exported:
    """Writes the folder; one that an export made before is brought up to date.

    Args:
        folder: Where to; files of others in it (``group_vars``, ``host_vars``) stay.
        members: The boards.
        bundles: By board's name its bundle, signed and with its weights.
        canary: Boards of a first wave of their own.
        waves: As of ``make_waves``.
        budget: Percent of a wave's boards that may fail, "5%".
        sources: Mirrors' or registries' URLs that boards fetch from; none: Ansible copies.
        signers: Lines of allowed_signers that boards shall trust.
        policy: The health policy.
        known_hosts: edgekit's own file of known host keys.

    Raises:
        UsageError: No boards, wrong waves, a board with a container, or a folder of others.
        BundleError: A bundle without its weights.
    """
    if not members:
        raise UsageError("there is no board to export", code="fleet.empty")
    most = percentage(budget)
    made = make_waves(members, canary, waves)
    facts = {
        name: {"edgekit_board_app": bundle.name, "edgekit_board_digest": bundle.digest}
        for name, bundle in bundles.items()
    }
    settings: dict[str, Any] = {
        "edgekit_board_signers": list(signers),
        "edgekit_board_policy": dict(policy or {}),
        "edgekit_board_sources": list(sources),
    }
    # before anything is written: what of the boards cannot be exported
    ordered = [member for wave in made for member in wave]
    inventory(ordered, facts, settings)
    claim(folder)
    different = {bundle.digest: bundle for bundle in bundles.values()}
    known = known_hosts_text(known_hosts)
    settings["edgekit_board_loader"] = lay_out(folder, known)
    for bundle in different.values():
        put_bundle(bundle, folder, copied=not sources)
    texts = {
        "inventory.yml": to_yaml(inventory(ordered, facts, settings), _COMMENT),
        **playbooks([len(wave) for wave in made], most),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Exported(
        str(folder),
        len(ordered),
        tuple(len(wave) for wave in made),
        tuple((bundle.name, bundle.digest) for bundle in different.values()),
        _notes(ordered, known),
    )


def lay_out(folder: Path, known_hosts: str = "") -> str:
    """Writes role, loader and Ansible's settings; returns the loader as an inventory names it."""
    shutil.copytree(
        Path(__file__).with_name("_ansible_role"), folder / "roles" / _ROLE, dirs_exist_ok=True
    )
    texts = {"ansible.cfg": SETTINGS, "pinned_host_key": PIN, "known_hosts": known_hosts}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return "{{ inventory_dir }}/" + _put_loader(folder)


def claim(folder: Path) -> None:
    """Takes a new folder, or one of an earlier export."""
    ours = not folder.exists() or (folder / "roles" / _ROLE).is_dir()
    if not ours and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "there is something else here",
            code="write.occupied",
            where=str(folder),
            hint="name a new folder, or one that this command wrote",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", code="write.failed", where=str(folder)
        ) from error


def put_bundle(bundle: Bundle, folder: Path, *, copied: bool) -> None:
    """Writes a bundle as a mirror has it, and what a board is asked; for copying also whole."""
    from edgekit.bundle import push, write

    mirror = folder / "bundles"
    push(bundle, str(mirror))
    here = mirror / bundle.name / bundle.digest
    if copied:
        write(bundle, here / "bundle.ekb", stripped=False)
    signature = None if bundle.signature is None else bundle.signature.decode("ascii")
    offer = {"manifest": bundle.manifest_bytes.decode("utf-8"), "signature": signature}
    (here / "offer.json").write_text(json.dumps(offer) + "\n", encoding="utf-8")


def _put_loader(folder: Path) -> str:
    """Writes the loader under the name that edgekit itself gives it on boards."""
    from edgekit.bundle import build_zipapp

    (folder / "loader").mkdir(exist_ok=True)
    temporary = folder / "loader" / ".new"
    digest = build_zipapp(temporary)
    name = f"loader/edgekit_device-{digest[:16]}.pyz"
    temporary.replace(folder / name)
    return name


def known_hosts_text(path: Path | None) -> str:
    """Returns edgekit's own known host keys, '' where there are none."""
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""


def _notes(members: Sequence[Member], known: str) -> tuple[str, ...]:
    loose = [member.name for member in members if member.board.host_key is None]
    if not loose or known:
        return ()
    shown = ", ".join(loose[:3]) + (f" and {len(loose) - 3} more" if len(loose) > 3 else "")
    return (
        f"no host key is pinned for {shown}: they have to be in ~/.ssh/known_hosts of who runs "
        "Ansible",
    )


def trusted(public_key: str) -> str:
    """Returns the allowed_signers line of a public key's text."""
    from tempfile import TemporaryDirectory

    from edgekit.bundle import allowed_signers_line

    with TemporaryDirectory() as folder:
        path = Path(folder, "key.pub")
        path.write_text(public_key + "\n", encoding="utf-8")
        return allowed_signers_line(path)
