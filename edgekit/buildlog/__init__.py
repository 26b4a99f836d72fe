"""The buildlog floor: what TensorRT's builder says, and where it differs from a verdict."""

from edgekit.buildlog._compare import compare
from edgekit.buildlog._comparison import (
    Comparison,
    LayerComparison,
    LoadableComparison,
    LogOnly,
    PoolComparison,
)
from edgekit.buildlog._messages import Message, Messages, load_messages
from edgekit.buildlog._names import Names, layers_called
from edgekit.buildlog._parse import parse_log
from edgekit.buildlog._read import read_log, read_timings
from edgekit.buildlog._summary import Summary, parse_summary
from edgekit.buildlog._timing_types import (
    ChosenReformat,
    Combination,
    ConsoleRow,
    EngineLayer,
    EngineTensor,
    OnnxNode,
    ReformatTiming,
    Timings,
    UnitTiming,
)
from edgekit.buildlog._types import BuildLog, Fallback, LogLayer, LogLoadable

__all__ = [
    "BuildLog",
    "ChosenReformat",
    "Combination",
    "Comparison",
    "ConsoleRow",
    "EngineLayer",
    "EngineTensor",
    "Fallback",
    "LayerComparison",
    "LoadableComparison",
    "LogLayer",
    "LogLoadable",
    "LogOnly",
    "Message",
    "Messages",
    "Names",
    "OnnxNode",
    "PoolComparison",
    "ReformatTiming",
    "Summary",
    "Timings",
    "UnitTiming",
    "compare",
    "layers_called",
    "load_messages",
    "parse_log",
    "parse_summary",
    "read_log",
    "read_timings",
]
