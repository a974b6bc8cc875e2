"""The library in this process: where it is, the C structs of allograft.h, its functions, its errors.

Nothing is opened when this module is imported. The library is looked for at the first call that needs it:
preloaded, else the file that ALLOGRAFT_LIBRARY names, else one beside this package, else the system's.
"""
from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Optional

API_VERSION = 1

OK = 0
NOT_LOADED = 1
INVALID = 2
UNSUPPORTED = 3
CAPTURING = 4
NO_MEMORY = 5
NOT_READY = 6
STATE = 7
DRIVER = 8

HOST = -1
"""Where a device is asked for: the host's memory."""

PLACES = ("native", "pooled", "managed", "host", "spilled")


# ---- errors ----

class AllograftError(RuntimeError):
    """A call of the library that failed. `status` is the `allograft_status`, `text` says why."""

    status = DRIVER

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class NotLoaded(AllograftError):
    """There is no library in the process, and none was found."""


class InvalidArgument(AllograftError, ValueError):
    """An invalid argument."""


class Unsupported(AllograftError):
    """The device, the driver, or this way of loading the library cannot do it."""


class Capturing(AllograftError):
    """Not while a stream is being captured."""


class NoMemory(AllograftError, MemoryError):
    """Out of memory."""


class NotReady(AllograftError):
    """The work is still in progress."""


class WrongState(AllograftError):
    """A call in the wrong order. Nothing was changed."""


class DriverError(AllograftError):
    """Another error of the CUDA driver."""


_ERRORS = {
    NOT_LOADED: NotLoaded,
    INVALID: InvalidArgument,
    UNSUPPORTED: Unsupported,
    CAPTURING: Capturing,
    NO_MEMORY: NoMemory,
    NOT_READY: NotReady,
    STATE: WrongState,
    DRIVER: DriverError,
}


def error(status: int, text: str) -> AllograftError:
    """The exception for a status."""
    return _ERRORS.get(status, AllograftError)(status, text)


# ---- the structs of allograft.h ----

class Range(ctypes.Structure):
    """`struct allograft_range`"""

    _fields_ = [("address", c_void_p), ("bytes", c_size_t)]


class StageOptions(ctypes.Structure):
    """`struct allograft_stage_options`"""

    _fields_ = [("bytes", c_size_t), ("name", c_char_p), ("warmup", c_uint), ("flags", c_uint), ("mode", c_int)]


class RingOptions(ctypes.Structure):
    """`struct allograft_ring_options`"""

    _fields_ = [("bytes", c_size_t), ("device", c_int), ("depth", c_uint), ("slot_bytes", c_size_t),
                ("flags", c_uint), ("backend", c_int)]


class RingPropertiesStruct(ctypes.Structure):
    """`struct allograft_ring_properties`"""

    _fields_ = [("backend", c_int), ("pinned", c_int), ("async_submit", c_int), ("timing", c_int)]


class RingRecordStruct(ctypes.Structure):
    """`struct allograft_ring_record`"""

    _fields_ = [("sequence", c_uint64), ("submit_ns", c_uint64), ("bytes", c_uint64), ("copy_ms", c_float),
                ("slot", c_uint)]


class Snapshot(ctypes.Structure):
    """`struct allograft_snapshot`"""

    _fields_ = [("bytes", c_size_t)] + [
        (name, c_uint64 * len(PLACES)) for name in ("allocations", "frees", "current_bytes", "peak_bytes")
    ] + [
        (name, c_uint64) for name in (
            "refused", "replay_operations", "replay_withheld", "replay_replayed", "replay_launches",
            "api_captures", "api_replays", "api_copies", "api_copied_bytes")
    ]


# The functions of struct allograft_api in its order, with their arguments. All but the first return a status.
_HANDLE = c_void_p
FUNCTIONS: list[tuple[str, list[Any]]] = [
    ("last_error", []),
    ("managed_support", [c_int]),
    ("managed_alloc", [POINTER(c_void_p), c_size_t, c_int, c_void_p]),
    ("managed_free", [c_void_p, c_size_t, c_int, c_void_p]),
    ("prefetch", [POINTER(Range), c_size_t, c_int, c_void_p, POINTER(c_size_t)]),
    ("advise_preferred_location", [POINTER(Range), c_size_t, c_int, POINTER(c_size_t)]),
    ("advise_accessed_by", [POINTER(Range), c_size_t, c_int, POINTER(c_size_t)]),
    ("pool_new", [POINTER(c_uint64)]),
    ("pool_shared", [c_int, POINTER(c_uint64)]),
    ("capture_stream", [c_int, POINTER(c_void_p)]),
    ("graph_create", [c_int, POINTER(_HANDLE)]),
    ("graph_enable_debug_mode", [_HANDLE]),
    ("graph_capture_begin", [_HANDLE, c_void_p, c_uint64, c_int]),
    ("graph_capture_end", [_HANDLE]),
    ("graph_instantiate", [_HANDLE]),
    ("graph_replay", [_HANDLE, c_void_p]),
    ("graph_reset", [_HANDLE]),
    ("graph_destroy", [_HANDLE]),
    ("graph_debug_dump", [_HANDLE, c_char_p]),
    ("graph_raw", [_HANDLE, POINTER(c_void_p)]),
    ("graph_pool", [_HANDLE, POINTER(c_uint64)]),
    ("stage_open", [POINTER(StageOptions), POINTER(_HANDLE)]),
    ("stage_begin", [_HANDLE, c_void_p, POINTER(c_int)]),
    ("stage_end", [_HANDLE]),
    ("stage_iteration", [_HANDLE, POINTER(c_uint64), POINTER(c_uint64)]),
    ("stage_input", [_HANDLE, c_uint, c_uint, c_size_t, POINTER(c_void_p)]),
    ("stage_load", [_HANDLE, c_uint, c_uint, c_void_p, c_size_t, c_void_p]),
    ("stage_reset", [_HANDLE]),
    ("stage_close", [_HANDLE]),
    ("ring_open", [POINTER(RingOptions), POINTER(_HANDLE)]),
    ("ring_register", [_HANDLE, c_uint, c_void_p, c_size_t]),
    ("ring_device_slot", [_HANDLE, c_uint, POINTER(c_void_p)]),
    ("ring_submit", [_HANDLE, c_uint, c_size_t]),
    ("ring_clear", [_HANDLE, c_uint]),
    ("ring_query", [_HANDLE, c_uint, POINTER(c_int)]),
    ("ring_wait_host", [_HANDLE, c_uint]),
    ("ring_wait_stream", [_HANDLE, c_uint, c_void_p]),
    ("ring_reader", [_HANDLE, c_uint, c_void_p]),
    ("ring_properties", [_HANDLE, c_uint, POINTER(RingPropertiesStruct)]),
    ("ring_trace", [_HANDLE, POINTER(RingRecordStruct), c_size_t, POINTER(c_size_t)]),
    ("ring_close", [_HANDLE]),
    ("snapshot", [POINTER(Snapshot)]),
    ("dump", [c_char_p]),
    ("mark", [c_char_p]),
    ("ring_pin", [_HANDLE, c_void_p, c_size_t]),
    ("ring_copy", [_HANDLE, c_uint, c_void_p, c_void_p, c_size_t]),
    ("ring_stream", [_HANDLE, POINTER(c_void_p)]),
    ("memory_place", [c_void_p, c_size_t, c_int]),
]


class Api(ctypes.Structure):
    """`struct allograft_api`"""

    _fields_ = [("version", c_uint32), ("bytes", c_uint32)] + [(name, c_void_p) for name, _ in FUNCTIONS]


# ---- finding it ----

class _DlInfo(ctypes.Structure):
    _fields_ = [("fname", c_char_p), ("fbase", c_void_p), ("sname", c_char_p), ("saddr", c_void_p)]


class Library:
    """The library's functions by name. Each releases the interpreter's lock while it runs."""

    def __init__(self, api: Api, path: str, preloaded: bool) -> None:
        self.path = path
        self.preloaded = preloaded
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, arguments in FUNCTIONS:
            if getattr(Api, name).offset < api.bytes and getattr(api, name):
                result = c_char_p if name == "last_error" else c_int
                self._functions[name] = ctypes.CFUNCTYPE(result, *arguments)(getattr(api, name))

    def last_error(self) -> str:
        """One line about the last call of this thread that failed."""
        text = self._functions["last_error"]()
        return bytes(text).decode("utf-8", "replace") if text else ""

    def status(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns its status."""
        function = self._functions.get(name)
        return NOT_LOADED if function is None else int(function(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function; raises its error."""
        status = self.status(name, *arguments)
        if status != OK:
            known = name in self._functions
            raise error(status, self.last_error() if known else "%s has no %s: it is older than this package"
                        % (self.path, name))


def _ask(handle: ctypes.CDLL, preloaded: bool) -> Optional[Library]:
    try:
        get = handle.allograft_get_api
    except AttributeError:
        return None
    get.restype = POINTER(Api)
    get.argtypes = [c_uint32]
    found = get(API_VERSION)
    if not found:
        return None
    info = _DlInfo()
    known = ctypes.CDLL(None).dladdr(ctypes.cast(get, c_void_p), ctypes.byref(info))
    path = os.fsdecode(info.fname) if known and info.fname else "liballograft.so"
    return Library(found.contents, path, preloaded)


def _candidates() -> list[str]:
    """Candidate files, the best first."""
    given = os.environ.get("ALLOGRAFT_LIBRARY")
    if given:
        return [given]
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, folder, "liballograft.so") for folder in ("", "lib")]
    return [path for path in beside if os.path.exists(path)] + ["liballograft.so"]


_lock = threading.Lock()
_library: Optional[Library] = None
_why_not = "the library was not looked for yet"


def _open() -> Optional[Library]:
    global _why_not
    found = _ask(ctypes.CDLL(None), True)
    if found:
        return found
    reasons = []
    for path in _candidates():
        try:
            found = _ask(ctypes.CDLL(path, ctypes.RTLD_LOCAL | os.RTLD_NOW), False)
        except OSError as reason:
            reasons.append(str(reason))
            continue
        if found:
            return found
        reasons.append("%s is of another version" % path)
    _why_not = "Allograft is not in this process: " + "; ".join(reasons)
    return None


def find() -> Optional[Library]:
    """The library, or None. Until it is found, each call searches again."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open()
    return _library


def library() -> Library:
    """The library; raises NotLoaded, with the files that were tried, if there is none."""
    found = find()
    if found is None:
        raise NotLoaded(NOT_LOADED, _why_not)
    return found


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library; raises its error."""
    library().call(name, *arguments)


def is_loaded() -> bool:
    """Is there a library to call? Searches for one."""
    return find() is not None


def is_preloaded() -> bool:
    """Is the library in front of the program's own CUDA calls? Else this package works, but nothing is
    redirected and no stream is replayed that was not recorded here."""
    found = find()
    return found is not None and found.preloaded


def library_path() -> str:
    """The library's file. NotLoaded where there is none."""
    return library().path
