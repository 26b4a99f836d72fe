"""Removed commands, options and names, with their replacements: the hints of their errors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and warnings take time that --help has not
    from typing import Any

_SOLVE = "edgekit places networks; state other problems with OR-Tools (CP-SAT)"

#: Commands and options, as they are typed after ``edgekit``.
COMMANDS = {
    "bundle push": "edgekit deploy and edgekit fleet deploy send bundles over SSH; "
    "edgekit bundle CONFIG --full FILE writes one file to copy",
    "plan --problem": _SOLVE,
    "trace --dla-stats": "leave it out: per-layer times of a DLA come from --profile",
    "fleet export --mirror": "leave it out: Ansible copies the files that a board lacks",
}
#: Names of the package ``edgekit``.
NAMES = {
    "plan_of_log": "give edgekit.plan the model, and the log as placement.profile",
    "solve": _SOLVE,
}
#: Keys of a configuration, their sections in front.
KEYS = {
    "deploy.health.download_s": "remove it: deployments send the bundle, boards do not download",
    "deploy.mirror": "remove it: edgekit deploy sends the bundle over SSH; for large fleets see "
    "edgekit fleet export ansible",
}
#: Values of a configuration, by key and value.
VALUES = {
    ("build.backend", "trtexec"): "write tensorrt: TensorRT's Python API is on every JetPack "
    "(python3-libnvinfer)",
}


class FormerDict:
    """Results of functions of ``edgekit`` that were dicts: keys work for one minor release."""

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON object."""
        from edgekit_device.protocol.codec import write

        return dict(write(self))

    def __getitem__(self, key: str) -> Any:
        self._warn(key)
        return self.to_json()[key]

    def __contains__(self, key: str) -> bool:
        self._warn(key)
        return key in self.to_json()

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the JSON object's value of a key."""
        self._warn(key)
        return self.to_json().get(key, default)

    def _warn(self, key: str) -> None:
        import warnings

        name = type(self).__name__
        warnings.warn(
            f"{name} is no dict any more: use the attribute of {name} for {key!r}, or "
            f"{name}.to_json()",
            DeprecationWarning,
            # the caller of [], `in` or get
            stacklevel=3,
        )
