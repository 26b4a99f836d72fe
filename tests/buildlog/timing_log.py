"""Writes verbose build logs in the builder's grammar, with names and numbers of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Combos = Sequence[tuple[Sequence[str], Sequence[str], float | None]]

V = "[01/02/2026-03:04:05] [V] [TRT] "
I_ = "[01/02/2026-03:04:05] [I] "
RUN = (
    "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=toy.onnx --int8 --fp16 "
    "--verbose"
)
BOARD = (
    I_ + "Precision: FP32+FP16+INT8",
    I_ + "Input(s)s format: fp32:CHW",
    I_ + "Output(s)s format: fp32:CHW",
    I_ + "Selected Device: Orin",
    I_ + "Compute Capability: 8.7",
    I_ + "SMs: 16",
    I_ + "TensorRT version: 10.3.0",
)


def header(*lines: str) -> list[str]:
    return [RUN, *BOARD, *lines]


def network(
    inputs: Mapping[str, Sequence[int]],
    nodes: Iterable[tuple[str, str, Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]]],
    outputs: Sequence[str],
) -> list[str]:
    """What the ONNX parser prints."""
    lines = [
        f"{V}Adding network input: {name} with dtype: float32, dimensions: {_dims(shape)}"
        for name, shape in inputs.items()
    ]
    for name, kind, reads, writes in nodes:
        for side, tensors in (("inputs", reads), ("outputs", writes)):
            listed = "".join(f"[{t} -> {_dims(shape)}[FLOAT]], " for t, shape in tensors.items())
            lines.append(f"{V}{name} [{kind}] {side}: {listed}")
    return lines + [f"{V}Marking {name}_1 as output: {name}" for name in outputs]


def unit(name: str, runner: str, combos: Combos, *, heading: bool = True) -> list[str]:
    """Timings of a unit; None as time is what the builder takes from its cache."""
    lines = [f"{V}=============== Computing costs for {name if heading else ''}".rstrip()]
    for reads, writes, us in combos:
        lines += combination(name, runner, reads, writes, us)
    return lines


def combination(
    name: str, runner: str, reads: Sequence[str], writes: Sequence[str], us: float | None
) -> list[str]:
    pair = f"{', '.join(reads)} -> {', '.join(writes)}"
    lines = [f"{V}*************** Autotuning format combination: {pair} ***************"]
    if us is None:
        return lines
    ms = f"{us / 1e3:.6g}"
    return [
        *lines,
        f"{V}--------------- Timing Runner: {name} ({runner}[0x80000016])",
        f"{V}Tactic: 0x0000000000000003 Time: {us / 500:.6g}",
        f"{V}Tactic: 0x0000000000000001 Time: {ms}",
        f"{V}{name} ({runner}[0x80000016]) profiling completed in 0.01 seconds. "
        f"Fastest Tactic: 0x0000000000000001 Time: {ms}",
        f"{V}>>>>>>>>>>>>>>> Chose Runner Type: {runner} Tactic: 0x0000000000000001",
    ]


def reformats(
    tensor: str, pairs: Mapping[tuple[str, str], float], *, outward: bool = False
) -> list[str]:
    what = f"<in> -> {tensor}" if outward else f"{tensor} -> <out>"
    lines = [f"{V}=============== Computing reformatting costs for available format set"]
    for (source, goal), us in pairs.items():
        ms = f"{us / 1e3:.6g}"
        lines += [
            f"{V}*************** Autotuning Reformat: {source} -> {goal} ***************",
            f"{V}--------------- Timing Runner: Optimizer Reformat({what}) (Reformat[0x80000006])",
            f"{V}Tactic: 0x00000000000003e8 Time: {ms}",
            f"{V}Optimizer Reformat({what}) (Reformat[0x80000006]) profiling completed in 0.01 "
            f"seconds. Fastest Tactic: 0x00000000000003e8 Time: {ms}",
        ]
    return lines


def chosen(*layers: tuple[str, str, str, str]) -> list[str]:
    """The builder's choice: (unit, tensor, source, goal)."""
    lines = [
        f"{V}Adding reformat layer: Reformatted Input Tensor 0 to {name} ({tensor}) "
        f"from {source} to {goal}"
        for name, tensor, source, goal in layers
    ]
    return [*lines, f"{V}Formats and tactics selection completed in 6.3 seconds."]


def _dims(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))})"


LOADABLE = "{ForeignNode[stem/Conv...stem/Relu]}"
IMAGE, WIDE = (1, 3, 8, 8), (1, 32, 8, 8)
LINEAR_IN, LINEAR_OUT = "Float(192,64,8,1)", "Float(32,1,1,1)"
DLA_LINEAR, DLA_IMAGE = "Int8(1536,512,64,1)", "Int8(64,1:4,8,1)"
VECTOR = "Int8(64,64:32,8,1)"
HALF = "Half(2048,64,8,1)"
HALF_OUT, VECTOR_OUT = "Half(32,1,1,1)", "Int8(1,1:32,1,1)"


def stem() -> list[str]:
    """A whole build: one loadable, one GPU pooling; the best answer is the builder's."""
    return [
        *header(),
        *network(
            {"image": IMAGE},
            [
                ("stem/Conv", "Conv", {"image": IMAGE, "w": (32, 3, 3, 3)}, {"c": WIDE}),
                ("stem/Relu", "Relu", {"c": WIDE}, {"r": WIDE}),
                ("pool/Mean", "ReduceMean", {"r": WIDE}, {"score": (1, 32, 1, 1)}),
            ],
            ["score"],
        ),
        f"{V}{LOADABLE} successfully offloaded to DLA.",
        f"{V}\tMemory consumption: Managed SRAM = 1 MiB,\tLocal DRAM = 4 MiB,\tGlobal DRAM = 4 MiB",
        *unit(
            LOADABLE,
            "DLA",
            [
                ([DLA_LINEAR], [VECTOR], 150.0),
                ([DLA_IMAGE], [VECTOR], 100.0),
                ([DLA_IMAGE], [DLA_LINEAR], 120.0),
            ],
        ),
        *unit(
            "pool/Mean",
            "CaskPooling",
            [([HALF], [HALF_OUT], 20.0), ([VECTOR], [VECTOR_OUT], 26.0)],
        ),
        *reformats("image", {(LINEAR_IN, DLA_LINEAR): 12.0, (LINEAR_IN, DLA_IMAGE): 14.0}),
        *reformats(
            "r", {(VECTOR, HALF): 15.0, (DLA_LINEAR, HALF): 11.0, (DLA_LINEAR, VECTOR): 13.0}
        ),
        *reformats(
            "score", {(HALF_OUT, LINEAR_OUT): 5.0, (VECTOR_OUT, LINEAR_OUT): 6.0}, outward=True
        ),
        *chosen(
            (LOADABLE, "image", LINEAR_IN, DLA_IMAGE),
            ("pool/Mean", "score", VECTOR_OUT, LINEAR_OUT),
        ),
        f"{V}Engine Layer Information:",
        f"Layer(DLA): {LOADABLE}, Tactic: 0x0000000000000003, image (Int8[1,3:4,8,8]) -> r "
        "(Int8[1,32:32,8,8])",
        "Layer(CaskPooling): pool/Mean, Tactic: 0x1340e8758429064c, r (Int8[1,32:32,8,8]) -> "
        "score (Int8[1,32:32,1,1])",
        "&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec",
    ]


STEM_US = 14.0 + 100.0 + 26.0 + 6.0
