"""Bundles from a mirror: only what is missing travels, and no server can harm a board."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgekit.bundles.manifest import Bundle, blob_view
from edgekit.bundles.push import push
from edgekit_device.errors import DeviceError
from edgekit_device.release import mirrors as rules
from edgekit_device.release.download import fetch_from
from edgekit_device.release.mirrors import Credentials
from edgekit_device.release.sources import find_bundle, open_sources
from edgekit_device.store.root import Root
from tests.edgekit_device.source_servers import Handler, serving, write_login

_LOGIN = "board:pass:word"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(rules, "FIRST_WAIT_S", 0.0)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def root(tmp_path: Path, signer_line: str) -> Root:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "allowed_signers").write_text(signer_line + "\n")
    return Root(folder)


@pytest.fixture
def mirror(tmp_path: Path, toy: Bundle):
    push(toy, str(tmp_path / "mirror"))
    with serving(Handler, folder=tmp_path / "mirror") as server:
        yield server


@pytest.fixture
def second(tmp_path: Path):
    with serving(Handler, folder=tmp_path / "mirror") as server:
        yield server


def take(root: Root, where, app="toy", **options):
    with open_sources(root, where) as sources:
        checked = find_bundle(root, sources, app=app)
        return checked, fetch_from(sources, checked.manifest, root, **options)


def everything(bundle: Bundle) -> set[str]:
    return {*bundle.weights, *bundle.blobs}


def whole(root: Root, bundle: Bundle) -> bool:
    """Whether every blob is in the store with the bytes of its name."""
    return all(
        hashlib.sha256(root.store.read(digest)).hexdigest() == digest
        for digest in everything(bundle)
    )


def large(bundle: Bundle) -> str:
    sizes = bundle.weight_bytes
    return max(sizes, key=lambda digest: sizes[digest])


def test_the_newest_bundle_comes_whole_and_then_only_what_changed(
    root, mirror, tmp_path, toy, toy2
):
    reported: list[tuple[int, int]] = []
    checked, fetched = take(root, mirror.url, progress=lambda *facts: reported.append(facts))
    assert checked.signer == "tests"
    assert checked.manifest.digest == toy.digest
    assert fetched.blobs == len(everything(toy))
    assert (
        fetched.bytes
        == sum(checked.manifest.sizes().values())
        == reported[-1][0]
        == reported[-1][1]
    )
    assert whole(root, toy)
    assert sorted(mirror.blobs_requested()) == sorted(everything(toy))
    # connections are kept: one to look, and one for each thread
    assert mirror.connections <= 5

    mirror.requests.clear()
    assert take(root, mirror.url)[1].blobs == 0
    assert mirror.blobs_requested() == []

    push(toy2, str(tmp_path / "mirror"))
    take(root, mirror.url)
    assert set(mirror.blobs_requested()) == everything(toy2) - everything(toy)
    assert whole(root, toy2)


def test_an_address_may_name_one_bundle(root, mirror, tmp_path, toy, toy2):
    push(toy2, str(tmp_path / "mirror"))
    checked, _ = take(root, f"{mirror.url}toy/{toy.digest}", app=None)
    assert checked.manifest.digest == toy.digest
    with pytest.raises(DeviceError, match="does not name the app") as refused:
        take(root, mirror.url, app=None)
    assert refused.value.code == "source.no-app"


def test_an_app_that_a_mirror_lacks_is_named(root, mirror, tmp_path):
    for where, hint in (
        (str(tmp_path / "mirror"), "its apps: toy"),
        (mirror.url, "push its bundle"),
    ):
        with pytest.raises(DeviceError, match="the mirror has no app other") as refused:
            take(root, where, app="other")
        assert refused.value.code == "source.not-found"
        assert refused.value.hint.startswith(hint)


def test_the_signature_is_judged_before_a_byte_of_the_manifest(root, mirror, tmp_path, monkeypatch):
    (path,) = (tmp_path / "mirror").glob("toy/*/manifest.json")
    path.write_bytes(b'{"schema": "not even one"}')
    wrong = tmp_path / "mirror" / "toy" / hashlib.sha256(path.read_bytes()).hexdigest()
    path.parent.rename(wrong)
    (tmp_path / "mirror/toy/latest").write_text(wrong.name)
    monkeypatch.setattr("edgekit_device.trust.bundle.parse", lambda data: pytest.fail("parsed"))
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "bundle.bad-signature"
    (wrong / "manifest.json.sig").unlink()
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "bundle.unsigned"


def test_a_blob_goes_on_where_the_connection_broke(root, mirror, toy, monkeypatch):
    monkeypatch.setattr("edgekit_device.release.download._SMALL", 64)
    digest, cuts = large(toy), [100, 900]

    def fault(handler: Handler, path: str) -> bool:
        if not path.endswith(digest) or not cuts:
            return False
        data = (handler.folder / path.lstrip("/")).read_bytes()
        handler.answer_bytes(data, handler.headers.get("Range") or "", cut=cuts.pop(0))
        return True

    mirror.fault = fault
    take(root, mirror.url)
    ranges = [wanted for _, path, wanted in mirror.requests if path.endswith(digest)]
    assert ranges == ["", "bytes=100-", "bytes=1000-"]
    assert whole(root, toy)


def test_what_an_earlier_try_left_counts_if_it_is_right(root, mirror, toy, monkeypatch):
    monkeypatch.setattr("edgekit_device.release.download._SMALL", 64)
    digest = large(toy)
    data = bytes(blob_view(toy.weights[digest]))
    partial = root.folder / "partial" / digest
    partial.parent.mkdir()
    partial.write_bytes(data[:500])
    _, fetched = take(root, mirror.url)
    assert [wanted for _, path, wanted in mirror.requests if path.endswith(digest)] == [
        "bytes=500-"
    ]
    assert fetched.bytes == toy.full_bytes - len(toy.manifest_bytes) - 500

    root.store.path(digest).unlink()
    partial.write_bytes(b"x" * 500)
    mirror.requests.clear()
    _, fetched = take(root, mirror.url)
    assert [wanted for _, _, wanted in mirror.requests][-2:] == ["bytes=500-", ""]
    assert whole(root, toy)
    assert fetched.notes == []


@pytest.mark.parametrize("small", [64, 1 << 20])
def test_a_mirror_with_wrong_bytes_is_named_and_the_next_one_tried(
    root, mirror, second, toy, small, monkeypatch
):
    monkeypatch.setattr("edgekit_device.release.download._SMALL", small)
    digest = large(toy)

    def fault(handler: Handler, path: str) -> bool:
        data = bytearray((handler.folder / path.lstrip("/")).read_bytes())
        if path.endswith(digest):
            data[7] ^= 1
        handler.answer_bytes(bytes(data), handler.headers.get("Range") or "")
        return True

    mirror.fault = fault
    _, fetched = take(root, [mirror.url, second.url])
    (note,) = fetched.notes
    assert note.startswith(mirror.url)
    assert "wrong bytes" in note
    assert second.blobs_requested() == [digest]
    assert whole(root, toy)
    root.store.path(digest).unlink()
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "source.wrong-bytes"
    assert refused.value.where == mirror.url
    assert not root.store.has(digest)


def test_a_mirror_that_breaks_off_with_wrong_bytes_is_found_out(
    root, mirror, second, toy, monkeypatch
):
    """The second one goes on behind bytes that are wrong: then each is asked alone."""
    monkeypatch.setattr("edgekit_device.release.download._SMALL", 64)
    digest = large(toy)

    def fault(handler: Handler, path: str) -> bool:
        if not path.endswith(digest):
            return False
        if handler.headers.get("Range"):
            handler.answer(403, b"")
        else:
            size = (handler.folder / path.lstrip("/")).stat().st_size
            handler.answer_bytes(bytes(size), "", cut=300)
        return True

    mirror.fault = fault
    take(root, [mirror.url, second.url])
    assert whole(root, toy)


def test_a_dead_mirror_costs_its_tries_once(root, mirror, toy):
    with serving(Handler, folder=Path("/nowhere")) as dead:
        url = dead.url
    _, fetched = take(root, [url, mirror.url])
    assert whole(root, toy)
    assert any(note.startswith(url) for note in fetched.notes)
    with pytest.raises(DeviceError) as refused:
        take(root, [url])
    assert refused.value.code == "source.unreachable"


def test_a_busy_server_is_queried_again(root, mirror, toy):
    answers = [503, 429, 500]

    def fault(handler: Handler, path: str) -> bool:
        if answers:
            handler.answer(answers.pop(), b"later")
            return True
        return False

    mirror.fault = fault
    take(root, mirror.url)
    assert whole(root, toy)
    assert answers == []


def lead(where: str):
    def fault(handler: Handler, path: str) -> bool:
        handler.answer(302, b"", {"Location": where + path.lstrip("/") if where else path})
        return True

    return fault


def test_redirects_are_followed_within_bounds(root, mirror, second, toy):
    second.fault = lead(mirror.url)
    take(root, second.url)
    assert whole(root, toy)
    second.requests.clear()
    second.fault = lead("")
    with pytest.raises(DeviceError) as refused:
        take(root, second.url)
    assert refused.value.code == "source.redirect"
    assert len(second.requests) < 10
    second.fault = lead("file:///etc/")
    with pytest.raises(DeviceError) as refused:
        take(root, second.url)
    assert refused.value.code == "source.redirect"
    with pytest.raises(DeviceError) as refused:
        rules.check_redirect("https://a/x", "http://a/x")
    assert "HTTPS to HTTP" in refused.value.message


@pytest.mark.parametrize("what", ["latest", "manifest.json", "manifest.json.sig"])
def test_endless_answers_are_cut_short(root, mirror, what, monkeypatch):
    monkeypatch.setattr("edgekit_device.release.sources.MAX_MANIFEST", 10_000)
    monkeypatch.setattr("edgekit_device.release.sources.MAX_SIGNATURE", 10_000)

    def fault(handler: Handler, path: str) -> bool:
        if path.endswith("/" + what):
            handler.answer(200, b"7" * 10_001)
        return path.endswith("/" + what)

    mirror.fault = fault
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "source.bad-answer"


def test_a_page_instead_of_a_blob_is_not_read(root, mirror, toy):
    def fault(handler: Handler, path: str) -> bool:
        if "/blobs/" in path:
            handler.answer(200, b"<html>please log in</html>")
        return "/blobs/" in path

    mirror.fault = fault
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "source.wrong-bytes"


@pytest.mark.parametrize(
    "text",
    ["ftp://a/b", "http://", "http://user:secret@a/b", "http://a:99999/", "oci://a/repo:1",
     "http://a/b?c=d", "http://a/b c", ""],
)  # fmt: skip
def test_addresses_that_are_none_are_refused_unasked(root, text):
    with pytest.raises(DeviceError) as refused, open_sources(root, text):
        pass
    assert refused.value.code in ("source.bad-address", "source.bad-answer")
    assert "secret" not in str(refused.value)


def test_a_full_disk_is_reported_before_anything_is_fetched(root, mirror, monkeypatch):
    import os

    facts = os.statvfs(root.folder)
    full = os.statvfs_result([*facts[:3], 0, 0, *facts[5:]])
    monkeypatch.setattr("edgekit_device.release.download.os.statvfs", lambda path: full)
    with pytest.raises(DeviceError) as refused:
        take(root, mirror.url)
    assert refused.value.code == "board.disk-full"
    assert mirror.blobs_requested() == []


def test_a_folder_and_a_file_are_sources_too(root, tmp_path, toy, toy2):
    from edgekit.bundles.files import write

    file = write(toy, tmp_path / "toy.ekb", stripped=False)
    take(root, str(file), app=None)
    assert whole(root, toy)
    # a copied mirror, and one bundle of it of which a board needs only a part
    push(toy2, str(tmp_path / "copy"))
    for digest in everything(toy) & everything(toy2):
        (tmp_path / "copy" / "blobs" / digest[:2] / digest).unlink()
    take(root, str(tmp_path / "copy"))
    assert whole(root, toy2)
    root.store.path(large(toy2)).unlink()
    take(root, str(tmp_path / "copy" / "toy" / toy2.digest), app=None)
    assert whole(root, toy2)


def test_a_stripped_bundle_is_pushed_only_where_its_weights_are(tmp_path, toy):
    from dataclasses import replace

    from edgekit.errors import BundleError

    bare = replace(toy, weights={})
    with pytest.raises(BundleError) as refused:
        push(bare, str(tmp_path / "new"))
    assert refused.value.code == "bundle.incomplete"
    first = push(toy, str(tmp_path / "new"))
    again = push(bare, str(tmp_path / "new"))
    assert (first.reused, again.blobs) == (0, 0)
    assert again.reused == first.blobs == len(everything(toy))


def test_a_mirror_that_requires_a_password_gets_the_boards_own(root, tmp_path, toy):
    push(toy, str(tmp_path / "mirror"))
    with serving(Handler, folder=tmp_path / "mirror", login=_LOGIN) as server:
        host = server.url.removeprefix("http://").rstrip("/")
        for login in (None, "board:wrong"):
            if login:
                write_login(root.folder / "registries.json", host, login)
            with pytest.raises(DeviceError) as refused:
                take(root, server.url)
            assert refused.value.code == "source.refused"
            assert "registries.json" in refused.value.hint
        write_login(root.folder / "registries.json", host, _LOGIN)
        take(root, server.url)
        assert whole(root, toy)


def test_a_password_file_that_others_may_read_is_refused(root):
    file = root.folder / "registries.json"
    write_login(file, "host", _LOGIN)
    file.chmod(0o640)
    with pytest.raises(DeviceError) as refused:
        Credentials.read(file)
    assert refused.value.code == "source.credentials"
    file.chmod(0o600)
    file.write_text('{"auths": {"host": {"auth": "!"}}}')
    with pytest.raises(DeviceError, match="host has no user"):
        Credentials.read(file)


def test_a_password_does_not_go_out_in_the_clear():
    rules.check_secret(urlsplit("https://mirror/net/"))
    rules.check_secret(urlsplit("http://127.0.0.1:5000/net/"))
    with pytest.raises(DeviceError) as refused:
        rules.check_secret(urlsplit("http://127.0.0.1.example.org/net/"))
    assert refused.value.code == "source.insecure"
