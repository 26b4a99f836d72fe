"""How each question of the self-test is asked; what is returned goes into the document as it is."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional

from ._board_selftest_items import Item
from ._errors import DeviceError
from ._job import JobContext

__all__ = ["ASKS", "BUILDS"]

_BUILT = Dict[str, Dict[str, Any]]
_TEGRASTATS_S = 3.5
_SAMPLED_S = 3.0
# of a build's answer, what the questions are about
_KEPT = ("bytes", "full_bytes", "stripped", "version_compatible", "lean_embedded", "refit",
         "dla_core", "attempts", "weights", "io", "layers", "can_run_on_dla", "unmapped",
         "timing_cache", "seconds")  # fmt: skip


def _build(context: JobContext, item: Item, built: _BUILT) -> Dict[str, Any]:
    from ._build import run

    result = run(JobContext(context.root, context.folder, _request(context, item), context.work))
    engine = dict(result["engines"][0])
    if item.id not in built:
        built[item.id] = engine
    found = {name: engine.get(name) for name in _KEPT}
    found["tensorrt"], found["notes"] = result["tensorrt"], result["notes"]
    found["log"] = _placement(_text(context, engine.get("log")))
    return found


def _request(context: JobContext, item: Item) -> Dict[str, Any]:
    """The toy's request with this question's flags, device and kind."""
    given = context.request
    engine = dict(given["engine"])
    gpu = item.device == "GPU"
    engine["device"] = item.device
    engine["kind"] = "loadable" if item.standalone else "plan"
    engine["gpu_fallback"] = not gpu and not item.standalone
    engine["layers"] = [dict(layer, device="GPU" if gpu else "DLA") for layer in engine["layers"]]
    formats = ["DLA_LINEAR"] if item.standalone else []
    for side in ("inputs", "outputs"):
        dtype = "float16" if item.standalone else "float32"
        engine[side] = [dict(one, formats=formats, dtype=dtype) for one in engine[side]]
    flags = [*item.flags, *(["DIRECT_IO"] if item.standalone else [])]
    engine["attempts"] = [{"flags": flags, "gives_up": ""}]
    base = dict(given["build"])
    return dict(base, name=item.id, engines=[engine])


def _build_again(context: JobContext, item: Item, built: _BUILT) -> Any:
    again = item._replace(id="build-hybrid")
    return _build(context, again, built)["timing_cache"]


def _verdicts(context: JobContext, item: Item, built: _BUILT) -> Any:
    return built["build-hybrid"].get("can_run_on_dla")


def _inspector(context: JobContext, item: Item, built: _BUILT) -> Any:
    return _text(context, built["build-hybrid"].get("inspector"))


def _probe(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._probe import probe

    found = probe(context.root.folder)
    found.pop("user"), found.pop("root")
    return found


def _load(context: JobContext, name: str, built: _BUILT, flavour: str, core: Optional[int]) -> Any:
    from ._plan import read_header
    from ._trt_load import deserialize
    from ._trt_modules import find
    from ._trt_pick import Choice
    from ._trt_start import start

    trt = find(flavour)
    if trt is None:
        raise DeviceError("this runtime is not on the board", code="selftest.no-" + flavour)
    engine = built[name]
    plan = context.blob(engine.get("full") or engine["engine"])
    start(trt, context.root.folder)
    # the runtime that the plan carries is this board's own: it was built a moment ago
    choice = Choice(flavour, host_code=bool(engine["lean_embedded"]))
    loaded = deserialize(trt, plan, choice, dla_core=core, where=name)
    facts: Dict[str, Any] = {"plan": ".".join(str(part) for part in read_header(plan).version)}
    facts.update(runtime=str(trt.__version__), loaded=loaded.engine is not None)
    return trt, loaded, facts


def _load_full(context: JobContext, item: Item, built: _BUILT) -> Any:
    return _load(context, "build-hybrid", built, "full", 0)[2]


def _load_core_1(context: JobContext, item: Item, built: _BUILT) -> Any:
    return _load(context, "build-hybrid", built, "full", 1)[2]


def _load_lean(context: JobContext, item: Item, built: _BUILT) -> Any:
    return _load(context, "dla-vc", built, "lean", 0)[2]


def _lean_weights(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._trt_refit import weights_of

    engine = dict(built["dla-vc-strip"], full=None)  # the stripped one is what a board gets
    trt, loaded, facts = _load(context, item.needs[0], {item.needs[0]: engine}, "lean", 0)
    return dict(facts, weights=weights_of(trt, loaded.engine))


def _cudla(context: JobContext, item: Item, built: _BUILT) -> Any:
    from types import SimpleNamespace

    from ._board_selftest_runs import sides_of
    from ._cudla import open_loadable

    made = built["standalone"]
    sides = sides_of(made)
    io = SimpleNamespace(inputs=tuple(sides["input"]), outputs=tuple(sides["output"]))
    # opening compares cuDLA's descriptors with what the build expects, and says a difference
    loadable = open_loadable(context.blob(made["engine"]), 0, io)
    try:
        return {
            side: [{"name": one.name, "bytes": size} for one, size in getattr(loadable, side)]
            for side in ("inputs", "outputs")
        }
    finally:
        loadable.close()


def _graph(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._board_selftest_runs import replayed

    _, loaded, facts = _load(context, item.needs[0], built, "full", None)
    return dict(facts, **replayed(loaded.engine, built[item.needs[0]]))


def _trtexec(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._board_selftest_runs import by_trtexec
    from ._probe_software import find_trtexec

    program = find_trtexec()
    if program is None:
        raise DeviceError("trtexec is not on this board", code="selftest.no-program")
    plan = context.blob(built[item.needs[0]]["engine"])
    return by_trtexec(context.root.folder, program, plan, None if item.device == "GPU" else 0)


def _tegrastats(context: JobContext, item: Item, built: _BUILT) -> Any:
    program = _need("tegrastats")
    try:
        done = subprocess.run(
            [program, "--interval", "1000"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TEGRASTATS_S,
            check=False,
        )
        out: Optional[bytes] = done.stdout
    except subprocess.TimeoutExpired as stopped:  # it never ends by itself
        out = stopped.stdout
    return (out or b"").decode("utf-8", "replace").splitlines()


def _monitor(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._monitor import Sampler

    with Sampler(100) as sampler:
        time.sleep(_SAMPLED_S)
        found = sampler.stop()
    samples = found.pop("samples")
    return dict(found, count=len(samples), last=samples[-1:])


def _nsys(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._probe_software import output_of

    return (output_of([_need("nsys"), "--version"]) or "").strip()


def _power(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._probe_power import read_modes
    from ._probe_software import output_of

    said = output_of(["nvpmodel", "-q"]) or output_of(["sudo", "-n", "nvpmodel", "-q"])
    return {"modes": read_modes(), "now": (said or "").splitlines()}


def _held(context: JobContext, item: Item, built: _BUILT) -> Any:
    from ._power import held_power

    _need("jetson_clocks")
    with held_power(context.root.folder, lock=True) as power:
        pass
    return power.document()


def _need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise DeviceError("{} is not on this board".format(program), code="selftest.no-program")
    return path


def _text(context: JobContext, digest: Optional[str]) -> str:
    return context.blob(digest).decode("utf-8", "replace") if digest else ""


def _placement(log: str) -> List[str]:
    """The lines about the DLA, its loadables and their memory."""
    words = ("DLA", "ForeignNode", "memory", "Memory", "[E]")
    return [line for line in log.splitlines() if any(word in line for word in words)][:400]


ASKS: Dict[str, Callable[[JobContext, Item, _BUILT], Any]] = {
    "build": _build,
    "build_again": _build_again,
    "cudla": _cudla,
    "inspector": _inspector,
    "lean_weights": _lean_weights,
    "load_core_1": _load_core_1,
    "load_full": _load_full,
    "load_lean": _load_lean,
    "monitor": _monitor,
    "graph": _graph,
    "held": _held,
    "nsys": _nsys,
    "power": _power,
    "probe": _probe,
    "tegrastats": _tegrastats,
    "trtexec": _trtexec,
    "verdicts": _verdicts,
}

BUILDS = frozenset({"build", "build_again"})
"""Asks that run a build, which isolates itself."""
