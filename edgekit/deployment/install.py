"""Installs a bundle on a board: checks that it fits, announces it, sends the missing blobs, and
follows the deployment to its end, also across a reboot of the board.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from edgekit.bundles.manifest import blob_view
from edgekit.bundles.sign import user_at_host
from edgekit.deployment.answers import protocol_error
from edgekit.deployment.board import Progress, Release
from edgekit.deployment.client import BoardClient
from edgekit.deployment.transport import Buffer
from edgekit.errors import BoardError, BundleError
from edgekit_device.deployment.request import DeployRequest
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import Manifest
from edgekit_device.release.journal import SCHEMA, DeploymentFacts
from edgekit_device.release.policy import Policy
from edgekit_device.release.requirements import check_facts

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle
    from edgekit_device.board.identity import Hello
    from edgekit_device.release.journal import TakenBack


_RETAINED_WRONG = ("blob.digest-mismatch", "transfer.offset")
# the board's states, with the older names of the progress phases
_PHASES = {
    "verifying": "stage",
    "refitting": "refit",
    "testing": "selftest",
    "switching": "switch",
    "soaking": "soak",
}
# the job's processes ended, and the deployment can continue from its journal
_CUT_OFF = ("job.lost", "job.crashed", "job.terminated")
# most jobs that continue a deployment after its job was cut off
_TIMES = 3
# the rest of a policy does not decide if a release passes
_GATES = ("latency_ms", "accuracy_min")


def check_fits(manifest: Manifest, hello: Hello, where: str) -> None:
    """Refuses a board that does not meet the bundle's requirements.

    Args:
        manifest: The bundle's manifest.
        hello: The board's answer to ``hello``.
        where: The board's name.

    Raises:
        BundleError: "bundle.no-runtime", "bundle.backend", or the board's own refusal
            ("requires.*"), from the same facts and requirements.
    """
    backend, fingerprint = manifest.backend, manifest.fingerprint
    runtime = fingerprint.get("runtime", "")
    if getattr(hello, runtime, "") is None:
        raise BundleError(
            f"the bundle needs {runtime} {fingerprint.get('runtime_version', '')}".rstrip()
            + ", which is not on the board",
            code="bundle.no-runtime",
            where=where,
            hint=f"install {runtime} for {hello.python or 'Python'} on the board, "
            "or give another interpreter with `python:`",
        )
    if backend not in hello.backends:
        raise BundleError(
            f"the bundle is for the {backend} backend, but the board has "
            f"{', '.join(hello.backends) or 'none'}",
            code="bundle.backend",
            where=where,
            hint="build for a backend that the board has",
        )
    requires = manifest.requires
    if requires is None:
        return
    # space is checked only for missing blobs (`check_space`), and by the board
    try:
        check_facts(requires, hello, where=where)
    except DeviceError as error:
        raise BundleError(
            error.message, code=error.code, where=error.where, hint=error.hint
        ) from error


def check_space(sent: int, hello: Hello, where: str) -> None:
    """Raises BoardError "board.disk-full" if more bytes are to be sent than are free."""
    if sent > hello.free_bytes:
        raise BoardError(
            f"the bundle needs {sent:,} more bytes, but only {hello.free_bytes:,} are free on the "
            "board",
            code="board.disk-full",
            where=where,
            hint="free space on the board, or give it another `root:`",
        )


@dataclass(frozen=True, slots=True)
class SentBundle:
    """The state of a bundle on a board, and the transferred bytes.

    Attributes:
        digest: SHA-256 (hex) of the manifest.
        serving: Release that already serves this bundle, complete; None if there is none.
        deployment: The deployment of that release; None if unknown.
        hello: The board's answer to ``hello``.
        blobs_sent: Number of blobs sent, partially sent blobs included.
        blobs_reused: Number of blobs that the board had.
        bytes_sent: Bytes of blobs sent.
        bytes_reused: Bytes of blobs that the board had, parts included.
    """

    digest: str
    serving: str | None
    deployment: DeploymentFacts | None
    hello: Hello
    blobs_sent: int
    blobs_reused: int
    bytes_sent: int
    bytes_reused: int


def send(
    board: BoardClient,
    bundle: Bundle,
    signature: bytes | None = None,
    progress: Progress | None = None,
    *,
    check: Callable[[int, Hello], None] | None = None,
    put_back: bool = True,
) -> SentBundle:
    """Sends the blobs of ``bundle`` that ``board`` lacks; arrived bytes are kept after an
    interruption.

    Args:
        board: Where to.
        bundle: What to send.
        signature: OpenSSH's signature of the manifest; the bundle's own when None.
        progress: Called in this thread with phases "loader" and "send", in bytes.
        check: Called before sending with the bytes that the board lacks (if any) and its ``hello``.
        put_back: Also send a bundle that was taken back on the board.

    Raises:
        BundleError: The board refuses the bundle, or both the board and a stripped bundle lack a
            blob.
        BoardError: The board or the connection failed; "install.taken-back", whose
            ``extra["taken_back"]`` has "release", "at" and "reason".
    """
    signature = bundle.signature if signature is None else signature
    board.ensure_loader(progress)
    sizes = bundle.manifest.sizes()
    anew = False
    partial: dict[str, int] = {}
    while True:
        try:
            offer = board.offer(bundle.manifest_bytes, signature)
            back = offer.taken_back
            if back is not None and not back.others and not put_back:
                raise taken_back_error(back, board.name)
            hello = cast("Hello", offer.hello)  # ``offer`` requests it
            partial = _retained(offer.missing, sizes, board.name)
            blobs = _payload(bundle, partial, board.name)
            if partial and check is not None:
                lacking = sum(sizes[digest] - have for digest, have in partial.items())
                check(lacking, hello)
            sent = board.receive(blobs, progress, partial=partial)
            break
        except BoardError as error:
            # the partial blob was wrong or is gone: the board needs it completely
            if anew or error.code not in _RETAINED_WRONG or not any(partial.values()):
                raise
            anew = True
    return SentBundle(
        digest=offer.digest,
        serving=offer.serving,
        deployment=offer.deployment,
        hello=hello,
        blobs_sent=len(blobs),
        blobs_reused=len(sizes) - len(blobs),
        bytes_sent=sent,
        bytes_reused=sum(sizes.values()) - sent,
    )


def taken_back_error(found: TakenBack, where: str) -> BoardError:
    """Returns the error for a bundle that the board ``where`` has rolled back."""
    error = BoardError(
        f"{found.release} was current there and was rolled back at {found.at}: {found.reason}",
        code="install.taken-back",
        where=where,
        hint="to deploy it anyway, run edgekit deploy CONFIG --again",
    )
    error.extra["taken_back"] = write(found)
    return error


def _retained(
    missing: Sequence[tuple[str, int]], sizes: Mapping[str, int], where: str
) -> dict[str, int]:
    """Returns the bytes that a board already has of each missing blob, by digest."""
    if any(have > sizes.get(digest, -1) for digest, have in missing):
        raise protocol_error("the board asks for blobs that the bundle does not have", where)
    return dict(missing)


def _payload(bundle: Bundle, lacking: Mapping[str, int], where: str) -> dict[str, Buffer]:
    """Returns the blobs to send; a stripped bundle requires its weights on the board."""
    have = {**bundle.weights, **bundle.blobs}
    absent = set(lacking) - set(have)
    if absent:
        names = [n for n, w in bundle.manifest.weights.items() if w.digest in absent]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise BundleError(
            f"the bundle and the board both lack the weights {shown or 'and other blobs'}",
            code="bundle.stripped",
            where=where,
            hint="deploy the full bundle, or deploy from the configuration it was built from",
        )
    return {digest: blob_view(have[digest]) for digest in lacking}


def follow(
    board: BoardClient,
    request: DeployRequest,
    progress: Progress | None = None,
    on_start: Callable[[str], None] | None = None,
) -> DeploymentFacts:
    """Starts a deployment, or joins the same running deployment, and returns its result.

    Args:
        board: Where.
        request: The deployment.
        progress: See ``install``.
        on_start: Called with the id of the job, and again if another job continues it.

    Raises:
        BoardError: The deployment failed or was taken back; "deploy.busy".
    """
    job = board.start_job("deploy", request).job
    for number in range(_TIMES + 1):
        if on_start is not None:
            on_start(job)
        _watch(board, job, progress)
        try:
            found = board.job_result(job)
            if not isinstance(found, DeploymentFacts):
                raise protocol_error(f"the result of job {job} is not a {SCHEMA}", board.name)
            return found
        except BoardError as error:
            if error.code not in _CUT_OFF or number == _TIMES:
                raise
            resumed = board.resume(request.app)
            if not resumed:
                raise
            job = resumed[0].job
    raise AssertionError("the last round returns or raises")


def _watch(board: BoardClient, job: str, progress: Progress | None) -> None:
    begun = ""
    for event in board.watch_job(job):
        phase = _PHASES.get(event.phase)
        if progress is None or phase is None:
            continue
        if begun != phase:
            if begun:
                progress(begun, 1, 1)
            progress(phase, 0, 1)
            begun = phase
        if phase == "soak" and event.total > 1:
            progress(phase, event.done, event.total)
    if progress is not None and begun:
        progress(begun, 1, 1)


def install(
    bundle: Bundle,
    board: BoardClient,
    *,
    signature: bytes | None = None,
    progress: Progress | None = None,
    keep: int = 3,
    policy: Policy | None = None,
    again: bool = True,
    put_back: bool = False,
    on_purpose: str | None = None,
    on_start: Callable[[str], None] | None = None,
    passed: DeploymentFacts | None = None,
) -> Release:
    """Installs ``bundle`` and makes it the serving release.

    After the transfer the board works alone, as a job: it checks, refits, tests, switches, watches
    the new release and keeps it, or returns to the previous release; a Ctrl-C or a lost connection
    does not affect the job. The same call joins a running job, continues an interrupted job, and
    sends only missing blobs.

    Args:
        bundle: The bundle.
        board: Where to.
        signature: OpenSSH's signature of the manifest; the bundle's own when None. Boards refuse an
            unsigned bundle.
        progress: Called as (phase, done, total): "hello", "loader" and "send" in bytes, "stage",
            "refit", "selftest", "switch" and "soak" with 0 of 1 before and 1 of 1 after; in between
            "soak" in seconds.
        keep: Releases that stay on the board.
        policy: The board's criteria for the release; its ``keep`` is ignored.
        again: Also deploy a complete bundle that already serves.
        put_back: Also deploy a bundle that was taken back on the board.
        on_purpose: Reason for deploying a bundle that the counters or times of bundles forbid;
            recorded in the board's history.
        on_start: Called with the job's id when the job has started.
        passed: An earlier deployment of this bundle from this board: a board that returned to the
            bundle since then records another deployment.

    Raises:
        BundleError: The board refuses the bundle.
        BoardError: The board failed, or took the release back; ``where`` names the board.
            "deploy.busy" if it deploys another bundle, "install.taken-back" if this bundle was
            taken back there.
    """
    step = _Steps(progress)
    signature = bundle.signature if signature is None else signature

    def check(missing: int, hello: Hello) -> None:
        check_fits(bundle.manifest, hello, board.name)
        check_space(missing, hello, board.name)

    with step("hello"):
        loader_bytes = board.ensure_loader(progress)
    sent = send(board, bundle, signature, progress, check=check, put_back=put_back)
    policy = replace(policy or Policy(), keep=keep)
    deployed = None if again else _serving(board, sent, policy, passed)
    reused = deployed is not None
    if deployed is None:
        check(0, sent.hello)
        request = DeployRequest(
            app=bundle.name,
            digest=bundle.digest,
            policy=policy,
            operator=user_at_host(),
            # equal requests are the same job: a second deployment of a bundle must not return the
            # first job's result
            nonce=secrets.token_hex(8),
            # newly sent blobs are tested again
            again=again or sent.blobs_sent > 0,
            put_back=put_back,
            on_purpose=on_purpose,
        )
        deployed = follow(board, request, progress, on_start)
    return _release(bundle, board, sent, deployed, loader_bytes + len(signature or b""), reused)


def _release(
    bundle: Bundle,
    board: BoardClient,
    sent: SentBundle,
    deployed: DeploymentFacts,
    more: int,
    reused: bool,
) -> Release:
    before = deployed.previous
    return Release(
        id=str(deployed.release),
        board=board.name,
        kind=board.kind,
        app=bundle.name,
        digest=bundle.digest,
        bytes_sent=0 if reused else sent.bytes_sent + len(bundle.manifest_bytes) + more,
        bytes_reused=sent.bytes_reused,
        blobs_sent=sent.blobs_sent,
        blobs_reused=sent.blobs_reused,
        previous=deployed.fallback if before == deployed.release else before,
        hello=sent.hello,
        reused=reused,
        deployment=deployed,
    )


def _serving(
    board: BoardClient,
    sent: SentBundle,
    policy: Policy,
    passed: DeploymentFacts | None,
) -> DeploymentFacts | None:
    """Returns the deployment of the serving bundle; None unless it passed the same gates."""
    if _came_to_serve(sent, policy, sent.deployment):
        return sent.deployment
    if passed is None or not _came_to_serve(sent, policy, passed):
        return None
    return replace(passed, previous=board.app_releases(passed.app).previous)


def _came_to_serve(sent: SentBundle, policy: Policy, deployment: DeploymentFacts | None) -> bool:
    return (
        sent.serving is not None
        and deployment is not None
        and deployment.state == "committed"
        and deployment.digest == sent.digest
        and deployment.release == sent.serving
        and deployment.health is not None
        and all(getattr(deployment.policy, gate) == getattr(policy, gate) for gate in _GATES)
    )


class _Steps:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        if self._progress:
            self._progress(phase, 0, 1)
        yield
        if self._progress:
            self._progress(phase, 1, 1)
