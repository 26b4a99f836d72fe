"""The user's own data: arrays and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.errors import DataError
from edgekit.network import Model
from edgekit.quantize import load_data
from tests.quantize.quantize_nets import branches, make, node

F = np.float32
MODEL, _ = branches()
PAIR, _ = make([node("Add", "x z", "y")], {}, {"x": [2, 3], "z": [2, 3]}, ["y"])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F)


@pytest.mark.parametrize(
    ("shape", "count"), [((1, 3, 8, 8), 1), ((5, 3, 8, 8), 5), ((5, 1, 3, 8, 8), 5), ((3, 8, 8), 0)]
)
def test_npy_samples_lie_along_the_first_axis(
    tmp_path: Path, shape: tuple[int, ...], count: int
) -> None:
    array = normal(*shape)
    np.save(tmp_path / "x.npy", array)
    if not count:
        with pytest.raises(DataError, match=r"\[3, 8, 8\]"):
            load_data(tmp_path / "x.npy", MODEL)
        return
    samples = load_data(tmp_path / "x.npy", MODEL)
    assert len(samples) == count
    for _ in range(2):
        assert np.array_equal(np.stack([s["x"] for s in samples]), array.reshape(count, 1, 3, 8, 8))


def test_npz_names_the_inputs(tmp_path: Path) -> None:
    x, z = normal(6, 3), normal(3, 2, 3)
    np.savez(tmp_path / "data.npz", x=x, z=z)
    samples = list(load_data(str(tmp_path / "data.npz"), PAIR))
    assert len(samples) == 3
    assert np.array_equal(samples[1]["x"], x[2:4])
    assert np.array_equal(samples[1]["z"], z[1])
    assert len(load_data({"data": tmp_path / "data.npz", "count": 2}, PAIR)) == 2


def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=normal(6, 3))
    with pytest.raises(DataError, match="the file has 'x'"):
        load_data(path, PAIR)
    np.savez(path, x=normal(6, 3), z=normal(4, 3))
    with pytest.raises(DataError, match="different numbers"):
        load_data(path, PAIR)
    np.savez(path, x=normal(5, 3), z=normal(5, 3))
    with pytest.raises(DataError, match=r"\[5, 3\]"):
        load_data(path, PAIR)
    path.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(DataError, match="cannot read"):
        load_data(path, PAIR)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"evil": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot read"):
        load_data(path, MODEL)


def save_image(path: Path, array: np.ndarray) -> None:
    Image.fromarray(array).save(path)


def test_images_are_cropped_normalised_and_ordered(tmp_path: Path) -> None:
    # twice as wide as high: the outer quarters are cut off
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, 8:24] = (255, 51, 0)
    save_image(tmp_path / "b.png", pixels)
    save_image(tmp_path / "a.png", np.full((8, 8, 3), 255, np.uint8))
    (tmp_path / "notes.txt").write_text("no image")
    spec = {"data": tmp_path, "mean": [0.5, 0.2, 0.0], "std": [0.5, 1.0, 2.0]}
    samples = list(load_data(spec, MODEL))
    assert [s["x"].shape for s in samples] == [(1, 3, 8, 8)] * 2
    assert samples[0]["x"].dtype == F
    assert samples[0]["x"][0, :, 0, 0] == pytest.approx([1.0, 0.8, 0.5])
    assert samples[1]["x"][0, :, 4, 4] == pytest.approx([1.0, 0.0, 0.0])


def layout_model(shape: list[int]) -> Model:
    return make([node("Relu", "x", "y")], {}, {"x": shape}, ["y"])[0]


def test_layouts_grey_images_and_batches(tmp_path: Path) -> None:
    for index in range(3):
        save_image(tmp_path / f"{index}.png", np.full((4, 4), 51 * index, np.uint8))
    last = list(load_data({"data": tmp_path, "layout": "NHWC"}, layout_model([2, 4, 4, 1])))[1]
    assert last["x"].shape == (2, 4, 4, 1)
    assert last["x"][:, 0, 0, 0].tolist() == pytest.approx([0.4, 0.0])


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        load_data(tmp_path, MODEL)
    with pytest.raises(DataError, match="7 channels"):
        load_data(tmp_path, layout_model([1, 7, 4, 4]))
    with pytest.raises(DataError, match="one input of four dimensions"):
        load_data(tmp_path, PAIR)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    samples = load_data(tmp_path, MODEL)
    with pytest.raises(DataError, match="cannot read the image") as caught:
        list(samples)
    assert caught.value.where.endswith("broken.png")


def test_options_and_paths_are_checked(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png", np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(DataError, match="no such"):
        load_data(tmp_path / "none", MODEL)
    with pytest.raises(DataError, match="unknown kind"):
        load_data(tmp_path / "a.png", MODEL)
    with pytest.raises(DataError, match="meen"):
        load_data({"data": tmp_path, "meen": 1}, MODEL)
    with pytest.raises(DataError, match="no data path"):
        load_data({}, MODEL)
    with pytest.raises(DataError, match="std"):
        load_data({"data": tmp_path, "std": [1, 0, 1]}, MODEL)
    with pytest.raises(DataError, match="mean"):
        load_data({"data": tmp_path, "mean": [1, 0]}, MODEL)
