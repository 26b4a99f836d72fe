"""The runtimes of this board: tests their start in a child process (which may crash), selects those
that can run a plan by its version and embedded code, and deserialises plans. Start with
``Runtimes``.

Rules (TensorRT Developer Guide, "Version Compatibility"; NvInferRuntime.h, loadRuntime): a plan
runs with exactly the version that built it. A version-compatible plan also runs with later versions
of its major, through its embedded lean runtime or, if that was excluded, through the lean library
of the plan's own version. Across majors NVIDIA's documents contradict each other: according to the
guide plans of 8 run with 9 and 10 and plans of 10 with 11, according to the support matrix they do
not. Such runtimes are tried, with a note.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from edgekit_device.board.inventory import boot_id
from edgekit_device.cuda.driver import Cuda, open_cuda
from edgekit_device.errors import DeviceError, family, map_os_errors
from edgekit_device.files import Buffer, write_durably
from edgekit_device.processes import child_argv
from edgekit_device.protocol.codec import document, dump, load, mapping, member, text
from edgekit_device.protocol.manifest import EngineEntry
from edgekit_device.tensorrt.bindings import (
    FLAVOURS,
    ErrorListener,
    explain,
    find_fault,
    find_module,
    make_logger,
    module_version,
)
from edgekit_device.tensorrt.plugins import PluginFile, load_plugins
from edgekit_device.versions import Version, parse_version, same_version, show

# by a plan's major: the later majors about which NVIDIA's documents contradict each other
_LATER_MAJORS: Mapping[int, Sequence[int]] = {8: (9, 10), 9: (10,), 10: (11,)}
_FOLDERS = (
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/local/tensorrt/lib",
    "/opt/tensorrt/lib",
    "/usr/local/lib",
)
# the real file's name has three parts; the links to it have one or none
_LEAN = re.compile(r"libnvinfer_lean\.so\.(\d+\.\d+\.\d+)\Z")
_LARGE_BYTES = 256 << 20  # from this size a plan is streamed, so that it is not in memory twice

_TIMEOUT_S = 180.0
_START_RECORD = "tensorrt-starts.json"
_START_CODE = """
import importlib, json, sys
trt = importlib.import_module(sys.argv[1])
said = []
class Log(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, msg):
        if "ERROR" in severity.name:
            said.append(str(msg))
log = Log()
# without a driver this logs an error and returns an object whose use ends the process
runtime = trt.Runtime(log)
if said:
    print(json.dumps({"error": said[0]}))
else:
    print(json.dumps({"dla_cores": int(runtime.num_DLA_cores)}))
"""

_KNOWN: Dict[str, int] = {}
_LOCK = threading.Lock()


@document(frozen=True)
class RuntimeChoice:
    """A way to run a plan.

    Attributes:
        flavour: "full", "lean" or "dispatch": the module whose Runtime deserialises.
        library: The lean library that this Runtime loads first; None without.
        host_code: True if the plan's embedded runtime must be allowed to run.
        carried: True if only the plan's embedded runtime can run it here.
        note: Note for the user; empty without.
    """

    flavour: str
    library: Optional[Path] = None
    host_code: bool = False
    carried: bool = False
    note: str = ""


def runtime_choices(
    plan: Version,
    installed: Mapping[str, Version],
    *,
    version_compatible: bool,
    lean_embedded: bool,
    plugins_embedded: bool = False,
    trusted: bool,
    find_lean: Callable[[Version], Optional[Path]],
    where: str = "",
) -> List[RuntimeChoice]:
    """Returns the ways to run a plan, the most reliable first; never empty.

    Args:
        plan: The version that built it.
        installed: Versions of the installed flavours.
        version_compatible: True if it was built version compatible.
        lean_embedded: True if it embeds its runtime.
        plugins_embedded: True if it embeds libraries of plugins.
        trusted: True if embedded code may run: its bundle's signature was verified.
        find_lean: Finds libnvinfer_lean of exactly a version.
        where: The place in messages.

    Raises:
        DeviceError: "engine.version" or "engine.host-code".
    """
    # an embedded runtime or plugin library is code of the bundle: only a trusted signature allows
    # it
    carries = lean_embedded or plugins_embedded
    found = [
        RuntimeChoice(flavour, host_code=version_compatible and carries and trusted)
        for flavour in (("full", "lean") if version_compatible else ("full",))
        if same_version(installed.get(flavour, ()), plan)
    ]
    if not version_compatible:
        if found:
            return found
        raise _no_version(plan, installed, where, "the full TensorRT {}".format(show(plan)))
    later = _later_flavours(plan, installed)
    if lean_embedded:
        if trusted:
            found += [
                RuntimeChoice(
                    f, host_code=True, carried=True, note=_choice_note(plan, installed[f])
                )
                for f in later
            ]
        # an error only if no runtime has exactly this version, which would need no embedded code
        if not found and later:
            raise DeviceError(
                "the plan contains its own runtime, and no trusted signature covers it",
                code="engine.host-code",
                where=where,
                hint="sign the bundle and add its signer with trust; or install TensorRT {}".format(
                    show(plan)
                ),
            )
    else:
        # load_runtime needs an installed runtime, and it may not be older than the plan
        library = find_lean(plan) if later else None
        if library is not None:
            host_code = plugins_embedded and trusted
            found += [
                RuntimeChoice(f, library, host_code, note=_choice_note(plan, installed[f]))
                for f in later
            ]
    if not found:
        needed = "TensorRT {} (full or lean)".format(show(plan))
        if later and not lean_embedded:
            needed = "libnvinfer_lean.so.{} or ".format(show(plan[:3])) + needed
        elif not later:
            needed += " or a later one of its major"
        raise _no_version(plan, installed, where, needed)
    return found


def _later_flavours(plan: Version, installed: Mapping[str, Version]) -> List[str]:
    """Returns the flavours that are not older, first those of the plan's own major."""
    found = []
    for flavour in ("lean", "dispatch", "full"):
        version = installed.get(flavour, ())
        if not version:
            continue
        # a full or lean runtime of the plan's own version runs it directly
        exact = same_version(version, plan)
        if version[0] == plan[0] and (flavour == "dispatch" if exact else version > plan):
            found.append((0, flavour))
        elif version[0] in _LATER_MAJORS.get(plan[0], ()):
            found.append((1, flavour))
    # a stable sort: within a major the order of the loop stays
    return [flavour for _, flavour in sorted(found, key=lambda pair: pair[0])]


def _choice_note(plan: Version, version: Version) -> str:
    if version[0] == plan[0]:
        return ""
    return (
        "a plan of TensorRT {} runs with {} here: NVIDIA's documents disagree on other major "
        "versions, so rely on it only after a self-test".format(show(plan), show(version))
    )


def _no_version(
    plan: Version, installed: Mapping[str, Version], where: str, needed: str
) -> DeviceError:
    here = ", ".join("{} {}".format(f, show(v)) for f, v in sorted(installed.items()))
    return DeviceError(
        "no runtime here can run a plan of TensorRT {}".format(show(plan)),
        code="engine.version",
        where=where,
        hint="available: {}; needed: {}. Install one, or build again for this board".format(
            here or "none", needed
        ),
    )


def lean_library(
    version: Version, folders: Iterable[Path] = (), listing: Optional[str] = None
) -> Optional[Path]:
    """Finds libnvinfer_lean.so of exactly ``version`` (major, minor and patch).

    Args:
        version: The plan's version.
        folders: Folders to search first.
        listing: Output of ``ldconfig -p``; None to run it.
    """
    # a dict as an ordered set: the first folder that has the version wins
    seen: Dict[Path, None] = {}
    search_path = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for folder in [*folders, *map(Path, search_path), *map(Path, _FOLDERS)]:
        if folder.is_dir():
            seen.update(dict.fromkeys(sorted(folder.glob("libnvinfer_lean.so*"))))
    for line in (_ldconfig() if listing is None else listing).splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if arrow and name.startswith("libnvinfer_lean.so"):
            seen[Path(target.strip())] = None
    for path in seen:
        # a link such as libnvinfer_lean.so.10 may lead to any release of its major
        real = Path(os.path.realpath(str(path)))
        match = _LEAN.match(real.name)
        if match and parse_version(match.group(1)) == tuple(version[:3]) and real.is_file():
            return real
    return None


def _ldconfig() -> str:
    # an account's PATH may lack the sbin folders
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            process = subprocess.run(
                [program, "-p"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return process.stdout.decode("utf-8", "replace")
    return ""


# The check that this is the kind of board that the engines were built on; it comes before TensorRT
# gets a byte.


def check_board(
    bundle: Mapping[str, str],
    board: Mapping[str, Optional[str]],
    *,
    portable: bool,
    where: str = "",
) -> None:
    """Compares the bundle's fingerprint with this board: module, L4T and TensorRT.

    Values unknown to either side are not compared; TensorRT has further checks.

    Args:
        bundle: The manifest's fingerprint.
        board: "module", "l4t" and "tensorrt" of this board.
        portable: True if every engine is version-compatible and for the GPU alone: then L4T and
            TensorRT may differ.
        where: The place in messages.

    Raises:
        DeviceError: "engine.other-board", with both fingerprints.
    """
    differ = []
    for name in ("module",) if portable else ("module", "l4t", "tensorrt"):
        built, here = bundle.get(name) or "", board.get(name) or ""
        if not built or not here or built == here:
            continue
        if name == "tensorrt" and same_version(parse_version(built), parse_version(here)):
            continue
        # bounded: the fingerprint comes from a bundle
        differ.append("{}: built on {!r}, but this is {!r}".format(name, built[:80], here[:80]))
    if differ:
        raise DeviceError(
            "the engines were built on another kind of board ({})".format("; ".join(differ)),
            code="engine.other-board",
            where=where,
            hint="engines run only on the kind of board they were built on; build for this one "
            "with edgekit deploy CONFIG",
        )


@dataclass(frozen=True)
class EngineRuntime:
    """The runtime of an engine, and its settings.

    Attributes:
        runtime: "full", "lean", "dispatch" or "cudla".
        version: TensorRT's version; "" if unknown.
        library: A lean library that was loaded first.
        host_code: True if the plan's embedded code may run.
        dla_core: The DLA core; None for a plan for the GPU alone.
        threads: Threads of the runtime; 0 for its default.
        context_memory: Memory that its contexts use while they run: "own" (TensorRT allocates it)
            or "shared" (by several engines, or provided by the caller).
        context_bytes: Bytes of that memory for a run.
        persistent_cache_bytes: Bytes of the GPU's persistent L2 cache for the first context.
        weight_budget_bytes: Bytes of its weights that stay on the GPU; None for an engine whose
            weights are not streamed.
    """

    runtime: str
    version: str = ""
    library: Optional[str] = None
    host_code: Optional[bool] = None
    dla_core: Optional[int] = None
    threads: Optional[int] = None
    context_memory: Optional[str] = None
    context_bytes: Optional[int] = None
    persistent_cache_bytes: Optional[int] = None
    weight_budget_bytes: Optional[int] = None


class LoadedPlan:
    """An engine and the objects that must outlive it.

    Attributes:
        trt: The module that made it.
        engine: The ICudaEngine.
        listener: Logger and error recorder of its objects.
        facts: Its runtime and settings.
    """

    def __init__(
        self, trt: Any, engine: Any, listener: ErrorListener, keep: Any, facts: EngineRuntime
    ) -> None:
        self.trt = trt
        self.facts = facts
        self.listener = listener
        self._keep = keep
        self.engine = engine


def deserialize(
    trt: Any,
    plan: Union[bytes, memoryview],
    choice: RuntimeChoice,
    *,
    dla_core: Optional[int] = None,
    threads: int = 0,
    temporary: Optional[Path] = None,
    large: int = _LARGE_BYTES,
    where: str = "",
    plugins: Sequence[PluginFile] = (),
) -> LoadedPlan:
    """Deserialises a plan.

    Order as in trtexec (NVIDIA/TensorRT, samples/common/sampleEngines.cpp): load_runtime, host
    code, temporary folder, DLA core, error recorder, deserialise. The DLA core belongs to the
    runtime, not to the plan: it must be set before each deserialisation.

    Args:
        trt: The choice's module.
        plan: The plan.
        choice: From :func:`edgekit_device.tensorrt.runtimes.runtime_choices`.
        dla_core: The DLA core to use; None for a plan for the GPU alone.
        threads: Threads of the runtime; 0 leaves its default.
        temporary: Folder in which it may unpack a runtime; None leaves its default.
        large: Size in bytes from which the plan is streamed.
        where: The place in messages.
        plugins: Plugins that it needs beside TensorRT's own.

    Raises:
        DeviceError: "engine.*", "tensorrt.*" or "board.no-gpu", with TensorRT's own text; as
            ``load_plugins``.
    """
    listener = ErrorListener(trt)
    # load_runtime returns another Runtime; its parent must outlive it
    parent = runtime = trt.Runtime(listener.logger)
    _check_log(listener, "TensorRT's runtime failed to start", where)
    if choice.library is not None:
        runtime = parent.load_runtime(str(choice.library))
        if runtime is None:
            raise listener.error(
                "{} cannot be loaded".format(choice.library), "engine.version", where
            )
        _check_log(listener, "{} cannot be loaded".format(choice.library), where)
    if choice.host_code:
        runtime.engine_host_code_allowed = True
    if temporary is not None:
        runtime.temporary_directory = str(temporary)
    if threads:
        runtime.max_threads = threads
    if dla_core is not None:
        cores = int(runtime.num_DLA_cores)
        if dla_core >= cores:
            raise DeviceError(
                "the plan needs DLA core {}, but TensorRT finds {} here".format(dla_core, cores),
                code="engine.dla",
                where=where,
                hint="build for this board; edgekit doctor shows the missing parts for its DLA",
            )
        runtime.DLA_core = dla_core
    runtime.error_recorder = listener.recorder
    # the runtime's own registry falls back to this registry
    load_plugins(trt, listener.logger, plugins, where)
    # messages about plugins must not become the reason of a refused plan
    listener.forget()
    reader = _make_reader(trt, plan) if len(plan) >= large else None
    try:
        engine = runtime.deserialize_cuda_engine(plan if reader is None else reader)
    except Exception as error:  # pybind11 turns C++ exceptions into RuntimeError and TypeError
        listener.lines.append(("ERROR", str(error)))
        engine = None
    if engine is None:
        raise listener.error("TensorRT cannot load the plan", "engine.invalid", where)
    # TensorRT has copied a plan given as a whole; a reader, with its mapped file, must stay alive
    facts = EngineRuntime(
        choice.flavour,
        version=str(getattr(trt, "__version__", "")),
        library=None if choice.library is None else choice.library.name,
        host_code=choice.host_code,
        dla_core=dla_core,
        threads=threads,
    )
    return LoadedPlan(trt, engine, listener, (parent, runtime, reader), facts)


def _check_log(listener: ErrorListener, what: str, where: str) -> None:
    # without a driver a Runtime object exists as well, but its use ends the process
    if any("ERROR" in severity for severity, _ in listener.lines):
        raise listener.error(what, "tensorrt.failed", where)


def _make_reader(trt: Any, plan: Union[bytes, memoryview]) -> Optional[Any]:
    """Returns a stream reader of the release's kind; None before 10.0."""
    view = memoryview(plan)
    if hasattr(trt, "IStreamReaderV2"):
        return _reader_v2(trt, view)
    if not hasattr(trt, "IStreamReader"):
        return None

    class StreamReader(trt.IStreamReader):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamReader.__init__(self)
            self.position = 0

        def read(self, size: int) -> bytes:
            start, self.position = self.position, min(self.position + size, len(view))
            return bytes(view[start : self.position])

    return StreamReader()


def _reader_v2(trt: Any, view: memoryview) -> Any:
    class StreamReaderV2(trt.IStreamReaderV2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamReaderV2.__init__(self)
            self.position = 0

        def read(self, num_bytes: int, stream: int) -> bytes:
            start, self.position = self.position, min(self.position + num_bytes, len(view))
            return bytes(view[start : self.position])

        def seek(self, offset: int, where: Any) -> bool:
            base = {
                trt.SeekPosition.SET: 0,
                trt.SeekPosition.CUR: self.position,
                trt.SeekPosition.END: len(view),
            }[where]
            if not 0 <= base + offset <= len(view):
                return False
            self.position = base + offset
            return True

    return StreamReaderV2()


def start_runtime(module: Any, folder: Optional[Path] = None) -> Cuda:
    """Checks for a GPU and starts ``module``'s runtime in a child, once per process and boot.

    Without a usable driver ``Runtime(logger)`` logs an error and still returns an object, whose
    use ends the process (seen with tensorrt_lean 10.16.1 and 11.4.0). So the driver is tested
    first, then a child process makes the first Runtime and uses it.

    Args:
        module: tensorrt, tensorrt_lean or tensorrt_dispatch.
        folder: Folder in which a successful start is recorded for the next process; None for no
            record.

    Returns:
        The device.

    Raises:
        DeviceError: "board.no-gpu", "tensorrt.crashed" or "tensorrt.failed".
    """
    try:
        cuda = open_cuda()
    except DeviceError as error:
        # other errors, such as a lack of memory, do not mean that the GPU is missing
        if error.code not in ("cuda.no-driver", "cuda.no-device"):
            raise
        raise DeviceError(error.message, code="board.no-gpu", hint=error.hint) from error
    with _LOCK:
        if module.__name__ not in _KNOWN:
            key = _start_key(module)
            record = None if folder is None else load(_Started, folder / _START_RECORD)
            modules = {} if record is None else record.modules
            # an empty key (unknown boot or file) does not show that a start was tested
            recorded = {name: value for name, value in modules.items() if value}
            if recorded.get(module.__name__) != key:
                _try_start(module.__name__)
                _write_record(folder, dict(recorded, **{module.__name__: key}))
            _KNOWN[module.__name__] = 1
    return cuda


def _try_start(name: str) -> None:
    # an embedded interpreter has no program to start a child with
    if not sys.executable:
        return
    try:
        process = subprocess.run(
            child_argv(_START_CODE, name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            "{} did not start within {:.0f} s".format(name, _TIMEOUT_S),
            code="tensorrt.crashed",
            where=name,
            hint="check dmesg; a GPU or DLA that hangs needs a restart of the board",
        ) from error
    except OSError as error:
        raise DeviceError(
            "cannot start a child process: {}".format(error), code="board.io", where=name
        ) from error
    # subprocess gives the negative number of the signal that ended the child
    if process.returncode < 0:
        raise DeviceError(
            "the process that starts {} ends with {}".format(
                name, _signal_name(-process.returncode)
            ),
            code="tensorrt.crashed",
            where=name,
            hint="its version may not fit the driver: check edgekit doctor",
        )
    lines = process.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        # libraries may print their own lines before the answer
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        output = process.stderr.decode("utf-8", "replace").strip().splitlines() or [
            "no reason given"
        ]
        raise DeviceError(
            "{} failed to start: {}".format(name, output[-1][:300]),
            code="tensorrt.failed",
            where=name,
            hint="its version may not fit the driver: check edgekit doctor",
        ) from None
    if "error" in answer:
        raise explain(
            "{} failed to start".format(name),
            "tensorrt.failed",
            lines=[("ERROR", str(answer["error"]))],
            where=name,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def _start_key(module: Any) -> str:
    """Returns a key that changes with the boot (the driver's state) and with the module's file."""
    try:
        # a repaired or upgraded package has another file, perhaps with the same version
        stamp = Path(str(module.__file__)).stat().st_mtime_ns
    except (OSError, AttributeError):
        return ""
    boot = boot_id(Path("/"))
    return "{} {} {}".format(boot, getattr(module, "__version__", ""), stamp) if boot else ""


@document(frozen=True)
class _Started:
    """The record of runtimes that started here: by module, the key of its boot and file."""

    modules: Mapping[str, str] = member(mapping(text()))


def _write_record(folder: Optional[Path], known: Dict[str, str]) -> None:
    if folder is None or not folder.is_dir():
        return
    try:
        write_durably(folder / _START_RECORD, dump(_Started(known)))
    except OSError:
        return  # then the next process tries again


class Runtimes:
    """The runtimes that can run plans on this board.

    Args:
        root: ROOT, for the lean libraries that a user put into ROOT/lib, and for temporary files.
        threads: Threads of each runtime; 0 leaves TensorRT's default.
        plugins: Plugins that its plans need beside TensorRT's own.

    Attributes:
        notes: Notes for the user about the selected runtimes.
    """

    def __init__(self, root: Path, threads: int = 0, plugins: Sequence[PluginFile] = ()) -> None:
        self.notes: List[str] = []
        self._plugins = plugins
        self._root = root
        self._threads = threads
        self._modules: Dict[str, ModuleType] = {}
        self._cuda: Optional[Cuda] = None
        self._errors: List[DeviceError] = []
        for flavour in FLAVOURS:
            module = find_module(flavour)
            if module is not None:
                self._modules[flavour] = module

    def installed(self) -> Dict[str, Version]:
        """Versions of the installed flavours."""
        return {flavour: module_version(module) for flavour, module in self._modules.items()}

    def record_name(self, flavour: str) -> str:
        """Returns flavour and version, for records."""
        return "{} {}".format(flavour, show(module_version(self._modules[flavour])))

    def cuda(self) -> Cuda:
        """The device, after a runtime was started."""
        assert self._cuda is not None
        return self._cuda

    def choices(
        self, version: Version, entry: EngineEntry, trusted: bool, where: str
    ) -> List[RuntimeChoice]:
        """Returns the ways to run a plan here, the most reliable first.

        Raises:
            DeviceError: "board.no-tensorrt", "engine.version" or "engine.host-code".
        """
        if not self._modules:
            import_faults = [
                "{}: {}".format(FLAVOURS[f], find_fault(f)) for f in FLAVOURS if find_fault(f)
            ]
            raise DeviceError(
                "TensorRT's Python module is needed for this bundle's engines and is missing",
                code="board.no-tensorrt",
                where=where,
                hint="apt-get install python3-libnvinfer, or run the container with "
                "--runtime nvidia ({})".format("; ".join(import_faults)),
            )
        return runtime_choices(
            version,
            self.installed(),
            version_compatible=entry.version_compatible,
            lean_embedded=entry.lean_embedded,
            plugins_embedded=entry.plugins_embedded,
            trusted=trusted,
            # a library that the user put into ROOT comes before the system's
            find_lean=lambda wanted: lean_library(wanted, [self._root / "lib"]),
            where=where,
        )

    def core(self, choice: RuntimeChoice, wanted: int) -> Optional[int]:
        """Returns ``wanted`` if the runtime finds such a DLA core, else None.

        Raises:
            DeviceError: As :meth:`load`.
        """
        module = self._modules[choice.flavour]
        self._cuda = start_runtime(module, self._root if self._root.is_dir() else None)
        errors: List[str] = []
        runtime = module.Runtime(
            make_logger(
                module, lambda severity, text: errors.append(text) if "ERR" in severity else None
            )
        )
        # a Runtime that could not be made must not be used
        return wanted if not errors and wanted < int(runtime.num_DLA_cores) else None

    def load(
        self,
        plan: Buffer,
        choice: RuntimeChoice,
        dla_core: Optional[int],
        where: str,
        *,
        spare: bool = False,
    ) -> Optional[LoadedPlan]:
        """Loads a plan; returns None if TensorRT refuses it, and keeps the error for ``failure``.

        With ``spare`` the error is not kept: another plan can replace this one.

        Raises:
            DeviceError: "board.no-gpu", "tensorrt.*" or "cuda.*": other ways would also fail.
        """
        module = self._modules[choice.flavour]
        folder = self._root if self._root.is_dir() else None
        self._cuda = start_runtime(module, folder)
        # TensorRT unpacks an embedded runtime into a file: not in the folder that all accounts
        # share
        temporary = None
        if folder is not None and choice.host_code:
            temporary = folder / "tmp"
            with map_os_errors(str(temporary)):
                temporary.mkdir(exist_ok=True)
        try:
            loaded = deserialize(
                module,
                plan,
                choice,
                dla_core=dla_core,
                threads=self._threads,
                temporary=temporary,
                where=where,
                plugins=self._plugins,
            )
        except DeviceError as error:
            # a missing GPU, driver or memory would stop every other way as well
            if family(error.code) not in ("engine", "plugin"):
                raise
            if not spare:
                self._errors.append(error)
            return None
        # the plan runs, so refusals of other ways no longer matter
        self._errors = []
        if choice.note:
            self.notes.append(choice.note)
        return loaded

    def has_failed(self) -> bool:
        """True if a way was tried since the last success."""
        return bool(self._errors)

    def failure(self) -> DeviceError:
        """Returns the most reliable way's error, with the errors of other ways in the hint."""
        first, *others = self._errors
        self._errors = []
        messages = [
            "{}".format(error.message) for error in others if error.message != first.message
        ]
        if messages:
            first.hint = "{}; also tried: {}".format(first.hint, "; ".join(messages))
        return first
