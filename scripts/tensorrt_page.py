"""The page `docs/tensorrt.md`, with its tables made from the files under `trt/`."""

from __future__ import annotations

from edgekit.dla.judge import drives_dla
from edgekit.errors import ConfigError
from edgekit.targets import jetpack as jetpack_module
from edgekit.targets import loader
from edgekit.targets.loader import get
from edgekit.tensorrt.options import BuildAttempt, RequestedBuild, decide
from edgekit.tensorrt.releases import (
    FeatureRule,
    feature_rules,
    features,
    give_up,
    release,
    release_facts,
)
from edgekit.tensorrt.trtexec import flag_facts
from edgekit.text import table_head, table_row

_BOARD = "jetson-agx-orin-64gb"
_WORDS = {"not_applicable": "does not apply", "unknown": "**unknown**", "required": "needed"}
_HAS = (
    ("Version compatible, lean runtime", "BuilderFlag.VERSION_COMPATIBLE"),
    ("Stripped plans", "BuilderFlag.STRIP_PLAN"),
    ("Refit with any weights", "BuilderFlag.REFIT"),
    ("Refit of named weights", "BuilderFlag.REFIT_INDIVIDUAL"),
    ("Refit from ONNX by TensorRT", "OnnxParserRefitter"),
    ("A refitted plan stays refittable", "SerializationFlag.INCLUDE_REFIT"),
    ("INT8 by a calibration cache", "IInt8EntropyCalibrator2"),
    ("Strongly typed networks", "NetworkDefinitionCreationFlag.STRONGLY_TYPED"),
    ("Progress and cancelling", "IProgressMonitor"),
    ("Large plans as a stream", "IStreamReaderV2"),
    ("Optimization level", "IBuilderConfig.builder_optimization_level"),
)
_GUIDE = """\
# Building with TensorRT

Made from the files under `trt/` by `scripts/make_docs.py`; do not edit.

An engine of TensorRT runs where it was built, so the board builds. What a release can do, and what
of it goes together, is data with sources under `trt/`, and it is looked at before anything is
built: none of it was tried on a board by edgekit (see
[not-yet-on-hardware.md](not-yet-on-hardware.md)).

```yaml
build:
  mode: hybrid              # a DLA with GPU fallback; standalone: loadables; split: a pipeline
  backend: auto             # tensorrt: its Python API; trtexec: its command line
  strip: auto               # take the weights out and refit on the board
  refit: identical          # any, or names of weights
  version_compatible: auto  # newer releases and the lean runtime can load it
  lean: auto                # the lean runtime is on the board, not in the engine
  constraints: prefer       # obey: fail where a layer cannot have the plan's precision
```

## What `auto` does

`auto` takes a feature where the release has it and nothing forbids it, and drops it with a note
elsewhere. `true`, or a value that is written out, is not dropped so: where it cannot be, the
configuration is refused with both keys, their lines, the reason and its source.

For some combinations nobody says whether they work (**unknown** below), above all for a DLA with
version compatible or stripped plans. Then the build tries: first with everything, then without what
is least missed ({order}), and last without what the configuration asks for by name. An attempt
without all that is `auto` is among them always: a plan that was built may still be of no use, as
one that cannot be refitted. What an engine does without is reported. A build never gives up the
DLA: where version compatibility matters more, `placement.dla_cores: []` plans for the GPU alone.

Where TensorRT's parser makes plugins (`RoiAlign` and others), a version compatible plan would carry
their library or need it in every runtime, which edgekit's loader does not give it: such a network
is built without version compatibility. A plugin for an operator that ONNX does not know (`check`
names it) must be in TensorRT's own plugin library on the board, which builder and loader register:
the parser looks for the operator's name, version and namespace. Such a network's golden answers are
the board's own, its accuracy is compared here up to the plugin, and `refit` refuses it.

What a build shows is kept in the host's cache folder (`trt-outcomes.json`) by module, L4T, TensorRT
and DLA compiler: the next build for such a board leaves out what the builder refused there, while
something else went through. A lack of memory, a process that died or a plan that cannot be refitted
is not kept, nor is `DIRECT_IO`; what is asked for outright is tried each time, and `--force` tries
everything.

## Precision

- TensorRT up to 10.16 gets precisions by flags and layer by layer (weakly typed), INT8 by a
  calibration cache. A DLA takes no Q/DQ nodes there: `edgekit calibrate from-qdq` makes a plain
  model and a cache.
- TensorRT 11 takes the types in the network (strongly typed), INT8 from Q/DQ nodes: `edgekit
  calibrate to-qdq`.

## trtexec

With `build.backend: trtexec` the board builds without Python bindings. To run plans it needs them
all the same: one of TensorRT's Python modules, the full one, or for version compatible plans the
lean or dispatch one. `edgekit deploy` and `run` look for them before they build; `edgekit build`
alone does without. Each release is given only flags that it knows ({versions}; those of 8.5.2
follow from 8.6.1 and the release notes). What trtexec cannot be told is refused or noted
beforehand:

- names of layers with a comma, a quote or a star: its lists have no escape,
- more layer precisions than one argument holds: then only the layers above the lowest precision are
  named, with a note,
- layers that TensorRT's parser leaves without a name, such as the addition of a Gemm's bias: they
  stay on the default device, the DLA, with a note where the plan has their layer on the GPU (the
  Python API places and types them with their layer),
- INT8 without a calibration cache: it would make ranges up,
- stripping and refit on a board without the Python module: nobody there can say which weights a
  plan takes, so `strip: auto` keeps them in the plan,
- refit of named weights; REFIT_IDENTICAL without stripping,
- formats of loadables other than {formats},
- more than one optimisation profile on TensorRT 8,
- the engine's layers (`--exportLayerInfo`) of loadables, and of plans whose lean runtime is
  elsewhere: by its help it cannot open these without that library.
"""
_FIRST = """\
With `auto` everywhere, a hybrid build for an AGX Orin first sets these flags, and where a
combination is unknown, then fewer:
"""


def tensorrt_page() -> str:
    """Returns the Markdown page."""
    inputs = flag_facts()["standalone"]["inputs"]
    legal = "; ".join(f"{kind} {', '.join(names)}" for kind, names in inputs.items())
    text = _GUIDE.format(
        order=", ".join(f"`{name}`" for name in give_up()),
        versions=", ".join(flag_facts()["versions"]),
        formats=legal,
    )
    lines = [text, "## Releases", "", *_releases(), ""]
    lines += [_FIRST, *_builds(), ""]
    lines += ["A refusal reads like this:", "", "```text", _refusal(), "```", ""]
    lines += ["## What goes together", "", *_rows(), ""]
    return "\n".join(lines)


def _jetpacks() -> list[tuple[str, str]]:
    """TensorRT and the JetPacks that bring it, from 8.5 on."""
    found = {
        jetpack.tensorrt: (jetpack.versions[0], jetpack.versions[-1])
        for name in loader.names()
        for jetpack in jetpack_module.jetpacks(loader.get(name))
        if jetpack.tensorrt
    }
    known = sorted((release(text).version, text) for text in found)
    return [
        (text, found[text][0] if len(set(found[text])) == 1 else " to ".join(found[text]))
        for version, text in known
        if version >= (8, 5)
    ]


def _releases() -> list[str]:
    jetpacks = _jetpacks()
    lines = table_head(("", *(f"TensorRT {text}" for text, _ in jetpacks)))
    lines.append(table_row(("JetPack", *(packs for _, packs in jetpacks))))
    lines.append(table_row(("Python", *(_python_of(packs) for _, packs in jetpacks))))
    lines.append(table_row(("DLA of an AGX Orin", *(_drives(text) for text, _ in jetpacks))))
    lines += [
        table_row((what, *("yes" if release(text).has(name) else "" for text, _ in jetpacks)))
        for what, name in _HAS
    ]
    return lines


def _drives(tensorrt: str) -> str:
    return "yes" if drives_dla(get(_BOARD), tensorrt) else ""


def _builds() -> list[str]:
    lines = table_head(("TensorRT", "With a DLA", "GPU alone"))
    for text, _ in _jetpacks():
        qdq = "weak" not in release(text).typings
        cells = []
        for dla in (True, False):
            try:
                made = decide(RequestedBuild(target=_BOARD, tensorrt=text, qdq=qdq, dla=dla))
                cells.append(_attempts(made.plans))
            except ConfigError:
                cells.append("no DLA")
        lines.append(table_row((text, *cells)))
    return lines


def _attempts(attempts: tuple[BuildAttempt, ...]) -> str:
    first = ", ".join(attempts[0].flags) or "nothing"
    more = len(attempts) - 1
    return first + (f"; {more} fall-back{'s' if more > 1 else ''}" if more else "")


def _refusal() -> str:
    places = {"build.mode": "net.yaml:6:3", "build.strip": "net.yaml:7:3"}
    try:
        decide(
            RequestedBuild(
                target=_BOARD, tensorrt="10.3", mode="standalone", strip=True, places=places
            )
        )
    except ConfigError as error:
        return str(error)
    raise AssertionError("a loadable cannot be stripped")


def _rows() -> list[str]:
    known = features()
    lines = ["`VC` and the other names:", ""]
    lines += [
        f"- `{f.name}`: {f.what}" + (f" (`{f.key}`)" if f.key else "") for f in known.values()
    ]
    lines += ["", *table_head(("Features", "", "Releases", "Why", "Basis", "Source"))]
    lines += [
        table_row(
            (
                " + ".join(f"`{name}`" for name in row.of),
                _WORDS.get(row.status, row.status) + _where(row),
                _range(row),
                row.why,
                row.basis,
                "; ".join(row.sources) or "none found",
            )
        )
        for row in feature_rules()
    ]
    lines += ["", "Known faults of releases:", ""]
    lines += [f"- {row['why']}" for row in release_facts()["warnings"]]
    return lines


def _where(row: FeatureRule) -> str:
    return f" on {', '.join(row.targets)}" if row.targets else ""


def _range(row: FeatureRule) -> str:
    since = f"from {row.since}" if row.since else ""
    until = f"before {row.until}" if row.until else ""
    return " ".join(part for part in (since, until) if part) or "all"


def _python_of(jetpack: str) -> str:
    return str(release_facts()["python"].get(jetpack.strip().split(".")[0], ""))
