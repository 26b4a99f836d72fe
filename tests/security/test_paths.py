"""Names of apps, releases, blobs and archive entries stay inside ROOT, also where links lie."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import open_job
from edgekit_device.release.collect import collect, remove
from edgekit_device.release.offer import read_incoming
from edgekit_device.release.releases import switch
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import open_bundle
from tests.edgekit_device.device_board import run_command
from tests.security.security_keys import small_bundle

BUNDLE = small_bundle()
OUTSIDE = ("..", ".", "", "../x", "a/b", "/etc", "x\0", "x\n", ".hidden", "-x", "x" * 65, "\u00e9")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "root").mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").write_text("keep")
    return Root(tmp_path / "root")


@pytest.fixture(autouse=True)
def _precious(tmp_path: Path, root: Root) -> object:
    yield
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]
    assert (tmp_path / "elsewhere/precious").read_text() == "keep"


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_are_no_names(root: Root, name: str) -> None:
    with pytest.raises(DeviceError) as caught:
        root.app(name)
    assert caught.value.code == "app.bad-name"
    for act in (
        root.app("net").release,
        root.store.path,
        lambda n: read_incoming(root, n),
        lambda n: open_job(root, n),
    ):
        with pytest.raises(DeviceError):
            act(name)
    manifest = json.loads(BUNDLE.manifest_bytes)
    manifest["name"] = name
    question = io.BytesIO(json.dumps({"manifest": json.dumps(manifest)}).encode())
    with pytest.raises(DeviceError) as caught:
        run_command(root, ["offer", "--trust-unsigned"], question)
    assert caught.value.code == "manifest.invalid"


@pytest.mark.parametrize("digest", ["a" * 64 + "\n", "A" * 64, "a" * 63, "a" * 65])
def test_digests_that_are_no_digests(root: Root, digest: str) -> None:
    for code, act in (
        ("blob.bad-digest", root.store.path),
        ("offer.invalid", lambda name: read_incoming(root, name)),
    ):
        with pytest.raises(DeviceError) as caught:
            act(digest)
        assert caught.value.code == code


def test_an_app_that_is_a_link(root: Root, tmp_path: Path) -> None:
    (root.folder / "apps").mkdir()
    (root.folder / "apps/net").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceError) as caught:
        remove(root, root.app("net"))
    assert caught.value.code == "root.link"
    collect(root, keep=1, grace_s=0)
    assert root.apps() == []


def test_a_release_that_is_a_link(root: Root, tmp_path: Path) -> None:
    releases = root.folder / "apps/net/releases"
    releases.mkdir(parents=True)
    name = "000001-0123456789ab"
    (releases / name).symlink_to(tmp_path / "elsewhere")
    (root.folder / "apps/net/current").symlink_to("/etc")
    app = root.app("net")
    assert app.link("current") is None
    for act in (lambda: switch(app, name), lambda: remove(root, app, name)):
        with pytest.raises(DeviceError):
            act()


def test_blobs_that_are_links(root: Root, tmp_path: Path) -> None:
    data = b"blob" * 400_000  # large enough to go through partial/
    digest = hashlib.sha256(data).hexdigest()
    (root.folder / "partial").mkdir()
    (root.folder / "partial" / digest).symlink_to(tmp_path / "elsewhere/precious")
    frame = json.dumps({"digest": digest, "bytes": len(data)}).encode() + b"\n" + data + b"\n"
    with pytest.raises(DeviceError):
        run_command(root, ["receive"], io.BytesIO(frame))
    assert not root.store.has(digest)
    (root.folder / "partial" / digest).unlink()
    # a second name of the same file: what comes in is put beside, or hashed, never just believed
    (root.folder / "partial" / digest).write_bytes(b"wrong" * 1000)
    run_command(root, ["receive"], io.BytesIO(frame))
    assert root.store.missing([digest], verify=True) == []


@pytest.mark.parametrize(
    "entry",
    [
        "../evil",
        "/etc/evil",
        "blobs/../../evil",
        "blobs/" + "A" * 64,
        "blobs/" + "a" * 64 + "/x",
        "manifest.json\x00x",
        "blobs\\" + "a" * 64,
        "manifest.json/",
        "MANIFEST.JSON",
    ],
)
def test_archive_entries_of_other_names(tmp_path: Path, root: Root, entry: str) -> None:
    path = tmp_path / "b.ekb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", BUNDLE.manifest_bytes)
        info = zipfile.ZipInfo("placeholder")
        info.filename = entry
        archive.writestr(info, b"evil")
    with pytest.raises(DeviceError) as caught:
        open_bundle(path)
    assert caught.value.code == "bundle.malformed"


def test_sizes_that_lie_cost_nothing(tmp_path: Path, root: Root) -> None:
    """A number alone allocates nothing: the bytes must be there."""
    for size in (1 << 20, (1 << 20) + 1, 1 << 41, 1 << 62, -1):
        frame = json.dumps({"digest": "a" * 64, "bytes": size}).encode() + b"\n"
        with pytest.raises(DeviceError):
            run_command(root, ["receive"], io.BytesIO(frame))
    assert (
        not list((root.folder / "blobs").rglob("*")) if (root.folder / "blobs").exists() else True
    )


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "9" * 5_000_000, "1e999"])
def test_documents_that_are_deep_or_endless(root: Root, text: str) -> None:
    with pytest.raises(DeviceError) as caught:
        run_command(root, ["offer", "--trust-unsigned"], io.BytesIO(text.encode()))
    assert caught.value.code == "protocol.invalid"
