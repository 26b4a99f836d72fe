"""What a board has still to show: the questions of ``edgekit doctor --selftest``, as data.

docs/not-yet-on-hardware.md names the same ids; a test holds both together.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

__all__ = ["ITEMS", "Item"]


class Item(NamedTuple):
    """One question.

    Attributes:
        id: Stable name.
        what: What is done, as a command or in words.
        expected: What is believed today, and why.
        do: How it is asked: a function of ``_board_selftest_asks``.
        flags: Builder flags of the plan that it builds or reads.
        needs: The ids whose plans it reads.
        device: Where the plan's layers go.
        standalone: Whether it is a loadable for cuDLA.
    """

    id: str
    what: str
    expected: str
    do: str
    flags: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    device: str = "DLA0"
    standalone: bool = False


_VC, _STRIP = "VERSION_COMPATIBLE", "STRIP_PLAN"

ITEMS: Tuple[Item, ...] = (
    Item("probe", "edgekit_device.pyz probe", "every field is known", "probe"),
    Item("build-gpu", "build the toy network for the GPU", "it builds", "build", device="GPU"),
    Item("build-hybrid", "build it for DLA0 with GPU_FALLBACK", "it builds; the log names one "
         "loadable and after it its memory", "build"),
    Item("can-run-on-dla", "IBuilderConfig.can_run_on_DLA of each layer", "true for all three",
         "verdicts", needs=("build-hybrid",)),
    Item("inspector-dla", "IEngineInspector of a plan with a DLA layer", "the layer's name is "
         "{ForeignNode[...]}; its other fields are not publicly known", "inspector",
         needs=("build-hybrid",)),
    Item("timing-cache", "the same build again", "the timing cache is reused", "build_again",
         needs=("build-hybrid",)),
    Item("dla-vc", "DLA with VERSION_COMPATIBLE", "not documented", "build", (_VC,)),
    Item("dla-strip", "DLA with STRIP_PLAN and REFIT_IDENTICAL; sizes and Refitter's weights",
         "not documented how much of a loadable's weights goes", "build",
         (_STRIP, "REFIT_IDENTICAL")),
    Item("dla-vc-strip", "DLA with VERSION_COMPATIBLE, STRIP_PLAN and REFIT_IDENTICAL",
         "not documented", "build", (_VC, _STRIP, "REFIT_IDENTICAL")),
    Item("lean-outside", "the GPU with VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME, STRIP_PLAN and "
         "REFIT_IDENTICAL; bytes of the plan and of the refitted one", "both are far smaller than "
         "the lean runtime: SerializationFlag.EXCLUDE_LEAN_RUNTIME keeps it out of the second",
         "build", (_VC, "EXCLUDE_LEAN_RUNTIME", _STRIP, "REFIT_IDENTICAL"), device="GPU"),
    Item("dla-refit", "DLA with REFIT", "not documented whether a loadable's weights can be refit",
         "build", ("REFIT",)),
    Item("load-full", "load the hybrid plan with tensorrt, DLA_core 0", "it loads", "load_full",
         needs=("build-hybrid",)),
    Item("dla-core-1", "load the plan of DLA core 0 with Runtime.DLA_core = 1", "it loads: the "
         "core is the runtime's choice", "load_core_1", needs=("build-hybrid",)),
    Item("lean-load", "load the version compatible plan with tensorrt_lean", "it loads",
         "load_lean", needs=("dla-vc",)),
    Item("lean-refit", "the weights that tensorrt_lean's Refitter names", "the same as tensorrt's",
         "lean_weights", needs=("dla-vc-strip",)),
    Item("standalone", "build it as a standalone loadable (DLA_STANDALONE, DIRECT_IO)",
         "it builds", "build", standalone=True),
    Item("cudla", "cuDLA's tensor descriptors of the loadable", "size and strides as NVIDIA's "
         "samples have them", "cudla", needs=("standalone",), standalone=True),
    Item("graph", "capture the GPU's plan as a CUDA graph and replay it ten times, beside ten "
         "enqueues", "it is captured after one enqueue outside; launches take the host less",
         "graph", needs=("build-gpu",), device="GPU"),
    Item("trtexec-gpu", "trtexec --loadEngine of the GPU's plan, as `edgekit bench "
         "--with-trtexec` runs it", "it passes and prints its times", "trtexec",
         needs=("build-gpu",), device="GPU"),
    Item("trtexec-dla", "the same of the hybrid plan, with --useDLACore=0", "it passes and prints "
         "its times", "trtexec", needs=("build-hybrid",)),
    Item("tegrastats-dla", "tegrastats --interval 1000", "engine fields for root alone",
         "tegrastats"),
    Item("monitor", "the sampler of `edgekit bench` at 100 ms for three seconds", "tegrastats, "
         "completed from sysfs; below 1 % of a core; no unknown field, rails in every sample",
         "monitor"),
    Item("clocks-held", "jetson_clocks held by the guard of `edgekit bench`, and let go",
         "the clocks and the power mode are as before", "held"),
    Item("nsys-dla", "nsys --version", "2024.5.4 with JetPack 5.1 and 6", "nsys"),
    Item("power-modes", "/etc/nvpmodel.conf and nvpmodel -q", "the modes of NVIDIA's conf files",
         "power"),
)  # fmt: skip
