"""The commands missing, verify, stage, switch, releases, remove and gc."""

from __future__ import annotations

import argparse
from typing import Any, BinaryIO, Dict, Tuple

from edgekit_device.protocol.codec import array, digest, document, member, read_digests, text, write
from edgekit_device.release.collect import collect, remove
from edgekit_device.release.journal import claim_by_hand, refuse_taken_back
from edgekit_device.release.offer import read_envelope
from edgekit_device.release.releases import ReleaseList, describe, stage, switch
from edgekit_device.store.root import Root, no_such_app
from edgekit_device.trust.bundle import BundleFiles, check_bundle

_MAX_LIST = 128 << 20


@document(frozen=True)
class MissingBlobs:
    """The answer of ``missing``."""

    missing: Tuple[str, ...] = member(array(digest))


@document(frozen=True)
class RemovedReleases:
    """The answer of ``remove``."""

    removed: Tuple[str, ...] = member(array(text()))


def do_missing(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Answers which of the given blobs are not in the store."""
    digests = read_digests(stdin, _MAX_LIST)
    missing = root.store.missing(digests, verify=arguments.verify)
    return dict(write(MissingBlobs(tuple(missing))))


def do_verify(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Says whether ``stage`` would take the signature and the manifest; needs no blob."""
    sent = read_envelope(stdin)
    store = root.store
    files = BundleFiles("the bundle", sent.manifest, sent.signature, store)
    return {"signer": check_bundle(files, root.allowed_signers, arguments.trust_unsigned).signer}


def do_stage(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Makes a release of a manifest; its engines and golden outputs must be in the store."""
    sent = read_envelope(stdin)
    staged = stage(
        root, sent.manifest, sent.signature, app=arguments.app,
        trust_unsigned=arguments.trust_unsigned,
    )  # fmt: skip
    weights = [weight.digest for weight in staged.checked.manifest.weights.values()]
    return {
        "app": staged.app,
        "release": staged.release,
        "digest": staged.checked.manifest.digest,
        "signer": staged.checked.signer,
        "reused": staged.reused,
        "missing_weights": root.store.missing(weights),
    }


def do_switch(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Makes a ready release the current one."""
    app = root.app(arguments.app)
    app.release(arguments.release)
    with claim_by_hand(app):
        if not (arguments.again or arguments.release == app.link("current")):
            release = arguments.release
            refuse_taken_back(app, release.partition("-")[2], release=release)
        return dict(switch(app, arguments.release))


def do_releases(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Lists releases."""
    apps = root.apps() if arguments.app is None else [root.app(arguments.app)]
    return dict(write(ReleaseList({app.name: describe(app) for app in apps})))


def do_remove(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Removes a release that is not in use, or a whole app."""
    app = root.app(arguments.app)
    if not app.folder.is_dir():
        raise no_such_app(app)
    with claim_by_hand(app, whole=arguments.release is None):
        removed = remove(root, app, arguments.release, arguments.reason)
    return dict(write(RemovedReleases(tuple(removed))))


def do_gc(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Removes old releases and blobs that no release names."""
    app = None if arguments.app is None else root.app(arguments.app)
    return collect(root, app=app, keep=arguments.keep, grace_s=arguments.grace_s)
