"""Finds layers by a user's glob: by layer name, by ONNX node, or by PyTorch module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from edgekit.errors import UsageError
from edgekit.network.model import Layer, Network
from edgekit.network.module_names import enclosing_modules, fits_module
from edgekit.text import listed

_WILD = r"[*?\[\]!]+"
_NEAREST = 3
_SHOWN = 5


def layers_matching(network: Network, glob: str, *, nodes: bool = False) -> tuple[str, ...]:
    """Returns the names of the layers that a glob matches, in graph order.

    A glob is matched against the names of layers; if none matches, against those of ONNX nodes; if
    none matches either, against the paths of modules. For modules "layer1" and "layer1.*" both
    match all of the module's layers, including those of its own operators.

    Args:
        network: The layer graph.
        glob: A shell pattern whose "*" also matches dots and slashes. A name that contains brackets
            also matches literally.
        nodes: True to include the layers of matching nodes even if layer names match.
    """

    def fits(name: str) -> bool:
        return name == glob or fnmatchcase(name, glob)

    def of_nodes(layer: Layer) -> bool:
        return any(map(fits, layer.origin))

    def of_modules(layer: Layer) -> bool:
        return any(fits_module(path, glob) for path in enclosing_modules(layer.module)[1:])

    ways: list[Callable[[Layer], bool]] = [lambda layer: fits(layer.name), of_nodes]
    if nodes:
        ways = [lambda layer: fits(layer.name) or of_nodes(layer)]
    if network.modules is not None:
        ways.append(of_modules)
    for way in ways:
        found = tuple(layer.name for layer in network.layers if way(layer))
        if found:
            return found
    return ()


def names_of_layers(network: Network) -> Iterator[str]:
    """Yields each name that a glob may match: modules, layers and their ONNX nodes."""
    if network.modules is not None:
        for path in dict.fromkeys(layer.module for layer in network.layers):
            yield from enclosing_modules(path)[1:]
    for layer in network.layers:
        yield layer.name
        yield from layer.origin


def nearest_names(network: Network, glob: str) -> list[str]:
    """Returns up to three names similar to a glob without matches, the nearest first."""
    import difflib

    written = re.sub(_WILD, "", glob).strip(".")
    if not written:
        return []
    known = list(dict.fromkeys(names_of_layers(network)))
    near = difflib.get_close_matches(written, known, _NEAREST, 0.5)
    return near or [name for name in known if written.lower() in name.lower()][:_NEAREST]


def named_things(*networks: Network) -> str:
    """Returns the kinds of names for a message: "layer or ONNX node", or modules as well."""
    if any(network.modules is not None for network in networks):
        return "layer, ONNX node or module"
    return "layer or ONNX node"


def unmatched_error(
    glob: str, *networks: Network, what: str = "", code: str, where: str = ""
) -> UsageError:
    """Returns the error for a glob without matches; its hint has the nearest names.

    Args:
        glob: The user's glob.
        networks: The networks that were searched.
        what: The glob's purpose ("pin").
        code: The error's code.
        where: The glob's place, such as a key of the configuration.
    """
    near = [name for network in networks for name in nearest_names(network, glob)]
    known = dict.fromkeys(name for network in networks for name in names_of_layers(network))
    return UsageError(
        f"{what} {glob!r} matches no {named_things(*networks)}".lstrip()
        + (" of any network" if len(networks) > 1 else ""),
        code=code,
        where=where,
        hint=f"did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?"
        if near
        else f"known are {listed(map(repr, known), _SHOWN)} (edgekit check --by-layer)",
    )


def layers_named(
    network: Network, patterns: Iterable[str], *, where: str = "", strict: bool = True
) -> frozenset[str]:
    """Returns the layers whose name, ONNX nodes or PyTorch modules match a glob.

    Args:
        network: The layer graph.
        patterns: Globs, as :func:`layers_matching` reads them.
        where: The error's ``where``.
        strict: True to raise an error for a glob without matches.

    Raises:
        UsageError: "calibration.fp16": a glob has no match.
    """
    found: set[str] = set()
    for pattern in patterns:
        names = layers_matching(network, pattern, nodes=True)
        if not names and strict:
            raise unmatched_error(pattern, network, code="calibration.fp16", where=where)
        found.update(names)
    return frozenset(found)
