"""What a bundle needs of a board: each lack is named, what is not known is not compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.board.identity import Hello, hello
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import RequiredRuntime, Requires, parse
from edgekit_device.release.requirements import check_facts, check_requires
from edgekit_device.store.root import Root
from tests.bundles.bundle_toys import toy_bundle

NEEDS = Requires(
    backend="tensorrt",
    loader="edgekit.device/1",
    runtime=RequiredRuntime("onnxruntime", "1.12", "2"),
    boards=({"module": "Orin p3701-0005", "l4t": "36.4.3", "tensorrt": "10.3.0.30"},),
    portable=False,
    dla_cores=(0, 1),
    cudla=True,
    disk_bytes=1000,
    memory_bytes=500,
)
BOARD = Hello(
    version="1",
    loader=None,
    python="3.10",
    machine="aarch64",
    numpy=None,
    onnxruntime="1.18.0",
    backends=("reference", "tensorrt"),
    root="/r",
    ssh_keygen=None,
    free_bytes=1000,
    module="Orin",
    board_id="p3701-0005",
    l4t="36.4.3",
    tensorrt="10.3.0",
    memory_bytes=500,
)
DLA: dict[str, Any] = {"dla_cores": 2, "cudla": True}

LACKS: dict[str, dict[str, Any]] = {
    "loader": {"schema": "edgekit.device/2"},
    "backend": {"backends": ("reference",)},
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
    check_facts(NEEDS, BOARD, **DLA, stored=0)
    check_facts(NEEDS, replace(BOARD, free_bytes=0))
    unknown = replace(
        BOARD,
        onnxruntime="unknown",
        module=None,
        board_id=None,
        l4t=None,
        tensorrt=None,
        memory_bytes=None,
    )
    check_facts(NEEDS, unknown)


@pytest.mark.parametrize("lack", LACKS)
def test_each_lack_has_its_name(lack: str) -> None:
    board = replace(BOARD, **{k: v for k, v in LACKS[lack].items() if k not in DLA})
    dla = {**DLA, **{k: v for k, v in LACKS[lack].items() if k in DLA}}
    with pytest.raises(DeviceError) as caught:
        check_facts(NEEDS, board, **dla, where="lab", stored=0)
    assert caught.value.code == "requires." + lack.strip()
    assert (caught.value.where, bool(caught.value.hint)) == ("lab", True)


def test_segments_on_the_cpu_need_onnx_runtime_beside_the_engines_own() -> None:
    needs = replace(NEEDS, cpu=True, runtime=None)
    check_facts(needs, BOARD)
    with pytest.raises(DeviceError, match="onnxruntime, which is missing") as caught:
        check_facts(needs, replace(BOARD, onnxruntime=None))
    assert caught.value.code == "requires.runtime"


def test_any_of_several_kinds_of_boards_will_do() -> None:
    both = ({"module": "Thor", "l4t": "38.2.0", "tensorrt": "10.13.3"}, *NEEDS.boards)
    check_facts(replace(NEEDS, boards=both), BOARD)
    with pytest.raises(DeviceError):
        check_facts(replace(NEEDS, boards=both[:1]), BOARD)


def test_engines_that_newer_releases_run_need_the_module_alone() -> None:
    portable = replace(NEEDS, portable=True)
    upgraded = replace(BOARD, l4t="36.5.0", tensorrt="10.7.0")
    check_facts(portable, upgraded)
    with pytest.raises(DeviceError) as caught:
        check_facts(portable, replace(upgraded, module="Thor"))
    assert caught.value.code == "requires.board"
    assert "edgekit deploy CONFIG" in caught.value.hint


def test_what_is_there_already_needs_no_more_space() -> None:
    check_facts(NEEDS, replace(BOARD, free_bytes=400), stored=600)


def test_a_bundle_of_this_machine_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = parse(toy_bundle().manifest_bytes)
    root = Root(tmp_path)
    check_requires(root, manifest)
    assert manifest.requires is not None
    assert manifest.requires.runtime == RequiredRuntime("onnxruntime", "1.12", "")
    assert manifest.requires.disk_bytes == sum(manifest.sizes().values())
    monkeypatch.setattr(
        "edgekit_device.release.requirements.hello",
        lambda folder: replace(hello(folder), memory_bytes=1),
    )
    with pytest.raises(DeviceError) as caught:
        check_requires(root, manifest)
    assert caught.value.code == "requires.memory"
    check_requires(root, replace(manifest, requires=None))
