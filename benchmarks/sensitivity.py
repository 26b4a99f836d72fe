"""Sensitivity in one pass beside a build for each kernel: processor seconds and the same numbers.

    python benchmarks/sensitivity.py [--model light_squeezenet] [--samples 4] [--naive 8]

The naive way builds the network with one kernel in INT8 and all others in FP32 and compares it with
FP32 (edgekit.build's build_reference and accuracy), for each kernel anew. A lean one would at least
keep the FP32 results: its figure leaves out the time of FP32. Both are run for ``--naive`` kernels,
spread evenly over the ranking, and scaled up to all kernels. They are no test and depend on the
machine's other work, so processor seconds count. Seen on a server shared with other work (two slow
cores):

    light_squeezenet, 38 INT8 kernels, 4 inputs
    one pass                 1.9 s of processor, peak 473 MB
    a build a kernel        12.6 s of processor: 6.5 times as much
    without FP32 in it       9.9 s of processor: 5.1 times as much
    largest difference of an SNR over 8 kernels: 0.000 dB

    light_resnet50, 56 INT8 kernels, 2 inputs
    one pass                12.4 s of processor, peak 1247 MB
    a build a kernel        88.1 s of processor: 7.1 times as much
    without FP32 in it      66.7 s of processor: 5.4 times as much
    largest difference of an SNR over 6 kernels: 0.099 dB
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.network.session import session
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.zoo import builtin
from edgekit.placement.placing import place
from edgekit.placement.plan import Plan
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.reference.accuracy import accuracy
from edgekit.reference.build import build_reference
from edgekit.reference.sensitivity import analyse
from edgekit.targets.loader import get

# in a build in which their neighbours are FP32 they move floats, so there is no comparison
MOVES = {"CONCATENATION", "RESIZE", "SHUFFLE", "SLICE"}


def quantise_only(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan on a DLA with these layers in INT8 and all others in FP32."""
    placed = tuple(
        replace(x, device="DLA0", precision="int8" if x.name in names else "fp32")
        for x in plan.layers
    )
    return replace(plan, layers=placed, plans=(replace(plan.plans[0], share=1.0, layers=placed),))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="light_squeezenet")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--naive", type=int, default=8)
    options = parser.parse_args()
    board = get("jetson-agx-orin-64gb")
    model = builtin(options.model)
    network = layers(model)
    plan = place(network, judge(network, board), board, precision="int8")
    placed = tuple(replace(x, device="DLA0", segment=0) for x in plan.layers)
    plan = replace(plan, layers=placed, plans=(replace(plan.plans[0], share=1.0, layers=placed),))
    data = list(synthetic_inputs(model, options.samples))
    scales = calibrate(model, network, data, method="minmax")

    before, wall = time.process_time(), time.perf_counter()
    found = analyse(cut_segments(model, network, plan), scales, data)
    ours, wall = time.process_time() - before, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    count = len(found.impacts)
    print(f"{options.model}, {count} INT8 kernels, {options.samples} inputs")
    print(f"one pass            {ours:8.1f} s of processor, {wall:.1f} s, peak {peak:.0f} MB")

    reference = session(model)
    before = time.process_time()
    for feed in data:
        reference.run(None, dict(feed))
    fp32 = time.process_time() - before

    chosen = found.impacts[:: max(1, count // options.naive)][: options.naive]
    before, apart = time.process_time(), 0.0
    kinds = {layer.name: layer.kind for layer in network.layers}
    for item in chosen:
        built = build_reference(
            cut_segments(model, network, quantise_only(plan, item.layers)), scales
        )
        whole = accuracy(model, built, data).snr_db
        moves = {kinds.get(name, "SHUFFLE") for name in item.layers} <= MOVES
        if whole is not None and item.snr_db is not None and not moves:
            apart = max(apart, abs(whole - item.snr_db))
    naive = (time.process_time() - before) / len(chosen) * count
    lean = naive - fp32 * count
    print(f"a build a kernel    {naive:8.1f} s of processor: {naive / ours:.1f} times as much")
    print(f"without FP32 in it  {lean:8.1f} s of processor: {lean / ours:.1f} times as much")
    print(f"largest difference of an SNR over {len(chosen)} kernels: {apart:.3f} dB")


if __name__ == "__main__":
    main()
