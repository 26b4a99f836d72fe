"""trtexec's --exportTimes, written as its own code writes it."""

import pytest

from edgekit.benchmark.trtexec import read_times
from edgekit.errors import DataError
from edgekit_device.benchmark.statistics import summary as latency_summary

FIELDS = (
    "startEnqMs",
    "endEnqMs",
    "startH2dMs",
    "endH2dMs",
    "startComputeMs",
    "endComputeMs",
    "startD2hMs",
    "endD2hMs",
    "h2dMs",
    "computeMs",
    "d2hMs",
    "latencyMs",
)


def iteration(**values):
    """One object in trtexec's form: spaces around the colons, six significant digits."""
    known = dict.fromkeys(FIELDS, 0.0) | values
    return "{ " + ", ".join(f'"{name}" : {value:g}' for name, value in known.items()) + " }"


def written(path, *objects):
    path.write_text("[\n  " + "\n, ".join(objects) + "\n]\n")
    return path


def test_iterations_in_their_order(tmp_path):
    file = written(
        tmp_path / "t.json",
        iteration(startEnqMs=1, endEnqMs=1.5, startComputeMs=2, h2dMs=0.25, computeMs=3, d2hMs=0.5),
        iteration(startComputeMs=3069551, computeMs=4),
    )
    first, second = read_times(file)
    assert (first.start_ms, first.enqueue_ms, first.latency_ms) == (2, 0.5, 3.75)
    assert second.start_ms == 3.06955e6
    assert latency_summary([i.compute_ms for i in (first, second)])["max"] == 4


def test_a_large_file_is_read_in_linear_time(tmp_path):
    file = written(tmp_path / "t.json", *[iteration(computeMs=n) for n in range(2000)])
    assert [i.compute_ms for i in read_times(file)] == list(range(2000))


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "x"])
def test_what_is_no_time(tmp_path, value):
    text = iteration().replace('"computeMs" : 0', f'"computeMs" : {value}')
    with pytest.raises(DataError) as caught:
        read_times(written(tmp_path / "t.json", iteration(), text))
    assert caught.value.code == "times.value"
    assert "iteration 1" in caught.value.message


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "{}", "null", '[ { "name" : "x" } ]', '[ { "startEnqMs" : 1']
)
def test_another_file(tmp_path, text):
    file = tmp_path / "t.json"
    file.write_text(text)
    with pytest.raises(DataError) as caught:
        read_times(file)
    assert caught.value.code == "times.form"


def test_no_file(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe[")
    for name, code in (("missing", "times.unreadable"), ("binary", "times.form")):
        with pytest.raises(DataError) as caught:
            read_times(tmp_path / name)
        assert caught.value.code == code
