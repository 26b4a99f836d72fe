"""Images of a folder, or of Ultralytics' data.yaml: ``path``, and ``train`` and ``val``, each a
folder, a list of folders, or a text file with an image on each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.quantize.data.images import IMAGE_SUFFIXES, files_in
from edgekit.quantize.data.rows import path_text

_ENDINGS = frozenset({".yaml", ".yml"})
_LARGEST = 64 << 20  # a list of a million images
#: Splits searched for images: the training images come first.
_SPLITS = ("train", "val")


def is_list(path: Path) -> bool:
    """Returns True if a path is a data.yaml, by its ending."""
    return path.suffix.lower() in _ENDINGS


def images_at(path: Path, splits: Sequence[str] = _SPLITS) -> list[Path]:
    """Returns the images of a folder or of a data.yaml in the order of their paths.

    Any other path gives an empty list.

    Args:
        path: The folder or the data.yaml.
        splits: Keys of a data.yaml; the first that it has counts.

    Raises:
        DataError: "data.list": the data.yaml cannot be read, or names no images.
    """
    if path.is_dir():
        return files_in(path, IMAGE_SUFFIXES)
    if not is_list(path):
        return []
    document = _read(path)
    root = path.parent / str(document.get("path") or "")
    if not root.is_dir():  # Ultralytics looks for it in its own folder
        root = path.parent
    for split in splits:
        given = document.get(split)
        if given:
            places = given if isinstance(given, list) else [given]
            found = sorted({file for place in places for file in _images(root, str(place))})
            if found:
                return found
            raise _list_error(f"no images are at {split}: {places[0]}", path)
    raise _list_error(f"it names no images ({' or '.join(splits)})", path)


def _read(path: Path) -> dict[str, object]:
    try:
        document = yaml.safe_load(read_file(path, _LARGEST).decode("utf-8"))
    except OSError as error:
        raise _list_error(f"it cannot be read: {error.strerror or error}", path) from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise _list_error("it is no YAML", path) from error
    if not isinstance(document, dict):
        raise _list_error("it is no mapping of keys", path)
    return document


def _images(root: Path, place: str) -> Iterator[Path]:
    at = root / place
    if not at.exists() and place.startswith("../"):  # as exports of Roboflow are written
        at = root / place.removeprefix("../")
    if at.is_dir():
        yield from files_in(at, IMAGE_SUFFIXES)
    elif at.suffix.lower() == ".txt" and at.is_file():
        text = read_file(at, _LARGEST).decode("utf-8", "replace")
        for line in filter(None, map(str.strip, text.splitlines())):
            # relative to the list if it begins with a dot, else to the root
            yield (at.parent if line.startswith("./") else root) / line
    elif at.suffix.lower() in IMAGE_SUFFIXES and at.is_file():
        yield at


def _list_error(message: str, path: Path) -> DataError:
    return DataError(
        f"not a list of images: {message}",
        code="data.list",
        where=path_text(path),
        hint="give a data.yaml as Ultralytics has it: path: FOLDER and train: images/train; or the "
        "folder of images itself",
    )
