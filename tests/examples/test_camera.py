"""The camera example: frames of known colours as a network's input."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import edgekit_device

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "camera"


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("frames")
    sys.modules.pop("frames", None)


def nv12(width: int, height: int, pitch: int, colour: tuple[int, int, int]) -> np.ndarray:
    """A frame of one colour (Y, Cb, Cr), with other bytes behind its lines."""
    half = -(-height // 2)
    lines = np.full((height + half, pitch), 77, np.uint8)
    lines[:height, :width] = colour[0]
    lines[height:, : -(-width // 2) * 2] = np.tile(colour[1:], -(-width // 2))
    return lines.reshape(-1)


# white and black; bars of 75 % of BT.709 as SMPTE RP 219 has them, of limited range
@pytest.mark.parametrize(
    ("colour", "wanted"),
    [
        ((235, 128, 128), (255, 255, 255)),
        ((16, 128, 128), (0, 0, 0)),
        ((168, 44, 136), (191, 191, 0)),
        ((51, 109, 212), (191, 0, 0)),
        ((28, 212, 120), (0, 0, 191)),
    ],
)
@pytest.mark.parametrize(("width", "height", "pitch"), [(6, 4, 0), (7, 5, 16)])
def test_nv12_has_the_colours_of_bt709(
    frames: ModuleType,
    colour: tuple[int, int, int],
    wanted: tuple[int, int, int],
    width: int,
    height: int,
    pitch: int,
) -> None:
    found = frames.nv12_to_rgb(nv12(width, height, pitch or 6, colour), width, height, pitch)
    assert found.shape == (height, width, 3)
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_full_range_is_not_stretched(frames: ModuleType) -> None:
    grey = nv12(4, 4, 4, (90, 128, 128))
    assert (frames.nv12_to_rgb(grey, 4, 4, limited=False) == 90).all()


def test_each_four_pixels_have_their_own_chroma(frames: ModuleType) -> None:
    memory = nv12(4, 2, 4, (51, 128, 128))
    memory[-2:] = (109, 212)  # the right half is red
    found = frames.nv12_to_rgb(memory, 4, 2).astype(int)
    assert (np.ptp(found[:, :2], axis=2) == 0).all()
    assert (np.abs(found[:, 2:] - (191, 0, 0)) <= 1).all()


@pytest.mark.parametrize("kind", ["nv12", "rgb"])
def test_a_frame_runs_through_a_model(
    frames: ModuleType,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fed = {}

    class Model:
        inputs = (SimpleNamespace(name="x", shape=(1, 3, 4, 6)),)

        def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            fed.update(inputs)
            return {"y": np.array([[0.25, 0.75]], np.float32)}

    monkeypatch.setattr(edgekit_device, "load", lambda _app: Model())
    path = tmp_path / "frame"
    memory = nv12(6, 4, 6, (51, 109, 212)) if kind == "nv12" else np.tile((191, 0, 0), 24)
    memory.astype(np.uint8).tofile(path)
    options = ["--rgb"] if kind == "rgb" else []
    monkeypatch.setattr(sys, "argv", ["frames.py", "run", str(path), "app", *options])
    frames.main()
    assert fed["x"].dtype == np.float32
    assert fed["x"].shape == (1, 3, 4, 6)
    wanted = (np.array((191 / 255, 0, 0)) - frames.MEAN) / frames.STD
    np.testing.assert_allclose(fed["x"][0, :, 1, 2], wanted, atol=0.02)
    assert capsys.readouterr().out.split() == ["1", "0.7500", "0", "0.2500"]
    path.write_bytes(b"short")
    with pytest.raises(SystemExit, match="has more than 5"):
        frames.main()
