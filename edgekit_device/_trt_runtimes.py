"""The runtimes of this board: found once, started once, and tried in order for a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

from ._cuda import Cuda
from ._errors import DeviceError, map_os_errors
from ._plan import Version, show
from ._store import Buffer
from ._trt_load import Loaded, deserialize
from ._trt_modules import FLAVOURS, fault, find, logger, version_of
from ._trt_pick import Choice, choices, lean_library
from ._trt_start import start
from ._types import EngineEntry

__all__ = ["Runtimes"]


class Runtimes:
    """What can run plans here.

    Args:
        root: ROOT, for the lean libraries that a user put into ROOT/lib, and for temporary files.
        threads: Threads of each runtime; 0 leaves TensorRT's default.

    Attributes:
        notes: What a user should know about the runtimes that were taken.
    """

    def __init__(self, root: Path, threads: int = 0) -> None:
        self.notes: List[str] = []
        self._root = root
        self._threads = threads
        self._modules: Dict[str, Any] = {}
        self._cuda: Optional[Cuda] = None
        self._errors: List[DeviceError] = []
        for flavour in FLAVOURS:
            module = find(flavour)
            if module is not None:
                self._modules[flavour] = module

    def installed(self) -> Dict[str, Version]:
        """Versions by flavour."""
        return {flavour: version_of(module) for flavour, module in self._modules.items()}

    def name_of(self, flavour: str) -> str:
        """Flavour and version, for records."""
        return "{} {}".format(flavour, show(version_of(self._modules[flavour])))

    def cuda(self) -> Cuda:
        """The device, once a runtime was started."""
        assert self._cuda is not None
        return self._cuda

    def choices(
        self, version: Version, entry: EngineEntry, trusted: bool, where: str
    ) -> List[Choice]:
        """The ways to run a plan here, the surest first.

        Raises:
            DeviceError: "board.no-tensorrt", "engine.version" or "engine.host-code".
        """
        if not self._modules:
            told = ["{}: {}".format(FLAVOURS[f], fault(f)) for f in FLAVOURS if fault(f)]
            raise DeviceError(
                "TensorRT's Python module is not here, and this bundle's engines need it",
                code="board.no-tensorrt",
                where=where,
                hint="apt-get install python3-libnvinfer, or run the container with "
                "--runtime nvidia ({})".format("; ".join(told)),
            )
        return choices(
            version,
            self.installed(),
            version_compatible=entry.version_compatible,
            lean_embedded=entry.lean_embedded,
            trusted=trusted,
            find_lean=lambda wanted: lean_library(wanted, [self._root / "lib"]),
            where=where,
        )

    def core(self, choice: Choice, wanted: int) -> Optional[int]:
        """``wanted`` where the runtime finds such a DLA core, else None.

        Raises:
            DeviceError: As :meth:`load`.
        """
        module = self._modules[choice.flavour]
        self._cuda = start(module, self._root if self._root.is_dir() else None)
        said: List[str] = []
        runtime = module.Runtime(
            logger(module, lambda severity, text: said.append(text) if "ERR" in severity else None)
        )
        # a Runtime that could not be made must not be used
        return wanted if not said and wanted < int(runtime.num_DLA_cores) else None

    def load(
        self,
        plan: Buffer,
        choice: Choice,
        dla_core: Optional[int],
        where: str,
        *,
        spare: bool = False,
    ) -> Optional[Loaded]:
        """Loads a plan one way; None when TensorRT refuses it, ``failure`` then says why.

        With ``spare`` it does not: another plan does as well.

        Raises:
            DeviceError: "board.no-gpu", "tensorrt.*" or "cuda.*": no other way would do better.
        """
        module = self._modules[choice.flavour]
        folder = self._root if self._root.is_dir() else None
        self._cuda = start(module, folder)
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
            )
        except DeviceError as error:
            if not error.code.startswith("engine."):
                raise
            if not spare:
                self._errors.append(error)
            return None
        self._errors = []
        if choice.note:
            self.notes.append(choice.note)
        return loaded

    def failed(self) -> bool:
        """Whether a way was tried since the last one that worked."""
        return bool(self._errors)

    def failure(self) -> DeviceError:
        """Why no way worked: the surest way's reason, the others' in the hint."""
        first, *others = self._errors
        self._errors = []
        told = ["{}".format(error.message) for error in others if error.message != first.message]
        if told:
            first.hint = "{}; tried too: {}".format(first.hint, "; ".join(told))
        return first
