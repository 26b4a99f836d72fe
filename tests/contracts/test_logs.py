"""What edgekit reads in builders' logs, and what it finds beside its own prediction: golden."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit_device.protocol.codec import write
from tests.buildlog.logs import lines, text
from tests.buildlog.nets import classifier, judged, ladder
from tests.contracts.brief import brief
from tests.contracts.conftest import Golden
from tests.network.onnx_making import make, node, values

VERBOSE = "trt103_trtexec_verbose.log"
DLA = "[I] [TRT] ---------- Layers Running on DLA ----------"
GPU = "[I] [TRT] ---------- Layers Running on GPU ----------"
NO_CORE = "[I] DLACore: "
RANGED = (
    "[W] [TRT] DLA requests all profiles have same min, max, and opt value. "
    "All dla layers are falling back to GPU"
)


def unsupported(layer: str, kind: str) -> str:
    return f"[W] [TRT] Layer '{layer}' ({kind}): Unsupported on DLA. Switching ..."


def swapped() -> list[str]:
    """Of the verbose log, with a ReLU on the GPU and the average on the DLA."""
    found = text(VERBOSE)
    for old, new in (
        ("[DlaLayer] /stem/Relu", "[GpuLayer] ACTIVATION: /stem/Relu"),
        (".../stem/Relu", ""),
        ("Layer(ACTIVATION): /stem/Relu,", "Layer(REDUCE): /pool/GlobalAveragePool,"),
        ("[GpuLayer] REDUCE: /pool/GlobalAveragePool", "[DlaLayer] /pool/GlobalAveragePool"),
    ):
        found = found.replace(old, new)
    return found.splitlines()


def of_another_network() -> list[str]:
    found = [line for line in lines("trt85_python.log") if "/stem" not in line]
    return [line for line in found if "Layers Running" not in line and "[GpuL" not in line]


EMPTY = [DLA, GPU, "[I] [TRT] [GpuLayer] CONVOLUTION: /stem/Conv + /stem/Relu"]
EMPTY += ["[I] [TRT] [GpuLayer] REDUCE: /pool/GlobalAveragePool"]
ALONE = [NO_CORE, DLA, "[I] [TRT] [GpuLayer] /stem/Conv + /stem/Relu"]
REFUSED = ["[W] [TRT] /stem/Relu: Activation type: HARD_SIGMOID is not supported on DLA"]
REFUSED += [unsupported("/stem/Relu", "ACTIVATION")]
RUNGS = [
    DLA,
    *(f"[V] [TRT] [DlaLayer] {name}" for name in ("c0", "c1", "c2", "extra", "c3")),
    GPU,
    *(f"[V] [TRT] [GpuLayer] REDUCE: m{index}" for index in range(4)),
]
OFFLOADED = [
    "[V] [TRT] {ForeignNode[c2...extra]} successfully offloaded to DLA.",
    "[V] [TRT] {ForeignNode[c3]} successfully offloaded to DLA.",
    "[V] [TRT] Number of DLA node candidates offloaded : 2 out of 4",
]
SPANS = [
    DLA,
    "[I] [TRT] [DlaLayer] {ForeignNode[c0...c3]}",
    "[I] [TRT] [DlaLayer] {ForeignNode[c1]}",
    GPU,
    *(f"[I] [TRT] [GpuLayer] m{index}" for index in range(4)),
]
FUSED = [DLA, "[I] [TRT] [DlaLayer] {ForeignNode[/head/Gemm]}", GPU]
FUSED += ["[I] [TRT] [GpuLayer] PWN(/stem/Conv + /stem/Relu, (Unnamed Layer* 3) [Shuffle])"]
KEPT = [unsupported("k", "CONSTANT"), DLA, "[V] [TRT] [DlaLayer] {ForeignNode[relu...largest]}"]
KEPT += [GPU, "[V] [TRT] [GpuLayer] CONSTANT: k"]


def kept_constant() -> Network:
    nodes = [node("Relu", "x", "r", name="relu"), node("Max", "r k", "y", name="largest")]
    proto = make(nodes, {"x": [1, 4, 3, 3]}, ["y"], {"k": values([1, 4, 3, 3])})
    return layers(canonical(proto, None))


def test_a_log_is_compared_with_the_prediction(golden: Golden, tmp_path: Path) -> None:
    for name in ("new", "old", "ladder"):
        (tmp_path / name).mkdir()
    net, rungs = classifier(tmp_path / "new"), ladder(tmp_path / "ladder", 4)
    output = net.layer("/stem/Conv").outputs[0]
    other = text(VERBOSE).replace("8.7", "7.2").replace("Device Types: ", "Device Types: a:GPU")
    cases: dict[str, tuple[Network, list[str], dict[str, Any]]] = {
        "verbose": (net, lines(VERBOSE), {}),
        **{
            f"a pool of {size} MiB": (
                net,
                text(VERBOSE)
                .replace("Global DRAM = 4 MiB", f"Global DRAM = {size} MiB")
                .splitlines(),
                {},
            )
            for size in (1, 2, 8)
        },
        "both ways": (net, swapped(), {}),
        "an empty list": (net, EMPTY, {}),
        "an empty list without a request": (net, [NO_CORE, *EMPTY], {}),
        "no list": (net, EMPTY[1:], {}),
        "a refusal": (net, REFUSED, {}),
        "names of 8": (
            classifier(tmp_path / "old", names="old"),
            lines("trt84_trtexec_info.log"),
            {"tensorrt": "8.4.1"},
        ),
        "slots": (rungs, [*RUNGS, *OFFLOADED], {"max_loadables": 2}),
        "no slots": (
            rungs,
            [*RUNGS, "[V] [TRT] Number of DLA node candidates offloaded : 0 out of 4"],
            {},
        ),
        "spans": (rungs, SPANS, {}),
        "fused names": (net, FUSED, {}),
        "unnamed": (net, [unsupported(f"node_of_{output}", "CONVOLUTION")], {}),
        "built otherwise": (net, other.splitlines(), {"precision": "fp16", "tensorrt": "8.6.2"}),
        "a full release": (net, lines(VERBOSE), {"tensorrt": "10.3.0.30"}),
        "for the GPU": (net, ALONE, {}),
        "with a core": (net, ["[I] DLACore: 0", *ALONE[1:]], {}),
        "partly of another network": (net, lines("trt85_python.log"), {}),
        "of another network": (net, of_another_network(), {}),
        "with a name of every network": (
            net,
            [*of_another_network(), unsupported("ONNXTRT_Broadcast", "SHUFFLE")],
            {},
        ),
        "a constant that stays": (kept_constant(), KEPT, {}),
        "profiles with a range": (net, [RANGED], {}),
    }
    found = {
        name: brief(compare(one, judged(one, **options), parse_log(log)).to_json())
        for name, (one, log, options) in cases.items()
    }
    golden("texts/compared-logs", found)


def cut(end: str) -> list[str]:
    whole = text(VERBOSE)
    return whole[: whole.index(end)].splitlines()


def test_logs_are_read(golden: Golden) -> None:
    old = lines("trt7_deepstream.log")
    at = next(index for index, line in enumerate(old) if "running on DLA" in line) + 1
    python = lines("trt85_python.log")
    third = ["&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --useDLACore=0"]
    cases = {
        "before the members": cut("DLA Network Layer Information"),
        "before the pools": cut("DLA Memory Pool Sizes"),
        "before the lists": cut("---------- Layers Running on DLA"),
        "names with dots": [
            DLA,
            *(f"[V] [TRT] [DlaLayer] {name}" for name in ("a...b", "c", "d")),
            "[V] [TRT] {ForeignNode[a...b...d]} successfully offloaded to DLA.",
        ],
        "a list after another program's line": [*old[:at], "RAM 1/2 NVDLA0_FREQ @1", *old[at:]],
        "two builds": [*python, *(re.sub("/stem", "/trunk", line) for line in python)],
        "a third without lists": [*python, *third, unsupported("z", "CAST")],
        "ranges twice": [RANGED, RANGED],
        "no layer for the DLA": [
            "[W] [TRT] setDefaultDeviceType was called but no layer in the network can run on DLA."
        ],
        "no DLA": [
            "trtexec --onnx=m.onnx --useDLACore=0 --int8",
            "[E] Cannot create DLA engine, 0 not available",
        ],
        "the GPU": [NO_CORE, DLA, "[I] [TRT] [GpuLayer] Conv_0"],
        "no fallback": [
            "[E] Error[2]: [x.cpp::f::1] Assertion allowGPUFallback failed. Layer 'grid' is not "
            "supported on DLA but GPU fallback is not enabled.)"
        ],
        **{
            said: [said]
            for said in (
                "[I] TensorRT version: 8.5.2",
                "[I] TensorRT version: 8502",
                "TensorRT: starting export with TensorRT 8.5.2.2...",
                "[TRT]    TensorRT version 8.4.1",
                "TensorRT 10.3.0",
                "[I] TensorRT version: many",
                *(
                    f"&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] # trtexec --best"
                    for number in ("7103", "8502", "8612", "100300", "110401")
                ),
            )
        },
    }
    golden("texts/read-logs", {name: brief(write(parse_log(log))) for name, log in cases.items()})
