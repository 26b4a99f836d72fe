"""The ``deploy`` section: boards, releases, keys, and what a release must reach on a board."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, model_validator

from edgekit.config._schema_build import ContainerSection
from edgekit.config._section import FilePath, Name, Positive, Section

__all__ = ["BoardSection", "DeploySection", "HealthSection", "ReleaseSection"]

_DAY_S = 86_400
Seconds = Annotated[float, Field(gt=0, le=_DAY_S, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class HealthSection(Section):
    """What a release must reach on a board before it serves, and while: [health.md](health.md)."""

    latency_ms: Positive | None = Field(
        None,
        description="Longest time that half of the frames may need on the board, milliseconds.",
        examples=[33],
    )
    accuracy_min: Finite | None = Field(
        None,
        description="What `accuracy.metric` must reach on the board, on the samples; needs "
        "`samples`.",
        examples=[0.99],
    )
    samples: int = Field(
        0,
        ge=0,
        le=4096,
        description="How many of the calibration inputs travel with the bundle, with what the FP32 "
        "network makes of them.",
    )
    labels: FilePath = Field(
        None,
        description="Text file, relative to this file, with the right class of each sample, a "
        "number a line: `accuracy_min` is then the share of them that the first output must name.",
        examples=["labels.txt"],
    )
    measure_s: float = Field(0.5, ge=0, le=600, description="How long latency is measured.")
    soak_s: float = Field(
        0, ge=0, le=_DAY_S, description="How long the new release is watched while it serves."
    )
    soak_every_s: float = Field(
        1, ge=0.01, le=_DAY_S, description="Time between two looks at it in that time."
    )
    download_s: Seconds = Field(3600, description="Longest time of a download by the board.")
    refit_s: Seconds = Field(600, description="Longest time of a refit.")
    test_s: Seconds = Field(300, description="Longest time of the tests.")

    @model_validator(mode="after")
    def _has_samples(self) -> HealthSection:
        if self.accuracy_min is not None and not self.samples:
            raise ValueError("accuracy_min is measured on samples: say how many with 'samples'")
        if self.labels is not None and not self.samples:
            raise ValueError("labels are of the samples: say how many with 'samples'")
        return self

    def policy(self) -> dict[str, Any]:
        """Returns what travels with a deployment: what ``edgekit_device`` reads as a policy."""
        found = self.model_dump(exclude={"samples", "labels", "download_s", "refit_s", "test_s"})
        limits = ("download_s", "refit_s", "test_s")
        return {**found, "timeouts": {name: getattr(self, name) for name in limits}}


class BoardSection(Section):
    """A board to deploy to."""

    name: Name = Field(description="Name for messages.", examples=["lab"])
    host: str = Field(min_length=1, description="Host name or address; `${ENV}` is expanded.")
    port: int | None = Field(None, ge=1, le=65535, description="SSH port.")
    user: str | None = Field(None, description="SSH user; `${ENV}` is expanded.")
    key: FilePath = Field(None, description="Private key file; `${ENV}` is expanded.")
    host_key: str | None = Field(
        None,
        pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$",
        description="Pinned host key, as `ssh-keygen -lf` prints it.",
    )
    root: str = Field("~/.edgekit", description="Folder on the board.")
    python: str = Field("python3", description="Python on the board.")
    container: ContainerSection | None = Field(
        None, description="Run the loader in a container there instead."
    )


class ReleaseSection(Section):
    """What a signed bundle says of itself, which boards hold unattended installs against."""

    counter: int | None = Field(
        None,
        ge=1,
        lt=1 << 63,
        description="Release counter: `install` on a board takes no bundle of a lower one than it "
        "has seen of this signer and application. `edgekit bundle --counter` gives it too.",
        examples=[42],
    )
    valid_until: str | None = Field(
        None,
        pattern=r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$",
        description="`install` takes the bundle until then: a day (its end) or a time, in UTC.",
        examples=["2027-01-31"],
    )

    @model_validator(mode="after")
    def _is_a_time(self) -> ReleaseSection:
        if self.valid_until is not None:
            datetime.fromisoformat(self.valid_until.replace("Z", "+00:00"))
        return self


class DeploySection(Section):
    """Boards, releases kept, how a board judges a release, and the signing key."""

    boards: list[BoardSection] = Field(
        default_factory=list, description="Boards; an embedded loopback board when empty."
    )
    keep: int = Field(3, ge=2, le=100, description="Releases kept on a board.")
    mirror: list[Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]] = Field(
        default_factory=list,
        description="Where boards fetch bundles themselves, in this order: URLs of mirrors "
        "that `edgekit bundle push` wrote. `${ENV}` is expanded.",
        examples=["https://mirror.example.org/edgekit/"],
    )
    health: HealthSection = Field(
        default_factory=HealthSection, description="What a release must reach on a board."
    )
    release: ReleaseSection = Field(
        default_factory=ReleaseSection,
        description="Release counter and end of validity: [signing.md](signing.md).",
    )
    sign_with: FilePath = Field(
        None,
        description="OpenSSH private key that signs bundles; `${ENV}` is expanded. A key of "
        "edgekit's own when absent.",
        examples=["~/.ssh/id_ed25519"],
    )
