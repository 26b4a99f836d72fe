"""A `trtexec` that builds and runs through the double: it takes its release's flags and no other.

The order of its work, its texts and what it sets for a DLA are those of samples/common
(sampleEngines.cpp, sampleOptions.cpp, 8.6 to 11.1). The flags come from the repository's trt/.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from . import double
from ._trtexec_build import configure
from ._trtexec_infer import infer

_FLAGS = Path(__file__).resolve().parents[2] / "trt" / "trtexec_flags.yaml"


class Stop(Exception):
    """What trtexec prints at ERROR before it fails."""


def known_flags(version: str) -> set[str]:
    """The flags of the newest sampled trtexec up to `version`."""
    data = yaml.safe_load(_FLAGS.read_text())
    here = _parts(version)
    last = max((one for one in data["versions"] if _parts(one) <= here), key=_parts)
    others = (flag for flag, releases in data["flags"].items() if last in releases)
    return {*data["everywhere"], *others}


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split(".")[:3])


def parse(arguments: list[str], known: set[str]) -> dict[str, list[str]]:
    """Flag -> its values in order.

    Raises:
        Stop: A flag that this release does not have.
    """
    found: dict[str, list[str]] = {}
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if flag not in known:
            raise Stop(f"Unknown option: {argument}")
        found.setdefault(flag, []).append(value)
    return found


class Say:
    """Lines as trtexec prints them."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose

    def __call__(self, letter: str, text: str, source: str = "") -> None:
        if letter == "V" and not self.verbose:
            return
        stream = sys.stderr if letter in "EF" else sys.stdout
        stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
        print(f"[{stamp}] [{letter}] {source}{text}", file=stream, flush=True)


def main(arguments: list[str]) -> int:
    """Runs it; 0 or 1 as trtexec ends."""
    version = os.environ["EDGEKIT_TEST_TENSORRT"]
    trt = double.module(version)
    build = trt._double.build
    # samples/common/logger.h: 8.6.1 is v8601, 10.3.0 is v100300
    scale = 10000 if build >= (10,) else 1000
    tag = f"v{build[0] * scale + build[1] * 100 + build[2]}"
    title = f"TensorRT.trtexec [TensorRT {tag}]" + (" [b23]" if build >= (10, 4) else "")
    line = f"{title} # {' '.join([sys.argv[0], *arguments])}"
    print(f"&&&& RUNNING {line}", flush=True)
    say = Say("--verbose" in arguments)
    try:
        options = parse(arguments, known_flags(version))
        if "--onnx" in options:
            _build(trt, options, say)
        elif "--loadEngine" in options:
            infer(trt, _logger(trt, say), options, say, Stop)
        else:
            raise Stop("Model missing or format not recognized")
    except Stop as stop:
        for text in str(stop).splitlines():
            say("E", text)
        print(f"&&&& FAILED {line}", flush=True)
        return 1
    print(f"&&&& PASSED {line}", flush=True)
    return 0


def _logger(trt: Any, say: Say) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            letter = {"INTERNAL_ERROR": "F"}.get(severity.name, severity.name[0])
            for text in msg.splitlines():
                say(letter, text, "[TRT] ")

    return Logger()


def _build(trt: Any, options: dict[str, list[str]], say: Say) -> None:
    logger = _logger(trt, say)
    builder = trt.Builder(logger)
    flags = trt.NetworkDefinitionCreationFlag.__members__
    mask = 0
    if trt._double.build < (10,):
        mask |= 1 << int(flags["EXPLICIT_BATCH"])
    if "--stronglyTyped" in options and "STRONGLY_TYPED" in flags:
        mask |= 1 << int(flags["STRONGLY_TYPED"])
    network = builder.create_network(mask)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(options["--onnx"][0]):
        raise Stop(
            "Failed to parse onnx file\nParsing model failed\nFailed to create engine from model."
        )
    say("I", "Finished parsing network model. Parse time: 0.01")
    config = builder.create_builder_config()
    problem = configure(trt, builder, network, config, options)
    if problem:
        raise Stop(f"{problem}\nNetwork And Config setup failed\nBuilding engine failed")
    began = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise Stop("Engine could not be created from network\nBuilding engine failed")
    say("I", f"Engine built in {time.monotonic() - began:.3f} sec.")
    say("I", f"Created engine with size: {plan.nbytes / 2**20:.6g} MiB")
    if "--timingCacheFile" in options:
        Path(options["--timingCacheFile"][0]).write_bytes(
            bytes(config.get_timing_cache().serialize())
        )
    if "--saveEngine" in options:
        Path(options["--saveEngine"][0]).write_bytes(bytes(plan))
    if "--buildDLAStandalone" in options:
        say("I", "Skipped inference phase since --buildDLAStandalone is set.")
    else:
        _inspect(trt, logger, plan, options, config)
        skip = "--skipInference" in options or "--buildOnly" in options
        say(
            "I",
            "Skipped inference phase since --skipInference is set." if skip else "Inference ran",
        )


def _inspect(trt: Any, logger: Any, plan: Any, options: dict[str, list[str]], config: Any) -> None:
    if "--exportLayerInfo" not in options:
        return
    runtime = trt.Runtime(logger)
    if "--useDLACore" in options:
        runtime.DLA_core = int(options["--useDLACore"][0])
    runtime.engine_host_code_allowed = (
        "--versionCompatible" in options and "--excludeLeanRuntime" not in options
    )
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise Stop("Engine deserialization failed")
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    Path(options["--exportLayerInfo"][0]).write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
