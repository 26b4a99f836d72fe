"""A measurement that was killed goes on where it stopped, with the same results to the bit."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.quantize.calibration.measure import MeasurementState, measure
from tests.quantize.quantize_nets import branches
from tests.quantize.test_calibrate import images

MODEL, NETWORK = branches()
COUNT = 8
# keeps a state after every input, and waits in the midst of reading the sixth
CHILD = """
import sys
from pathlib import Path
from edgekit.quantize.calibration import measure as measuring
from edgekit.quantize.calibration.measure import measure
from tests.quantize.test_resume import COUNT, MODEL, images
measuring._EVERY = measuring._SPARE = -1.0
def data():
    for index, feed in enumerate(images(COUNT)):
        if index == 5:
            print("waiting", flush=True)
            sys.stdin.read()
        yield feed
measure(MODEL, data(), resume=Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The state that a process left which was killed."""
    path = tmp_path_factory.mktemp("killed") / "state"
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return path.read_bytes()


def test_it_goes_on_and_gives_the_same(killed: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_bytes(killed)
    progress: list[tuple[int, int]] = []
    found = measure(
        MODEL, images(COUNT), resume=state, progress=lambda *done: progress.append(done)
    )
    assert progress[:4] == [(5, COUNT), (6, COUNT), (7, COUNT), (8, COUNT)]
    assert found.amax == measure(MODEL, images(COUNT)).amax
    assert found.samples == COUNT
    assert not any("interrupted" in text for text in found.warnings)
    assert not list(tmp_path.iterdir())


def test_a_state_of_other_data_is_not_used(killed: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state"
    other = images(COUNT)
    other[3]["x"][0, 0, 0, 0] += 1
    for data in (other, iter(other), other[:2]):
        state.write_bytes(killed)
        found = measure(MODEL, data, resume=state)
        assert "it has other data" in found.warnings[0]
        expected = other[:2] if found.samples == 2 else other
        assert found.amax == measure(MODEL, expected).amax
        assert not state.exists()


def test_a_state_of_another_model_is_not_used(killed: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_bytes(killed)
    model, _ = branches(16)
    data = images(2, shape=(1, 3, 16, 16))
    found = measure(model, data, resume=state)
    assert "another model" in found.warnings[0]
    assert found.amax == measure(model, data).amax


@pytest.mark.parametrize("damage", [b"", b"no archive", "half"])
def test_a_damaged_state_is_not_used(killed: bytes, tmp_path: Path, damage: bytes | str) -> None:
    state = tmp_path / "state"
    state.write_bytes(killed[: len(killed) // 2] if isinstance(damage, str) else damage)
    found = measure(MODEL, images(2), resume=state)
    assert "it is damaged" in found.warnings[0]
    assert found.amax == measure(MODEL, images(2)).amax


def test_a_state_is_what_was_counted(tmp_path: Path) -> None:
    from edgekit.quantize.calibration.histograms import ValueHistogram

    histograms = {"a": ValueHistogram(), "b": ValueHistogram(), "c": ValueHistogram()}
    histograms["b"].add(np.zeros(7, np.float32))
    histograms["c"].add(np.array([-3.0, 2.5], np.float32))
    keeper = MeasurementState(tmp_path / "new" / "state", MODEL, list(histograms))
    assert keeper.load() == ""
    keeper.save(histograms, 3, "abc")
    loaded = keeper.load()
    assert not isinstance(loaded, str)
    assert loaded[1:] == (3, "abc")
    for name, histogram in histograms.items():
        again = loaded[0][name]
        assert (again.low, again.high, again.top, again.zeros) == (
            histogram.low,
            histogram.high,
            histogram.top,
            histogram.zeros,
        )
        assert np.array_equal(again.counts, histogram.counts)
