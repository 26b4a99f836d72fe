"""Networks whose weights are too large to be held run in pieces, to the same bits."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import DataError, ModelError
from edgekit.files import forget_pages, map_array
from edgekit.network import streaming
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.network.session import session
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.zoo import builtin
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.scales import Scales
from edgekit.reference.accuracy import accuracy
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from edgekit_device.files import map_file
from tests.reference.toy_nets import place_all, plan_of

F = np.float32


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def set_limit(piece_bytes: int) -> None:
        monkeypatch.setattr(streaming, "LARGE_BYTES", 0)
        monkeypatch.setattr(streaming, "_PIECE_BYTES", piece_bytes)

    return set_limit


@pytest.fixture(scope="module")
def network() -> tuple[Model, Network, Scales]:
    model = builtin("light_squeezenet")
    net = layers(model)
    scales = calibrate(model, net, list(synthetic_inputs(model, 2)), method="minmax")
    return model, net, scales


def built(network: tuple[Model, Network, Scales], precision: str, segments: int) -> Artefacts:
    model, net, scales = network
    placed = place_all(net, precision, lambda i: i * segments // len(net.layers))
    return build_reference(cut_segments(model, net, plan_of(placed)), scales)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("precision", "segments"), [("int8", 3), ("fp16", 1), ("fp32", 1), ("int8", 1), ("fp16", 3)]
)
def test_pieces_give_the_bits_of_a_whole_engine(
    network: tuple[Model, Network, Scales],
    small_pieces: Callable[[int], None],
    precision: str,
    segments: int,
) -> None:
    model, artefacts = network[0], built(network, precision, segments)
    feeds = list(synthetic_inputs(model, 3, seed=3))
    whole = Runner(artefacts)
    expected = [whole.run(feed, observe=True) for feed in feeds]
    error = accuracy(model, artefacts, feeds)
    small_pieces(1 << 20)
    runner = Runner(artefacts, stripped=False)
    assert (runner.streams, whole.streams) == (True, False)
    found = list(runner.run_all(iter(feeds), observe=True))
    assert [feed for feed, _ in found] == feeds
    for (_, made), real in zip(found, expected, strict=True):
        assert made.keys() == real.keys()
        assert all(np.array_equal(made[name], real[name]) for name in real)
    assert accuracy(model, artefacts, feeds) == error


def chain(folder: Path, *, count: int = 6, side: int = 64) -> Model:
    """Matrix products whose weights lie in another file, one of them read twice."""
    nodes, stubs, offset = [], [], 0
    rng = np.random.default_rng(0)
    with (folder / "weights.bin").open("wb") as file:
        for index in range(count):
            value = (rng.standard_normal((side, side)) / side**0.5).astype(F)
            file.write(value.tobytes())
            stub = TensorProto(name=f"w{index}", data_type=1, dims=value.shape)
            stub.data_location = TensorProto.EXTERNAL
            rows = (("location", "weights.bin"), ("offset", offset), ("length", value.nbytes))
            for key, entry in rows:
                stub.external_data.add(key=key, value=str(entry))
            stubs.append(stub)
            offset += value.nbytes
            weight = f"w{index % (count - 1)}"
            nodes.append(helper.make_node("MatMul", [f"x{index}", weight], [f"m{index}"]))
            # each also reads the network's input
            nodes.append(helper.make_node("Add", [f"m{index}", "x0"], [f"x{index + 1}"]))
    ends = [
        helper.make_tensor_value_info(name, 1, [1, 4, side]) for name in ("x0", f"x{count}", "m2")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], stubs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "chain.onnx")
    return load(folder / "chain.onnx")


def test_a_piece_opens_with_its_own_weights_and_goes_before_the_next(
    tmp_path: Path, small_pieces: Callable[[int], None]
) -> None:
    model = chain(tmp_path)
    small_pieces(2 * 64 * 64 * 4)
    held: list[list[str]] = []

    class Opened:
        alive = 0

        def __init__(self, data: bytes, lent: dict[str, object]) -> None:
            held.append(sorted(lent))
            Opened.alive += 1
            assert Opened.alive == 1
            self.session = streaming.open_session(data, lent)
            self.get_outputs, self.run = self.session.get_outputs, self.session.run

        def __del__(self) -> None:
            Opened.alive -= 1

    found = streaming.stream_session(model.proto, model.weights, Opened)
    assert found is not None
    feeds = list(synthetic_inputs(model, 4))
    results = found.run_group(["m2", "x6"], feeds)
    assert held == [["w0", "w1"], ["w2", "w3"], ["w0", "w4"]]
    for feed, made in zip(feeds, results, strict=True):
        real = session(model, outputs=["m2", "x6"]).run(["m2", "x6"], dict(feed))
        assert all(map(np.array_equal, made, real))
    assert found.between >= 3 * feeds[0]["x0"].nbytes
    assert [one.name for one in found.get_inputs()] == ["x0"]
    assert all(map(np.array_equal, found.run(None, feeds[0]), reversed(results[0])))


def test_a_weight_larger_than_a_piece_is_a_piece(
    tmp_path: Path, small_pieces: Callable[[int], None]
) -> None:
    model = chain(tmp_path)
    small_pieces(1)
    feed = next(iter(synthetic_inputs(model, 1)))
    (made,) = streaming.model_session(model, outputs=["x6"]).run(["x6"], feed)
    assert np.array_equal(made, session(model, outputs=["x6"]).run(["x6"], dict(feed))[0])


def test_inputs_run_together_as_far_as_what_is_between_pieces_stays_small() -> None:
    class Run:
        streams, between = True, 0

    feeds = [{"x": np.zeros(1 << 16, F)} for _ in range(40)]
    run = Run()
    groups = streaming.group_inputs(feeds, [run])
    first = next(groups)
    assert 1 < len(first) < 40
    run.between = 32 << 20
    assert len(next(groups)) == 2
    assert [len(group) for group in streaming.group_inputs(feeds, [object()])] == [1] * 40
    run.between = 1 << 40
    assert len(list(streaming.group_inputs(feeds[:20], [run]))[-1]) == 1


def test_errors_of_a_piece_name_what_fails(
    network: tuple[Model, Network, Scales], small_pieces: Callable[[int], None]
) -> None:
    model, artefacts = network[0], built(network, "fp32", 1)
    small_pieces(1 << 20)
    runner = Runner(artefacts)
    feed = dict(next(iter(synthetic_inputs(model, 1))))
    with pytest.raises(DataError) as wrong:
        runner.run({name: value[..., :8, :8] for name, value in feed.items()})
    assert wrong.value.code == "data.shape"
    bad = Model(onnx.ModelProto(), {}, None, "bad")
    bad.proto.CopyFrom(model.proto)
    bad.proto.graph.node[0].op_type = "NoSuchOperator"
    bad = Model(bad.proto, model.weights, None, "bad")
    names = list(model.graph.outputs)
    with pytest.raises(ModelError) as refused:
        streaming.model_session(bad, outputs=names).run(None, feed)
    with pytest.raises(ModelError) as whole:
        session(bad, outputs=names)
    assert refused.value.code == whole.value.code


def test_constants_that_are_computed_are_computed_for_each_piece(
    small_pieces: Callable[[int], None],
) -> None:
    """A weight in halves that two pieces read through the same Cast."""
    rng = np.random.default_rng(1)
    halves = numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float16), "h")
    others = numpy_helper.from_array(rng.standard_normal((8, 8)).astype(F), "w")
    nodes = [
        helper.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "f"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("MatMul", ["b", "f"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [2, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "halves", ends[:1], ends[1:], [halves, others])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values = {one.name: numpy_helper.to_array(one) for one in (halves, others)}
    whole = streaming.open_session(proto.SerializeToString(), {})
    for stub in proto.graph.initializer:
        stub.ClearField("raw_data")
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="stripped")
    small_pieces(1)
    opened: list[list[str]] = []

    def open_piece(data: bytes, lent: dict[str, object]) -> object:
        opened.append(sorted(lent))
        return streaming.open_session(data, lent)

    made = streaming.stream_session(proto, values, open_piece)
    assert made is not None
    x = rng.standard_normal((2, 8)).astype(F)
    assert np.array_equal(made.run(["y"], {"x": x})[0], whole.run(["y"], {"x": x})[0])
    assert opened == [["h"], ["w"], ["h"]]


def resident(kind: str) -> int:
    """Bytes of this process in memory, of files or anonymous."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))


def test_pages_of_a_map_are_given_back_and_read_again(tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.write(b"edgekit!" * (size // 8))
    whole, view = map_array(path), map_file(path)
    part = whole[100 * mmap.PAGESIZE + 8 :]
    for data in (part, np.ascontiguousarray(part).view(np.uint64).data, view[4096:]):
        assert bytes(memoryview(data).cast("B")[:8]) == b"edgekit!"
        np.asarray(data).view(np.uint8).max()
        full = resident("RssFile")
        forget_pages(data)
        assert full - resident("RssFile") > size // 2
        assert bytes(memoryview(data).cast("B")[:8]) == b"edgekit!"


def test_what_is_no_map_of_a_file_keeps_its_bytes(tmp_path: Path) -> None:
    written = np.memmap(tmp_path / "written", F, "w+", shape=1 << 16)
    written[:] = 3
    copied = np.memmap(tmp_path / "written", F, "c")
    copied[:] = 4
    own = np.full(1 << 16, 5, F)
    data = bytearray(b"6" * (1 << 18))
    for value in (own, own.data, written, copied, memoryview(data), own[::2], b"7"):
        forget_pages(value)
    assert all((array == n).all() for array, n in ((written, 3), (copied, 4), (own, 5)))
    assert data == b"6" * (1 << 18)
