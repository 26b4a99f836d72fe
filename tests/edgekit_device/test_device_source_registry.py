"""Bundles in a registry, pushed and taken by the API of OCI; layouts as others read them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from edgekit.bundle import Bundle, push
from edgekit.errors import BundleError
from edgekit_device import _source_rules as rules
from edgekit_device._errors import DeviceError
from edgekit_device._root import Root
from edgekit_device._source import fetch_from, find_bundle, open_sources
from edgekit_device._source_auth import Credentials, read_challenge
from tests.edgekit_device.source_servers import (
    RegistryHandler,
    real_registry,
    registry_program,
    serving,
    write_login,
)

_LOGIN = "board:pass:word"


@pytest.fixture(autouse=True)
def _own_world(monkeypatch, tmp_path):
    monkeypatch.setattr(rules, "FIRST_WAIT_S", 0.0)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
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
def double():
    with serving(RegistryHandler, files={}, login=_LOGIN) as server:
        yield server


def host_of(server) -> str:
    return server.url.removeprefix("http://").rstrip("/")


def take(root: Root, where: str):
    with open_sources(root, where) as sources:
        checked = find_bundle(root, sources)
        return checked, fetch_from(sources, checked.manifest, root)


def whole(root: Root, bundle: Bundle) -> bool:
    return all(
        hashlib.sha256(root.store.read(digest)).hexdigest() == digest
        for digest in (*bundle.weights, *bundle.blobs)
    )


def test_pushed_with_a_token_and_taken_with_a_token(root, double, tmp_path, toy, toy2):
    host = host_of(double)
    url = f"oci://{host}/boards/net:1"
    with pytest.raises(BundleError) as refused:
        push(toy, url)
    assert refused.value.code == "source.refused"
    assert "docker login" in refused.value.hint

    write_login(tmp_path / "docker" / "config.json", host, _LOGIN)
    first = push(toy, url)
    assert first.reused == 0
    with pytest.raises(DeviceError) as denied:
        take(root, url)
    assert denied.value.code == "source.refused"
    assert "registries.json" in denied.value.hint

    write_login(root.folder / "registries.json", host, _LOGIN)
    checked, fetched = take(root, url)
    assert checked.manifest.digest == toy.digest
    assert fetched.bytes == sum(checked.manifest.sizes().values())
    assert whole(root, toy)

    double.asked.clear()
    again = push(toy2, f"oci://{host}/boards/net:2")
    assert again.reused + again.blobs == first.blobs
    assert again.reused > 0
    puts = [path for method, path, _ in double.asked if method == "PUT" and "/uploads/" in path]
    assert len(puts) == again.blobs


def test_by_digest_the_image_is_held_against_its_name(root, double, tmp_path, toy, toy2):
    host = host_of(double)
    for file in (tmp_path / "docker" / "config.json", root.folder / "registries.json"):
        write_login(file, host, _LOGIN)
    push(toy, f"oci://{host}/boards/net:1")
    push(toy2, f"oci://{host}/boards/net:2")
    files = double.files
    image = files["/v2/boards/net/manifests/1"]
    digest = hashlib.sha256(image).hexdigest()
    url = f"oci://{host}/boards/net@sha256:{digest}"
    assert take(root, url)[0].manifest.digest == toy.digest
    files[f"/v2/boards/net/manifests/sha256:{digest}"] = files["/v2/boards/net/manifests/2"]
    with pytest.raises(DeviceError) as refused:
        take(root, url)
    assert refused.value.code == "source.wrong-bytes"


def test_what_is_no_bundle_is_told(root, double, tmp_path):
    host = host_of(double)
    write_login(root.folder / "registries.json", host, _LOGIN)
    files = double.files
    for image in (b"[]", b"{", b'{"schemaVersion": 2, "layers": []}', b"[" * 100_000,
                  b'{"schemaVersion": 2, "layers": [{"mediaType": '
                  b'"application/vnd.edgekit.bundle.manifest.v1+json", "digest": "sha256:../x"}]}',
                  ):  # fmt: skip
        files["/v2/boards/net/manifests/1"] = image
        with pytest.raises(DeviceError) as refused:
            take(root, f"oci://{host}/boards/net:1")
        assert refused.value.code == "source.bad-answer"


def test_a_real_registry_takes_and_gives_it(root, tmp_path, toy, toy2):
    program = registry_program()
    if program is None:
        pytest.skip("no docker-registry here (Debian: apt-get install docker-registry)")
    with real_registry(tmp_path / "registry", program) as host:
        url = f"oci://{host}/boards/net:1"
        first = push(toy, url)
        assert push(toy, url).blobs == 0
        _, fetched = take(root, url)
        assert fetched.blobs == len(toy.weights) + len(toy.blobs)
        assert whole(root, toy)
        assert 0 < push(toy2, url).blobs < first.blobs
        take(root, url)
        assert whole(root, toy2)
        # a large blob goes on in the middle
        digest = max(toy.weight_bytes, key=lambda d: toy.weight_bytes[d])
        path = root.store.path(digest)
        partial = root.folder / "partial" / digest
        partial.parent.mkdir(exist_ok=True)
        path.rename(partial)
        with partial.open("r+b") as file:
            file.truncate(1000)
        push(toy, url)
        _, fetched = take(root, url)
        assert fetched.bytes == toy.weight_bytes[digest] - 1000
        assert whole(root, toy)


def test_an_image_layout_has_every_blob_and_one_entry_a_tag(tmp_path, toy, toy2):
    folder = tmp_path / "layout"
    push(toy, f"{folder}:one", oci_layout=True)
    push(toy2, f"{folder}:two", oci_layout=True)
    push(toy2, f"{folder}:one", oci_layout=True)
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_text())
    assert index["schemaVersion"] == 2
    names = [e["annotations"]["org.opencontainers.image.ref.name"] for e in index["manifests"]]
    assert sorted(names) == ["one", "two"]
    for file in (folder / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    for entry in index["manifests"]:
        image = folder / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")
        assert image.stat().st_size == entry["size"]
        document = json.loads(image.read_text())
        for layer in [document["config"], *document["layers"]]:
            blob = folder / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")
            assert blob.stat().st_size == layer["size"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(BundleError) as refused:
        push(toy, str(tmp_path / "other"), oci_layout=True)
    assert refused.value.code == "bundle.no-layout"


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
    from urllib.parse import urlsplit

    rules.check_secret(urlsplit("https://registry/v2/"))
    rules.check_secret(urlsplit("http://127.0.0.1:5000/v2/"))
    with pytest.raises(DeviceError) as refused:
        rules.check_secret(urlsplit("http://127.0.0.1.example.org/v2/"))
    assert refused.value.code == "source.insecure"


def test_challenges_are_read_with_quotes_and_commas():
    found = read_challenge('Bearer realm="https://a/t?x=1,2",service="s \\"q\\"" , scope=plain')
    assert found is not None
    assert found.scheme == "bearer"
    assert found.parameters == {
        "realm": "https://a/t?x=1,2", "service": 's "q"', "scope": "plain",
    }  # fmt: skip
    assert read_challenge("") is None
    assert read_challenge("Bearer " + 'a="' * 10_000) is not None
