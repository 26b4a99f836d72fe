"""Memory of every loadable against the limits, and of a core."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from edgekit.dla.explanation import explain
from edgekit.dla.judge import judge
from edgekit.dla.memory import (
    LoadableMemory,
    RawMemory,
    core_memory,
    drop_oversized,
    pool_disputes,
    predict_need,
    report_memory,
)
from edgekit.dla.verdicts import Judgement, LoadableCandidate, MemoryNeed
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.check_document import judged_layers
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import read, write
from tests.counted_work import lines_of

ORIN = get("jetson-agx-orin-64gb")
XAVIER = get("jetson-agx-xavier")
MIB = 1 << 20


def chain(shape: tuple[int, ...], count: int, maps: int = 0) -> Network:
    """Layers l0, l1, ... one after the other; 1x1 convolutions where ``maps`` is given."""
    tensors = {f"t{i}": Tensor(f"t{i}", shape, "float32") for i in range(count + 1)}
    params = {"kernel": (1, 1), "out_maps": maps, "groups": 1} if maps else {}
    kind = "CONVOLUTION" if maps else "ACTIVATION"
    layers = tuple(
        Layer(f"l{i}", kind, "x", (f"l{i}",), (f"l{i}",), (f"t{i}",), (f"t{i + 1}",), params)
        for i in range(count)
    )
    return Network("n", layers, tensors, ("t0",), (f"t{count}",))


def judged(
    groups: Sequence[Sequence[str]], precision: str = "int8", retained: int = 16
) -> Judgement:
    found = tuple(LoadableCandidate(tuple(g), i < retained) for i, g in enumerate(groups))
    return Judgement(ORIN.name, precision, "10.3", {}, found, {})


def test_a_report_says_layers_needs_and_raw_bytes() -> None:
    net = chain((1, 32, 64, 64), 3)
    (one,) = report_memory(net, judged([["l0", "l1", "l2"]]), ORIN)
    # t1 and t2 stay inside, each 128 KiB in CHW32, both alive while l1 runs
    assert (one.raw, one.broken) == (RawMemory(2 * 32 * 64 * 64, 0), ())
    assert one.need == predict_need(net, ["l2", "l0", "l1"], ORIN)
    document = write(one)
    assert json.loads(json.dumps(document)) == document
    assert read(LoadableMemory, document) == one
    assert document["raw"] == {"local_dram": 2 * 32 * 64 * 64, "global_dram": 0}
    assert document["limits"]["global_dram"] == 512 * MIB
    (half,) = report_memory(net, judged([["l0", "l1", "l2"]], "fp16"), ORIN)
    assert half.raw.local_dram == 2 * one.raw.local_dram


@pytest.mark.parametrize(("groups", "each"), [(1, 64), (64, 1), (2, 32)])
def test_a_group_has_weights_for_its_own_channels_only(groups: int, each: int) -> None:
    net = chain((1, 64, 8, 8), 1, maps=64)
    (layer,) = net.layers
    own = replace(layer, params={**layer.params, "groups": groups})
    (one,) = report_memory(replace(net, layers=(own,)), judged([["l0"]]), ORIN)
    assert one.raw.global_dram == 64 * each * 2 + 64 * 4  # kernels, and a bias a map


@pytest.mark.parametrize(("height", "broken"), [(4095, []), (4096, ["memory.internal"])])
def test_internal_tensors_stay_below_one_gib(height: int, broken: list[str]) -> None:
    """Two tensors of 32x4096x4096 INT8 are 1 GiB; one row less is just below."""
    net = chain((1, 32, height, 4096), 3)
    (one,) = report_memory(
        net, judged([["l0", "l1", "l2"]]), ORIN, MemoryNeed(MIB, 1 << 40, 1 << 40)
    )
    assert [b.rule for b in one.broken] == broken
    for found in one.broken:
        assert (found.pool, found.need, found.limit) == ("local_dram", 1 << 30, 1 << 30)
        assert found.source
        assert found.fix.startswith("use a smaller input size, or cut the network into more load")
        assert found.fix.partition(", or ")[2] in explain(found.rule).to_json()["fix"]


@pytest.mark.parametrize(
    ("layers", "disputed", "broken"),
    [
        (63, [], []),
        (64, ["memory.weights"], []),
        (127, ["memory.weights"], []),
        (128, [], ["memory.weights"]),
    ],
)
def test_weights_stay_below_512_mib(layers: int, disputed: list[str], broken: list[str]) -> None:
    """2048x2048 INT8 weights and FP19 biases: 4 MiB and 8 KiB a convolution, 8 MiB by a build."""
    net = chain((1, 2048, 4, 4), layers, maps=2048)
    names = [f"l{i}" for i in range(layers)]
    (one,) = report_memory(net, judged([names]), ORIN)
    assert one.raw.global_dram == layers * (8 * MIB + 8192)
    assert [b.rule for b in one.broken] == broken
    assert [b.rule for b in one.disputed] == disputed
    for found in (*one.broken, *one.disputed):
        assert found.documented == layers * (4 * MIB + 8192)
        assert "NvInfer.h" in found.source
        assert ("against: verbose TensorRT 10.3 build" in found.source) is bool(disputed)


@pytest.mark.parametrize(("channels", "retained"), [(8192, True), (16384, False)])
def test_one_layer_of_288_mib_is_disputed_and_has_a_fix(channels: int, retained: bool) -> None:
    """A 3x3 convolution to 4096 maps: 288 MiB of INT8 weights for 8192 channels."""
    tensors = {
        "x": Tensor("x", (1, channels, 4, 4), "float32"),
        "y": Tensor("y", (1, 4096, 4, 4), "float32"),
    }
    params = {"kernel": (3, 3), "out_maps": 4096, "groups": 1}
    layer = Layer("c", "CONVOLUTION", "Conv", ("c",), ("c",), ("x",), ("y",), params)
    net = Network("n", (layer,), tensors, ("x",), ("y",))
    (group,) = drop_oversized(net, [LoadableCandidate(("c",), True)], ORIN, "int8")
    assert group.retained is retained
    (one,) = report_memory(net, judged([["c"]]), ORIN)
    (limit,) = one.disputed if retained else one.broken
    assert limit.documented == 9 * 4096 * channels + 4 * 4096
    assert "split the weights of c along its output maps" in limit.fix
    assert "cut the network" not in limit.fix
    assert drop_oversized(net, [group], ORIN, "fp16")[0].retained is False


def one_conv(batch: int, side: int, channels: int = 64, maps: int = 64) -> Network:
    tensors = {
        "x": Tensor("x", (batch, channels, side, side), "float32"),
        "y": Tensor("y", (batch, maps, side, side), "float32"),
    }
    params = {"kernel": (3, 3), "out_maps": maps, "groups": 1}
    layer = Layer("c", "CONVOLUTION", "Conv", ("c",), ("c",), ("x",), ("y",), params)
    return Network("n", (layer,), tensors, ("x",), ("y",))


def remedy(net: Network, precision: str = "int8", limits: MemoryNeed | None = None) -> str:
    """What is told of the one limit that all layers break as one loadable."""
    names = [layer.name for layer in net.layers]
    (one,) = report_memory(net, judged([names], precision), ORIN, limits)
    (limit,) = (*one.broken, *one.disputed)
    assert (one.disputed == (limit,)) is ("; against: " in limit.source)
    return limit.fix


def test_the_tensors_of_one_layer_need_a_larger_pool_or_a_smaller_layer() -> None:
    """4 GiB of activations beside 74 KB of weights: no cut and no split of weights helps."""
    net = one_conv(32, 681)
    (one,) = report_memory(net, judged([["c"]], "fp16"), ORIN)
    (limit,) = one.broken
    assert (limit.pool, limit.rule, limit.need) == ("local_dram", "memory.pool", 4096 * MIB)
    assert limit.fix == (
        "use a smaller batch or input size for c, or ask for a larger local DRAM pool (edgekit "
        "plan --pool local_dram=4096MiB, trtexec --memPoolSize=dlaLocalDRAM:4096)"
    )
    assert "DETR" in limit.source
    larger = MemoryNeed(MIB, 4096 * MIB, 512 * MIB)
    assert report_memory(net, judged([["c"]], "fp16"), ORIN, larger)[0].broken == ()


def test_a_batch_of_one_has_no_smaller_one() -> None:
    fix = remedy(one_conv(1, 3800))
    assert fix.startswith("use a smaller input size for c, or ask for a larger local DRAM pool")


def test_int8_is_told_where_it_helps() -> None:
    assert remedy(one_conv(12, 681), "fp16").startswith("use INT8, use a smaller batch")
    assert "INT8" not in remedy(one_conv(32, 681), "fp16")
    assert "INT8" not in remedy(one_conv(32, 681), "int8")
    weights = one_conv(1, 4, 8192, 4096)  # 576 MiB in FP16, 288 in INT8
    assert remedy(weights, "fp16").startswith("use INT8, split the weights of c along its output")


def test_no_pool_is_larger_than_the_boards_memory() -> None:
    fix = remedy(one_conv(1024, 681))
    assert fix == (
        "use a smaller batch or input size: no pool of this board can hold the tensors of c"
    )


def test_more_loadables_are_told_where_no_layer_is_too_large_by_itself() -> None:
    tight = MemoryNeed(MIB, 8 * MIB, 512 * MIB)
    fix = remedy(chain((1, 32, 300, 300), 4), limits=tight)
    assert "cut the network into more loadables" in fix
    assert "local_dram=16MiB" in fix
    # the first layer reads 32 MiB and writes 64 KiB
    net = chain((1, 32, 32, 32), 3)
    net = replace(net, tensors={**net.tensors, "t0": Tensor("t0", (1, 32, 1024, 1024), "float32")})
    one_large = remedy(net, limits=tight)
    assert one_large.startswith("use a smaller input size for l0, or ask for a larger local DRAM")
    assert "loadables" not in one_large


def test_weights_of_several_layers_are_cut_and_those_of_one_are_split() -> None:
    fix = remedy(chain((1, 2048, 4, 4), 64, maps=2048))
    assert fix.startswith("cut the network into more loadables; no source")
    large = one_conv(1, 4, 16384, 4096)
    tensors = {**large.tensors, "z": Tensor("z", (1, 4096, 4, 4), "float32")}
    after = Layer("r", "ACTIVATION", "Relu", ("r",), ("r",), ("y",), ("z",), {})
    both = Network("n", (*large.layers, after), tensors, ("x",), ("z",))
    assert remedy(both).startswith("split the weights of c along its output maps, over more load")
    assert "batch" not in remedy(both)


def test_a_smaller_pool_is_disputed_likewise() -> None:
    """Weights of 8 MiB by a build and 4 MiB by their type, each with 8 KiB of biases."""
    net = chain((1, 2048, 4, 4), 1, maps=2048)
    for given, disputed, broken in ((16, 0, 0), (8, 1, 0), (4, 0, 1)):
        limits = MemoryNeed(MIB, 1 << 30, given * MIB)
        (one,) = report_memory(net, judged([["l0"]]), ORIN, limits)
        assert (len(one.disputed), len(one.broken)) == (disputed, broken)
        for found in (*one.disputed, *one.broken):
            assert (found.rule, found.need, found.documented) == ("memory.pool", 16 * MIB, 8 * MIB)


def test_a_pool_that_the_build_makes_smaller() -> None:
    net = chain((1, 32, 512, 512), 3)
    names = ["l0", "l1", "l2"]
    small = MemoryNeed(MIB, 16 * MIB, 4 * MIB)
    (one,) = report_memory(net, judged([names]), ORIN, small)
    assert [(b.pool, b.rule, b.need, b.limit) for b in one.broken] == [
        ("local_dram", "memory.pool", 32 * MIB, 16 * MIB)
    ]
    assert one.need.local_dram == 32 * MIB
    fits = MemoryNeed(MIB, 32 * MIB, 4 * MIB)
    assert report_memory(net, judged([names]), ORIN, fits)[0].broken == ()


def test_a_core_adds_up_dram_and_shares_sram() -> None:
    net = chain((1, 32, 64, 64), 4)
    report = report_memory(net, judged([["l0"], ["l2"], ["l3"]], retained=2), ORIN)
    assert core_memory(report) == MemoryNeed(MIB, 2 * 2 * MIB, 2 * 4 * MIB)
    assert core_memory([]) == MemoryNeed(0, 0, 0)


def test_generations_differ_where_the_sources_say() -> None:
    assert "0.5 MiB" in pool_disputes(ORIN)["managed_sram"]
    assert pool_disputes(XAVIER) == {}
    net = chain((1, 64, 4, 4), 1, maps=64)
    on_orin = report_memory(net, judged([["l0"]]), ORIN)[0]
    on_xavier = report_memory(net, judged([["l0"]]), XAVIER)[0]
    # 64 biases: FP19 in four bytes on Orin, two on Xavier
    assert on_orin.raw.global_dram - on_xavier.raw.global_dram == 64 * 2
    assert (on_orin.limits.managed_sram, on_xavier.limits.managed_sram) == (MIB, 4 * MIB)


def test_many_loadables_cost_no_more_than_one() -> None:
    """A walk over all layers for each would take minutes for 10,000 layers."""
    lines = []
    for layers in (250, 2000):
        net = chain((1, 8, 4, 4), layers)
        judgement = judged([[f"l{i}"] for i in range(0, layers, 2)], retained=layers // 2)
        assert len(report_memory(net, judgement, ORIN)) == layers // 2  # the first reads the rules
        lines.append(lines_of(lambda: report_memory(net, judgement, ORIN)))  # noqa: B023
    assert lines[1] < 9 * lines[0]


def test_a_candidate_over_a_limit_stays_on_the_gpu_and_says_why() -> None:
    """128 convolutions of 4 MiB and biases pass 512 MiB; 127 do not."""
    for layers, rule in ((127, ""), (128, "memory.weights")):
        net = chain((1, 2048, 4, 4), layers, maps=2048)
        found = judge(net, ORIN, precision="int8", tensorrt="10.3")
        assert all(verdict.ok for verdict in found.verdicts.values())
        assert [(group.retained, group.dropped) for group in found.candidates] == [(not rule, rule)]
        assert set(found.placed.values()) == {"GPU" if rule else "DLA"}
        listed = judged_layers(net, found)
        assert {layer.dropped for layer in listed} == {rule or None}
        assert {layer.loadable for layer in listed} == {None if rule else 0}


def test_more_loadables_are_not_told_where_one_layer_is_too_large() -> None:
    fix = remedy(chain((64, 32, 1024, 1024), 2))
    assert fix == (
        "use a smaller batch or input size: the tensors of l0 are too large for a loadable of its "
        "own, too"
    )


def test_a_slot_that_memory_frees_stays_empty() -> None:
    net = chain((1, 32, 3584, 4096), 6)
    groups = [LoadableCandidate(("l0", "l1", "l2", "l3"), True), LoadableCandidate(("l5",), True)]
    groups.append(LoadableCandidate(("l4",), False, "memory.loadables"))
    held = drop_oversized(net, groups, ORIN, "int8")
    assert [(group.retained, group.dropped) for group in held] == [
        (False, "memory.pool"),
        (True, ""),
        (False, "memory.loadables"),
    ]
