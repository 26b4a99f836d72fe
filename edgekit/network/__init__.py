"""See DESIGN: the network floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.network._annotate import annotate_file, save_annotated
    from edgekit.network._builtin import builtin, builtin_names
    from edgekit.network._check import input_shapes
    from edgekit.network._deferred import joined_weights
    from edgekit.network._digest import weight_digests
    from edgekit.network._extract import extract
    from edgekit.network._foreign import refuse_foreign
    from edgekit.network._layers import layers
    from edgekit.network._load import canonical, load, open_inputs
    from edgekit.network._metadata import metadata, with_metadata
    from edgekit.network._names import loadable_name
    from edgekit.network._opaque import before_opaque, opaque_nodes, opaque_notes, unknown_tensors
    from edgekit.network._operators import QDQ, SAME_VALUES
    from edgekit.network._places import Place, places
    from edgekit.network._same_weights import check_weights, weight_types
    from edgekit.network._save import save
    from edgekit.network._session import WRONG_FUSIONS, session
    from edgekit.network._source import PYTHON, parse_builtin
    from edgekit.network._synthetic import synthetic_description, synthetic_inputs
    from edgekit.network._types import Absorbed, Folded, Layer, Model, Network, Tensor

__all__ = [
    "PYTHON",
    "QDQ",
    "SAME_VALUES",
    "WRONG_FUSIONS",
    "Absorbed",
    "Folded",
    "Layer",
    "Model",
    "Network",
    "Place",
    "Tensor",
    "annotate_file",
    "before_opaque",
    "builtin",
    "builtin_names",
    "canonical",
    "check_weights",
    "extract",
    "input_shapes",
    "joined_weights",
    "layers",
    "load",
    "loadable_name",
    "metadata",
    "opaque_nodes",
    "opaque_notes",
    "open_inputs",
    "parse_builtin",
    "places",
    "refuse_foreign",
    "save",
    "save_annotated",
    "session",
    "synthetic_description",
    "synthetic_inputs",
    "unknown_tensors",
    "weight_digests",
    "weight_types",
    "with_metadata",
]

__getattr__ = lazy(
    __name__,
    {
        "_annotate": "annotate_file save_annotated",
        "_builtin": "builtin builtin_names",
        "_check": "input_shapes",
        "_deferred": "joined_weights",
        "_digest": "weight_digests",
        "_extract": "extract",
        "_foreign": "refuse_foreign",
        "_layers": "layers",
        "_load": "canonical load open_inputs",
        "_metadata": "metadata with_metadata",
        "_names": "loadable_name",
        "_opaque": "before_opaque opaque_nodes opaque_notes unknown_tensors",
        "_operators": "QDQ SAME_VALUES",
        "_places": "Place places",
        "_same_weights": "check_weights weight_types",
        "_save": "save",
        "_session": "WRONG_FUSIONS session",
        "_source": "PYTHON parse_builtin",
        "_synthetic": "synthetic_description synthetic_inputs",
        "_types": "Absorbed Folded Layer Model Network Tensor",
    },
)
