"""Calibration data in folders of images, decoded ahead of the network."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import regular
from edgekit.errors import DataError
from edgekit.quantize._data_pixels import Preprocess
from edgekit.quantize._data_rows import Row, ahead, shown

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["IMAGE_SUFFIXES", "Images", "files_in"]

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})

_BROKEN = "data.image"
_WORKERS = min(4, os.cpu_count() or 1)
# what 16-bit codes are divided by to become 8-bit ones
_STEP = 257
# warnings.catch_warnings changes the whole process
_OPENING = threading.Lock()


def files_in(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Returns the files with these endings, in the folders below too, in order of their paths.

    Names that begin with a dot are left out, and links to folders are not followed (they may lead
    round in circles).
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            wanted = not name.startswith(".") and path.suffix.lower() in suffixes
            # a dangling link is listed, so that reading tells of it; a pipe would block
            if wanted and (os.path.isfile(path) or not os.path.exists(path)):
                found.append(path)
    return sorted(found)


class Images:
    """The images of a folder.

    At most two samples' images (four of them, if that is more) are decoded and wait.
    """

    def __init__(
        self, files: list[Path], name: str, prepare: Preprocess, *, batch: int, skip: bool = False
    ) -> None:
        """Takes ``files`` for input ``name``; ``skip`` leaves out those that cannot be read."""
        self.size: int | None = len(files)
        self._files = files
        self._name = name
        self._prepare = prepare
        self._batch = batch
        self._skip = skip
        self._broken: dict[str, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was left out."""
        if not self._broken:
            return ()
        where, why = next(iter(self._broken.items()))
        more = f", and {len(self._broken) - 1} more" if len(self._broken) > 1 else ""
        return (f"images that cannot be read are left out: {where} ({why}){more}",)

    def rows(self, picks: Iterable[int]) -> Iterator[Row]:
        """Yields rows; see ``Source``."""
        window = 2 * max(self._batch, _WORKERS)
        for row in ahead(self._row, picks, workers=_WORKERS, window=window):
            if isinstance(row, Row):
                yield row
            elif self._skip and row.code == _BROKEN:
                self._broken[row.where] = row.message
            else:
                raise row

    def _row(self, index: int) -> Row | DataError:
        path = self._files[index]
        try:
            with _opened(path) as image:
                # decoders of other people's formats raise anything
                ready = _in_mode(image, "L" if self._prepare.color == "gray" else "RGB")
            pixels, constant = self._prepare(ready)
        except DataError as error:  # an option does not go with this image
            return DataError(error.message, code=error.code, where=shown(path), hint=error.hint)
        except Exception as error:
            return _refused(path, error)
        return Row({self._name: pixels}, shown(path), constant)


def _opened(path: Path) -> Image.Image:
    from PIL import Image

    regular(path)
    # Pillow only warns of an image twice as large as what it takes for an attack
    with _OPENING, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Returns the image upright, with 8 bits a channel, without transparency.

    Alpha is dropped, the colour below it stays as it is stored, as with torchvision and OpenCV.
    """
    import numpy as np
    from PIL import Image, ImageOps

    image.load()
    # broken EXIF data beside sound pixels do no harm
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits, of which convert() would cut the upper half off
        codes = np.asarray(image).astype(np.int64)
        if codes.min() < 0 or codes.max() > _STEP * 255:
            raise ValueError("its pixels have more than 16 bits; give an .npy file instead")
        image = Image.fromarray(((codes + _STEP // 2) // _STEP).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("its pixels are floating-point numbers; give an .npy file instead")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert(mode)


def _refused(path: Path, error: Exception) -> DataError:
    name = type(error).__name__
    reason = str(error).strip().splitlines()[0] if str(error).strip() else name
    if "DecompressionBomb" in name:
        reason = "it has more pixels than a photo has, as a decompression bomb would"
    elif name == "UnidentifiedImageError":
        reason = "it is no image that Pillow knows, or is damaged"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    return DataError(
        f"cannot read the image: {reason}",
        code=_BROKEN,
        where=shown(path),
        hint="remove or replace the file; skip_broken: true leaves such files out",
    )
