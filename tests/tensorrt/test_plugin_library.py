"""What the ELF file of a plugin's library says, and which libraries are refused before a board."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from edgekit.errors import DataError
from edgekit.tensorrt.plugin_library import check_library, parse_library, read_library
from tests.tensorrt.plugin_toys import compiled, for_machine, plugin

WHERE = "net.yaml:4:12"
AARCH64 = 183


def test_what_a_library_needs_gives_and_lacks_is_read(tmp_path: Path) -> None:
    source = "extern int cudaLaunchKernel(void); int run(void) { return cudaLaunchKernel(); }"
    path = plugin(tmp_path / "libmine.so", "Mine|1||V3", more=source, needed=["libnvinfer.so.10"])
    found = read_library(path, WHERE)
    assert found.machine == "x86-64"
    assert found.needed[0] == "libnvinfer.so.10"
    assert found.tensorrt == (10,)
    assert {"getCreators", "getPluginCreators", "run"} <= found.defines
    assert "cudaLaunchKernel" in found.undefined
    assert found.data == path.read_bytes()


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_every_kind_of_hash_table_gives_the_names_that_nm_gives(style: str, tmp_path: Path) -> None:
    source = "extern int far(void);" + "".join(
        f"int name{n}(void) {{ return far() + {n}; }}" for n in range(40)
    )
    path = compiled(tmp_path / "lib.so", source, options=[f"-Wl,--hash-style={style}"])
    found = read_library(path, WHERE)
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    lines = subprocess.run(
        ["nm", "-D", path], check=True, capture_output=True, text=True
    ).stdout.split("\n")
    words = [line.split() for line in lines if line]
    assert found.defines == {word[-1] for word in words if len(word) == 3 and word[1] not in "wv"}
    assert set(found.undefined) == {word[1] for word in words if word[0] == "U"}


def test_a_library_without_its_sections_is_read_all_the_same(tmp_path: Path) -> None:
    path = plugin(tmp_path / "lib.so", "Mine|1||V3", needed=["libnvinfer.so.8"])
    data = path.read_bytes()
    # no section header table: e_shoff, e_shnum and e_shstrndx are 0
    data = data[:40] + bytes(8) + data[48:60] + bytes(4) + data[64:]
    assert parse_library("lib.so", data, WHERE).tensorrt == (8,)


def test_a_library_for_this_board_passes(tmp_path: Path) -> None:
    path = compiled(tmp_path / "lib.so", needed=["libnvinfer.so.10"], machine=AARCH64)
    assert check_library(read_library(path, WHERE), "10.3", WHERE) == []


def test_a_library_for_a_pc_is_refused(tmp_path: Path) -> None:
    library = read_library(compiled(tmp_path / "libmine.so", needed=["libnvinfer.so.10"]), WHERE)
    with pytest.raises(DataError, match=r"libmine.so is built for x86-64, .* aarch64") as caught:
        check_library(library, "10.3", WHERE)
    assert (caught.value.code, caught.value.where) == ("plugin.machine", WHERE)
    assert "source:" in caught.value.hint


@pytest.mark.parametrize("name", ["libnvinfer.so.8", "libnvinfer_plugin.so.8"])
def test_a_library_of_another_tensorrt_is_refused(name: str, tmp_path: Path) -> None:
    path = compiled(tmp_path / "lib.so", needed=[name], machine=AARCH64)
    with pytest.raises(DataError, match=f"needs {name}, but the board has TensorRT 10.3") as caught:
        check_library(read_library(path, WHERE), "10.3", WHERE)
    assert caught.value.code == "plugin.tensorrt"
    assert check_library(read_library(path, WHERE), "8.6", WHERE) == []


def test_a_library_that_names_no_tensorrt_is_unknown(tmp_path: Path) -> None:
    source = (
        "extern int getPluginRegistry(void), _ZN8nvinfer17ILoggerE(void);"
        "int run(void) { return getPluginRegistry() + _ZN8nvinfer17ILoggerE(); }"
    )
    path = compiled(tmp_path / "lib.so", source, machine=AARCH64)
    (note,) = check_library(read_library(path, WHERE), "10.3", WHERE)
    assert "is unknown (it uses getPluginRegistry, _ZN8nvinfer17ILoggerE)" in note
    plain = compiled(tmp_path / "plain.so", machine=AARCH64)
    (note,) = check_library(read_library(plain, WHERE), "10.3", WHERE)
    assert "(it uses" not in note


def refused(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        parse_library("lib.so", data, WHERE)
    assert (caught.value.code, caught.value.where) == ("plugin.library", WHERE)
    return caught.value.message


def test_other_files_are_one_clear_error(tmp_path: Path) -> None:
    whole = compiled(tmp_path / "lib.so").read_bytes()
    assert "no ELF file" in refused(b"")
    assert "no ELF file" in refused(b"PK\3\4" + bytes(80))
    assert "static library" in refused(b"!<arch>\n" + bytes(80))
    assert "32-bit" in refused(whole[:4] + b"\1" + whole[5:])
    assert "little-endian" in refused(whole[:5] + b"\2" + whole[6:])
    assert "object file" in refused(whole[:16] + struct.pack("<H", 1) + whole[18:])
    assert "program" in refused(whole[:16] + struct.pack("<H", 2) + whole[18:])
    subprocess.run(
        ["cc", "-xc", "-", "-pie", "-fPIE", "-o", str(tmp_path / "program")],
        input=b"int main(void) { return 0; }",
        check=True,
    )
    assert "program" in refused((tmp_path / "program").read_bytes())


def test_a_library_cut_off_anywhere_is_one_error(tmp_path: Path) -> None:
    data = for_machine(compiled(tmp_path / "lib.so", needed=["libnvinfer.so.10"]).read_bytes())
    for size in [*range(0, 1200, 7), *range(1200, len(data), 501), len(data) - 1]:
        assert "lib.so is no plugin library: it is" in refused(data[:size]), size


def test_no_damaged_byte_is_a_traceback(tmp_path: Path) -> None:
    data = bytearray(plugin(tmp_path / "lib.so", "Mine|1||V3").read_bytes())
    for at in range(min(len(data), 4096)):
        damaged = bytes(data[:at]) + bytes([data[at] ^ 0xFF]) + bytes(data[at + 1 :])
        with suppress(DataError):
            parse_library("lib.so", damaged, WHERE)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"libgone.so cannot be read") as caught:
        read_library(tmp_path / "libgone.so", WHERE)
    assert caught.value.code == "plugin.library"
    with pytest.raises(DataError, match="it is a folder"):
        read_library(tmp_path, WHERE)
