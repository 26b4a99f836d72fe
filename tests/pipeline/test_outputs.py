"""Where results may go, and what a rewriting makes of an open batch."""

import os
from pathlib import Path

import pytest

from edgekit.cli.main import main
from edgekit.config.loader import open_config
from edgekit.errors import EdgekitError
from edgekit.files import replacing
from edgekit.network import writing
from edgekit.network.loading.load import load
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.rewrite_proofs import verify_rewrites
from tests.rewriting.nets import net, node, weight

ORIN = "jetson-agx-orin-64gb"


def test_results_replace_no_device_and_the_file_after_a_link(tmp_path):
    target = tmp_path / "real.txt"
    target.write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"), replacing(pipe):
        pass
    assert pipe.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.txt", "pipe", "real.txt"]


def open_batch(tmp_path: Path, *, sides: bool = False) -> Path:
    model = net(
        [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "y")],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {"w": weight(4, 3, 3, 3)},
    )
    for value in (model.proto.graph.input[0], model.proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    if sides:
        model.proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    del model.proto.graph.value_info[:]
    path = tmp_path / "open.onnx"
    writing.save(model, path)
    return path


def rewriting(path: Path, tmp_path: Path):
    config = open_config(str(path), target=ORIN, precision="fp16")
    return Pipeline(config, out=tmp_path / "out", cache=Cache(tmp_path / "cache"))


def test_an_open_batch_is_made_static_and_reported(tmp_path):
    path, out = open_batch(tmp_path), tmp_path / "out.onnx"
    with rewriting(path, tmp_path) as pipeline:
        document = pipeline.rewrite(out).to_json()
    assert any("--shape x:1x3x8x8" in note for note in document["notes"])
    (given,) = load(out).proto.graph.input
    assert [d.dim_value for d in given.type.tensor_type.shape.dim] == [1, 3, 8, 8]
    assert verify_rewrites(path, out).holds


def test_open_sides_of_an_image_are_requested(tmp_path):
    with rewriting(open_batch(tmp_path, sides=True), tmp_path) as pipeline:
        with pytest.raises(EdgekitError) as caught:
            pipeline.rewrite()
        assert "--shape" in caught.value.options


def test_a_model_that_nothing_was_rewritten_in_is_verified(tmp_path):
    model = net([node("Relu", "x", "y")], {"x": (1, 3, 8, 8)}, ["y"])
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    writing.save(model, path)
    with rewriting(path, tmp_path) as pipeline:
        assert pipeline.rewrite(out).rewrites == ()
    document = verify_rewrites(path, out).to_json()
    assert document["holds"]
    assert document["same"]
    assert document["rewrites"] == []


@pytest.mark.parametrize("place", ["/proc/edgekit/out", "open.onnx/out", "open.onnx"])
@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["build"],
        ["bundle"],
        ["deploy"],
        ["infer"],
        ["bench"],
        ["tune"],
        ["report"],
        ["refit", "--weights", "open.onnx"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_written_is_found_before_the_first_step(
    tmp_path, monkeypatch, capsys, words, place
):
    """Nobody can make a file in /proc, root neither."""
    monkeypatch.chdir(tmp_path)
    open_batch(tmp_path)
    Path("c.yaml").write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nmodel: {{onnx: open.onnx}}\n"
    )
    for out, cache in ((["--out", place], "cache"), ([], place)):
        if words[0] == "build" and out:  # it fills the cache only
            continue
        monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / cache))
        with pytest.raises(SystemExit) as end:
            main([words[0], "c.yaml", *words[1:], *out])
        said = capsys.readouterr().err
        # a file for the folder is wrong usage
        assert end.value.code == (2 if out and place == "open.onnx" else 3), said
        assert "[1/" not in said
        assert place in said


@pytest.mark.parametrize("place", ["/proc/edgekit.out", "/proc/edgekit/a.out", "open.onnx/a"])
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "open.onnx", "--report"],
        ["rewrite", "open.onnx", "--save"],
        ["rewrite", "open.onnx", "--record"],
        ["calibrate", "open.onnx", "--save"],
        ["bundle", "c.yaml", "--full"],
        ["infer", "c.yaml", "--output"],
    ],
    ids=lambda words: " ".join(words[::2]),
)
def test_a_file_that_cannot_be_written_is_found_before_the_first_step(
    tmp_path, monkeypatch, capsys, words, place
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    open_batch(tmp_path)
    Path("c.yaml").write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nmodel: {{onnx: open.onnx}}\n"
    )
    board = [] if words[1] == "c.yaml" else ["--target", ORIN]
    with pytest.raises(SystemExit) as end:
        main([*words, place, *board])
    said = capsys.readouterr().err
    assert end.value.code in (2, 3), said
    assert "[1/" not in said
    assert place in said
