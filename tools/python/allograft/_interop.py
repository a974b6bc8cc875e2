"""Objects of other packages: devices, streams, arrays, and PyTorch if the program uses it.

No other package is imported here. An array is whatever says where its bytes are.
"""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, NamedTuple, Optional

from ._library import CAPTURING, HOST, INVALID, Capturing, error


def torch_module() -> Any:
    """PyTorch if the program has imported it, else None."""
    return sys.modules.get("torch")


def torch_with_cuda() -> Any:
    """PyTorch if the program has imported it and it can use a GPU, else None."""
    torch = torch_module()
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() else None


def is_torch_tensor(thing: Any) -> bool:
    """Is it a torch.Tensor?"""
    torch = torch_module()
    return torch is not None and isinstance(thing, torch.Tensor)


def refuse_in_capture(what: str) -> None:
    """Raises Capturing when PyTorch's current stream is being captured."""
    torch = torch_with_cuda()
    if torch is not None and torch.cuda.is_current_stream_capturing():
        raise Capturing(CAPTURING, "%s while the current stream is being captured" % what)


# ---- devices and streams ----

def current_device() -> int:
    """PyTorch's current device, else 0."""
    torch = torch_with_cuda()
    return int(torch.cuda.current_device()) if torch is not None else 0


def device_number(device: Any) -> int:
    """The ordinal of a device, or HOST. Accepts an int (-1 is the host), "cpu", "cuda", "cuda:1", torch.device,
    cupy.cuda.Device, and None for the current one."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        if device < HOST:
            raise error(INVALID, "device %d: ordinals begin with 0, the host is -1" % device)
        return device
    kind = getattr(device, "type", None)
    if isinstance(kind, str):  # torch.device
        index = getattr(device, "index", None)
        name = kind if index is None else "%s:%d" % (kind, index)
    elif isinstance(getattr(device, "id", None), int):  # cupy.cuda.Device
        return int(device.id)
    else:
        name = str(device)
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return HOST
    if kind != "cuda" or (number and not number.isdigit()):
        raise error(INVALID, "device %r: an ordinal, 'cuda', 'cuda:N' or 'cpu' is meant" % (device,))
    return int(number) if number else current_device()


def stream_handle(stream: Any, device: Optional[int] = None) -> int:
    """The cudaStream_t of a stream as a number. Accepts a number, torch.cuda.Stream, cupy.cuda.Stream, whatever
    has `__cuda_stream__`, and None: PyTorch's current stream of the device, else the legacy default stream."""
    if stream is None:
        torch = torch_with_cuda()
        if torch is None or device == HOST:
            return 0 if torch is None else int(torch.cuda.current_stream().cuda_stream)
        return int(torch.cuda.current_stream(device).cuda_stream)
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        return int(answer[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value
    raise error(INVALID, "stream %r: a handle, torch.cuda.Stream or cupy.cuda.Stream is meant" % (stream,))


# ---- arrays ----

class Extent(NamedTuple):
    """Where an array's bytes are."""

    address: int
    bytes: int
    storage: int  # arrays of one storage lie in one allocation; 0: not known
    on_device: Optional[bool]  # None: not known


_CODES = {"float64": "f8", "float32": "f4", "float16": "f2", "int64": "i8", "int32": "i4", "int16": "i2",
          "int8": "i1", "uint64": "u8", "uint32": "u4", "uint16": "u2", "uint8": "u1", "bool": "b1",
          "complex64": "c8", "complex128": "c16", "double": "f8", "float": "f4", "half": "f2", "long": "i8",
          "int": "i4", "short": "i2"}


def type_string(dtype: Any) -> str:
    """The element type as `__cuda_array_interface__` writes it: "<f4". Accepts that, a name ("float32"),
    numpy.dtype, torch.dtype, a NumPy type. bfloat16, which NumPy has not, is "<V2"."""
    text = getattr(dtype, "str", None)  # numpy.dtype
    if isinstance(text, str):
        return text
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    name = name.replace("torch.", "")
    if name[:1] in "<>|=" and name[2:].isdigit():
        return "<" + name[1:] if name[0] == "=" else name
    if name == "bfloat16":
        return "<V2"
    if name.startswith("float8"):
        return "|u1"
    code = _CODES.get(name, name)
    if len(code) < 2 or code[0] not in "fiubcV" or not code[1:].isdigit():
        raise error(INVALID, "dtype %r: a name such as 'float32' is meant" % (dtype,))
    return ("|" if code[1:] == "1" else "<") + code


_TYPE_STRING = re.compile(r"[<>|=]?([a-zA-Z])([0-9]+)(\[\w+\])?")  # the last part is a unit of time, as of "<M8[ns]"


def item_bytes(typestr: str) -> int:
    """Bytes of one element."""
    match = _TYPE_STRING.fullmatch(typestr)
    if not match or match[1] in "Ot":
        raise error(INVALID, "elements of type %r: a type of so many bytes is meant, such as '<f4'" % typestr)
    return int(match[2]) * (4 if match[1] == "U" else 1)  # NumPy counts characters there


def count(shape: tuple[int, ...]) -> int:
    """Elements of an array of that shape."""
    n = 1
    for extent in shape:
        n *= extent
    return n


def _span(shape: Any, strides: Any, size: int) -> tuple[int, int]:
    """First byte relative to the pointer, and number of bytes up to the last; strides in bytes."""
    low = high = 0
    for extent, stride in zip(shape, strides):
        if extent == 0:
            return 0, 0
        low += min(0, (extent - 1) * stride)
        high += max(0, (extent - 1) * stride)
    return low, high - low + size


def _of_interface(interface: dict[str, Any], on_device: bool) -> Extent:
    size = item_bytes(interface["typestr"])
    shape = tuple(interface["shape"])
    address = int(interface["data"][0] or 0)
    strides = interface.get("strides")
    if strides is None:
        return Extent(address, count(shape) * size, 0, on_device)
    low, n = _span(shape, strides, size)
    return Extent(address + low, n, 0, on_device)


def _of_tensor(tensor: Any) -> Extent:
    """Anything that has data_ptr(), numel() and element_size()."""
    local = getattr(tensor, "to_local", None)  # a DTensor: this process's part
    if callable(local):
        tensor = local()
    address, size = int(tensor.data_ptr()), int(tensor.element_size())
    n = int(tensor.numel()) * size
    whole = getattr(tensor, "untyped_storage", None)
    storage = int(whole().data_ptr()) if callable(whole) else 0
    contiguous = getattr(tensor, "is_contiguous", None)
    if n and callable(contiguous) and not contiguous() and callable(getattr(tensor, "stride", None)):
        _, n = _span(tensor.shape, [s * size for s in tensor.stride()], size)
    on_device = getattr(tensor, "is_cuda", None)
    return Extent(address, n, storage, on_device if isinstance(on_device, bool) else None)


def extent_of(thing: Any) -> Extent:
    """Where the bytes of a tensor, an array or a storage are: if strided, from the first byte to the last."""
    if callable(getattr(thing, "data_ptr", None)):
        if callable(getattr(thing, "numel", None)) and callable(getattr(thing, "element_size", None)):
            return _of_tensor(thing)
        if callable(getattr(thing, "nbytes", None)):  # torch.UntypedStorage
            address = int(thing.data_ptr())
            return Extent(address, int(thing.nbytes()), address, getattr(thing, "is_cuda", None))
    if callable(getattr(thing, "untyped_storage", None)):
        return extent_of(thing.untyped_storage())
    interface = getattr(thing, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return _of_interface(interface, True)
    interface = getattr(thing, "__array_interface__", None)
    if isinstance(interface, dict) and interface.get("data") is not None:
        return _of_interface(interface, False)
    return _of_buffer(thing)


def _is_contiguous(thing: Any) -> bool:
    method = getattr(thing, "is_contiguous", None)
    if callable(method):
        return bool(method())
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(thing, name, None)
        if isinstance(interface, dict) and interface.get("strides") is not None:
            expected = item_bytes(interface["typestr"])
            for extent, stride in zip(reversed(interface["shape"]), reversed(interface["strides"])):
                if extent > 1 and stride != expected:
                    return False
                expected *= extent
    return True  # what has the buffer protocol alone is asked for it


def contiguous_extent_of(thing: Any) -> Extent:
    """Like extent_of(), for memory that is to be copied as it is."""
    if not _is_contiguous(thing):
        raise error(INVALID, "an array that is not contiguous")
    return extent_of(thing)


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def _of_buffer(thing: Any) -> Extent:
    """Contiguous objects with the buffer protocol: bytearray, array.array, mmap, memoryview."""
    shared = getattr(thing, "buf", None)  # multiprocessing.shared_memory.SharedMemory
    if isinstance(shared, memoryview):
        thing = shared
    view = _PyBuffer()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(thing), ctypes.byref(view), 0)
    except (TypeError, BufferError) as reason:
        raise error(INVALID, "%s says not where its bytes are: %s" % (type(thing).__name__, reason)) from None
    extent = Extent(int(view.buf or 0), int(view.len), 0, False)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return extent


class DeviceArray:
    """A piece of device memory that somebody else owns: `shape` elements of `typestr` ("<f4"), contiguous.

    What reads `__cuda_array_interface__` takes it in place: `torch.as_tensor(a, device="cuda")`,
    `cupy.asarray(a)`, Numba. It keeps `owner` alive, and the memory is valid as long as the owner says.
    """

    is_cuda = True

    def __init__(self, address: int, shape: tuple[int, ...], dtype: Any, owner: Any = None) -> None:
        self.address = address
        self.shape = tuple(int(extent) for extent in shape)
        self.typestr = type_string(dtype)
        self.owner = owner

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.numel() * self.element_size()

    def data_ptr(self) -> int:
        """The device address."""
        return self.address

    def numel(self) -> int:
        """Elements."""
        return count(self.shape)

    def element_size(self) -> int:
        """Bytes of an element."""
        return item_bytes(self.typestr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.address, False), "version": 3,
                "strides": None, "stream": None}

    def __repr__(self) -> str:
        return "DeviceArray(0x%x, shape=%r, dtype=%r)" % (self.address, self.shape, self.typestr)


def torch_dtype(torch: Any, dtype: Any) -> Any:
    """The torch.dtype for what type_string() accepts."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", None) or getattr(dtype, "__name__", ""))
    found = getattr(torch, name, None)
    if isinstance(found, torch.dtype):
        return found
    code = type_string(dtype)[1:]
    for known, typestr in [*_CODES.items(), ("bfloat16", "V2")]:
        found = getattr(torch, known, None)
        if typestr == code and isinstance(found, torch.dtype):
            return found
    raise error(INVALID, "dtype %r: PyTorch has none like it" % (dtype,))


def as_torch(torch: Any, address: int, shape: tuple[int, ...], dtype: Any, device: int, owner: Any) -> Any:
    """Device memory as a torch.Tensor, without a copy. Goes by bytes, since element types differ between packages."""
    kind = torch_dtype(torch, dtype)
    raw = DeviceArray(address, (count(shape) * item_bytes(type_string(dtype)),), "uint8", owner)
    return torch.as_tensor(raw, device="cuda:%d" % device).view(kind).view(shape)
