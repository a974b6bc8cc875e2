"""cuFile, where it is installed: device memory is written to a file and read back into other memory."""
import ctypes
import glob
import hashlib
import json
import os
import sys
import tempfile

try:
    import torch
except ImportError:
    sys.exit(77)

BYTES = 8 << 20


class Error(ctypes.Structure):
    """CUfileError_t."""
    _fields_ = [("err", ctypes.c_int), ("cu_err", ctypes.c_int)]


class Descr(ctypes.Structure):
    """CUfileDescr_t with a file descriptor (type 1)."""
    _fields_ = [("type", ctypes.c_int), ("handle", ctypes.c_void_p), ("ops", ctypes.c_void_p)]


def open_library():
    import nvidia
    for folder in nvidia.__path__:
        for path in sorted(glob.glob(folder + "/*/lib/libcufile.so.0")):
            return ctypes.CDLL(path)
    try:
        return ctypes.CDLL("libcufile.so.0")
    except OSError:
        return None


def prepared(folder):
    """The library, ready to work on any file system, or None."""
    config = os.path.join(folder, "cufile.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"logging": {"dir": folder, "level": "ERROR"}, "properties": {"allow_compat_mode": True}}, file)
    os.environ["CUFILE_ENV_PATH_JSON"] = config
    library = open_library()
    if library is None:
        return None
    for name in ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileBufRegister", "cuFileBufDeregister"):
        getattr(library, name).restype = Error
    for name in ("cuFileRead", "cuFileWrite"):
        getattr(library, name).restype = ctypes.c_ssize_t
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                           ctypes.c_longlong, ctypes.c_longlong]
    library.cuFileBufRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.cuFileBufDeregister.argtypes = [ctypes.c_void_p]
    return library if library.cuFileDriverOpen().err == 0 else None


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = (torch.arange(BYTES // 4, device="cuda", dtype=torch.int32) * 7919) ^ 12345
        library = prepared(folder)
        if library is None:
            sys.exit(77)
        handle = ctypes.c_void_p()
        path = os.path.join(folder, "data")
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        descr = Descr(1, fd, None)
        if library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(descr)).err:
            sys.exit(77)
        torch.cuda.synchronize()
        for registered in (False, True):
            back = torch.zeros_like(source)
            for t in (source, back) if registered else ():
                print("register", library.cuFileBufRegister(t.data_ptr(), BYTES, 0).err)
            print("written", library.cuFileWrite(handle, source.data_ptr(), BYTES, 0, 0))
            print("read", library.cuFileRead(handle, back.data_ptr(), BYTES, 0, 0))
            with open(path, "rb") as file:
                print("file", hashlib.sha256(file.read()).hexdigest())
            print("same", torch.equal(source, back))
            for t in (source, back) if registered else ():
                print("deregister", library.cuFileBufDeregister(t.data_ptr()).err)


main()
