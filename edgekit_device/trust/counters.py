"""What keeps an unattended install from going back: release counters and signed times.

A bundle may say with which counter, when and until when it was issued; its signature covers that.
The board remembers the highest counter of each signer and application, and the newest signed time
that it has seen, in ``ROOT/counters.json``: durably, and whatever is removed. Nothing that serves,
loads or goes back depends on it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Optional

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import locked, write_durably
from edgekit_device.protocol.codec import is_app_name, is_digest, parse_json
from edgekit_device.protocol.manifest import seconds_of
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import Checked
from edgekit_device.trust.signature import key_of_signature

FILE = "counters.json"
_SCHEMA = "edgekit.counters/1"
_MAX_BYTES = 16 << 20
_ON_PURPOSE = "an operator may: install --allow-older REASON, or edgekit deploy"


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
    if now < known["newest"]:
        raise DeviceError(
            "the board's clock says {}, and a bundle that was signed at {} was seen".format(
                _text(now), _text(known["newest"])
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
    app = known["apps"].get(manifest.name)
    if app is None or checked.signer is None:
        return
    _check_counter(app, checked, facts)


def _check_counter(app: Dict[str, Any], checked: Checked, facts: Optional[Dict[str, Any]]) -> None:
    counter = None if facts is None else facts["counter"]
    if counter is None:
        message = "the bundle has no counter, and the board has seen bundles of {} that do".format(
            checked.manifest.name
        )
    else:
        assert facts is not None
        seen = app["signers"].get(facts["signer"])
        if seen is None or counter > seen["counter"]:
            return
        same = (counter, checked.manifest.digest) == (seen["counter"], seen["digest"])
        # the last one of a signer, and another signer's is newer: it is old all the same
        if same and app["newest"] == facts["signer"]:
            return
        message = "the bundle's counter is {}, and the board has seen {} of this signer".format(
            counter, seen["counter"]
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
        before = json.dumps(known, sort_keys=True)
        known["newest"] = max(known["newest"], facts["at"])
        if facts["counter"] is not None:
            entry = known["apps"].setdefault(app, {"newest": facts["signer"], "signers": {}})
            seen = entry["signers"].get(facts["signer"])
            if seen is None or facts["counter"] > seen["counter"]:
                entry["newest"] = facts["signer"]
                entry["signers"][facts["signer"]] = {"counter": facts["counter"], "digest": digest}
        after = json.dumps(known, sort_keys=True)
        if after != before:
            write_durably(root.folder / FILE, (after + "\n").encode("utf-8"))


def _read(root: Root) -> Dict[str, Any]:
    path = root.folder / FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return {"schema": _SCHEMA, "newest": 0, "apps": {}}
    except OSError as error:
        raise _damaged(str(path), str(error)) from error
    try:
        found = parse_json(data, str(path), "install.counters")
    except DeviceError as error:
        raise _damaged(str(path), error.message) from error
    if not _sound(found):
        raise _damaged(str(path), "it is not what the loader writes")
    return dict(found)


def _sound(found: object) -> bool:
    if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
        return False
    apps = found.get("apps")
    return (
        _is_count(found.get("newest"))
        and isinstance(apps, dict)
        and all(is_app_name(name) and _is_app(app) for name, app in apps.items())
    )


def _is_app(app: object) -> bool:
    signers = app.get("signers") if isinstance(app, dict) else None
    return (
        isinstance(app, dict)
        and isinstance(app.get("newest"), str)
        and isinstance(signers, dict)
        and all(
            isinstance(one, dict) and _is_count(one.get("counter")) and is_digest(one.get("digest"))
            for one in signers.values()
        )
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _damaged(where: str, why: str) -> DeviceError:
    return DeviceError(
        "what the board remembers of installed releases cannot be read: {}".format(why),
        code="install.counters",
        where=where,
        hint="remove the file to begin anew; until then " + _ON_PURPOSE,
    )


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
