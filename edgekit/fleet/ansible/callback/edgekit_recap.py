"""A callback plugin of Ansible: writes its recap and the failures as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: edgekit_recap
type: notification
short_description: writes the recap as JSON
description: One object by host into the file that EDGEKIT_RECAP names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Ansible's name for a callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "edgekit_recap"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._why: dict[str, object] = {}

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Records a failure; a board's own error takes precedence over Ansible's later message."""
        host, found = result._host.get_name(), result._result
        try:
            error = json.loads(found["stdout"])["error"]
        except (KeyError, TypeError, ValueError):
            error = None
        if isinstance(error, dict):
            self._why[host] = error
        elif not isinstance(self._why.get(host), dict):
            said = [str(found.get(key) or "") for key in ("msg", "stderr")]
            self._why[host] = ": ".join(filter(None, said))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Notes why a board could not be reached."""
        self.v2_runner_on_failed(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Writes the recap."""
        hosts = {}
        for host in stats.processed:
            counts = stats.summarize(host)
            hosts[host] = {key: counts[key] for key in ("unreachable", "failures", "changed")}
            hosts[host]["why"] = self._why.get(host)
        with open(os.environ["EDGEKIT_RECAP"], "w", encoding="utf-8") as file:
            json.dump(hosts, file)
