"""What is recorded is read back as it was, with what it belongs to."""

import subprocess
from types import SimpleNamespace

import pytest

from edgekit.errors import DataError
from edgekit.results.recording import record
from edgekit.results.store import ResultStore
from tests.results.measurements import bench, times

RELEASE = SimpleNamespace(
    digest="ab" * 32, release="000001-abababababab", hello=SimpleNamespace(l4t="36.4.3")
)


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_result_comes_back_as_it_was(tmp_path):
    path = tmp_path / "new" / "history.sqlite"
    document = bench(times(500, 2.0, seed=1))
    id = record(document, release=RELEASE, path=path)
    with ResultStore(path) as store:
        (found,) = store.results()
    assert (found.id, found.name, found.board) == (id, "net", "remote:lab")
    assert list(found.samples) == document.samples_ms
    assert found.document == document.model_copy(update={"samples_ms": None})
    assert (found.bundle, found.release) == (RELEASE.digest, RELEASE.release)
    assert found.fingerprint == {"machine": "aarch64", "l4t": "36.4.3"}
    assert found.git is None


def test_the_same_run_is_retained_once(tmp_path):
    path = tmp_path / "history.sqlite"
    one, other = bench(times(50, 2.0, seed=1)), bench(times(50, 2.0, seed=2))
    ids = [record(document, path=path) for document in (one, other, one)]
    assert ids[0] == ids[2] != ids[1]


def test_the_commit_of_the_project_and_whether_its_files_are_changed(tmp_path):
    path, folder = tmp_path / "history.sqlite", tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "net.yaml").write_text("version: 1")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    project = SimpleNamespace(folder=folder)
    (folder / "out.json").write_text("not tracked")
    record(bench([1.0, 1.1]), config=project, path=path)
    (folder / "net.yaml").write_text("version: 2")
    record(bench([1.0, 1.2]), config=project, path=path)
    with ResultStore(path) as store:
        changed, clean = store.results()
        assert len(store.results(commit=clean.git.commit[:8])) == 2
        assert store.results(commit="%") == []
    assert clean.git.commit == changed.git.commit == git(folder, "rev-parse", "HEAD")
    assert (clean.git.dirty, changed.git.dirty) == (False, True)


def test_a_prediction_is_no_result(tmp_path):
    with pytest.raises(DataError, match="no measurement to record"):
        record(bench([1.0], latency_ms=None), path=tmp_path / "history.sqlite")
    assert not (tmp_path / "history.sqlite").exists()
