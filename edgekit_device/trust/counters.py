"""What keeps an unattended install from going back: release counters and signed times.

A bundle may say with which counter, when and until when it was issued; its signature covers that.
The board remembers the highest counter of each signer and application, and the newest signed time
that it has seen, in ``ROOT/counters.json``: durably, and whatever is removed. Nothing that serves,
loads or goes back depends on it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import locked, write_durably
from edgekit_device.protocol.codec import (
    app_name,
    choice,
    digest,
    integer,
    mapping,
    member,
    parse_json,
    read,
    record,
    text,
    write,
)
from edgekit_device.protocol.manifest import seconds_of
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import Checked
from edgekit_device.trust.signature import key_of_signature

FILE = "counters.json"
_SCHEMA = "edgekit.counters/1"
_MAX_BYTES = 16 << 20
_MOST = (1 << 63) - 1
_ON_PURPOSE = "an operator may: install --allow-older REASON, or edgekit deploy"


@dataclass(frozen=True)
class SeenCounter:
    """A signer's highest counter, and the bundle that had it."""

    counter: int = member(integer(0, _MOST))
    digest: str = member(digest)


@dataclass(frozen=True)
class SeenApp:
    """Counters of an application by signer, and whose was raised last."""

    newest: str = member(text())
    signers: Mapping[str, SeenCounter] = member(mapping(record(SeenCounter)))


@dataclass(frozen=True)
class Counters:
    """ROOT/counters.json; ``newest`` is the newest signed time, in seconds since 1970."""

    schema: str = member(choice(_SCHEMA), default=_SCHEMA)
    newest: int = member(integer(0, _MOST), default=0)
    apps: Mapping[str, SeenApp] = member(mapping(record(SeenApp), app_name), default=dict)


def issued_facts(checked: Checked) -> Optional[Dict[str, Any]]:
    """What ``count`` remembers of a bundle: "signer", "at" and "counter"; None for nothing.

    What a key signed that the board does not trust counts for nothing.
    """
    issued = checked.manifest.issued
    if issued is None or checked.signer is None or checked.files.signature is None:
        return None
    key = key_of_signature(checked.files.signature)
    if key is None:
        return None
    # a certificate is another one each time; its principal stays
    signer = checked.signer if "-cert-" in key.kind else key.fingerprint
    return {"signer": signer, "at": seconds_of(issued.at), "counter": issued.counter}


def check_install(root: Root, checked: Checked) -> None:
    """Refuses what an unattended install must not bring; remembers the bundle's signed time.

    Raises:
        DeviceError: "install.clock", "install.expired", "install.older" or "install.counters".
    """
    manifest, where = checked.manifest, checked.files.where
    facts = issued_facts(checked)
    if facts is not None:
        count(root, manifest.name, manifest.digest, dict(facts, counter=None))
    known = _read(root)
    now = int(time.time())
    if now < known.newest:
        raise DeviceError(
            "the board's clock says {}, and a bundle that was signed at {} was seen".format(
                _text(now), _text(known.newest)
            ),
            code="install.clock",
            where=where,
            hint="set the clock (timedatectl), then try again; " + _ON_PURPOSE,
        )
    issued = manifest.issued
    until = None if issued is None else issued.valid_until
    if until is not None and now > seconds_of(until):
        raise DeviceError(
            "the bundle was to be installed until {}".format(until),
            code="install.expired",
            where=where,
            hint="put a newer bundle on the mirror; " + _ON_PURPOSE,
        )
    app = known.apps.get(manifest.name)
    if app is None or checked.signer is None:
        return
    _check_counter(app, checked, facts)


def _check_counter(app: SeenApp, checked: Checked, facts: Optional[Dict[str, Any]]) -> None:
    counter = None if facts is None else facts["counter"]
    if counter is None:
        message = "the bundle has no counter, and the board has seen bundles of {} that do".format(
            checked.manifest.name
        )
    else:
        assert facts is not None
        seen = app.signers.get(facts["signer"])
        if seen is None or counter > seen.counter:
            return
        same = (counter, checked.manifest.digest) == (seen.counter, seen.digest)
        # the last one of a signer, and another signer's is newer: it is old all the same
        if same and app.newest == facts["signer"]:
            return
        message = "the bundle's counter is {}, and the board has seen {} of this signer".format(
            counter, seen.counter
        )
    raise DeviceError(
        message,
        code="install.older",
        where=checked.files.where,
        hint="put a bundle with a higher counter on the mirror; " + _ON_PURPOSE,
    )


def count(root: Root, app: str, digest: str, facts: Optional[Dict[str, Any]]) -> None:
    """Remembers, durably, what was issued; counters and the time only ever rise.

    A file that is damaged stays as it is: installs are refused until an operator looks at it.
    """
    if facts is None:
        return
    with locked(root.folder / "counters.lock"), map_os_errors(str(root.folder / FILE)):
        try:
            known = _read(root)
        except DeviceError:
            return
        signer, counter, apps = facts["signer"], facts["counter"], dict(known.apps)
        if counter is not None:
            entry = apps.get(app, SeenApp(signer, {}))
            seen = entry.signers.get(signer)
            if seen is None or counter > seen.counter:
                signers = {**entry.signers, signer: SeenCounter(counter, digest)}
                apps[app] = SeenApp(signer, signers)
        after = Counters(newest=max(known.newest, facts["at"]), apps=apps)
        if after != known:
            line = json.dumps(write(after), sort_keys=True) + "\n"
            write_durably(root.folder / FILE, line.encode("utf-8"))


def _read(root: Root) -> Counters:
    path = root.folder / FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return Counters()
    except OSError as error:
        raise _damaged(str(path), str(error)) from error
    try:
        return read(Counters, parse_json(data, str(path), "install.counters"), "it")
    except DeviceError as error:
        raise _damaged(str(path), "{}: {}".format(error.where, error.message)) from error


def _damaged(where: str, why: str) -> DeviceError:
    return DeviceError(
        "what the board remembers of installed releases cannot be read: {}".format(why),
        code="install.counters",
        where=where,
        hint="remove the file to begin anew; until then " + _ON_PURPOSE,
    )


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
