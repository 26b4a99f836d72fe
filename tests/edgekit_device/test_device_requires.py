"""What a bundle needs of a board: each lack is named, what is not known is not compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.board.identity import hello
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import RequiredRuntime, Requires, parse
from edgekit_device.release.requirements import check_facts, check_requires
from edgekit_device.store.root import Root
from tests.bundles.bundle_toys import toy_bundle

NEEDS = Requires(
    backend="tensorrt", loader="edgekit.device/1",
    runtime=RequiredRuntime("onnxruntime", "1.12", "2"),
    boards=({"module": "Orin p3701-0005", "l4t": "36.4.3", "tensorrt": "10.3.0.30"},),
    portable=False, dla_cores=(0, 1), cudla=True, disk_bytes=1000, memory_bytes=500,
)  # fmt: skip
FACTS: dict[str, Any] = {
    "schema": "edgekit.device/1", "backends": ["reference", "tensorrt"], "onnxruntime": "1.18.0",
    "module": "Orin", "board_id": "p3701-0005", "l4t": "36.4.3", "tensorrt": "10.3.0",
    "dla_cores": 2, "cudla": True, "free_bytes": 1000, "memory_bytes": 500,
}  # fmt: skip

LACKS = {
    "loader": {"schema": "edgekit.device/2"},
    "backend": {"backends": ["reference"]},
    "runtime": {"onnxruntime": None},
    "runtime ": {"onnxruntime": "1.11.1"},
    "runtime  ": {"onnxruntime": "2.0.0"},
    "runtime   ": {"onnxruntime": "2"},
    "board": {"l4t": "36.5.0"},
    "board ": {"board_id": "p3701-0000"},
    "board  ": {"tensorrt": "10.7.0.23"},
    "dla": {"dla_cores": 1},
    "cudla": {"cudla": False},
    "disk": {"free_bytes": 999},
    "memory": {"memory_bytes": 499},
}


def test_a_board_that_has_it_all() -> None:
    check_facts(NEEDS, FACTS)
    check_facts(NEEDS, {})
    check_facts(NEEDS, dict.fromkeys(FACTS, None) | {"schema": NEEDS.loader, "backends": [
        "tensorrt"], "onnxruntime": "unknown"})  # fmt: skip


@pytest.mark.parametrize("lack", LACKS)
def test_each_lack_has_its_name(lack: str) -> None:
    with pytest.raises(DeviceError) as caught:
        check_facts(NEEDS, {**FACTS, **LACKS[lack]}, where="lab")
    assert caught.value.code == "requires." + lack.strip()
    assert (caught.value.where, bool(caught.value.hint)) == ("lab", True)


def test_any_of_several_kinds_of_boards_will_do() -> None:
    both = ({"module": "Thor", "l4t": "38.2.0", "tensorrt": "10.13.3"}, *NEEDS.boards)
    check_facts(dataclasses.replace(NEEDS, boards=both), FACTS)
    with pytest.raises(DeviceError):
        check_facts(dataclasses.replace(NEEDS, boards=both[:1]), FACTS)


def test_engines_that_newer_releases_run_need_the_module_alone() -> None:
    portable = dataclasses.replace(NEEDS, portable=True)
    upgraded = {**FACTS, "l4t": "36.5.0", "tensorrt": "10.7.0"}
    check_facts(portable, upgraded)
    with pytest.raises(DeviceError) as caught:
        check_facts(portable, {**upgraded, "module": "Thor"})
    assert caught.value.code == "requires.board"
    assert "edgekit deploy CONFIG" in caught.value.hint


def test_what_is_there_already_needs_no_more_space() -> None:
    check_facts(NEEDS, {**FACTS, "free_bytes": 400}, there=600)


def test_a_bundle_of_this_machine_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = parse(toy_bundle().manifest_bytes)
    root = Root(tmp_path)
    check_requires(root, manifest)
    assert manifest.requires is not None
    assert manifest.requires.runtime == RequiredRuntime("onnxruntime", "1.12", "")
    assert manifest.requires.disk_bytes == sum(manifest.sizes().values())
    monkeypatch.setattr(
        "edgekit_device.release.requirements.hello",
        lambda folder: dataclasses.replace(hello(folder), memory_bytes=1),
    )
    with pytest.raises(DeviceError) as caught:
        check_requires(root, manifest)
    assert caught.value.code == "requires.memory"
    check_requires(root, dataclasses.replace(manifest, requires=None))
