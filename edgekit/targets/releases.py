"""TensorRT releases: their spelling, the existing releases, and support of a board's DLA."""

from __future__ import annotations

import re
from functools import lru_cache

from edgekit.errors import UsageError
from edgekit.targets.board import Target, canonical_release
from edgekit.text import listed
from edgekit_device import versions
from edgekit_device.versions import Version, agree, at_least, minor_release, strip_zeros

_WITHOUT_DLA = "does not support this board's DLA: every layer would run on the GPU"
_FORM = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")


@lru_cache(maxsize=256)
def parse_version(text: str) -> Version:
    """Returns the version that a user or a fact names, as numbers that compare.

    Zeros at the end are dropped: 10.3 and 10.3.0 are equal.

    Raises:
        UsageError: The text is no version (code ``tensorrt.version``).
    """
    if not _FORM.fullmatch(text.strip()):
        raise UsageError(
            f"{text!r} is not a TensorRT version",
            code="tensorrt.version",
            where=text,
            hint="write it like 10.3 or 8.5.2",
        )
    return strip_zeros(versions.parse_version(text.strip()))


def parse_release(text: str) -> str:
    """Returns the release that a user names in its :func:`canonical_release`.

    Raises:
        UsageError: The text is no version (code ``tensorrt.version``).
    """
    parse_version(text)
    return canonical_release(text.strip())


def within(version: Version, since: str | None, until: str | None) -> bool:
    """Returns True if a version is at least ``since`` and less than ``until``, if given."""
    if since is not None and version < parse_version(since):
        return False
    return until is None or version < parse_version(until)


def supports_dla(target: Target, tensorrt: str) -> bool:
    """Returns True if a TensorRT release supports the DLA of a board (the board file's ranges).

    Also True if no source states it (:func:`unstated_dla_reason`): the board decides.
    """
    version = parse_version(tensorrt)
    return any(within(version, row.since, row.until) for row in target.dla.tensorrt) or bool(
        unstated_dla_reason(target, tensorrt)
    )


def unstated_dla_reason(target: Target, tensorrt: str) -> str:
    """Returns why no source states a release's support of a board's DLA; "" if a source does."""
    row = target.dla.tensorrt_unstated
    return row.why if row and parse_version(tensorrt) >= parse_version(row.since) else ""


def is_planned_release(release: str, planned: str) -> bool:
    """Returns True if a board's TensorRT fits the plan's release, as far as both are known.

    A planned patch ("11.4.1") is the oldest that is accepted: the DLA's support depends on it.
    """
    here, wanted = versions.parse_version(release), versions.parse_version(planned)
    known = min(len(here), len(wanted))
    return agree(here[:2], wanted[:2]) and at_least(here[:known], wanted[:known])


def trim_to_plan(release: str, planned: str) -> str:
    """Returns a board's release with as many numbers as the plan's, for ``tensorrt:``."""
    stated = len(versions.parse_version(planned))
    return versions.show(versions.parse_version(release)[: max(2, stated)])


def release_for(target: Target, tensorrt: str | None) -> str:
    """Returns the user's TensorRT, as :func:`parse_release`; the board's usual release for None.

    A release newer than all in ``targets/_jetpack.yaml`` is accepted up to the next major release,
    because it may have appeared since.

    Raises:
        UsageError: It is older than the board's first release or was not released at all (code
            ``tensorrt.unknown``), or it is malformed or a major release alone (code
            ``tensorrt.version``).
    """
    if tensorrt is None:
        return target.tensorrt
    tensorrt = parse_release(tensorrt)
    version = parse_version(tensorrt)
    if version == parse_version(target.tensorrt):
        return target.tensorrt
    # the lists are only needed for releases other than the usual release
    from edgekit.targets.jetpack import jetpacks, tensorrt_releases

    releases = tensorrt_releases()
    released = {parse_version(text) for text in releases}
    newest = max(released)
    packs = [pack for pack in jetpacks(target) if pack.tensorrt]
    shipped = list(dict.fromkeys(release for pack in packs for release in pack.possible))
    # a number alone is a major release only if it is known, or the next one
    majors = {newest[0] + 1, *(major for major, *_ in released)}
    if "." not in tensorrt and version[0] in majors:
        same = [release for release in shipped if parse_version(release)[0] == version[0]]
        raise UsageError(
            f"TensorRT {tensorrt} is a major release: name the minor one, too",
            code="tensorrt.version",
            where=tensorrt,
            hint=f"write {' or '.join(same)}" if same else "write it like 10.3 or 8.5.2",
        )
    older = target.file.software.tensorrt_since or target.tensorrt
    starts = (older, *shipped, *(row.since for row in target.dla.tensorrt))
    first = min(starts, key=parse_version)
    # patch releases are not listed
    minor = minor_release(version)
    known = minor in map(minor_release, released)
    newer = minor > newest and version[0] <= newest[0] + 1
    if (known or newer) and minor >= parse_version(first)[:2]:
        return tensorrt
    each = list(dict.fromkeys(pack.tensorrt_text for pack in packs))
    jetpack = f"JetPack brings {listed(each)}; " if each else ""
    raise UsageError(
        f"there is no TensorRT {tensorrt} for {target.name}",
        code="tensorrt.unknown",
        hint=f"{jetpack}the releases from {first} to {'.'.join(map(str, newest))} are known, "
        "and newer ones are accepted",
    )


def release_sources(target: Target, tensorrt: str) -> str:
    """Returns "JetPack 7.2: 10.16.1 or 10.16.2" for a release that not all sources name; else "".

    The sources differ on the JetPack's TensorRT for the board.
    """
    if parse_version(tensorrt) == parse_version(target.tensorrt):
        return ""
    from edgekit.targets.jetpack import jetpacks

    version = parse_version(tensorrt)
    for pack in jetpacks(target):
        if pack.also and version in map(parse_version, pack.possible):
            return f"JetPack {pack.versions[-1]}: {pack.tensorrt_text}"
    return ""


def missing_jetpack_note(target: Target, tensorrt: str) -> str:
    """Returns the note that no JetPack for a board has a release; "" if a JetPack has it.

    Releases that can be installed beside a JetPack count as its own. "" also for a board without
    JetPack and for releases older than the listed JetPacks, because these are less well known.
    """
    if parse_version(tensorrt) == parse_version(target.tensorrt):
        return ""
    from edgekit.targets.jetpack import jetpacks

    packs = [pack for pack in jetpacks(target) if pack.tensorrt]
    minor = minor_release(parse_version(tensorrt))

    def reaches(first: str, last: str) -> bool:
        return minor_release(parse_version(first)) <= minor <= minor_release(parse_version(last))

    if not packs or minor < minor_release(parse_version(packs[0].tensorrt)):
        return ""
    if any(reaches(pack.tensorrt, pack.up_to or pack.tensorrt) for pack in packs):
        return ""
    last = packs[-1]
    which = (
        "the last for this board" if jetpack_support_ended(target) else "the newest for this board"
    )
    return (
        f"no JetPack for {target.name} brings TensorRT {tensorrt}: {which} is JetPack "
        f"{last.versions[-1]} with {last.tensorrt}, and --tensorrt "
        f"{listed(dict.fromkeys(pack.tensorrt_text for pack in packs))} can be given"
    )


def jetpack_support_ended(target: Target) -> bool:
    """Returns True if newer JetPacks exist, and none is for this board."""
    from edgekit.targets.jetpack import jetpacks, newest_jetpack

    packs = jetpacks(target)
    return bool(packs) and packs[-1].versions != newest_jetpack().versions


def upgrade_hint(target: Target | None, since: str) -> str:
    """Returns a remedy: a TensorRT of at least ``since``, which imports a node; "" if unavailable.

    The text names the first JetPack for the board with such a release. If that release does not
    support the board's DLA, it also names the JetPack that keeps the DLA.
    """
    remedy = f"use TensorRT {since} or newer, which imports it"
    if target is None:
        return remedy
    # most models have no problem and do not need the JetPacks
    from edgekit.targets.jetpack import jetpacks

    least = parse_version(since)
    packs = [
        (pack.versions[0], release, "brings" if release == pack.tensorrt else "takes up to")
        for pack in jetpacks(target)
        for release in (pack.tensorrt, pack.up_to)
        if release and parse_version(release) >= least
    ]
    if not packs:
        if jetpack_support_ended(target):
            return ""
        return remedy if _keeps_dla(target, since) else f"{remedy} ({since} {_WITHOUT_DLA})"
    jetpack, release, how = packs[0]
    brings = f"JetPack {jetpack} {how} {release}"
    if _keeps_dla(target, release):
        return f"{remedy} ({brings})"
    brings += f", which {_WITHOUT_DLA}"
    for jetpack, release, how in packs[1:]:
        if _keeps_dla(target, release):
            brings += f"; JetPack {jetpack} {how} {release}, which supports it"
            break
    return f"{remedy} ({brings})"


def _keeps_dla(target: Target, release: str) -> bool:
    return not target.dla.cores or supports_dla(target, release)
