# SPDX-License-Identifier: Apache-2.0
"""One rank of the tests of the Python package on CPU ranks; run.sh starts several.

    solccl run -n 3 python3 numpy_ranks.py

Expected values are NumPy's, of all ranks' contributions. Rank 0 prints the sum of cases.
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import threading
import time

import numpy as np
from ranks import run_cases

import solccl
from solccl._library import Info, lib

COMM = solccl.Communicator.from_env(backend="cpu", timeout=30, name="tests")
RANK, SIZE = COMM.rank, COMM.size


def of(rank, shape=(4, 3), dtype=np.float32):
    """What `rank` contributes: small integers, whose sums are exact."""
    return np.random.default_rng(rank).integers(0, 5, shape).astype(dtype)


def every(shape=(4, 3), dtype=np.float32):
    return np.stack([of(r, shape, dtype) for r in range(SIZE)])


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        missing = [w for w in words if w not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def test_quantized():
    x, all_ = of(RANK, (1000,)), every((1000,))
    for wire, steps in (("int8", 1), ("float8_e4m3fn", 2), ("int8", 0)):
        y = COMM.all_reduce_quantized(x, wire=wire, steps=steps)
        assert abs(y - all_.sum(0)).max() < 0.2 * SIZE * 4, (wire, steps)  # (values up to 4)
        assert y is not x and y.dtype == x.dtype
    assert COMM.all_reduce_quantized(x, x) is x
    raises(solccl.ArgumentError, lambda: COMM.all_reduce_quantized(x, wire="int32"), "wire is int32")


def test_transfer():
    """KV pages to the next rank, a list to all, and a wait that is too short."""
    page, n = 4096, 12
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    cache = COMM.empty((n + 1, page), np.uint8)
    flags = np.zeros(SIZE, np.int64)  # plain memory
    own = np.random.default_rng(RANK).integers(0, 255, (n, page)).astype(np.uint8)
    theirs = np.random.default_rng(source).integers(0, 255, (n, page)).astype(np.uint8)
    order = np.random.default_rng(99).permutation(n).astype(np.uint32)
    with COMM.transfer([cache, flags], counters=3) as t:
        raises(solccl.TimedOutError, lambda: t.wait(2, 1, timeout=0.01), "counter 2", "stands at 0")
        raises(solccl.ArgumentError, lambda: t.write([(own, to, 2 * page)]), "writes[0].offset")
        raises(ValueError, lambda: t.write_pages(own, to, page, [1, 2], [1]), "from_pages")
        t.write_pages(own, to, page, range(n), order, counter=0)
        t.wait(0, n, source=source)
        assert (cache[order] == theirs).all() and (cache[n] == 0).all()
        t.write([(np.int64(7 + RANK).reshape(1), r, 8 * RANK, 1) for r in range(SIZE)], 1, "bytes")
        t.wait_on_stream(1, 8 * SIZE)
        assert (flags == 7 + np.arange(SIZE)).all() and t.count(1) == 8 * SIZE
        COMM.barrier()
    raises(ValueError, lambda: t.count(0), "closed")


def test_reductions():
    for dtype in ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"):
        x, all_ = of(RANK, dtype=dtype), every(dtype=dtype)
        for op, want in (
            ("sum", all_.sum(0)),
            ("prod", all_.prod(0)),
            ("min", all_.min(0)),
            ("max", all_.max(0)),
        ):
            y = COMM.all_reduce(x, op=op)
            assert y.dtype == x.dtype and (y == want.astype(dtype)).all(), (dtype, op)
            z = COMM.reduce(x, root=SIZE - 1, op=op)
            assert (z is None) == (RANK != SIZE - 1)
            assert z is None or (z == want.astype(dtype)).all()
    x = of(RANK, (2 * SIZE, 3))
    y = COMM.reduce_scatter(x)
    assert (y == every((2 * SIZE, 3)).sum(0)[2 * RANK : 2 * RANK + 2]).all()
    same = x
    assert COMM.all_reduce(x, x, op="avg") is same
    assert np.allclose(x, every((2 * SIZE, 3)).mean(0))
    op = COMM.premul_sum(RANK + 1, "float32")
    got = COMM.all_reduce(of(RANK), op=op)
    assert (got == sum((r + 1) * of(r) for r in range(SIZE))).all()
    del op


def test_all_reduce_rms_norm():
    weight = np.linspace(0.5, 1.5, 96)
    for dtype, error in ((np.float32, 1e-6), (np.float16, 2e-3)):
        for residual in (None, of(50, (2, 3, 96), dtype)):
            x, w = of(RANK, (2, 3, 96), dtype), weight.astype(dtype)
            h = every((2, 3, 96), np.float64).sum(0) + (0 if residual is None else residual)
            y = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6) * (w.astype(np.float64) + 1)
            got, after = COMM.all_reduce_rms_norm(x, residual, w, 1e-6, 1.0)
            assert got.dtype == dtype and (after == h).all()
            assert np.abs(got - y).max() <= error * np.abs(y).max(), dtype
            again = COMM.all_reduce_rms_norm(x, residual, w, 1e-6, 1.0, out=x, residual_out=residual)
            assert again[0] is x and (x == got).all() and (again[1] == after).all()
    raises(ValueError, lambda: COMM.all_reduce_rms_norm(x, None, w[:5]), "weight has 5", "expected 96")
    raises(solccl.ArgumentError, lambda: COMM.all_reduce_rms_norm(*[np.ones(8, "i4")] * 3), "dtype is int32")


def test_reduce_scatter_rms_norm():
    weight = np.linspace(0.5, 1.5, 40).astype(np.float32)
    for tokens in (7, 1):
        x, residual = of(RANK, (tokens, 40)), of(50, (tokens, 40))
        first, end = COMM.tokens_of(tokens)
        want, after = COMM.all_reduce_rms_norm(x, residual, weight)
        for gather in (False, True):
            got, mine = COMM.reduce_scatter_rms_norm(x, residual[first:end].copy(), weight, gather=gather)
            assert (got == (want if gather else want[first:end])).all()
            assert (mine == after[first:end]).all() and len(mine) == end - first


def one_call(shards, x, residual, weight):
    """What a wait of a handle with `shards` must give, from the one call."""
    if shards is None:
        return COMM.all_reduce_rms_norm(x, residual, weight, 1e-5, 1.0)
    first, end = COMM.tokens_of(len(x))
    return COMM.reduce_scatter_rms_norm(x, residual[first:end].copy(), weight, 1e-5, 1.0, shards == "residual")


def same(got, want):
    return all(g.dtype == w.dtype and g.shape == w.shape and g.tobytes() == w.tobytes() for g, w in zip(got, want))


def test_norm_halves():
    """Several under way come out in the order they went in, with the bits of the one call."""
    for shards, dtype in ((None, np.float16), ("residual", np.float32), ("both", np.float32)):
        weight = np.linspace(0.5, 1.5, 40).astype(dtype)
        batches = [of(RANK + 10 * i, (tokens, 40), dtype) for i, tokens in enumerate((7, 1, 0, 5, 2, 7, 3))]
        residuals = [of(50 + i, x.shape, dtype) for i, x in enumerate(batches)]
        wants = [one_call(shards, x, r, weight) for x, r in zip(batches, residuals)]
        with solccl.NormHalves(COMM, 7, 40, dtype, shards, depth=3) as halves:
            for i, x in enumerate(batches):
                halves.start(x.copy())  # (kept by the handle alone)
                if i == 1:
                    assert (COMM.all_reduce(np.ones(50)) == SIZE).all()  # other calls lie between
                if halves.under_way == 3:
                    finish_oldest(halves, shards, i - 2, residuals, weight, wants)
            assert halves.under_way == 2
            while halves.under_way:
                finish_oldest(halves, shards, len(batches) - halves.under_way, residuals, weight, wants)
    x = of(RANK, (2, 3, 40))
    weight = np.linspace(0.5, 1.5, 40).astype(np.float32)
    with solccl.NormHalves(COMM, 6, 40, "float32") as halves:
        want = COMM.all_reduce_rms_norm(x, None, weight)
        halves.start(x)
        out, after = halves.wait(None, weight, out=x)
        assert out is x and same((out, after), want)


def finish_oldest(halves, shards, i, residuals, weight, wants):
    residual = residuals[i].copy()
    if shards is not None:
        first, end = COMM.tokens_of(len(residual))
        residual = residual[first:end].copy()
    out, after = halves.wait(residual, weight, 1e-5, 1.0, residual_out=residual if i % 2 else None)
    assert (after is residual) == bool(i % 2) and same((out, after), wants[i]), (shards, i)


def test_norm_halves_misused():
    x, weight = of(RANK, (4, 24)), np.ones(24, np.float32)
    raises(ValueError, lambda: solccl.NormHalves(COMM, 4, 24, "float32", "rows"), "'rows'", "residual")
    raises(ValueError, lambda: solccl.NormHalves(COMM, 2**40, 24), "out of range")
    raises(solccl.ArgumentError, lambda: solccl.NormHalves(COMM, 0, 24), "max_tokens is 0")
    raises(solccl.ArgumentError, lambda: solccl.NormHalves(COMM, 4, 24, "int32"), "dtype is int32")
    raises(solccl.ArgumentError, lambda: solccl.NormHalves(COMM, 4, 24, depth=9), "depth is 9")
    raises(solccl.MismatchError, lambda: solccl.NormHalves(COMM, 4 + RANK, 24), "sol_norm_create")
    halves = solccl.NormHalves(COMM, 4, 24, "float32")
    raises(solccl.StateError, lambda: halves.wait(None, weight), "expected sol_norm_start")
    raises(solccl.ArgumentError, lambda: halves.start(of(RANK, (5, 24))), "5 tokens", "at most 4")
    raises(solccl.ArgumentError, lambda: halves.start(of(RANK, (4, 8))), "of 8 float32")
    raises(solccl.ArgumentError, lambda: halves.start(x.astype(np.float16)), "float16")
    raises(TypeError, lambda: halves.start([1.0] * 24), "list")
    for _ in range(halves.depth):
        halves.start(x)
    raises(solccl.StateError, lambda: halves.start(x), "2 starts are under way")
    raises(solccl.StateError, COMM.sleep, "sol_norm_halves_t")
    for wrong in (lambda: halves.wait(None, weight[1:].copy()), lambda: halves.wait(x[1:].copy(), weight),
                  lambda: halves.wait(None, weight, out=x.astype(np.float16))):
        raises(ValueError, wrong, "expected")
    raises(solccl.ArgumentError, lambda: halves.wait(None, weight, eps=-1.0), "epsilon")
    assert halves.under_way == 2  # nothing of it was done: all is as before
    want = COMM.all_reduce_rms_norm(x, None, weight)
    assert same(halves.wait(None, weight), want) and same(halves.wait(None, weight), want)
    halves.close()
    halves.close()
    for call in (lambda: halves.start(x), lambda: halves.wait(None, weight)):
        raises(ValueError, call, "closed")


def test_norm_halves_garbage():
    """Collected on one rank while a start is under way: it waits for nobody, what it sent is the others',
    their later starts say what is wrong, and the communicator is as good as before."""
    x, weight = of(RANK, (4, 24)), np.ones(24, np.float32)
    want = COMM.all_reduce_rms_norm(x, None, weight)
    begin = time.monotonic()
    for leaver in range(SIZE):
        halves = solccl.NormHalves(COMM, 4, 24, "float32")
        halves.start(x)
        COMM.barrier()  # all have started
        if RANK == leaver:
            del halves
            gc.collect()
        COMM.barrier()
        if RANK != leaver:
            assert same(halves.wait(None, weight), want)
            raises(solccl.StateError, lambda: halves.start(x), "destroyed its handle")
            halves.close()
        COMM.barrier()
    for i in range(4):  # at different times
        halves = solccl.NormHalves(COMM, 4, 24, "float32", "both")
        halves.start(x)
        halves.wait(None, weight)
        if i % SIZE == RANK:
            del halves
            gc.collect()
    assert (COMM.all_reduce(np.ones(3)) == SIZE).all() and time.monotonic() - begin < 20
    comm = COMM.split(0)
    for _ in range(2):
        halves = solccl.NormHalves(comm, 4, 24, "float32")
        halves.start(x)
        comm._blocking = False  # as GPU ranks, whose kernels may still run: it is left to the communicator
        del halves
        comm._blocking = True
        assert len(comm._left) == 1
        comm.barrier()  # (a sleep wants all work on it done, on all ranks)
        comm.sleep()
        comm.wake()
        assert not comm._left
    halves = solccl.NormHalves(comm, 4, 24, "float32")
    halves.start(x)
    COMM.barrier()
    comm.close()  # first the communicator: the handle is worth nothing, and harmless
    raises(ValueError, lambda: halves.wait(None, weight), "closed")
    halves.close()


def test_linear_all_reduce():
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raises(ValueError, lambda: COMM.linear_all_reduce(of(RANK, (2, 8)), of(0, (3, 8))), "expected 16")
        return
    x, weight = of(RANK, (3, 40)).astype(bfloat16), of(RANK + 9, (5, 40)).astype(bfloat16)
    want = sum(of(r, (3, 40)).astype(bfloat16).astype(float) @ of(r + 9, (5, 40)).astype(bfloat16).astype(float).T for r in range(SIZE))
    got = COMM.linear_all_reduce(x, weight)
    assert np.abs(got.astype(float) - want).max() <= 0.02 * np.abs(want).max()
    assert (COMM.linear_all_reduce(x[1:2].copy(), weight)[0] == got[1]).all()


def test_vocab_topk():
    columns, firsts = [5, 0, 40, 7, 1, 30, 2, 9][RANK % 8], np.cumsum([0, 5, 0, 40, 7, 1, 30, 2])
    whole = np.random.default_rng(3).integers(-9, 9, (2, 3, 94)).astype(np.float32) / 4
    first, size = int(firsts[RANK % 8]), int((firsts + [5, 0, 40, 7, 1, 30, 2, 9])[SIZE - 1])
    mine, whole = whole[..., first : first + columns].copy(), whole[..., :size]
    values, indices, total = COMM.vocab_topk(mine, 4, first, True)
    want = np.argsort(-whole, axis=-1, kind="stable")[..., :4]
    want_values = np.take_along_axis(whole, want, -1)
    n = want.shape[-1]
    assert values.dtype == np.float32 and (values[..., :n] == want_values).all()
    assert indices.dtype == np.int64 and (indices[..., :n] == want).all() and (indices[..., n:] == -1).all()
    exact = np.log(np.exp(whole.astype(np.float64)).sum(-1))
    assert np.abs(total - exact).max() < 1e-5
    assert (COMM.vocab_argmax(mine, first) == want[..., 0]).all()
    assert (COMM.vocab_log_sum_exp(mine, first) == total).all()
    raises(solccl.ArgumentError, lambda: COMM.vocab_topk(mine, 129), "k is 129")


def test_moe():
    tokens, hidden, experts = 3 + RANK, 160, 2 * SIZE + 1
    moe = solccl.Moe(COMM, 12, hidden, 2, experts, "float32", layout="packed")
    assert moe.first_expert == 2 * RANK + (RANK > 0) and moe.local_experts == 2 + (RANK == 0)
    x = of(RANK, (tokens, hidden), np.float32)
    idx = np.array([[(t + RANK) % experts, (t * 3 + 1 + RANK) % experts] for t in range(tokens)])
    idx[0, 1] = -1
    weights = np.full((tokens, 2), 0.5, np.float32)
    for halves in (False, True):
        if halves:
            got = moe.dispatch_recv(moe.dispatch_send(x, idx, weights), moe.empty(x))
        else:
            got = moe.dispatch(x, idx.astype(np.int32), weights)
        y = np.zeros_like(got.x)
        for e in range(moe.local_experts):
            rows = slice(got.offsets[e], got.offsets[e] + got.counts[e])
            assert (got.weights[rows] == 0.5).all()
            y[rows] = got.x[rows] * (1 + moe.first_expert + e)  # expert e multiplies by e + 1
        out = np.empty_like(x)
        if halves:
            moe.combine_send(y, tokens)
            moe.combine_recv(out)
        else:
            assert moe.combine(y, out) is out
        twice = idx[:, 0] == idx[:, 1]  # the first of a kind counts
        factor = 0.5 * (idx[:, 0] + 1) + np.where(twice, 0, 0.5 * (idx[:, 1] + 1))
        assert np.abs(out - x * factor[:, None]).max() <= 1e-5 * np.abs(out).max()
    small = solccl.Moe(COMM, 4, hidden, 1, SIZE, "float32", quant="group")
    got = small.dispatch(x[:2], np.full((2, 1), RANK))
    assert got.x.dtype == np.uint8 and got.scales.shape == (1, 4 * SIZE, 2) and got.counts[0] == 2
    assert (got.scales[0, :2, 0] == np.abs(x[:2, :128]).max(-1) / np.float32(448)).all()
    raises(ValueError, lambda: moe.dispatch(x, idx[:1], weights), "topk_idx has 2")
    raises(solccl.StateError, lambda: moe.combine(y, x), "expected a dispatch")
    raises(solccl.ArgumentError, lambda: solccl.Moe(COMM, 0, 8, 1, 4), "max_tokens is 0")
    small.close()
    moe.close()


def test_copies():
    x, all_ = of(RANK), every()
    assert (COMM.all_gather(x) == all_).all()
    out = np.zeros((SIZE, 4, 3), np.float32)
    out[RANK] = x
    COMM.all_gather(out[RANK], out)  # in place
    assert (out == all_).all()
    y = x.copy()
    assert COMM.broadcast(y, 1) is y and (y == of(1)).all()
    got = COMM.gather(x, root=1)
    assert (got is None) if RANK != 1 else (got == all_).all()
    whole = every().reshape(SIZE * 4, 3) if RANK == 0 else None
    assert (COMM.scatter(whole, 0, None if RANK == 0 else np.empty((4, 3), np.float32)) == x).all()
    x = np.arange(SIZE * 2) + 100 * RANK
    assert COMM.all_to_all(x).tolist() == [100 * r + 2 * RANK + i for r in range(SIZE) for i in range(2)]
    counts = [p + 1 for p in range(SIZE)]
    out = np.empty(SIZE * (RANK + 1), x.dtype)
    COMM.all_to_all_v(np.arange(sum(counts)) + 100 * RANK, counts, out, [RANK + 1] * SIZE)
    begin = sum(counts[:RANK])
    assert out.tolist() == [100 * r + begin + i for r in range(SIZE) for i in range(RANK + 1)]
    COMM.barrier()


def test_messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for n in (1, 2_000_000):
        x, y = np.full(n, RANK, np.float64), np.empty(n)
        with solccl.group():
            COMM.send(x, right)
            with solccl.group():
                COMM.recv(y, left)
        assert (y == left).all()
    if RANK == 0:
        COMM.send(np.ones(3), 1)
    elif RANK == 1:
        assert COMM.recv(np.zeros(3), 0).sum() == 3
    y = np.zeros(3)
    raises(KeyError, lambda: broken_group(y))
    assert COMM.all_reduce(np.ones(3))[0] == SIZE and (y == 0).all()


def broken_group(y):
    with solccl.group():
        COMM.all_reduce(np.ones(3), y)
        raise KeyError("in the block: nothing of the group is done")


def test_kinds_of_arrays():
    plain = array.array("d", [RANK] * 4)
    COMM.all_reduce(plain, plain)
    assert plain[0] == sum(range(SIZE))
    data = bytearray(b"abc" if RANK == 0 else b"xyz")
    COMM.broadcast(data, 0)
    assert data == b"abc"

    class OnlyDlpack:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **options):
            return self.x.__dlpack__()

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = np.full(5, RANK + 1.0)
    out = np.zeros(5)
    COMM.all_reduce(OnlyDlpack(x), out)
    assert out[4] == SIZE * (SIZE + 1) / 2
    raises(ValueError, lambda: COMM.all_reduce(np.ones((4, 4)).T[:2]), "contiguous")
    raises(TypeError, lambda: COMM.all_reduce(np.ones(3, complex)), "complex128")
    raises(TypeError, lambda: COMM.all_reduce([1.0, 2.0]), "another list")
    raises(TypeError, lambda: COMM.all_reduce(np.ones(3, ">f8")), "byte order")
    frozen = np.ones(3)
    frozen.flags.writeable = False
    raises(ValueError, lambda: COMM.all_reduce(frozen, frozen), "read-only")
    raises(ValueError, lambda: COMM.all_reduce(np.ones(3), np.ones(4)), "elements")
    raises(ValueError, lambda: COMM.reduce_scatter(np.ones(SIZE + 1)), "first dimension")
    assert COMM.all_reduce(np.empty((0, 3))).shape == (0, 3)


def test_communicators():
    low = COMM.split(0 if RANK < 2 else None, -RANK)
    assert (low is None) == (RANK >= 2)
    if low is not None:
        assert (low.rank, low.size) == (1 - RANK, 2)
        assert low.all_reduce(np.ones(1))[0] == 2
    id = COMM.broadcast(bytearray(solccl.unique_id()), 0)
    other = solccl.Communicator.from_id(bytes(id), SIZE, RANK, "cpu")
    assert other.all_reduce(np.ones(1))[0] == SIZE and "rank" in repr(other)
    with other:
        pass
    other.close()
    raises(ValueError, lambda: other.barrier(), "closed")

    class Store:
        """As torch.distributed's, over a communicator."""

        def set(self, key, value):
            self.value = value

        def get(self, key):
            return bytes(COMM.broadcast(bytearray(getattr(self, "value", bytes(128))), 0))

    class Mpi:
        rank, size = RANK, SIZE

        def bcast(self, value, root):
            return bytes(COMM.broadcast(bytearray(value or bytes(128)), root))

    store = Store()
    if RANK == 0:
        made = solccl.Communicator.from_mpi(Mpi(), "cpu")
    else:
        made = solccl.Communicator.from_mpi(Mpi(), "cpu")
    assert made.all_reduce(np.ones(1))[0] == SIZE
    stored = solccl.Communicator.from_store(store, SIZE, RANK, "cpu")
    assert stored.all_reduce(np.ones(1))[0] == SIZE
    assert "all_reduce" in COMM.explain("all_reduce", 1000, "bfloat16") or COMM.explain("all_reduce", 1000)
    assert "CPU" in " ".join([*solccl.machine_info(), *solccl.machine_info().values()]).upper()


def test_symmetric_memory():
    x = COMM.empty((1000, 3), np.float32)
    assert x.shape == (1000, 3) and x.dtype == np.float32 and not x.any()
    x[:] = RANK + 1
    part = COMM.all_reduce(x, x)[10:20]
    del x
    gc.collect()
    assert (part == SIZE * (SIZE + 1) / 2).all()  # a view keeps the memory
    comm = COMM.split(0)
    y = comm.empty(10, "int64")
    comm.close()
    y += 5  # the memory outlives the communicator's close
    assert y.sum() == 50
    raises(ValueError, lambda: comm.barrier(), "closed")
    del y, part


def test_sleep():
    comm = COMM.split(0)
    x, y = comm.empty((3000, 3), np.float32), comm.empty(7, "int32")
    for level, kept in (("keep", 4), ("discard", 0), ("keep", 4)):
        x[:], y[:] = 4, 4
        raises(ValueError, lambda: comm.sleep("deep"), "deep")
        comm.sleep(level)
        assert comm.asleep
        raises(solccl.StateError, lambda: comm.all_reduce(of(RANK)), "asleep")
        raises(solccl.StateError, lambda: comm.empty(3), "asleep")
        comm.wake()
        assert not comm.asleep and (x == kept).all() and (y == kept).all()
        raises(solccl.StateError, comm.wake, "awake")
        x[:] = RANK + 1
        assert (comm.all_reduce(x) == SIZE * (SIZE + 1) / 2).all()
    comm.sleep("discard")
    del x
    gc.collect()  # freed asleep
    comm.wake()
    assert (comm.all_reduce(y) == 4 * SIZE).all() or not y.any()
    comm.sleep()
    comm.close()


def test_numbers_that_do_not_fit():
    """None is cut off to a rank, operation or size that is another's."""
    x = of(RANK)
    for call in (
        lambda: COMM.all_reduce(x, op=2**40),
        lambda: COMM.broadcast(x, root=2**33),
        lambda: COMM.reduce(x, root=-(2**33)),
        lambda: COMM.gather(x, 2**33),
        lambda: COMM.scatter(x, 2**33, x),
        lambda: COMM.send(x, 2**33),
        lambda: COMM.recv(x, 2**33),
        lambda: COMM.split(2**40),
        lambda: COMM.split(0, 2**40),
        lambda: solccl.Communicator.from_id(solccl.unique_id(), 2, 2**35, "cpu"),
        lambda: solccl.Communicator.from_id(solccl.unique_id(), 2**32 + 1, 0, "cpu"),
    ):
        raises(ValueError, call, "out of range")
    raises(ValueError, lambda: COMM.empty((3, -5)), "negative")
    for timeout in (0, -1, float("nan")):
        raises(ValueError, lambda: solccl.Communicator.from_id(solccl.unique_id(), 1, 0, "cpu", timeout=timeout), "timeout")
    solccl.Communicator.from_id(solccl.unique_id(), 1, 0, "cpu", timeout=float("inf")).close()


def test_garbage():
    """Ranks collect at different times; nobody waits."""
    begin = time.monotonic()
    for i in range(10):
        comm = COMM.split(0)
        assert comm.all_reduce(np.ones(1))[0] == SIZE
        if i % SIZE == RANK:
            del comm
            gc.collect()
        COMM.barrier()
    assert time.monotonic() - begin < 20


def test_fork():
    child = os.fork()
    if child == 0:
        code = 1
        try:
            raises(solccl.StateError, lambda: COMM.barrier(), "fork")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert COMM.all_reduce(np.ones(1))[0] == SIZE


def test_errors():
    error = raises(solccl.ArgumentError, lambda: COMM.broadcast(np.ones(3), 99), "root is 99")
    assert isinstance(error, ValueError) and error.status == -1
    raises(ValueError, lambda: COMM.all_reduce(np.ones(3), op="xor"), "xor")
    comm = COMM.split(0)
    mismatch = RANK == 0

    def different():
        comm.all_reduce(np.ones(3 if mismatch else 4))

    raises(solccl.Error, different, "all_reduce")
    raises(solccl.Error, lambda: comm.barrier())
    raises(solccl.Error, lambda: comm.raise_async_error())
    comm = COMM.split(0)
    if RANK == 0:
        threading.Timer(0.2, comm.abort).start()
        raises(solccl.AbortedError, lambda: comm.recv(np.ones(1), 1))
    else:
        raises(solccl.AbortedError, lambda: comm.recv(np.ones(1), 0))
    late = COMM.split(0, 0)
    del late


def test_given_back_beside_a_call():
    """What is collected while another thread is in a call is freed later, not never."""
    def facts():
        info = Info(size=ctypes.sizeof(Info))
        assert lib.sol_comm_query(comm._handle, ctypes.byref(info)) == 0
        return info

    comm = COMM.split(0)
    size = 1 << 20
    kept, array = comm.empty(size, "uint8"), comm.empty(size, "uint8")
    premul = comm.premul_sum(2.0, "float32")
    before = facts().shared_bytes
    comm.barrier()
    sequence = facts().sequence
    if RANK == 0:
        thread = threading.Thread(target=lambda: comm.recv(np.empty(1), 1))
        thread.start()
        while facts().sequence == sequence and thread.is_alive():
            pass
        del array, premul  # (the thread waits for rank 1, which waits for COMM)
        assert comm._late
        COMM.barrier()
        thread.join()
    else:
        del array, premul
        COMM.barrier()
        if RANK == 1:
            comm.send(np.ones(1), 0)
    again = comm.empty(size, "uint8")
    assert not comm._late and facts().shared_bytes == before
    del kept, again
    comm.close()


CASES = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
run_cases(COMM, CASES)
