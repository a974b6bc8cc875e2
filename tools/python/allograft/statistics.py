"""What the library counts, and marks in its report. Without a library nothing happens here."""
from __future__ import annotations

import os
from ctypes import byref, sizeof
from typing import Any, Optional

from . import _library
from ._library import NOT_LOADED, OK, PLACES, Snapshot, error


def stats() -> dict[str, Any]:
    """The library's counts as they are now, summed over all devices since the process began; {} without a library.

    `allocations`, `frees` (numbers), `current_bytes`, `peak_bytes` are dicts with the keys native, pooled, managed,
    host, spilled: where the memory came from. `refused`: allocations that failed. `replay_operations`,
    `replay_withheld`, `replay_replayed`, `replay_launches`: of streams that the library replays by itself.
    `api_captures`, `api_replays`, `api_copies`, `api_copied_bytes`: of this interface."""
    found = _library.find()
    if found is None:
        return {}
    now = Snapshot(bytes=sizeof(Snapshot))
    found.call("snapshot", byref(now))
    result: dict[str, Any] = {}
    for name, *_ in Snapshot._fields_[1:]:
        value = getattr(now, name)
        result[name] = value if isinstance(value, int) else dict(zip(PLACES, value))
    return result


def _tell(function: str, text: Optional[bytes]) -> bool:
    found = _library.find()
    status = NOT_LOADED if found is None else found.status(function, text)
    if found is not None and status not in (OK, NOT_LOADED):
        raise error(status, found.last_error())
    return status == OK


def dump(path: Any = None) -> bool:
    """Writes the report as it is now: JSON if `path` ends in .json, else text; "full" is the text on stderr, None its
    first lines there. %p %h %n %r as in ALLOGRAFT_STATS. False without a library."""
    return _tell("dump", None if path is None else os.fsencode(path))


def mark(name: str) -> bool:
    """A point in the program with a name, at most 47 bytes: the report tells how often it was passed, when first and
    last, and how much memory there was then. False without a library."""
    return _tell("mark", name.encode("utf-8"))


__all__ = ["dump", "mark", "stats"]
