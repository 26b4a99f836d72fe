"""Measured times over the cost model: what wins, what stays predicted, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.dla.judge import judge
from edgekit.errors import DataError
from edgekit.network.model import Network
from edgekit.placement.costs.constants import device_constants
from edgekit.placement.costs.model import CostModel
from edgekit.placement.kernels import LayerKernel, join
from edgekit.placement.placing import place
from edgekit.placement.plan import Options, Pin, PlacedLayer
from edgekit.placement.profiles.estimation import measured_model
from edgekit.placement.profiles.measured import MeasuredCosts, measured_part
from edgekit.placement.profiles.reader import read_profile
from edgekit.targets.loader import get
from tests.buildlog import timing_log as tl
from tests.buildlog.nets import classifier

ORIN = "jetson-agx-orin-64gb"
STEM = "{ForeignNode[/stem/Conv.../stem/Relu]}"
POOL, HEAD, AFTER = "/pool/GlobalAveragePool", "/head/Gemm", "reshape_after_/head/Gemm"
LINEAR_IN, PITCH_IN, VECTOR_IN = (
    "Float(2048,256,16,1)",
    "Int8(8192,1024,64,1)",
    "Int8(256,256:32,16,1)",
)
VECTOR = "Int8(256,256:32,16,1)"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return classifier(tmp_path_factory.mktemp("net"))


def cost_model(precision: str = "int8", mode: str | None = None) -> CostModel:
    board = get(ORIN)
    return CostModel(board, board.mode(mode), precision, frozenset(), device_constants())


def over(path: Path, net: Network, content: Any, model: CostModel | None = None) -> CostModel:
    file = path / "profile"
    text = "\n".join(content) if isinstance(content, list) else json.dumps(content)
    file.write_text(text)
    able = {name: verdict.ok for name, verdict in judge(net, get(ORIN)).verdicts.items()}
    found = measured_model(model or cost_model(), read_profile(file), net, able)
    assert isinstance(found.measured, MeasuredCosts)
    return found


def kernel(net: Network, *names: str) -> LayerKernel:
    place = {layer.name: i for i, layer in enumerate(net.layers)}
    return join(net, sorted(place[name] for name in names))


def build_log() -> list[str]:
    return [
        *tl.header(),
        *tl.unit(
            STEM,
            "DLA",
            [([PITCH_IN], [VECTOR], 260.0), ([VECTOR_IN], [VECTOR], 220.0)],
        ),
        *tl.unit(
            POOL,
            "CaskPooling",
            [
                (["Half(4096,256,16,1)"], ["Half(16,1,1,1)"], 31.0),
                ([VECTOR], ["Int8(1,1:32,1,1)"], 44.0),
            ],
        ),
        *tl.reformats("x", {(LINEAR_IN, PITCH_IN): 17.0, (LINEAR_IN, VECTOR_IN): 29.0}),
    ]


def test_a_loadables_time_is_shared_out_and_its_launch_is_in_it(
    tmp_path: Path, net: Network
) -> None:
    model = over(tmp_path, net, build_log())
    conv, relu = kernel(net, "/stem/Conv"), kernel(net, "/stem/Relu")
    parts = [model.kernel_us(net, k, "DLA0") for k in (conv, relu)]
    whole = model.kernel_us(net, kernel(net, "/stem/Conv", "/stem/Relu"), "DLA0")
    assert sum(parts) == pytest.approx(whole)
    assert whole + model.launch_us() == pytest.approx(220.0)
    assert parts[0] > parts[1]
    # the same kernel on the GPU was not timed
    assert model.kernel_us(net, conv, "GPU") == cost_model().kernel_us(net, conv, "GPU")
    assert model.measured.has_kernel(conv, "DLA1")
    assert not model.measured.has_kernel(conv, "GPU")


def test_formats_at_a_loadables_border(tmp_path: Path, net: Network) -> None:
    model, plain = over(tmp_path, net, build_log()), cost_model()
    image = net.tensors["x"]
    assert model.dla_io_us(image, "CHW32", "int8", "read") == 0.0
    assert model.dla_io_us(image, "DLA_LINEAR", "int8", "read") == pytest.approx(40.0)
    for side in (("DLA_HWC4", "int8", "read"), ("DLA_LINEAR", "int8", "write")):
        assert model.dla_io_us(image, *side) == plain.dla_io_us(image, *side)


def test_reformats_by_shape_and_layouts(tmp_path: Path, net: Network) -> None:
    model, image = over(tmp_path, net, build_log()), net.tensors["x"]
    ways = {"DLA_LINEAR": 17.0, "CHW32": 29.0}
    for form, us in ways.items():
        way = (image, ("fp32", "LINEAR"), ("int8", form))
        assert model.reformat_us(*way) == us
        assert model.measured.has_reformat(*way)
    back = (image, ("int8", "CHW32"), ("fp32", "LINEAR"))
    assert model.reformat_us(*back) == cost_model().reformat_us(*back)
    assert not model.measured.has_reformat(*back)


def test_a_gpu_layer_in_the_formats_that_were_timed(tmp_path: Path, net: Network) -> None:
    model = over(tmp_path, net, build_log())
    pool = kernel(net, POOL)
    assert model.formats(net, pool, "GPU") == ("CHW32",)
    assert model.layer_precision(net.layers[pool.layers[0]], "GPU") == "int8"
    assert model.kernel_us(net, pool, "GPU") == 44.0
    half = over(tmp_path, net, build_log(), cost_model("fp16"))
    assert half.kernel_us(net, pool, "GPU") == 31.0
    # an INT8 loadable says nothing about one in FP16
    assert not half.measured.has_kernel(kernel(net, "/stem/Conv"), "DLA0")


def test_fusions_of_a_profile(tmp_path: Path, net: Network) -> None:
    model = over(tmp_path, net, {"/stem/Conv + /stem/Relu": 0.4, POOL: 0.05, HEAD: 0.02})
    both = kernel(net, "/stem/Conv", "/stem/Relu")
    assert model.kernel_us(net, both, "GPU") == pytest.approx(400.0)
    assert model.kernel_us(net, kernel(net, HEAD), "GPU") == pytest.approx(20.0)
    assert isinstance(model.measured, MeasuredCosts)
    assert model.measured.matched.unmatched == ()


def test_rows_of_one_layer_add_up(tmp_path: Path, net: Network) -> None:
    """The builder ran apart what our layer graph took in: the flatten is in the product here."""
    model = over(tmp_path, net, {POOL: 0.05, f"{HEAD} + bias": 0.02, HEAD: 0.1})
    assert isinstance(model.measured, MeasuredCosts)
    assert len(model.measured.matched.groups) == 2
    assert model.kernel_us(net, kernel(net, HEAD), "GPU") == pytest.approx(120.0)
    assert model.kernel_us(net, kernel(net, POOL), "GPU") == pytest.approx(50.0)


def test_a_subgraph_that_says_nothing_of_its_device_follows_the_verdicts(
    tmp_path: Path, net: Network
) -> None:
    model = over(tmp_path, net, {STEM: 0.3, POOL: 0.05})
    assert model.measured.has_kernel(kernel(net, "/stem/Conv"), "DLA0")
    whole = {f"{{ForeignNode[/stem/Conv...{HEAD}]}}": 0.5, "Reformatting CopyNode for x": 0.1}
    model = over(tmp_path, net, whole)
    assert model.measured.has_kernel(kernel(net, POOL), "GPU")
    assert not model.measured.has_kernel(kernel(net, "/stem/Conv"), "DLA0")


def placed(net: Network, model: CostModel, devices: dict[str, str]) -> list[PlacedLayer]:
    return [
        PlacedLayer(
            layer.name,
            layer.nodes,
            device,
            "int8",
            0,
            model.kernel_us(net, kernel(net, layer.name), device),
            0.0,
        )
        for layer in net.layers
        for device in [devices.get(layer.name, "GPU")]
    ]


def test_how_much_is_measured(tmp_path: Path, net: Network) -> None:
    model = over(tmp_path, net, [*build_log(), *tl.unit("alien", "Foo", [(["A"], ["B"], 9.0)])])
    layers = placed(net, model, {"/stem/Conv": "DLA0", "/stem/Relu": "DLA0"})
    spent = sum(layer.predicted_us for layer in layers)
    latency = spent + model.launch_us() + 29.0 + 5.0
    part = measured_part(model, layers, [(29.0, True), (5.0, False)], 0.0, latency)
    assert part is not None
    assert part.measured_us == pytest.approx(220.0 + 44.0 + 29.0)
    assert part.fraction == pytest.approx((220.0 + 44.0 + 29.0) / latency, abs=1e-6)
    assert part.layers[POOL] == part.layers["/stem/Conv"] == "measured"
    assert part.layers[HEAD] == "predicted"
    assert (part.unmatched, part.rows) == (("alien",), 3)
    assert "only 2 of the profile's 3 rows" in part.notes[-1]
    # a part of a loadable was not timed
    some = placed(net, model, {"/stem/Conv": "DLA0"})
    torn = measured_part(model, some, [], 0.0, latency)
    assert torn is not None
    assert torn.layers["/stem/Conv"] == "predicted"
    assert measured_part(cost_model(), layers, [], 0.0, latency) is None


@pytest.mark.parametrize(
    ("change", "precision", "mode", "code"),
    [
        (("Compute Capability: 8.7", "Compute Capability: 7.2"), "int8", None, "profile.board"),
        (("SMs: 16", "SMs: 8"), "int8", None, "profile.board"),
        (("FP32+FP16+INT8", "FP32+FP16"), "int8", None, "profile.precision"),
        (("/", "/other"), "int8", None, "profile.model"),
    ],
)
def test_other_boards_precisions_and_models(
    tmp_path: Path,
    net: Network,
    change: tuple[str, str],
    precision: str,
    mode: str | None,
    code: str,
) -> None:
    lines = [line.replace(*change) for line in build_log()]
    with pytest.raises(DataError) as caught:
        over(tmp_path, net, lines, cost_model(precision, mode))
    assert caught.value.code == code


def test_without_a_profile_nothing_changes(net: Network) -> None:
    model = cost_model()
    assert measured_model(model, None, net) is model


def test_a_plan_with_a_profile(tmp_path: Path, net: Network) -> None:
    file = tmp_path / "build.log"
    file.write_text("\n".join(build_log()))
    board = get(ORIN)
    options = Options(profile=read_profile(file), pins=(Pin("/stem/*", "DLA"),))
    plan = place(net, judge(net, board), board, precision="int8", options=options)
    assert plan.measured is not None
    assert plan.measured.layers["/stem/Conv"] == "measured"
    (loadable,) = (x for x in plan.loadables if "/stem/Conv" in x.layers)
    assert set(loadable.layers) == {"/stem/Conv", "/stem/Relu"}
    assert plan.predicted.latency_us > 220.0 + 29.0
    # 40 us slower in linear pitch, and only 12 us less for the reformat: vectors of 32
    (image,) = (x for x in plan.reformats if x.tensor == "x")
    assert (image.goal, image.us, image.clock) == ("int8:CHW32", 29.0, "measured")


@pytest.mark.parametrize("whole_us", [150.0, 260.0, 900.0])
def test_what_the_engine_took_as_a_whole_bounds_its_parts(
    tmp_path: Path, net: Network, whole_us: float
) -> None:
    """Each of them was timed alone, and they add up to 293 us."""
    pins = (Pin("/stem/*", "DLA"), Pin(POOL, "GPU"), Pin(HEAD, "GPU"))
    measured, notes = {}, {}
    for us in (None, whole_us):
        ms = f"{(us or 0) / 1e3} ms"
        ran = f"{tl.I_}GPU Compute Time: min = {ms}, max = {ms}, mean = {ms}, median = {ms}"
        file = tmp_path / "build.log"
        file.write_text("\n".join([*build_log(), *([ran] if us else [])]))
        options = Options(profile=read_profile(file), pins=pins)
        plan = place(net, judge(net, get(ORIN)), get(ORIN), precision="int8", options=options)
        assert plan.measured is not None
        measured[us] = plan.measured.measured_us
        notes[us] = " ".join(plan.notes)
    assert measured[None] == pytest.approx(220.0 + 44.0 + 29.0, abs=0.1)
    assert measured[whole_us] == pytest.approx(min(whole_us, measured[None]), rel=0.02)
    assert ("as a whole" in notes[whole_us]) == (whole_us < measured[None])
    assert "as a whole" not in notes[None]
