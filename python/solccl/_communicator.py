# SPDX-License-Identifier: Apache-2.0
"""Communicators: a numbered set of ranks, and what they do together."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p, sizeof
from typing import Any

from . import _arrays
from ._arrays import Buffer, buffer_of, dtype_code, dtype_name, itemsize, like, shape_of, stream_of
from ._library import (Config, Info, LinearArgs, NormArgs, StateError, UniqueId, VocabArgs, check, failure, fast,
                       lib, unique_id)
from ._transfer import Transfer

BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}
FUNCTIONS = {
    "all_reduce": 0,
    "all_gather": 1,
    "reduce_scatter": 2,
    "broadcast": 3,
    "reduce": 4,
    "all_to_all": 5,
    "gather": 7,
    "scatter": 8,
    "send": 9,
    "recv": 10,
    "barrier": 11,
}

# A communicator's number is its for good, and known from the start: an operator's arguments are
# tensors and numbers, and nothing may change while torch.compile looks on.
_numbers = itertools.count()
_numbered: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()

_all_reduce = lib.sol_all_reduce


def _not_plain(*_: Any) -> None:
    """In place of the extension's functions where there is none."""


_FAST = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
if fast is not None:
    fast.bind(OPS, *(ctypes.cast(getattr(lib, f"sol_{name}"), c_void_p).value for name in _FAST))
_fast_all_reduce, _fast_all_gather, _fast_reduce_scatter, _fast_broadcast, _fast_all_to_all = (
    getattr(fast, name, _not_plain) for name in _FAST
)
_open = threading.local()  # .keep: buffers of this thread's open group, used until its end


@contextmanager
def group() -> Iterator[None]:
    """Calls of this thread in the `with` block, on any number of communicators, are done together at
    its end, so that sends and receives cannot wait for each other. Results are there afterwards. If
    the block raises, nothing of it is done. Groups nest."""
    check(lib.sol_group_start())
    outer = getattr(_open, "keep", None)
    _open.keep = [] if outer is None else outer
    try:
        yield
    except BaseException:
        lib.sol_barrier(None, None)  # wrong for certain: makes the library drop the group
        lib.sol_group_end()
        raise
    else:
        check(lib.sol_group_end())
    finally:
        if outer is None:
            del _open.keep


# How struct packs a scalar of each type; bfloat16 is the rounded upper half of a float32.
_SCALARS = {0: "b", 1: "B", 2: "i", 3: "I", 4: "q", 5: "Q", 6: "e", 8: "f", 9: "d"}


def _scalar_bytes(value: float, code: int) -> bytes:
    if code == 7:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if code not in _SCALARS:
        raise TypeError("premul_sum takes no scalar of an 8-bit floating-point type")
    return struct.pack("<" + _SCALARS[code], value)


class PremulSum:
    """A sum to which this rank's contribution is multiplied first; of `Communicator.premul_sum`."""

    def __init__(self, comm: Communicator, op: int) -> None:
        self._comm = comm
        self.op = op

    def __del__(self) -> None:
        if self._comm._handle is not None and self._comm._pid == os.getpid():
            lib.sol_redop_destroy(self.op, self._comm._handle)


def _int(value: int, what: str) -> int:
    """What fits a C int: ctypes would cut off the rest, and another rank or operation be meant."""
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError(f"{what} is {value}: out of range")
    return value


def _op_of(op: str | int | PremulSum) -> int:
    if isinstance(op, str):
        if op not in OPS:
            raise ValueError(f"op is {op!r}: expected one of {', '.join(OPS)}")
        return OPS[op]
    return op.op if isinstance(op, PremulSum) else _int(int(op), "op")


class Communicator:
    """A set of ranks, 0 to size - 1, as one of them sees it.

    Made by `from_env`, `from_id`, `from_store`, `from_mpi`, or `split`. All ranks
    call the same collectives in the same order. On CPU ranks a call returns when
    this rank's part is done; on GPU ranks it is ordered on a stream (by default
    PyTorch's current one) and returns before it is done; it can be captured in a
    CUDA graph.

    Arrays are NumPy arrays, PyTorch tensors, or anything with DLPack, the CUDA
    array interface or the buffer protocol; contiguous. Counts and types must be
    equal on all ranks.

    One thread at a time, except for `abort`. A communicator that is collected as
    garbage is left: no other rank is waited for. In a forked child it belongs to
    the parent, and calls raise StateError.
    """

    __slots__ = ("_handle", "_pid", "_blocking", "_memories", "_left", "_late", "_closed", "_index", "rank",
                 "size", "backend", "device", "__weakref__")

    def __init__(self, handle: int) -> None:
        """Takes a sol_comm_t over. Use the class methods."""
        info = Info(size=ctypes.sizeof(Info))
        check(lib.sol_comm_query(handle, byref(info)))
        self._handle: int | None = handle
        self._pid = os.getpid()
        self._blocking = info.backend == BACKENDS["cpu"]
        self._memories = 0  # of `empty`, in use
        # NormHalves that were collected while a GPU may have used them, with what they kept: theirs
        # until the end, since sol_comm_destroy waits for the last kernel, or until a sleep.
        self._left: list[tuple[int, Any]] = []
        self._late: list[tuple[Any, tuple[Any, ...]]] = []  # of _give_back
        self._closed = False
        self._index = next(_numbers)
        _numbered[self._index] = self
        self.rank = info.rank
        self.size = info.nranks
        self.backend = "cpu" if self._blocking else "cuda"
        self.device = info.device

    # ------------------------------------------------------------------ making

    @staticmethod
    def _config(backend: str, timeout: float | None, name: str | None, verify: bool) -> Config:
        if backend not in BACKENDS:
            raise ValueError(f"backend is {backend!r}: expected one of {', '.join(BACKENDS)}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}: expected more than 0 seconds")
        return Config(
            size=ctypes.sizeof(Config),
            backend=BACKENDS[backend],
            timeout_ms=0 if timeout is None else max(1, int(min(timeout, 86400) * 1000)),
            check=int(verify),
            name=name.encode() if name else None,
        )

    @classmethod
    def from_env(
        cls,
        backend: str = "auto",
        *,
        timeout: float | None = None,
        name: str | None = None,
        verify: bool = False,
    ) -> Communicator:
        """Join the communicator that the launcher describes (`solccl run`, torchrun, Open MPI,
        MPICH, Slurm); one rank without a launcher. The k-th call in each process makes the k-th.

        backend: "cpu", "cuda" (this thread's current device), or "auto": CUDA if it is in use.
        timeout: seconds that a wait may last. verify: compare calls on GPU ranks too.
        """
        handle = c_void_p()
        config = cls._config(backend, timeout, name, verify)
        check(lib.sol_comm_create_from_env(byref(handle), byref(config)))
        return cls(handle.value or 0)

    @classmethod
    def from_id(
        cls,
        id: bytes,
        size: int,
        rank: int,
        backend: str = "auto",
        *,
        timeout: float | None = None,
        name: str | None = None,
        verify: bool = False,
    ) -> Communicator:
        """Join the communicator named by `id`, the 128 bytes of `solccl.unique_id()` on one rank."""
        if len(id) != 128:
            raise ValueError(f"id has {len(id)} bytes: expected 128, as solccl.unique_id() gives")
        handle = c_void_p()
        config = cls._config(backend, timeout, name, verify)
        own = UniqueId.from_buffer_copy(id)
        _int(size, "size"), _int(rank, "rank")
        check(lib.sol_comm_create(byref(handle), byref(own), size, rank, byref(config)))
        return cls(handle.value or 0)

    @classmethod
    def from_store(
        cls, store: Any, size: int, rank: int, backend: str = "auto", *, key: str = "solccl", **options: Any
    ) -> Communicator:
        """Join by way of a key-value store with `set` and a `get` that waits (torch.distributed's
        stores are such). One key makes one communicator."""
        if rank == 0:
            store.set(key, unique_id())
        return cls.from_id(bytes(store.get(key)), size, rank, backend, **options)

    @classmethod
    def from_mpi(cls, comm: Any, backend: str = "auto", **options: Any) -> Communicator:
        """Join with the ranks of an mpi4py communicator, all of one host."""
        id = comm.bcast(unique_id() if comm.rank == 0 else None, root=0)
        return cls.from_id(id, comm.size, comm.rank, backend, **options)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divide: ranks of equal `color` form a communicator, ordered by (key, rank). Collective.
        `color` None: this rank joins none, and gets None."""
        handle = c_void_p()
        chosen = -1 if color is None else _int(color, "color")
        _int(key, "key")
        check(lib.sol_comm_split(self._h(), chosen, key, byref(handle), None), self._handle)
        return Communicator(handle.value) if handle.value else None

    # ----------------------------------------------------------- leaving, asking

    def _h(self) -> int:
        if self._handle is None or self._closed:
            raise ValueError("the communicator has been closed")
        return self._handle

    def close(self) -> None:
        """Leave. Local: waits for no other rank. Twice is fine. Arrays of `empty` stay valid: the
        last of them takes the communicator's memory with it."""
        self._closed = True
        if self._memories > 0:
            return
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid():
            check(lib.sol_comm_destroy(handle))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and self._pid == os.getpid():
            self._handle = None
            lib.sol_comm_destroy(handle)  # (whatever it says: nobody could be told)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else self.backend
        return f"<solccl.Communicator rank {self.rank} of {self.size}, {state}>"

    def _give_back(self, free: Any, *arguments: Any) -> int:
        """Objects are collected as garbage in any thread: a call of another one may be going on, and
        `free` be refused. Then it is done later."""
        status = int(free(*arguments))
        if status == StateError.status:
            self._late.append((free, arguments))
            return 0
        return status

    def _give_back_late(self) -> None:
        late, self._late = self._late, []
        for free, arguments in late:
            self._give_back(free, *arguments)

    def abort(self) -> None:
        """End all waits of all ranks, from any thread; they raise AbortedError."""
        check(lib.sol_comm_abort(self._h()), self._handle)

    def sleep(self, level: str = "keep") -> None:
        """Give back the memory behind the communicator and its `empty` arrays until `wake`; all
        addresses stay, so that captured graphs stay good. Collective; no array of `empty` may be
        used meanwhile. level: "keep" saves their contents in host memory, "discard" makes them
        zero. GPU work of the caller's on them must be complete on all ranks."""
        levels = {"keep": 1, "discard": 2}
        if level not in levels:
            raise ValueError(f'level is {level!r}: expected "keep" or "discard"')
        comm = self._h()
        self._give_back_late()
        while self._left:
            check(lib.sol_norm_destroy(self._left.pop()[0]), comm)
        check(lib.sol_comm_sleep(comm, levels[level]), self._handle)

    def wake(self) -> None:
        """Bring the memory back, at the same addresses. Collective. MemoryRefusedError leaves all
        ranks asleep: try again when there is memory."""
        check(lib.sol_comm_wake(self._h()), self._handle)

    @property
    def asleep(self) -> bool:
        """Between `sleep` and `wake`?"""
        info = Info(size=sizeof(Info))
        check(lib.sol_comm_query(self._h(), byref(info)), self._handle)
        return bool(info.asleep)

    def raise_async_error(self) -> None:
        """Raise the error that made the communicator unusable, if one did; never blocks."""
        status = c_int()
        check(lib.sol_comm_async_error(self._h(), byref(status)), self._handle)
        check(status.value, self._handle)

    def explain(self, function: str, count: int, dtype: Any = "float32", op: str = "sum") -> str:
        """Which protocol the plan takes for a call, with which resources, and why."""
        text = ctypes.create_string_buffer(2048)
        check(
            lib.sol_explain(self._h(), FUNCTIONS[function], count, dtype_code(dtype), _op_of(op), text, len(text)),
            self._handle,
        )
        return text.value.decode(errors="replace")

    # ------------------------------------------------------------------- calling

    def _stream(self, stream: Any, x: Any) -> int | None:
        return None if self._blocking else stream_of(stream, x)

    def _done(self, status: int, *buffers: Buffer) -> None:
        if status != 0:
            raise failure(status, self._handle)
        keep = getattr(_open, "keep", None)
        if keep is not None:
            keep.extend(buffers)

    @staticmethod
    def _fits(what: str, buffer: Buffer, count: int, dtype: int) -> None:
        if buffer[2] != dtype or buffer[1] != count:
            raise ValueError(
                f"{what} has {buffer[1]} elements of type {dtype_name(buffer[2])}: "
                f"expected {count} of type {dtype_name(dtype)}"
            )

    def _blocks(self, x: Any, what: str) -> tuple[int, ...]:
        """The shape of one of `size` blocks along the first dimension."""
        shape = tuple(x.shape)
        if not shape or shape[0] % self.size != 0:
            raise ValueError(f"{what} has shape {shape}: its first dimension must divide by {self.size}")
        return (shape[0] // self.size, *shape[1:])

    def all_reduce(self, x: Any, out: Any = None, op: str | int | PremulSum = "sum", stream: Any = None) -> Any:
        """The reduction of all ranks' `x` [...], on every rank.

        out: an array like `x`, may be `x` itself; a new one by default. Returns it.
        op: "sum", "prod", "min", "max", "avg", or of `premul_sum`. The bits of the
        result are equal on all ranks and depend on the contributions alone.
        """
        if out is None:
            out = like(x)
        if stream is None and not _open.__dict__ and not self._closed:
            status = _fast_all_reduce(self._handle, self.size, self._blocking, x, out, op)
            if status == 0:
                return out
            if status is not None:
                raise failure(status, self._handle)
        if out is x:
            send = recv = buffer_of(x, True)
        else:
            send, recv = buffer_of(x), buffer_of(out, True)
            if send[1] != recv[1] or send[2] != recv[2]:
                self._fits("out", recv, send[1], send[2])
        code = OPS.get(op)  # type: ignore[arg-type]
        status = _all_reduce(
            send[0],
            recv[0],
            send[1],
            send[2],
            _op_of(op) if code is None else code,
            self._handle if not self._closed else self._h(),
            None if self._blocking else stream_of(stream, x),
        )
        if status != 0 or _open.__dict__:
            self._done(status, send, recv)
        return out

    def all_reduce_quantized(
        self, x: Any, out: Any = None, wire: str = "int8", steps: int = 0, stream: Any = None
    ) -> Any:
        """The sum of all ranks' `x` [...] (float32, float16 or bfloat16), rounded to 8 bits an element
        on the wire: for large messages. wire: "int8" or "float8_e4m3fn", groups of 128 with a scale.

        The error is bounded (docs/quantized.md); the bits are equal on all ranks. steps: 1 or 2 hops;
        0: by size. out: may be `x` itself; a new array by default. Returns it.
        """
        out = like(x, tuple(x.shape)) if out is None else out
        send, recv = buffer_of(x, out is x), buffer_of(out, True)
        self._fits("out", recv, send[1], send[2])
        self._done(
            lib.sol_all_reduce_quantized(
                send[0], recv[0], send[1], send[2], dtype_code(wire), steps, self._h(), self._stream(stream, x)
            ),
            send,
            recv,
        )
        return out

    def all_reduce_rms_norm(
        self,
        x: Any,
        residual: Any,
        weight: Any,
        eps: float = 1e-6,
        weight_bias: float = 0.0,
        out: Any = None,
        residual_out: Any = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """The sum of all ranks' `x` [..., hidden] and `residual`, and its RMS norm: (out, residual_out).

        One kernel on GPU ranks. `x`, `residual` (equal on all ranks; None: zeros) and `weight`
        [hidden] are of one type: float32, float16 or bfloat16. `out` may be `x` and `residual_out`
        may be `residual`; new ones by default. weight_bias: added to the weights, 1 for models that
        store weight - 1. A row has the same bits on every rank and in every batch.
        """
        out = like(x) if out is None else out
        residual_out = like(x) if residual_out is None else residual_out
        send, recv = buffer_of(x, out is x), buffer_of(out, True)
        scale, after = buffer_of(weight), buffer_of(residual_out, True)
        before = None if residual is None else buffer_of(residual, residual is residual_out)
        hidden = int(x.shape[-1])
        self._fits("out", recv, send[1], send[2])
        self._fits("residual_out", after, send[1], send[2])
        self._fits("weight", scale, hidden, send[2])
        if before is not None:
            self._fits("residual", before, send[1], send[2])
        args = NormArgs(
            size=sizeof(NormArgs),
            tokens=send[1] // hidden if hidden else 0,
            hidden=hidden,
            dtype=send[2],
            input=send[0],
            residual=before and before[0],
            residual_out=after[0],
            weight=scale[0],
            weight_bias=weight_bias,
            epsilon=eps,
            output=recv[0],
            output_dtype=send[2],
        )
        self._done(lib.sol_all_reduce_norm(byref(args), self._h(), self._stream(stream, x)))
        return out, residual_out

    def tokens_of(self, tokens: int, rank: int | None = None) -> tuple[int, int]:
        """Of `tokens` in all, those that `rank` (this one) owns in calls that keep them in shards:
        from the first number up to the second."""
        r = self.rank if rank is None else rank
        return tokens * r // self.size, tokens * (r + 1) // self.size

    def reduce_scatter_rms_norm(
        self,
        x: Any,
        residual: Any,
        weight: Any,
        eps: float = 1e-6,
        weight_bias: float = 0.0,
        gather: bool = False,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """As all_reduce_rms_norm, of which each rank keeps its own tokens' rows, those of `tokens_of`.

        x: [tokens, hidden]. residual: own rows only, [mine, hidden], or None. Returns (out, new
        residual): new arrays of own rows, or, with `gather`, out of all rows: each is then normalised
        once, by its owner, and sent to the others. The bits are those of all_reduce_rms_norm.
        """
        send, scale = buffer_of(x), buffer_of(weight)
        tokens, hidden = (int(n) for n in x.shape)
        first, end = self.tokens_of(tokens)
        out = like(x, (tokens if gather else end - first, hidden))
        residual_out = like(x, (end - first, hidden))
        before = None if residual is None else buffer_of(residual)
        self._fits("weight", scale, hidden, send[2])
        if before is not None:
            self._fits("residual", before, (end - first) * hidden, send[2])
        args = NormArgs(
            size=sizeof(NormArgs),
            tokens=tokens,
            hidden=hidden,
            dtype=send[2],
            input=send[0],
            residual=before and before[0],
            residual_out=buffer_of(residual_out, True)[0],
            weight=scale[0],
            weight_bias=weight_bias,
            epsilon=eps,
            output=buffer_of(out, True)[0],
            output_dtype=send[2],
            form=1,
            shards=1 if gather else 3,
        )
        self._done(lib.sol_all_reduce_norm(byref(args), self._h(), self._stream(stream, x)))
        return out, residual_out

    def linear_all_reduce(self, x: Any, weight: Any, scales: Any = None, stream: Any = None) -> Any:
        """x [tokens, inputs] times `weight` [outputs, inputs], transposed, summed over the ranks, each of
        which holds some of the columns: a new array [tokens, outputs].

        x: bfloat16, at most 16 tokens. weight: bfloat16 or an 8-bit float; `scales` [outputs] (float32)
        multiply its rows. One kernel on GPU ranks. A token has the same bits in every batch.
        """
        send, rows = buffer_of(x), buffer_of(weight)
        tokens, inputs = (int(n) for n in x.shape)
        outputs = int(weight.shape[0])
        factors = None if scales is None else buffer_of(scales)
        out = like(x, (tokens, outputs))
        recv = buffer_of(out, True)
        self._fits("x", send, tokens * inputs, dtype_code("bfloat16"))
        self._fits("weight", rows, outputs * inputs, rows[2])
        if factors is not None:
            self._fits("scales", factors, outputs, dtype_code("float32"))
        args = LinearArgs(
            size=sizeof(LinearArgs),
            tokens=tokens,
            inputs=inputs,
            outputs=outputs,
            weight_dtype=rows[2],
            input=send[0],
            weight=rows[0],
            scales=factors and factors[0],
            output=recv[0],
        )
        self._done(lib.sol_linear_all_reduce(byref(args), self._h(), self._stream(stream, x)))
        return out

    def vocab_topk(
        self, logits: Any, k: int, first: int | None = None, log_sum_exp: bool = False, stream: Any = None
    ) -> tuple[Any, Any, Any]:
        """The k largest logits of each token, where each rank holds some columns of the vocabulary.

        logits: this rank's columns [..., columns], float32, float16 or bfloat16; ranks may hold
        unequal numbers. first: the index of its column 0; by default rank * columns, for equal
        shards. Returns values [..., k] (float32, descending), indices [..., k] (int64; of equal values
        the lowest first) and, if asked for on all ranks, the log of the sum of the exponentials of
        all logits [...] (float32; else None), with the same bits on all ranks. k: 0 to 128.
        """
        send = buffer_of(logits)
        *batch, columns = (int(n) for n in logits.shape)
        tokens = 1
        for n in batch:
            tokens *= n
        values, indices = like(logits, (*batch, k), "float32"), like(logits, (*batch, k), "int64")
        total = like(logits, tuple(batch), "float32") if log_sum_exp else None
        args = VocabArgs(
            size=sizeof(VocabArgs),
            tokens=tokens,
            columns=columns,
            first=self.rank * columns if first is None else first,
            dtype=send[2],
            k=k,
            logits=send[0],
            values=buffer_of(values, True)[0] if k else None,
            indices=buffer_of(indices, True)[0] if k else None,
            log_sum_exp=None if total is None else buffer_of(total, True)[0],
        )
        self._done(lib.sol_vocab_topk(byref(args), self._h(), self._stream(stream, logits)))
        return values, indices, total

    def vocab_argmax(self, logits: Any, first: int | None = None, stream: Any = None) -> Any:
        """The index of the largest logit of each token [...], int64: the lowest of equal ones."""
        return self.vocab_topk(logits, 1, first, stream=stream)[1][..., 0]

    def vocab_log_sum_exp(self, logits: Any, first: int | None = None, stream: Any = None) -> Any:
        """The log of the sum of the exponentials of each token's logits [...], float32."""
        return self.vocab_topk(logits, 0, first, True, stream)[2]

    def all_gather(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """Every rank's `x` [...], on every rank: out [size, ...]. In place: x is out[rank]."""
        out = like(x, (self.size, *shape_of(x))) if out is None else out
        if stream is None and not _open.__dict__ and not self._closed:
            status = _fast_all_gather(self._handle, self.size, self._blocking, x, out, 0)
            if status == 0:
                return out
            if status is not None:
                raise failure(status, self._handle)
        send, recv = buffer_of(x), buffer_of(out, True)
        self._fits("out", recv, send[1] * self.size, send[2])
        status = lib.sol_all_gather(
            send[0], recv[0], send[1], send[2], self._h(), self._stream(stream, x)
        )
        self._done(status, send, recv)
        return out

    def reduce_scatter(
        self, x: Any, out: Any = None, op: str | int | PremulSum = "sum", stream: Any = None
    ) -> Any:
        """Block `rank` of the reduction of all ranks' `x` [size * n, ...]: out [n, ...]."""
        out = like(x, self._blocks(x, "x")) if out is None else out
        if stream is None and not _open.__dict__ and not self._closed:
            status = _fast_reduce_scatter(self._handle, self.size, self._blocking, x, out, op)
            if status == 0:
                return out
            if status is not None:
                raise failure(status, self._handle)
        send, recv = buffer_of(x), buffer_of(out, True)
        self._fits("x", send, recv[1] * self.size, recv[2])
        status = lib.sol_reduce_scatter(
            send[0], recv[0], recv[1], recv[2], _op_of(op), self._h(), self._stream(stream, x)
        )
        self._done(status, send, recv)
        return out

    def broadcast(self, x: Any, root: int = 0, stream: Any = None) -> Any:
        """Root's `x` [...] into `x` on every rank. Returns it."""
        if stream is None and not _open.__dict__ and not self._closed:
            status = _fast_broadcast(self._handle, self.size, self._blocking, x, x, root)
            if status == 0:
                return x
            if status is not None:
                raise failure(status, self._handle)
        both = buffer_of(x, self.rank != root)
        status = lib.sol_broadcast(
            both[0], both[0], both[1], both[2], _int(root, "root"), self._h(), self._stream(stream, x)
        )
        self._done(status, both)
        return x

    def reduce(
        self, x: Any, root: int = 0, out: Any = None, op: str | int | PremulSum = "sum", stream: Any = None
    ) -> Any:
        """The reduction of all ranks' `x` [...] on root: out [...]. None elsewhere."""
        send = buffer_of(x)
        address, recv = None, send
        if self.rank == root:
            out = like(x) if out is None else out
            recv = buffer_of(out, True)
            self._fits("out", recv, send[1], send[2])
            address = recv[0]
        status = lib.sol_reduce(
            send[0], address, send[1], send[2], _op_of(op), _int(root, "root"), self._h(), self._stream(stream, x)
        )
        self._done(status, send, recv)
        return out if self.rank == root else None

    def all_to_all(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """Block p of rank r's `x` [size * n, ...] becomes block r of rank p's out, of equal shape."""
        if out is None:
            self._blocks(x, "x")
            out = like(x)
        if stream is None and not _open.__dict__ and not self._closed:
            status = _fast_all_to_all(self._handle, self.size, self._blocking, x, out, 0)
            if status == 0:
                return out
            if status is not None:
                raise failure(status, self._handle)
        self._blocks(x, "x")
        send, recv = buffer_of(x), buffer_of(out, True)
        self._fits("out", recv, send[1], send[2])
        status = lib.sol_all_to_all(
            send[0], recv[0], send[1] // self.size, send[2], self._h(), self._stream(stream, x)
        )
        self._done(status, send, recv)
        return out

    def all_to_all_v(
        self, x: Any, sendcounts: Sequence[int], out: Any, recvcounts: Sequence[int], stream: Any = None
    ) -> Any:
        """All-to-all with a number of elements for each pair: to rank p go the next sendcounts[p] of
        `x`, from rank p come recvcounts[p], in rank order, to `out`. Not in place."""
        send, recv = buffer_of(x), buffer_of(out, True)
        if len(sendcounts) != self.size or len(recvcounts) != self.size:
            raise ValueError(f"sendcounts and recvcounts need {self.size} entries each")
        if sum(sendcounts) > send[1] or sum(recvcounts) > recv[1] or send[2] != recv[2]:
            raise ValueError("the counts do not fit the arrays, or the arrays' types differ")
        array = c_size_t * self.size
        starts = [[sum(counts[:p]) for p in range(self.size)] for counts in (sendcounts, recvcounts)]
        status = lib.sol_all_to_all_v(
            send[0],
            array(*sendcounts),
            array(*starts[0]),
            recv[0],
            array(*recvcounts),
            array(*starts[1]),
            send[2],
            self._h(),
            self._stream(stream, x),
        )
        self._done(status, send, recv)
        return out

    def gather(self, x: Any, root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """Every rank's `x` [...] on root: out [size, ...]. None elsewhere."""
        send = buffer_of(x)
        address, recv = None, send
        if self.rank == root:
            out = like(x, (self.size, *shape_of(x))) if out is None else out
            recv = buffer_of(out, True)
            self._fits("out", recv, send[1] * self.size, send[2])
            address = recv[0]
        status = lib.sol_gather(
            send[0], address, send[1], send[2], _int(root, "root"), self._h(), self._stream(stream, x)
        )
        self._done(status, send, recv)
        return out if self.rank == root else None

    def scatter(self, x: Any, root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """Block r of root's `x` [size * n, ...] to rank r: out [n, ...]. `x` counts on root alone;
        elsewhere pass None and `out`."""
        address, send = None, None
        if self.rank == root:
            out = like(x, self._blocks(x, "x")) if out is None else out
            send = buffer_of(x)
            address = send[0]
        recv = buffer_of(out, True)
        if send is not None:
            self._fits("x", send, recv[1] * self.size, recv[2])
        status = lib.sol_scatter(
            address, recv[0], recv[1], recv[2], _int(root, "root"), self._h(), self._stream(stream, out)
        )
        self._done(status, recv, *([send] if send is not None else []))
        return out

    def send(self, x: Any, peer: int, stream: Any = None) -> None:
        """`x` [...] to `peer`, which receives as much. May block until it does: see `group`."""
        buffer = buffer_of(x)
        status = lib.sol_send(
            buffer[0], buffer[1], buffer[2], _int(peer, "peer"), self._h(), self._stream(stream, x)
        )
        self._done(status, buffer)

    def recv(self, out: Any, peer: int, stream: Any = None) -> Any:
        """What `peer` sends, into `out` [...]. Returns it."""
        buffer = buffer_of(out, True)
        status = lib.sol_recv(
            buffer[0], buffer[1], buffer[2], _int(peer, "peer"), self._h(), self._stream(stream, out)
        )
        self._done(status, buffer)
        return out

    def barrier(self, stream: Any = None) -> None:
        """Nobody leaves before everybody has come (on GPU ranks: on the stream)."""
        self._done(lib.sol_barrier(self._h(), self._stream(stream, None)))

    # -------------------------------------------------------------------- memory

    def premul_sum(self, scalar: float, dtype: Any) -> PremulSum:
        """An operation: this rank's contribution is multiplied by `scalar`, rounded to `dtype` (any
        but the 8-bit floats), and then summed. For `op` of all_reduce, reduce_scatter and reduce."""
        code = dtype_code(dtype)
        op = c_int()
        scalar_bytes = ctypes.create_string_buffer(_scalar_bytes(scalar, code), 8)
        check(lib.sol_redop_create_premul_sum(byref(op), scalar_bytes, code, 0, self._h()), self._handle)
        return PremulSum(self, op.value)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """A zeroed array [shape] of symmetric memory, which every rank can reach: large operations
        on it need one copy fewer. Collective: all ranks ask for as many bytes. A NumPy array on CPU
        ranks, a PyTorch tensor on GPU ranks (or a NumPy-like CuPy array where PyTorch is not there).
        The memory is freed with the last array that uses it; it keeps the communicator open."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        code = dtype_code(dtype)
        if any(n < 0 for n in shape):
            raise ValueError(f"shape is {shape}: expected no negative number")
        count = _arrays._product(shape)
        memory = c_void_p()
        comm = self._h()
        self._give_back_late()
        check(lib.sol_mem_alloc(comm, count * itemsize(code), byref(memory)), self._handle)
        owner = _Symmetric(self, memory.value or 0, count * itemsize(code))
        return owner.array(shape, dtype, code)


    def transfer(self, regions: Sequence[Any], counters: int = 16) -> Transfer:
        """For one-sided writes: `regions` are arrays of this rank's that the others may write to (as
        many on every rank; GPU ranks: of `empty`). Collective."""
        return Transfer(self, regions, counters)


class _Symmetric:
    """One allocation, freed when no array uses it any more."""

    def __init__(self, comm: Communicator, address: int, bytes: int) -> None:
        self.comm, self.address, self.bytes = comm, address, bytes
        comm._memories += 1

    def __del__(self) -> None:
        comm = self.comm
        comm._memories -= 1
        if comm._handle is None or comm._pid != os.getpid():
            return
        if self.address:
            comm._give_back(lib.sol_mem_free, comm._handle, self.address)
        if comm._closed and comm._memories == 0:
            handle, comm._handle = comm._handle, None
            lib.sol_comm_destroy(handle)

    def array(self, shape: tuple[int, ...], dtype: Any, code: int) -> Any:
        if self.comm._blocking:
            import numpy

            raw = (ctypes.c_ubyte * self.bytes).from_address(self.address)
            raw._owner = self  # type: ignore[attr-defined]
            name = next(n for n, (c, _) in _arrays.DTYPES.items() if c == code)
            try:
                kind = numpy.dtype(name)
            except TypeError:  # bfloat16 and the 8-bit floats: where ml_dtypes is installed
                kind = numpy.dtype(dtype)
            return numpy.frombuffer(raw, dtype=kind).reshape(shape)  # type: ignore[call-overload]
        self.__cuda_array_interface__ = {
            "shape": (self.bytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }
        if "torch" in sys.modules or "cupy" not in sys.modules:
            import torch

            name = next(n for n, (c, _) in _arrays.DTYPES.items() if c == code)
            flat = torch.as_tensor(self, device=f"cuda:{self.comm.device}")
            return flat.view(getattr(torch, name)).reshape(shape)
        import cupy  # type: ignore[import-not-found]

        return cupy.asarray(self).view(dtype).reshape(shape)
