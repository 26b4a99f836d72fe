"""The nine light_* networks that onnx ships, filled so that their answers mean something."""

from __future__ import annotations

import difflib
from pathlib import Path

from edgekit.errors import ModelError, UsageError
from edgekit.network._builtin_fill import Recipe, shipped
from edgekit.network._types import Model

__all__ = ["builtin", "builtin_names"]

# measured so that two images, or two inputs of noise, are told apart (cosine mostly below 0.5)
# while INT8 with scales of 16 synthetic images keeps a cosine of about 0.985 or more to FP32
_RECIPES = {
    "light_bvlc_alexnet": Recipe(spread=2.4, first_mean=0.0, smooth=0.7),
    "light_densenet121": Recipe(first_mean=0.4),
    "light_inception_v1": Recipe(spread=1.95),
    "light_inception_v2": Recipe(spread=1.9),
    "light_resnet50": Recipe(spread=1.82, first_mean=0.1),
    "light_shufflenet": Recipe(spread=1.89),
    "light_squeezenet": Recipe(spread=1.89),
    "light_vgg19": Recipe(spread=2.05, first_mean=0.0, smooth=0.7),
    "light_zfnet512": Recipe(spread=2.0, first_mean=0.0, smooth=0.7),
}
_NAMES = tuple(_RECIPES)
_ALIASES = {"light_alexnet": "light_bvlc_alexnet"}


def builtin_names() -> tuple[str, ...]:
    """The names that :func:`builtin` knows, sorted."""
    return _NAMES


def builtin(name: str, seed: int = 0) -> Model:
    """Makes one of the networks that the onnx package ships, with seeded weights.

    As shipped every large weight is one constant, activations overflow FP16 and all inputs give
    the same output. Here weights come from ``seed``, and statistics from a seeded batch: outputs
    differ between inputs, and survive FP16 and INT8. The same seed and package versions on one
    machine give the same bytes.

    Args:
        name: One of :func:`builtin_names`.
        seed: Another seed gives another network.

    Raises:
        UsageError: There is no such network.
        ModelError: The installed onnx package came without its test data.
    """
    from edgekit.network._builtin_weights import fill
    from edgekit.network._load import canonical

    known = _ALIASES.get(name, name)
    if known not in _NAMES:
        near = difflib.get_close_matches(name, [*_NAMES, *_ALIASES], n=3, cutoff=0.5)
        raise UsageError(
            f"there is no builtin network {name!r}",
            code="model.unknown_builtin",
            where=name,
            hint=f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_NAMES)}",
        )
    graph = shipped(_file(known))
    weights = fill(graph, seed, _RECIPES[known])
    return canonical(graph.proto, None, source=f"builtin:{known}?seed={seed}", weights=weights)


def _file(name: str) -> str:
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
    if not path.is_file():
        raise ModelError(
            f"the installed onnx {onnx.__version__} has no test data, so {name} is not there",
            code="model.missing",
            where=str(path),
            hint="reinstall onnx from its wheel, or give a model file",
        )
    return str(path)
