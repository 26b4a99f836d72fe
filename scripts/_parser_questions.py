"""Questions that NVIDIA's module and the tests' double are asked: both must answer alike.

Each question is a function of a module and of the logged messages; its answer is plain JSON. An
exception is an answer too: its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgekit_device.tensorrt.bindings import make_logger

__all__ = ["QUESTIONS", "ask_all"]

Question = Callable[["Asked"], Any]
#: By name.
QUESTIONS: dict[str, Question] = {}
Sizes = tuple[int, ...]
_least, _best, _most = [(size, 3, 8, 8) for size in (1, 4, 8)]


class Asked:
    """A module with a builder, a network and a configuration, all unchanged.

    Attributes:
        trt: The module.
        said: Severity of each message since the question began.
        folder: For files.
    """

    def __init__(self, trt: Any, log: Any, said: list[tuple[str, str]], folder: Path) -> None:
        self.trt, self.logger, self.said, self.folder = trt, log, said, folder
        self.builder = trt.Builder(log)
        self.config = self.builder.create_builder_config()
        self.network = self.builder.create_network(0)
        self.parser = trt.OnnxParser(self.network, log)
        said.clear()

    def flag(self, name: str) -> Any:
        """A builder flag."""
        return getattr(self.trt.BuilderFlag, name)

    def flags(self) -> list[str]:
        """Names of the flags that are set."""
        names = self.trt.BuilderFlag.__members__
        return sorted(name for name in names if self.config.get_flag(self.flag(name)))

    def set(self, *names: str) -> list[str]:
        """Sets flags, and returns those that are set then."""
        for name in names:
            self.config.set_flag(self.flag(name))
        return [name for name in self.flags() if name != "TF32"]

    def severities(self) -> list[str]:
        """Severities that are no news, each once."""
        # a machine without a GPU logs that at every error
        said = {severity for severity, text in self.said if "cudaError" not in text}
        return sorted(said - {"INFO", "VERBOSE"})

    def parse(self) -> bool:
        """Parses the small model."""
        return bool(self.parser.parse(small_model()))

    def plan(self) -> bytes:
        """A plan of the small model; empty where none is built."""
        self.parse()
        memory = self.builder.build_serialized_network(self.network, self.config)
        return b"" if memory is None else bytes(memory)


def small_model(*, open_batch: bool = False, operator: str = "Relu") -> bytes:
    """A convolution and an activation."""
    weight = numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "w")
    size: Any = "n" if open_batch else 1
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, channels, 8, 8])
        for name, channels in (("x", 3), ("y", 4))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node(operator, ["c"], ["y"], "last"),
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _question(name: str) -> Callable[[Question], Question]:
    def take(function: Question) -> Question:
        QUESTIONS[name] = function
        return function

    return take


def ask_all(trt: Any) -> dict[str, Any]:
    """The module's answer to every question."""
    said: list[tuple[str, str]] = []
    log = make_logger(trt, lambda severity, text: said.append((severity, text)))
    found = {}
    with TemporaryDirectory() as folder:
        for name, ask in QUESTIONS.items():
            try:
                found[name] = ask(Asked(trt, log, said, Path(folder)))
            except Exception as error:
                found[name] = f"raises {type(error).__name__}"
    return found


def _flag_question(name: str, *flags: str) -> None:
    QUESTIONS[name] = lambda asked: [asked.set(*flags), asked.severities()]


_flag_question("flags: none")
_flag_question("flags: REFIT, then REFIT_IDENTICAL", "REFIT", "REFIT_IDENTICAL")
_flag_question("flags: REFIT_IDENTICAL, then REFIT", "REFIT_IDENTICAL", "REFIT")
_flag_question("flags: REFIT, then REFIT_INDIVIDUAL", "REFIT", "REFIT_INDIVIDUAL")
_flag_question("flags: all three of REFIT", "REFIT", "REFIT_INDIVIDUAL", "REFIT_IDENTICAL")
_flag_question("flags: STRIP_PLAN", "STRIP_PLAN")
_flag_question("flags: STRIP_PLAN and REFIT", "STRIP_PLAN", "REFIT")
_flag_question("flags: STRIP_PLAN and REFIT_IDENTICAL", "STRIP_PLAN", "REFIT_IDENTICAL")
_flag_question("flags: EXCLUDE_LEAN_RUNTIME alone", "EXCLUDE_LEAN_RUNTIME")
_flag_question(
    "flags: EXCLUDE_LEAN_RUNTIME after VERSION_COMPATIBLE",
    "VERSION_COMPATIBLE",
    "EXCLUDE_LEAN_RUNTIME",
)
_flag_question(
    "flags: EXCLUDE_LEAN_RUNTIME before VERSION_COMPATIBLE",
    "EXCLUDE_LEAN_RUNTIME",
    "VERSION_COMPATIBLE",
)
_flag_question("flags: VERSION_COMPATIBLE", "VERSION_COMPATIBLE")
_flag_question("flags: GPU_FALLBACK and DIRECT_IO", "GPU_FALLBACK", "DIRECT_IO")
_flag_question("flags: WEIGHT_STREAMING", "WEIGHT_STREAMING")
_flag_question("flags: WEIGHT_STREAMING and STRIP_PLAN", "WEIGHT_STREAMING", "STRIP_PLAN")
_flag_question("flags: SPARSE_WEIGHTS", "SPARSE_WEIGHTS")
_flag_question(
    "flags: EDITABLE_TIMING_CACHE and ERROR_ON_TIMING_CACHE_MISS",
    "EDITABLE_TIMING_CACHE",
    "ERROR_ON_TIMING_CACHE_MISS",
)


@_question("flags: TF32 of a new configuration, and taken back")
def _(asked: Asked) -> Any:
    before = asked.config.get_flag(asked.flag("TF32"))
    asked.config.clear_flag(asked.flag("TF32"))
    return [before, asked.config.get_flag(asked.flag("TF32")), asked.severities()]


@_question("flags: VERSION_COMPATIBLE taken back")
def _(asked: Asked) -> Any:
    asked.set("VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME")
    asked.config.clear_flag(asked.flag("VERSION_COMPATIBLE"))
    return asked.set()


for _level in (-1, 0, 3, 5, 9):

    @_question(f"optimisation level {_level}")
    def _(asked: Asked, level: int = _level) -> Any:
        asked.config.builder_optimization_level = level
        return [asked.config.builder_optimization_level, asked.severities()]


@_question("optimisation level of a new configuration")
def _(asked: Asked) -> Any:
    return asked.config.builder_optimization_level


for _streams in (-1, 0, 3):

    @_question(f"auxiliary streams {_streams}")
    def _(asked: Asked, streams: int = _streams) -> Any:
        before = asked.config.max_aux_streams
        asked.config.max_aux_streams = streams
        return [before, asked.config.max_aux_streams, asked.severities()]


@_question("tactic sources of a new configuration")
def _(asked: Asked) -> Any:
    names, held = asked.trt.TacticSource.__members__, asked.config.get_tactic_sources()
    return sorted(name for name, bit in names.items() if held >> int(bit) & 1)


for _mask in (0, 1, 3, 1 << 20):

    @_question(f"tactic sources {_mask:#x}")
    def _(asked: Asked, mask: int = _mask) -> Any:
        taken = asked.config.set_tactic_sources(mask)
        return [taken, asked.config.get_tactic_sources(), asked.severities()]


@_question("preview features: of a new configuration, on and off")
def _(asked: Asked) -> Any:
    config, found = asked.config, []
    for name in ("ALIASED_PLUGIN_IO_10_03", "RUNTIME_ACTIVATION_RESIZE_10_10"):
        feature = getattr(asked.trt.PreviewFeature, name)
        held = [config.get_preview_feature(feature)]
        for on in (True, False):
            config.set_preview_feature(feature, on)
            held.append(config.get_preview_feature(feature))
        found.append(held)
    return [found, asked.severities()]


@_question("tiling: level and limit of a new configuration")
def _(asked: Asked) -> Any:
    return [asked.config.tiling_optimization_level.name, asked.config.l2_limit_for_tiling]


for _level_name in ("NONE", "FAST", "FULL"):

    @_question(f"tiling: level {_level_name}, then a limit")
    def _(asked: Asked, name: str = _level_name) -> Any:
        config = asked.config
        config.tiling_optimization_level = getattr(asked.trt.TilingOptimizationLevel, name)
        config.l2_limit_for_tiling = 1 << 20
        return [
            config.tiling_optimization_level.name,
            config.l2_limit_for_tiling,
            asked.severities(),
        ]


@_question("pools: tactics' memory and shared memory")
def _(asked: Asked) -> Any:
    found = []
    for name, sizes in (("TACTIC_DRAM", (1 << 26,)), ("TACTIC_SHARED_MEMORY", (1 << 15, 1 << 30))):
        pool = getattr(asked.trt.MemoryPoolType, name)
        for size in sizes:
            asked.config.set_memory_pool_limit(pool, size)
            found.append(asked.config.get_memory_pool_limit(pool))
    return [found, asked.severities()]


@_question("verbosity: each level")
def _(asked: Asked) -> Any:
    found = []
    for name in ("NONE", "LAYER_NAMES_ONLY", "DETAILED"):
        asked.config.profiling_verbosity = getattr(asked.trt.ProfilingVerbosity, name)
        found.append(asked.config.profiling_verbosity.name)
    return [found, asked.severities()]


@_question("build: weights that are streamed")
def _(asked: Asked) -> Any:
    asked.set("WEIGHT_STREAMING")
    return [len(asked.plan()) > 100, asked.severities()]


@_question("build: no tactic in the timing cache, where that is an error")
def _(asked: Asked) -> Any:
    asked.config.set_timing_cache(asked.config.create_timing_cache(b""), False)
    asked.set("ERROR_ON_TIMING_CACHE_MISS")
    return [len(asked.plan()) > 100, asked.severities()]


@_question("network: an unknown flag")
def _(asked: Asked) -> Any:
    return [asked.builder.create_network(1 << 20) is None, asked.severities()]


@_question("network: strongly typed")
def _(asked: Asked) -> Any:
    flag = asked.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return [asked.network.get_flag(flag), asked.builder.create_network(1 << int(flag)) is None]


@_question("profile: minimum above maximum")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(open_batch=True))
    profile = asked.builder.create_optimization_profile()
    given = profile.set_shape("x", (8, 3, 8, 8), (4, 3, 8, 8), (1, 3, 8, 8))
    return [given is None, asked.config.add_optimization_profile(profile), asked.severities()]


@_question("profile: empty")
def _(asked: Asked) -> Any:
    profile = asked.builder.create_optimization_profile()
    return [asked.config.add_optimization_profile(profile), asked.severities()]


@_question("profile: minimum to maximum")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(open_batch=True))
    profile = asked.builder.create_optimization_profile()
    given = profile.set_shape("x", (1, 3, 8, 8), (4, 3, 8, 8), (8, 3, 8, 8))
    added = asked.config.add_optimization_profile(profile)
    return [given is None, added, [tuple(shape) for shape in profile.get_shape("x")]]


@_question("profile: ranks that differ")
def _(asked: Asked) -> Any:
    profile = asked.builder.create_optimization_profile()
    given = profile.set_shape("x", (1, 3), (1, 3, 8), (1, 3, 8))
    return [given is None, asked.config.add_optimization_profile(profile)]


def _build_profiles(asked: Asked, name: str, ranges: Sequence[Sequence[Sizes]]) -> Any:
    """Builds the small model of open batch with these profiles; returns success and messages."""
    asked.parser.parse(small_model(open_batch=True))
    added = []
    for sizes in ranges:
        profile = asked.builder.create_optimization_profile()
        profile.set_shape(name, *sizes)
        added.append(asked.config.add_optimization_profile(profile))
    built = asked.builder.build_serialized_network(asked.network, asked.config)
    return [added, asked.config.num_optimization_profiles, built is not None, asked.severities()]


def _profile_question(name: str, *ranges: Sequence[Sizes], of: str = "x") -> None:
    QUESTIONS[f"profile: {name}"] = lambda asked: _build_profiles(asked, of, ranges)


_profile_question("two of one input", (_least, _best, _most), (_least, _least, _least))
_profile_question("another size for a fixed axis", ((1, 4, 8, 8), (4, 4, 8, 8), (8, 4, 8, 8)))
_profile_question("an input that the network lacks", (_least, _best, _most), of="z")
_profile_question("another rank than the input's", ((1, 3, 8), (4, 3, 8), (8, 3, 8)))
_profile_question("optimum outside", (_least, _most, _best))


@_question("profile: values of a shape tensor")
def _(asked: Asked) -> Any:
    profile = asked.builder.create_optimization_profile()
    given = profile.set_shape_input("s", (1, 2), (2, 4), (4, 8))
    values = [list(value) for value in profile.get_shape_input("s")]
    return [given is None, values, profile.get_shape_input("t")]


@_question("profile: of no set input")
def _(asked: Asked) -> Any:
    return asked.builder.create_optimization_profile().get_shape("x")


@_question("profile: an open network without one")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(open_batch=True))
    built = asked.builder.build_serialized_network(asked.network, asked.config)
    return [built is None, asked.severities()]


@_question("parser: a model")
def _(asked: Asked) -> Any:
    return [asked.parse(), asked.parser.num_errors, asked.severities()]


@_question("parser: a second parse")
def _(asked: Asked) -> Any:
    asked.parse()
    return [asked.parse(), asked.parser.num_errors, asked.severities()]


@_question("parser: a file after a model")
def _(asked: Asked) -> Any:
    asked.parse()
    path = asked.folder / "small.onnx"
    path.write_bytes(small_model())
    return [asked.parser.parse_from_file(str(path)), asked.parser.num_errors, asked.severities()]


@_question("parser: a model after a refused one")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(operator="Unheard"))
    again = asked.parse()
    errors = [asked.parser.get_error(n) for n in range(asked.parser.num_errors)]
    return [again, [error.code().name for error in errors]]


@_question("parser: a missing file")
def _(asked: Asked) -> Any:
    found = asked.parser.parse_from_file(str(asked.folder / "missing.onnx"))
    errors = [asked.parser.get_error(n) for n in range(asked.parser.num_errors)]
    return [found, [error.code().name for error in errors], [error.node() for error in errors]]


@_question("parser: a damaged model")
def _(asked: Asked) -> Any:
    found = asked.parser.parse(b"\x08\x08not a model")
    errors = [asked.parser.get_error(n) for n in range(asked.parser.num_errors)]
    return [found, [error.code().name for error in errors]]


@_question("parser: an unknown operator")
def _(asked: Asked) -> Any:
    found = asked.parser.parse(small_model(operator="Unheard"))
    errors = [asked.parser.get_error(n) for n in range(asked.parser.num_errors)]
    return [
        found,
        [[e.code().name, e.node(), e.node_name(), e.node_operator()] for e in errors],
        asked.severities(),
    ]


@_question("parser: an error past the end")
def _(asked: Asked) -> Any:
    return asked.parser.get_error(0)


@_question("parser: errors cleared")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(operator="Unheard"))
    asked.parser.clear_errors()
    return asked.parser.num_errors


@_question("parser: supported operators")
def _(asked: Asked) -> Any:
    names = ("Conv", "Relu", "Softmax", "Unheard", "conv")
    return [asked.parser.supports_operator(name) for name in names]


@_question("parser: flags")
def _(asked: Asked) -> Any:
    flag = asked.trt.OnnxParserFlag.NATIVE_INSTANCENORM
    before = asked.parser.get_flag(flag)
    asked.parser.clear_flag(flag)
    after = asked.parser.get_flag(flag)
    asked.parser.set_flag(flag)
    return [before, after, asked.parser.get_flag(flag)]


@_question("parser: libraries of plugins")
def _(asked: Asked) -> Any:
    asked.parse()
    return list(asked.parser.get_used_vc_plugin_libraries())


@_question("layers: names, kinds, metadata, tensors")
def _(asked: Asked) -> Any:
    asked.parse()
    layers = [asked.network.get_layer(n) for n in range(asked.network.num_layers)]
    return [
        [
            layer.name,
            layer.type.name,
            layer.metadata,
            layer.get_input(0).name,
            layer.get_output(0).name,
        ]
        for layer in layers
    ]


@_question("layers: past the end")
def _(asked: Asked) -> Any:
    asked.parse()
    layer = asked.network.get_layer(0)
    return [
        asked.network.get_layer(99),
        asked.network.get_input(9),
        asked.network.get_output(9),
        layer.get_input(9),
        layer.get_output(9),
    ]


@_question("tensors: shape, type, formats")
def _(asked: Asked) -> Any:
    asked.parse()
    tensor = asked.network.get_input(0)
    return [
        tuple(tensor.shape),
        tensor.dtype.name,
        tensor.is_network_input,
        tensor.is_network_output,
        tensor.is_shape_tensor,
        tensor.allowed_formats,
    ]


@_question("tensors: an open size")
def _(asked: Asked) -> Any:
    asked.parser.parse(small_model(open_batch=True))
    return tuple(asked.network.get_input(0).shape)


@_question("tensors: formats of an input")
def _(asked: Asked) -> Any:
    asked.parse()
    tensor = asked.network.get_input(0)
    tensor.allowed_formats = 1 << int(asked.trt.TensorFormat.LINEAR)
    return tensor.allowed_formats


@_question("refit: a weight is marked")
def _(asked: Asked) -> Any:
    asked.parse()
    return [
        asked.network.mark_weights_refittable("w"),
        asked.network.are_weights_marked_refittable("w"),
        asked.severities(),
    ]


@_question("refit: an unknown weight is marked")
def _(asked: Asked) -> Any:
    asked.parse()
    return [
        asked.network.mark_weights_refittable("nothing"),
        asked.network.are_weights_marked_refittable("nothing"),
        asked.severities(),
    ]


@_question("timing cache: empty")
def _(asked: Asked) -> Any:
    cache = asked.config.create_timing_cache(b"")
    return [cache is None, asked.config.set_timing_cache(cache, False), asked.severities()]


@_question("timing cache: junk")
def _(asked: Asked) -> Any:
    cache = asked.config.create_timing_cache(b"junk" * 64)
    return [cache is None, asked.severities()]


@_question("timing cache: junk is set")
def _(asked: Asked) -> Any:
    cache = asked.config.create_timing_cache(b"junk" * 64)
    return [asked.config.set_timing_cache(cache, False), asked.severities()]


@_question("timing cache: of a new configuration")
def _(asked: Asked) -> Any:
    return asked.config.get_timing_cache() is None


@_question("timing cache: combined with itself")
def _(asked: Asked) -> Any:
    first, second = (asked.config.create_timing_cache(b"") for _ in range(2))
    return first.combine(second, False)


@_question("DLA: cores, default device and core")
def _(asked: Asked) -> Any:
    config = asked.config
    return [asked.builder.num_DLA_cores, config.default_device_type.name, config.DLA_core]


@_question("DLA: a layer's device")
def _(asked: Asked) -> Any:
    asked.parse()
    layer = asked.network.get_layer(0)
    before = [asked.config.get_device_type(layer).name, asked.config.is_device_type_set(layer)]
    asked.config.set_device_type(layer, asked.trt.DeviceType.GPU)
    return [*before, asked.config.is_device_type_set(layer)]


@_question("DLA: whether it runs a layer")
def _(asked: Asked) -> Any:
    asked.parse()
    return [asked.config.can_run_on_DLA(asked.network.get_layer(0)), asked.severities()]


@_question("pools: a DLA pool that is no power of two")
def _(asked: Asked) -> Any:
    pool = asked.trt.MemoryPoolType.DLA_LOCAL_DRAM
    before = asked.config.get_memory_pool_limit(pool)
    asked.config.set_memory_pool_limit(pool, 5000)
    return [asked.config.get_memory_pool_limit(pool) == before, asked.severities()]


@_question("pools: workspace")
def _(asked: Asked) -> Any:
    pool = asked.trt.MemoryPoolType.WORKSPACE
    asked.config.set_memory_pool_limit(pool, 1 << 24)
    return asked.config.get_memory_pool_limit(pool)


@_question("configuration: verbosity and capability")
def _(asked: Asked) -> Any:
    return [asked.config.profiling_verbosity.name, asked.config.engine_capability.name]


@_question("configuration: reset")
def _(asked: Asked) -> Any:
    asked.set("GPU_FALLBACK", "VERSION_COMPATIBLE")
    asked.config.reset()
    return asked.set()


@_question("build: a plan")
def _(asked: Asked) -> Any:
    return [len(asked.plan()) > 100, asked.severities()]


@_question("build: a plan that is stripped")
def _(asked: Asked) -> Any:
    asked.set("STRIP_PLAN")
    return len(asked.plan()) > 100


@_question("build: an empty network")
def _(asked: Asked) -> Any:
    built = asked.builder.build_serialized_network(asked.network, asked.config)
    return [built is None, asked.severities()]


def _build_watched(asked: Asked, *, goes_on: bool) -> tuple[bytes, list[Any]]:
    """Returns the plan of a build with a progress monitor, and each phase's parent."""
    trt, parents = asked.trt, []

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
            parents.append(parent_phase)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return goes_on

        def phase_finish(self, phase_name: str) -> None:
            return None

    watching = Monitor()
    asked.config.progress_monitor = watching
    return asked.plan(), parents


@_question("build: cancelled at the first step")
def _(asked: Asked) -> Any:
    return _build_watched(asked, goes_on=False)[0] == b""


@_question("build: the progress monitor's outermost phase")
def _(asked: Asked) -> Any:
    return _build_watched(asked, goes_on=True)[1][:1]
