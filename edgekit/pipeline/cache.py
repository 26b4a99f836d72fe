"""The content-addressed cache: the result of a step under the digest of all its inputs.
Models, built engines and packed bundles are stored as a record and shared blobs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.errors import EnvironmentLack
from edgekit.files import cache_folder, map_array, write_atomically
from edgekit.knowledge import data_folder
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    long_text,
    mapping,
    member,
    nullable,
    read,
    record,
    records,
    text,
    write,
)
from edgekit_device.protocol.codec import digest as is_digest
from edgekit_device.protocol.codec import shape as sizes

if TYPE_CHECKING:
    import numpy as np

    from edgekit.bundles.manifest import Bundle
    from edgekit.network.model import Model
    from edgekit.network.plugins import Plugin

T = TypeVar("T")


# ``steps/<step>/<key>.json`` holds a step's result; ``blobs/<2 hex>/<sha256>`` holds bytes that
# results refer to. Everything is written under a temporary name and renamed: an interrupted step
# leaves no file that looks complete.


# size in bytes up to which mapping a file is slower than reading it
_READ = 64 << 10
_MOST_HASHED = 4 << 30  # bytes of a data file; hashing more takes longer than edgekit's reading
# endings of the files that a result may depend on
_KINDS = (".py", ".yaml", ".j2", ".css", ".js")


def json_digest(*parts: Any) -> str:
    """Returns the SHA-256 of ``parts`` as canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _code_files() -> Iterator[tuple[str, str]]:
    """Yields edgekit's own code and data, each file with its path below its folder."""
    package = Path(__file__).parent.parent
    folders = [
        package,
        package.parent / "edgekit_device",
        data_folder("targets"),
        data_folder("dla"),
        data_folder("trt"),
    ]
    for folder in folders:
        # not with pathlib, which takes twice as long: each command pays it
        for parent, inner, names in os.walk(folder):
            # a wheel has the data in the package as well
            inner[:] = sorted(name for name in inner if name != "_data")
            for file in sorted(os.path.join(parent, n) for n in names if n.endswith(_KINDS)):
                yield file, os.path.relpath(file, folder)


@functools.cache
def _code_digest() -> str:
    """Digest of edgekit's own code and data, so that an update never reuses an old result."""
    digest = hashlib.sha256()
    for file, name in _code_files():
        digest.update(name.encode())
        with open(file, "rb") as opened:
            digest.update(opened.read())
    return digest.hexdigest()


@functools.cache
def _code_stamp() -> str:
    """Digest of the sizes and times of these files, in a tenth of the time.

    Computed once a process, which keeps the code that it has loaded.
    """
    stamps = []
    for file, _ in _code_files():
        facts = os.stat(file)
        # a file renamed over another may have its size and time, but has another inode
        stamps.append((file, facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return json_digest(stamps)


@functools.cache
def library_versions() -> Mapping[str, str]:
    """Returns the versions of the installed libraries that compute for edgekit, by name."""
    versions = {}
    for name in ("numpy", "onnx", "onnxruntime", "ortools"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


class Cache:
    """Results and blobs under one folder; several processes may share it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentLack(
                f"the cache folder cannot be created: {error.strerror}",
                code="cache.unwritable",
                where=str(self.folder),
                hint="set EDGEKIT_CACHE to a folder that can be written",
            ) from None

    def key(self, *parts: Any) -> str:
        """Returns the key of a step whose result depends on ``parts`` and on this edgekit."""
        return json_digest(*self._software, *parts)

    @functools.cached_property
    def _software(self) -> tuple[str, ...]:
        """Digest of edgekit's code, and the versions of the libraries that compute for it."""
        stamp = _code_stamp()
        code = self.get("code", stamp)
        if not isinstance(code, str):
            code = _code_digest()
            self.put("code", stamp, code)
        return code, *(f"{name}={number}" for name, number in library_versions().items())

    def get(self, step: str, key: str) -> Any | None:
        """Returns a stored result; None if it is absent or damaged."""
        try:
            return json.loads((self.folder / "steps" / step / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None

    def put(self, step: str, key: str, result: Any) -> None:
        """Stores a JSON result."""
        with write_atomically(self.folder / "steps" / step / f"{key}.json") as path:
            path.write_text(json.dumps(result))

    def find(self, kind: type[T], step: str, key: str) -> T | None:
        """Returns a stored value of a codec class; None if it is absent or damaged."""
        document = self.get(step, key)
        try:
            return None if document is None else read(kind, document)
        except DeviceError:
            return None

    def keep(self, step: str, key: str, value: Any) -> None:
        """Stores a value of a codec class."""
        self.put(step, key, write(value))

    def blob_path(self, digest: str) -> Path:
        """Returns the path of the blob of ``digest``, which need not exist."""
        return self.folder / "blobs" / digest[:2] / digest

    def put_blob(self, digest: str, data: bytes | memoryview | np.ndarray) -> None:
        """Stores a blob unless it is there."""
        path = self.blob_path(digest)
        size = len(data) if isinstance(data, bytes) else data.nbytes
        # a blob cut short by a power failure is written again
        if path.exists() and path.stat().st_size == size:
            return
        with write_atomically(path) as temporary, temporary.open("wb") as file:
            if isinstance(data, bytes | memoryview):
                file.write(data)
            else:
                from edgekit.network.model import chunks

                for chunk in chunks(data):
                    file.write(chunk)

    def store_array(self, digest: str, value: np.ndarray) -> np.ndarray:
        """Stores a large value and returns it as :meth:`array` does, out of the process's memory.

        A small value is returned unchanged.
        """
        if value.nbytes <= _READ:
            return value
        self.put_blob(digest, value)
        return self.array(digest, value.dtype.name, value.shape)

    def has_blobs(self, digests: Iterable[str]) -> bool:
        """Returns True if every blob exists."""
        return all(self.blob_path(d).exists() for d in digests)

    def blob(self, digest: str) -> bytes:
        """Returns the bytes of a blob by its SHA-256.

        Raises:
            LookupError: The blob is absent or damaged.
        """
        try:
            data = self.blob_path(digest).read_bytes()
        except OSError:
            raise LookupError(digest) from None
        # these bytes run or are signed, so they are hashed; `array` maps gigabytes and compares
        # sizes
        if hashlib.sha256(data).hexdigest() != digest:
            raise LookupError(digest)
        return data

    def array(self, digest: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a blob as a read-only memory map; a small blob is read.

        Raises:
            LookupError: The blob is absent, or cut short by a power failure.
        """
        import ml_dtypes  # noqa: F401  (registers bfloat16 and the like with NumPy)
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
        # mmap(2) refuses a length of 0
        if not expected:
            return np.zeros(shape, kind)
        return map_array(path, kind, shape)


def file_stamps(paths: Iterable[Path]) -> list[list[int]] | None:
    """Returns the size and time of every file; None if a file is missing."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return [[stat.st_size, stat.st_mtime_ns] for stat in stats]


@document(frozen=True)
class StoredArray:
    """An array that is stored in the cache as a blob.

    Attributes:
        digest: SHA-256 of its bytes.
        dtype: NumPy's name of the type.
        shape: Its sizes.
    """

    digest: str = member(is_digest)
    dtype: str = member(text())
    shape: tuple[int, ...] = member(sizes())


@document(frozen=True)
class StoredNode:
    """A node that loading removed; attributes as of ``edgekit.network.model.Folded``."""

    reason: str = member(text())
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    after: str = member(long_text)


@document(frozen=True)
class StoredModel:
    """A model whose bytes are in the cache.

    Attributes:
        digest: The model's digest.
        source: The model's source.
        graph: SHA-256 of the ONNX file without weights.
        weights: The stored arrays by name; null for those of the base model.
        folded: The nodes that loading removed, by name.
    """

    digest: str = member(long_text)
    source: str = member(long_text)
    graph: str = member(is_digest)
    weights: Mapping[str, StoredArray | None] = member(
        mapping(nullable(record(StoredArray)), long_text)
    )
    folded: Mapping[str, StoredNode] = member(mapping(record(StoredNode), long_text))


@document(frozen=True)
class StoredLane:
    """Segments of one variant of a plan, with its share, 0 to 1."""

    share: float = member(fields.share)
    segments: tuple[EngineSegment, ...] = member(records(EngineSegment))


@document(frozen=True)
class StoredArtefacts:
    """Artefacts whose engines and weights are in the cache; attributes as in ``Artefacts``."""

    backend: str = member(text())
    lanes: tuple[StoredLane, ...] = member(records(StoredLane))
    engines: tuple[str, ...] = member(array(is_digest))
    weights: tuple[Weight, ...] = member(records(Weight))
    fingerprint: Mapping[str, str] = member(mapping(long_text))
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    notes: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class StoredBundle:
    """A bundle whose engines and weights are in the cache.

    Attributes:
        manifest: The manifest's text, which is signed.
        blobs: SHA-256 of the bundle's other files.
        signature: Signature of the manifest; empty if unsigned.
    """

    manifest: str = member(text(most=1 << 30))
    blobs: tuple[str, ...] = member(array(is_digest))
    signature: str = member(long_text)


def store_model(cache: Cache, model: Model, base: Model | None = None) -> StoredModel:
    """Stores a model and returns the record that :func:`load_model` takes.

    Weights that ``base`` holds under the same name are referenced, not stored again.
    """
    from edgekit.network.model import weight_digests

    # deterministic, since the digest of the bytes is the blob's name
    proto = model.proto.SerializeToString(deterministic=True)
    graph = hashlib.sha256(proto).hexdigest()
    cache.put_blob(graph, proto)
    known = weight_digests(base) if base is not None else {}
    weights: dict[str, StoredArray | None] = {}
    for name, digest in weight_digests(model).items():
        if known.get(name) == digest:
            weights[name] = None
            continue
        value = model.weights[name]
        cache.put_blob(digest, value)
        weights[name] = StoredArray(digest, value.dtype.name, value.shape)
    folded = {
        name: StoredNode(gone.reason, gone.inputs, gone.outputs, gone.after)
        for name, gone in model.folded.items()
    }
    return StoredModel(model.digest, model.source, graph, weights, folded)


def load_model(cache: Cache, stored: StoredModel, base: Model | None = None) -> Model | None:
    """Returns a model with its weights as memory maps; None if blobs are missing."""
    import onnx

    from edgekit.network.model import Folded, Model, joined_weights

    weights = {}
    shared = []
    try:
        for name, entry in stored.weights.items():
            if entry is not None:
                weights[name] = cache.array(entry.digest, entry.dtype, entry.shape)
            elif base is not None:
                shared.append(name)
        data = cache.blob(stored.graph)
        known = joined_weights(weights, base.weights if base is not None else {}, shared)
    except LookupError:
        return None
    proto = onnx.load_model_from_string(data)
    folded = {
        name: Folded(gone.reason, gone.inputs, gone.outputs, gone.after)
        for name, gone in stored.folded.items()
    }
    plugins = base.plugins if base is not None else ()
    return Model(proto, known, stored.digest, stored.source, folded, plugins=plugins)


def store_artefacts(cache: Cache, artefacts: Artefacts) -> StoredArtefacts:
    """Stores engines and weights as blobs and returns the record of the rest."""
    for digest, engine in artefacts.engines.items():
        cache.put_blob(digest, engine)
    for digest, value in artefacts.values.items():
        cache.put_blob(digest, value)
    return StoredArtefacts(
        backend=artefacts.backend,
        lanes=tuple(StoredLane(share, segments) for share, segments in artefacts.lanes),
        engines=tuple(sorted(artefacts.engines)),
        weights=tuple(artefacts.weights.values()),
        fingerprint=artefacts.fingerprint,
        inputs=artefacts.inputs,
        outputs=artefacts.outputs,
        notes=artefacts.notes,
    )


def load_artefacts(
    cache: Cache, stored: StoredArtefacts, plugins: tuple[Plugin, ...] = ()
) -> Artefacts | None:
    """Returns artefacts with their weights as memory maps; None if blobs are missing.

    ``plugins`` are the network's.
    """
    weights = {weight.name: weight for weight in stored.weights}
    try:
        engines = {digest: cache.blob(digest) for digest in stored.engines}
        values = {w.digest: cache.array(w.digest, w.dtype, w.shape) for w in weights.values()}
    except LookupError:
        return None
    return Artefacts(
        backend=stored.backend,
        lanes=tuple((lane.share, lane.segments) for lane in stored.lanes),
        engines=engines,
        weights=weights,
        values=values,
        fingerprint=stored.fingerprint,
        inputs=stored.inputs,
        outputs=stored.outputs,
        notes=stored.notes,
        functions=plugins,
    )


def store_bundle(cache: Cache, bundle: Bundle) -> StoredBundle:
    """Puts a bundle's blobs into the cache and returns the record of the rest.

    The weights are in the cache already: the build stored them.
    """
    for digest, blob in bundle.blobs.items():
        cache.put_blob(digest, blob)
    return StoredBundle(
        manifest=bundle.manifest_bytes.decode("utf-8"),
        blobs=tuple(sorted(bundle.blobs)),
        signature=(bundle.signature or b"").decode("ascii"),
    )


def load_bundle(cache: Cache, stored: StoredBundle) -> Bundle | None:
    """Returns a stored bundle; None if the cache lacks a part."""
    from edgekit.bundles.manifest import Bundle
    from edgekit_device.protocol.manifest import parse

    data = stored.manifest.encode("utf-8")
    manifest = parse(data)
    entries = {entry.digest: entry for entry in manifest.weights.values()}
    try:
        blobs = {digest: cache.blob(digest) for digest in stored.blobs}
        weights = {
            digest: cache.array(digest, entry.dtype, entry.shape)
            for digest, entry in entries.items()
        }
    except LookupError:
        return None
    return Bundle(manifest, data, blobs, weights, stored.signature.encode("ascii"))


def path_identity(path: Path) -> str:
    """Returns the identity of data: a file's SHA-256, a folder's names, sizes and times.

    For a file of more than 4 GiB it is size and time, too: the file is not read before its check.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        stats = [(p.relative_to(path).as_posix(), p.stat()) for p in files]
        # a folder of images may hold gigabytes: the contents are not read
        return json_digest([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
    if not path.is_file():
        return "missing"
    stat = path.stat()
    if stat.st_size > _MOST_HASHED:
        return json_digest([stat.st_size, stat.st_mtime_ns])
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()
