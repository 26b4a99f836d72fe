"""A program with NVTX annotations as TensorRT makes them; argument: the NVTX library."""

import ctypes
import sys
import threading

L = ctypes.CDLL(sys.argv[1])
L.nvtxDomainCreateA.restype = ctypes.c_void_p
L.nvtxDomainCreateA.argtypes = [ctypes.c_char_p]


class Attributes(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("colorType", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payloadType", ctypes.c_int32),
        ("reserved0", ctypes.c_int32),
        ("payload", ctypes.c_uint64),
        ("messageType", ctypes.c_int32),
        ("message", ctypes.c_char_p),
    ]


L.nvtxDomainRangePushEx.argtypes = [ctypes.c_void_p, ctypes.POINTER(Attributes)]
L.nvtxDomainRangePop.argtypes = [ctypes.c_void_p]
L.nvtxRangePushA.argtypes = [ctypes.c_char_p]
L.nvtxMarkA.argtypes = [ctypes.c_char_p]
L.nvtxRangeStartA.argtypes = [ctypes.c_char_p]
L.nvtxRangeStartA.restype = ctypes.c_uint64
L.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
domain = L.nvtxDomainCreateA(b"TensorRT")


def crunch(n):
    return sum(i * i for i in range(n))


def layer(name, n):
    a = Attributes(3, ctypes.sizeof(Attributes), 0, 0, 0, 0, 0, 0, 1, name.encode())
    L.nvtxDomainRangePushEx(domain, ctypes.byref(a))
    crunch(n)
    L.nvtxDomainRangePop(domain)


for frame in range(4):
    L.nvtxRangePushA(b"frame %d" % frame)
    layer("conv1", 10000)
    t = threading.Thread(target=layer, args=("{ForeignNode[conv2...relu3]}", 20000))
    t.start()
    t.join()
    L.nvtxMarkA(b"frame done")
    L.nvtxRangePop()
r = L.nvtxRangeStartA(b"summary")
crunch(1000)
L.nvtxRangeEnd(r)
