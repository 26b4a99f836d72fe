"""Versions of installed packages, against the standard library's own search for them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from edgekit_device.board.inventory import recorded_version


def test_every_package_here_has_the_version_that_python_finds() -> None:
    names = {one.metadata["Name"] for one in metadata.distributions()}
    assert "numpy" in names
    assert len(names) > 10
    found = {name: recorded_version(name) for name in names}
    assert found == {name: metadata.version(name) for name in names}
    assert recorded_version("no-such-package") is None


@pytest.mark.parametrize(
    ("entry", "file", "text", "version"),
    [
        ("numpy-1.17.4.egg-info", "", "Metadata-Version: 1.2\nVersion: 1.17.4\n", "1.17.4"),
        (
            "numpy-1.19.4-py3.8.egg-info",
            "PKG-INFO",
            "Name: numpy\r\nversion: 1.19.4\r\n\r\n",
            "1.19.4",
        ),
        (
            "NumPy-2.0+nv.dist-info",
            "METADATA",
            "Name: NumPy\nVersion: 2.0+nv-1\n\nVersion: 9\n",
            "2.0+nv-1",
        ),
        ("numpy-3.dist-info", "METADATA", "Name: numpy\n\nVersion: 9\n", None),
        ("numpy-3.dist-info", "RECORD", "", None),
        ("numpy_financial-1.0.dist-info", "METADATA", "Version: 1.0\n", None),
    ],
)
def test_forms_of_records(
    entry: str,
    file: str,
    text: str,
    version: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / entry
    if file:
        path.mkdir()
        path = path / file
    path.write_bytes(text.encode())
    monkeypatch.setattr("sys.path", [str(tmp_path / "missing"), str(tmp_path)])
    assert recorded_version("numpy") == version
