"""The grammar of build logs: three generations of wording, a single pass, no fatal errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from edgekit.buildlog.facts import BuildLog, Fallback, LogLayer, LogLoadable
from edgekit.buildlog.lines import release, sizes, split_items, strip
from edgekit.dla.verdicts import MemoryNeed

_COMMAND = re.compile(
    r"&&&& (?:RUNNING|PASSED|FAILED) TensorRT\.(\w+)(?: \[TensorRT v(\d{3,6})\])?"
)
# a command at a prompt, or echoed by a script
_TYPED = re.compile(r"^(?:\S{0,80}[$#+] ?|sudo )?(?:[\w.~-]{0,80}/){0,9}trtexec --?\w")
_VERSION = re.compile(
    r"(?:^TensorRT(?: version:?|-| )|export with TensorRT )\s*v?"
    r"(?:(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})(?!\d)|(\d{4,6})$)"
)
_Kept = TypeVar("_Kept")
_TEXT = {
    "compute_capability": re.compile(r"^Compute Capability: (\d{1,2}\.\d)$"),
    # trtexec, and the first line of Ultralytics
    "device": re.compile(
        r"^(?:Selected Device: |Ultralytics .{1,80}CUDA:\d (?=\())\(?([^,()]{1,80})"
    ),
    "pinned": re.compile(r"^Layer Device Types: *(.{1,2000})$"),
}
_MODEL = re.compile(r"^(?:Model|Input filename):\s+(\S.{0,1000})$")
_FLAG_MODEL = re.compile(r"--onnx=(\"[^\"]{1,1000}\"|\S{1,1000})")
_FLAG_CORE = re.compile(r"--useDLACore=(\d{1,3})")
_CORE = re.compile(r"^DLACore:\s*(\d{1,3})?$")
_PRECISION = re.compile(r"^Precision: ([A-Z0-9+]{2,40})(?: \(.*\))?$")
_BARE_FLAGS = ("--fp16", "--int8", "--bf16", "--fp8")
# limit of each kind; no Jetson builds a network of this many layers
MOST = 100_000
_CUT = re.compile(r"\.\.\.|…")
_LOOSE = 8
# longest sentence about the DLA, in characters
_SENTENCE = 2000
# printed on Orin for every profile with a range, even without a requested DLA
_PROFILES = "DLA requests all profiles have same min, max, and opt"
# a line without any of these words is TensorRT's, but not about placement
_KEYS = (
    "DLA",
    "Dla",
    "dla",
    "Layer",
    "emory ",
    "Precision",
    "TensorRT",
    "ERROR",
    "[E]",
    "[F]",
    " layers",
    "ompute ",
    "Selected",
    "CUDA:",
    "onnx",
    "Model",
    "Batch size",
    "Default",
    "to GPU",
    "to the GPU",
)
# a pattern is tried once, at the first match of its opening words: cost stays linear
_SECTION = re.compile(r"---------- Layers [Rr]unning on (DLA|GPU)(:)?")
_NODE = "{ForeignNode["
_OFFLOADED = re.compile(r"(\{ForeignNode\[.*\]\}) successfully offloaded to DLA")
_ACCEPTED = re.compile(r"Number of DLA node candidates offloaded\s*:\s*(\d+) out of (\d+)")
_NETWORK = re.compile(r"(\{ForeignNode\[.*\]\}): DLA Network Layer Information")
_MEMBER = re.compile(r"Layer\(([A-Za-z_0-9]+)\): (.+?), (Precision|Tactic): ")
_COUNT = re.compile(r"^(Original|After [A-Za-z -]+): (\d+) layers$")
_KIND = re.compile(r"^([A-Z][A-Z_0-9]*): (.+)$")
_UNNAMED = re.compile(r"^\(Unnamed Layer\* \d{1,9}\) \[([A-Za-z ]{1,40})\]$")
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
        ("unsupported", "DLA Standalone",
         r"(?P<words>DLA Standalone is enabled) but layer:? '?(?P<layer>.+?)'? is not supported"
         r" on DLA"),
        ("unsupported", "ayer", r"ayer:? '(?P<layer>.*)' is not supported on DLA"),
        ("unsupported", "Node: ",
         r"Node: (?P<layer>.+?) (?P<words>cannot run in INT8 mode due to missing scale and zero"
         r"[ -]point)\. This node will not run on DLA"),
        ("unsupported", "Node: ",
         r"Node: (?P<layer>\S+) (?P<words>.+)\. This (?:node|layer) will not run on DLA"),
        ("unsupported", "DLA Layer",
         r"DLA Layer (?P<layer>.*) (?P<words>does not support dynamic shapes in any dimension)"),
        ("unsupported", "",
         r"(?P<layer>.+): (?P<words>DLA only supports FP16 and Int8 precision type)\. "
         r"Switching this layer's device type to GPU"),
        ("unsupported", "DLA only supports",
         r"(?P<words>DLA only supports FP16 and Int8 precision type)\. "
         r"Switching (?!this layer)(?P<layer>.*) device type to GPU"),
    )
)  # fmt: skip
# a reason that names the layer, before the line that refuses it
_REASONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?P<words>Input tensor has less than 4 dimensions) for (?P<layer>.*)\. At least one",
    )
)
# tegrastats' NVDLA0_FREQ is no sentence about the DLA
_TO_GPU = r"(?:[Ss]witching|[Ff]alling back)\b.{0,80}?\bto (?:the )?GPU\b"
_ABOUT = re.compile(rf"\bDLA\b|Batch size|\b[dD]la(?:Core|EngineCount)\b|getDLACore|{_TO_GPU}")
# a refusal that no pattern matches: the end of its sentence, or its verb
_SENT = re.compile(rf"(?:^|[.,;]?\s+){_TO_GPU}.*$")
_REFUSES = re.compile(
    r"(?:will not|cannot|can not|can't|won't) run on (?:the )?DLA\b"
    r"|not (?:be )?supported (?:for|on|by) (?:the )?DLA\b"
)
# the layer's name in a sentence
_NAMED = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(?:[Ll]ayer|[Nn]ode):? (?P<quote>['\"])(?P<layer>.+?)(?P=quote)",
        r"^(?P<layer>\(Unnamed Layer\* \d{1,9}\) \[[^\]]{1,40}\]|\S+(?: \+ \S+){0,99}): ",
        r"\b(?:[Ll]ayer|[Nn]ode):? (?P<layer>\(Unnamed Layer\* \d{1,9}\) \[[^\]]{1,40}\])",
        r"\b(?:[Ll]ayer|[Nn]ode):? (?P<layer>\S+?(?: \+ \S+?){0,99})[.,;:]?(?: |$)",
        r"\((?P<layer>(?=[^()]*[/a-z])[^()\s]*[/_.\d][^()\s]*)\)",
    )
)
# words in that position that name no layer
_NO_LAYER = frozenset({
    "and", "are", "because", "can", "cannot", "device", "dimension", "dimensions", "directly",
    "dla", "do", "does", "error", "from", "fusion", "has", "in", "is", "layer", "must",
    "name", "needs", "node", "not", "note", "number", "of", "on", "or", "precision",
    "requires", "tensorrt", "that", "the", "this", "to", "type", "types", "uses", "warning",
    "was", "which", "will", "with",
})  # fmt: skip
_NOTES = (
    _PROFILES,
    "setDefaultDeviceType was called but no layer",
    "Cannot create DLA engine",
    "Safe DLA is enabled but not all layers are running on DLA",
    "DLA validation failed",
    "< core->numEngines()",
    "< mCore.numEngines()",
    "dlaEngineCount > 0",
)


class Header:
    """Collects the header's facts; a later line of the same kind overrides an earlier line."""

    def __init__(self) -> None:
        self._tensorrt = self._model = ""
        self._core: int | None = None
        self._uses_dla: bool | None = None
        self._precisions: tuple[str, ...] = ()
        self._text = dict.fromkeys(_TEXT, "")

    def feed(self, text: str) -> bool:
        """Reads a line; returns True if it belongs to the header."""
        if text.startswith("&&&& ") or ("trtexec " in text and _TYPED.match(text)):
            return self._command(text)
        for name, pattern in _TEXT.items():
            if match := pattern.match(text):
                self._text[name] = match[1].strip()
                return True
        if match := _VERSION.search(text):
            self._tensorrt = match[1] or release(match[2])
            return True
        if match := _CORE.match(text):
            self._core = int(match[1]) if match[1] else None
            self._uses_dla = self._core is not None
            return True
        if match := _PRECISION.match(text):
            self._precisions = tuple(match[1].lower().split("+"))
            return True
        if match := _MODEL.match(text):
            # not counted as TensorRT's line: other programs print such lines, too
            self._model = self._model or match[1].strip()
        return False

    def log(self) -> BuildLog:
        """Returns a log with only these facts."""
        return BuildLog(
            tensorrt=self._tensorrt,
            model=self._model,
            dla_core=self._core,
            requested_dla=self._uses_dla,
            precisions=self._precisions,
            compute_capability=self._text["compute_capability"],
            device=self._text["device"],
            pinned=self._text["pinned"],
        )

    def _command(self, text: str) -> bool:
        match = _COMMAND.match(text)
        if match is None and text.startswith("&&&& "):
            return False
        if match and match[2]:
            self._tensorrt = release(match[2])
        if found := _FLAG_MODEL.search(text):
            self._model = found[1].strip('"')
        if found := _FLAG_CORE.search(text):
            self._core, self._uses_dla = int(found[1]), True
        flags = text.split()
        wanted = tuple(flag[2:] for flag in _BARE_FLAGS if flag in flags)
        if "--best" in flags:
            wanted = ("fp16", "int8")
        # the line `Precision:` is more exact than the flags
        if wanted and not self._precisions:
            self._precisions = ("fp32", *wanted)
        return True


class Build:
    """The facts of a build; every list keeps each name once and at most ``MOST`` names."""

    def __init__(self) -> None:
        self.sections = False
        self.dla_section = False
        self.notes: list[str] = []
        self.profiles: list[str] = []
        self.counts: dict[str, int] = {}
        self.accepted: tuple[int, int] | None = None
        self.pool_limits: MemoryNeed | None = None
        self.pool_total: MemoryNeed | None = None
        self._capable: dict[str, None] = {}
        self._gpu: dict[str, LogLayer] = {}
        self._refused: dict[str, Fallback] = {}
        self._late: dict[str, Fallback] = {}
        self._sections: dict[str, tuple[str, ...]] = {}
        self._offloaded: dict[str, MemoryNeed | None] = {}
        self._members: dict[str, list[str]] = {}
        self._engine: dict[str, None] = {}
        self._reasons: dict[str, list[str]] = {}
        self._loose: list[tuple[int, str]] = []
        #: Lines of the log with the reason of a refusal.
        self.reason_lines: set[int] = set()
        self._last = ""
        self._cut = False

    @property
    def placed(self) -> bool:
        """True if it lists any layer or subgraph."""
        return bool(
            self.sections or self._offloaded or self._engine or self._members or self.accepted
        )

    @property
    def informative(self) -> bool:
        """True if it has any facts about placement."""
        return bool(self.placed or self._refused or self._late or self.notes or self.pool_limits)

    @property
    def expects_dla(self) -> bool:
        """True if the builder's lines imply that the DLA was requested."""
        return bool(
            self._refused
            or self._late
            or self._offloaded
            or self._sections
            or self._capable
            or self._engine
            or self.accepted
            or len(self.notes) > len(self.profiles)
        )

    def capable_layer(self, name: str) -> None:
        self._add_once(self._capable, name, None)

    def on_gpu(self, layer: LogLayer) -> None:
        self._add_once(self._gpu, layer.name, layer)

    def in_section(self, node: str) -> None:
        self._add_once(self._sections, node, ())

    def group(self, layers: list[str]) -> None:
        """Adds a subgraph of the oldest wording, given its layers."""
        if layers:
            # the name that later releases print for such a subgraph
            ends = layers[0] if len(layers) == 1 else f"{layers[0]}...{layers[-1]}"
            self._add_once(self._sections, f"{{{ends}}}", tuple(layers))

    def offloaded(self, node: str) -> None:
        self._add_once(self._offloaded, node, None)
        self._last = node

    def in_engine(self, node: str) -> None:
        self._add_once(self._engine, node, None)

    def begin_members(self, node: str) -> None:
        self._add_once(self._members, node, [])

    def member(self, node: str, layer: str) -> None:
        members = self._members.get(node)
        if members is not None and len(members) < MOST:
            members.append(layer)

    def pools_of_last(self, pools: MemoryNeed) -> None:
        if self._offloaded.get(self._last, pools) is None:
            self._offloaded[self._last] = pools

    def loose_reason(self, text: str, line: int) -> None:
        """Keeps a sentence about the DLA as a possible reason for a refusal on the next line."""
        self._loose = [*self._loose[-_LOOSE + 1 :], (line, text)]

    def reason(self, layer: str, words: str, line: int) -> None:
        self.reason_lines.add(line)
        found = self._reasons.setdefault(layer, []) if len(self._reasons) < MOST else []
        if words not in found and len(found) < _LOOSE:
            found.append(words)

    def refuse(self, layer: str, kind: str, cause: str, words: str, line: int) -> None:
        """Adds a layer that goes to the GPU, with the reasons on the preceding lines."""
        for number, text in self._loose:
            if text.startswith(f"{layer}: "):
                self.reason(layer, text[len(layer) + 2 :], number)
            elif (named := _find_layer_name(text)) == layer:
                self.reason(layer, text, number)
            elif (
                not (named or words)
                and (": " not in text or text.startswith("DLA "))
                and (cause == "validation" or number == line - 1)
            ):
                # names no layer: it applies to the next layer without a reason
                self.reason(layer, text, number)
        self._loose = []
        if words:
            self.reason(layer, words, line)
        if not kind and (unnamed := _UNNAMED.match(layer)):
            kind = unnamed[1].upper().replace(" ", "_")
        # after the lists it may already belong to the log's next build
        into = self._late if self.placed else self._refused
        known = into.get(layer)
        if known is None:
            self._add_once(into, layer, Fallback(layer, kind, cause, (), line))
        elif kind and not known.kind:
            into[layer] = replace(known, kind=kind)

    def next_build(self) -> Build:
        """Returns the log's next build, with the facts that precede its lists."""
        following = Build()
        following._refused, self._late = self._late, {}
        following._reasons, following.reason_lines = self._reasons, self.reason_lines
        return following

    def added_to(self, log: BuildLog) -> BuildLog:
        """Returns a log with this build."""
        return replace(
            log,
            loadables=self._loadables(),
            capable=tuple(self._capable),
            gpu_layers=tuple(self._gpu.values()),
            dla_section=self.dla_section,
            fallbacks=tuple(
                replace(fallback, words=tuple(self._reasons.get(name, ())))
                for name, fallback in {**self._late, **self._refused}.items()
            ),
            accepted=self.accepted,
            pool_limits=self.pool_limits,
            pool_total=self.pool_total,
            counts=self.counts,
            notes=tuple(self.notes),
            profiles=tuple(self.profiles),
            cut=self._cut,
        )

    def _loadables(self) -> tuple[LogLoadable, ...]:
        # offloads take precedence; older logs only have the DLA's section, truncated logs the
        # engine
        nodes = self._offloaded or self._sections or self._engine or self._members
        place = {name: index for index, name in enumerate(self._capable)}
        order = list(self._capable)
        return tuple(self._loadable(node, place, order) for node in nodes)

    def _loadable(self, node: str, place: dict[str, int], order: list[str]) -> LogLoadable:
        pools = self._offloaded.get(node)
        members = tuple(self._sections.get(node, ())) or tuple(self._members.get(node, ()))
        inner = node.removeprefix("{").removesuffix("}")
        inner = inner.removeprefix("ForeignNode[").removesuffix("]") if "[" in inner else inner
        first, last = _subgraph_ends(inner, place)
        if members:
            return LogLoadable(node, members[0], members[-1], members, True, pools)
        if first in place and last in place:
            members = tuple(order[place[first] : place[last] + 1])
        return LogLoadable(node, first, last, members, len(members) == 1, pools)

    def _add_once(self, into: dict[str, _Kept], name: str, value: _Kept) -> None:
        if name in into:
            return
        if len(into) < MOST:
            into[name] = value
        else:
            self._cut = True


def _find_layer_name(text: str) -> str:
    """Returns the layer's name in a sentence about the DLA, or ""."""
    for pattern in _NAMED:
        if (match := pattern.search(text)) and match["layer"].lower() not in _NO_LAYER:
            return match["layer"]
    return ""


def _subgraph_ends(inner: str, place: dict[str, int]) -> tuple[str, str]:
    """Returns first and last layer; a name may contain dots, so known names decide."""
    cuts = [(match.start(), match.end()) for match in _CUT.finditer(inner)]
    if not cuts or inner in place:
        return inner, inner
    for start, end in cuts:
        if inner[:start] in place and inner[end:] in place:
            return inner[:start], inner[end:]
    start, end = cuts[0]
    return inner[:start], inner[end:]


def parse_log(lines: Iterable[str]) -> BuildLog:
    """Reads the lines of a build log; skips unknown lines and never raises.

    Args:
        lines: The lines, with or without line ends; consumed once, in bounded memory.
    """
    parser = LogParser()
    for line in lines:
        parser.feed(line)
    return parser.result()


class LogParser:
    """Reads a log by lines."""

    def __init__(self) -> None:
        self._header = Header()
        self._builds = [Build()]
        self._section = ""
        self._list_follows = False
        self._inside: str | None = None
        self._number = self._recognised = self._dropped_builds = 0
        self._errors: list[str] = []

    def feed(self, line: str) -> None:
        """Reads a line."""
        self._number += 1
        own = "[TRT]" in line
        self._recognised += own
        # most lines of a verbose log end here, before the costly patterns
        if not (self._list_follows or any(key in line for key in _KEYS)):
            return
        severity, text, own = strip(line)
        if not text:
            return
        if self._header.feed(text):
            self._recognised += 1
            if text.startswith("&&&& RUNNING") and self._builds[-1].informative:
                self._new_build()
            return
        if self._read_placement(text, own):
            self._recognised += 1
            return
        if severity in ("E", "F") and len(self._errors) < 100:
            self._errors.append(text)
        if _ABOUT.search(text):
            self._read_dla_sentence(text, severity)

    @property
    def recognised(self) -> int:
        """Number of lines so far that only TensorRT writes."""
        return self._recognised

    @property
    def reason_lines(self) -> frozenset[int]:
        """Numbers, from 1, of the lines with the reason of a refusal."""
        return frozenset().union(*(build.reason_lines for build in self._builds))

    def result(self) -> BuildLog:
        """Returns the facts of the lines read so far."""
        informative = [build for build in self._builds if build.informative]
        placed = [build for build in informative if build.placed]
        # a truncated last build does not hide an earlier one with its lists
        build = (placed or informative or self._builds)[-1]
        log = build.added_to(self._header.log())
        requested = log.requested_dla
        return replace(
            log,
            requested_dla=True if build.expects_dla and requested is None else requested,
            errors=tuple(self._errors),
            builds=self._dropped_builds + len(informative),
            lines=self._number,
            recognised=self._recognised,
        )

    def _read_placement(self, text: str, own: bool) -> bool:
        """Reads sections, offloads, pools and counts."""
        build = self._builds[-1]
        if match := _SECTION.search(text):
            # each build begins its lists with the DLA's
            if match[1] == "DLA" and build.sections:
                build = self._new_build()
            self._section, self._inside = match[1], None
            # the oldest wording prints the whole list on the next line
            self._list_follows = match[2] is not None
            build.sections = True
            build.dla_section |= match[1] == "DLA"
            return True
        for tag, device in (("[DlaLayer] ", "DLA"), ("[GpuLayer] ", "GPU")):
            at = text.find(tag)
            if at >= 0:
                self._list_follows = False
                self._read_list_item(device, text[at + len(tag) :].strip().removesuffix(","))
                return True
        if self._list_follows and self._read_old_list(text, own):
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
            # lines with a tactic list the finished engine, in which a layer of type DLA is a
            # loadable; the others list the members of a loadable
            if match[3] == "Tactic":
                self._inside = None
                if match[1] == "DLA":
                    build.in_engine(match[2])
            elif self._inside is not None:
                build.member(self._inside, match[2])
            return True
        if match := _COUNT.match(text):
            # not all digits of a hostile number: `int` refuses more than 4,300
            build.counts[match[1]] = int(match[2][:12])
            return True
        return self._read_memory(text, build)

    def _read_memory(self, text: str, build: Build) -> bool:
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

    def _read_list_item(self, device: str, item: str) -> None:
        build = self._builds[-1]
        if device == "GPU":
            match = _KIND.match(item)
            build.on_gpu(LogLayer(match[2], match[1]) if match else LogLayer(item))
        elif item.startswith("{ForeignNode["):
            build.in_section(item)
        elif item:
            build.capable_layer(item)

    def _read_old_list(self, text: str, own: bool) -> bool:
        """Reads TensorRT 7's lists: ``{a,b}, {c},`` for the DLA, ``a, b + c,`` for the GPU."""
        # another program's lines may be interleaved
        self._list_follows = not own
        if self._section == "DLA":
            groups = _GROUP.findall(text) if text.startswith("{") else []
            self._list_follows = self._list_follows and not groups
            for group in groups:
                if group.startswith("ForeignNode["):
                    self._read_list_item("DLA", f"{{{group}}}")
                else:
                    self._builds[-1].group(split_items(group))
            return bool(groups)
        if not own or not text.endswith(","):
            return False
        for item in split_items(text):
            self._read_list_item("GPU", item)
        return True

    def _read_dla_sentence(self, text: str, severity: str) -> None:
        build = self._builds[-1]
        for cause, opening, pattern in _FALLBACKS:
            at = text.find(opening)
            match = pattern.match(text, at) if at >= 0 else None
            if match is None:
                continue
            found = match.groupdict()
            build.refuse(
                found["layer"],
                found.get("kind") or "",
                cause,
                found.get("words") or "",
                self._number,
            )
            self._recognised += 1
            return
        for pattern in _REASONS:
            if match := pattern.match(text):
                build.reason(match["layer"], match["words"], self._number)
                self._recognised += 1
                return
        for note in _NOTES:
            if note in text:
                if text not in build.notes and len(build.notes) < 100:
                    build.notes.append(text)
                    if note == _PROFILES:
                        build.profiles.append(text)
                self._recognised += 1
                return
        # TensorRT 7 prints such reasons as errors
        if severity not in ("W", "E", "") or len(text) >= _SENTENCE:
            return
        sent = _SENT.search(text)
        if (sent or _REFUSES.search(text)) and (layer := _find_layer_name(text)):
            words = (text[: sent.start()] if sent else "") or text
            build.refuse(layer, "", "unsupported", words.removeprefix(f"{layer}: "), self._number)
            self._recognised += 1
            return
        build.loose_reason(text, self._number)

    def _new_build(self) -> Build:
        self._section, self._inside = "", None
        # only the newest build and the previous one (which may be complete) matter
        self._dropped_builds += self._builds[0].informative if len(self._builds) > 1 else 0
        self._builds = [self._builds[-1], self._builds[-1].next_build()]
        return self._builds[-1]
