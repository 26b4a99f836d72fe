"""The content-addressed cache: what a step computed, under the digest of all it depended on.

``steps/<step>/<key>.json`` holds a step's result; ``blobs/<2 hex>/<sha256>`` holds bytes that
results refer to. Everything is written under a temporary name and renamed, so an interrupted step
leaves nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._data import cache_folder
from edgekit._files import map_array, regular, write_atomically
from edgekit.errors import EnvironmentLack

if TYPE_CHECKING:
    import numpy as np

# bytes up to which a map of the file is not worth it
_READ = 64 << 10
_KINDS = ("*.py", "*.yaml", "*.j2", "*.css", "*.js")

__all__ = ["Cache", "digest_of"]


def digest_of(*parts: Any) -> str:
    """Returns the SHA-256 of ``parts`` as canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _code_digest() -> str:
    """Digest of edgekit's own code and data, so that an update never reuses an old result."""
    from importlib.metadata import PackageNotFoundError, version

    from edgekit._data import data_folder

    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    folders = [package, package.parent / "edgekit_device", data_folder("targets"),
               data_folder("dla"), data_folder("trt")]  # fmt: skip
    for folder in folders:
        for file in sorted([f for kind in _KINDS for f in folder.rglob(kind)]):
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(regular(file).read_bytes())
    for name in ("numpy", "onnx", "onnxruntime", "highspy", "ortools"):
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{name}={version(name)}".encode())
    return digest.hexdigest()


class Cache:
    """Results and blobs under one folder; several processes may share it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentLack(
                f"the cache folder cannot be made: {error.strerror}",
                code="cache.unwritable",
                where=str(self.folder),
                hint="set EDGEKIT_CACHE to a folder that can be written",
            ) from None

    def key(self, *parts: Any) -> str:
        """Returns the key of a step whose result depends on ``parts`` and on this edgekit."""
        return digest_of(_code_digest(), *parts)

    def get(self, step: str, key: str) -> Any | None:
        """Returns a stored result, or None; a damaged one counts as absent."""
        try:
            return json.loads((self.folder / "steps" / step / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None

    def put(self, step: str, key: str, result: Any) -> None:
        """Stores a JSON result."""
        with write_atomically(self.folder / "steps" / step / f"{key}.json") as path:
            path.write_text(json.dumps(result))

    def blob_path(self, digest: str) -> Path:
        """Returns where the blob of ``digest`` lies or would lie."""
        return self.folder / "blobs" / digest[:2] / digest

    def put_blob(self, digest: str, data: bytes | memoryview | np.ndarray) -> None:
        """Stores a blob unless it is there."""
        path = self.blob_path(digest)
        size = len(data) if isinstance(data, bytes) else data.nbytes
        if path.exists() and path.stat().st_size == size:
            return
        with write_atomically(path) as temporary, temporary.open("wb") as file:
            if isinstance(data, bytes | memoryview):
                file.write(data)
            else:
                import numpy as np

                file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)

    def has_blobs(self, digests: Iterable[str]) -> bool:
        """Tells whether every blob is there."""
        return all(self.blob_path(d).exists() for d in digests)

    def blob(self, digest: str) -> bytes:
        """Returns the bytes of a blob that is named by their SHA-256.

        Raises:
            LookupError: It is not there, or damaged.
        """
        try:
            data = self.blob_path(digest).read_bytes()
        except OSError:
            raise LookupError(digest) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise LookupError(digest)
        return data

    def array(self, digest: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a blob as a read-only memory map; a small one is read.

        Raises:
            LookupError: It is not there, or a power cut left only part of it.
        """
        import ml_dtypes  # noqa: F401  (registers bfloat16 and its kin with NumPy)
        import numpy as np

        path = self.blob_path(digest)
        kind = np.dtype(dtype)
        expected = kind.itemsize * math.prod(shape)
        if 0 < expected <= _READ:
            try:
                data = path.read_bytes()
            except OSError:
                raise LookupError(digest) from None
            if len(data) != expected:
                raise LookupError(digest)
            return np.frombuffer(data, kind).reshape(shape)
        if not path.exists() or path.stat().st_size != expected:
            raise LookupError(digest)
        if not expected:
            return np.zeros(shape, kind)
        return map_array(path, kind, shape)
