"""What can go wrong in words an operator can act on.

PolltopError                 base: its text is shown as it is, without a traceback
├── ConfigError              the config is wrong; carries every problem found, not the first only
├── StateHeldError           another engine holds the state folder
├── StoreError               the state folder cannot be read or written
├── ThrottledError           a limit cools down for longer than a request waits: no failure of anybody
└── ReadError                one read of a stream failed; the source lives on
    └── DriftError           an answer that no longer has the shape that its source knows
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DriftError",
    "PolltopError",
    "ReadError",
    "StateHeldError",
    "StoreError",
    "ThrottledError",
    "sole",
]


class PolltopError(Exception):
    """Base of all errors whose text is written for the operator."""


def sole(error: BaseException) -> BaseException:
    """The one error in a group of one, however deep; else the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class ConfigError(PolltopError):
    """A config (or theme, or tape) that cannot be used. `problems` are lines `FILE:LINE: field: reason`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StateHeldError(PolltopError):
    """Another engine runs on the same state folder; the text names it."""


class StoreError(PolltopError):
    """The state folder or its database cannot be used; the text says which file and why."""


class ThrottledError(PolltopError):
    """Nothing may be sent before `until` (`Clock.boot`), which is longer than this request waits; try again then."""

    def __init__(self, limit: str, until: float, cause: str) -> None:
        super().__init__(f"throttled by {limit}: {cause}")
        self.limit = limit
        self.until = until


class ReadError(PolltopError):
    """A read that failed and was dropped whole; nothing of it was recorded.

    `kind` is the text without what the server said: two failures of one kind are one state, however their answers vary.
    """

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(f"{kind}: {said}" if said else kind)
        self.kind = kind


class DriftError(ReadError):
    """The answer is well-formed HTTP but not what the source documents: a changed envelope, only bad records."""
