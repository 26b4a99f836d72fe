"""Golden vectors: inputs that are the same on every machine, and the self-test against them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    integer,
    long_text,
    mapping,
    member,
    number,
    record,
    records,
    release_name,
    shape,
)
from edgekit_device.protocol.manifest import GoldenCase, Manifest, TensorEntry
from edgekit_device.runtime.deviation import Deviation
from edgekit_device.trust.bundle import Checked, read_checked

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.runtime.model import Model


_SHOWN = 3
_ERROR = number(0.0, 1.8e308)


@document(frozen=True)
class OutputDifference:
    """The deviation of an output from its golden output.

    Attributes:
        max_abs: The largest absolute error.
        relative: ``max_abs`` divided by the largest golden value.
        tolerance: The largest allowed ``relative``.
        shape: The output's shape if it differs from the golden shape; its errors are then 1.
    """

    max_abs: float = member(_ERROR)
    relative: float = member(_ERROR)
    tolerance: float = member(_ERROR)
    bit_equal: bool = member(flag)
    ok: bool = member(flag)
    shape: Optional[Tuple[int, ...]] = member(shape(), absent=None)

    @property
    def badness(self) -> Tuple[bool, bool, float]:
        """Orders differences; the worst is the largest."""
        return not self.ok, not self.bit_equal, self.relative


@document(frozen=True)
class ComparedCase:
    """A golden case's comparison; with several lanes the worst deviation of each output.

    Attributes:
        seed: Seed of the inputs.
        outputs: Deviations by output name.
        shapes: The inputs' sizes, for a bundle with several shapes.
    """

    seed: int = member(integer(0, (1 << 63) - 1))
    outputs: Mapping[str, OutputDifference] = member(mapping(record(OutputDifference)))
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)


@document(frozen=True)
class SelfTest:
    """The golden cases that were run: if each is correct, and if it is bit-equal."""

    ok: bool = member(flag)
    bit_equal: bool = member(flag)
    cases: Tuple[ComparedCase, ...] = member(records(ComparedCase))


@document(frozen=True)
class ReleaseSelfTest(SelfTest):
    """The answer of ``selftest``: with the release, and the notes of loading it."""

    release: str = member(release_name)
    notes: Tuple[str, ...] = member(array(long_text))


def golden_inputs(
    tensors: Sequence[TensorEntry],
    seed: int,
    ranges: Mapping[str, Tuple[float, float]],
    shapes: Optional[Mapping[str, Tuple[int, ...]]] = None,
) -> Dict[str, np.ndarray]:
    """Generates the inputs of a golden case.

    Value i of input n comes from ``u = (splitmix64(seed + 2**32 * n + i) >> 40) / 2**24``:
    ``low + (high - low) * u`` rounded to float32 after each operation for floating types, the
    floor of the same in float64 for integers, ``>= (low + high) / 2`` for bool.

    Args:
        tensors: The inputs in the manifest's order.
        seed: At least 0, below 2**63.
        ranges: (low, high) by input name.
        shapes: Other shapes than the inputs' own, by name.
    """
    import numpy as np

    found = {}
    for position, tensor in enumerate(tensors):
        low, high = ranges[tensor.name]
        sizes = (shapes or {}).get(tensor.name, tensor.shape)
        count = 1
        for size in sizes:
            count *= size
        # the sum wraps at 2**64 like the generator's own state
        start = np.array([(seed + (position << 32)) % (1 << 64)], dtype=np.uint64)
        # the upper 24 bits: a float32 represents each of these numbers exactly
        unit = _splitmix64(start + np.arange(count, dtype=np.uint64)) >> np.uint64(40)
        values = _scale(unit, tensor.dtype, low, high)
        found[tensor.name] = values.astype(tensor.dtype).reshape(sizes)
    return found


def _scale(unit: np.ndarray, dtype: str, low: float, high: float) -> np.ndarray:
    import numpy as np

    if dtype.startswith("float"):
        first = np.float32(low)
        spread = np.float32(high) - first
        # float32 operations only, so that every machine rounds alike
        scaled: np.ndarray = first + spread * (unit.astype(np.float32) * np.float32(2.0**-24))
        return scaled
    exact: np.ndarray = low + (high - low) * (unit.astype(np.float64) * 2.0**-24)
    return np.asarray(exact >= (low + high) / 2 if dtype == "bool" else np.floor(exact))


def _splitmix64(state: np.ndarray) -> np.ndarray:
    """Does one step of splitmix64 from each state (Vigna, https://prng.di.unimi.it/splitmix64.c)."""
    import numpy as np

    z = state + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def compare(found: np.ndarray, expected: np.ndarray, relative: float) -> OutputDifference:
    """Compares an output with its golden output: ok if max|a-b| <= relative * max|b|.

    NaN and infinity must be at the same places; integers and bools are compared as float64. If an
    output's channels differ in range, no group may collapse: an error that is small for the widest
    channels (boxes) may be as large as the others' values (scores).
    """
    import numpy as np

    if found.shape != expected.shape:
        return OutputDifference(1.0, 1.0, relative, False, False, found.shape)
    # bytes, not values: NaN differs from itself, and -0.0 equals 0.0
    bit_equal = found.tobytes() == expected.tobytes()
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same_places = bool(np.array_equal(np.isfinite(a), np.isfinite(b)))
    finite = np.isfinite(a) & np.isfinite(b)
    max_abs = float(np.max(np.abs(a[finite] - b[finite]))) if finite.any() else 0.0
    scale = float(np.max(np.abs(b[finite]))) if finite.any() else 0.0
    # golden values of 0 have no scale: the error is absolute
    error = max_abs / scale if scale else (0.0 if max_abs == 0 else max_abs)
    lost = False
    if not bit_equal and same_places:
        # only if bytes differ: the sums in double precision cost more than the comparison
        parts = Deviation(by_channel=True)
        parts.add(expected, found)
        lost = any(group.collapsed for group in parts.groups())
    ok = bit_equal or (same_places and not lost and max_abs <= relative * scale)
    return OutputDifference(max_abs, error, relative, bit_equal, ok)


def self_test(model: Model, checked: Checked, *, quick: bool = False) -> SelfTest:
    """Runs every golden case of every variant on its lane, or on every lane.

    Args:
        model: The loaded bundle.
        checked: The bundle.
        quick: True for only the first case of each variant that is loaded at the start.

    Raises:
        DeviceError: A golden output is missing or altered, or a segment fails.
    """
    cases = []
    for index, variant in enumerate(checked.manifest.every_variant):
        golden = variant.golden
        if quick:
            golden = golden[:1] if variant.load == "start" else ()
        if golden:
            # without padding: a frame's shape would otherwise select another variant
            with model.variant(index) as variant_model:
                cases += [_run_case(variant_model, checked, case) for case in golden]
    if len(model.variants) == 1 and not model.variants[0].profiles:
        cases = [replace(case, shapes={}) for case in cases]
    every = [facts for entry in cases for facts in entry.outputs.values()]
    return SelfTest(
        ok=all(facts.ok for facts in every),
        bit_equal=all(facts.bit_equal for facts in every),
        cases=tuple(cases),
    )


def _run_case(model: Model, checked: Checked, case: GoldenCase) -> ComparedCase:
    import numpy as np

    inputs = golden_inputs(model.inputs, case.seed, case.ranges, case.shapes)
    outputs: Dict[str, OutputDifference] = {}
    lanes = range(len(model.lanes)) if case.lane is None else [case.lane]
    for lane in lanes:
        results = model.run_lane(lane, inputs)
        for name, golden in case.outputs.items():
            data = read_checked(checked, golden.blob)
            expected = np.frombuffer(data, dtype=golden.dtype).reshape(golden.shape)
            facts = compare(results[name], expected, case.tolerance.relative)
            known = outputs.get(name)
            if known is None or facts.badness > known.badness:
                outputs[name] = facts
    return ComparedCase(case.seed, outputs, {name: array.shape for name, array in inputs.items()})


def need_golden(model: Model, checked: Checked, where: str) -> SelfTest:
    """Runs every golden case.

    Raises:
        DeviceError: "selftest.failed", with the worst of the outputs.
    """
    results = self_test(model, checked)
    if results.ok:
        return results
    bad = [
        _describe_fault(name, case, facts)
        for case in results.cases
        for name, facts in case.outputs.items()
        if not facts.ok
    ]
    raise DeviceError(
        "outputs differ from the golden ones: {}".format("; ".join(bad[:_SHOWN])),
        code="selftest.failed",
        where=where,
        hint="do not switch to this release; build it again for this board",
    )


def _describe_fault(name: str, case: ComparedCase, facts: OutputDifference) -> str:
    fed = ", ".join(
        "{} {}".format(input_name, list(sizes)) for input_name, sizes in case.shapes.items()
    )
    which = "{!r} of seed {}{}".format(name, case.seed, " for " + fed if fed else "")
    if facts.shape is not None:
        return "{} has another shape: {}".format(which, list(facts.shape))
    return "{} is off by {:.3g} (limit {:.3g}){}".format(
        which,
        facts.relative,
        facts.tolerance,
        ", which exceeds the values of its smaller channels" * (facts.relative <= facts.tolerance),
    )


def make_frame(
    manifest: Manifest, sizes: Optional[Mapping[str, Tuple[int, ...]]] = None
) -> Dict[str, np.ndarray]:
    """Returns a frame to measure with: the first golden case's inputs, else values from 0 to 1."""
    if manifest.golden:
        case = manifest.golden[0]
        return golden_inputs(manifest.inputs, case.seed, case.ranges, sizes or case.shapes)
    unit = {tensor.name: (0.0, 1.0) for tensor in manifest.inputs}
    return golden_inputs(manifest.inputs, 0, unit, sizes)
