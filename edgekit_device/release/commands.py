"""The commands missing, verify, stage, switch, releases, remove and gc."""

from __future__ import annotations

import argparse
from typing import BinaryIO, Optional, Tuple

from edgekit_device.protocol.codec import (
    app_name,
    array,
    digest,
    document,
    flag,
    member,
    nullable,
    read_digests,
    release_name,
    text,
)
from edgekit_device.release.collect import Collected, collect, remove
from edgekit_device.release.journal import claim_by_hand, refuse_taken_back
from edgekit_device.release.offer import read_envelope
from edgekit_device.release.releases import ReleaseList, SwitchedLinks, describe, stage, switch
from edgekit_device.store.root import Root, no_such_app, release_digest
from edgekit_device.trust.bundle import BundleFiles, check_bundle

_MAX_LIST = 128 << 20
_DIGESTS = array(digest)


@document(frozen=True)
class MissingBlobs:
    """The answer of ``missing``."""

    missing: Tuple[str, ...] = member(_DIGESTS)


@document(frozen=True)
class VerifiedBundle:
    """The answer of ``verify``: the signer; None for a bundle without a signature."""

    signer: Optional[str] = member(nullable(text()))


@document(frozen=True)
class StagedBundle:
    """The answer of ``stage``.

    Attributes:
        digest: SHA-256 of the manifest.
        signer: None for a bundle without a signature.
        reused: True if the release existed before.
        missing_weights: Digests of weights that the store lacks.
    """

    app: str = member(app_name)
    release: str = member(release_name)
    digest: str = member(digest)
    signer: Optional[str] = member(nullable(text()))
    reused: bool = member(flag)
    missing_weights: Tuple[str, ...] = member(_DIGESTS)


@document(frozen=True)
class RemovedReleases:
    """The answer of ``remove``."""

    removed: Tuple[str, ...] = member(array(text()))


def do_missing(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> MissingBlobs:
    """Answers which of the given blobs the store lacks."""
    digests = read_digests(stdin, _MAX_LIST)
    missing = root.store.missing(digests, verify=arguments.verify)
    return MissingBlobs(tuple(missing))


def do_verify(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> VerifiedBundle:
    """Checks the signature and the manifest as ``stage`` does, without blobs."""
    sent = read_envelope(stdin)
    store = root.store
    files = BundleFiles("the bundle", sent.manifest, sent.signature, store)
    checked = check_bundle(files, root.allowed_signers, arguments.trust_unsigned)
    return VerifiedBundle(checked.signer)


def do_stage(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> StagedBundle:
    """Makes a release from a manifest; its engines and golden outputs must be in the store."""
    sent = read_envelope(stdin)
    staged = stage(
        root,
        sent.manifest,
        sent.signature,
        app=arguments.app,
        trust_unsigned=arguments.trust_unsigned,
    )
    weights = [weight.digest for weight in staged.checked.manifest.weights.values()]
    return StagedBundle(
        app=staged.app,
        release=staged.release,
        digest=staged.checked.manifest.digest,
        signer=staged.checked.signer,
        reused=staged.reused,
        missing_weights=tuple(root.store.missing(weights)),
    )


def do_switch(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> SwitchedLinks:
    """Makes a ready release the current one."""
    app = root.app(arguments.app)
    app.release(arguments.release)
    with claim_by_hand(app):
        if not (arguments.again or arguments.release == app.link("current")):
            release = arguments.release
            refuse_taken_back(app, release_digest(release), release=release)
        return switch(app, arguments.release)


def do_releases(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ReleaseList:
    """Lists releases."""
    apps = root.apps() if arguments.app is None else [root.app(arguments.app)]
    return ReleaseList({app.name: describe(app) for app in apps})


def do_remove(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> RemovedReleases:
    """Removes a release that is not in use, or a whole app."""
    app = root.app(arguments.app)
    if not app.folder.is_dir():
        raise no_such_app(app)
    with claim_by_hand(app, removes_app=arguments.release is None):
        removed = remove(root, app, arguments.release, arguments.reason)
    return RemovedReleases(tuple(removed))


def do_gc(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Collected:
    """Removes old releases and blobs that no release names."""
    app = None if arguments.app is None else root.app(arguments.app)
    return collect(root, app=app, keep=arguments.keep, grace_s=arguments.grace_s)
