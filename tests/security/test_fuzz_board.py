"""The board's readers meet mutated input: only DeviceErrors come out, soon and in little memory."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit_device.arrays.npz import read_npz
from edgekit_device.build.request import read_request as read_build
from edgekit_device.deployment.request import read_request as read_deploy
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import parse_json
from edgekit_device.protocol.manifest import parse
from edgekit_device.protocol.server import parse_head, read_request
from edgekit_device.protocol.serving import RunRequest
from edgekit_device.release.journal import JOURNAL, read_history, read_journal, references
from edgekit_device.release.policy import read_policy
from edgekit_device.store.root import LINKS, Root, finish_links, read_links
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.trust.bundle import open_bundle
from edgekit_device.trust.signature import parse_key_file, parse_key_line, parse_signature_key
from edgekit_device.versions import parse_version
from tests.edgekit_device.device_board import run_command
from tests.security.security_fuzz import limits, mutated, seeds, times

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "root").mkdir(mode=0o700)
    yield Root(folder / "root")
    # whatever came in, nothing was written beside ROOT
    assert [path.name for path in folder.iterdir()] == ["root"]


def survive(read: Callable[[], Any]) -> bool:
    """Whether the input was taken; a DeviceError is the one way to refuse it."""
    with limits():
        try:
            read()
        except DeviceError as error:
            reported = error.to_json()["error"]
        else:
            return True
    assert reported["code"]
    assert reported["message"]
    json.dumps(reported).encode("ascii")
    return False


def read_signature(data: bytes) -> None:
    for found in (
        parse_signature_key(data),
        parse_key_line(data.decode("utf-8", "replace")),
        *parse_key_file(data),
    ):
        if found is not None:
            assert found.fingerprint.startswith("SHA256:")
            assert parse_key_line("x " + found.line) is not None


def read_document(data: bytes) -> None:
    document = parse_json(data, "stdin", "protocol.invalid")
    if isinstance(document, dict):
        for read in (read_deploy, read_policy, read_build):
            survive(lambda read=read: read(document))  # type: ignore[misc]


READERS: dict[str, tuple[Callable[[bytes], Any], int]] = {
    "manifest": (parse, 900),
    "signature": (read_signature, 500),
    "npz": (lambda data: read_npz(data, 1 << 20), 500),
    "plan": (lambda data: (read_header(data), parse_version(data.decode("latin-1"))), 200),
    "request": (read_document, 700),
    "head": (lambda data: read_request(RunRequest, parse_head(data)), 300),
}


@pytest.mark.parametrize("kind", READERS)
def test_readers_of_bytes(kind: str) -> None:
    read, examples = READERS[kind]

    @times(examples, kind)
    @given(mutated(kind))
    def check(data: bytes) -> None:
        survive(lambda: read(data))

    for seed in seeds(kind):
        survive(lambda seed=seed: read(seed))  # type: ignore[misc]
    check()


@times(350)
@given(data=mutated("ekb"))
def test_bundle_files(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.ekb"
    path.write_bytes(data)

    def read() -> None:
        files = open_bundle(path)
        manifest = parse(files.manifest)
        for digest in [*manifest.sizes(), "../../etc/passwd", "a" * 64]:
            if files.blobs.has(digest):
                assert len(files.blobs.read(digest)) <= len(data)

    survive(read)


@times(200)
@given(data=mutated("frames"))
def test_blobs_that_come_in(root: Root, data: bytes) -> None:
    survive(lambda: run_command(root, ["receive"], io.BytesIO(data)))
    # what is in the store is what its name says
    for path in root.store.blobs():
        assert root.store.missing([path.name], verify=True) == []
    assert not list((root.folder / "tmp").glob("*"))


@times(150)
@given(data=mutated("offer"))
def test_offers(root: Root, data: bytes) -> None:
    survive(lambda: run_command(root, ["offer", "--trust-unsigned"], io.BytesIO(data)))
    assert not list((root.folder / "tmp").glob("*"))


@times(60)
@given(data=mutated("trust"))
def test_changes_of_trust(root: Root, data: bytes) -> None:
    survive(lambda: run_command(root, ["trust"], io.BytesIO(data)))


@times(300)
@given(data=mutated("journal"), name=st.sampled_from([JOURNAL, LINKS, "history.jsonl"]))
def test_files_that_a_power_cut_or_a_disk_has_damaged(root: Root, data: bytes, name: str) -> None:
    app = root.app("net")
    app.folder.mkdir(parents=True, exist_ok=True)
    file = app.folder / name
    file.write_bytes(data)

    def read() -> None:
        journal = read_journal(app)
        assert journal is None or isinstance(journal.live, bool)
        references(app)
        read_history(app)
        if read_links(app.folder) is not None:
            finish_links(app.folder)

    survive(read)
    for link in ("current", "previous"):
        assert Path(app.folder / link).is_symlink() or not (app.folder / link).exists()
        assert app.link(link) is None
    file.unlink(missing_ok=True)
