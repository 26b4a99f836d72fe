"""The network that the builder gets: parsed from ONNX, its inputs and outputs set as asked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, List, Mapping, Tuple

from ._build_types import EngineSpec, IoSpec
from ._errors import DeviceError, map_os_errors

__all__ = ["DTYPES", "create", "io_faults", "model_file", "parse", "set_io"]

#: NumPy's names by trt.DataType's; types that NumPy lacks have the names that manifests use.
DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64",
    "BOOL": "bool", "UINT8": "uint8", "BF16": "bfloat16",
}  # fmt: skip
_NAMES = {numpy: name for name, numpy in DTYPES.items()}

# formats of a loadable's tensors: NVIDIA's guide, "DLA runtime configuration"
_STANDALONE: Mapping[Tuple[str, str], Tuple[str, ...]] = {
    ("input", "float16"): ("DLA_LINEAR", "DLA_HWC4", "CHW16"),
    ("input", "int8"): ("DLA_LINEAR", "DLA_HWC4", "CHW32"),
    ("output", "float16"): ("DLA_LINEAR", "CHW16"),
    ("output", "int8"): ("DLA_LINEAR", "CHW32"),
}
_SHOWN = 10
_INT8_MAX = 127.0


def create(trt: Any, builder: Any, spec: EngineSpec) -> Any:
    """An empty network of the kinds that the release has: explicit batch, strongly typed."""
    flags = 0
    # gone since 11.0, where every network is of explicit batch and strongly typed
    known = trt.NetworkDefinitionCreationFlag
    if hasattr(known, "EXPLICIT_BATCH"):
        flags |= 1 << int(known.EXPLICIT_BATCH)
    if spec.typing == "strong" and hasattr(known, "STRONGLY_TYPED"):
        flags |= 1 << int(known.STRONGLY_TYPED)
    return builder.create_network(flags)


def parse(
    trt: Any, network: Any, logger: Any, model: Path, key: str, *, native: bool = False
) -> Any:
    """Parses an ONNX file into the network.

    Args:
        trt: TensorRT's module.
        network: The empty network.
        logger: The builder's.
        model: The file; what it keeps outside lies beside it.
        key: The engine's, for messages.
        native: Whether normalisations must not be plugins, as in version compatible plans
            (OnnxParserFlag.NATIVE_INSTANCENORM in NvOnnxParser.h).

    Returns:
        The parser, which must live as long as the network: the weights are its memory.

    Raises:
        DeviceError: "build.parser", with every error of the parser.
    """
    # some operators are plugins of TensorRT's own, which trtexec registers first too
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    parser = trt.OnnxParser(network, logger)
    if native and hasattr(getattr(trt, "OnnxParserFlag", None), "NATIVE_INSTANCENORM"):
        parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    if not parser.parse_from_file(str(model)) or parser.num_errors:
        errors = [_parser_error(parser.get_error(n)) for n in range(parser.num_errors)]
        more = len(errors) - _SHOWN
        raise DeviceError(
            "TensorRT cannot read the model: {}{}".format(
                "; ".join(errors[:_SHOWN]) or "its parser does not say why",
                "; and {} more".format(more) if more > 0 else "",
            ),
            code="build.parser",
            where=key,
            hint="`edgekit check` says what the release cannot take; `edgekit rewrite` may mend it",
        )
    return parser


def _parser_error(error: Any) -> str:
    text = " ".join(str(error.desc()).split())
    # node_name and node_operator came with 10.0
    name = str(error.node_name()) if hasattr(error, "node_name") else ""
    operator = str(error.node_operator()) if hasattr(error, "node_operator") else ""
    if name or operator:
        place = "node {!r} ({})".format(name, operator) if operator else "node {!r}".format(name)
    else:
        place = "node {}".format(error.node()) if error.node() >= 0 else "the file"
    return "{}: {} ({})".format(place, text, error.code().name)


def io_faults(spec: EngineSpec, scales: Mapping[str, float]) -> List[str]:
    """What is wrong with a loadable's inputs and outputs, before anything is built."""
    if not spec.standalone:
        return []
    faults = []
    for mode, tensors in (("input", spec.inputs), ("output", spec.outputs)):
        for io in tensors:
            legal = _STANDALONE.get((mode, io.dtype))
            if legal is None:
                faults.append(
                    "{} {!r} is {}: a loadable has float16 and int8".format(mode, io.name, io.dtype)
                )
            elif len(io.formats) != 1 or io.formats[0] not in legal:
                faults.append(
                    "{} {!r} ({}) needs one format of {}, not {}".format(
                        mode, io.name, io.dtype, ", ".join(legal), ", ".join(io.formats) or "none"
                    )
                )
            if io.dtype == "int8" and spec.typing == "weak" and _scale(io, scales) is None:
                faults.append("{} {!r} is int8 and has no scale".format(mode, io.name))
    return faults


def set_io(trt: Any, network: Any, spec: EngineSpec, scales: Mapping[str, float]) -> None:
    """Sets types, formats and ranges of the network's inputs and outputs.

    An INT8 tensor without Q/DQ layers gets the range +-127 * scale, as trtexec sets it from the
    calibration cache (setTensorScalesFromCalibration in samples/common/sampleEngines.cpp).

    Raises:
        DeviceError: "build.io", with everything that does not fit.
    """
    faults: List[str] = []
    for mode, count, get, wanted in (
        ("input", network.num_inputs, network.get_input, spec.inputs),
        ("output", network.num_outputs, network.get_output, spec.outputs),
    ):
        found = {}
        for n in range(count):
            tensor = get(n)
            found[tensor.name] = tensor
        names = {io.name for io in wanted}
        faults += ["the model has no {} {!r}".format(mode, n) for n in sorted(names - set(found))]
        faults += ["the model's {} {!r} was not asked for".format(mode, n)
                   for n in sorted(set(found) - names)]  # fmt: skip
        for io in wanted:
            if io.name in found:
                _set_one(trt, found[io.name], io, mode, spec.typing == "weak", scales, faults)
    if faults:
        raise DeviceError(
            "; ".join(faults),
            code="build.io",
            where=spec.key,
            hint="the request and the model belong to different plans, or the release "
            "cannot have these types: build again with `edgekit build`",
        )


def _set_one(
    trt: Any,
    tensor: Any,
    io: IoSpec,
    mode: str,
    weak: bool,
    scales: Mapping[str, float],
    faults: List[str],
) -> None:
    shape = tuple(tensor.shape)
    if len(shape) != len(io.shape) or any(
        have not in (-1, want) and want != -1
        for have, want in zip(shape, io.shape)  # noqa: B905
    ):
        faults.append(
            "{} {!r} is {}, not {}".format(mode, io.name, list(shape), list(io.shape))
        )  # fmt: skip
    if tensor.dtype.name != _NAMES.get(io.dtype):
        if weak and hasattr(trt.DataType, _NAMES.get(io.dtype, "")):
            tensor.dtype = getattr(trt.DataType, _NAMES[io.dtype])
        else:
            # the types of a strongly typed network are those of the model
            have = DTYPES.get(tensor.dtype.name, tensor.dtype.name)
            faults.append("{} {!r} is {}, not {}".format(mode, io.name, have, io.dtype))
    mask = 0
    for name in io.formats:
        if hasattr(trt.TensorFormat, name):
            mask |= 1 << int(getattr(trt.TensorFormat, name))
        else:
            faults.append("{} {!r}: this release has no format {}".format(mode, io.name, name))
    if mask:
        tensor.allowed_formats = mask
    scale = _scale(io, scales)
    if weak and io.dtype == "int8" and scale is not None:
        tensor.set_dynamic_range(-_INT8_MAX * scale, _INT8_MAX * scale)


def _scale(io: IoSpec, scales: Mapping[str, float]) -> Any:
    scale = io.scale if io.scale is not None else scales.get(io.name)
    return scale if scale else None


def model_file(folder: Path, model: Path, data: Mapping[str, Path]) -> Path:
    """The model under a name beside the files that it keeps its weights in.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    file = folder / "model.onnx"
    with map_os_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            try:
                os.link(str(model), str(file))
            except OSError:
                shutil.copyfile(str(model), str(file))
        for name, source in data.items():
            # a copy: readers of ONNX refuse outside data behind links of either kind
            if not (folder / name).exists():
                shutil.copyfile(str(source), str(folder / name))
    return file
