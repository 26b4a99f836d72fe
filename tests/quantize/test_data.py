"""The user's own calibration data: which kind it is, options, and NumPy's files."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.errors import DataError
from edgekit.network.model import Model
from edgekit.quantize.data.load import load_data
from tests.quantize.quantize_nets import branches, make, node

F = np.float32
MODEL, _ = branches()
PAIR, _ = make([node("Add", "x z", "y")], {}, {"x": [2, 3], "z": [2, 3]}, ["y"])
# the first dimensions differ, so none of them is a batch
UNEVEN, _ = make([node("MatMul", "x z", "y")], {}, {"x": [2, 3], "z": [3, 2]}, ["y"])


def images_of(batch: int, elem: int = 1) -> Model:
    return make([node("Flatten", "x", "y")], {}, {"x": [batch, 3, 8, 8]}, ["y"], elem)[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F)


def refused(code: str, words: str, spec: object, model: Model = MODEL) -> DataError:
    with pytest.raises(DataError, match=words) as caught:
        list(load_data(spec, model))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("shape", "count"), [((1, 3, 8, 8), 1), ((5, 3, 8, 8), 5), ((5, 1, 3, 8, 8), 5), ((3, 8, 8), 1)]
)
def test_npy_samples_lie_along_the_first_axis(
    tmp_path: Path, shape: tuple[int, ...], count: int
) -> None:
    array = normal(*shape)
    np.save(tmp_path / "x.npy", array)
    samples = load_data(tmp_path / "x.npy", MODEL)
    assert len(samples) == count
    for _ in range(2):
        assert np.array_equal(np.stack([s["x"] for s in samples]), array.reshape(count, 1, 3, 8, 8))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("fortran", [False, True])
def test_npz_names_the_inputs(tmp_path: Path, save, fortran: bool) -> None:
    x, z = normal(6, 3), normal(3, 2, 3)
    save(tmp_path / "data.npz", x=np.asfortranarray(x) if fortran else x, z=z)
    samples = list(load_data(str(tmp_path / "data.npz"), PAIR))
    assert len(samples) == 3
    assert np.array_equal(np.concatenate([s["x"] for s in samples]), x)
    assert np.array_equal(np.stack([s["z"] for s in samples]), z)
    (first,) = load_data({"data": tmp_path / "data.npz", "count": 2}, PAIR)
    assert np.array_equal(first["x"], x[:2])


def test_inputs_without_a_common_batch_are_taken_whole(tmp_path: Path) -> None:
    x, z = normal(8, 3), normal(4, 3, 2)
    np.savez(tmp_path / "data.npz", x=x, z=z)
    samples = load_data({"data": tmp_path / "data.npz", "count": 3}, UNEVEN)
    found = list(samples)
    assert (len(found), samples.batch, samples.valid(2)) == (3, 1, 1)
    assert np.array_equal(found[1]["x"], x[2:4])
    assert np.array_equal(found[1]["z"], z[1])


@pytest.mark.parametrize("kind", ["npy", "npz", "packed", "folder"])
@pytest.mark.parametrize("options", [{}, {"count": 7}, {"count": 7, "pick": "spread"}])
def test_every_batch_size_gives_the_same_samples(
    tmp_path: Path, kind: str, options: dict[str, object]
) -> None:
    data = normal(10, 3, 8, 8)
    path = tmp_path / f"x.{'npz' if kind == 'packed' else kind}"
    if kind == "folder":
        path.mkdir()
        np.save(path / "a.npy", data[:3])
        np.save(path / "b.npy", data[3])
        (path / "c").mkdir()
        np.savez(path / "c" / "d.npz", x=data[4:])
    elif kind == "npy":
        np.save(path, data)
    else:
        (np.savez_compressed if kind == "packed" else np.savez)(path, x=data)
    found = []
    for batch in (1, 2, 4, 16):
        samples = load_data({"data": path, **options}, images_of(batch))
        rows, valid = [], []
        for index, sample in enumerate(samples):
            valid.append(samples.valid(index))
            rows.append(sample["x"][: valid[-1]])
            # what fills a sample up is data, too: it cannot be NaN in the network
            assert (sample["x"][valid[-1] :] == rows[-1][-1]).all()
        assert len(samples) == len(rows)
        assert all(number == batch for number in valid[:-1])
        found.append(np.concatenate(rows))
    assert len(found[0]) == options.get("count", 10)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    picked = range(7) if options.get("pick") != "spread" else [0, 2, 3, 5, 6, 7, 9]
    assert np.array_equal(found[0], data[list(picked)] if options else data)


@pytest.mark.parametrize("batch", [1, 4])
def test_rows_at_the_beginning_are_left_out(tmp_path: Path, batch: int) -> None:
    values = normal(11, 3, 8, 8)
    np.save(tmp_path / "x.npy", values)
    found = load_data({"data": tmp_path / "x.npy", "count": 10}, images_of(batch), skip=4)
    samples = list(found)
    assert len(samples) == len(found)
    valid = [found.valid(i) for i in range(len(samples))]
    assert sum(valid) == 6
    rows = np.concatenate([s["x"][:n] for s, n in zip(samples, valid, strict=True)])
    np.testing.assert_array_equal(rows, values[4:10])
    assert not len(load_data({"data": tmp_path / "x.npy"}, images_of(batch), skip=11))


def test_only_what_is_requested_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", normal(4, 3, 8, 8))
    (tmp_path / "b.npy").write_bytes(b"broken")
    assert len(list(load_data({"data": tmp_path, "count": 4}, MODEL))) == 4
    refused("data.unreadable", "cannot read", {"data": tmp_path, "count": 5})


def test_a_compressed_archive_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    import tracemalloc

    rows = 2000
    array = np.zeros((rows, 3, 8, 8), F)
    array[:, 0] = np.arange(rows)[:, None, None]
    np.savez_compressed(tmp_path / "x.npz", x=array)
    tracemalloc.start()
    total = sum(float(sample["x"][0, 0, 0, 0]) for sample in load_data(tmp_path / "x.npz", MODEL))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == rows * (rows - 1) / 2
    assert peak < array.nbytes / 4


def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=normal(6, 3))
    refused("data.inputs", "the file has 'x'", path, PAIR)
    np.savez(path, x=normal(6, 3), z=normal(4, 3))
    refused("data.shape", "different numbers", path, PAIR)
    np.savez(path, x=normal(6, 4), z=normal(6, 3))
    refused("data.shape", r"npz:x: the array has shape \[6, 4\]", path, PAIR)
    np.savez(path, x=normal(5, 3), z=normal(5, 3, 2))
    refused("data.shape", r"\[5, 3\]", path, UNEVEN)
    np.savez(path, x=normal(6, 3) * 1j, z=normal(6, 3))
    refused("data.dtype", "complex", path, PAIR)
    np.save(tmp_path / "x.npy", normal(6, 3))
    refused("data.inputs", "the file has", tmp_path / "x.npy", PAIR)
    np.save(tmp_path / "x.npy", normal(0, 3, 8, 8))
    refused("data.empty", "no sample", tmp_path / "x.npy")


def test_files_that_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"PK\x03\x04 not really")
    assert str(path) in str(refused("data.unreadable", "cannot read", path))
    for save in (np.savez, np.savez_compressed):
        save(path, x=normal(4, 3, 8, 8))
        sound = path.read_bytes()
        path.write_bytes(sound[: len(sound) // 2])
        refused("data.unreadable", "cannot read", path)
    # the header promises more than there is
    np.save(tmp_path / "x.npy", normal(4, 3, 8, 8))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-1])
    refused("data.unreadable", "truncated", tmp_path / "x.npy")
    # a header is a Python literal
    for literal in (b"{'descr': '<f4', (((((((", b"{'descr': 'nonsense'", b"\xff\xfe\x00"):
        (tmp_path / "x.npy").write_bytes(whole[:10] + literal + whole[10 + len(literal) :])
        refused("data.unreadable", "cannot read", tmp_path / "x.npy")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", whole[:-1])
    refused("data.unreadable", "truncated", path)
    # found only when its bytes are decompressed
    np.savez_compressed(path, x=normal(400, 3, 8, 8))
    spoilt = bytearray(path.read_bytes())
    spoilt[len(spoilt) // 2 : len(spoilt) // 2 + 64] = bytes(64)
    path.write_bytes(spoilt)
    samples = load_data(path, MODEL)
    with pytest.raises(DataError, match="cannot read") as caught:
        list(samples)
    assert caught.value.where.startswith(f"{path}[")


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    evil = np.array([{"evil": 1}], dtype=object)
    np.save(tmp_path / "x.npy", evil, allow_pickle=True)
    refused("data.unreadable", "Python objects", tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", x=evil)
    refused("data.unreadable", "Python objects", tmp_path / "x.npz")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    array = normal(5, 3, 8, 8)
    array[3, 1, 2, 2] = value
    np.save(tmp_path / "x.npy", array)
    error = refused("data.nonfinite", "NaN or infinite", tmp_path / "x.npy", images_of(2))
    assert error.where == f"{tmp_path / 'x.npy'}[3]"


def test_types_are_converted_where_values_survive(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, normal(2, 3, 8, 8).astype(">f8"))
    assert next(iter(load_data(path, MODEL)))["x"].dtype == F
    np.save(path, np.full((2, 3, 8, 8), 1e300))
    refused("data.nonfinite", "outside the range of float32", path)
    np.save(path, np.full((2, 3, 8, 8), 1 << 40))
    refused("data.dtype", "smaller range", path, images_of(1, elem=6))
    np.save(path, normal(2, 3, 8, 8))
    refused("data.dtype", "float32", path, images_of(1, elem=6))


def test_what_is_doubtful_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    array = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8)).astype(np.uint8)
    array[2] = array[4] = 7
    np.save(path, array)
    samples = load_data({"data": path, "count": 50, "mean": [1.0], "skip_broken": False}, MODEL)
    assert "only" in samples.warnings[0]
    assert not any("constant" in text for text in samples.warnings)
    for _ in range(2):
        list(samples)
    warnings = " | ".join(samples.warnings)
    assert "6 samples (count: 50)" in warnings
    assert "whole numbers" in warnings
    assert f"constant samples (every value is the same): {path}[2], {path}[4]" in warnings
    assert "mean: only for images" in warnings
    assert "skip_broken" not in warnings
    np.save(path, normal(4, 3, 8, 8))
    quiet = load_data({"data": path, "count": 4}, MODEL)
    list(quiet)
    assert quiet.warnings == ()


def test_folders(tmp_path: Path) -> None:
    refused("data.empty", "no images and no", tmp_path)
    np.save(tmp_path / "x.npy", normal(2, 3, 8, 8))
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / ".hidden.npy").write_bytes(b"")
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    assert len(list(load_data(tmp_path, MODEL))) == 2
    (tmp_path / "y.npy").symlink_to(tmp_path / "y.npy")
    error = refused("data.unreadable", "cannot read", tmp_path)
    assert error.where == str(tmp_path / "y.npy")
    (tmp_path / "y.npy").unlink()
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    samples = load_data(tmp_path, MODEL)
    assert "not read" in samples.warnings[0]


def test_one_inference_needs_all_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", normal(4, 3, 8, 8))
    sample = next(iter(load_data(tmp_path / "x.npy", images_of(4), whole=True)))
    assert np.array_equal(sample["x"], normal(4, 3, 8, 8))
    with pytest.raises(DataError, match="contain 4 samples"):
        load_data(tmp_path / "x.npy", images_of(3), whole=True)


def test_options_and_paths_are_checked(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    refused("data.path", "does not exist", tmp_path / "none")
    refused("data.path", "unknown kind", tmp_path / "a.png")
    refused("data.options", "meen", {"data": tmp_path, "meen": 1})
    refused("data.options", "no data path", {})
    refused("data.options", "count", {"data": tmp_path, "count": 0})
    refused("data.options", "pick", {"data": tmp_path, "pick": "last"})


@pytest.mark.parametrize("workers", [1, 3])
def test_reading_ahead_is_bounded_and_in_order(workers: int) -> None:
    from edgekit.quantize.data.rows import read_ahead

    begun: list[int] = []

    def read(index: int) -> int:
        begun.append(index)
        if index == 17:
            raise ValueError("seventeen")
        return index

    found: list[int] = []

    def use() -> None:
        for index in read_ahead(read, range(40), workers=workers, window=4):
            found.append(index)
            assert max(begun) < index + 4

    with pytest.raises(ValueError, match="seventeen"):
        use()
    assert found == list(range(17))
