"""``edgekit trust``: whose signatures a board believes; keys come, go and are revoked."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["command"]

_ROLES = {"current": "serves", "previous": "the one before", "kept": "kept"}


@o.command(
    "trust",
    "Examples: edgekit trust nvidia@10.0.0.7 --add new.pub --identity ci@example.com; "
    "edgekit trust nvidia@10.0.0.7 --revoke old.pub --remove old.pub; "
    "edgekit trust configs/resnet50-orin.yaml --list",
)
@argument("where", "USER@HOST:PORT, an alias of ~/.ssh/config, or a YAML configuration.")
@click.option("--add", multiple=True, type=o.FILE, help="Public key that may sign; repeatable.")
@click.option("--identity", default="edgekit", help="What the board calls the keys of --add.")
@click.option("--valid-after", metavar="DATE", help="YYYYMMDD[HHMM]: not before, for --add.")
@click.option("--valid-before", metavar="DATE", help="YYYYMMDD[HHMM]: not after, for --add.")
@click.option("--remove", multiple=True, metavar="KEY", help="Fingerprint, identity or key file.")
@click.option("--revoke", multiple=True, type=o.FILE, help="Public key that never signs again.")
@click.option("--signers", type=o.FILE, help="allowed_signers to take instead of the board's.")
@click.option("--revocations", type=o.FILE, help="KRL or list of keys to take instead.")
@click.option("--list", "listing", is_flag=True, help="Only list; so without any option.")
@click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST.")
@click.option("--python", default="python3", help="Python on the board, for a HOST.")
@o.accept_host_key
@o.talk
def command(
    where: str,
    root: str,
    python: str,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    **wish: Any,
) -> None:
    from edgekit.pipeline._hosts import boards_of, open_client

    changes = _changes(wish)
    documents: list[dict[str, Any]] = []
    lost: list[EdgekitError] = []
    for board in boards_of(where, root=root, python=python):
        try:
            with open_client(board, accept_host_key=accept_host_key) as client:
                documents.append(_change(client, changes))
        except (BoardError, EnvironmentLack) as error:
            lost.append(error)
            documents.append({"board": board.name, "reachable": False, **error.to_json()})
        if not json:
            _show(documents[-1])
    if json:
        o.print_json({"schema": "edgekit.trust/1", "boards": documents})
    if lost:
        raise o.printed(lost[0])


def _changes(wish: dict[str, Any]) -> dict[str, Any]:
    """What the board is asked; every file is read before the first board is changed."""
    from edgekit.bundle import allowed_signers_line

    given = {name for name, value in wish.items() if value and name not in ("identity", "listing")}
    if wish["listing"] and given:
        raise UsageError("--list goes with no change")
    if given & {"valid_after", "valid_before"} and not wish["add"]:
        raise UsageError("--valid-after and --valid-before go with --add")
    times = {"after": wish["valid_after"], "before": wish["valid_before"]}
    changes: dict[str, Any] = {
        "lines": [allowed_signers_line(path, wish["identity"], times) for path in wish["add"]],
        "remove": [_key_of(word) for word in wish["remove"]],
        "revoke": [_read(path).decode("utf-8", "replace").strip() for path in wish["revoke"]],
    }
    if wish["signers"]:
        text = _read(wish["signers"]).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines()]
        changes["signers"] = [line for line in lines if line and not line.startswith("#")]
    if wish["revocations"]:
        changes["revocations"] = base64.b64encode(_read(wish["revocations"])).decode("ascii")
    return changes


def _key_of(word: str) -> str:
    """A key's line where a file is named; fingerprints and identities stay."""
    with contextlib.suppress(OSError, ValueError):
        if Path(word).is_file():
            return Path(word).read_text(encoding="utf-8").strip()
    return word


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror or error}", code="sign.no-key", where=str(path)
        ) from error


def _change(client: BoardClient, changes: dict[str, Any]) -> dict[str, Any]:
    return {"board": client.name, "reachable": True, "error": None, **client.trust(**changes)}


def _show(document: dict[str, Any]) -> None:
    name = document["board"]
    if not document["reachable"]:
        o.say(f"{name}: not reached: {document['error']['message']}")
        return
    told = ", ".join(
        f"{document[what]} {what}" for what in ("added", "removed", "revoked") if document[what]
    )
    o.say(f"{name}: {told or 'nothing changed'}")
    revoked = document["revocations"]
    for key in document["keys"]:
        times = "".join(
            f", {word} {key[field]}"
            for word, field in (("from", "valid_after"), ("until", "valid_before"))
            if key[field]
        )
        gone = ", revoked" if key["fingerprint"] in revoked["fingerprints"] else ""
        o.say(f"  {key['identity']}  {key['kind']} {key['fingerprint']}{times}{gone}")
    if not document["keys"]:
        o.say("  nobody may sign: the board takes no bundle")
    if revoked["kind"] == "krl":
        o.say("  revoked: as the board's KRL says")
    for fingerprint in revoked["fingerprints"]:
        o.say(f"  revoked: {fingerprint}")
    for one in document["refused"]:
        role = _ROLES.get(one["role"], one["role"])
        o.say(f"  {one['app']}/{one['release']} ({role}) loads no more: {one['message']}")
    if any(one["role"] == "current" for one in document["refused"]):
        o.say("  deploy a release that is signed with a trusted key")
