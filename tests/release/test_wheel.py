"""What the wheel and the sdist hold, and what they say of themselves. Nothing is installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import edgekit

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def names_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_all_that_edgekit_reads_and_nothing_of_the_tests(built):
    names = names_of(built[0])
    tracked = subprocess.run(
        ["git", "ls-files", "edgekit", "edgekit_device"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert names.issuperset(tracked)
    for kind in ("targets", "dla", "trt"):
        files = {path.relative_to(ROOT) for path in (ROOT / kind).rglob("*.yaml")}
        assert files, kind
        assert names.issuperset(f"edgekit/_data/{path.as_posix()}" for path in files)
    assert {"edgekit/py.typed", "edgekit_device/py.typed"} <= names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"edgekit", "edgekit_device", f"edgekit-{edgekit.__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc") or "/tests/" in name]


def test_the_metadata_is_valid_and_says_what_the_project_file_says(built):
    with zipfile.ZipFile(built[0]) as archive:
        home = f"edgekit-{edgekit.__version__}.dist-info"
        said = Metadata.from_email(archive.read(f"{home}/METADATA"), validate=True)
        entry = archive.read(f"{home}/entry_points.txt").decode()
    assert (said.name, str(said.version)) == ("edgekit", edgekit.__version__)
    assert str(said.requires_python) == ">=3.10"
    assert said.license_expression == "Apache-2.0"
    assert said.description_content_type == "text/markdown"
    assert said.description.strip() == (ROOT / "README.md").read_text().strip()
    assert "edgekit = edgekit._entry:main" in entry
    assert {"cuda", "lean", "tensorrt", "lean-cu12", "tensorrt-cu13", "parser"} <= set(
        said.provides_extra
    )
    # what runs on a plain machine needs nothing of NVIDIA's
    plain = [one.name for one in map(Requirement, map(str, said.requires_dist)) if not one.marker]
    assert "numpy" in plain
    assert not [name for name in plain if "tensorrt" in name or "cuda" in name]


def test_the_sdist_gives_the_same_wheel(built, tmp_path):
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
        assert not [
            name for name in names if name.startswith(("tests", "benchmarks", ".ci", ".github"))
        ]
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again"],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (again,) = (tmp_path / "again").glob("*.whl")
    assert names_of(again) == names_of(wheel)
    assert again.read_bytes() == wheel.read_bytes()
