"""Protects unattended installs from downgrades by release counters and signed times.

A bundle may have a counter, a time of issue and an end of validity, which its signature covers.
The board records the highest counter of each signer and application, and the newest signed time
that it has seen, durably in ``ROOT/counters.json``, even after a removal. Serving, loading and
rollbacks do not depend on it.
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
from edgekit_device.protocol.manifest import unix_seconds
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import Checked
from edgekit_device.trust.signature import parse_signature_key

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
    """Counters of an application by signer, and the signer whose counter was raised last."""

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
    """The signer, time and counter of a bundle.

    Attributes:
        at: Time of signing, in seconds of Unix time.
        counter: The signer's counter.
    """

    signer: str = member(text())
    at: int = member(integer(0, _MOST))
    counter: Optional[int] = member(nullable(integer(0, _MOST)))


def seen_issue(checked: Checked) -> Optional[SeenIssue]:
    """Returns the signer, time and counter of a bundle; None if there is none to record.

    Bundles signed by an untrusted key are ignored.
    """
    issued = checked.manifest.issued
    if issued is None or checked.signer is None or checked.files.signature is None:
        return None
    key = parse_signature_key(checked.files.signature)
    if key is None:
        return None
    # certificates differ each time; the principal stays the same
    signer = checked.signer if "-cert-" in key.kind else key.fingerprint
    return SeenIssue(signer, unix_seconds(issued.at), issued.counter)


def check_install(root: Root, checked: Checked, *, remember: bool = True) -> None:
    """Refuses a bundle that only an operator with a reason may install.

    Args:
        root: The installation.
        checked: The bundle.
        remember: True to record its signed time; False writes no file.

    Raises:
        DeviceError: "install.clock", "install.expired", "install.older" or "install.counters".
    """
    manifest, where = checked.manifest, checked.files.where
    seen = seen_issue(checked)
    if seen is not None and remember:
        # its time only: the counter is recorded once the release serves
        record_counter(root, manifest.name, manifest.digest, replace(seen, counter=None))
    known = _read(root)
    newest = known.newest if seen is None else max(known.newest, seen.at)
    now = int(time.time())
    # a signed time cannot be in the future: the clock is wrong or was set back, and an end of
    # validity could not be judged
    if now < newest:
        raise DeviceError(
            "the board's clock is at {}, but a bundle signed at {} has been seen".format(
                _format_time(now), _format_time(newest)
            ),
            code="install.clock",
            where=where,
            hint="set the clock (timedatectl) and try again; " + _ON_PURPOSE,
        )
    issued = manifest.issued
    until = None if issued is None else issued.valid_until
    if until is not None and now > unix_seconds(until):
        raise DeviceError(
            "the bundle's validity ended at {}".format(until),
            code="install.expired",
            where=where,
            hint="make a newer bundle; " + _ON_PURPOSE,
        )
    # the first bundle of an app sets the counter; unsigned ones are accepted by hand
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
        # a signer's last bundle is still old if another signer has a newer bundle
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


def record_counter(root: Root, app: str, digest: str, issue: Optional[SeenIssue]) -> None:
    """Records durably a bundle's counter and time, which only increase.

    A damaged file is not changed: installs are refused until an operator repairs it.
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
        raise _damaged_error(str(path), str(error)) from error
    try:
        return read(Counters, parse_json(data, str(path), "install.counters"), "it")
    except DeviceError as error:
        raise _damaged_error(str(path), "{}: {}".format(error.where, error.message)) from error


def _damaged_error(where: str, why: str) -> DeviceError:
    return DeviceError(
        "the board's record of installed releases cannot be read: {}".format(why),
        code="install.counters",
        where=where,
        hint="remove the file to start a new one; until then " + _ON_PURPOSE,
    )


def _format_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
