# SPDX-License-Identifier: Apache-2.0
"""The extension (python/fast.c) on GPU ranks: both ranks of a communicator in this process, on one GPU.

    python3 fast_cuda.py

What is plain must go its way, on the current stream, all else must not; results are PyTorch's own on the
CPU. Each case enqueues rank 0's part, then rank 1's, then waits; a wait of the GPU is bounded by 20 s.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback

import torch

import solccl
from solccl._library import fast

assert fast is not None, "the extension is not there"
torch.cuda.set_device(0)
STREAMS = [torch.cuda.Stream() for _ in range(2)]
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8")


def two_ranks():
    id, made = solccl.unique_id(), [None, None]

    def join(rank):
        torch.cuda.set_device(0)
        made[rank] = solccl.Communicator.from_id(id, 2, rank, "cuda", timeout=20)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return made


COMMS = two_ranks()


def direct(rank, name, x, out, last=0):
    """The extension's own answer, on the rank's stream: a status, or None."""
    comm = COMMS[rank]
    with torch.cuda.stream(STREAMS[rank]):
        answer = getattr(fast, name)(comm._handle, comm.size, comm._blocking, x, out, last)
    ctypes.pythonapi.Py_IsInitialized()  # raises what the extension may have left
    return answer


def values(rank, *shape, dtype="float32"):
    """On the CPU: small integers, whose sums are exact in every type."""
    n = torch.Size(shape).numel()
    return ((torch.arange(n) * 7 + rank * 3) % 5).reshape(shape).to(getattr(torch, dtype))


def both(name, give, shape, want, last=0):
    """Each rank's `give` through the extension; `want`, of CPU tensors, must come out, all of it."""
    x = [g.cuda() for g in give]
    outs = [torch.full(shape, 99, dtype=g.dtype, device="cuda") for g in give]
    torch.cuda.synchronize()
    for rank in range(2):
        assert direct(rank, name, x[rank], outs[rank], last) == 0, (name, rank)
    torch.cuda.synchronize()
    for rank in range(2):
        assert torch.equal(outs[rank].cpu(), want[rank]), (name, rank, give[rank].dtype)


def test_functions():
    for dtype in DTYPES:
        give = [values(r, 6, 4, dtype=dtype) for r in range(2)]
        total = give[0] + give[1]
        halves = total.chunk(2)
        both("all_reduce", give, (6, 4), [total, total])
        both("all_reduce", give, (6, 4), [torch.maximum(*give)] * 2, "max")
        both("all_gather", give, (12, 4), [torch.cat(give)] * 2)
        both("reduce_scatter", give, (3, 4), list(halves))
        both("broadcast", give, (6, 4), [give[1]] * 2, 1)
        both("all_to_all", give, (6, 4), [torch.cat([g.chunk(2)[r] for g in give]) for r in range(2)])


def test_views():
    """From an element on that is not the storage's first."""
    give = [values(r, 9) for r in range(2)]
    base = [g.cuda() for g in give]
    out = [torch.zeros(5, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    for r in range(2):
        assert direct(r, "all_reduce", base[r][3:7], out[r][1:]) == 0
    torch.cuda.synchronize()
    for r in range(2):
        assert out[r].tolist() == [0, *(give[0] + give[1])[3:7].tolist()]


def test_in_place():
    x = [values(r, 8).cuda() for r in range(2)]
    torch.cuda.synchronize()
    for r in range(2):
        assert direct(r, "all_reduce", x[r], x[r]) == 0
    torch.cuda.synchronize()
    assert all(torch.equal(t.cpu(), values(0, 8) + values(1, 8)) for t in x)


def test_current_stream():
    """Behind what the current stream has not done yet: on any other, the old values would be read."""
    x = [torch.ones(64, device="cuda") for _ in range(2)]
    out = [torch.zeros(64, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    for r in range(2):
        with torch.cuda.stream(STREAMS[r]):
            torch.cuda._sleep(20_000_000)  # some 10 ms
            x[r].fill_(5)
        assert direct(r, "all_reduce", x[r], out[r]) == 0
    torch.cuda.synchronize()
    assert all(t.eq(10).all().item() for t in out)


def test_not_plain():
    """Nothing is enqueued: one rank alone may ask, and nobody waits for it."""
    x, y = torch.ones(4, device="cuda"), torch.empty(4, device="cuda")
    host = torch.ones(4)
    for send, recv in ((host, host.clone()), (x, host), (host, y), (x, y[:3]), (x, y.double()),
                       (x.repeat(2)[::2], y), (x, torch.empty(8, device="cuda")[::2]), (x.to(torch.complex64), y)):
        assert direct(0, "all_reduce", send, recv) is None, (send, recv)
    assert direct(0, "all_reduce", x, y, "sun") is None
    torch.cuda.synchronize()
    both("all_reduce", [x.cpu(), x.cpu()], (4,), [torch.full((4,), 2.0)] * 2)


def test_references():
    x, y = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    before = [sys.getrefcount(o) for o in (x, y, None)]
    for _ in range(50):
        for r in range(2):
            direct(r, "all_reduce", x, x)
            direct(r, "all_reduce", y, x[:3])
    torch.cuda.synchronize()
    after = [sys.getrefcount(o) for o in (x, y, None)]
    assert all(b - a < 20 for a, b in zip(before, after)), (before, after)


def main():
    for rank in range(2):  # the first tensor makes the type known
        with torch.cuda.stream(STREAMS[rank]):
            COMMS[rank].all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    cases = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    for case in cases:
        try:
            case()
            print("ok      ", case.__name__[5:], flush=True)
        except Exception:
            traceback.print_exc()
            print("FAILED  ", case.__name__[5:], flush=True)
            failed += 1
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    for comm in COMMS:
        comm.close()
    return failed > 0


sys.exit(main())
