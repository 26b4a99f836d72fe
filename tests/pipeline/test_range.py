"""Check and plan of a range of shapes: each listed shape is a network of its own."""

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.cli import main
from edgekit.errors import ConfigError, GateError, ModelError, UsageError
from edgekit.pipeline.steps.bench import shape_to_measure
from edgekit.placement.plan import plan_from_json
from edgekit_device.protocol.codec import write
from tests.pipeline.nets import open_config

SHAPES = [{"x": (1, 3, 64, 64)}, {"x": (1, 3, 32, 32)}, {"x": (1, 3, 16, 32)}]


def run_cli(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    return captured.out


def shapes(buckets) -> list[dict[str, tuple[int, ...]]]:
    return [dict(one.shapes) for one in buckets]


def test_a_check_lists_each_shape_with_the_optimum_first(tmp_path):
    found = edgekit.check(open_config(tmp_path))
    assert shapes(found.buckets) == SHAPES
    assert [one.engine for one in found.buckets] == ["own"] * 3
    first = found.buckets[0]
    assert (first.layers, first.dla_layers) == (found.summary.layers, found.summary.dla_layers)
    assert first.latency_us == pytest.approx(found.predicted.auto_us)
    assert sum(first.loadables.values()) == found.loadables
    # a smaller picture takes less
    times = [one.latency_us for one in found.buckets]
    assert times == sorted(times, reverse=True)
    assert found.range.resident == {"DLA0": 3}
    assert found.range.profiles[0]["x"].min == (1, 3, 16, 16)
    # once for each shape, and once more for the engine with profiles
    assert found.range.weight_bytes == 4 * found.range.one_shape_bytes


def test_each_shape_is_planned_as_a_static_network(tmp_path):
    path = open_config(tmp_path)
    found = edgekit.plan(path)
    assert shapes(found.buckets) == SHAPES
    alone = edgekit.plan(path, model={"shapes": {"x": [1, 3, 32, 32]}, "buckets": ["32x32"]})
    assert not alone.buckets
    second = found.buckets[1]
    assert second.latency_us == alone.predicted.latency_us
    assert second.dla_layers == sum(layer.device != "GPU" for layer in alone.layers)
    assert sum(second.loadables.values()) == len(alone.loadables)
    assert plan_from_json(write(found)) == found


def test_loadables_that_the_cores_do_not_hold_together_go_to_the_engine_with_profiles(tmp_path):
    found = edgekit.plan(open_config(tmp_path, loadables=2))
    assert [one.engine for one in found.buckets] == ["own", "own", "profiles"]
    last = found.buckets[-1]
    assert last.why == "the shapes before it have 2 loadables on DLA0, of at most 2"
    assert (last.dla_layers, last.loadables) == (0, {})
    assert found.range.resident == {"DLA0": 2}


def test_without_a_gpu_they_are_refused(tmp_path):
    path = open_config(tmp_path, loadables=2)
    with pytest.raises(GateError) as caught:
        edgekit.plan(path, placement={"gpu": False}, precision="fp16")
    assert caught.value.code == "range.loadables"
    assert caught.value.where.startswith("shape 1x3x16x32: ")
    assert "model.load: demand" in caught.value.hint


def test_without_a_gpu_the_listed_shapes_alone_are_planned(tmp_path):
    path = open_config(tmp_path)
    without = {"placement": {"gpu": False}, "precision": "fp16"}
    found = edgekit.plan(path, **without)
    assert found.range.profiles == ()
    assert found.range.weight_bytes == sum(one.weight_bytes for one in found.buckets)
    assert [note for note in found.notes if note.startswith("no engine takes the rest")]
    assert edgekit.check(path, **without).range.profiles == ()
    with pytest.raises(UsageError) as caught:
        edgekit.bench(path, bench={"shapes": {"x": [1, 3, 24, 24]}}, **without)
    assert caught.value.hint == "planned: 1x3x32x32; 1x3x16x32; 1x3x64x64"


def test_shapes_are_loaded_on_demand_where_the_configuration_says_so(tmp_path):
    found = edgekit.plan(open_config(tmp_path, loadables=2, model="load: demand"))
    assert [one.load for one in found.buckets] == ["start", "demand", "demand"]
    found = edgekit.plan(open_config(tmp_path, model="load: demand"))
    assert [one.load for one in found.buckets] == ["start", "demand", "demand"]
    assert found.range.resident == {"DLA0": 1}
    assert any("loaded at the first frame of that shape" in note for note in found.notes)


def test_pictures_show_how_much_would_be_padding(tmp_path):
    path = open_config(tmp_path)
    (tmp_path / "pictures").mkdir()
    for number, (height, width) in enumerate([(32, 32), (16, 16), (100, 10)]):
        pixels = np.full((height, width, 3), number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"pictures/{number}.png")
    found = edgekit.check(path, calibration={"data": "pictures"})
    fit = found.range.fit
    # the second fills half of 16x32; the third fits nothing
    assert (fit.samples, fit.outside) == (3, 1)
    assert fit.padding == pytest.approx((0 + 0.5) / 2)
    assert fit.one_shape == pytest.approx((0.75 + 0.9375) / 2)
    assert fit.latency_us < fit.one_shape_us


def test_terminal_and_page_show_each_shape(tmp_path, capsys):
    path = open_config(tmp_path, loadables=2)
    page = tmp_path / "plan.html"
    shown = run_cli(capsys, "plan", str(path), "--report", str(page))
    for text in (shown, page.read_text()):
        for shape in ("1x3x64x64", "1x3x32x32", "1x3x16x32"):
            assert shape in text
        assert "2 of 2 loadables of DLA0" in text
    checked = run_cli(capsys, "check", str(path))
    assert "loaded together: 3 shapes, 3 of 16 loadables of DLA0 (one shape: 1)" in checked
    assert "every other shape of the range runs on the GPU, in one engine with 1 profile" in checked
    path.write_text(path.read_text().replace("32x32, 16x32, 64x64", "64x64"))
    one = " ".join(run_cli(capsys, "check", str(path)).split())
    assert "other shapes run on the GPU" in one


def test_shapes_without_a_range_have_no_engine_with_profiles(tmp_path):
    path = open_config(tmp_path, loadables=1)
    path.write_text(path.read_text().replace("  shapes: {x: [1, 3, 16..64, 16..64]}\n", ""))
    found = edgekit.plan(path)
    assert found.range.profiles == ()
    # what the core does not hold has an engine of its own on the GPU
    assert [one.engine for one in found.buckets] == ["own"] * 3
    assert [sum(one.loadables.values()) for one in found.buckets] == [1, 0, 0]
    assert "of at most 1" in found.buckets[2].why


def test_a_static_shape_of_a_bench_is_one_of_the_ranges(tmp_path):
    path = open_config(tmp_path)
    config, rest = shape_to_measure(path, {"model": {"shapes": {"x": "1x3x32x32"}}})
    assert rest == {}
    assert config.file.bench.shapes == {"x": [1, 3, 32, 32]}
    assert config.file.model.buckets == ["32x32", "16x32", "64x64"]
    # of a network of one shape, and of another range, it is the network's
    for text in (
        path.read_text().replace("16..64, 16..64", "64, 64").replace("  buckets", "  #"),
        path.read_text(),
    ):
        path.write_text(text)
        shape = "1x3x32x32" if "#" in text else "1x3x16..32x32"
        options = {"model": {"shapes": {"x": shape}}}
        assert shape_to_measure(path, options) == (path, options)


def test_a_shape_may_be_an_array(tmp_path):
    open_config(tmp_path)
    model, target = tmp_path / "open.onnx", "jetson-agx-orin-64gb"
    sizes = [np.array([1, 3, 32, 32]), (1, 3, np.int64(32), 32)]
    times = {
        edgekit.check(model, target=target, model={"shapes": {"x": one}}).predicted.auto_us
        for one in [[1, 3, 32, 32], *sizes]
    }
    assert len(times) == 1
    with pytest.raises(ConfigError, match="expected an integer"):
        edgekit.check(model, target=target, model={"shapes": {"x": np.array([0.5])}})


def test_an_input_that_is_unknown_is_no_shape_to_measure(tmp_path, capsys):
    path = open_config(tmp_path)
    with pytest.raises(UsageError, match="the network has no input 'X1'") as caught:
        edgekit.bench(path, bench={"shapes": {"X1": [1, 3, 32, 32]}})
    assert caught.value.code == "bench.shape"
    assert caught.value.hint.endswith("the inputs are: x")
    with pytest.raises(SystemExit):
        main.main(["bench", str(path), "--shape", "q:1x3x200x64", "-q"])
    assert "edgekit: --shape: the network has no input 'q'" in capsys.readouterr().err


def test_an_empty_list_of_buckets_is_refused_in_plain_words(tmp_path):
    path = open_config(tmp_path)
    path.write_text(path.read_text().replace("32x32, 16x32, 64x64", ""))
    with pytest.raises(ConfigError) as caught:
        edgekit.check(path)
    assert str(caught.value).endswith("model.buckets: too few items: 0 (at least 1)")
    assert ":8:3: " in str(caught.value)


def test_a_batch_beside_a_range_of_it_has_its_line(tmp_path):
    path = open_config(tmp_path, model="batch: 4")
    path.write_text(path.read_text().replace("[1, 3, 16..64", "[1..8, 3, 16..64"))
    with pytest.raises(ModelError) as caught:
        edgekit.plan(path)
    assert (caught.value.code, caught.value.where) == ("model.batch", f"{path}:9:3")
