# SPDX-License-Identifier: Apache-2.0
"""The shared library, through ctypes: its functions, its types, its errors.

Nothing here knows of NumPy or PyTorch. Every function of the library that can
fail is wrapped so that a failure becomes an exception with the library's text.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import stat
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

MAX_RANKS = 64


class Error(RuntimeError):
    """What the library says went wrong. `status` is its negative code."""

    status = -11

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class ArgumentError(Error, ValueError):
    """An argument is wrong. Nothing was done; the communicator can still be used."""

    status = -1


class UnsupportedError(Error):
    """Legal, but not on this machine or in this build."""

    status = -2


class MemoryRefusedError(Error, MemoryError):
    """Memory was refused."""

    status = -3


class SystemCallError(Error):
    """A system call failed."""

    status = -4


class TimedOutError(Error, TimeoutError):
    """A wait expired; the text says for whom."""

    status = -5


class PeerError(Error, ConnectionError):
    """Another rank failed or died."""

    status = -6


class AbortedError(Error):
    """The communicator was aborted, here or on another rank."""

    status = -7


class MismatchError(Error):
    """Ranks called different things."""

    status = -8


class StateError(Error):
    """Not legal now: in a forked child, in an open group, in a capture."""

    status = -9


class DeviceError(Error):
    """The GPU or its driver reported an error."""

    status = -10


class InternalError(Error):
    """A fault in solccl itself: please report it."""

    status = -11


_ERRORS = {
    e.status: e
    for e in (
        ArgumentError,
        UnsupportedError,
        MemoryRefusedError,
        SystemCallError,
        TimedOutError,
        PeerError,
        AbortedError,
        MismatchError,
        StateError,
        DeviceError,
        InternalError,
    )
}


class UniqueId(Structure):
    """Names one future communicator: 128 bytes that any channel may carry."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Config(Structure):
    """sol_comm_config_t."""

    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("timeout_ms", c_int),
        ("check", c_int),
        ("reserved0", c_int),
        ("staging_bytes", c_size_t),
        ("name", c_char_p),
    ]


class Info(Structure):
    """sol_comm_info_t."""

    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int),
        ("nranks", c_int),
        ("backend", c_int),
        ("device", c_int),
        ("sequence", c_uint64),
        ("shared_bytes", c_size_t),
        ("oversubscribed", c_int),
        ("asleep", c_int),
    ]


class NormArgs(Structure):
    """sol_norm_args_t."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_size_t),
        ("hidden", c_size_t),
        ("dtype", c_int),
        ("norm", c_int),
        ("input", c_void_p),
        ("residual", c_void_p),
        ("residual_out", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("weight_bias", c_float),
        ("epsilon", c_float),
        ("output", c_void_p),
        ("output_dtype", c_int),
        ("quant", c_int),
        ("static_scale", c_void_p),
        ("scales", c_void_p),
        ("form", c_int),
        ("shards", c_uint),
    ]


class NormConfig(Structure):
    """sol_norm_config_t."""

    _fields_ = [
        ("size", c_size_t),
        ("max_tokens", c_size_t),
        ("hidden", c_size_t),
        ("dtype", c_int),
        ("form", c_int),
        ("shards", c_uint),
        ("depth", c_int),
        ("start_ctas", c_int),
    ]


class LinearArgs(Structure):
    """sol_linear_args_t."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_size_t),
        ("inputs", c_size_t),
        ("outputs", c_size_t),
        ("weight_dtype", c_int),
        ("input", c_void_p),
        ("weight", c_void_p),
        ("scales", c_void_p),
        ("output", c_void_p),
    ]


class VocabArgs(Structure):
    """sol_vocab_args_t."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_size_t),
        ("columns", c_size_t),
        ("pitch", c_size_t),
        ("first", c_uint64),
        ("dtype", c_int),
        ("k", c_uint),
        ("logits", c_void_p),
        ("values", c_void_p),
        ("indices", c_void_p),
        ("log_sum_exp", c_void_p),
    ]


class Region(Structure):
    """sol_region_t."""

    _fields_ = [("memory", c_void_p), ("bytes", c_size_t)]


class TransferConfig(Structure):
    """sol_transfer_config_t."""

    _fields_ = [
        ("size", c_size_t),
        ("regions", POINTER(Region)),
        ("nregions", c_int),
        ("counters", c_int),
    ]


class Write(Structure):
    """sol_write_t."""

    _fields_ = [
        ("source", c_void_p),
        ("bytes", c_size_t),
        ("offset", c_size_t),
        ("peer", c_int),
        ("region", c_int),
    ]


class Pages(Structure):
    """sol_pages_t."""

    _fields_ = [
        ("size", c_size_t),
        ("source", c_void_p),
        ("from_stride", c_size_t),
        ("from_pages", c_void_p),
        ("offset", c_size_t),
        ("to_stride", c_size_t),
        ("to_pages", c_void_p),
        ("npages", c_size_t),
        ("page_bytes", c_size_t),
        ("peer", c_int),
        ("region", c_int),
    ]


class MoeConfig(Structure):
    """sol_moe_config_t."""

    _fields_ = [
        ("size", c_size_t),
        ("max_tokens", c_size_t),
        ("hidden", c_size_t),
        ("top_k", c_int),
        ("experts", c_int),
        ("dtype", c_int),
        ("quant", c_int),
        ("layout", c_int),
        ("align", c_int),
    ]


class MoeInfo(Structure):
    """sol_moe_info_t."""

    _fields_ = [
        ("size", c_size_t),
        ("first_expert", c_int),
        ("local_experts", c_int),
        ("rows", c_size_t),
        ("rows_per_expert", c_size_t),
        ("scales_per_row", c_size_t),
        ("memory_bytes", c_size_t),
    ]


class MoeDispatchArgs(Structure):
    """sol_moe_dispatch_args_t."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_size_t),
        ("x", c_void_p),
        ("topk_idx", c_void_p),
        ("idx_dtype", c_int),
        ("topk_weights", c_void_p),
        ("recv_x", c_void_p),
        ("recv_scales", c_void_p),
        ("recv_weights", c_void_p),
        ("recv_counts", c_void_p),
        ("recv_offsets", c_void_p),
    ]


class MoeCombineArgs(Structure):
    """sol_moe_combine_args_t."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_size_t),
        ("y", c_void_p),
        ("weights", c_void_p),
        ("out", c_void_p),
    ]


def _path() -> str:
    """SOLCCL_LIBRARY, else the one in this package, else the one of the system."""
    named = os.environ.get("SOLCCL_LIBRARY")
    inside = Path(__file__).with_name("lib") / "libsolccl.so"
    return named or (str(inside) if inside.exists() else "libsolccl.so.0")


def _find() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(_path())
    except OSError as error:
        raise ImportError(f"solccl: its shared library could not be loaded: {error}") from error


lib = _find()


class _Symbol(Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p)]


def _loaded_from() -> Path | None:
    """The file that the loader took the library from, if it says so with a whole path."""
    found = _Symbol()
    try:
        told = ctypes.CDLL(None).dladdr(ctypes.cast(lib.sol_version, c_void_p), byref(found))
    except (OSError, AttributeError):
        return None
    path = Path(os.fsdecode(found.file)) if told and found.file else None
    return path if path is not None and path.is_absolute() else None


def _only_ours(path: Path) -> bool:
    """Nobody but this user and root can have put the file there: as with SOLCCL_NCCL_LIB."""
    for place in (path, *path.parents):
        about = place.stat()
        sticky = place != path and about.st_mode & stat.S_ISVTX
        if about.st_uid not in (0, os.geteuid()) or (about.st_mode & stat.S_IWOTH and not sticky):
            return False
    return True


def _fast_path() -> Path | None:
    """The extension beside the library (a build, the wheel), or in the folder of an installed one."""
    # A bare name is the loader's to find: "beside it" would be the working directory, anyone's file.
    beside = Path(_path()).with_name("_fast.abi3.so") if "/" in _path() else None
    if beside is not None and beside.exists():
        return beside.resolve()
    library = _loaded_from()
    try:
        installed = library.resolve().parent / "solccl" / "_fast.abi3.so" if library else None
        return installed.resolve(strict=True) if installed and _only_ours(installed.resolve()) else None
    except OSError:
        return None


def _find_fast() -> Any:
    """The extension of python/fast.c, or None: everything works without."""
    wanted = os.environ.get("SOLCCL_PYTHON_FAST", "1")
    if wanted not in ("0", "1"):
        raise ImportError(f"solccl: SOLCCL_PYTHON_FAST is {wanted!r}: expected 0 or 1")
    stable_abi = sys.version_info >= (3, 11) and ".abi3.so" in importlib.machinery.EXTENSION_SUFFIXES
    path = _fast_path() if wanted == "1" and stable_abi else None
    if path is None:
        return None
    loader = importlib.machinery.ExtensionFileLoader("solccl._fast", str(path))
    spec = importlib.util.spec_from_file_location("solccl._fast", loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
    except ImportError:  # (of another machine or libc)
        return None
    return module


fast = _find_fast()

_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "sol_version": (c_int, []),
    "sol_last_error": (c_char_p, [c_void_p]),
    "sol_status_string": (c_char_p, [c_int]),
    "sol_get_unique_id": (c_int, [POINTER(UniqueId)]),
    "sol_comm_create": (c_int, [POINTER(c_void_p), POINTER(UniqueId), c_int, c_int, POINTER(Config)]),
    "sol_comm_create_from_env": (c_int, [POINTER(c_void_p), POINTER(Config)]),
    "sol_comm_split": (c_int, [c_void_p, c_int, c_int, POINTER(c_void_p), POINTER(Config)]),
    "sol_comm_destroy": (c_int, [c_void_p]),
    "sol_comm_abort": (c_int, [c_void_p]),
    "sol_comm_sleep": (c_int, [c_void_p, c_int]),
    "sol_comm_wake": (c_int, [c_void_p]),
    "sol_comm_query": (c_int, [c_void_p, POINTER(Info)]),
    "sol_comm_async_error": (c_int, [c_void_p, POINTER(c_int)]),
    "sol_redop_create_premul_sum": (c_int, [POINTER(c_int), c_void_p, c_int, c_int, c_void_p]),
    "sol_redop_destroy": (c_int, [c_int, c_void_p]),
    "sol_mem_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "sol_mem_free": (c_int, [c_void_p, c_void_p]),
    "sol_all_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_all_reduce_norm": (c_int, [POINTER(NormArgs), c_void_p, c_void_p]),
    "sol_norm_create": (c_int, [POINTER(c_void_p), POINTER(NormConfig), c_void_p]),
    "sol_norm_destroy": (c_int, [c_void_p]),
    "sol_norm_start": (c_int, [c_void_p, POINTER(NormArgs), c_void_p]),
    "sol_norm_wait": (c_int, [c_void_p, POINTER(NormArgs), c_void_p]),
    "sol_linear_all_reduce": (c_int, [POINTER(LinearArgs), c_void_p, c_void_p]),
    "sol_vocab_topk": (c_int, [POINTER(VocabArgs), c_void_p, c_void_p]),
    "sol_moe_create": (c_int, [POINTER(c_void_p), POINTER(MoeConfig), c_void_p]),
    "sol_moe_destroy": (c_int, [c_void_p]),
    "sol_moe_query": (c_int, [c_void_p, POINTER(MoeInfo)]),
    "sol_moe_dispatch": (c_int, [c_void_p, POINTER(MoeDispatchArgs), c_void_p]),
    "sol_moe_dispatch_send": (c_int, [c_void_p, POINTER(MoeDispatchArgs), c_void_p]),
    "sol_moe_dispatch_recv": (c_int, [c_void_p, POINTER(MoeDispatchArgs), c_void_p]),
    "sol_moe_combine": (c_int, [c_void_p, POINTER(MoeCombineArgs), c_void_p]),
    "sol_moe_combine_send": (c_int, [c_void_p, POINTER(MoeCombineArgs), c_void_p]),
    "sol_moe_combine_recv": (c_int, [c_void_p, POINTER(MoeCombineArgs), c_void_p]),
    "sol_all_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "sol_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p]),
    "sol_all_to_all": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "sol_all_to_all_v": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p],
    ),
    "sol_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_barrier": (c_int, [c_void_p, c_void_p]),
    "sol_send": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_recv": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_group_start": (c_int, []),
    "sol_group_end": (c_int, []),
    "sol_all_reduce_quantized": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p],
    ),
    "sol_transfer_create": (c_int, [c_void_p, POINTER(TransferConfig), POINTER(c_void_p)]),
    "sol_transfer_destroy": (c_int, [c_void_p]),
    "sol_transfer_write": (c_int, [POINTER(Write), c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_transfer_write_pages": (c_int, [POINTER(Pages), c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "sol_transfer_await": (c_int, [c_void_p, c_int, c_int, c_uint64, c_void_p]),
    "sol_transfer_wait": (c_int, [c_void_p, c_int, c_int, c_uint64, c_int]),
    "sol_transfer_count": (c_int, [c_void_p, c_int, c_int, POINTER(c_uint64)]),
    "sol_explain": (c_int, [c_void_p, c_int, c_size_t, c_int, c_int, c_char_p, c_size_t]),
    "sol_machine_info": (c_int, [c_char_p, c_size_t]),
}
for _name, (_result, _arguments) in _SIGNATURES.items():
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments


def failure(status: int, comm: int | None = None) -> Error:
    """The exception for a status, with the text of the failure that just happened."""
    text = lib.sol_last_error(comm) if comm else b""
    text = text or lib.sol_last_error(None) or lib.sol_status_string(status)
    kind = _ERRORS.get(status, Error)
    return kind(text.decode(errors="replace"), status)


def check(status: int, comm: int | None = None) -> None:
    """Raise what a status stands for, if it is a failure."""
    if status != 0:
        raise failure(status, comm)


def unique_id() -> bytes:
    """An id for one new communicator, 128 bytes: made by one rank, carried to the others."""
    made = UniqueId()
    check(lib.sol_get_unique_id(byref(made)))
    return bytes(made)


def version() -> str:
    """Version of the shared library, "0.1.0"."""
    number = lib.sol_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def machine_info() -> dict[str, str]:
    """What this machine offers: CPUs, GPUs, links, and which backends can be used."""
    text = ctypes.create_string_buffer(16384)
    check(lib.sol_machine_info(text, len(text)))
    lines = text.value.decode(errors="replace").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)
