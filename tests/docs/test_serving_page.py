"""The systemd unit of docs/serving.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/serving.md"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_verifies_the_unit(tmp_path: Path) -> None:
    (text,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.S)
    file = tmp_path / "edgekit-net.service"
    # an interpreter that is here: the unit's is the board's
    file.write_text(text.replace("NAME", "net").replace("/usr/bin/python3", "/bin/sh"))
    argv = ["systemd-analyze", "verify", "--man=no", "--user", str(file)]
    env = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert file.name not in done.stderr
    file.write_text(file.read_text().replace("WatchdogSec=30", "WatchdogSec=often"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert "often" in done.stderr  # it does read what it is given
