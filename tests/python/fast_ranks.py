# SPDX-License-Identifier: Apache-2.0
"""One rank of the tests of the extension (python/fast.c), on CPU ranks; run.sh starts several.

    solccl run -n 2 python3 fast_ranks.py TRANSCRIPT

What is plain must go its way, all else must not; results are NumPy's. Errors are written to TRANSCRIPT,
which run.sh compares with that of a run with SOLCCL_PYTHON_FAST=0: then only that is written.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import threading
import weakref

import numpy as np
from ranks import run_cases

import solccl
from solccl import _communicator
from solccl._library import fast

try:
    import torch
except ImportError:
    torch = None

COMM = solccl.Communicator.from_env(backend="cpu", timeout=30, name="fast")
RANK, SIZE = COMM.rank, COMM.size
OFF = os.environ.get("SOLCCL_PYTHON_FAST") == "0"
assert OFF == (fast is None), "the extension is not there, or is in spite of SOLCCL_PYTHON_FAST=0"
KINDS = [np] + ([torch] if torch is not None else [])
COMM.all_reduce(np.ones(1, np.float32))  # the first array of a type makes the type known
if torch is not None:
    COMM.all_reduce(torch.ones(1))
# PyTorch from 2.10 on has the table without which its tensors are nothing to the extension.
TABLE = torch is not None and hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
PLAIN = [np] + ([torch] if TABLE else [])


def direct(name, x, out, last=0, comm=COMM):
    """The extension's own answer: a status, or None."""
    answer = getattr(fast, name)(comm._handle, comm.size, comm._blocking, x, out, last)
    ctypes.pythonapi.Py_IsInitialized()  # raises what the extension may have left: a call of it alone need not
    return answer


def values(module, *shape, rank=RANK, dtype="float32"):
    n = int(np.prod(shape))
    x = ((np.arange(n) * 7 + rank * 3) % 5).reshape(shape)
    return x.astype(dtype) if module is np else torch.tensor(x, dtype=getattr(torch, dtype))


def numbers(x):
    return np.asarray(x.detach().tolist() if torch is not None and isinstance(x, torch.Tensor) else x, dtype=np.float64)


def every(*shape):
    return np.stack([values(np, *shape, rank=r) for r in range(SIZE)]).astype(np.float64)


def test_results():
    """Each collective, asked directly: it must have been taken, and be right."""
    for module in PLAIN:
        for dtype in ("float32", "float64", "int32", "int64", "uint8", "int8", "float16"):
            x, y = values(module, SIZE, 3, dtype=dtype), values(module, SIZE, 3, dtype=dtype)
            all_ = every(SIZE, 3)
            for op, number, expected in (("sum", 0, all_.sum(0)), ("max", 3, all_.max(0)), ("min", 2, all_.min(0))):
                for given in (op, number):
                    y[:] = 99
                    assert direct("all_reduce", x, y, given) == 0, (module, dtype, given)
                    assert (numbers(y) == expected).all(), (module, dtype, op)
            z = values(module, SIZE, 3, dtype=dtype)
            assert direct("all_reduce", z, z, "sum") == 0 and (numbers(z) == all_.sum(0)).all()
            big = values(module, SIZE, SIZE, 3, dtype=dtype)
            assert direct("all_gather", x, big) == 0 and (numbers(big) == all_).all()
            part = values(module, 3, dtype=dtype)
            assert direct("reduce_scatter", x, part, "sum") == 0
            assert (numbers(part) == all_.sum(0)[RANK]).all()
            assert direct("all_to_all", x, y) == 0 and (numbers(y) == all_[:, RANK]).all()
            z = values(module, SIZE, 3, dtype=dtype)
            assert direct("broadcast", z, z, SIZE - 1) == 0 and (numbers(z) == all_[SIZE - 1]).all()
    if TABLE:
        for dtype, code in ((torch.bfloat16, 7), (torch.float8_e4m3fn, 10), (torch.float8_e5m2, 11)):
            z = torch.ones(4).to(dtype)
            assert direct("all_reduce", z, z, "sum") == 0 and z.float().tolist() == [float(SIZE)] * 4, code
        z = torch.tensor([RANK == 0, False])
        assert direct("all_reduce", z, z, "max") == 0 and z.tolist() == [True, False]
        x, y = torch.ones(4), np.zeros(4, np.float32)  # of two kinds
        assert direct("all_reduce", x, y, "sum") == 0 and (y == SIZE).all()


def test_methods():
    """The methods, which take it where they can: the same results in both ways."""
    for module in KINDS:
        x, all_ = values(module, SIZE, 3), every(SIZE, 3)
        y = values(module, SIZE, 3)
        assert COMM.all_reduce(x, y, "max") is y and (numbers(y) == all_.max(0)).all()
        assert (numbers(COMM.all_reduce(x)) == all_.sum(0)).all()
        assert (numbers(COMM.all_gather(x)) == all_).all()
        assert (numbers(COMM.reduce_scatter(x)) == all_.sum(0)[RANK]).all()
        assert (numbers(COMM.all_to_all(x)) == all_[:, RANK]).all()
        assert COMM.broadcast(y, 0) is y
        z = values(module, SIZE, 3)
        assert COMM.broadcast(z, SIZE - 1) is z and (numbers(z) == all_[SIZE - 1]).all()
        with solccl.group():  # buffers of an open group are read at its end
            a, b = values(module, 4), values(module, 4)
            COMM.all_reduce(a, a)
            COMM.all_reduce(b, b, "max")
        assert (numbers(a) == every(4).sum(0)).all() and (numbers(b) == every(4).max(0)).all()


def test_empty():
    for module in KINDS:
        x = values(module, 0)
        assert COMM.all_reduce(x, x) is x
        assert COMM.all_gather(x).shape == (SIZE, 0)
        assert COMM.all_to_all(values(module, SIZE, 0)).shape == (SIZE, 0)


def test_not_plain():
    """None of these is for the extension: it must do nothing, and leave no exception behind."""
    f, g = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    read_only = np.ones(4, np.float32)
    read_only.flags.writeable = False

    class Array(np.ndarray):
        pass

    cases = [
        (f[:, 1:], g[:, 1:]), (f.T, g), (f, g[:2]), (f, g.astype(np.float64)), (f, read_only), (read_only, read_only),
        (f.astype(">f4"), f.astype(">f4")), (f.astype(np.complex64), g.astype(np.complex64)), (f, None), (None, f),
        (f.view(Array), g), ([1.0], [1.0]), (bytearray(4), bytearray(4)), (f.astype(np.int16), g.astype(np.int16)),
        (np.array(["a"]), np.array(["a"])), (np.zeros(2, [("a", "f4")]), np.zeros(2, [("a", "f4")])),
    ]
    if torch is not None:
        t, u = torch.ones(4, 4), torch.ones(4, 4)

        class Tensor(torch.Tensor):
            pass

        cases += [
            (t[:, 1:], u[:, 1:]), (t.t(), u), (t, u[:2]), (t, u.double()), (t.to(torch.complex64), u.to(torch.complex64)),
            (t.as_subclass(Tensor), u), (torch.nn.Parameter(t.clone()), u), (t.to("meta"), u), (t.to_sparse(), u),
            (t.short(), u.short()), (t[:1].expand(4, 4), u), (t, f.astype(np.float64)),
        ]
    for x, y in cases:
        assert direct("all_reduce", x, y, "sum") is None, (x, y)
    for last in ("total", None, 0.0, True, 1 << 40, -(1 << 40), [], COMM):
        assert direct("all_reduce", f, g, last) is None, last
    assert direct("broadcast", f, f, "sum") is None  # a name is no root
    assert direct("all_to_all", np.ones(SIZE + 1, np.float32), np.ones(SIZE + 1, np.float32)) is None
    assert direct("all_gather", f, g) is None and direct("reduce_scatter", f, g, 0) is None
    for handle, size in ((None, SIZE), ("a", SIZE), (COMM._handle, None), (COMM._handle, 0), (COMM._handle, -1)):
        assert fast.all_reduce(handle, size, True, f, g, 0) is None, (handle, size)
    assert fast.all_reduce(COMM._handle, SIZE, False, f, g, 0) is None  # host memory on GPU ranks
    assert fast.all_reduce() is None and fast.all_reduce(1, 2, 3) is None
    assert (f == 1).all() and (g == 1).all()


def test_scaled():
    """premul_sum, subclasses and parameters go the other way, and work."""
    op = COMM.premul_sum(2.0, "float32")
    assert (COMM.all_reduce(np.ones(4, np.float32), op=op) == 2 * SIZE).all()
    if torch is not None:
        p = torch.nn.Parameter(torch.ones(4))
        with torch.no_grad():
            COMM.all_reduce(p, p)
        assert p.tolist() == [SIZE] * 4 and p.requires_grad
        x = torch.ones(4, requires_grad=True)
        y = torch.empty(4)
        COMM.all_reduce(x, y)
        assert y.tolist() == [SIZE] * 4 and not y.requires_grad
        # Copy on write: the other tensor keeps what it has.
        if hasattr(torch, "_lazy_clone"):
            first = torch.ones(4)
            second = torch._lazy_clone(first)
            COMM.all_reduce(second, second)
            assert first.tolist() == [1] * 4 and second.tolist() == [SIZE] * 4


def test_group_keeps():
    """What an open group still has to read lives until its end, whoever else has let go of it."""
    calls = {
        "all_reduce": lambda x: COMM.all_reduce(x, x),
        "all_gather": COMM.all_gather,
        "reduce_scatter": COMM.reduce_scatter,
        "broadcast": COMM.broadcast,
        "all_to_all": COMM.all_to_all,
    }
    for module in KINDS:
        for name, call in calls.items():
            with solccl.group():
                x = values(module, SIZE, 3)
                held = weakref.ref(x)
                call(x)
                del x
                assert held() is not None, (module, name)
            assert held() is None, (module, name)


def test_stream():
    """A call with `stream=` is not the extension's, which takes the current one; one without is."""
    seen = []
    for module in PLAIN:
        x, y, big, part = (values(module, *shape) for shape in ((SIZE, 3), (SIZE, 3), (SIZE, SIZE, 3), (3,)))
        calls = {
            "all_reduce": lambda **s: COMM.all_reduce(x, y, **s),
            "all_gather": lambda **s: COMM.all_gather(x, big, **s),
            "reduce_scatter": lambda **s: COMM.reduce_scatter(x, part, **s),
            "broadcast": lambda **s: COMM.broadcast(y, **s),
            "all_to_all": lambda **s: COMM.all_to_all(x, y, **s),
        }
        for name, call in calls.items():
            own = getattr(_communicator, f"_fast_{name}")
            setattr(_communicator, f"_fast_{name}", lambda *a, own=own: seen.append(1) or own(*a))
            try:
                call(stream=0)
                assert len(seen) == 0, name
                call()
                assert len(seen) == 1, name
            finally:
                setattr(_communicator, f"_fast_{name}", own)
            seen.clear()


def test_references():
    """100,000 calls, taken and not, leave every count and the memory as they were."""
    for module in KINDS:
        x, y, odd = values(module, 4), values(module, 4), values(module, 4, 4)[:, 1:]
        short = x[:2]  # read well, and found to be of another size only then
        things = (x, y, odd, short, COMM, type(x))
        calls = 50000 if not OFF else 10

        def work(n):
            for _ in range(n):
                COMM.all_reduce(x, y)
                if not OFF:
                    direct("all_reduce", odd, y, "sum")
                    direct("all_reduce", x, odd, "sum")
                    direct("all_reduce", x, short, "sum")

        work(10)
        gc.collect()
        before = [sys.getrefcount(t) for t in things] + [sys.getrefcount(None)]
        blocks = sys.getallocatedblocks()
        work(calls)
        after = [sys.getrefcount(t) for t in things] + [sys.getrefcount(None)]
        assert all(abs(a - b) < 50 for a, b in zip(after, before)), (before, after)
        assert abs(sys.getallocatedblocks() - blocks) < 500, sys.getallocatedblocks() - blocks
        if module is np:
            x.resize(8, refcheck=False)  # refused while a buffer of it is out


def test_threads():
    """While one thread waits in a call, others run: rank 0 comes late, by the other thread's word."""
    other = COMM.split(0)
    x, ran = np.ones(4, np.float32), []
    entered = threading.Event()

    def call():
        entered.set()
        other.all_reduce(x, x)

    thread = threading.Thread(target=call)
    if RANK == 0:
        COMM.barrier()
        thread.start()
    else:
        thread.start()
        entered.wait(10)
        ran.append(sum(range(1000)))  # (a call that kept the GIL would never let this run)
        COMM.barrier()
    thread.join(20)
    assert not thread.is_alive() and (x == SIZE).all()
    other.close()


def messages():
    """What is wrong, and what is said of it. All ranks make the same mistakes."""
    closed = COMM.split(0)
    closed.close()
    left = COMM.split(0)
    memory = left.empty(4)  # (its handle stays until this goes)
    left.close()
    for module in KINDS:
        x, y = values(module, SIZE, 3), values(module, SIZE, 3)
        wrong = {
            "shape": lambda: COMM.all_reduce(x, y[:1]),
            "type": lambda: COMM.all_reduce(x, values(module, SIZE, 3, dtype="float64")),
            "short": lambda: COMM.all_reduce(values(module, 2, dtype="int16"), values(module, 2, dtype="int16")),
            "strided": lambda: COMM.all_reduce(x[:, 1:], y[:, 1:]),
            "op": lambda: COMM.all_reduce(x, y, "total"),
            "op number": lambda: COMM.all_reduce(x, y, 77),
            "op size": lambda: COMM.all_reduce(x, y, 1 << 40),
            "op none": lambda: COMM.all_reduce(x, y, None),
            "root": lambda: COMM.broadcast(x, SIZE),
            "root name": lambda: COMM.broadcast(x, "sum"),
            "root size": lambda: COMM.broadcast(x, 1 << 40),
            "gather": lambda: COMM.all_gather(x, y),
            "scatter": lambda: COMM.reduce_scatter(x, y),
            "blocks": lambda: COMM.all_to_all(values(module, SIZE + 1), values(module, SIZE + 1)),
            "blocks new": lambda: COMM.all_to_all(values(module, SIZE + 1)),
            "no array": lambda: COMM.all_reduce(3, y),
            "closed": lambda: closed.all_reduce(x, y),
            "closed gather": lambda: closed.all_gather(x),
            "closed broadcast": lambda: closed.broadcast(x),
            "left reduce": lambda: left.all_reduce(x, y),
            "left gather": lambda: left.all_gather(x),
            "left scatter": lambda: left.reduce_scatter(x),
            "left broadcast": lambda: left.broadcast(x),
            "left all_to_all": lambda: left.all_to_all(x),
        }
        if module is np:
            frozen = np.ones(4, np.float32)
            frozen.flags.writeable = False
            wrong["read-only"] = lambda: COMM.all_reduce(np.ones(4, np.float32), frozen)
            wrong["order"] = lambda: COMM.all_reduce(x.astype(">f4"), y.astype(">f4"))
        for name, call in wrong.items():
            try:
                call()
                yield f"{module.__name__} {name}: nothing"
            except Exception as error:
                yield f"{module.__name__} {name}: {type(error).__name__} {getattr(error, 'status', '')} {error}"
    del memory


def in_child():
    """A forked child's call: raises, and says why."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            COMM.all_reduce(np.ones(2, np.float32), np.ones(2, np.float32))
            text = "nothing"
        except Exception as error:
            text = f"{type(error).__name__} {error.status} {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_transcript():
    lines = [*messages(), f"child: {in_child()}"]
    lines = [re.sub(r"comm [0-9a-f]+", "comm", line) for line in lines]  # (its number is another in each run)
    assert "StateError" in lines[-1], lines[-1]
    assert sum(": nothing" in line for line in lines) == 0, lines
    if RANK == 0:
        with open(sys.argv[1], "w") as file:
            file.write("\n".join(lines) + "\n")


CASES = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
if OFF:
    CASES = [test_methods, test_empty, test_scaled, test_group_keeps, test_references, test_threads, test_transcript]
run_cases(COMM, CASES)
