"""The grammar: three generations of wording give the same facts."""

from __future__ import annotations

import re

import pytest

from edgekit.buildlog.parser import parse_log
from edgekit_device.protocol.codec import write
from tests.buildlog.logs import NAMES, lines, text


def test_members_come_from_the_list_when_the_log_ends_before_them() -> None:
    whole = text("trt103_trtexec_verbose.log")
    cut = whole[: whole.index("DLA Network Layer Information")]
    stem, head = parse_log(cut.splitlines()).loadables
    assert (stem.layers, stem.exact) == (("/stem/Conv", "/stem/Relu"), False)
    assert head.exact
    capability = parse_log(whole[: whole.index("DLA Memory Pool Sizes")].splitlines())
    assert (capability.evidence, capability.loadables) == ("capability", ())
    refusals = parse_log(whole[: whole.index("---------- Layers Running on DLA")].splitlines())
    assert refusals.evidence == "refusals"


@pytest.mark.parametrize("name", NAMES)
def test_other_lines_change_nothing(name: str) -> None:
    plain = write(parse_log(lines(name)))
    noise = "02-03-2027 09:10:11 RAM 9/62 CPU [0%@729] GR3D_FREQ 0%@[1300,1300] NVDLA0_FREQ @1600"
    mixed: list[str] = []
    for line in lines(name):
        mixed += [noise, f"\x1b[1m{line}\x1b[0m\r\n", "[I] [TRT] DLA is fine, thank you", "\x00"]
    noisy = write(parse_log(mixed))
    for document in (plain, noisy):
        document.pop("lines")
        for fallback in document["fallbacks"]:
            fallback.pop("line")
    # a list on the line after its heading cannot be found behind another line
    if name != "trt7_deepstream.log":
        assert noisy == plain


def test_a_name_with_dots_is_cut_where_both_ends_are_known() -> None:
    log = parse_log(
        [
            "[V] [TRT] ---------- Layers Running on DLA ----------",
            *(f"[V] [TRT] [DlaLayer] {name}" for name in ("a...b", "c", "d")),
            "[V] [TRT] {ForeignNode[a...b...d]} successfully offloaded to DLA.",
        ]
    )
    assert log.loadables[0].layers == ("a...b", "c", "d")


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("[I] TensorRT version: 8.5.2", "8.5.2"),
        ("[I] TensorRT version: 8502", "8.5.2"),
        ("TensorRT: starting export with TensorRT 8.5.2.2...", "8.5.2.2"),
        ("[TRT]    TensorRT version 8.4.1", "8.4.1"),
        ("TensorRT 10.3.0", "10.3.0"),
        ("[I] TensorRT version: many", ""),
    ],
)
def test_releases(said: str, release: str) -> None:
    assert parse_log([said]).tensorrt == release


def test_an_old_list_after_another_program_s_line() -> None:
    whole = lines("trt7_deepstream.log")
    at = next(index for index, line in enumerate(whole) if "running on DLA" in line) + 1
    mixed = [*whole[:at], "RAM 1/2 NVDLA0_FREQ @1600", *whole[at:]]
    assert parse_log(mixed).loadables == parse_log(whole).loadables != ()


@pytest.mark.parametrize(
    ("number", "release"),
    [
        ("7103", "7.1.3"),
        ("8502", "8.5.2"),
        ("8612", "8.6.12"),
        ("100300", "10.3.0"),
        ("110401", "11.4.1"),
    ],
)
def test_release_numbers(number: str, release: str) -> None:
    log = parse_log([f"&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] # trtexec --best"])
    assert (log.tensorrt, log.precisions) == (release, ("fp32", "fp16", "int8"))


def test_of_two_builds_the_last_with_lists_counts() -> None:
    second = [re.sub("/stem", "/trunk", line) for line in lines("trt85_python.log")]
    log = parse_log([*lines("trt85_python.log"), *second])
    assert log.builds == 2
    assert log.loadables[0].first == "/trunk/Conv"
    assert "/neck/Tile" in {f.layer for f in log.fallbacks}
    third = "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --useDLACore=0"
    alone = "[W] [TRT] Layer 'z' (CAST): Unsupported on DLA. Switching this layer's device type"
    log = parse_log([*lines("trt85_python.log"), third, alone])
    assert [la.first for la in log.loadables] == ["/stem/Conv"]
    assert "z" not in {f.layer for f in log.fallbacks}


@pytest.mark.parametrize(
    "prefix",
    [
        "Nov 21 07:00:00 host app[123]: ",
        "Nov  1 07:00:00 jetson-orin trtexec: ",
        "2026-08-20T18:38:14.123456789Z stdout F ",
        "2026-11-21T07:00:00+0000 host app[1]: ",
        "2026-08-20 18:38:14,123 ",
    ],
)
def test_what_a_journal_writes_before_each_line_hides_nothing(prefix: str) -> None:
    for name in ("trt103_trtexec_verbose.log", "trt84_trtexec_info.log", "trt85_python.log"):
        said = lines(name)
        plain = write(parse_log(said))
        assert write(parse_log(f"{prefix}{line}" for line in said)) == plain


def test_what_is_said_of_the_dla_as_a_whole() -> None:
    none = "setDefaultDeviceType was called but no layer in the network can run on DLA."
    ranged = "DLA requests all profiles have same min, max, and opt value. All dla layers are ..."
    log = parse_log([f"[W] [TRT] {ranged}", f"[W] [TRT] {ranged}"])
    assert (log.notes, log.requested_dla) == ((ranged,), None)
    log = parse_log([f"[W] [TRT] {none}"])
    assert (log.notes, log.requested_dla, log.evidence) == ((none,), True, "placement")
    log = parse_log(
        [
            "trtexec --onnx=m.onnx --useDLACore=0 --int8",
            "[E] Cannot create DLA engine, 0 not available",
        ]
    )
    assert log.errors == ("Cannot create DLA engine, 0 not available",)
    assert (log.dla_core, log.model, log.precisions) == (0, "m.onnx", ("fp32", "int8"))
    gpu = parse_log(
        [
            "[I] DLACore: ",
            "[I] [TRT] ---------- Layers Running on DLA ----------",
            "[I] [TRT] [GpuLayer] Conv_0",
        ]
    )
    assert (gpu.requested_dla, gpu.evidence) == (False, "none")


def test_a_build_without_fallback_names_the_layer_that_stopped_it() -> None:
    log = parse_log(
        [
            "[E] Error[2]: [x.cpp::f::1] Assertion allowGPUFallback failed. Layer 'grid' is not "
            "supported on DLA but GPU fallback is not enabled.)"
        ]
    )
    assert [f.layer for f in log.fallbacks] == ["grid"]
    assert log.errors
