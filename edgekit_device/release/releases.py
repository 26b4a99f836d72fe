"""Releases: staged beside the current release, and switched or rolled back by one rename."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import fsync_folder, workspace, write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    app_name,
    digest,
    document,
    dump,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    release_name,
    text,
)
from edgekit_device.protocol.serving import ServingStatus
from edgekit_device.release.changed import is_readable
from edgekit_device.release.journal import (
    TakenBack,
    describe_put_back,
    find_last_taken_back,
    find_taken_back,
    refuse_taken_back,
    timestamp,
)
from edgekit_device.store.root import (
    App,
    Root,
    release_digest,
    release_number,
    set_links,
    sha256,
)
from edgekit_device.trust.accepted import accept, is_accepted
from edgekit_device.trust.bundle import (
    MANIFEST,
    RECORD,
    SIGNATURE,
    BundleFiles,
    Checked,
    ReleaseRecord,
    check_blobs,
    check_bundle,
    check_signer,
    need_app,
    open_release,
    read_record,
)

REFIT = "refit.json"


_TAKEN_BACK = nullable(record(TakenBack))


@document(frozen=True)
class DescribedRelease:
    """A release as ``releases`` lists it.

    Attributes:
        signer: None for a release without a signature.
        ready: See ``is_ready``.
        taken_back: When and why it was taken back; None for the current release.
    """

    id: str = member(release_name)
    digest: str = member(digest)
    backend: str = member(text())
    signer: Optional[str] = member(nullable(text()))
    staged_at: str = member(text())
    ready: bool = member(flag)
    taken_back: Optional[TakenBack] = member(_TAKEN_BACK)


@document(frozen=True)
class AppReleases:
    """An app's entry of ``releases``; ``taken_back`` is the release that was taken back last."""

    current: Optional[str] = member(nullable(release_name))
    previous: Optional[str] = member(nullable(release_name))
    releases: Tuple[DescribedRelease, ...] = member(records(DescribedRelease))
    taken_back: Optional[TakenBack] = member(_TAKEN_BACK)

    @property
    def current_release(self) -> Optional[DescribedRelease]:
        """The current release."""
        return next((release for release in self.releases if release.id == self.current), None)


#: The entry of an unknown app.
NO_RELEASES = AppReleases(None, None, (), None)


@document(frozen=True)
class ReleaseList:
    """The answer of ``releases``, by app."""

    apps: Mapping[str, AppReleases] = member(mapping(record(AppReleases)))


@document(frozen=True)
class SwitchedLinks:
    """The answer of ``switch``: the targets of the app's links."""

    app: str = member(app_name)
    current: str = member(release_name)
    previous: Optional[str] = member(nullable(release_name))


@document(frozen=True)
class RolledBack:
    """The answer of ``rollback``.

    Attributes:
        before: The release that served before.
        taken_back: The release that was taken back; None if the history could not be written.
    """

    app: str = member(app_name)
    current: Optional[str] = member(nullable(release_name))
    previous: Optional[str] = member(nullable(release_name))
    before: Optional[str] = member(nullable(release_name), key="from")
    taken_back: Optional[TakenBack] = member(_TAKEN_BACK)


@document(frozen=True)
class ServeAnswer:
    """The answer of ``serve --background`` and ``serve-status``.

    Attributes:
        serving: None if no server runs.
        taken_back: The release that was taken back in favour of the current release, if any.
    """

    app: str = member(app_name)
    serving: Optional[ServingStatus] = member(nullable(record(ServingStatus)))
    taken_back: Optional[TakenBack] = member(record(TakenBack), absent=None)


@document(frozen=True)
class ServerEnded:
    """The output of ``serve`` when the server has ended.

    Attributes:
        served: Number of answered requests.
        errors: Number of failed requests.
    """

    app: str = member(app_name)
    served: int = member(fields.count)
    errors: int = member(fields.count)


@document(frozen=True)
class ServerStopped:
    """The answer of ``serve-stop``; ``stopped`` is False if no server ran."""

    app: str = member(app_name)
    stopped: bool = member(flag)


@document(frozen=True)
class Staged:
    """The release that ``stage`` made or found."""

    app: str
    release: str
    reused: bool
    checked: Checked


def stage(
    root: Root,
    manifest: bytes,
    signature: Optional[bytes],
    *,
    app: Optional[str] = None,
    trust_unsigned: bool = False,
) -> Staged:
    """Makes a release from a manifest whose engines and golden outputs are in the store.

    Raises:
        DeviceError: When the signature, the manifest or a blob is refused ("bundle.*",
            "manifest.*", "blob.*"), or "bundle.wrong-app".
    """
    store = root.store
    files = BundleFiles("the staged bundle", manifest, signature, store)
    checked = check_bundle(files, root.allowed_signers, trust_unsigned)
    name = checked.manifest.name
    if app is not None:
        need_app(checked, app)
    # shared with other deployments; a collection, which removes blobs, takes it exclusively
    with root.lock(shared=True), workspace(root.folder) as work:
        check_blobs(checked, checked.manifest.blobs)
        target = root.app(name)
        with target.lock(), map_os_errors(str(target.folder)):
            if checked.signer is None:
                # before the release exists: check_release would refuse it until it is recorded
                accept(root, checked.manifest.digest)
            for found in target.releases():
                if _matches_bundle(root, target.releases_folder / found, files):
                    return Staged(name, found, True, checked)
            last = target.releases()
            # above all present numbers, so names sort by age and "earlier" is a smaller number
            number = release_number(last[-1]) + 1 if last else 1
            release = "{:06d}-{}".format(number, checked.manifest.digest[:12])
            made = ReleaseRecord(
                app=name,
                id=release,
                digest=checked.manifest.digest,
                backend=checked.manifest.backend,
                signer=checked.signer,
                trusted=checked.signer is None,
                staged_at=timestamp(),
            )
            folder = work / "release"
            folder.mkdir()
            write_durably(folder / MANIFEST, manifest)
            if signature is not None:
                write_durably(folder / SIGNATURE, signature)
            write_durably(folder / RECORD, dump(made))
            # complete before it gets its name: a reader never sees half a release
            os.rename(str(folder), str(target.releases_folder / release))
            fsync_folder(target.releases_folder)
    return Staged(name, release, False, checked)


def check_release(
    root: Root,
    folder: Path,
    *,
    allowed_signers: Optional[Path] = None,
    trust_unsigned: bool = False,
) -> Checked:
    """Checks a release's signature and manifest again, as ``stage`` does.

    A release that was staged with ``trust_unsigned`` stays trusted, unless the caller passes
    ``allowed_signers``.
    """
    files = open_release(root, folder)
    # an explicit file of signers is a stricter question than the board's own acceptance
    trusted = trust_unsigned
    if allowed_signers is None:
        trusted = trusted or is_accepted(root, sha256(files.manifest))
    try:
        return check_bundle(files, allowed_signers or root.allowed_signers, trusted)
    except DeviceError as error:
        if error.code in ("bundle.unsigned", "bundle.unknown-signer"):
            error.hint = "deploy it again with --trust-unsigned, or: " + error.hint
        raise


def is_ready(folder: Path) -> bool:
    """Returns True if the release's weights were checked and its engines loaded (``refit``)."""
    return (folder / REFIT).is_file()


def need_ready(app: str, folder: Path) -> None:
    """Raises DeviceError "release.not-ready" unless ``is_ready``."""
    if not is_ready(folder):
        raise DeviceError(
            "the release's weights have not been checked yet",
            code="release.not-ready",
            where="{}/{}".format(app, folder.name),
            hint="run refit first",
        )


def switch(app: App, release: str) -> SwitchedLinks:
    """Makes ``release`` current by one rename; the current release becomes the previous.

    Raises:
        DeviceError: "release.unknown" or "release.not-ready".
    """
    with app.lock(), map_os_errors(str(app.folder)):
        return _switch(app, release)


def earlier_release(app: App) -> Optional[str]:
    """Returns the release that a rollback goes to, never a taken-back release; None for none."""
    current, previous = app.link("current"), app.link("previous")
    # first the release that really served before; older numbers may never have served
    found = [previous] if previous is not None and previous != current else []
    if current is not None:
        found += [
            name
            for name in reversed(app.releases())
            if release_number(name) < release_number(current)
            and is_ready(app.releases_folder / name)
        ]
    good = (name for name in found if find_taken_back(app, release_digest(name)) is None)
    return next(good, None)


def rollback(
    app: App,
    to: Optional[str] = None,
    note: Callable[[Optional[str], str], None] = lambda current, to: None,
) -> None:
    """Makes an earlier release current.

    Args:
        app: The app.
        to: The release; by default ``earlier_release``.
        note: Called with the current and the new release, right before the change.

    Raises:
        DeviceError: "release.no-previous"; with ``to`` also "release.unknown" or
            "install.taken-back".
    """
    with app.lock(), map_os_errors(str(app.folder)):
        current = app.link("current")
        target = earlier_release(app) if to is None else app.release(to).name
        if target is None:
            back = find_last_taken_back(app)
            raise DeviceError(
                "there is no earlier release to go back to"
                + (
                    ""
                    if back is None
                    else "; {} was itself rolled back at {}: {}".format(
                        back.release, back.at, back.reason
                    )
                ),
                code="release.no-previous",
                where=app.name,
                hint="deploy an earlier bundle"
                + (
                    ""
                    if back is None
                    else "; to deploy it again: " + describe_put_back(app, back.release)
                ),
            )
        # earlier_release never returns a release that was taken back
        if to is not None and target != current:
            refuse_taken_back(app, release_digest(target), release=target)
        _switch(app, target, lambda: note(current, target))


def restore(app: App, current: Optional[str], previous: Optional[str]) -> None:
    """Restores both links; a release that no longer exists counts as none."""
    with app.lock(), map_os_errors(str(app.folder)):
        known = set(app.releases())
        set_links(
            app.folder,
            current if current in known else None,
            previous if previous in known else None,
        )


def describe(app: App) -> AppReleases:
    """Returns the app's entry of ``releases``."""
    found: List[DescribedRelease] = []
    current = app.link("current")
    for name in app.releases():
        folder = app.releases_folder / name
        made = read_record(folder)
        back = None if name == current else find_taken_back(app, release_digest(name))
        found.append(
            DescribedRelease(
                id=made.id,
                digest=made.digest,
                backend=made.backend,
                signer=made.signer,
                staged_at=made.staged_at,
                ready=is_ready(folder),
                taken_back=back,
            )
        )
    return AppReleases(current, app.link("previous"), tuple(found), find_last_taken_back(app))


def _switch(app: App, release: str, note: Callable[[], None] = lambda: None) -> SwitchedLinks:
    folder = app.release(release)
    need_ready(app.name, folder)
    current = app.link("current")
    if current != release:
        check_signer(app.root, folder)  # a release that does not load must not serve
        note()
        # after ``note``: the history must know a rollback even if the change is interrupted
        set_links(app.folder, release, current or app.link("previous"))
    return SwitchedLinks(app.name, release, app.link("previous"))


def _matches_bundle(root: Root, folder: Path, files: BundleFiles) -> bool:
    """Returns True if a release was made from this bundle; False for a damaged release."""
    try:
        found = open_release(root, folder)
    except DeviceError:
        return False
    same = found.manifest == files.manifest and found.signature == files.signature
    return same and is_readable(folder)
