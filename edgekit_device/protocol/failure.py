"""Errors in documents: in the answers of commands, jobs, deployments and servers."""

from __future__ import annotations

from typing import Any

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import Rule, document, member, record, text, with_schema

# a runtime's own message may be long
_MOST = 1 << 18
_MESSAGE = text(most=_MOST)
_NOT_EMPTY = text(r"[\s\S]+", "a message", most=_MOST)


@document(frozen=True)
class Failure:
    """The fields of a DeviceError."""

    code: str = member(text(".+", "a code"))
    message: str = member(_NOT_EMPTY)
    where: str = member(_MESSAGE)
    hint: str = member(_MESSAGE)

    @classmethod
    def of(cls, error: DeviceError) -> "Failure":
        """Returns the fields of ``error``, each cut to the length that readers accept."""
        # readers refuse an empty message, and a longer one
        message = (error.message or error.code)[:_MOST]
        return cls(error.code, message, error.where[:_MOST], error.hint[:_MOST])

    def error(self) -> DeviceError:
        """Returns the DeviceError with these fields, to be raised."""
        return DeviceError(self.message, code=self.code, where=self.where, hint=self.hint)


@document(frozen=True)
class Failed:
    """An answer that is an error: ``{"error": {...}}``."""

    error: Failure = member(record(Failure))


def or_failed(kind: type) -> Rule:
    """Takes an object of the class ``kind``, or the error that prevented it."""
    good, failed = record(kind), record(Failed)

    def rule(value: Any) -> Any:
        return failed(value) if isinstance(value, dict) and "error" in value else good(value)

    return with_schema(rule, anyOf=(good, failed))
