"""One key, one signed toy bundle and one loader for all tests; a new board for each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit_device.store.root import Root
from tests.bundles.bundle_toys import toy_bundle
from tests.edgekit_device.build.board import make
from tests.edgekit_device.device_board import BoardFolder
from tests.edgekit_device.tensorrt.here import here

__all__ = ["here", "make"]


@pytest.fixture(scope="session")
def signing_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_key(tmp_path_factory.mktemp("key") / "id_ed25519")


@pytest.fixture(scope="session")
def signer_line(signing_key: Path) -> str:
    return allowed_signers_line(signing_key.with_name("id_ed25519.pub"), "tests")


@pytest.fixture
def root(tmp_path: Path, signer_line: str) -> Root:
    """A board's folder that trusts the key."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "allowed_signers").write_text(signer_line)
    return Root(folder)


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a deployment places it: a relative link in ``bin`` to a name of its digest."""
    folder = tmp_path_factory.mktemp("loader") / "bin"
    folder.mkdir()
    digest = build_zipapp(folder / "new.pyz")
    name = f"edgekit_device-{digest[:16]}.pyz"
    (folder / "new.pyz").rename(folder / name)
    link = folder / "edgekit_device.pyz"
    link.symlink_to(name)
    return link


@pytest.fixture(scope="session")
def toy(signing_key: Path) -> Bundle:
    bundle = toy_bundle()
    return bundle.signed(sign(bundle.manifest_bytes, signing_key))


@pytest.fixture(scope="session")
def toy2(signing_key: Path) -> Bundle:
    """The toy with other weights."""
    bundle = toy_bundle(1)
    return bundle.signed(sign(bundle.manifest_bytes, signing_key))


@pytest.fixture
def empty_board(tmp_path: Path, loader: Path) -> BoardFolder:
    return BoardFolder(tmp_path / "root", loader)


@pytest.fixture
def board(empty_board: BoardFolder, signer_line: str) -> BoardFolder:
    """A board that trusts the tests' key."""
    empty_board.trust(signer_line)
    return empty_board


@pytest.fixture(scope="session")
def _installed(
    tmp_path_factory: pytest.TempPathFactory, loader: Path, signer_line: str, toy: Bundle
) -> tuple[BoardFolder, str]:
    board = BoardFolder(tmp_path_factory.mktemp("installed") / "root", loader)
    board.trust(signer_line)
    return board, board.install(toy)


@pytest.fixture
def installed(board: BoardFolder, _installed: tuple[BoardFolder, str]) -> str:
    """Puts the toy on ``board``, as its commands did once; returns the current release."""
    template, release = _installed
    shutil.rmtree(board.root)
    shutil.copytree(template.root, board.root, symlinks=True)
    return release
