"""The manifest's golden cases: seeds and ranges of inputs, blobs of outputs, tolerances."""

from __future__ import annotations

from typing import Mapping, Tuple

from . import _checks as check
from ._types import BlobEntry, GoldenCase, TensorEntry, nbytes

__all__ = ["parse_golden"]


def parse_golden(
    value: object,
    inputs: Tuple[TensorEntry, ...],
    outputs: Tuple[TensorEntry, ...],
    blobs: Mapping[str, BlobEntry],
    lanes: int,
) -> Tuple[GoldenCase, ...]:
    """Reads the golden cases; every output's blob is there and of the output's size.

    Raises:
        DeviceError: "manifest.invalid".
    """
    found = []
    for number, item in enumerate(check.array(value, "golden")):
        at = "golden[{}]".format(number)
        keys = ["seed", "inputs", "outputs", "tolerance"]
        if isinstance(item, dict) and "lane" in item:
            keys.append("lane")
        entry = check.record(item, at, keys)
        lane = None
        if "lane" in entry:
            lane = check.integer(entry["lane"], at + ".lane", 0, lanes - 1)
        ranges, wanted = {}, {}
        given = check.record(entry["inputs"], at + ".inputs", [tensor.name for tensor in inputs])
        for name, bounds in given.items():
            spot = "{}.inputs.{}".format(at, name[:80])
            pair = check.record(bounds, spot, ("low", "high"))
            low = check.number(pair["low"], spot, -3e38, 3e38)
            ranges[name] = (low, check.number(pair["high"], spot, low, 3e38))
        results = check.record(entry["outputs"], at + ".outputs", [t.name for t in outputs])
        for tensor in outputs:
            spot = "{}.outputs.{}".format(at, tensor.name[:80])
            result = check.record(results[tensor.name], spot, ("blob", "dtype", "shape"))
            digest = check.digest(result["blob"], spot)
            if result["dtype"] != tensor.dtype or result["shape"] != list(tensor.shape):
                check.fail(spot, "type and shape differ from the output's")
            blob = blobs.get(digest)
            if blob is None or blob.bytes != nbytes(tensor.dtype, tensor.shape):
                check.fail(spot, "no blob of this digest and size")
            wanted[tensor.name] = digest
        tolerance = check.record(entry["tolerance"], at + ".tolerance", ("relative",))
        relative = check.number(tolerance["relative"], at + ".tolerance", 0, 1e9)
        seed = check.integer(entry["seed"], at + ".seed", 0, (1 << 63) - 1)
        found.append(GoldenCase(seed, ranges, wanted, relative, lane))
    return tuple(found)
