"""``trust``: whose signatures a board believes; keys come, go and are revoked."""

from __future__ import annotations

import argparse
import base64
import binascii
import re
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterable, List, Optional

from ._checks import parse_json
from ._errors import DeviceError, map_os_errors
from ._files import locked, write_durably
from ._protocol import protocol_error
from ._release import check_signer
from ._revoked import describe_revocations, knows_times, replace_revocations, revoke
from ._root import App, Root
from ._sshsig import PublicKey, key_of_line

__all__ = ["do_trust", "refusals"]

_MOST = 16 << 20
_FIELDS = ("lines", "new", "remove", "revoke", "signers", "revocations", "force")
_LISTS = ("lines", "new", "remove", "revoke")
_TIME = r'"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?"'
_LINE = re.compile(
    r'(?P<who>[A-Za-z0-9@._+-]+) namespaces="edgekit-bundle"'
    r"(?P<times>(?:,valid-(?:after|before)={})*) ".format(_TIME)
    + r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) "
    r"[A-Za-z0-9+/]+={0,2}(?: [^\r\n]*)?\Z"
)


def do_trust(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Changes and lists who may sign.

    On stdin ``{"lines": [lines of allowed_signers to add], "new": [lines to add whose keys are not
    trusted yet, whatever they are called], "remove": [fingerprints, identities or keys], "revoke":
    [public keys], "signers": [lines, instead of all that are there], "revocations": base64 of a
    list of keys or a KRL, instead of the one that is there, "force": whether the last key may
    go}``; all are optional.

    Raises:
        DeviceError: "protocol.invalid", "trust.bad-line", "trust.no-such-key", "trust.ambiguous",
            "trust.nobody-left", "trust.bad-revocations" or "trust.no-times".
    """
    asked = _read(stdin)
    if not any(asked[name] for name in _LISTS) and asked["signers"] is asked["revocations"] is None:
        # who only looks waits for nobody, and nobody for him
        with map_os_errors(str(root.folder)):
            kept = _lines(root.allowed_signers)
            return {"added": 0, "removed": 0, "revoked": 0, **_told(root, kept)}
    with locked(root.folder / "lock"), map_os_errors(str(root.folder)):
        before = _lines(root.allowed_signers)
        found = before if asked["signers"] is None else list(asked["signers"])
        _check_lines(root, [*asked["lines"], *asked["new"], *(asked["signers"] or [])])
        lines = asked["lines"] + _of_new_keys(asked["new"], found)
        new = [line for line in dict.fromkeys(lines) if line not in found]
        kept = _without(found + new, asked["remove"])
        # who revokes a key means that it signs no more, also where it is the last
        if before and not kept and not asked["force"] and not asked["revoke"]:
            raise DeviceError(
                "that leaves nobody who may sign: the board would take and load no bundle",
                code="trust.nobody-left",
                where="allowed_signers",
                hint="add another key first, or --force",
            )
        # what forbids comes first: a power cut in between leaves less trust, never more
        if asked["revocations"] is not None:
            replace_revocations(root, asked["revocations"])
        revoked = revoke(root, asked["revoke"])
        if kept != before:
            write_durably(root.allowed_signers, "".join(one + "\n" for one in kept).encode("utf-8"))
    return {
        "added": len(set(kept) - set(before)),
        "removed": len(set(before) - set(kept)),
        "revoked": revoked,
        **_told(root, kept),
    }


def refusals(app: App, names: Optional[Iterable[str]] = None) -> List[Dict[str, Any]]:
    """The app's releases whose signatures are not believed any more: "release", "code", "message".

    ``names`` are those that are asked about, all when None. One that was staged with
    ``--trust-unsigned`` is believed unless its key is revoked.
    """
    found = []
    for name in app.releases() if names is None else names:
        try:
            check_signer(app.root, app.releases_folder / name)
        except DeviceError as error:
            found.append({"release": name, "code": error.code, "message": error.message})
    return found


def _read(stdin: BinaryIO) -> Dict[str, Any]:
    data = stdin.read(_MOST + 1)
    document = parse_json(data, "stdin", "protocol.invalid") if len(data) <= _MOST else None
    if not isinstance(document, dict) or set(document) - set(_FIELDS):
        raise protocol_error("expected {}".format(", ".join(_FIELDS)))
    asked = {name: document.get(name) for name in _FIELDS}
    for name in _LISTS:
        asked[name] = [] if asked[name] is None else asked[name]
    for name in (*_LISTS, "signers"):
        value = asked[name]
        if value is not None and not (
            isinstance(value, list) and all(isinstance(one, str) for one in value)
        ):
            raise protocol_error("{}: expected a list of texts".format(name))
    if asked["revocations"] is not None:
        try:
            asked["revocations"] = base64.b64decode(asked["revocations"], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise protocol_error("revocations: expected base64") from error
    if asked["force"] not in (None, True, False):
        raise protocol_error("force: expected true or false")
    return asked


def _of_new_keys(lines: List[str], found: List[str]) -> List[str]:
    """The lines whose keys are in none of those that are there."""
    keys = [key_of_line(line) for line in found]
    known = {key.blob for key in keys if key is not None}
    pairs = [(line, key_of_line(line)) for line in lines]
    return [line for line, key in pairs if key is not None and key.blob not in known]


def _lines(file: Path) -> List[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _check_lines(root: Root, lines: List[str]) -> None:
    timed = False
    for line in lines:
        match = _LINE.match(line)
        if match is None or key_of_line(line) is None:
            raise DeviceError(
                "not a line of allowed_signers for edgekit: {!r}".format(line[:120]),
                code="trust.bad-line",
                hint='IDENTITY namespaces="edgekit-bundle" ssh-ed25519 KEY',
            )
        timed = timed or bool(match.group("times"))
    if timed and not knows_times(root):
        raise DeviceError(
            "this board's ssh-keygen does not know valid-after and valid-before",
            code="trust.no-times",
            where="allowed_signers",
            hint="OpenSSH 8.8 brought them; leave them out and remove or revoke the key in time",
        )


def _without(lines: List[str], remove: List[str]) -> List[str]:
    """The lines but for those of a key or an identity."""
    kept = lines
    for wanted in remove:
        key = key_of_line(wanted)
        left = [line for line in kept if not _is(line, wanted.strip(), key)]
        if len(left) == len(kept):
            raise DeviceError(
                "no such key is trusted here: {}".format(wanted[:120]),
                code="trust.no-such-key",
                where="allowed_signers",
                hint="edgekit trust BOARD --list names them",
            )
        gone = {_fingerprint(line): line for line in kept if line not in left}
        if len(gone) > 1:
            raise DeviceError(
                "{} keys are called {}".format(len(gone), wanted[:120]),
                code="trust.ambiguous",
                where="allowed_signers",
                hint="name one by its fingerprint: {}".format(", ".join(sorted(gone))),
            )
        kept = left
    return kept


def _fingerprint(line: str) -> str:
    key = key_of_line(line)
    return "" if key is None else key.fingerprint


def _is(line: str, wanted: str, key: Optional[PublicKey]) -> bool:
    own = key_of_line(line)
    if own is None:
        return False
    if key is not None:
        return own.blob == key.blob
    return wanted in (own.fingerprint, line.split(" ", 1)[0])


def _told(root: Root, lines: List[str]) -> Dict[str, Any]:
    keys = []
    for line in lines:
        key = key_of_line(line)
        if key is not None:
            times = dict(re.findall(r'valid-(after|before)="([^"]*)"', line))
            keys.append(
                {
                    "identity": line.split(" ", 1)[0],
                    "kind": key.kind,
                    "fingerprint": key.fingerprint,
                    "authority": "cert-authority" in line.split(key.kind, 1)[0],
                    "valid_after": times.get("after"),
                    "valid_before": times.get("before"),
                }
            )
    refused = []
    for app in root.apps():
        current, previous = app.link("current"), app.link("previous")
        for one in refusals(app):
            name = one["release"]
            role = "current" if name == current else "previous" if name == previous else "kept"
            refused.append(dict(one, app=app.name, role=role))
    return {
        "signers": [key["identity"] for key in keys],
        "keys": keys,
        "revocations": describe_revocations(root),
        "refused": refused,
    }
