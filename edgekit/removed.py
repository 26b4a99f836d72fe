"""What earlier versions had, and what to do instead: the hint of the error that names it."""

from __future__ import annotations

_SOLVE = "edgekit places networks; state other problems with OR-Tools (CP-SAT)"

#: Commands and options, as they are typed after ``edgekit``.
COMMANDS = {
    "bundle push": "edgekit deploy and edgekit fleet deploy send bundles over SSH; "
    "edgekit bundle CONFIG --full FILE writes one file to copy",
    "plan --problem": _SOLVE,
    "trace --dla-stats": "leave it out: per-layer times of a DLA come from --profile",
    "fleet export --mirror": "leave it out: Ansible copies what a board lacks",
}
#: Names of the package ``edgekit``.
NAMES = {
    "plan_of_log": "give edgekit.plan the model, and the log as placement.profile",
    "solve": _SOLVE,
}
#: Keys of a configuration, their sections in front.
KEYS = {
    "deploy.health.download_s": "remove it: boards download nothing, deployments send the bundle",
    "deploy.mirror": "remove it: edgekit deploy sends the bundle over SSH; for large fleets see "
    "edgekit fleet export ansible",
}
#: Values of a configuration, by key and value.
VALUES = {
    ("build.backend", "trtexec"): "write tensorrt: TensorRT's Python API is on every JetPack "
    "(python3-libnvinfer)",
}
