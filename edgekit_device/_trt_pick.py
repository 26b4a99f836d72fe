"""Which of the board's runtimes can run a plan: by the plan's version and what it carries.

Rules (TensorRT Developer Guide, "Version Compatibility"; NvInferRuntime.h, loadRuntime): a plan
runs with the very version that built it. A version-compatible one also runs with later versions of
its major, through the lean runtime that it carries or, where that was left out, through the lean
library of its own version. Across majors NVIDIA's guide says that plans of 8 run with 9 and 10 and
those of 10 with 11, its support matrix that they do not: tried, and said so.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from ._errors import DeviceError
from ._plan import Version, parse_version, show

__all__ = ["Choice", "choices", "lean_library", "same_version"]

_LATER_MAJORS: Mapping[int, Sequence[int]] = {8: (9, 10), 9: (10,), 10: (11,)}
_FOLDERS = (
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/local/tensorrt/lib",
    "/opt/tensorrt/lib",
    "/usr/local/lib",
)
_LEAN = re.compile(r"libnvinfer_lean\.so\.(\d+\.\d+\.\d+)\Z")


@dataclass(frozen=True)
class Choice:
    """A way to run a plan.

    Attributes:
        flavour: "full", "lean" or "dispatch": whose Runtime deserialises.
        library: The lean library that this Runtime loads first; None for none.
        host_code: Whether the plan's own runtime must be allowed to run.
        carried: Whether nothing but the plan's own runtime can run it here.
        note: What a user should know about it; empty for nothing.
    """

    flavour: str
    library: Optional[Path] = None
    host_code: bool = False
    carried: bool = False
    note: str = ""


def same_version(a: Version, b: Version) -> bool:
    """Equal in every part that both know, major, minor and patch at least."""
    known = min(len(a), len(b))
    return known >= 3 and a[:known] == b[:known]


def choices(
    plan: Version,
    installed: Mapping[str, Version],
    *,
    version_compatible: bool,
    lean_embedded: bool,
    trusted: bool,
    find_lean: Callable[[Version], Optional[Path]],
    where: str = "",
) -> List[Choice]:
    """Ways to run a plan, the surest first; never empty.

    Args:
        plan: The version that built it.
        installed: Versions by flavour, of those that are there.
        version_compatible: Whether it was built so.
        lean_embedded: Whether it carries its runtime.
        trusted: Whether code that it carries may run: its bundle's signature was verified.
        find_lean: Finds libnvinfer_lean of exactly a version.
        where: For messages.

    Raises:
        DeviceError: "engine.version" or "engine.host-code".
    """
    found = [
        Choice(flavour, host_code=version_compatible and lean_embedded and trusted)
        for flavour in (("full", "lean") if version_compatible else ("full",))
        if same_version(installed.get(flavour, ()), plan)
    ]
    if not version_compatible:
        if found:
            return found
        raise _no_version(plan, installed, where, "the full TensorRT {}".format(show(plan)))
    later = _later(plan, installed)
    if lean_embedded:
        if trusted:
            found += [
                Choice(f, host_code=True, carried=True, note=_note(plan, installed[f]))
                for f in later
            ]
        if not found and later:
            raise DeviceError(
                "the plan carries a runtime of its own, and nobody vouches for it",
                code="engine.host-code",
                where=where,
                hint="sign the bundle and add its signer with trust; or install TensorRT {}".format(
                    show(plan)
                ),
            )
    else:
        library = find_lean(plan) if later else None
        if library is not None:
            found += [Choice(f, library, note=_note(plan, installed[f])) for f in later]
    if not found:
        needed = "TensorRT {} (full or lean)".format(show(plan))
        if later and not lean_embedded:
            needed = "libnvinfer_lean.so.{} or ".format(show(plan[:3])) + needed
        elif not later:
            needed += " or a later one of its major"
        raise _no_version(plan, installed, where, needed)
    return found


def _later(plan: Version, installed: Mapping[str, Version]) -> List[str]:
    """Flavours that are not older, those of the plan's own major first."""
    found = []
    for flavour in ("lean", "dispatch", "full"):
        version = installed.get(flavour, ())
        if not version:
            continue
        # a full or lean runtime of the plan's own version needs no help
        exact = same_version(version, plan)
        if version[0] == plan[0] and (flavour == "dispatch" if exact else version > plan):
            found.append((0, flavour))
        elif version[0] in _LATER_MAJORS.get(plan[0], ()):
            found.append((1, flavour))
    return [flavour for _, flavour in sorted(found, key=lambda pair: pair[0])]


def _note(plan: Version, version: Version) -> str:
    if version[0] == plan[0]:
        return ""
    return (
        "a plan of TensorRT {} runs with {} here: NVIDIA's documents disagree on other majors, "
        "so believe it only after a self-test".format(show(plan), show(version))
    )


def _no_version(
    plan: Version, installed: Mapping[str, Version], where: str, needed: str
) -> DeviceError:
    here = ", ".join("{} {}".format(f, show(v)) for f, v in sorted(installed.items()))
    return DeviceError(
        "no runtime here can run a plan of TensorRT {}".format(show(plan)),
        code="engine.version",
        where=where,
        hint="here: {}; needed: {}. Build it again for this board".format(here or "none", needed),
    )


def lean_library(
    version: Version, folders: Iterable[Path] = (), listing: Optional[str] = None
) -> Optional[Path]:
    """Finds libnvinfer_lean.so of exactly ``version`` (major, minor and patch).

    Args:
        version: The plan's.
        folders: Where to look first.
        listing: What ``ldconfig -p`` prints; run when None.
    """
    seen: Dict[Path, None] = {}
    for folder in [*folders, *_search_path(), *map(Path, _FOLDERS)]:
        if folder.is_dir():
            seen.update(dict.fromkeys(sorted(folder.glob("libnvinfer_lean.so*"))))
    for line in (_ldconfig() if listing is None else listing).splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if arrow and name.startswith("libnvinfer_lean.so"):
            seen[Path(target.strip())] = None
    for path in seen:
        real = Path(os.path.realpath(str(path)))
        match = _LEAN.match(real.name)
        if match and parse_version(match.group(1)) == tuple(version[:3]) and real.is_file():
            return real
    return None


def _search_path() -> List[Path]:
    return [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]


def _ldconfig() -> str:
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            done = subprocess.run(
                [program, "-p"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return done.stdout.decode("utf-8", "replace")
    return ""
