"""Calibration data from the user's own function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import DataError
from edgekit.network.model import Model
from edgekit.quantize.data.functions import data_file
from edgekit.quantize.data.load import load_data
from edgekit.quantize.data.rows import CalibrationSamples
from tests.quantize.quantize_nets import make, node

F = np.float32
PAIR, _ = make([node("Add", "x z", "y")], {}, {"x": [2, 3], "z": [2, 3]}, ["y"])

FEED = """\
import numpy as np
print("hello")
calls = []
made = []
def rows():
    calls.append(1)
    for i in range(7):
        made.append(i)
        yield np.full((2, 2), i, np.float32)
def batches():
    yield np.arange(6.0).reshape(3, 2)
    yield [6.0, 7.0]
    yield np.arange(8.0, 16.0).reshape(4, 2)
def runs():
    yield np.arange(8.0).reshape(2, 2, 2)
def pairs():
    yield {"x": np.zeros((4, 3)), "z": np.ones((4, 3), int)}
def endless():
    while True:
        yield np.zeros(2)
"""


def model(batch: int) -> Model:
    return make([node("Relu", "x", "y")], {}, {"x": [batch, 2]}, ["y"])[0]


@pytest.fixture(autouse=True)
def unimported():
    """Modules of these tests are of temporary folders."""
    before, path = set(sys.modules), list(sys.path)
    yield
    assert sys.path == path
    for name in set(sys.modules) - before:
        if name.startswith("h2feed"):
            del sys.modules[name]


def feed(
    tmp_path: Path, text: str, function: str = "f", net: Model | None = None
) -> CalibrationSamples:
    (tmp_path / "h2feed.py").write_text(text)
    return load_data(f"python:h2feed:{function}", net or model(2), folders=[tmp_path])


def refused(tmp_path: Path, text: str, words: str, net: Model | None = None) -> DataError:
    sys.modules.pop("h2feed", None)
    with pytest.raises(DataError, match=words) as caught:
        list(feed(tmp_path, text, net=net))
    assert caught.value.hint
    return caught.value


def test_each_pass_calls_the_function_anew(tmp_path: Path, capsys) -> None:
    samples = feed(tmp_path, FEED, "rows")
    module = sys.modules["h2feed"]
    assert module.calls == []
    for done in (1, 2):
        found = list(samples)
        assert len(module.calls) == done
        assert [float(s["x"][0, 0]) for s in found] == list(range(7))
    out, err = capsys.readouterr()
    assert out == ""  # stdout is for a command's document
    assert err == "hello\n"


def test_no_more_is_made_than_is_requested(tmp_path: Path) -> None:
    (tmp_path / "h2feed.py").write_text(FEED)
    spec = {"data": "python:h2feed:rows", "count": 5}
    samples = load_data(spec, model(2), folders=[tmp_path])
    assert len(list(samples)) == len(samples) == 3
    assert samples.valid(2) == 1
    assert sys.modules["h2feed"].made == [0, 1, 2]
    spec["data"] = "python:h2feed:endless"
    assert len(list(load_data(spec, model(1), folders=[tmp_path]))) == 5


def test_every_batch_size_gives_the_same_samples(tmp_path: Path) -> None:
    for batch in (1, 2, 3, 16):
        samples = feed(tmp_path, FEED, "batches", model(batch))
        assert len(samples) == 0  # nobody knows
        found = [s["x"][: samples.valid(i)] for i, s in enumerate(samples)]
        assert np.array_equal(np.concatenate(found), np.arange(16.0).reshape(8, 2))
    whole = list(feed(tmp_path, FEED, "runs", model(2)))
    assert np.array_equal(np.concatenate([s["x"] for s in whole]), np.arange(8.0).reshape(4, 2))
    with pytest.raises(DataError, match=r"\[2, 2, 2\]"):
        list(feed(tmp_path, FEED, "runs", model(4)))


def test_several_inputs(tmp_path: Path) -> None:
    first, second = feed(tmp_path, FEED, "pairs", PAIR)
    for sample in (first, second):
        assert (sample["x"] == 0).all()
        assert (sample["z"] == 1).all()
        assert sample["z"].dtype == F


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("import numpy\n\ndef f()\n  pass\n", 3, "SyntaxError"),
        ("import nowhere_at_all\n", 1, "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f():\n    raise ValueError('odd\\nand more')\n", 2, "ValueError: odd$"),
        ("def f():\n    yield [1.0, 2.0]\n    1 / 0\n", 3, "ZeroDivisionError"),
        ("import sys\ndef f():\n    sys.exit()\n", 3, "failed: SystemExit"),
        ("import json\ndef f():\n    return json.loads('{')\n", 3, "JSONDecodeError"),
        ("def f():\n    yield [1.0, [2.0]]\n", None, "inhomogeneous"),
    ],
)
def test_faults_of_the_function_are_reported_with_their_line(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    error = refused(tmp_path, text, words.removesuffix("$") + r"(?!\nand)")
    assert error.code == "data.python"
    assert "\n" not in error.message
    place = str(tmp_path / "h2feed.py")
    assert error.where == (f"{place}:{line}" if line else place)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("def f(): return []\n", "data.empty", "no sample"),
        ("g = iter(())\ndef f(): return g\n", "data.empty", "new iterable"),
        ("def f(): return None\n", "data.python", "returned None"),
        ("def f(): return 'text'\n", "data.python", "type str"),
        ("def f(): return {'x': [1.0, 2.0]}\n", "data.python", "type dict"),
        ("def f(): yield 'text'\n", "data.python", "item 0 has a value of type str"),
        ("def f(): yield None\n", "data.python", "item 0 has None"),
        ("def f(): yield {'q': [1.0, 2.0]}\n", "data.inputs", r"feed:f\[0\].*'q'"),
        ("def f(): yield [1.0, 2.0, 3.0]\n", "data.shape", r"\[3\]"),
        ("def f(): yield [1.0, float('nan')]\n", "data.nonfinite", r"feed:f\[0\]: input 'x'"),
        ("f = 7\n", "data.python", "no function, but a value, 'f'"),
        ("", "data.python", "no function 'f'"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, code: str, words: str) -> None:
    assert refused(tmp_path, text, words).code == code


def test_several_inputs_need_names_and_equal_numbers(tmp_path: Path) -> None:
    refused(tmp_path, "def f(): yield [[0.0] * 3]\n", "give a dict with 'x', 'z'", PAIR)
    uneven = "import numpy as np\ndef f(): yield {'x': np.zeros((2, 3)), 'z': np.zeros((4, 3))}\n"
    refused(tmp_path, uneven, "different numbers", PAIR)


@pytest.mark.parametrize(
    "spec", ["python:h2feed", "python:h2feed:", "python::f", "python:a b:f", "python:../x:f"]
)
def test_names_that_are_none(tmp_path: Path, spec: str) -> None:
    with pytest.raises(DataError, match="is not python:module:function"):
        load_data(spec, model(1), folders=[tmp_path])


def test_a_module_is_found_without_being_run(tmp_path: Path) -> None:
    package = tmp_path / "h2feedpack" / "inner"
    package.mkdir(parents=True)
    (package / "data.py").write_text("raise SystemExit('it ran')\n")
    spec = "python:h2feedpack.inner.data:f"
    assert data_file(spec, [tmp_path]) == package / "data.py"
    with pytest.raises(DataError, match=r"module 'h2feedpack\.outer' does not exist") as caught:
        data_file("python:h2feedpack.outer:f", [tmp_path])
    assert str(tmp_path) in caught.value.hint
    # a path is never taken for a function
    (tmp_path / "h2feed.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(DataError, match="file or folder does not exist"):
        load_data(Path("python:h2feed:f"), model(1), folders=[tmp_path])


def test_the_module_of_the_named_folder_is_taken(tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        text = f"def f(): yield [{len(name)}.0, {ord(name[0])}.0]\n"
        (sample,) = feed(folder, text, net=model(1))
        assert sample["x"][0, 1] == ord(name[0])
    # one that edgekit itself uses cannot be replaced
    for name, words in (("numpy", "already loaded"), ("random", "Python standard module")):
        (tmp_path / f"{name}.py").write_text("def f(): yield [0.0, 0.0]\n")
        with pytest.raises(DataError, match=words):
            load_data(f"python:{name}:f", model(1), folders=[tmp_path])
    assert sys.modules["numpy"] is np


def test_spread_needs_a_known_number(tmp_path: Path) -> None:
    (tmp_path / "h2feed.py").write_text(FEED)
    spec = {"data": "python:h2feed:rows", "pick": "spread", "count": 3}
    with pytest.raises(DataError, match="is unknown"):
        load_data(spec, model(1), folders=[tmp_path])


def test_a_helper_next_to_the_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "h2feed_helper.py").write_text("VALUE = 3.0\n")
    late = "def f():\n    from h2feed_helper import VALUE\n    yield [VALUE, 0.0]\n"
    (sample,) = feed(tmp_path, late, net=model(1))
    assert sample["x"][0, 0] == 3


def test_importing_the_lowest_layer_imports_no_library() -> None:
    code = "import sys, edgekit.quantize; print({'numpy', 'PIL', 'onnx'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
