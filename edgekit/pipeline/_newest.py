"""Which measurement of a release is shown where none is asked for: the newest, whatever its way.

A command's options (``edgekit bench --lock-clocks``) measure in another way than the configuration
says, and what they measured is still the newest. Settings that changed in the configuration itself
ask for a new measurement. An older one is never shown again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgekit.pipeline._host_steps import HostSteps

__all__ = ["Newest"]


class Newest:
    """What was measured last of a release on a board, in the cache.

    Args:
        pipeline: The configuration's pipeline.
        place: What tells board and release from others.

    Attributes:
        told: Which measurement ``find`` has found, for people.
        notes: What of it is not as the configuration says.
    """

    def __init__(self, pipeline: HostSteps, place: Sequence[object]) -> None:
        self._cache = pipeline.cache
        self._key = self._cache.key("bench", *place)
        self.told = ""
        self.notes: list[str] = []
        section = pipeline.file.bench
        self._settings: dict[str, Any] = section.model_dump(mode="json")
        if section.inputs is not None:
            from edgekit.pipeline._stored import identity

            # other frames may lie under the same name
            frames = identity(pipeline.config.resolve(section.inputs))
            self._settings["inputs"] = [str(section.inputs), frames]
        document = pipeline.config.document
        self._given = sorted(
            {str(path[1]) for path in document.given if path[:1] == ("bench",) and path[1:]}
        )
        self._file = (document.value if document.file is None else document.file).get("bench")

    def find(self) -> dict[str, Any] | None:
        """Returns the newest measurement, or None where one is to be made."""
        known = self._cache.get("bench", self._key)
        if not known:
            return None
        settings, given = known["settings"], known["given"]
        names = [name for name, own in self._settings.items() if settings.get(name) != own]
        if any(name not in given or name in self._given for name in names):
            return None
        if names and known["file"] != self._file:
            return None
        measured: dict[str, Any] = known["measured"]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(known["at"]))
        self.told = f"measured {when}"
        if names:
            other = ", ".join(f"{name} {_word(settings.get(name))}" for name in names)
            own = ", ".join(_word(self._settings[name]) for name in names)
            self.told += f" with {other} (the configuration: {own})"
            self.notes = [f"{self.told}; edgekit bench measures anew"]
        return measured

    def keep(self, measured: Mapping[str, Any]) -> None:
        """Makes this measurement the newest."""
        row = {"at": time.time(), "settings": self._settings, "given": self._given,
               "file": self._file}  # fmt: skip
        self._cache.put("bench", self._key, {**row, "measured": dict(measured)})


def _word(value: object) -> str:
    words = {True: "yes", False: "no", None: "unset"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, list):
        return str(value[0])
    return f"{value:g}" if isinstance(value, float) else str(value)
