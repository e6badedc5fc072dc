# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="override,assignment,call-arg,call-overload,attr-defined"
# (PyTorch's stubs leave out constructors and attributes that its classes have)
"""The torch.distributed backend "solccl", for CPU and CUDA tensors.

A process group has a communicator for each kind of device, made when the first
tensor of that kind comes (or by `connect`, which is needed if that would be in a
graph capture). As with NCCL, a call that is not asynchronous runs on the
current stream; an asynchronous one of SOLCCL_TORCH_ASYNC_BYTES (256 KB) or more
on a stream of the group's, so that it can overlap with what follows; a smaller
one on the current stream too, which is done sooner than two streams have
waited for each other.

Sends and receives are collected and done as one group, when somebody waits for
one of them or the group's next call comes: so they cannot wait for each
other, and need no thread. There is no watchdog thread; the library's own waits
are bounded by the group's timeout and end with an exception.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .._communicator import OPS, Communicator, PremulSum, group

_ASYNC_BYTES = int(os.environ.get("SOLCCL_TORCH_ASYNC_BYTES", 256 * 1024))
_OPS = {
    dist.ReduceOp.SUM: OPS["sum"],
    dist.ReduceOp.PRODUCT: OPS["prod"],
    dist.ReduceOp.MIN: OPS["min"],
    dist.ReduceOp.MAX: OPS["max"],
    dist.ReduceOp.AVG: OPS["avg"],
}
_SUM = dist.ReduceOp.SUM
_OPS_BY_NUMBER = {int(kind): code for kind, code in _OPS.items()}  # (their hash costs 2 us)
_BOOL_OPS = {OPS["sum"]: OPS["max"], OPS["prod"]: OPS["min"]}
_COPIED_AS_BYTES = {torch.int16, torch.complex32, torch.complex64, torch.complex128, torch.uint16}
_COPIED_AS_BYTES |= {getattr(torch, n) for n in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")}


class Work(dist.Work):
    """A call: on CPU ranks done, on GPU ranks enqueued, when it is made."""

    def __init__(self, tensors: Sequence[torch.Tensor] = (), event: Any = None) -> None:
        super().__init__()
        self._tensors = tensors
        self._event = event  # on the group's stream; None: on the caller's, or done

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """What this thread enqueues from now on comes after the call. Blocks on CPU ranks alone."""
        if self._event is not None:
            torch.cuda.current_stream(self._event.device).wait_event(self._event)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._event is None or self._event.query()

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return list(self._tensors)

    def get_future(self) -> torch.futures.Future:
        """Done at once; on GPU ranks whoever takes its value is put behind the call."""
        self.wait()
        devices: list[int | str | torch.device] = sorted({t.device for t in self._tensors if t.is_cuda}, key=str)
        future: torch.futures.Future = torch.futures.Future(devices=devices)
        future.set_result(list(self._tensors))
        return future


_DONE = Work()  # of calls that nobody wants to ask about


class _Message(Work):
    """A send or receive that has not been done yet, perhaps."""

    def __init__(self, owner: ProcessGroup, tensor: torch.Tensor, peer: int) -> None:
        super().__init__([tensor])
        self._owner = owner
        self._peer = peer

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self._owner._flush()
        return super().wait(timeout)

    synchronize = wait

    def is_completed(self) -> bool:
        self._owner._flush()
        return super().is_completed()

    def _source_rank(self) -> int:
        return self._peer

    source_rank = _source_rank


def _raw(x: torch.Tensor) -> torch.Tensor:
    """As a type that the library can copy."""
    return x.reshape(-1).view(torch.uint8) if x.dtype in _COPIED_AS_BYTES else x


class _Staged:
    """Contiguous stand-ins for tensors that are not; results go back when the calls are made."""

    def __init__(self) -> None:
        self._back: list[tuple[torch.Tensor, torch.Tensor]] = []

    def out(self, x: torch.Tensor, read: bool = False) -> torch.Tensor:
        if x.is_contiguous():
            return x
        y = x.contiguous() if read else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self._back.append((x, y))
        return y

    def finish(self) -> None:
        for x, y in self._back:
            x.copy_(y)


class ProcessGroup(dist.ProcessGroup):
    """One group of torch.distributed. Made by init_process_group and new_group."""

    # what torch.distributed asks a backend for
    supports_splitting = False
    supports_coalescing = False
    supports_shrinking = False
    supports_time_estimate = False
    supports_tensor_alloc = False

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._name = self._description = ""
        self._kv = store
        self._timeout = timeout
        self._comms: dict[str, Communicator] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._messages: list[tuple[str, torch.Tensor, int]] = []
        self._works: list[_Message] = []
        self._premuls: dict[tuple[str, torch.dtype, float], PremulSum] = {}

    # --------------------------------------------------------------- the machinery

    def getBackendName(self) -> str:  # noqa: N802: PyTorch's name
        return "solccl"

    def _get_backend_name(self) -> str:
        return "solccl"

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    # (PyTorch keeps both in a group's C++ backends, of which there are none)
    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def comm(self, device: torch.device) -> Communicator:
        """The communicator for tensors of this device; collective when it is the first one's."""
        comm = self._comms.get(device.type)
        if comm is None:
            kind = device.type
            if kind not in ("cpu", "cuda"):
                raise ValueError(f"the solccl backend has no ranks for {kind} tensors")
            if kind == "cuda":
                torch.cuda.set_device(device)
                torch.cuda.current_stream(device)  # (initialises PyTorch's side)
            seconds = self._timeout.total_seconds()
            comm = Communicator.from_store(
                self._kv, self.size(), self.rank(), kind, key=f"solccl/{kind}", timeout=seconds, name="torch"
            )
            self._comms[kind] = comm
        return comm

    def _run(
        self,
        tensors: Sequence[torch.Tensor],
        asynchronous: bool,
        call: Callable[[Communicator, Any], None],
        result: Sequence[torch.Tensor] | None = None,
    ) -> Work:
        """`call(communicator, stream)` for tensors that are all of one device."""
        if self._messages:
            self._flush()
        first = tensors[0]
        comm = self.comm(first.device)
        result = tensors if result is None else result
        if not first.is_cuda:
            call(comm, None)
            return Work(result)
        if not asynchronous or sum(t.nbytes for t in tensors) < _ASYNC_BYTES:
            call(comm, None)
            return Work(result)
        device = first.device
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            call(comm, stream)
            event = stream.record_event()
        for t in tensors:
            t.record_stream(stream)
        return Work(result, event)

    def _op(self, op: Any, x: torch.Tensor) -> int | PremulSum:
        kind = op.op if isinstance(op, dist.ReduceOp) else op
        code = _OPS.get(kind)
        if code is not None:
            return _BOOL_OPS.get(code, code) if x.dtype == torch.bool else code
        if kind == dist.ReduceOp.PREMUL_SUM:
            factor = float(op.__getstate__()[1])
            key = (x.device.type, x.dtype, factor)
            if key not in self._premuls:
                self._premuls[key] = self.comm(x.device).premul_sum(factor, x.dtype)
            return self._premuls[key]
        raise ValueError(f"the solccl backend has no reduction {kind}")

    def _async(self, opts: Any) -> bool:
        return getattr(opts, "asyncOp", True)

    # ------------------------------------------------------------------ collectives
    # Shapes and rules are torch.distributed's; names and arguments those that it calls.

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        x = tensors[0]
        cuda = x.is_cuda
        comm = self._comms.get("cuda" if cuda else "cpu" if x.is_cpu else "")
        if comm is not None and len(tensors) == 1 and opts is not None and not self._messages:
            # The case that counts, without detours: on the current stream.
            op = opts.reduceOp  # (a new object each time; every look at it costs as much as a call)
            code = 0 if op == _SUM else _OPS_BY_NUMBER.get(int(op.op))
            asynchronous = opts.asyncOp
            here = not asynchronous or not cuda or x.nbytes < _ASYNC_BYTES
            if code is not None and here and x.dtype != torch.bool and x.is_contiguous():
                comm.all_reduce(x, x, code)
                return Work(tensors) if asynchronous else _DONE
        reduce_op = dist.ReduceOp.SUM if opts is None else opts.reduceOp

        def call(comm: Communicator, stream: Any) -> None:
            for x in tensors:
                staged = _Staged()
                y = staged.out(x, read=True)
                comm.all_reduce(y, y, self._op(reduce_op, x), stream)
                staged.finish()

        return self._run(tensors, self._async(opts), call)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        root = 0 if opts is None else opts.rootRank

        def call(comm: Communicator, stream: Any) -> None:
            for x in tensors:
                staged = _Staged()
                comm.broadcast(_raw(staged.out(x, read=True)), root, stream)
                staged.finish()

        return self._run(tensors, self._async(opts), call)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            for x in tensors:
                staged = _Staged()
                y = staged.out(x, read=True)
                comm.reduce(y, opts.rootRank, y, self._op(opts.reduceOp, x), stream)
                if self.rank() == opts.rootRank:
                    staged.finish()

        return self._run(tensors, self._async(opts), call)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            for out, x in zip(outputs, inputs):
                staged = _Staged()
                comm.all_gather(_raw(x.contiguous()), _raw(staged.out(out)), stream)
                staged.finish()

        return self._run([*outputs, *inputs], self._async(opts), call, outputs)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            for outs, x in zip(outputs, inputs):
                if any(o.numel() != x.numel() for o in outs):
                    self._gather_uneven(comm, outs, x, stream)
                    continue
                gathered = torch.empty((self.size(), *x.shape), dtype=x.dtype, device=x.device)
                comm.all_gather(_raw(x.contiguous()), _raw(gathered), stream)
                for r, out in enumerate(outs):
                    out.copy_(gathered[r].view_as(out))

        flat = [o for outs in outputs for o in outs]
        return self._run([*inputs, *flat], self._async(opts), call, flat)

    def _gather_uneven(
        self, comm: Communicator, outs: list[torch.Tensor], x: torch.Tensor, stream: Any
    ) -> None:
        """Ranks' tensors differ in size: one broadcast each."""
        for r, out in enumerate(outs):
            staged = _Staged()
            y = staged.out(out)
            if r == self.rank():
                y.copy_(x.view_as(y))
            comm.broadcast(_raw(y), r, stream)
            staged.finish()

    def allgather_coalesced(
        self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        per_input = [[outs[i] for outs in output_lists] for i in range(len(inputs))]
        return self.allgather(per_input, inputs, opts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        x = inputs[0]
        here = self.rank() == opts.rootRank
        outs = outputs[0] if here and outputs else []

        def call(comm: Communicator, stream: Any) -> None:
            gathered = torch.empty((self.size(), *x.shape), dtype=x.dtype, device=x.device) if here else None
            comm.gather(_raw(x.contiguous()), opts.rootRank, None if gathered is None else _raw(gathered), stream)
            for r, out in enumerate(outs if gathered is not None else []):
                out.copy_(gathered[r].view_as(out))  # type: ignore[index]

        return self._run([x, *outs], self._async(opts), call, outs)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        here = self.rank() == opts.rootRank

        def call(comm: Communicator, stream: Any) -> None:
            staged = _Staged()
            comm.gather(_raw(input.contiguous()), opts.rootRank, _raw(staged.out(output)) if here else None, stream)
            if here:
                staged.finish()

        return self._run([input, output] if here else [input], self._async(opts), call, [output] if here else [])

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        out = outputs[0]
        blocks = inputs[0] if self.rank() == opts.rootRank and inputs else []

        def call(comm: Communicator, stream: Any) -> None:
            staged = _Staged()
            send = torch.stack([b.contiguous() for b in blocks]) if blocks else None
            comm.scatter(None if send is None else _raw(send), opts.rootRank, _raw(staged.out(out)), stream)
            staged.finish()

        return self._run([out, *blocks], self._async(opts), call, [out])

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            for out, x in zip(outputs, inputs):
                staged = _Staged()
                comm.reduce_scatter(x.contiguous(), staged.out(out), self._op(opts.reduceOp, x), stream)
                staged.finish()

        return self._run([*outputs, *inputs], self._async(opts), call, outputs)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            for out, blocks in zip(outputs, inputs):
                staged = _Staged()
                if any(b.numel() != out.numel() for b in blocks):
                    self._reduce_uneven(comm, out, blocks, opts, stream)
                    continue
                send = torch.stack([b.contiguous() for b in blocks])
                comm.reduce_scatter(send, staged.out(out), self._op(opts.reduceOp, out), stream)
                staged.finish()

        flat = [b for blocks in inputs for b in blocks]
        return self._run([*outputs, *flat], self._async(opts), call, outputs)

    def _reduce_uneven(
        self, comm: Communicator, out: torch.Tensor, blocks: list[torch.Tensor], opts: Any, stream: Any
    ) -> None:
        """Ranks' blocks differ in size: one reduction each."""
        for r, block in enumerate(blocks):
            staged = _Staged()
            y = staged.out(out) if r == self.rank() else None
            comm.reduce(block.contiguous(), r, y, self._op(opts.reduceOp, block), stream)
            staged.finish()

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            staged = _Staged()
            out, x = staged.out(output), input.contiguous()
            if not output_splits and not input_splits:
                comm.all_to_all(_flat(x), _flat(out), stream)
            else:
                out_raw, x_raw = _flat(out), _flat(x)
                recv = _elements(out, out_raw, output_splits, self.size())
                send = _elements(x, x_raw, input_splits, self.size())
                comm.all_to_all_v(x_raw, send, out_raw, recv, stream)
            staged.finish()

        return self._run([output, input], self._async(opts), call, [output])

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        def call(comm: Communicator, stream: Any) -> None:
            send = torch.cat([_flat(x.contiguous()) for x in inputs])
            recv = torch.empty(sum(_flat(o.contiguous()).numel() for o in outputs), dtype=send.dtype,
                               device=send.device)
            recvcounts = [o.nbytes // recv.element_size() for o in outputs]
            comm.all_to_all_v(send, [x.nbytes // send.element_size() for x in inputs], recv, recvcounts, stream)
            for out, part in zip(outputs, recv.split(recvcounts)):
                out.copy_(part.view(out.dtype).view_as(out))

        return self._run([*outputs, *inputs], self._async(opts), call, outputs)

    # The same by the names that torch.distributed calls from PyTorch 2.15 on.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single

    def barrier(self, opts: Any = None) -> Work:
        """All ranks' hosts have come, and the work that was on their current streams is done."""
        self._flush()
        cuda = self._comms.get("cuda")
        if cuda is None:
            self.comm(torch.device("cpu")).barrier()
            return Work()
        cuda.barrier()
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream(cuda.device).synchronize()
            cuda.raise_async_error()
        return Work()

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.barrier()

    # -------------------------------------------------------------- point to point

    def _message(self, what: str, tensors: list[torch.Tensor], peer: int, tag: int) -> Work:
        if tag != 0:
            raise ValueError(f"the solccl backend keeps messages of a pair in order: tag is {tag}, not 0")
        work = _Message(self, tensors[0], peer)
        self._messages.append((what, tensors[0], peer))
        return work

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        return self._message("send", tensors, peer, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        return self._message("recv", tensors, peer, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        raise ValueError("the solccl backend receives from a rank that is named")

    def _flush(self) -> None:
        """All messages so far, as one group."""
        messages, self._messages = self._messages, []
        if not messages:
            return
        staged = _Staged()
        with group():
            for what, x, peer in messages:
                comm = self.comm(x.device)
                if what == "send":
                    comm.send(_raw(x.contiguous()), peer)
                else:
                    comm.recv(_raw(staged.out(x)), peer)
        staged.finish()

    # ---------------------------------------------------------------------- the end

    def abort(self) -> None:
        """End all waits of all ranks; they raise AbortedError."""
        for comm in self._comms.values():
            comm.abort()

    def shutdown(self) -> None:
        """Leave. Local: no other rank is waited for."""
        self._premuls.clear()
        self._messages.clear()
        comms, self._comms = self._comms, {}
        for comm in comms.values():
            comm.close()


def _flat(x: torch.Tensor) -> torch.Tensor:
    return _raw(x).reshape(-1)


def _elements(x: torch.Tensor, flat: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    """Rows of each rank as elements of the flat view."""
    rows = list(splits) if splits else [x.shape[0] // size] * size
    row = flat.numel() // x.shape[0] if x.shape[0] > 0 else 0
    return [n * row for n in rows]


def connect(group: dist.ProcessGroup | None = None, device: torch.device | str | None = None) -> None:
    """Make a group's communicator for `device` now (by default the current CUDA device, or the CPU
    without one), so that the first collective may be in a graph capture. Collective."""
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    if not isinstance(chosen, ProcessGroup):
        raise TypeError("the group's backend is not solccl")
    if device is None:
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    chosen.comm(torch.device(device))


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    return ProcessGroup(store, rank, size, timeout)


def register() -> None:
    """Make the backend known to torch.distributed. Done by `import solccl.torch`; twice is fine."""
    if "SOLCCL" not in dist.Backend._plugins:
        dist.Backend.register_backend("solccl", _create, devices=["cpu", "cuda"])
