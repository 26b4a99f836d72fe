"""What ``edgekit plan`` reads from its options, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._written import annotate
from edgekit.errors import UsageError

__all__ = [
    "bounds", "cores", "metrics", "names", "one_question", "only_with", "pins", "pools",
    "questions", "wishes",
]  # fmt: skip

_DEVICES = ("GPU", "DLA", "DLA0", "DLA1")
_METRICS = {
    "latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us", "period": "period_us",
}  # fmt: skip


#: What the plan must keep and what it is made of.
wishes = o.all_of(
    click.option("--power-mode", help="NVIDIA's name, e.g. MAXN, 30W."),
    click.option("--objective", help="latency, throughput, period, energy or gpu_time."),
    click.option(
        "--bound",
        multiple=True,
        metavar="NAME=VALUE",
        help="Keep latency_us, energy_uj, gpu_us or period_us at most; repeatable.",
    ),
    click.option(
        "--pin",
        multiple=True,
        metavar="GLOB=DEVICE",
        help="Tie layers to GPU, DLA, DLA0 or DLA1; repeatable, a later one wins.",
    ),
    click.option("--dla-cores", help="0, 0,1 or none."),
    click.option("--gpu/--no-gpu", default=None, help="--no-gpu: standalone, DLA only."),
    click.option(
        "--max-transitions",
        type=click.IntRange(min=0),
        metavar="N",
        help="Change between devices at most so often.",
    ),
    click.option(
        "--min-loadable",
        type=click.IntRange(min=1),
        metavar="N",
        help="Layers that a loadable has at least.",
    ),
    click.option(
        "--max-loadables",
        type=click.IntRange(min=1),
        metavar="N",
        help="Loadables that a DLA core has at most.",
    ),
    click.option(
        "--pool",
        multiple=True,
        metavar="NAME=SIZE",
        help="What a loadable may have of a DLA memory pool, e.g. global_dram=64MiB; repeatable.",
    ),
    click.option(
        "--profile",
        type=o.FILE,
        help="Measured times, which win over predicted ones: a profile of trtexec, a bench of "
        "edgekit or a verbose build log, which also does without a model.",
    ),
    click.option(
        "--cache",
        type=o.FILE,
        help="Calibration cache of the network: its INT8 scales.",
    ),
    o.missing,
    click.option(
        "--layer-info",
        type=o.FILE,
        help="trtexec's --exportLayerInfo of the profile's engine: which rows are loadables.",
    ),
)

#: What is printed instead of the plan.
questions = o.all_of(
    click.option("--why", metavar="LAYER", help="Why a layer is where it is."),
    click.option(
        "--what-if",
        metavar="CHANGES",
        help='The plan beside a changed one, e.g. "pin conv* GPU; mode 30W".',
    ),
    click.option("--pareto", metavar="A,B", help="The front of two metrics: latency,energy."),
    click.option("--modes", metavar="all|A,B", help="A table over the board's power modes."),
    click.option("--targets", metavar="all|A,B", help="A table over boards."),
    click.option("--problem", type=o.FILE, help="Solve an edgekit.problem/1; no network needed."),
    click.option("--report", type=o.FILE, help="Write the plan as an HTML page, too."),
    annotate,
)


def cores(text: str | None) -> list[int] | None:
    """Returns the cores of "0,1" or "none"."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return []
    hint = "--dla-cores 0,1 or --dla-cores none"
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--dla-cores {text!r} is not a list of cores", hint=hint) from None
    if len(set(found)) < len(found):
        raise UsageError(f"--dla-cores {text!r} names a core twice", hint=hint)
    return found


def pins(texts: Iterable[str]) -> list[dict[str, str]]:
    """Returns the pins of "GLOB=DEVICE"."""
    found = []
    for text in texts:
        layers, equals, device = text.rpartition("=")
        if not equals or not layers.strip() or device.strip().upper() not in _DEVICES:
            raise UsageError(
                f"--pin {text!r} is not GLOB=DEVICE",
                hint=f'--pin "conv*=GPU"; a device is {", ".join(_DEVICES)}',
            )
        found.append({"layers": layers.strip(), "device": device.strip().upper()})
    return found


def _named(option: str, texts: Iterable[str], read: Callable[[str], Any], hint: str) -> Any:
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            if name in found:
                raise UsageError(f"{option} {name} is given twice", hint="give it once")
            if not name or not value:
                raise ValueError
            found[name] = read(value)
        except ValueError:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE", hint=hint) from None
    return found


def bounds(texts: Iterable[str]) -> dict[str, float]:
    """Returns the bounds of "NAME=VALUE"."""
    found: dict[str, float] = _named("--bound", texts, float, "--bound latency_us=2000")
    return found


def pools(texts: Iterable[str]) -> dict[str, int]:
    """Returns the pools of "NAME=SIZE"."""
    if not texts:
        return {}
    from edgekit.pipeline import read_size

    found: dict[str, int] = _named("--pool", texts, read_size, "--pool global_dram=64MiB")
    return found


def names(option: str, text: str | None) -> list[str]:
    """Returns the names of a list with commas."""
    if text is None:
        return []
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise UsageError(f"{option} {text!r} has an empty name", hint=f"{option} A,B")
    if "all" in found and len(found) > 1:
        raise UsageError(f"{option} {text!r}: all is every one of them", hint=f"{option} all")
    return found


def metrics(text: str) -> tuple[str, str]:
    """Returns the two metrics of ``--pareto``, as plans name them."""
    import difflib

    found = []
    for part in names("--pareto", text):
        name = part if part in _METRICS.values() else _METRICS.get(part)
        if name is None:
            near = difflib.get_close_matches(part, _METRICS, 1)
            raise UsageError(
                f"--pareto: unknown metric {part!r}",
                hint=f"did you mean {near[0]}?" if near else f"two of {', '.join(_METRICS)}",
            )
        found.append(name)
    if len(found) != 2 or found[0] == found[1]:
        told = "the same metric twice" if len(found) == 2 else "not two metrics"
        raise UsageError(f"--pareto {text!r}: {told}", hint="--pareto latency,energy")
    return found[0], found[1]


def one_question(given: Mapping[str, Any]) -> str | None:
    """Returns the one option of ``given`` that was used; they print different things."""
    used = [name for name, value in given.items() if value is not None]
    if len(used) > 1:
        raise UsageError(f"{' and '.join(used)} each print something else", hint="give one")
    return used[0] if used else None


def only_with(option: str, given: Mapping[str, Any], because: str) -> None:
    """Refuses options beside one that leaves no room for them."""
    used = [name for name, value in given.items() if value not in (None, (), [], {}, False)]
    if used:
        raise UsageError(f"{option} goes without {', '.join(used)}", hint=because)
