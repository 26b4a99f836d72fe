"""A collection beside a release of which nobody can tell any more which blobs it needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.sign import sign
from tests.boards.bundles import hand_made
from tests.edgekit_device.device_board import envelope
from tests.faults.board_check import leftovers
from tests.faults.conftest import Pair
from tests.faults.fault_report import Faults
from tests.faults.forked_board import APP, Zygote, collected, copy_of, deployment


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _gone(path: Path) -> None:
    path.unlink()


def _other_digest(path: Path) -> None:
    """Still a manifest, but it names a blob that nobody has."""
    digest = next(iter(json.loads(path.read_bytes())["blobs"]))
    path.write_bytes(path.read_bytes().replace(digest.encode(), digest[::-1].encode()))


def _blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


def _collect(zygote: Zygote, root: Path, keep: int) -> dict[str, Any]:
    argv = [word for word in collected(root)[0] if not word.startswith("--keep")]
    done = zygote.run([([*argv, f"--keep={keep}"], b"")])
    assert done.error == "", done.answers
    assert done.answers
    found = json.loads(done.answers[-1][1])
    return found if isinstance(found, dict) else {}


def _with_a_damaged_one(
    pair: Pair, zygote: Zygote, root: Path, damage: Callable[[Path], None]
) -> str:
    """The old one serves, the new one lies beside it with a manifest that is damaged."""
    copy_of(pair.board, root)
    send = deployment(root, pair.new)[0]
    done = zygote.run([send, (["stage", f"--root={root}"], envelope(pair.new))])
    assert done.error == "", done.answers
    (folder,) = (root / "apps" / APP / "releases").glob(f"*-{pair.new.digest[:12]}")
    (folder / "manifest.json").chmod(0o600)
    damage(folder / "manifest.json")
    return folder.name


@pytest.mark.few(2)
@pytest.mark.parametrize("damage", [_emptied, _cut, _gone, _other_digest])
def test_reported_and_retained_until_it_is_removed(
    damage: Callable[[Path], None], pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    root = tmp_path / "board"
    faults.injected("collection beside a damaged release")
    name = _with_a_damaged_one(pair, zygote, root, damage)
    before = _blobs(root)
    reported = _collect(zygote, root, keep=2)
    (named,) = reported["damaged_releases"]
    assert named["release"] == f"{APP}/{name}"
    assert f"edgekit remove --app {APP} --release {name}" in named["hint"]
    assert _blobs(root) == before
    done = zygote.run([(["remove", f"--root={root}", f"--app={APP}", f"--release={name}"], b"")])
    assert done.error == "", done.answers
    reported = _collect(zygote, root, keep=2)
    assert reported["damaged_releases"] == []
    assert _blobs(root) == {*pair.old.blobs, *pair.old.weights}
    faults.survived("collection beside a damaged release")


def test_goes_by_itself_with_the_releases_after_it(
    pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults
) -> None:
    root = tmp_path / "board"
    faults.injected("collection beside a damaged release")
    name = _with_a_damaged_one(pair, zygote, root, _cut)
    # the same bundle again, although what lies there of it is no good; then another one
    third = hand_made(seed=5)
    third = third.signed(sign(third.manifest_bytes, pair.key))  # type: ignore[assignment]
    for bundle in (pair.new, third):
        check = {"root": str(root), "app": APP, "allowed": [bundle.digest]}
        done = zygote.run([*deployment(root, bundle), collected(root)], check=check)
        assert done.error == "", done.answers
        assert done.check is not None
        assert done.check["problems"] == [], done.check
    assert not (root / "apps" / APP / "releases" / name / "manifest.json").exists()
    assert _collect(zygote, root, keep=2)["damaged_releases"] == []
    retained = [pair.new, third]
    assert _blobs(root) == {digest for each in retained for digest in (*each.blobs, *each.weights)}
    assert leftovers(root) == []
    faults.survived("collection beside a damaged release")
