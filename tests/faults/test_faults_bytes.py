"""Bytes go wrong: in the store, in parts of blobs, on the wire, exchanged, in small files."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.sign import sign
from edgekit_device.protocol.codec import write
from tests.boards.bundles import HandMade, hand_made
from tests.faults.board_check import leftovers
from tests.faults.conftest import Pair
from tests.faults.fault_report import Faults
from tests.faults.forked_board import (
    APP,
    POLICY,
    Answer,
    Zygote,
    collected,
    copy_of,
    deployment,
)

_SEEDS = range(20)


def _blob(root: Path, digest: str) -> Path:
    return root / "blobs" / digest[:2] / digest


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.chmod(0o600)
    path.write_bytes(data)


def _sent(zygote: Zygote, root: Path, bundle: HandMade) -> None:
    done = zygote.run(deployment(root, bundle)[:1])
    assert done.error == "", done.answers


def _deploy(zygote: Zygote, root: Path, bundle: HandMade, *allowed: str) -> Answer:
    check = {"root": str(root), "app": APP, "allowed": list(allowed)}
    return zygote.run(deployment(root, bundle)[1:], check=check)


def _finish(zygote: Zygote, root: Path, bundle: HandMade) -> None:
    check = {"root": str(root), "app": APP, "allowed": [bundle.digest]}
    done = zygote.run([*deployment(root, bundle), collected(root)], check=check)
    assert done.error == "", done.answers
    assert done.check is not None
    assert done.check["problems"] == [], done.check
    assert leftovers(root) == []


@pytest.mark.few(4)
@pytest.mark.parametrize("fault", ["flipped", "cut", "emptied", "exchanged"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_blobs_of_the_new_release(
    fault: str, seed: int, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    rng = random.Random(f"{fault}{seed}")
    root = copy_of(pair.board, tmp_path / "board")
    _sent(zygote, root, pair.new)
    own = sorted({*pair.new.blobs, *pair.new.weights} - {*pair.old.blobs, *pair.old.weights})
    chosen = _blob(root, rng.choice(own))
    faults.injected(f"blob {fault}")
    if fault == "flipped":
        _flip(chosen, rng)
    elif fault == "exchanged":
        other = _blob(root, rng.choice(sorted({*pair.old.blobs, *pair.old.weights})))
        chosen.rename(chosen.with_name("kept"))
        shutil.copyfile(other, chosen)
        chosen.with_name("kept").unlink()
    else:
        data = chosen.read_bytes()
        chosen.write_bytes(data[: rng.randrange(1, len(data))] if fault == "cut" else b"")
    done = _deploy(zygote, root, pair.new, pair.old.digest)
    assert done.error.startswith(("blob.", "weights.", "engine.")), done.answers
    assert done.check is not None
    assert done.check["problems"] == [], done.check
    _finish(zygote, root, pair.new)
    faults.survived(f"blob {fault}")


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", _SEEDS)
def test_bit_flipped_on_the_wire_or_in_a_part(
    seed: int, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    rng = random.Random(seed)
    root = copy_of(pair.board, tmp_path / "board")
    new = hand_made(seed=3, columns=20_000)
    new = new.signed(sign(new.manifest_bytes, pair.key))  # type: ignore[assignment]
    (weight,) = new.weights
    data = new.weights[weight].tobytes()  # type: ignore[union-attr]
    cut = rng.randrange(1, len(data))
    # what a cut leaves of a large blob, and a bit of it is another now
    half = data[: cut - 1] + bytes([data[cut - 1] ^ 1])
    frame = json.dumps({"digest": weight, "bytes": len(data)}).encode() + b"\n" + half
    faults.injected("bit flipped in a part")
    reported = zygote.run([(["receive", f"--root={root}"], frame)])
    assert reported.error == "transfer.truncated", reported
    _finish(zygote, root, new)
    faults.survived("bit flipped in a part")
    root = copy_of(pair.board, tmp_path / "wire")
    wrong = bytearray(data)
    wrong[rng.randrange(len(data))] ^= 1
    faults.injected("bit flipped on the wire")
    whole = json.dumps({"digest": weight, "bytes": len(data)}).encode() + b"\n" + wrong + b"\n"
    reported = zygote.run([(["receive", f"--root={root}"], whole)])
    assert reported.error == "blob.digest-mismatch", reported
    assert not _blob(root, weight).exists()
    _finish(zygote, root, new)
    faults.survived("bit flipped on the wire")


def test_signatures_and_apps_exchanged(
    pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    root = copy_of(pair.board, tmp_path / "board")
    other = hand_made("other", seed=4)
    other = other.signed(sign(other.manifest_bytes, pair.key))  # type: ignore[assignment]
    # another release's signature; another app's bundle under this app's name
    faults.injected("signature exchanged")
    swapped = pair.new.signed(pair.old.signature or b"")
    done = zygote.run(deployment(root, swapped)[:1])  # type: ignore[arg-type]
    assert done.error == "bundle.bad-signature"
    faults.survived("signature exchanged")
    faults.injected("another app's bundle")
    _sent(zygote, root, other)
    request = {"app": APP, "digest": other.digest, "policy": write(POLICY), "operator": "tests"}
    check = {"root": str(root), "app": APP, "allowed": [pair.old.digest]}
    done = zygote.run([(["deploy", str(root)], json.dumps(request).encode())], check=check)
    assert done.error == "bundle.wrong-app", done.answers
    assert done.check is not None
    assert done.check["problems"] == [], done.check
    _finish(zygote, root, pair.new)
    faults.survived("another app's bundle")


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[: len(data) // 2])


def _empty(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(b"")


def _not_json(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(b"\x00\xff[{" * 9)


def _gone(path: Path) -> None:
    path.unlink()


def _pairs(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    """All pairs; each of both comes in the first four at least once."""
    first = [(one[index % len(one)], other[index % len(other)]) for index in range(4)]
    return [*first, *(pair for pair in product(one, other) if pair not in first)]


_DAMAGES = [_cut, _empty, _not_json, _gone]
_SERVING = ["release.json", "manifest.json", "manifest.json.sig"]
_LINKS = ["dangling", "elsewhere", "a file", "a folder"]
# what only tells: a deployment goes on without it, and the release that serves is untouched
_TELLING = ["deployment.json", "history.jsonl", "releases/*/health.json"]


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "damage"), _pairs(_TELLING, _DAMAGES))
def test_small_files_for_information(
    name: str,
    damage: Callable[[Path], None],
    pair: Pair,
    zygote: Zygote,
    tmp_path: Path,
    faults: Faults,
) -> None:
    root = copy_of(pair.board, tmp_path / "board")
    (path,) = (root / "apps" / APP).glob(name)
    faults.injected("small file damaged")
    damage(path)
    check = {"root": str(root), "app": APP, "allowed": [pair.old.digest]}
    reported = zygote.run([(["status", f"--root={root}"], b"")], check=check)
    assert reported.error == "", reported.answers
    assert reported.check is not None
    assert reported.check["problems"] == [], reported.check
    _finish(zygote, root, pair.new)
    faults.survived("small file damaged")


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "damage"), _pairs(_SERVING, _DAMAGES))
def test_files_of_the_serving_release(
    name: str,
    damage: Callable[[Path], None],
    pair: Pair,
    zygote: Zygote,
    tmp_path: Path,
    faults: Faults,
) -> None:
    """Never run, always told; the next deployment puts a good release in its place."""
    root = copy_of(pair.board, tmp_path / "board")
    current = root / "apps" / APP / "current"
    faults.injected("release's file damaged")
    damage(current / name)
    status = zygote.run([(["status", f"--root={root}"], b"")])
    assert status.error in ("", "release.damaged"), status.answers
    done = zygote.run(deployment(root, pair.new))
    assert done.error == "", done.answers
    folder = root / "apps" / APP
    assert (folder / "current").resolve().name.endswith(pair.new.digest[:12])
    faults.survived("release's file damaged")


@pytest.mark.few(4)
@pytest.mark.parametrize(("which", "how"), _pairs(["current", "previous"], _LINKS))
def test_links_that_lead_astray(
    how: str, which: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    root = copy_of(pair.board, tmp_path / "board")
    link = root / "apps" / APP / which
    link.unlink(missing_ok=True)
    faults.injected("link damaged")
    if how == "dangling":
        link.symlink_to("releases/000099-0123456789ab")
    elif how == "elsewhere":
        link.symlink_to("/etc")
    elif how == "a file":
        link.write_text("releases/000001-0123456789ab")
    else:
        link.mkdir()
    status = zygote.run([(["status", f"--root={root}"], b"")])
    assert status.error == "", status.answers
    if how == "a folder":
        # nothing of ours makes one, and no rename replaces it: told, and nothing is touched
        done = zygote.run(deployment(root, pair.new))
        if done.error:
            assert done.error.startswith(("board.", "release.")), done.answers
            link.rmdir()
    _finish(zygote, root, pair.new)
    faults.survived("link damaged")
