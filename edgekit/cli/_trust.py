"""``edgekit trust``: whose signatures a board believes; keys come, go and are revoked."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit._files import regular
from edgekit.cli import _options as o
from edgekit.cli._boards import failing
from edgekit.cli._commands import argument
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["command"]

_NO_CHANGE = ("identity", "force", "listing")
_ROLES = {"current": "serves", "previous": "the one before", "kept": "kept"}


@o.command(
    "trust",
    "edgekit trust nvidia@10.0.0.7 --add new.pub --identity ci@example.com\n"
    "edgekit trust nvidia@10.0.0.7 --revoke old.pub --remove old.pub\n"
    "edgekit trust configs/resnet50-orin.yaml --list",
)
@argument("where", "USER@HOST:PORT, an alias of ~/.ssh/config, or a YAML configuration.")
@click.option("--add", multiple=True, type=o.FILE, help="Public key that may sign; repeatable.")
@click.option("--identity", help="What the board calls the keys of --add (the key's comment).")
@click.option("--valid-after", metavar="DATE", help="YYYYMMDD[HHMM]: not before, for --add.")
@click.option("--valid-before", metavar="DATE", help="YYYYMMDD[HHMM]: not after, for --add.")
@click.option("--remove", multiple=True, metavar="KEY", help="Fingerprint, identity or key file.")
@click.option("--force", is_flag=True, help="With --remove, --signers: also the last key.")
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
    from edgekit.pipeline._hosts import boards_of, fill_hint, open_client

    changes = _changes(wish)
    documents: list[dict[str, Any]] = []
    lost: list[EdgekitError] = []
    for board in boards_of(where, root=root, python=python):
        answers = False
        try:
            with open_client(board, accept_host_key=accept_host_key) as client:
                answers = True
                documents.append(_change(client, changes))
        except (BoardError, EnvironmentLack) as error:
            fill_hint(error, where, board)
            lost.append(error)
            documents.append({"board": board.name, "reachable": answers, **error.to_json()})
        # what the command ends with is said then
        if not json and (documents[-1]["error"] is None or len(lost) > 1):
            _show(documents[-1], documents, any(changes.values()))
    if json:
        o.print_json({"schema": "edgekit.trust/1", "boards": documents})
    if lost:
        raise o.printed(lost[0])


def _changes(wish: dict[str, Any]) -> dict[str, Any]:
    """What the board is asked; every file is read before the first board is changed."""
    from edgekit.bundle import allowed_signers_line

    given = {name for name, value in wish.items() if value and name not in _NO_CHANGE}
    if wish["listing"] and given:
        raise UsageError("--list goes with no change")
    if given & {"valid_after", "valid_before"} and not wish["add"]:
        raise UsageError("--valid-after and --valid-before go with --add")
    if wish["identity"] and not wish["add"]:
        raise UsageError("--identity goes with --add")
    if wish["force"] and not given & {"remove", "signers"}:
        raise UsageError("--force goes with --remove and --signers")
    times = {"after": wish["valid_after"], "before": wish["valid_before"]}
    changes: dict[str, Any] = {
        "lines": [allowed_signers_line(path, wish["identity"], times) for path in wish["add"]],
        "remove": [_key_of(word) for word in wish["remove"]],
        "revoke": [_text(path).strip() for path in wish["revoke"]],
    }
    if wish["force"]:
        changes["force"] = True
    if wish["signers"]:
        lines = [line.strip() for line in _text(wish["signers"]).splitlines()]
        changes["signers"] = [line for line in lines if line and not line.startswith("#")]
    if wish["revocations"]:
        changes["revocations"] = base64.b64encode(_read(wish["revocations"])).decode("ascii")
    return changes


def _key_of(word: str) -> str:
    """A key's line where a file is named; fingerprints and identities stay."""
    with contextlib.suppress(OSError, ValueError):
        if Path(word).expanduser().is_file():
            return _text(Path(word)).strip()
    return word


def _text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    """A file's bytes; those of a private key go to no board."""
    from edgekit.bundle import refuse_private

    try:
        data = regular(path.expanduser()).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror or error}", code="sign.no-key", where=str(path)
        ) from error
    refuse_private(data.decode("utf-8", "replace"), str(path))
    return data


def _change(client: BoardClient, changes: dict[str, Any]) -> dict[str, Any]:
    return {"board": client.name, "reachable": True, "error": None, **client.trust(**changes)}


def _count(keys: int) -> str:
    return f"{keys or 'no'} key{'' if keys == 1 else 's'}"


def _show(document: dict[str, Any], documents: list[dict[str, Any]], changes: bool) -> None:
    name = document["board"]
    if document["error"] is not None:
        o.say(f"{name}: {': '.join(failing(document, documents))}")
        return
    told = ", ".join(
        f"{document[what]} {what}" for what in ("added", "removed", "revoked") if document[what]
    )
    may = len(document["signers"])
    o.say(f"{name}: {told or ('nothing changed' if changes else _count(may))}")
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
