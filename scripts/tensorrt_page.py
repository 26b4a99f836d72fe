"""The page `docs/tensorrt.md`, with its tables made from the files under `trt/`."""

from __future__ import annotations

from edgekit.errors import ConfigError
from edgekit.targets import jetpack as jetpack_module
from edgekit.targets import loader
from edgekit.targets.loader import get
from edgekit.targets.releases import supports_dla
from edgekit.tensorrt.options import RequestedBuild, decide
from edgekit.tensorrt.plugin_families import plugin_facts
from edgekit.tensorrt.releases import (
    FeatureRule,
    feature_facts,
    feature_rules,
    features,
    release,
    release_facts,
    sources,
)
from edgekit.tensorrt.runtime_settings import runtime_rows
from edgekit.tensorrt.settings import FEATURE, SettingRow, setting_rows
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
    ("Weight streaming", "BuilderFlag.WEIGHT_STREAMING"),
    ("Editable timing cache", "BuilderFlag.EDITABLE_TIMING_CACHE"),
    ("Tiling", "IBuilderConfig.tiling_optimization_level"),
)
_GUIDE = """\
# Building with TensorRT

For everyone who sets the section `build` of a configuration. The board builds its engines; edgekit
checks beforehand whether its TensorRT release has these features:

```sh
edgekit build configs/resnet50-orin.yaml
```

This page is made from the files under `trt/` by `scripts/make_docs.py`; do not edit it. The
defaults:

```yaml
build:
  mode: hybrid              # a DLA with GPU fallback; standalone: loadables; split: a pipeline
  backend: auto             # tensorrt on boards that have it, else reference
  strip: auto               # take the weights out and refit on the board
  refit: identical          # any, or names of weights
  version_compatible: auto  # newer releases and the lean runtime can load it
  lean: auto                # the lean runtime is on the board, not in the engine
  constraints: prefer       # obey: fail where a layer cannot have the plan's precision
```

`auto` takes a feature where the release has it and no other setting forbids it, and drops it with a
note elsewhere. Where a value that you write is impossible, the configuration is refused with the
keys, the reason and its source:

```text
{refusal}
```

The tables below come from NVIDIA's headers, documents and programs, each row with its source.
edgekit has tried no feature on a board ([not-yet-on-hardware.md](not-yet-on-hardware.md)).
[tensorrt-guide.md](tensorrt-guide.md) lists the sections of NVIDIA's developer guide with edgekit's
features for each.

## Unknown combinations

For some combinations no source shows that they work or fail (**unknown** below), above all of a DLA
with version compatible or stripped plans. There the build tries all features first, then leaves
out, in this order, {order}, and last the features that the configuration names. It reports the
features that an engine does without. It never gives up the DLA: for version compatibility without
one, set `placement.dla_cores: []`.

The host keeps the features that a board's builder refused (`trt-outcomes.json` in the cache folder,
by module, L4T, TensorRT and DLA compiler), and the next build leaves them out. `--force` tries
everything again.

## Settings

Every key of `build` for TensorRT's builder. Settings that a release, a board or a build cannot have
are reported before the build: *refused* ends with the place in the file, *dropped* is a note with
the reason. Members of a list that a release lacks are always dropped so. `plan`, `build`, `bundle`
and `run` report it without a board, too: release and target are known. Settings that depend on the
plan (DLA layers, the number of optimisation profiles) are reported when the plan is found. The
board reads each setting back; a build's result has TensorRT's values, and a note where they differ.

{settings}

- FP8 and INT4 are in the file, as Q/DQ nodes: their flags follow from it. `edgekit check` reports a
  GPU without FP8.
- `typing: strong` on TensorRT 10 builds the types in the network: with `precision: fp32` those of
  the file, with `fp16` those that edgekit adds as casts. For `int8` TensorRT 10 is given a cache.
- Weight streaming takes `typing: strong` there, and no DLA.
- The timing cache is kept for boards of the same module, L4T and TensorRT, an editable one beside
  it.
- `engine_capability` follows from `build.mode`: DLA_STANDALONE for loadables, else STANDARD. SAFETY
  is for products with NVIDIA DRIVE.

```yaml
build:
  typing: strong
  weight_streaming: true
  max_aux_streams: 0
placement: {{dla_cores: []}}
```

## Plugins

- Where TensorRT's parser makes plugins itself (`RoiAlign` and others), plans are not version
  compatible.
- A plugin for an operator that ONNX does not know comes from [`model.plugins`](plugins.md): a
  library, which goes into the signed bundle, or a folder that the board compiles with CMake. A name
  alone must be in TensorRT's own plugin library on the board, under the operator's name, version
  and namespace. Its golden answers are the board's own, accuracy is compared up to the plugin, or
  through it with a `python` function, and `refit` refuses the network.
- A library is checked before a board is connected (machine, TensorRT's major version, entry
  points), and on the board before a model is parsed or an engine loaded (symbols, creators). A
  library of a bundle without a trusted signature is never loaded.
- A version compatible plan carries the libraries (`plugins_to_serialize`, from 8.6 on). Another
  program loads such a plan only with `engine_host_code_allowed`, and a plan without them only after
  `get_plugin_registry().load_library(FILE)`.
- DLA loadables (`build.mode: standalone`) have no plugin registry: the configuration is refused.

{families}

## Precision

Up to TensorRT 10.16 precisions are flags (weakly typed) and INT8 comes from a calibration cache.
TensorRT 11 takes the types in the network (strongly typed) and INT8 from Q/DQ nodes. edgekit
translates between them ([quantized-models.md](quantized-models.md)).
"""
_FIRST = """\
With `auto` everywhere, a hybrid build for an AGX Orin first sets these flags; where a combination
is unknown, the fall-backs set fewer:
"""


_RUNNING = """\
The loader's settings of TensorRT and CUDA ([deploying.md](deploying.md#the-gpus-memory)). Settings
that a board's release or GPU lacks are dropped with a note:
"""


def tensorrt_page() -> str:
    """Returns the Markdown page."""
    text = _GUIDE.format(
        order=", ".join(f"`{name}`" for name in feature_facts().give_up),
        refusal=_refusal_example(),
        families="\n".join(_families()),
        settings="\n".join(_settings()),
    )
    lines = [text, "## Releases", "", *_releases(), ""]
    lines += [_FIRST, *_builds(), ""]
    lines += ["## When an engine runs", "", _RUNNING, *_running(), ""]
    lines += ["## What goes together", "", *_rows(), ""]
    return "\n".join(lines)


def _settings() -> list[str]:
    """Returns the table of the settings of `build`."""
    columns = ("Key", "", "TensorRT", "From", "Where it cannot be had", "Needs", "Guide", "Source")
    lines = table_head(columns)
    known = features()
    for key, row in setting_rows().items():
        feature = known[row.name] if row.kind == FEATURE else None
        name = feature.flag if feature else row.name
        facts = release_facts().names[name]
        since = " ".join(
            (facts.since or "all", *((f"before {facts.until}",) if facts.until else ()))
        )
        what = feature.what if feature else row.what
        lacking = "dropped if `auto`" if feature and row.lacking == "dropped" else row.lacking
        cells = (
            f"`{key}`",
            what,
            f"`{name}`",
            since,
            lacking,
            _describe_needs(row),
            row.guide,
            ", ".join(sources(row.source)),
        )
        lines.append(table_row(cells))
    return lines


def _describe_needs(row: SettingRow) -> str:
    """Returns a setting's requirements as a short text."""
    parts = [f"{row.typing}ly typed networks" if row.typing else ""]
    parts.append(f"precision {' or '.join(row.precision)}" if row.precision else "")
    least = row.compute_capability
    parts.append(f"compute capability {least}" if least else "")
    parts.append("no DLA" if row.gpu else "")
    parts.append(f"`{row.needs}`" if row.needs else "")
    text = ", ".join(filter(None, parts))
    return f"{text}: {row.why}" if text else ""


def _families() -> list[str]:
    """The kinds of plugins, by release."""
    travels = {
        "library": "the library",
        "python": "Python and the module",
        "plan": "no file: the plan has the kernel",
    }
    lines = table_head(("Kind", "", "TensorRT", "Deprecated", "Needed to run it", "Source"))
    for name, family in plugin_facts().families.items():
        since = f"{family.since} and later" if family.since else "all"
        deprecated = f"{family.deprecated} and later" if family.deprecated else ""
        where = ", ".join(sources(family.source))
        cells = (f"`{name}`", family.what, since, deprecated, travels[family.travels], where)
        lines.append(table_row(cells))
    return lines


def _running() -> list[str]:
    """The settings of engines that run."""
    lines = table_head(("", "What", "Where", "TensorRT", "Section", "Source"))
    for name, row in runtime_rows().items():
        since = f"{row.since} and later" if row.since else "all"
        if not row.names:
            since = "CUDA 11.7 and later"
        elif row.compute_capability:
            since += f", compute capability {row.compute_capability} and later"
        where = ", ".join(f"`{place}`" for place in row.where)
        cells = (f"`{name}`", row.what, where, since, row.guide, ", ".join(sources(row.source)))
        lines.append(table_row(cells))
    return lines


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
    lines.append(table_row(("Python", *(_python_version(packs) for _, packs in jetpacks))))
    board = get(_BOARD)
    drives = ("yes" if supports_dla(board, text) else "" for text, _ in jetpacks)
    lines.append(table_row(("DLA of an AGX Orin", *drives)))
    lines += [
        table_row((what, *("yes" if release(text).has(name) else "" for text, _ in jetpacks)))
        for what, name in _HAS
    ]
    return lines


def _builds() -> list[str]:
    lines = table_head(("TensorRT", "With a DLA", "GPU alone"))
    for text, _ in _jetpacks():
        qdq = "weak" not in release(text).typings
        cells = []
        for dla in (True, False):
            try:
                made = decide(RequestedBuild(target=_BOARD, tensorrt=text, qdq=qdq, dla=dla))
                flags, more = made.plans[0].flags, len(made.plans) - 1
                fall_backs = f"; {more} fall-back{'s' if more > 1 else ''}" if more else ""
                cells.append((", ".join(flags) or "nothing") + fall_backs)
            except ConfigError:
                cells.append("no DLA")
        lines.append(table_row((text, *cells)))
    return lines


def _refusal_example() -> str:
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
    lines = table_head(("Feature", "What", "Key"))
    lines += [
        table_row((f"`{name}`", f.what, f"`{f.key}`" if f.key else "")) for name, f in known.items()
    ]
    lines += ["", *table_head(("Features", "", "Releases", "Why", "Basis", "Source"))]
    lines += [
        table_row(
            (
                " + ".join(f"`{name}`" for name in row.of),
                _WORDS.get(row.status, row.status)
                + (f" on {', '.join(row.platforms)}" if row.platforms else ""),
                _range(row),
                row.why,
                row.basis,
                "; ".join(row.sources) or "none found",
            )
        )
        for row in feature_rules()
    ]
    lines += ["", "Known faults of releases:", ""]
    lines += [f"- {row.why}" for row in release_facts().warnings]
    return lines


def _range(row: FeatureRule) -> str:
    since = f"from {row.since}" if row.since else ""
    until = f"before {row.until}" if row.until else ""
    return " ".join(part for part in (since, until) if part) or "all"


def _python_version(jetpack: str) -> str:
    return str(release_facts().python.get(jetpack.strip().split(".")[0], ""))
