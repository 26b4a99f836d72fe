"""TensorRT's calibration caches: text, one tensor a line."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import replacing
from edgekit.errors import DataError
from edgekit.quantize._groups import share
from edgekit.quantize._scales import hex_of, make_scales

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.quantize._types import Scales

__all__ = ["read_cache", "tensorrt_number", "write_cache"]

_HEX_DIGITS = 8


def read_cache(path: str | Path, network: Network) -> Scales:
    """Reads a calibration cache for ``network``.

    The format is TensorRT's (readScalesFromCalibrationCache): a line ``TRT-8600-...``, then
    ``NAME: HEX`` with the big-endian float32 bits of amax / 127, leading zeros left out. Names
    may hold colons, so a line is split at the last one. Tensors that must share a scale with a
    listed one (pooling, concatenation, shuffles) get it; the others are in ``missing``.

    Raises:
        DataError: The file cannot be read, is not a cache, or names no tensor of the network.
    """
    source = Path(path)
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read the calibration cache: {getattr(error, 'strerror', None) or error}",
            code="cache.unreadable",
            where=str(path),
            hint="give the text file that TensorRT's calibrator or edgekit calibrate wrote",
        ) from error
    if not lines or not lines[0].startswith("TRT-"):
        raise DataError(
            "this is not a TensorRT calibration cache",
            code="cache.header",
            where=f"{path}:1",
            hint="the first line reads like TRT-8600-EntropyCalibration2",
        )
    found: dict[str, float] = {}
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            name, scale = _parse(line, f"{path}:{number}")
            # TensorRT writes 0 for a tensor it has no range for
            if scale > 0:
                found[name] = scale
    floats = [name for name, tensor in network.tensors.items() if tensor.dtype == "float32"]
    own = {name: found[name] for name in floats if name in found}
    if not own:
        raise DataError(
            "the calibration cache names no tensor of this network",
            code="cache.foreign",
            where=str(path),
            hint=f"it lists {len(found)} tensors, such as {next(iter(found), 'none')!r}; "
            f"the network has {floats[0]!r}"
            if floats
            else "the network has no float tensors",
        )
    inferred = {name: value for name, value in share(network, own).items() if name not in own}
    scales = {**own, **inferred}
    missing = tuple(name for name in floats if name not in scales)
    data = f"calibration cache {source.name}, {len(own)} of {len(floats)} tensors"
    return make_scales(scales, method="cache", data=data, missing=missing)


def _parse(line: str, where: str) -> tuple[str, float]:
    name, colon, digits = line.rpartition(":")
    digits = digits.strip()
    try:
        if not colon or not name or len(digits) > _HEX_DIGITS:
            raise ValueError
        scale = float(struct.unpack(">f", int(digits, 16).to_bytes(4, "big"))[0])
    except (ValueError, OverflowError):
        raise DataError(
            f"cannot read {line[:80]!r}",
            code="cache.line",
            where=where,
            hint="a line is NAME: HEX, the float32 bits of the scale, such as input: 3c010a14",
        ) from None
    if not math.isfinite(scale) or scale < 0:
        raise DataError(
            f"tensor {name!r} has the scale {scale}",
            code="cache.scale",
            where=where,
            hint="a scale is a positive number: the largest magnitude divided by 127",
        )
    return name, scale


def tensorrt_number(version: str) -> int:
    """Returns NV_TENSORRT_VERSION: "8.6.2" is 8602, and since version 10, "10.3" is 100300.

    Raises:
        DataError: ``version`` is not up to three numbers with dots.
    """
    try:
        major, minor, patch = [*map(int, version.split(".")), 0, 0][:3]
    except ValueError:
        raise DataError(
            f"{version!r} is not a TensorRT version",
            code="tensorrt.version",
            hint="write it like 8.6.2 or 10.3",
        ) from None
    if major >= 10:
        return major * 10000 + minor * 100 + patch
    return major * 1000 + minor * 100 + patch


def write_cache(scales: Scales, path: str | Path, tensorrt: str) -> None:
    """Writes a cache that IInt8EntropyCalibrator2, the calibrator DLA needs, reads back.

    The algorithm in the header is always EntropyCalibration2, whatever measured the scales:
    TensorRT ignores a cache whose header names another calibrator than the one asking.

    Raises:
        DataError: A tensor name has a line break, or the file cannot be written.
    """
    lines = [f"TRT-{tensorrt_number(tensorrt)}-EntropyCalibration2"]
    for name, scale in scales.scales.items():
        if "\n" in name or "\r" in name:
            raise DataError(
                f"tensor name {name!r} has a line break, which a calibration cache cannot hold",
                code="cache.name",
                where=name,
                hint="rename the tensor in the model",
            )
        lines.append(f"{name}: {hex_of(scale)}")
    target = Path(path)
    try:
        with replacing(target) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"cannot write the calibration cache: {error.strerror}",
            code="cache.unwritable",
            where=str(path),
            hint="check the folder and its free space",
        ) from error
