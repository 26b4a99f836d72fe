"""ROOT/revoked_keys: keys that sign no more, as a list of keys or a KRL of OpenSSH's.

Whether a list or a line can be used is asked of ssh-keygen itself, with a key made for the
question: what it cannot read, or does not know, would refuse every bundle.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from ._errors import DeviceError
from ._files import workspace, write_durably
from ._root import Root
from ._signature import NAMESPACE, keygen, revoked_file
from ._sshsig import key_of_line, keys_of_file

__all__ = ["describe_revocations", "knows_times", "replace_revocations", "revoke"]

_KRL = b"SSHKRL\n\0"


def knows_times(root: Root) -> bool:
    """Whether this board's ssh-keygen knows valid-after and valid-before in allowed_signers."""
    return _believes(root, 'valid-after="19800101" ', None)


def replace_revocations(root: Root, data: bytes) -> None:
    """Takes a whole list.

    Raises:
        DeviceError: "trust.bad-revocations".
    """
    if not _believes(root, "", data):
        raise _bad("ssh-keygen cannot read it")
    write_durably(revoked_file(root.allowed_signers), data)


def revoke(root: Root, lines: List[str]) -> int:
    """Adds public keys to the list, or to the KRL that is there; returns how many were new.

    Raises:
        DeviceError: "trust.bad-line" or "trust.bad-revocations".
    """
    keys = [key for key in map(key_of_line, lines) if key is not None]
    if len(keys) != len(lines):
        raise DeviceError(
            "not a public key", code="trust.bad-line", hint="name a .pub file: ssh-ed25519 KEY"
        )
    file = revoked_file(root.allowed_signers)
    data = file.read_bytes() if file.exists() else b""
    if data.startswith(_KRL):
        with workspace(root.folder) as work:
            krl = work / "krl"
            shutil.copyfile(str(file), str(krl))
            for number, key in enumerate(keys):
                public = work / "{}.pub".format(number)
                public.write_text(key.line + "\n", encoding="ascii")
                if keygen(["-k", "-u", "-f", str(krl), str(public)], b"").returncode:
                    raise _bad("ssh-keygen does not add the key to it")
            write_durably(file, krl.read_bytes())
        return len(keys)
    there = {key.blob for key in keys_of_file(data)}
    new = [key.line for key in keys if key.blob not in there]
    if new:
        old = data if not data or data.endswith(b"\n") else data + b"\n"
        write_durably(file, old + "".join(line + "\n" for line in new).encode("ascii"))
    return len(new)


def describe_revocations(root: Root) -> Dict[str, Any]:
    """ "kind" ("none", "list" or "krl") and the "fingerprints" of a list."""
    file = revoked_file(root.allowed_signers)
    data = file.read_bytes() if file.exists() else b""
    krl = data.startswith(_KRL)
    listed = [] if krl else [key.fingerprint for key in keys_of_file(data)]
    return {"kind": "krl" if krl else "list" if data else "none", "fingerprints": listed}


def _believes(root: Root, options: str, revoked: Optional[bytes]) -> bool:
    """Whether a key of this moment may sign, with these options and revocations."""
    with workspace(root.folder) as work:
        key, allowed, signature = work / "key", work / "allowed", work / "sig"
        keygen(["-q", "-t", "ed25519", "-N", "", "-f", str(key)], b"")
        signed = keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], b"x").stdout
        signature.write_bytes(signed)
        public = Path(str(key) + ".pub").read_text(encoding="utf-8")
        allowed.write_text("x " + options + public, encoding="utf-8")
        arguments = ["-n", NAMESPACE, "-f", str(allowed), "-I", "x", "-s", str(signature)]
        if revoked is not None:
            (work / "revoked").write_bytes(revoked)
            arguments += ["-r", str(work / "revoked")]
        return keygen(["-Y", "verify", *arguments], b"x").returncode == 0


def _bad(message: str) -> DeviceError:
    return DeviceError(
        "no list of revoked keys: {}".format(message),
        code="trust.bad-revocations",
        where="revoked_keys",
        hint="a KRL (ssh-keygen -k -f FILE KEY.pub), or a text file with a public key on each line",
    )
