# SPDX-License-Identifier: Apache-2.0
"""What an array is to the library: an address, a number of elements, a type.

Understood are, in this order: PyTorch tensors, NumPy arrays, anything with the
CUDA array interface, anything with DLPack, and plain buffers (array.array,
bytearray). None of these packages is imported here; a program that has no
PyTorch never loads it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from ._library import fast

# name: (code in the library, bytes of an element)
DTYPES = {
    "int8": (0, 1),
    "uint8": (1, 1),
    "int32": (2, 4),
    "uint32": (3, 4),
    "int64": (4, 8),
    "uint64": (5, 8),
    "float16": (6, 2),
    "bfloat16": (7, 2),
    "float32": (8, 4),
    "float64": (9, 8),
    "float8_e4m3fn": (10, 1),
    "float8_e5m2": (11, 1),
}
_CODES = {name: code for name, (code, _) in DTYPES.items()}
_CODES["bool"] = 1  # a byte that is 0 or 1; for copies, and for min and max
_SIZES = {code: size for code, size in DTYPES.values()}

_FORMATS = {"b": 0, "B": 1, "?": 1, "i": 2, "I": 3, "q": 4, "Q": 5, "l": 4, "L": 5, "e": 6, "f": 8, "d": 9}
_TYPESTRS = {"i1": 0, "u1": 1, "b1": 1, "i4": 2, "u4": 3, "i8": 4, "u8": 5, "f2": 6, "f4": 8, "f8": 9}


# An array as a call needs it: address, elements, type, and what keeps the memory alive. (A plain
# tuple: a call makes two, and its time on the host counts.)
Buffer = tuple[int, int, int, Any]


def itemsize(dtype: int) -> int:
    """Bytes of one element of a type."""
    return _SIZES[dtype]


def dtype_name(dtype: int) -> str:
    """Name of a type by its number."""
    return next(name for name, (code, _) in DTYPES.items() if code == dtype)


def dtype_code(dtype: Any) -> int:
    """The library's number for a type given by name ("bfloat16"), NumPy dtype or torch dtype."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    code = _CODES.get(name.removeprefix("torch."))
    if code is None:
        try:
            code = _CODES.get(sys.modules["numpy"].dtype(dtype).name)
        except (KeyError, TypeError):
            code = None
    if code is None:
        raise TypeError(f"solccl has no element type {dtype}: expected one of {', '.join(DTYPES)}")
    return code


_torch_codes: dict[Any, int] = {}


def _of_torch(x: Any, write: bool) -> Buffer:
    code = _torch_codes.get(x.dtype)
    if code is None:
        code = _torch_codes[x.dtype] = dtype_code(x.dtype)
    if not x.is_contiguous():
        raise ValueError("solccl needs a contiguous tensor: call .contiguous() first")
    return (x.data_ptr(), x.numel(), code, x)


_numpy_codes: dict[Any, int] = {}


def _of_numpy(x: Any, write: bool) -> Buffer:
    flags = x.flags
    if not flags.c_contiguous:
        raise ValueError("solccl needs a C-contiguous array: use numpy.ascontiguousarray first")
    if write and not flags.writeable:
        raise ValueError("the array that receives is read-only")
    code = _numpy_codes.get(x.dtype)
    if code is None:
        if not x.dtype.isnative:
            raise TypeError("solccl needs numbers in this machine's byte order")
        code = _numpy_codes[x.dtype] = dtype_code(x.dtype)
    return (x.__array_interface__["data"][0], x.size, code, x)


def _contiguous(shape: Any, strides: Any, unit: int) -> bool:
    """Row-major without gaps? `strides` in multiples of `unit`; None says that it is."""
    expected = unit
    for n, stride in zip(reversed(tuple(shape)), reversed(tuple(strides or ()))):
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True


def _product(shape: Any) -> int:
    count = 1
    for n in shape:
        count *= int(n)
    return count


def _of_cuda_interface(x: Any, interface: dict[str, Any], write: bool) -> Buffer:
    typestr = interface["typestr"]
    if typestr[1:] not in _TYPESTRS or typestr[0] == ">":
        raise TypeError(f"solccl has no element type {typestr}")
    code = _TYPESTRS[typestr[1:]]
    if not _contiguous(interface["shape"], interface.get("strides"), _SIZES[code]):
        raise ValueError("solccl needs a contiguous array")
    address, read_only = interface["data"]
    if write and read_only:
        raise ValueError("the array that receives is read-only")
    return (address or 0, _product(interface["shape"]), code, x)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# (DLDataTypeCode, bits): signed, unsigned, float, bfloat, bool, and the two 8-bit floats
_DLPACK = {
    (0, 8): 0,
    (1, 8): 1,
    (0, 32): 2,
    (1, 32): 3,
    (0, 64): 4,
    (1, 64): 5,
    (2, 16): 6,
    (4, 16): 7,
    (2, 32): 8,
    (2, 64): 9,
    (6, 8): 1,
    (10, 8): 10,
    (12, 8): 11,
}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(x: Any) -> Buffer:
    device_type, _ = x.__dlpack_device__()
    if device_type not in (1, 2, 3, 13):  # CPU, CUDA, pinned host memory, managed memory
        raise TypeError(f"solccl cannot use memory of DLPack device type {device_type}")
    # Stream 1 or -1: no waiting of the producer is needed, calls are ordered by their stream.
    capsule = x.__dlpack__(stream=-1) if device_type in (2, 13) else x.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    code = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if code is None:
        raise TypeError(f"solccl has no element type of DLPack code {tensor.code}, {tensor.bits} bits")
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    if not _contiguous(shape, strides, 1):
        raise ValueError("solccl needs a contiguous array")
    address = (tensor.data or 0) + tensor.byte_offset
    return (address, _product(shape), code, capsule)


def _of_buffer(x: Any, write: bool) -> Buffer:
    view = memoryview(x)
    if not view.c_contiguous:
        raise ValueError("solccl needs a contiguous buffer")
    if write and view.readonly:
        raise ValueError("the buffer that receives is read-only")
    code = _FORMATS.get(view.format.lstrip("@="))
    if code is None or _SIZES[code] != view.itemsize:
        raise TypeError(f"solccl has no element type of buffer format {view.format}")
    count = view.nbytes // view.itemsize
    if view.readonly:  # ctypes takes the address of writable memory only
        copy = ctypes.create_string_buffer(view.tobytes(), view.nbytes or 1)
        return (ctypes.addressof(copy), count, code, copy)
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return (ctypes.addressof(held), count, code, held)


# What has been found out about a type: how its arrays are read.
_readers: dict[type, Any] = {}


def buffer_of(x: Any, write: bool = False) -> Buffer:
    """Address, count and type of an array; `write`: it will be written to."""
    reader = _readers.get(type(x))
    if reader is not None:
        return reader(x, write)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        _readers[type(x)] = _of_torch
        table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        if fast is not None and type(x) is torch.Tensor and table is not None:
            fast.tensors(torch.Tensor, table)
        return _of_torch(x, write)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        _readers[type(x)] = _of_numpy
        if fast is not None and type(x) is numpy.ndarray:
            fast.arrays(numpy.ndarray)
        return _of_numpy(x, write)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_cuda_interface(x, interface, write)
    if hasattr(x, "__dlpack__"):
        return _of_dlpack(x)
    return _of_buffer(x, write)


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array that has one: lists, array.array and bytearray have none."""
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"solccl cannot make another {type(x).__name__}: pass a NumPy array or a tensor, or `out`")
    return tuple(shape)


def like(x: Any, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Any:
    """A new array of `shape` (None: x's), of the kind, device and (without `dtype`, a name) type of `x`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if shape is None and dtype is None:
            return torch.empty_like(x)
        shape = x.shape if shape is None else shape
        return x.new_empty(shape) if dtype is None else x.new_empty(shape, dtype=getattr(torch, dtype))
    shape = shape_of(x) if shape is None else shape
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return numpy.empty(shape, dtype=dtype or x.dtype)
    module = sys.modules.get(type(x).__module__.split(".")[0])
    if module is not None and hasattr(module, "empty"):  # CuPy and its like
        return module.empty(shape, dtype=dtype or x.dtype)
    raise TypeError(f"pass `out`: solccl cannot make another {type(x).__name__}")


def stream_of(stream: Any, x: Any) -> int | None:
    """The cudaStream_t for a call: `stream` (a number, or an object of PyTorch or CuPy), or, for
    None, PyTorch's current one where it has a say, else the default stream."""
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        index = x.get_device() if isinstance(x, torch.Tensor) else -1
        return torch._C._cuda_getCurrentRawStream(index if index >= 0 else torch.cuda.current_device()) or None
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value or None
    return int(stream) or None
