"""A plugin's library by its ELF file, and the check that a board can load it: machine, TensorRT's
major version, entry points. Start with ``read_library`` and ``check_library``.

Only the loader's parts are read: the program headers, the dynamic section and its symbols (System V
ABI, "Program Loading and Dynamic Linking"). Sections may have been stripped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.targets.releases import parse_version
from edgekit.tensorrt.plugin_families import entry_points, families, plugin_facts
from edgekit.text import listed
from edgekit_device.protocol.manifest import PluginEntry

#: The machine of every board that edgekit knows.
BOARD_MACHINE = "aarch64"
#: Bytes of a library at most.
MAX_LIBRARY = 1 << 30

_MACHINES = {3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}
_TENSORRT = re.compile(r"libnvinfer(_plugin|_lean|_dispatch|_vc_plugin)?\.so\.(\d{1,4})")
_SHOWN = 5

_SHARED, _EXECUTABLE, _OBJECT = 3, 2, 1  # e_type
_LOAD, _DYNAMIC = 1, 2  # p_type
# d_tag
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ = 1, 4, 5, 6, 10
_GNU_HASH, _FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB
_PIE = 0x08000000
_SYMBOL_BYTES, _WEAK = 24, 2
_LONGEST_NAME = 1 << 16


@dataclass(frozen=True)
class PluginLibrary:
    """The loader's facts about a plugin's library.

    Attributes:
        name: The file's name.
        machine: "aarch64", "x86-64", or "machine N" for others.
        needed: Names of the libraries that it needs, in order (DT_NEEDED).
        defines: Symbols that it defines for other libraries.
        undefined: Symbols that another library must define, without weak symbols.
        data: The file's bytes.
    """

    name: str
    machine: str
    needed: tuple[str, ...]
    defines: frozenset[str]
    undefined: tuple[str, ...]
    data: bytes

    @property
    def tensorrt(self) -> tuple[int, ...]:
        """Major versions of the TensorRT libraries that it needs; empty if it names none."""
        found = (_TENSORRT.match(name) for name in self.needed)
        return tuple(sorted({int(item[2]) for item in found if item}))

    @property
    def tensorrt_names(self) -> tuple[str, ...]:
        """The undefined symbols that only TensorRT's libraries define."""
        return tuple(
            name
            for name in self.undefined
            if "8nvinfer1" in name or name.startswith(("getPluginRegistry", "getBuilderPlugin"))
        )


@dataclass(frozen=True)
class PluginLibraries:
    """The plugins of a build, and the libraries sent with it, by SHA-256."""

    entries: tuple[PluginEntry, ...] = ()
    libraries: Mapping[str, bytes] = field(default_factory=dict)


def read_library(path: Path, where: str) -> PluginLibrary:
    """Reads a library's file.

    Args:
        path: The file.
        where: The place that names it, for errors.

    Raises:
        DataError: "plugin.library": it cannot be read, or is no 64-bit shared library.
    """
    try:
        data = read_file(path, MAX_LIBRARY)
    except OSError as error:
        raise DataError(
            f"the plugin's library {path.name} cannot be read: {error.strerror or error}",
            code="plugin.library",
            where=where,
            hint="model.plugins: library is a path relative to the configuration",
        ) from error
    return parse_library(path.name, data, where)


def parse_library(name: str, data: bytes, where: str) -> PluginLibrary:
    """Returns a library by its bytes; arguments and errors as for ``read_library``."""
    return _Elf(name, data, where).library()


def check_library(library: PluginLibrary, tensorrt: str, where: str) -> list[str]:
    """Refuses a library that no board with this TensorRT can load.

    Args:
        library: The library.
        tensorrt: The board's release, "10.3".
        where: The place that names it, for errors.

    Returns:
        The unknown facts, as sentences.

    Raises:
        DataError: "plugin.machine": it is for another processor; "plugin.tensorrt": it needs
            another major version of TensorRT; "plugin.family": the release does not support its
            creators.
    """
    if library.machine != BOARD_MACHINE:
        raise DataError(
            f"{library.name} is built for {library.machine}, but a board has {BOARD_MACHINE}",
            code="plugin.machine",
            where=where,
            hint="compile it on the board, or have the board do it: source: FOLDER with its "
            "CMakeLists.txt, in place of library",
        )
    major = parse_version(tensorrt)[0]
    if any(number != major for number in library.tensorrt):
        names = [name for name in library.needed if _TENSORRT.match(name)]
        raise DataError(
            f"{library.name} needs {listed(names)}, but the board has TensorRT {tensorrt} "
            f"(libnvinfer.so.{major})",
            code="plugin.tensorrt",
            where=where,
            hint=f"compile it against the headers and libraries of TensorRT {major}",
        )
    _check_entry_points(library, tensorrt, where)
    if library.tensorrt:
        return []
    uses = listed(library.tensorrt_names, _SHOWN)
    return [
        f"{library.name} names no libnvinfer among the libraries that it needs, so the TensorRT "
        "that it was built for is unknown"
        + (f" (it uses {uses})" if uses else "")
        + ": link it with -Wl,--no-as-needed -lnvinfer"
    ]


def _check_entry_points(library: PluginLibrary, tensorrt: str, where: str) -> None:
    """Refuses a library whose entry points belong to another release only.

    A library without any entry point registers its creators when it is opened.
    """
    has = [name for name in plugin_facts().entry_points if name in library.defines]
    if not has or set(has) & set(entry_points(tensorrt)):
        return
    kinds = listed(families(tensorrt))
    raise DataError(
        f"{library.name} hands over its creators by {listed(has)}, which TensorRT {tensorrt} does "
        f"not call: it takes {kinds}",
        code="plugin.family",
        where=where,
        hint=f"export {listed(entry_points(tensorrt)) or 'nothing'} for this release, or register "
        "the creators with REGISTER_TENSORRT_PLUGIN",
    )


class _Elf:
    """A 64-bit, little-endian ELF file."""

    def __init__(self, name: str, data: bytes, where: str) -> None:
        self._name, self._data, self._where = name, data, where

    def library(self) -> PluginLibrary:
        """Reads the facts of a ``PluginLibrary``."""
        machine = self._header()
        tags = self._dynamic()
        # a position-independent program has a library's e_type
        if any(flags & _PIE for flags in tags.get(_FLAGS_1, ())):
            self._refuse("it is a program, not a library")
        names = self._at(tags[_STRTAB][0], tags.get(_STRSZ, [0])[0])
        defines, undefined = self._symbols(tags, names)
        return PluginLibrary(
            self._name,
            machine,
            tuple(self._text(names, at) for at in tags.get(_NEEDED, ())),
            frozenset(defines),
            tuple(undefined),
            self._data,
        )

    def _header(self) -> str:
        head = self._data[:64]
        if head[:8] == b"!<arch>\n":
            self._refuse("it is a static library; a plugin is a shared one (-shared, -fPIC)")
        if head[:4] != b"\x7fELF":
            self._refuse("it is no ELF file")
        if len(head) > 5 and head[4] == 1:
            self._refuse("it is a 32-bit file; TensorRT has 64-bit libraries only")
        if len(head) < 64:
            self._refuse("it is cut off")
        if head[4] != 2 or head[5] != 1:
            self._refuse("it is no 64-bit little-endian ELF file")
        kind, machine = struct.unpack_from("<HH", head, 16)
        if kind == _OBJECT:
            self._refuse("it is an object file; link it with -shared")
        if kind != _SHARED:
            self._refuse("it is a program" if kind == _EXECUTABLE else "it is no library")
        (sections,) = struct.unpack_from("<Q", head, 40)
        size, count = struct.unpack_from("<HH", head, 58)
        if sections + size * count > len(self._data):
            self._refuse("it is cut off")
        return _MACHINES.get(machine, f"machine {machine}")

    def _segments(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields type, offset, address and bytes in the file of each segment."""
        (start,) = struct.unpack_from("<Q", self._data, 32)
        size, count = struct.unpack_from("<HH", self._data, 54)
        # ``range`` refuses a step of 0, which a damaged file may have
        for at in range(start, start + size * count, size or 1):
            kind, _, offset, address, _, held = self._unpack("<IIQQQQ", at)
            if offset + held > len(self._data):
                self._refuse("it is cut off")
            yield kind, offset, address, held

    def _dynamic(self) -> dict[int, list[int]]:
        """Returns the dynamic section's values by tag."""
        tags: dict[int, list[int]] = {}
        for kind, offset, _, held in self._segments():
            if kind == _DYNAMIC:
                # an entry has 16 bytes: tag and value
                for at in range(offset, offset + held - 15, 16):
                    tag, value = self._unpack("<QQ", at)
                    if tag == 0:
                        break
                    tags.setdefault(tag, []).append(value)
        if _STRTAB not in tags:
            self._refuse("it has no dynamic section, so it cannot be loaded")
        return tags

    def _symbols(self, tags: dict[int, list[int]], names: int) -> tuple[set[str], list[str]]:
        defines: set[str] = set()
        undefined: dict[str, None] = {}
        if _SYMTAB not in tags:
            return defines, []
        table = self._at(tags[_SYMTAB][0])
        for number in range(1, self._count(tags)):
            at = table + number * _SYMBOL_BYTES
            name, info, _, section = self._unpack("<IBBH", at)
            text = self._text(names, name)
            # 0 is SHN_UNDEF: another library defines the symbol
            if section:
                defines.add(text)
            elif text and info >> 4 != _WEAK:
                undefined[text] = None
        return defines, list(undefined)

    def _count(self, tags: dict[int, list[int]]) -> int:
        """Returns the number of symbols, which only the hash tables contain."""
        if _HASH in tags:
            return self._unpack("<II", self._at(tags[_HASH][0]))[1]
        if _GNU_HASH not in tags:
            return 0
        at = self._at(tags[_GNU_HASH][0])
        buckets, first, bloom, _ = self._unpack("<IIII", at)
        # DT_GNU_HASH: four words, a Bloom filter of 8-byte words, the first symbol of each bucket,
        # then a hash for each symbol, whose lowest bit ends its chain
        at += 16 + 8 * bloom
        if at + 4 * buckets > len(self._data):
            self._refuse("it is cut off")
        last = max(struct.unpack_from(f"<{buckets}I", self._data, at), default=0)
        if last < first:
            return int(first)
        at += 4 * buckets - 4 * first
        while not self._unpack("<I", at + 4 * last)[0] & 1:
            last += 1
        return int(last) + 1

    def _at(self, address: int, size: int = 0) -> int:
        """Returns an address's offset in the file."""
        for kind, offset, start, held in self._segments():
            if kind == _LOAD and start <= address and address + size <= start + held:
                return offset + address - start
        return self._refuse("it is damaged: its dynamic section names no place of the file")

    def _text(self, names: int, at: int) -> str:
        start = names + at
        end = self._data.find(b"\0", start, start + _LONGEST_NAME)
        if end < 0:
            self._refuse("it is damaged: a name does not end")
        return self._data[start:end].decode("utf-8", "backslashreplace")

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self._data, at)
        except (struct.error, OverflowError):
            return self._refuse("it is cut off")

    def _refuse(self, why: str) -> NoReturn:
        raise DataError(
            f"{self._name} is no plugin library: {why}",
            code="plugin.library",
            where=self._where,
            hint="give the shared library that was compiled for the board (cmake, nvcc -shared)",
        )
