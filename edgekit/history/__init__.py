"""See DESIGN: the history floor. Measurements in SQLite, and whether two of them differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._callable import make_callable
from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.history._alike import objections
    from edgekit.history._amend import amend
    from edgekit.history._compare import compare
    from edgekit.history._listing import history_document
    from edgekit.history._metrics import METRICS
    from edgekit.history._record import record
    from edgekit.history._repair import repair
    from edgekit.history._select import read_result, select
    from edgekit.history._store import Store, history_path
    from edgekit.history._trial_names import is_trial, trial_name
    from edgekit.history._types import Result

__all__ = [
    "METRICS",
    "Result",
    "Store",
    "amend",
    "compare",
    "history_document",
    "history_path",
    "is_trial",
    "objections",
    "read_result",
    "record",
    "repair",
    "select",
    "trial_name",
]

__getattr__ = lazy(
    __name__,
    {
        "_alike": "objections",
        "_amend": "amend",
        "_compare": "compare",
        "_listing": "history_document",
        "_metrics": "METRICS",
        "_record": "record",
        "_repair": "repair",
        "_select": "read_result select",
        "_store": "Store history_path",
        "_trial_names": "is_trial trial_name",
        "_types": "Result",
    },
)

make_callable(__name__)
