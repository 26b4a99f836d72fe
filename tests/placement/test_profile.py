"""Profiles from every kind of file, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from edgekit.benchmark.document import read_bench
from edgekit.errors import DataError
from edgekit.placement.profiles.engine_times import EngineTimes, parse_layout, same_elements
from edgekit.placement.profiles.profile import Profile
from edgekit.placement.profiles.reader import read_profile
from tests.buildlog import timing_log as tl


def saved(path: Path, content: str | bytes, name: str = "profile") -> Path:
    file = path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def read(path: Path, content: str | bytes | list[str] | dict[str, Any], **more: Path) -> Profile:
    if isinstance(content, dict):
        content = json.dumps(content)
    return read_profile(
        saved(path, "\n".join(content) if isinstance(content, list) else content),
        documents=read_bench,
        **more,
    )


# as trtexec writes it: no escapes, nan for a share of nothing, six digits
TRTEXEC = """[
  { "count" : 4 }
, { "name" : "stem/Conv + stem/Relu", "timeMs" : 2, "averageMs" : 0.5, "medianMs" : 0.4, "percentage" : 24.5 }
, { "name" : "a "quoted\\path" layer", "timeMs" : 3.06955e+03, "averageMs" : 767.4, "percentage" : nan }
, { "name" : "idle", "timeMs" : 0, "averageMs" : 0, "medianMs" : 0, "percentage" : -nan }
]
"""  # noqa: E501


def test_trtexec_is_read_as_it_writes(tmp_path: Path) -> None:
    found = read(tmp_path, TRTEXEC)
    assert found.kind == "trtexec"
    assert [(r.name, r.us, r.device) for r in found.rows] == [
        ("stem/Conv + stem/Relu", 400.0, "GPU"),
        ('a "quoted\\path" layer', 767400.0, "GPU"),
        ("idle", 0.0, "GPU"),
    ]


def test_the_wait_for_a_dla_is_the_loadables(tmp_path: Path) -> None:
    rows = {
        "x to nvm": 0.08,
        "{ForeignNode[a...b]}": 0.01,
        "y from nvm": 7.5,
        "x copy finish": 0.01,
        "z from nvm": 0.02,
        "pool": 0.03,
        "{ForeignNode[c...d]}": 0.01,
        "w from nvm": 2.0,
    }
    found = read(tmp_path, rows)
    assert found.kind == "iprofiler"
    assert [(r.name, r.device, r.us) for r in found.rows] == [
        ("{ForeignNode[a...b]}", "DLA", 7510.0),
        ("pool", "GPU", 30.0),
        ("{ForeignNode[c...d]}", "DLA", 2010.0),
    ]
    assert [r.us for r in found.overhead] == [80.0, 10.0, 20.0]
    total = sum(row.us for row in (*found.rows, *found.overhead))
    assert total == pytest.approx(1e3 * sum(rows.values()))


def test_layer_information_reports_loadables_from_gpu_subgraphs(tmp_path: Path) -> None:
    rows = {"{ForeignNode[a...b]}": 1.0, "{ForeignNode[c...d]}": 2.0, "{ForeignNode[e...f]}": 3.0}
    layers = [
        {"Name": "{ForeignNode[a...b]}", "LayerType": "DLA"},
        {"Name": "{ForeignNode[c...d]}", "LayerType": "Myelin"},
    ]
    info = saved(tmp_path, json.dumps({"Layers": layers, "Bindings": []}), "info.json")
    found = read(tmp_path, rows, layer_info=info)
    assert [r.device for r in found.rows] == ["DLA", "GPU", ""]
    info = saved(tmp_path, json.dumps({"Layers": ["names", "only"]}), "info.json")
    assert [r.device for r in read(tmp_path, rows, layer_info=info).rows] == ["", "", ""]


def test_layer_information_has_formats(tmp_path: Path) -> None:
    wide = "Thirty-two wide channel vectorized row major Int8 format"

    def tensor(name: str, form: str) -> dict[str, Any]:
        return {"Name": name, "Dimensions": [1, 32, 8, 8], "Format/Datatype": form}

    layers = [
        {
            "Name": "conv",
            "LayerType": "CaskConvolution",
            "Inputs": [tensor("x", wide)],
            "Outputs": [{"Name": "y", "Format": "Row major linear", "DataType": "FP32"}],
        },
        {
            "Name": "copy",
            "LayerType": "Reformat",
            "Inputs": [tensor("in", "Row major linear FP32")],
            "Outputs": [tensor("x", wide)],
        },
    ]
    info = saved(tmp_path, json.dumps({"Layers": layers}), "info.json")
    found = read(tmp_path, {"copy": 0.02, "conv": 0.1}, layer_info=info)
    (row,) = found.rows
    assert (row.variants[0].reads, row.variants[0].us) == ((wide,), 100.0)
    assert row.variants[0].writes == ("Row major linear FP32",)
    assert [(r.tensor, r.goal, r.us) for r in found.reformats] == [("in", wide, 20.0)]


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("Float(150528,50176,224,1)", ("fp32", "LINEAR")),
        ("Half(12544,1:8,1792,256)", ("fp16", "HWC8")),
        ("Int8(25088,49:4,7,1)", ("int8", "CHW4")),
        ("Int8(64,1:32,1,1)", ("int8", "CHW32")),
        ("Float(150528,1,672,3)", ("fp32", "HWC")),
        ("Row major Int8 format", ("int8", "LINEAR")),
        ("Row major linear FP16 format", ("fp16", "LINEAR")),
        ("Two wide channel vectorized row major FP16 format", ("fp16", "CHW2")),
        ("Channel major FP16 format where channel % 8 == 0", ("fp16", "HWC8")),
        ("Int32(4)", None),
        ("Half", None),
        ("", None),
        ("Half(a,b)", None),
        ("x" * 500, None),
    ],
)
def test_names_of_formats(text: str, layout: tuple[str, str] | None) -> None:
    assert parse_layout(text) == layout


def test_a_dlas_own_formats() -> None:
    assert parse_layout("Int8(50176,1:4,224,1)", dla=True) == ("int8", "DLA_HWC4")
    assert parse_layout("Int8(172032,57344,256,1)", dla=True) == ("int8", "DLA_LINEAR")
    assert same_elements("Half(8,4:2,1)", "Half(16,4:2,1)")
    assert not same_elements("Half(8,4:2,1)", "Half(8,4,1)")


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "a", "timeMs": 1.0}, {"name": "b", "timeMs": 2}, {"name": "a", "timeMs": 3.0}],
        [["a", 2.0], ["b", 2.0]],
        {"layers": [{"name": "a", "mean_us": 2000}, {"name": "b", "ms": 2}]},
        [{"count": 2}, {"name": "a", "timeMs": 4.0}, {"name": "b", "timeMs": 4.0}],
    ],
)
def test_an_iprofilers_list(tmp_path: Path, document: Any) -> None:
    found = read(tmp_path, json.dumps(document))
    assert [(r.name, r.us) for r in found.rows] == [("a", 2000.0), ("b", 2000.0)]


def test_a_table_of_dump_profile(tmp_path: Path) -> None:
    table = [
        tl.RUN,
        f"{tl.I_}   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
        f"{tl.I_}      10.00        0.100        0.100      33.3   Reformatting CopyNode for x",
        f"{tl.I_}      20.00        0.200        0.200      66.6   conv",
        f"{tl.I_}      30.00        0.300        0.300     100.0   Total",
    ]
    found = read(tmp_path, table)
    assert [(r.name, r.us) for r in found.rows] == [("conv", 200.0)]
    assert [r.us for r in found.overhead] == [100.0]


def bench(**changes: Any) -> dict[str, Any]:
    segments = [
        {
            "lane": 0,
            "index": 0,
            "device": "DLA0",
            "layers": ["a", "b"],
            "latency_ms": {"median": 0.5, "mean": 0.6},
        },
        {"lane": 0, "index": 1, "device": "GPU", "layers": ["c"], "latency_ms": {"mean": 0.2}},
    ]
    return {
        "schema": "edgekit.bench/1",
        "clock": "board-measured",
        "segments": segments,
        "target": "jetson-agx-orin-64gb",
        "precision": "int8",
        **changes,
    }


def test_a_bench_of_the_board(tmp_path: Path) -> None:
    invalid = {"status": "INVALID", "reasons": [{"message": "3 iterations"}]}
    found = read(tmp_path, bench(verdict=invalid))
    assert [(r.device, r.us, r.layers) for r in found.rows] == [
        ("DLA", 500.0, ("a", "b")),
        ("GPU", 200.0, ("c",)),
    ]
    assert (found.board, found.precisions) == ("jetson-agx-orin-64gb", ("int8",))
    assert found.notes == ("the bench is not valid: 3 iterations",)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"placement": [[["a", "XPU"]]]}, "placement[0][0][1]"),
        ({"verdict": {"status": "INVALID", "reasons": ["3 iterations"]}}, "verdict.reasons[0]"),
        ({"precision": "int7"}, "precision"),
    ],
)
def test_a_bench_is_read_whole(tmp_path: Path, wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, bench(**wrong))
    assert caught.value.code == "profile.unreadable"
    assert caught.value.where.endswith(f": {place}")


def test_a_build_log(tmp_path: Path) -> None:
    found = read(tmp_path, tl.stem())
    assert (found.kind, found.board, found.tensorrt) == ("log", "Orin", "10.3.0")
    assert found.precisions == ("fp32", "fp16", "int8")
    assert [(r.name, r.us, r.device) for r in found.rows] == [
        (tl.LOADABLE, 100.0, "DLA"),
        ("pool/Mean", 20.0, "GPU"),
    ]
    assert found.notes == ()
    cut = next(i for i, line in enumerate(tl.stem()) if "Autotuning Reformat" in line)
    assert "before the builder had chosen" in read(tmp_path, tl.stem()[:cut]).notes[0]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "profile.empty"),
        (b" \n\t\n", "profile.empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(1, 200)) + b"\0" + b"abc" * 200, "profile.binary"),
        (gzip.compress("\n".join(tl.stem()).encode()), "profile.binary"),
        ("\n".join(tl.header()), "profile.no_times"),
        (f"{tl.RUN}\n{tl.I_}GPU Compute Time: min = 1 ms, mean = 1.5 ms", "profile.no_times"),
        ("somebody's notes\n", "profile.unknown"),
        ("[]", "profile.no_times"),
        ("{}", "profile.no_times"),
        ('[{"name": "a", "timeMs": 1.0}, {"na', "profile.unreadable"),
        ("[" * 100_000, "profile.unreadable"),
        ('{"label": "x", "duration_s": 20, "n": [1]}', "profile.no_times"),
        ('[{"name": "a", "timeMs": 0}]', "profile.no_times"),
        ('[{"name": "a", "timeMs": "soon"}]', "profile.time"),
        (json.dumps({"schema": "edgekit.plan/1"}), "profile.unknown"),
        ('[{"name": "a", "averageMs": "1.5ms"}]', "profile.time"),
        (
            '[\n{ "count" : 9 }\n, { "name" : "a", "timeMs" : 9, "averageMs" : "1.5ms" }\n]',
            "profile.time",
        ),
        (json.dumps(bench(clock="cpu-measured")), "profile.clock"),
        (json.dumps(bench(clock="predicted")), "profile.clock"),
        (json.dumps(bench(segments=[])), "profile.no_times"),
        (json.dumps(bench(segments=[1, {"layers": 3, "latency_ms": []}])), "profile.unreadable"),
        (json.dumps({"schema": ["edgekit.bench/1"]}), "profile.unknown"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: str | bytes, code: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content)
    assert caught.value.code == code
    assert caught.value.hint
    if "1.5ms" in str(content):
        assert caught.value.message.startswith("averageMs of the layer 'a' is ")


def test_the_whole_engines_time_is_reported_where_there_is_no_other(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1\.5 ms"):
        read(tmp_path, f"{tl.RUN}\n{tl.I_}GPU Compute Time: min = 1 ms, mean = 1.5 ms")


def test_a_log_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("\n".join(tl.stem())))
    writer.start()
    found = read_profile(pipe)
    writer.join()
    assert len(found.rows) == 2


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, code in ((tmp_path / "none", "profile.missing"), (tmp_path, "profile.unreadable")):
        with pytest.raises(DataError) as caught:
            read_profile(path)
        assert caught.value.code == code
    with pytest.raises(DataError) as caught:
        read(tmp_path, TRTEXEC, layer_info=saved(tmp_path, "no json", "info"))
    assert caught.value.code == "profile.layer_info"


def test_a_number_of_thousands_of_digits_is_reported_in_words(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('[{"name": "a", "timeMs": %s}]' % ("7" * 5000))
    with pytest.raises(DataError, match="the profile is not JSON: a number of 5,000 digits"):
        read_profile(path)


def total_us(path: Path, lines: list[str]) -> float:
    return EngineTimes(read(path, lines)).total_us


def test_an_engine_takes_its_units_and_the_reformats_between_them(tmp_path: Path) -> None:
    assert total_us(tmp_path, tl.stem()) == pytest.approx(tl.STEM_US)


def test_without_the_parsers_lines_formats_join_units(tmp_path: Path) -> None:
    bare = [line for line in tl.stem() if "puts: [" not in line and "network input" not in line]
    lines = [line for line in bare if "Marking" not in line]
    assert total_us(tmp_path, lines) == pytest.approx(tl.STEM_US)


def test_parts_of_a_subgraph_that_was_timed_are_not_added(tmp_path: Path) -> None:
    shape, form = (1, 8, 4), "Half(32,4,1)"
    chain = [
        ("first", "MatMul", "x", "a"),
        ("soft", "Softmax", "a", "b"),
        ("second", "MatMul", "b", "y"),
        ("end", "Relu", "y", "z"),
    ]
    units = [
        ("{ForeignNode[first...second]}", "Myelin", 30.0),
        ("soft", "CaskSoftMaxV2", 80.0),
        ("end", "PointWiseV2", 5.0),
    ]
    lines = [
        *tl.header(),
        *tl.network({"x": shape}, [(n, k, {r: shape}, {w: shape}) for n, k, r, w in chain], ["z"]),
        *(line for name, kind, us in units for line in tl.unit(name, kind, [([form], [form], us)])),
    ]
    assert total_us(tmp_path, lines) == pytest.approx(35.0)
