"""Configuration files: everything that is wrong is told at once."""

from pathlib import Path

import pytest

from edgekit.config.loader import load_config, parse_config
from edgekit.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
GOOD = "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f.yaml", Path())
    return {p.where: f"{p.message} | {p.hint}" for p in caught.value.problems}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_configurations_are_valid(path):
    config = load_config(path)
    assert config.file.name
    assert config.folder == path.parent


def test_configurations_are_shipped():
    assert len(CONFIGS) >= 6


def test_every_fault_is_reported_at_once_in_file_order():
    text = (
        "version: 1\nname: Net 5\nmodel: {onnx: a.onnx}\ntarget: 12\nplacement:\n"
        "  objectve: latency\n  bounds: {latency_us: -3}\nprecision: int8\nprecision: fp16\n"
    )
    found = problems(text)
    assert list(found) == ["f.yaml:2:1", "f.yaml:4:1", "f.yaml:6:3", "f.yaml:7:12", "f.yaml:9:1"]
    assert "did you mean 'objective'?" in found["f.yaml:6:3"]
    assert "-3 is too small (more than 0)" in found["f.yaml:7:12"]
    assert "duplicate key" in found["f.yaml:9:1"]


def test_a_misspelt_key_is_one_problem_not_two():
    found = problems(GOOD.replace("model:", "modell:"))
    assert list(found) == ["f.yaml:3:1"]
    assert "did you mean 'model'?" in found["f.yaml:3:1"]


def test_a_key_that_was_removed_names_what_to_do():
    found = problems(GOOD + "deploy:\n  mirror: [https://m.example.org/]\n")
    assert "key 'deploy.mirror' no longer exists" in found["f.yaml:6:3"]
    assert "edgekit deploy sends the bundle over SSH" in found["f.yaml:6:3"]
    found = problems(GOOD + "build: {backend: trtexec}\n")
    assert "'trtexec' no longer exists | write tensorrt" in found["f.yaml:5:9"]


@pytest.mark.parametrize("before", ["", "# mine\n", "# What edgekit tune found\n"])
def test_sections_alone_are_no_configuration(before):
    found = problems(f"{before}placement: {{objective: latency}}\nrewrite: {{enable: none}}\n")
    message = found.pop("f.yaml:1:1")
    assert "not a whole configuration, but sections of one: placement, rewrite |" in message
    assert not found
    other = problems(f"{before}placement: {{objective: latency}}\nname: x\n")
    assert "is missing" in str(other)


def test_a_board_has_its_own_name_whatever_the_order_of_its_words():
    file = parse_config(GOOD.replace("jetson-agx-orin", "Jetson-Orin-AGX"), "f.yaml", Path()).file
    assert file.target == "jetson-agx-orin-64gb"
    (fault,) = problems(GOOD.replace("jetson-agx-orin-64gb", "jetson-tx2")).values()
    assert fault.startswith("Jetson TX2 is not supported: it has no DLA")


@pytest.mark.parametrize(
    ("extra", "where", "words"),
    [
        ("placement: {pools: {managed_sram: 5000}}", "f.yaml:5:13", "power of two"),
        ("placement: {pools: big}", "f.yaml:5:13", "choose auto or keys with values"),
        ("placement: {dla_cores: [0, x]}", "f.yaml:5:28", "integer"),
        ("placement: {max_loadables: 17}", "f.yaml:5:13", "16"),
        ("rewrite: {enable: 5}", "f.yaml:5:11", "choose one of all, none or a list"),
        ("build: {mode: hybird}", "f.yaml:5:9", "did you mean 'hybrid'?"),
        ("bench: {iterations: no}", "f.yaml:5:9", "integer"),
        ("bench: {duration_s: .nan}", "f.yaml:5:9", "number"),
        ("deploy: {boards: [{host: a}]}", "f.yaml:5:19", "'deploy.boards.0.name' is missing"),
        (
            "deploy: {boards: [{name: a, host: b, host_key: x}]}",
            "f.yaml:5:38",
            "`SHA256:` and 43 characters",
        ),
        ("deploy: {release: {valid_until: soon}}", "f.yaml:5:20", "2027-01-31T12:00:00Z"),
        ("placement: {dla_cores: 0}", "f.yaml:5:13", "write [0]"),
        ("placement: {objective: quick}", "f.yaml:5:13", "choose one of latency, throughput"),
        ("placement: {pin: [{layers: a}]}", "f.yaml:5:19", "add: device: DLA"),
        ("jetpack: 7.2", "f.yaml:5:1", "tensorrt: '10.3'"),
        ("deploy: {sign_with: '${EDGEKIT_NO_SUCH}'}", "f.yaml:5:10", "EDGEKIT_NO_SUCH is not set"),
        ("calibration: {data: a, cache: b}", "f.yaml:5:1", "not both"),
        ("calibration: {resize: tall}", "f.yaml:5:15", "letterbox"),
        ("calibration: {resize: 0}", "f.yaml:5:15", "letterbox"),
        ("calibration: {resize: [8]}", "f.yaml:5:15", "[height, width]"),
        ("calibration: {crop: 1.5}", "f.yaml:5:15", "0.875"),
        ("calibration: {pad: 256}", "f.yaml:5:15", "255"),
        ("calibration: {preset: imagnet}", "f.yaml:5:15", "did you mean 'imagenet'?"),
        ("calibration: {color: grey}", "f.yaml:5:15", "did you mean 'gray'?"),
        ("calibration: {scale: 0}", "f.yaml:5:15", "0 is too small (more than 0)"),
        ("tensorrt: 10.3", "f.yaml:5:1", "string"),
    ],
)
def test_one_fault_one_problem(extra, where, words):
    found = problems(GOOD + extra + "\n")
    assert list(found) == [where]
    assert words in found[where]


def test_sizes_of_images_are_a_word_a_number_or_a_pair():
    for text, resize, crop in (
        ("{resize: 256, crop: 224}", 256, 224),
        ("{resize: [240, 320], crop: [224, 300]}", [240, 320], [224, 300]),
        ("{resize: cover, crop: 0.875}", "cover", 0.875),
        ("{}", None, None),
    ):
        section = parse_config(f"{GOOD}calibration: {text}\n", "f.yaml", Path()).file.calibration
        assert (section.resize, section.crop) == (resize, crop)


def test_model_needs_exactly_one_source():
    both = GOOD.replace("{onnx: net.onnx}", "{onnx: net.onnx, builtin: light_vgg19}")
    assert "exactly one" in next(iter(problems(both).values()))
    assert "exactly one" in next(iter(problems(GOOD.replace("onnx: net.onnx", "seed: 1")).values()))


def test_missing_keys_are_shown_as_they_are_written():
    with pytest.raises(ConfigError) as caught:
        parse_config("precision: fp16\n", "f.yaml", Path())
    hints = [problem.hint for problem in caught.value.problems]
    assert hints == [
        "add: version: 1",
        "add: name: resnet50",
        "add: model: {onnx: model.onnx}",
        "add: target: jetson-agx-orin-64gb",
    ]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n", "text\n"])
def test_not_a_mapping(text):
    assert list(problems(text)) == ["f.yaml:1:1"]


def test_environment_is_expanded_in_deploy_only(monkeypatch):
    monkeypatch.setenv("BOARD", "192.0.2.7")
    text = GOOD.replace("net.onnx", "'${BOARD}.onnx'")
    text += "deploy: {boards: [{name: lab, host: '${BOARD}'}]}\n"
    file = parse_config(text, "f.yaml", Path()).file
    assert file.deploy.boards[0].host == "192.0.2.7"
    assert file.model.onnx == "${BOARD}.onnx"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version: 1\nmodel:\n\tonnx: a\n", "a tab in the indentation"),
        ("version: 1\n".encode("utf-16"), "UTF-16"),
        (b"version: 1\nname: caf\xe9\n", "byte 0xe9 in line 2"),
        (bytes(range(0x80, 0x90)) * 4 + b"\0", "this is no text"),
    ],
)
def test_a_tab_or_another_encoding_is_named(tmp_path, data, message):
    path = tmp_path / "net.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in caught.value.message
    assert caught.value.hint


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml")
    assert caught.value.code == "config.missing"
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert caught.value.code == "config.missing"
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "latin.yaml")
    assert caught.value.code == "config.syntax"


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "c.yaml").write_text(GOOD)
    config = load_config(tmp_path / "c.yaml")
    assert config.resolve("a/b.onnx") == tmp_path / "a/b.onnx"
    assert config.resolve("/abs.onnx") == Path("/abs.onnx")
    assert config.resolve("~/k") == Path.home() / "k"


@pytest.mark.parametrize(
    ("gate", "fine"),
    [
        ("metric: cosine, min: 1.0", True),
        ("metric: cosine, min: 1.01", False),
        ("metric: top1_agreement, min: 99", False),
        ("metric: snr_db, min: 99", True),
    ],
)
def test_an_accuracy_that_nothing_reaches_is_reported_at_once(gate, fine):
    text = f"{GOOD}accuracy: {{{gate}}}\n"
    if fine:
        assert parse_config(text, "f.yaml", Path()).file.accuracy.min is not None
        return
    (reported,) = problems(text).values()
    assert gate.split()[1].rstrip(",") in reported


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("model: net.onnx", "model: {onnx: net.onnx}"),
        ("model: builtin:light_resnet50", "model: {builtin: light_resnet50}"),
        ("model: {path: net.onnx}", "did you mean 'onnx'?"),
        ("model: {file: net.onnx}", "did you mean 'onnx'?"),
        ("model: {networks: [net.onnx]}", "{name: NAME, onnx: net.onnx}"),
        ("model: {onnx: net.onnx}\nplacement: latency", "objective"),
    ],
)
def test_a_value_in_the_place_of_keys_says_which_key_it_is_of(written, hint):
    (reported,) = problems(GOOD.replace("model: {onnx: net.onnx}", written)).values()
    assert hint in reported
    assert "ModelSection" not in reported
    assert "dictionary" not in reported


def test_a_number_of_thousands_of_digits_is_one_problem_and_not_repeated(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_text(
        f"version: 1\nname: x\nmodel: {{builtin: light_resnet50, seed: {'9' * 5000}}}\n"
        "target: jetson-agx-orin-64gb\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert [one.message for one in caught.value.problems] == ["a number of 5,000 digits"]
    for key in ("name", "target"):
        path.write_text(f"version: 1\n{key}: {'z' * 5000}\nmodel: {{builtin: light_resnet50}}\n")
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        problem = next(one for one in caught.value.problems if "zzz" in one.message)
        assert len(problem.message) < 300
        assert "characters)" in problem.message


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [("10.3.0", "10.3"), ("010.3", "10.3"), ("10.0.0", "10.0"), ("11.4.1", "11.4.1"), ("9", "9")],
)
def test_a_release_has_one_spelling(tmp_path: Path, typed: str, spelled: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "version: 1\nname: net\nmodel: {builtin: light_squeezenet}\n"
        f"target: jetson-agx-orin-64gb\ntensorrt: '{typed}'\n"
    )
    assert load_config(file).file.tensorrt == spelled
