"""A board's nvpmodel, jetson_clocks and sudo: shell scripts that keep their state in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_CONF = """
< PARAM TYPE=FILE NAME=TPC_POWER_GATING >
TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask
< POWER_MODEL ID=0 NAME=MAXN >
TPC_POWER_GATING TPC_PG_MASK 0
GPU MAX_FREQ -1
< POWER_MODEL ID=2 NAME=MODE_30W >
TPC_POWER_GATING TPC_PG_MASK 0
GPU MAX_FREQ 612000000
< POWER_MODEL ID=1 NAME=MODE_15W >
TPC_POWER_GATING TPC_PG_MASK 240
< PM_CONFIG DEFAULT=2 >
"""

# waits where the test says so: it tells through one pipe that it is there and reads the other
_STOP = """
echo "$NAME $*" >> {0}/calls
if [ "$NAME $*" = "$(cat {0}/stop-at 2>/dev/null)" ]; then
  rm {0}/stop-at; echo there > {0}/reached; read answer < {0}/go
fi
"""
_NVPMODEL = """#!/bin/sh
NAME=nvpmodel
mode=$(cat {0}/mode)
case "$1" in
-q) case $mode in 0) name=MAXN;; 2) name=MODE_30W;; *) name=MODE_15W;; esac
    printf 'NV Power Mode: %s\\n%s\\n' $name $mode; exit;;
esac
{1}
if [ -e {0}/wants-restart ]; then
  echo "NVPM WARN: Reboot required for changing to this power mode: $2"
  echo "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:"
  read answer || echo "NVPM ERROR: bad input!"; exit 234
fi
echo $2 > {0}/mode; echo free > {0}/clocks
"""
_CLOCKS = """#!/bin/sh
NAME=jetson_clocks
state=$(cat {0}/clocks)
if [ "$1" = --show ]; then
  case $(cat {0}/mode) in 0) max=1300500000;; *) max=612000000;; esac
  min=306000000; [ $state = held ] && min=$max
  echo "GPU MinFreq=$min MaxFreq=$max CurrentFreq=$min"; exit
fi
{1}
case "$1" in
--store) [ -e "$2" ] && {{ echo "File $2 already exists. Can I overwrite it? Y/N:"; exit 1; }}
         echo $state > "$2";;
--restore) cat "$2" > {0}/clocks;;
"") echo held > {0}/clocks;;
esac
"""
_SUDO = """#!/bin/sh
echo "sudo $*" >> {0}/calls
[ -e {0}/password ] && {{ echo "sudo: a password is required" >&2; exit 1; }}
shift; exec "$@"
"""


class FakeBoard:
    """The programs on PATH, ROOT, and what they have come to."""

    def __init__(self, folder: Path, mode: int = 2, clocks: str = "free") -> None:
        self.folder = folder
        self.root, self.system = folder / "root", folder / "system"
        self.stored = folder / "edgekit.clocks"
        bin_ = folder / "bin"
        for one in (self.root, self.system / "etc", bin_):
            one.mkdir(parents=True)
        (self.system / "etc/nvpmodel.conf").write_text(_CONF)
        stop = _STOP.format(folder)
        for name, text in (("nvpmodel", _NVPMODEL), ("jetson_clocks", _CLOCKS), ("sudo", _SUDO)):
            (bin_ / name).write_text(text.format(folder, stop))
            (bin_ / name).chmod(0o755)
        (folder / "mode").write_text(f"{mode}\n")
        (folder / "clocks").write_text(f"{clocks}\n")
        for name in ("reached", "go"):
            os.mkfifo(folder / name)
        self.environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}

    def state(self) -> tuple[str, str]:
        """The power mode's id and whether clocks are held."""
        return (self.folder / "mode").read_text().strip(), (
            self.folder / "clocks"
        ).read_text().strip()

    def calls(self) -> list[str]:
        """What was asked of the programs that changes something."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def clean(self) -> bool:
        """Whether nothing is left to be taken back."""
        return not (self.root / "power.json").exists() and not self.stored.exists()

    def stop_at(self, call: str) -> None:
        """Lets one call wait; ``reached`` waits for it and ``go_on`` ends its waiting."""
        (self.folder / "stop-at").write_text(call)

    def reached(self) -> None:
        """Waits until the call is there."""
        (self.folder / "reached").read_text()

    def go_on(self) -> None:
        """Lets the call go on."""
        (self.folder / "go").write_text("on\n")

    def measure(self, mode: str | None, lock: bool):
        """A process that holds them until its input ends, and says "held" and its document."""
        code = (
            "import sys, json\nfrom pathlib import Path\n"
            "from edgekit_device.board.power import held_power\n"
            "from edgekit_device.errors import DeviceError\n"
            "from edgekit_device.protocol.codec import write\n"
            "root, mode, lock, system, stored = json.loads(sys.argv[1])\n"
            "try:\n"
            "    with held_power(Path(root), mode, lock, system=Path(system),\n"
            "                    clocks_file=stored, wait_s=0) as power:\n"
            "        print('held', flush=True)\n"
            "        sys.stdin.read()\n"
            "    print(json.dumps(write(power.report)))\n"
            "except DeviceError as error:\n"
            "    print(json.dumps(error.to_json()))\n"
        )
        facts = [str(self.root), mode, lock, str(self.system), str(self.stored)]
        return subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(facts)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
