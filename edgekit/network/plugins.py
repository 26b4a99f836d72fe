"""The user's own plugins: their nodes, their outputs, and their execution on this machine.

A plugin's output shapes follow from expressions of its inputs (:mod:`edgekit.network.expressions`),
or from a run of its function on zeros. The function is the user's code: only the user's
configuration can name it, never a model file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.expressions import SizeExpression
from edgekit.network.functions import UserFunction, describe_type
from edgekit.network.protos import nearest, onnx_elem_type, subgraphs, tensor_type

#: The code of every error of this module.
CODE = "model.plugin"
HINT = (
    "the function takes the inputs by position and the attributes by name, and returns an array, "
    "or a tuple of arrays"
)
#: Attributes by which a function that takes INT8 gets the scales of its input and output.
SCALES = ("input_scale", "output_scale")
#: Suffix of the name of a tensor that such a function writes.
CODES = "#int8"
# attributes for the parser's lookup of the plugin, which are not fields of the plugin
_LOOKUP = ("plugin_version", "plugin_namespace")
_LARGEST = 1 << 31


@dataclass(frozen=True)
class OutputForm:
    """The shape and type of an output as functions of the inputs.

    Attributes:
        sizes: Sizes, or their expressions.
        dtype: A NumPy type name, or "x0" for the type of the first input.
        places: The place of each size in the configuration.
    """

    sizes: tuple[int | SizeExpression, ...]
    dtype: str
    places: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Plugin:
    """A user's plugin.

    Attributes:
        operator: Operator of its nodes.
        domain: Their domain; None for every domain.
        version: Version of its creator; None if not configured.
        namespace: Namespace of its creator; None if not configured.
        function: Computes the plugin on this machine; None if there is no function.
        outputs: Forms of its outputs; empty if the function or the file determines them.
        formats: Types and formats of its inputs and outputs ("int8:chw32"); empty if unknown.
        where: Its place in the configuration.
    """

    operator: str
    domain: str | None = None
    version: str | None = None
    namespace: str | None = None
    function: UserFunction | None = None
    outputs: tuple[OutputForm, ...] = ()
    formats: tuple[str, ...] = ()
    where: str = ""

    @property
    def title(self) -> str:
        """The operator with its domain, as in the configuration."""
        return self.operator if self.domain is None else f"{self.domain}::{self.operator}"

    @property
    def float_formats(self) -> tuple[str, ...]:
        """The formats of types other than INT8."""
        return tuple(form for form in self.formats if not form.startswith("int8:"))

    @property
    def takes_codes(self) -> bool:
        """True if the function takes INT8: the plugin does, and the function has scale
        parameters."""
        if self.function is None or self.float_formats == self.formats:
            return False
        return self.function.parameters().keys() >= set(SCALES)

    def check_lookup(self, node: onnx.NodeProto) -> None:
        """Checks that TensorRT's parser finds the plugin by a node's attributes.

        Raises:
            ModelError: The node has another version or namespace.
        """
        attributes = _attributes(node)
        for own_key, own, usual in (
            ("version", self.version, "1"),
            ("namespace", self.namespace, ""),
        ):
            key = f"plugin_{own_key}"
            found = str(attributes.get(key, usual))
            if key not in attributes and own_key == "namespace" and own == node.domain:
                continue  # TensorRT 11 tries the domain, too
            if own is not None and own != found:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) asks for a plugin with {key} {found!r}, "
                    f"but this one has {own!r}",
                    code=CODE,
                    where=self.where,
                    hint=f"TensorRT's parser looks the plugin up by the node's attributes: export "
                    f"the model with the attribute {key}={own!r}, or write {own_key}: {found!r} "
                    "here",
                )

    def infer(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto | None],
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, onnx.TypeProto]:
        """Returns the types and shapes of a node's outputs; empty if those of an input are unknown.

        Args:
            node: A node of this plugin.
            types: Types of the tensors that the node reads, by name; None if unknown.
            constants: The values of constant inputs.

        Raises:
            ModelError: An expression is invalid for the node, or the function fails.
        """
        self.check_lookup(node)
        found = [types.get(name) if name else None for name in node.input]
        if any(proto is None for name, proto in zip(node.input, found, strict=True) if name):
            return {}
        forms = [form for proto in found if proto is not None and (form := _form(proto))]
        if len(forms) < sum(map(bool, node.input)):
            return {}
        if self.outputs:
            made = self._declared_outputs(node, forms)
        elif self.function is not None:
            zeros = iter(np.zeros(shape, dtype) for dtype, shape in forms)
            # next() runs for constants too, so that zeros and inputs stay in step
            values = [constants.get(n, next(zeros)) if n else None for n in node.input]
            made = [(array.dtype, array.shape) for array in PluginCall(self, node, {}).run(values)]
        else:
            return {}
        return {
            name: tensor_type(onnx_elem_type(dtype), tuple(shape))
            for name, (dtype, shape) in zip(node.output, made, strict=False)
            if name
        }

    def _declared_outputs(
        self, node: onnx.NodeProto, inputs: Sequence[tuple[np.dtype, tuple[int, ...]]]
    ) -> list[tuple[np.dtype, tuple[int, ...]]]:
        """Returns types and shapes of the outputs according to ``outputs``."""
        if len(node.output) != len(self.outputs):
            raise ModelError(
                f"node {node.name!r} ({node.op_type}) has {len(node.output)} outputs, but "
                f"'outputs' of its plugin has {len(self.outputs)}",
                code=CODE,
                where=self.where,
                hint="give one entry an output, in the node's order",
            )
        shapes, attributes = [shape for _, shape in inputs], _attributes(node)
        made = []
        for form in self.outputs:
            sizes = []
            for size, place in zip(form.sizes, form.places, strict=True):
                try:
                    value = size if isinstance(size, int) else size.value(shapes, attributes)
                except ValueError as error:
                    text = size if isinstance(size, int) else size.text
                    raise ModelError(
                        f"{text!r} does not fit node {node.name!r} ({node.op_type}): {error}",
                        code=CODE,
                        where=place,
                        hint="x0[2] is the third size of the node's first input; see plugins.md",
                    ) from None
                if not 1 <= value <= _LARGEST:
                    raise ModelError(
                        f"a size of an output of node {node.name!r} ({node.op_type}) is {value}",
                        code=CODE,
                        where=place,
                        hint="sizes are 1 or more; the inputs have "
                        + ", ".join(str(list(shape)) for shape in shapes),
                    )
                sizes.append(value)
            if form.dtype == "x0" and not inputs:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) has no input, so its output has no type",
                    code=CODE,
                    where=self.where,
                    hint="give the output's type",
                )
            dtype = inputs[0][0] if form.dtype == "x0" else np.dtype(form.dtype)
            made.append((dtype, tuple(sizes)))
        return made


def plugin_for(plugins: Iterable[Plugin], operator: str, domain: str) -> Plugin | None:
    """Returns the plugin of an operator; a plugin with the operator's domain is preferred."""
    found = [
        plugin
        for plugin in plugins
        if plugin.operator == operator and plugin.domain in (None, domain)
    ]
    return max(found, key=lambda item: item.domain is not None, default=None)


def check_used(plugins: Sequence[Plugin], proto: onnx.ModelProto) -> None:
    """Checks that the file has the operator of every plugin.

    Raises:
        ModelError: The file lacks an operator; the hint has the file's nearest operators.
    """
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    there: set[tuple[str, str]] = set()
    while nodes:
        node = nodes.pop()
        there.add((node.domain, node.op_type))
        nodes += [inner for body in subgraphs(node) for inner in body.node]
    for plugin in plugins:
        if any(
            plugin.operator == name and plugin.domain in (None, domain) for domain, name in there
        ):
            continue
        others = [f"{domain}::{name}" if domain else name for domain, name in sorted(there)]
        # a similar name, or the same name in another domain
        near = nearest(plugin.title, others) or nearest(plugin.operator, others)
        raise ModelError(
            f"the model has no operator {plugin.title!r}",
            code=CODE,
            where=plugin.where,
            hint=near or "name the node's op_type, with its domain as 'domain::Name'",
        )


class PluginCall:
    """A node of a plugin with a function, to be run.

    Args:
        plugin: The plugin; it has a function.
        node: The node.
        types: Types and shapes of its outputs, as far as known.
    """

    def __init__(
        self, plugin: Plugin, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
    ) -> None:
        assert plugin.function is not None, "only such plugins run on this machine"
        self._function = plugin.function
        self._declared_outputs = plugin.where if plugin.outputs else ""
        self.inputs, self.outputs = tuple(node.input), tuple(node.output)
        self._node = f"node {node.name!r} ({node.op_type})"
        self._attributes = {k: v for k, v in _attributes(node).items() if k not in _LOOKUP}
        self._expected = {
            name: form for name, proto in types.items() if (form := _form(proto)) is not None
        }

    def run(self, values: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Returns the outputs.

        Args:
            values: The inputs by position; None for an omitted input.

        Raises:
            ModelError: The function fails, or its results do not match the outputs.
        """
        # copies, so that the function cannot change other readers' tensors
        own = [None if value is None else np.array(value) for value in values]
        try:
            self._check_scales()
            found = self._function.call(*own, **self._attributes)
        except ModelError as error:
            raise function_failure(
                f"{error.message} (for {self._node})", where=error.where, hint=error.hint
            ) from error
        arrays = list(found) if isinstance(found, tuple | list) else [found]
        if len(arrays) != len(self.outputs):
            raise self._wrong(f"returned {len(arrays)} arrays for {len(self.outputs)} outputs")
        for name, array in zip(self.outputs, arrays, strict=True):
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
                kind = array.dtype if isinstance(array, np.ndarray) else describe_type(array)
                raise self._wrong(f"returned {kind} for output {name!r}")
            expected = self._expected.get(name)
            if expected is not None and expected != (array.dtype, array.shape):
                dtype, shape = expected
                raise self._wrong(
                    f"returned {array.dtype} {list(array.shape)} for output "
                    f"{name.removesuffix(CODES)!r}, which is {dtype} {list(shape)}",
                    self._remedy(codes=array.dtype != dtype and name.endswith(CODES)),
                )
            if expected is None and array.dtype == np.float64:
                self._check_float64(name, own)
        # ascontiguousarray gives a scalar an axis; reshape removes it
        return [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]

    def _check_scales(self) -> None:
        """Raises the function's error if it requires scales but the node has none."""
        parameters = self._function.parameters()
        lacking = [name for name in SCALES if parameters.get(name) and name not in self._attributes]
        if lacking:
            raise self._function.wrong(
                f"{self._function.spec} cannot be called without {' and '.join(lacking)}, which it "
                "gets in INT8 alone",
                f"give them defaults: {', '.join(f'{name}=0.0' for name in lacking)}",
            )

    def _check_float64(self, name: str, inputs: Sequence[np.ndarray | None]) -> None:
        """Raises an error for float64 from inputs of other types: TensorRT has no such tensors."""
        if not any(tensor is not None and tensor.dtype == np.float64 for tensor in inputs):
            raise self._wrong(
                f"returned float64 for output {name!r}",
                hint="TensorRT's plugins write no float64: return the input's type, as with "
                ".astype(x.dtype)",
            )

    def _remedy(self, *, codes: bool) -> str:
        if codes:
            return (
                f"with {' and '.join(SCALES)} it gets int8 codes, and returns int8 codes; without "
                "these parameters it gets and returns float32"
            )
        if self._declared_outputs:
            return f"correct the function, or 'outputs' of its plugin ({self._declared_outputs})"
        return (
            "correct the function: shape and type of its result may not depend on the values, and "
            "on zeros they were others; 'outputs' of its plugin states them instead"
        )

    def _wrong(self, text: str, hint: str = "") -> Exception:
        return self._function.wrong(f"{self._function.spec} {text} of {self._node}", hint)


def function_failure(message: str, *, where: str, hint: str) -> ModelError:
    """Returns the error for a failure of a plugin's function."""
    return ModelError(message, code=CODE, where=where, hint=hint)


def _form(proto: onnx.TypeProto) -> tuple[np.dtype, tuple[int, ...]] | None:
    """Returns type and static shape of a tensor; None if unknown."""
    tensor = proto.tensor_type
    dims = tensor.shape.dim
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") for dim in dims):
        return None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return dtype, tuple(dim.dim_value for dim in dims)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns a node's attributes as plain Python values and arrays."""
    found = {}
    for item in node.attribute:
        value = helper.get_attribute_value(item)
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif item.type == item.STRINGS:
            value = [part.decode("utf-8", "replace") for part in value]
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif not isinstance(value, int | float | str):
            value = list(value)
        found[item.name] = value
    return found
