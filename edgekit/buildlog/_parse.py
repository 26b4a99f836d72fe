"""The grammar of build logs: three generations of wording, one pass, nothing fatal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from edgekit.buildlog._build import PROFILES, Build
from edgekit.buildlog._header import Header
from edgekit.buildlog._lines import split_items, strip
from edgekit.buildlog._sizes import sizes
from edgekit.buildlog._types import BuildLog, LogLayer

__all__ = ["LogParser", "parse_log"]

# a line without any of these is TensorRT's, but tells nothing about placement
_KEYS = ("DLA", "Dla", "Layer", "emory ", "Precision", "TensorRT", "ERROR", "[E]", "[F]",
         " layers", "ompute ", "Selected", "onnx", "Model", "Batch size", "Default")  # fmt: skip
# a pattern is tried once, at the first place where its opening words stand: cost stays linear
_SECTION = re.compile(r"---------- Layers [Rr]unning on (DLA|GPU)(:)?")
_NODE = "{ForeignNode["
_OFFLOADED = re.compile(r"(\{ForeignNode\[.*\]\}) successfully offloaded to DLA")
_ACCEPTED = re.compile(r"Number of DLA node candidates offloaded\s*:\s*(\d+) out of (\d+)")
_NETWORK = re.compile(r"(\{ForeignNode\[.*\]\}): DLA Network Layer Information")
_MEMBER = re.compile(r"Layer\(([A-Za-z_0-9]+)\): (.+?), (Precision|Tactic): ")
_COUNT = re.compile(r"^(Original|After [A-Za-z -]+): (\d+) layers$")
_KIND = re.compile(r"^([A-Z][A-Z_0-9]*): (.+)$")
_GROUP = re.compile(r"\{([^{}]*)\}")
_FALLBACKS = tuple(
    (cause, opening, re.compile(pattern))
    for cause, opening, pattern in (
        ("unsupported", "Layer '",
         r"Layer '(?P<layer>.*)' \((?P<kind>[A-Za-z_0-9]+)\): Unsupported on DLA"),
        ("validation", "Validation failed for",
         r"Validation failed for DLA layer: (?P<layer>.*)\. Switching to GPU"),
        ("validation", "Splitting DLA",
         r"Splitting DLA subgraph at: (?P<layer>.*) because DLA validation failed"),
        ("slots", "DLA supports only",
         r"DLA supports only \d{1,9} subgraphs per DLA core\. "
         r"Switching to GPU for layer (?P<layer>.*)$"),
        ("unsupported", "Default DLA",
         r"Default DLA is enabled but layer (?P<layer>.*) is not (?:supported|running) on DLA"),
        ("unsupported", "ayer '", r"ayer '(?P<layer>.*)' is not supported on DLA"),
        ("unsupported", "DLA Layer",
         r"DLA Layer (?P<layer>.*) (?P<words>does not support dynamic shapes in any dimension)"),
        ("unsupported", "DLA only supports",
         r"(?P<words>DLA only supports FP16 and Int8 precision type)\. "
         r"Switching (?P<layer>.*) device type to GPU"),
    )
)  # fmt: skip
# a reason that names the layer, and stands before the line that refuses it
_REASONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?P<words>Input tensor has less than 4 dimensions) for (?P<layer>.*)\. At least one",
    )
)
# tegrastats' NVDLA0_FREQ is no sentence about the DLA
_ABOUT = re.compile(r"\bDLA\b|Batch size")
_NOTES = (
    PROFILES,
    "setDefaultDeviceType was called but no layer",
    "Cannot create DLA engine",
    "Safe DLA is enabled but not all layers are running on DLA",
    "DLA validation failed",
)


def parse_log(lines: Iterable[str]) -> BuildLog:
    """Reads the lines of a build log; unknown lines are skipped, nothing raises.

    Args:
        lines: With or without line ends; consumed once, in bounded memory.
    """
    parser = LogParser()
    for line in lines:
        parser.feed(line)
    return parser.result()


class LogParser:
    """Takes a log line by line."""

    def __init__(self) -> None:
        self._header = Header()
        self._builds = [Build()]
        self._section = ""
        self._one_line = False
        self._inside: str | None = None
        self._number = self._recognised = self._found = 0
        self._errors: list[str] = []

    def feed(self, line: str) -> None:
        """Takes one line."""
        self._number += 1
        own = "[TRT]" in line
        self._recognised += own
        if not (self._one_line or any(key in line for key in _KEYS)):
            return
        severity, text, own = strip(line)
        if not text:
            return
        if self._header.feed(text):
            self._recognised += 1
            if text.startswith("&&&& RUNNING") and self._builds[-1].told:
                self._new_build()
            return
        if self._placement(text, own):
            self._recognised += 1
            return
        if severity in ("E", "F") and len(self._errors) < 100:
            self._errors.append(text)
        if _ABOUT.search(text):
            self._about_dla(text, severity)

    def result(self) -> BuildLog:
        """Returns what the lines said."""
        told = [build for build in self._builds if build.told]
        placed = [build for build in told if build.placed]
        build = (placed or told or self._builds)[-1]
        facts: dict[str, Any] = self._header.facts()
        if build.asked and facts["asked_dla"] is None:
            facts["asked_dla"] = True
        return BuildLog(
            **facts,
            **build.facts(),
            errors=tuple(self._errors),
            builds=self._found + len(told),
            lines=self._number,
            recognised=self._recognised,
        )

    def _placement(self, text: str, own: bool) -> bool:
        """Sections, offloads, pools and counts."""
        build = self._builds[-1]
        if match := _SECTION.search(text):
            if match[1] == "DLA" and build.sections:
                build = self._new_build()
            self._section, self._inside = match[1], None
            # the oldest wording prints the whole list on the next line
            self._one_line = match[2] is not None
            build.sections = True
            build.dla_section |= match[1] == "DLA"
            return True
        for tag, device in (("[DlaLayer] ", "DLA"), ("[GpuLayer] ", "GPU")):
            at = text.find(tag)
            if at >= 0:
                self._one_line = False
                self._listed(device, text[at + len(tag) :].strip().removesuffix(","))
                return True
        if self._one_line and self._old_list(text, own):
            return True
        at = text.find(_NODE)
        if at >= 0 and (match := _OFFLOADED.match(text, at)):
            build.offloaded(match[1])
            return True
        if at >= 0 and (match := _NETWORK.match(text, at)):
            self._inside = match[1]
            build.begin_members(match[1])
            return True
        if match := _MEMBER.match(text):
            if match[3] == "Tactic":
                self._inside = None
                if match[1] == "DLA":
                    build.in_engine(match[2])
            elif self._inside is not None:
                build.member(self._inside, match[2])
            return True
        if match := _COUNT.match(text):
            build.counts[match[1]] = int(match[2][:12])
            return True
        return self._memory(text, build)

    def _memory(self, text: str, build: Build) -> bool:
        if match := _ACCEPTED.search(text):
            build.accepted = (int(match[1][:9]), int(match[2][:9]))
            return True
        if "Managed SRAM = " not in text or (found := sizes(text)) is None:
            return False
        if text.startswith("Memory consumption"):
            build.pools_of_last(found)
        elif text.startswith("Total memory required"):
            build.pool_total = found
        elif text.startswith("DLA Memory Pool Sizes"):
            build.pool_limits = found
        else:
            return False
        return True

    def _listed(self, device: str, item: str) -> None:
        build = self._builds[-1]
        if device == "GPU":
            match = _KIND.match(item)
            build.on_gpu(LogLayer(match[2], match[1]) if match else LogLayer(item))
        elif item.startswith("{ForeignNode["):
            build.in_section(item)
        elif item:
            build.capable_layer(item)

    def _old_list(self, text: str, own: bool) -> bool:
        """TensorRT 7: ``{a,b}, {c},`` under the DLA's heading, ``a, b + c,`` under the GPU's."""
        # another program's lines may stand in between
        self._one_line = not own
        if self._section == "DLA":
            groups = _GROUP.findall(text) if text.startswith("{") else []
            self._one_line = self._one_line and not groups
            for group in groups:
                if group.startswith("ForeignNode["):
                    self._listed("DLA", f"{{{group}}}")
                else:
                    self._builds[-1].group(split_items(group))
            return bool(groups)
        if not own or not text.endswith(","):
            return False
        for item in split_items(text):
            self._listed("GPU", item)
        return True

    def _about_dla(self, text: str, severity: str) -> None:
        build = self._builds[-1]
        for cause, opening, pattern in _FALLBACKS:
            at = text.find(opening)
            match = pattern.match(text, at) if at >= 0 else None
            if match is None:
                continue
            found = match.groupdict()
            build.refuse(
                found["layer"], found.get("kind") or "", cause, found.get("words") or "",
                self._number,
            )  # fmt: skip
            self._recognised += 1
            return
        for pattern in _REASONS:
            if match := pattern.match(text):
                build.reason(match["layer"], match["words"])
                self._recognised += 1
                return
        for note in _NOTES:
            if note in text:
                if text not in build.notes and len(build.notes) < 100:
                    build.notes.append(text)
                self._recognised += 1
                return
        if severity in ("W", "") and len(text) < 2000:
            build.loose_reason(text, self._number)

    def _new_build(self) -> Build:
        self._section, self._inside = "", None
        # only the newest one and the one before, which may be the complete one, matter
        self._found += self._builds[0].told if len(self._builds) > 1 else 0
        self._builds = [self._builds[-1], self._builds[-1].next_build()]
        return self._builds[-1]
