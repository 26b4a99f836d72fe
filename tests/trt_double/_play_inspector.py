"""The engine inspector's JSON, in the form of 8.x and 10.x and in that of 11."""

import json
from typing import Any

from ._behaviour import plays

WORDS = {"FLOAT": "FP32", "HALF": "FP16", "INT8": "Int8"}


def description(one: dict[str, Any]) -> str:
    """Format and type in the inspector's words (form up to 10.x)."""
    word = WORDS.get(one["dtype"], one["dtype"])
    form = one["format"]
    if form in ("CHW16", "CHW32"):
        count = {"CHW16": "Sixteen", "CHW32": "Thirty-two"}[form]
        return f"{count} wide channel vectorized row major {word} format"
    if form == "LINEAR":
        return f"Row major linear {word}" + ("" if word == "FP32" else " format")
    return f"{form} {word} format"


@plays("ICudaEngine", "create_engine_inspector")
def _inspector(this: Any) -> Any:
    if "EngineInspector" not in this._s.double.factory.classes:  # lean
        raise TypeError(
            "Unable to convert function return value to a Python type! IEngineInspector"
        )
    return this._s.double.factory.new(
        "EngineInspector", engine=this, execution_context=None, error_recorder=None
    )


@plays("EngineInspector", "get_engine_information")
def _information(this: Any, format: Any) -> str:
    engine = this._s.engine
    facts, double = engine._s.facts, this._s.double
    if format.name != "JSON":
        return "\n".join(one["name"] for one in facts["layers"])
    layers = [*_reformats(facts), *(_layer(facts, one, double.build) for one in facts["layers"])]
    names = [one["name"] for one in facts["io"]]
    if double.build < (11,):
        return json.dumps({"Layers": layers, "Bindings": names})
    tensors = [
        {
            "Name": one["name"],
            "IOMode": one["mode"].capitalize(),
            "DataType": WORDS.get(one["dtype"], one["dtype"]),
            "Dimensions": one["shape"],
            "Location": "Device",
            "IsShapeInferenceIO": False,
            "ProfileInfo": [],
        }
        for one in facts["io"]
    ]
    return json.dumps({"Layers": layers, "I/O Tensors": tensors})


def _layer(facts: dict[str, Any], one: dict[str, Any], build: tuple[int, ...]) -> Any:
    if facts["verbosity"] == "NONE":
        return ""
    if facts["verbosity"] != "DETAILED":
        return one["name"]
    tensor: dict[str, Any] = {"Name": facts["io"][0]["name"], "Dimensions": facts["io"][0]["shape"]}
    if build < (11,):
        tensor["Format/Datatype"] = description(facts["io"][0])
    else:
        tensor.update(Format="Row major linear", DataType="FP32")
    found = {"Name": one["name"], "LayerType": one["type"], "Inputs": [tensor], "Outputs": []}
    if one.get("metadata"):
        found["Metadata"] = one["metadata"]
    return found


def _reformats(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """What turns FLOAT inputs into the precision of the layers that read them."""
    if facts["verbosity"] != "DETAILED" or not {"FP16", "INT8"} & set(facts["flags"]):
        return []
    found = []
    for one in facts["io"]:
        if one["mode"] == "INPUT" and one["dtype"] == "FLOAT":
            name = f"Input Tensor 0 to {facts['layers'][0]['name']}"
            found.append(
                {
                    "Name": f"Reformatting CopyNode for {name}",
                    "LayerType": "Reformat",
                    "Inputs": [{"Name": one["name"]}],
                    "Outputs": [{"Name": f"Reformatted {name}"}],
                }
            )
    return found
