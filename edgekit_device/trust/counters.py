"""What keeps an unattended install from going back: release counters and signed times.

A bundle may say with which counter, when and until when it was issued; its signature covers that.
The board remembers the highest counter of each signer and application, and the newest signed time
that it has seen, in ``ROOT/counters.json``: durably, and whatever is removed. Nothing that serves,
loads or goes back depends on it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Mapping, Optional

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import locked, read_kept, write_durably
from edgekit_device.protocol.codec import (
    app_name,
    choice,
    digest,
    document,
    dump,
    integer,
    mapping,
    member,
    nullable,
    parse_json,
    read,
    record,
    text,
)
from edgekit_device.protocol.manifest import seconds_of
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import Checked
from edgekit_device.trust.signature import key_of_signature

FILE = "counters.json"
_SCHEMA = "edgekit.counters/1"
_MAX_BYTES = 16 << 20
_MOST = (1 << 63) - 1
_ON_PURPOSE = "an operator can override this with --allow-older REASON"


@document(frozen=True)
class SeenCounter:
    """A signer's highest counter, and the bundle that had it."""

    counter: int = member(integer(0, _MOST))
    digest: str = member(digest)


@document(frozen=True)
class SeenApp:
    """Counters of an application by signer, and whose was raised last."""

    newest: str = member(text())
    signers: Mapping[str, SeenCounter] = member(mapping(record(SeenCounter)))


@document(frozen=True)
class Counters:
    """ROOT/counters.json; ``newest`` is the newest signed time, in seconds since 1970."""

    schema: str = member(choice(_SCHEMA), default=_SCHEMA)
    newest: int = member(integer(0, _MOST), default=0)
    apps: Mapping[str, SeenApp] = member(mapping(record(SeenApp), app_name), default=dict)


@document(frozen=True)
class SeenIssue:
    """Who signed a bundle, when (seconds since 1970), and with which counter.

    Attributes:
        at: When it was signed, in seconds of Unix time.
        counter: The signer's counter.
    """

    signer: str = member(text())
    at: int = member(integer(0, _MOST))
    counter: Optional[int] = member(nullable(integer(0, _MOST)))


def issue_of(checked: Checked) -> Optional[SeenIssue]:
    """Who issued a bundle, when, with which counter; None for nothing to remember.

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
    return SeenIssue(signer, seconds_of(issued.at), issued.counter)


def check_install(root: Root, checked: Checked, *, remember: bool = True) -> None:
    """Refuses what no install brings without an operator's reason.

    Args:
        root: The installation.
        checked: The bundle.
        remember: Whether its signed time is remembered; without, nothing is written.

    Raises:
        DeviceError: "install.clock", "install.expired", "install.older" or "install.counters".
    """
    manifest, where = checked.manifest, checked.files.where
    seen = issue_of(checked)
    if seen is not None and remember:
        count(root, manifest.name, manifest.digest, replace(seen, counter=None))
    known = _read(root)
    newest = known.newest if seen is None else max(known.newest, seen.at)
    now = int(time.time())
    if now < newest:
        raise DeviceError(
            "the board's clock says {}, but a bundle signed at {} has been seen".format(
                _text(now), _text(newest)
            ),
            code="install.clock",
            where=where,
            hint="set the clock (timedatectl) and try again; " + _ON_PURPOSE,
        )
    issued = manifest.issued
    until = None if issued is None else issued.valid_until
    if until is not None and now > seconds_of(until):
        raise DeviceError(
            "the bundle's validity ended at {}".format(until),
            code="install.expired",
            where=where,
            hint="make a newer bundle; " + _ON_PURPOSE,
        )
    app = known.apps.get(manifest.name)
    if app is None or checked.signer is None:
        return
    _check_counter(app, checked, seen)


def _check_counter(app: SeenApp, checked: Checked, issue: Optional[SeenIssue]) -> None:
    if issue is None or issue.counter is None:
        message = "the bundle has no counter, but the board has seen bundles of {} with one".format(
            checked.manifest.name
        )
    else:
        seen = app.signers.get(issue.signer)
        if seen is None or issue.counter > seen.counter:
            return
        same = (issue.counter, checked.manifest.digest) == (seen.counter, seen.digest)
        # the last one of a signer, and another signer's is newer: it is old all the same
        if same and app.newest == issue.signer:
            return
        message = "the bundle's counter is {}, but the board has seen {} from this signer".format(
            issue.counter, seen.counter
        )
    raise DeviceError(
        message,
        code="install.older",
        where=checked.files.where,
        hint="give the bundle a higher counter; " + _ON_PURPOSE,
    )


def count(root: Root, app: str, digest: str, issue: Optional[SeenIssue]) -> None:
    """Remembers, durably, what was issued; counters and the time only ever rise.

    A file that is damaged stays as it is: installs are refused until an operator looks at it.
    """
    if issue is None:
        return
    with locked(root.folder / "counters.lock"), map_os_errors(str(root.folder / FILE)):
        try:
            known = _read(root)
        except DeviceError:
            return
        apps = dict(known.apps)
        if issue.counter is not None:
            entry = apps.get(app, SeenApp(issue.signer, {}))
            seen = entry.signers.get(issue.signer)
            if seen is None or issue.counter > seen.counter:
                signers = {**entry.signers, issue.signer: SeenCounter(issue.counter, digest)}
                apps[app] = SeenApp(issue.signer, signers)
        after = Counters(newest=max(known.newest, issue.at), apps=apps)
        if after != known:
            write_durably(root.folder / FILE, dump(after))


def _read(root: Root) -> Counters:
    path = root.folder / FILE
    try:
        data = read_kept(path, _MAX_BYTES)
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
        "the board's record of installed releases cannot be read: {}".format(why),
        code="install.counters",
        where=where,
        hint="remove the file to start a new one; until then " + _ON_PURPOSE,
    )


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
