"""`edgekit explain-log`: one remedy for each error, and files that are no log."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgekit.buildlog.known_errors import known_errors
from edgekit.errors import UsageError
from edgekit.pipeline.log_explanation import explain_log
from tests.pipeline.nets import small_net


def explained(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "pasted.log"
    path.write_text(text)
    return explain_log(path).to_json()


@pytest.mark.parametrize(
    "line",
    [
        "Layer /m/Conv will not run on DLA because int8 scale is missing.",
        "/m/Conv: DLA cores do not support that.",
        "DLA LAYER: Batch size 30720 for layer /m/Conv exceeds max batch size allowed of 4096.",
    ],
)
def test_a_line_about_one_layer_explains_no_other(line: str, tmp_path: Path) -> None:
    found = explained(
        f"[W] [TRT] {line}\n[W] [TRT] Layer '/attn/MatMul' (MATRIX_MULTIPLY): Unsupported on DLA. "
        "Switching this layer's device type to GPU.\n[W] [TRT] DLA cores do not support this.\n"
        "[W] [TRT] /m/Conv: DLA is too narrow. Falling back to GPU.\n",
        tmp_path,
    )
    words = {one["layer"]: one["words"] for one in found["log"]["fallbacks"]}
    assert words.keys() == {"/attn/MatMul", "/m/Conv"}
    assert words["/attn/MatMul"] == []
    assert "DLA cores do not support this." not in words["/m/Conv"]


def test_every_remedy_of_a_release_can_be_reached() -> None:
    for row in known_errors().rows:
        for one in row.releases:
            assert one.since or one.until, row.id
            inside = one.since or "5.0"
            assert row.remedy_for(inside) == one.text, row.id


def model(path: Path) -> None:
    small_net(path)


def weights(path: Path) -> None:
    path.write_bytes(
        onnx.helper.make_model(onnx.GraphProto(name="g")).SerializeToString() + bytes(1000)
    )


def written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (model, "an ONNX model"),
        (weights, "an ONNX model"),
        (written(b"ftrt" + bytes(5000)), "a TensorRT engine"),
        (written(struct.pack("<I", 9) + b'{"a": 1}\n' + b"ftrt" + bytes(999)), "`yolo export`"),
        (written(b"\x14\0\0\0NVDA" + bytes(5000)), "a DLA loadable"),
        (written(b"\x7fELF" + os.urandom(5000)), "a binary file"),
        (written(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "LFS"),
        (written(b"<!DOCTYPE html>\n<html></html>\n"), "a web page"),
    ],
)
def test_another_file_is_named(write: Callable[[Path], object], what: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    write(path)
    with pytest.raises(UsageError) as caught:
        explain_log(path)
    assert caught.value.code == "log.unknown"
    assert what in caught.value.message
    assert "trtexec --verbose" in str(caught.value.hint)


@pytest.mark.few(2)
@pytest.mark.parametrize("piece", ["a line about trees\n", "x", "\xff\0"])
def test_fifty_megabytes_that_are_no_log_are_refused_at_once(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    data = piece.encode("latin-1")
    path.write_bytes(data * (50_000_000 // len(data)))
    began = time.process_time()
    with pytest.raises(UsageError, match="not a TensorRT build log"):
        explain_log(path)
    # reading all of it takes many seconds
    assert time.process_time() - began < 3


def test_one_error_has_one_remedy(tmp_path: Path) -> None:
    """A layer's rule and the error about it do not advise against each other."""
    for line in (
        "[E] Error[4]: DLA Standalone is enabled but layer: '/c/_input_quantizer/Constant_1' is "
        "not supported on DLA.",
        "[E] Error[4]: DLA Standalone is enabled but layer: '/neck/Pad' is not supported on DLA.",
        "[W] [TRT] Node: /c/Conv cannot run in INT8 mode due to missing scale and zero point. This "
        "node will not run on DLA.",
    ):
        other = line.replace("/c/", "/d/").replace("Pad", "Tile")
        found = explained(f"{line}\n{other}\n", tmp_path)
        (error,), (rule,) = found["errors"], found["rules"]
        assert (rule["fix"], rule["fixes"]) == (error["remedy"], [])
        assert len(rule["layers"]) == 2


def test_a_build_in_int8_is_not_told_to_build_in_int8(tmp_path: Path) -> None:
    found = explained(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec --useDLACore=0 --int8\n"
        "[W] [TRT] conv: DLA only supports FP16 and Int8 precision type. Switching this layer's "
        "device type to GPU.\n",
        tmp_path,
    )
    assert "build with --fp16 or --int8" not in str(found)
