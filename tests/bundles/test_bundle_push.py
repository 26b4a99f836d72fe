"""Bundles as OCI images: layouts as others read them, and oras, which pushes them."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from edgekit.bundles.push import push
from edgekit.errors import BundleError, EnvironmentLack, UsageError
from tests.bundles.bundle_toys import toy_bundle

# stands in for oras: keeps what it is called with and a copy of the layout
_ORAS = """#!{python}
import json, pathlib, shutil, sys
here = pathlib.Path(__file__).parent
(here / "argv.json").write_text(json.dumps(sys.argv[1:]))
shutil.copytree(sys.argv[-2].rpartition(":")[0], here / "layout")
if "refused" in sys.argv[-1]:
    sys.exit("Error: unauthorized")
"""


@pytest.fixture
def oras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "oras"
    program.write_text(_ORAS.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def check_layout(folder: Path) -> list[str]:
    """Returns the tags of an image layout, whose blobs are all there and have their own digests."""
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_text())
    assert index["schemaVersion"] == 2
    for file in (folder / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    for entry in index["manifests"]:
        image = folder / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")
        assert image.stat().st_size == entry["size"]
        document = json.loads(image.read_text())
        for layer in [document["config"], *document["layers"]]:
            blob = folder / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")
            assert blob.stat().st_size == layer["size"]
    return sorted(e["annotations"]["org.opencontainers.image.ref.name"] for e in index["manifests"])


def test_an_image_layout_has_every_blob_and_one_entry_a_tag(tmp_path: Path) -> None:
    first, other, folder = toy_bundle(), toy_bundle(1), tmp_path / "layout"
    push(first, f"{folder}:one", oci_layout=True)
    pushed = push(other, f"{folder}:two", oci_layout=True)
    assert pushed.reused > 0
    assert push(other, f"{folder}:one", oci_layout=True).blobs == 0
    assert check_layout(folder) == ["one", "two"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(BundleError) as refused:
        push(first, str(tmp_path / "other"), oci_layout=True)
    assert refused.value.code == "bundle.no-layout"


@pytest.mark.parametrize("scheme", ["oci", "oci+http"])
def test_oras_copies_the_layout_into_the_registry(oras: Path, scheme: str) -> None:
    bundle = toy_bundle()
    pushed = push(bundle, f"{scheme}://registry.example/boards/net:7")
    assert pushed.path == f"{scheme}://registry.example/boards/net:7"
    assert pushed.digest == bundle.digest
    command, source, *plain, layout, image = json.loads((oras / "argv.json").read_text())
    assert (command, source, image) == ("cp", "--from-oci-layout", "registry.example/boards/net:7")
    assert plain == (["--to-plain-http"] if scheme == "oci+http" else [])
    assert check_layout(oras / "layout") == [layout.rpartition(":")[2]]
    assert not Path(layout).parent.exists()  # nothing of it stays


def test_what_oras_says_and_that_it_is_missing_are_errors(
    oras: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        EnvironmentLack, match="oras failed with exit status 1: Error: unauthorized"
    ) as failed:
        push(toy_bundle(), "oci://registry.example/refused:1")
    assert failed.value.code == "bundle.oras"
    monkeypatch.setenv("PATH", str(oras / "none"))
    with pytest.raises(EnvironmentLack) as missing:
        push(toy_bundle(), "oci://registry.example/net:1")
    assert missing.value.code == "bundle.no-oras"


@pytest.mark.parametrize("place", ["ftp://mirror/bundles", "http://mirror:8080/"])
def test_an_address_that_is_no_registry_makes_no_folder_of_its_name(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        push(toy_bundle(), place)
    assert (caught.value.code, caught.value.where) == ("bundle.destination", place)
    assert not list(tmp_path.iterdir())
