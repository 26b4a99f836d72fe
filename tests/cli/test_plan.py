"""``edgekit plan``: its options become a configuration, and its questions one document each."""

import json

import onnx
import pytest
from onnx import helper

import edgekit
from edgekit.cli import main
from edgekit.config.changes import ChangedPlacement, read_changes
from edgekit.config.loader import open_config
from edgekit.errors import GateError
from edgekit.pipeline.steps.plan import plan_identity
from tests.network.onnx_making import make
from tests.pipeline.nets import small_config, small_net

BOARD = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan")
    small_net(path / "small.onnx")
    return path


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))


def plan(capsys, *arguments, status=0):
    """Runs the command with --json and returns its document."""
    with pytest.raises(SystemExit) as caught:
        main.main(["plan", *map(str, arguments), "--json", "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == status, captured.err
    assert "Traceback" not in captured.err
    return json.loads(captured.out)


def small(capsys, *arguments, status=0):
    return plan(capsys, "small.onnx", "-t", BOARD, *arguments, status=status)


def devices(document):
    return {layer["name"]: layer["device"] for layer in document["layers"]}


def test_options_are_constraints(capsys):
    free = small(capsys, "--objective", "gpu_time")
    pinned = small(capsys, "--pin", "conv*=dla", "--pin", "conv1=GPU")
    assert devices(pinned)["conv1"] == "GPU"
    assert devices(pinned)["conv2"] == "DLA0"
    assert free["transitions"] > 0
    few = small(capsys, "--objective", "gpu_time", "--max-transitions", "0")
    assert few["transitions"] == 0
    large = small(capsys, "--pin", "conv2=DLA", "--min-loadable", "3")
    assert min(len(loadable["layers"]) for loadable in large["loadables"]) >= 3
    bound = free["predicted"]["gpu_us"] * 1.001
    fast = small(capsys, "--bound", f"gpu_us={bound}")
    assert fast["predicted"]["gpu_us"] <= bound * (1 + 1e-5)


def test_pins_of_the_command_line_come_after_the_files(folder, capsys, tmp_path):
    config = small_config(tmp_path)
    text = config.read_text().replace("gpu_time}", "gpu_time, pin: [{layers: '*', device: GPU}]}")
    config.write_text(text)
    assert set(devices(plan(capsys, config)).values()) == {"GPU"}
    assert devices(plan(capsys, config, "--pin", "conv2=DLA"))["conv2"] == "DLA0"


def test_each_row_of_a_table_is_one_plan(capsys):
    rows = small(capsys, "--modes", "maxn,15W", "--targets", f"{BOARD},jetson-orin-nano-8gb")[
        "rows"
    ]
    failed = [row for row in rows if row["error"]]
    assert len(rows) == 3 * 3 + 1
    assert "MAXN" in failed[0]["error"]["message"].upper()  # which the Nano lacks
    assert len(failed) == 1
    table = small(capsys, "--modes", "MAXN,30W")
    assert table["schema"] == "edgekit.plan-table/1"
    assert [row["power_mode"] for row in table["rows"]] == ["MAXN"] * 3 + ["30W"] * 3
    for row in table["rows"][:3]:
        own = small(capsys, "--objective", row["objective"])["predicted"]
        assert {key: row[key] for key in own} == own
        assert list(row["plans"]) == [row["objective"]]
    own = small(capsys, "--objective", "throughput")["predicted"]
    one = small(capsys, "--modes", "MAXN", "--objective", "throughput")["rows"][0]
    assert one["latency_us"] == own["latency_us"]
    assert set(one["plans"]) == {"throughput"}
    boards = plan(
        capsys,
        "small.onnx",
        "--targets",
        "jetson-agx-xavier,jetson-orin-nano-8gb",
        "--dla-cores",
        "0,1",
    )["rows"]
    assert [row["dla_cores"] for row in boards[::3]] == [[0, 1], []]
    assert boards[3]["plans"]["latency"]["gpu_share"] == 1.0


def test_a_board_without_the_mode_requested_says_so(capsys):
    rows = small(capsys, "--power-mode", "50W", "--targets", f"{BOARD},jetson-orin-nx-8gb")["rows"]
    assert [row["power_mode"] for row in rows[::3]] == ["50W", "MAXN"]
    assert "no power mode 50W" in rows[3]["notes"][0]
    other = plan(
        capsys,
        "small.onnx",
        "--power-mode",
        "50W",
        "--objective",
        "latency",
        "--targets",
        f"jetson-orin-nx-8gb,{BOARD}",
    )["rows"]
    assert [row["power_mode"] for row in other] == ["MAXN", "50W"]
    none = plan(capsys, "small.onnx", "--power-mode", "51W", "--targets", BOARD, status=2)
    assert none["error"]["code"] == "target.mode"


def test_a_core_that_the_engine_does_not_drive_is_the_reason(capsys):
    document = small(capsys, "--pin", "conv1=DLA1", "--dla-cores", "0,1", status=1)
    assert "a hybrid engine uses only one DLA core, 0" in document["error"]["message"]
    assert "dla_cores 0 " not in document["error"]["hint"]


def test_a_layer_is_found_by_a_node_that_loading_removed(folder, capsys):
    same = helper.make_node("Identity", ["x"], ["y"], name="id")
    onnx.save(make([same], {"x": [1, 3, 8, 8]}, ["y"]), folder / "id.onnx")
    assert plan(capsys, "id.onnx", "-t", BOARD, "--why", "id")["nodes"] == ["id"]
    error = plan(capsys, "id.onnx", "-t", BOARD, "--why", "no", status=2)["error"]
    assert error["where"] == "id.onnx"


def test_a_conflict_is_named_in_the_users_words(capsys):
    document = small(capsys, "--bound", "latency_us=1", "--max-transitions", "9", status=1)
    assert document["error"]["code"] == "plan.infeasible"
    assert [option["text"] for option in document["conflict"]] == ["bound latency_us=1"]
    assert "at best (predicted)" in document["error"]["message"]
    standalone = small(capsys, "--no-gpu", status=1)
    assert standalone["error"]["layers"]
    assert [option["kind"] for option in standalone["conflict"]] == ["gpu"]
    with pytest.raises(GateError) as caught:
        edgekit.plan("small.onnx", target=BOARD, placement={"gpu": False})
    # the API names the function, where there is no other place
    assert caught.value.to_json()["error"] == {**standalone["error"], "where": "edgekit.plan"}


def test_that_a_hybrid_engine_has_one_core_is_reported_also_of_a_plan_read_back(capsys):
    for _ in range(2):
        notes = small(capsys, "--dla-cores", "1,0")["notes"]
        assert any("uses only one DLA core, 1" in note for note in notes)


def test_a_report_of_the_plan_alone(folder, capsys):
    small(capsys, "--report", "plan.html")
    page = (folder / "plan.html").read_text()
    assert "conv2" in page
    assert "predicted" in page.lower()


def test_changes_become_keys_of_the_configuration(folder):
    config = open_config(
        "small.onnx", target=BOARD, placement={"pin": [{"layers": "a", "device": "GPU"}]}
    )
    read = read_changes(
        "unpin a; pin b c* DLA; pool local_dram 1MiB; bound gpu_us 3; bound energy_uj 4; gpu no",
        config,
    )
    assert read.placement == ChangedPlacement(
        pin=[{"layers": "b c*", "device": "DLA"}],
        pools={"local_dram": 1 << 20},
        bounds={"gpu_us": 3.0, "energy_uj": 4.0},
        gpu=False,
    )
    assert open_config(config, **read.options()).file.build.mode == "standalone"
    # the last word on the GPU counts, and so does a mode that is given
    read = read_changes("gpu no; gpu yes", config)
    assert open_config(config, **read.options()).file.build.mode == "hybrid"
    given = open_config(config, placement={"gpu": False}, build={"mode": "split"})
    assert given.file.build.mode == "split"


def test_every_request_and_the_profiles_content_are_part_of_what_a_plan_depends_on(folder):
    from edgekit.pipeline.pipeline import Pipeline

    (folder / "profile.json").write_text('[{"name": "conv1", "timeMs": 1.0}]')

    def identity(**placement):
        with Pipeline(open_config("small.onnx", target=BOARD, placement=placement)) as pipeline:
            return plan_identity(pipeline.context)

    requested = [
        {},
        {"max_transitions": 1},
        {"min_loadable_layers": 2},
        {"max_loadables": 3},
        {"bounds": {"period_us": 5.0}},
        {"pools": {"local_dram": 4096}},
        {"pin": [{"layers": "*", "device": "GPU"}]},
        {"profile": "profile.json"},
    ]
    found = [repr(identity(**placement)) for placement in requested]
    assert len(set(found)) == len(requested)
    (folder / "profile.json").write_text('[{"name": "conv1", "timeMs": 2.0}]')
    assert repr(identity(profile="profile.json")) not in found
    (folder / "layers.json").write_text('{"Layers": []}')
    assert repr(identity(profile="profile.json", layer_info="layers.json")) not in found


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (["--why", "conv2"], ["runs on", "Alternative", "predicted"]),
        (["--what-if", "mode 15W"], ["now", "then", "predicted", "device changes"]),
        (["--pareto", "latency,energy"], ["the whole front", "optimal"]),
        (["--modes", "all"], ["MAXN", "50W", "Predicted, not measured"]),
        (["--bound", "latency_us=9e9"], ["proved optimal", "GPU alone", "vs plan"]),
    ],
)
def test_text_fits_eighty_columns(question, words, capsys):
    with pytest.raises(SystemExit):
        main.main(["plan", "small.onnx", "-t", BOARD, "-q", *question])
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    for word in words:
        assert word in out


def test_a_plan_says_how_much_of_it_a_profile_measured(folder, capsys):
    """Before, all of it was called predicted, with the band of the cost model's errors."""
    names = [layer["name"] for layer in plan(capsys, "small.onnx", "-t", BOARD)["layers"]]
    requested = (
        "-t",
        BOARD,
        "--dla-cores",
        "none",
        "--profile",
        "p.json",
        "-q",
        "--precision",
        "fp32",
    )

    def read(*rows):
        (folder / "p.json").write_text(json.dumps([{"count": 1}, *rows]))
        with pytest.raises(SystemExit) as caught:
            main.main(["plan", "small.onnx", *requested])
        assert caught.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    row = {"timeMs": 0.05, "averageMs": 0.05, "percentage": 1}
    whole = read(*({"name": name, **row} for name in names))
    assert " µs, measured by p.json; proved optimal" in whole
    assert "this plan's times measured by p.json" in whole
    assert "no board measurements were used" not in whole
    assert "All of the latency is measured" in whole
    assert "band" not in whole.split("note")[0]
    assert "Predicted for the board" not in whole
    part = read(*({"name": name, **row} for name in names[:3]))
    assert "% measured by p.json, the rest predicted; proved optimal" in part
    assert "band" in part
    assert "no board measurements were used" not in part


def test_the_band_is_as_wide_as_the_part_that_is_predicted(folder, capsys):
    def width(measured):
        rows = [{"name": n, "timeMs": 0.001, "averageMs": 0.001, "percentage": 1} for n in measured]
        (folder / "p.json").write_text(json.dumps([{"count": 1}, *rows]))
        requested = ("--dla-cores", "none", *(["--profile", "p.json"] if rows else []))
        found = plan(capsys, "small.onnx", "-t", BOARD, *requested)
        low, high = found["bands"]["latency_us"]
        fraction = (found["measured"] or {"fraction": 0})["fraction"]
        return (high - low) / found["predicted"]["latency_us"], fraction

    alone, none = width([])
    narrow, part = width(["conv1", "bn", "relu1"])
    assert none == 0 < part < 1
    assert narrow == pytest.approx(alone * (1 - part), rel=1e-3)
