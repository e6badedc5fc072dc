# SPDX-License-Identifier: Apache-2.0
"""One rank of the tests of solccl.torch; run.sh starts several.

    solccl run -n 3 python3 torch_ranks.py FOLDER [cuda]

Expected values come from Gloo on the CPU, in the same process, also where ours run on GPUs (several
ranks may share one). Rank 0 prints the sum of cases.
"""

from __future__ import annotations

import copy
import os
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import solccl
import solccl.torch as sol

RANK, SIZE = int(os.environ["SOLCCL_RANK"]), int(os.environ["SOLCCL_SIZE"])
CUDA = len(sys.argv) > 2 and sys.argv[2] == "cuda"
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count()) if CUDA else torch.device("cpu")
if CUDA:
    torch.cuda.set_device(DEVICE)
else:
    torch.set_num_threads(1)

dist.init_process_group(
    "cpu:solccl,cuda:solccl",
    init_method=f"file://{sys.argv[1]}/rendezvous",
    rank=RANK,
    world_size=SIZE,
    timeout=timedelta(seconds=60),
)
OTHER = dist.new_group(backend="gloo")
OURS = dist.group.WORLD
CPU = torch.device("cpu")
EXACT = 1e-5 if not CUDA else 1e-3  # of float results: the GPU's matrix products differ from the CPU's


def fill(shape, dtype=torch.float32, seed=0):
    """Small integers: sums are exact in every type, so that backends agree to the bit."""
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    x = torch.randint(0, 4, shape if isinstance(shape, tuple) else (shape,), generator=generator)
    return x.to(dtype).to(DEVICE)


def other_all_reduce(x, op=dist.ReduceOp.SUM):
    """What Gloo makes of it, as a new tensor."""
    y = x.detach().cpu().contiguous().clone()
    dist.all_reduce(y, op, group=OTHER)
    return y.to(x.device)


def same(x, y, tolerance=0.0):
    x, y = x.detach().cpu(), y.detach().cpu()
    if tolerance:
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
    else:
        assert torch.equal(x, y), f"{x} is not {y}"


def both(call, *tensors):
    """`call(group, *copies)` on each backend; both results."""
    results = []
    for group, device in ((OURS, DEVICE), (OTHER, CPU)):
        copies = [t.to(device, copy=True) for t in tensors]
        results.append(call(group, *copies))
    return results


def test_all_reduce():
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8, torch.bfloat16,
                  torch.float16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
            x = fill((5, 7), dtype)

            def call(group, x, op=op):
                dist.all_reduce(x, op, group=group)
                return x

            same(*both(call, x))
    x = fill(9)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, other_all_reduce(fill(9)) / SIZE, 1e-6)
    x = fill((6, 8)).t()  # not contiguous
    y = other_all_reduce(x)
    dist.all_reduce(x)
    same(x, y)
    flag = torch.tensor([RANK == 1, False, True], device=DEVICE)
    dist.all_reduce(flag)
    assert flag.tolist() == [SIZE > 1, False, True]
    for asynchronous in (True, False):
        for n in (3, 200_000):
            x = fill(n)
            work = dist.all_reduce(x, async_op=asynchronous)
            if asynchronous:
                work.wait()
            same(x, other_all_reduce(fill(n)))


def test_copies():
    for dtype in (torch.float32, torch.int16, torch.bool, torch.complex64, torch.bfloat16):
        x = fill((4, 3), dtype)
        gathered = [torch.empty_like(x) for _ in range(SIZE)]
        dist.all_gather(gathered, x)
        out = torch.empty((SIZE * 4, 3), dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(out, x)
        for r in range(SIZE):
            generator = torch.Generator().manual_seed(r)
            want = torch.randint(0, 4, (4, 3), generator=generator).to(dtype).to(DEVICE)
            same(gathered[r], want)
            same(out[4 * r : 4 * r + 4], want)
        y = x.clone()
        dist.broadcast(y, SIZE - 1)
        same(y, gathered[SIZE - 1])
        outs = [torch.empty_like(x) for _ in range(SIZE)] if RANK == 1 else None
        dist.gather(x, outs, dst=1)
        if RANK == 1:
            for a, b in zip(outs, gathered):
                same(a, b)
        if hasattr(dist, "gather_single"):  # PyTorch 2.15
            whole = torch.empty((SIZE * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device) if RANK == 1 else None
            dist.gather_single(x, whole, dst=1)
            if RANK == 1:
                same(whole, torch.cat(list(gathered)))
        z = torch.empty_like(x)
        dist.scatter(z, [g.clone() for g in gathered] if RANK == 0 else None, src=0)
        same(z, gathered[RANK])
    uneven = [torch.zeros(r + 1, device=DEVICE) for r in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK), device=DEVICE))
    assert [u.tolist() for u in uneven] == [[float(r)] * (r + 1) for r in range(SIZE)]


def test_reduce_scatter():
    x = fill((SIZE * 3, 2))
    total = other_all_reduce(x)
    out = torch.empty((3, 2), device=DEVICE)
    dist.reduce_scatter_tensor(out, x)
    same(out, total[3 * RANK : 3 * RANK + 3])
    out.zero_()
    dist.reduce_scatter(out, list(x.chunk(SIZE)))
    same(out, total[3 * RANK : 3 * RANK + 3])
    y = fill(11)

    def call(group, y):
        dist.reduce(y, 1, group=group)
        return y if RANK == 1 else torch.zeros(1)

    same(*both(call, y))


def test_all_to_all():
    x = torch.arange(SIZE * 2, device=DEVICE) + 100 * RANK
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    assert out.tolist() == [100 * r + 2 * RANK + i for r in range(SIZE) for i in range(2)]
    splits = [p + 1 for p in range(SIZE)]  # p + 1 rows go to rank p
    x = torch.arange(sum(splits) * 2, device=DEVICE).view(-1, 2) + 100 * RANK
    out = torch.empty((SIZE * (RANK + 1), 2), dtype=x.dtype, device=DEVICE)
    dist.all_to_all_single(out, x, [RANK + 1] * SIZE, splits)
    begin = sum(splits[:RANK])
    assert out[:, 0].tolist() == [100 * r + 2 * (begin + i) for r in range(SIZE) for i in range(RANK + 1)]
    outs = [torch.empty(RANK + 1, device=DEVICE) for _ in range(SIZE)]
    dist.all_to_all(outs, [torch.full((p + 1,), 10.0 * RANK + p, device=DEVICE) for p in range(SIZE)])
    assert [o.tolist() for o in outs] == [[10.0 * r + RANK] * (RANK + 1) for r in range(SIZE)]


def test_point_to_point():
    """Everybody sends to the right first, then receives from the left: large ones too."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for n in (1, 3_000_000):
        x, y = torch.full((n,), float(RANK), device=DEVICE), torch.empty(n, device=DEVICE)
        works = [dist.isend(x, right), dist.irecv(y, left)]
        for work in works:
            work.wait()
        assert y[0].item() == left and y[-1].item() == left
        y.zero_()
        operations = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert y[n // 2].item() == left
    if RANK == 0:
        dist.send(torch.ones(3, device=DEVICE), 1)
    elif RANK == 1:
        y = torch.zeros(3, device=DEVICE)
        dist.recv(y, 0)
        assert y.sum().item() == 3


def test_objects_and_barrier():
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(SIZE)]
    several = [RANK, "from rank 0"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(several, src=0)
    assert several == [0, "from rank 0"]
    dist.barrier()


def test_groups():
    """Overlapping groups, made at different times."""
    first = dist.new_group([0, 1], backend="cpu:solccl,cuda:solccl")
    x = torch.ones(4, device=DEVICE)
    if RANK < 2:
        dist.all_reduce(x, group=first)
        assert x[0].item() == 2
    second = dist.new_group([SIZE - 1, 0], backend="cpu:solccl,cuda:solccl")
    if RANK in (0, SIZE - 1):
        x = torch.ones(4, device=DEVICE)
        dist.all_reduce(x, group=second)
        assert x[0].item() == 2
    if RANK == 0:
        dist.all_reduce(x, group=second)
        dist.all_reduce(x, group=first)
    elif RANK < 2:
        x = torch.ones(4, device=DEVICE)
        if RANK == SIZE - 1:
            dist.all_reduce(x, group=second)
        dist.all_reduce(x, group=first)
    elif RANK == SIZE - 1:
        dist.all_reduce(torch.ones(4, device=DEVICE), group=second)


def test_functional():
    import torch.distributed._functional_collectives as functional

    x = fill((SIZE * 2, 3))
    same(*both(lambda group, x: functional.all_reduce(x, "sum", group) + 0, x))
    same(*both(lambda group, x: functional.all_gather_tensor(x, 0, group) + 0, x))
    total = other_all_reduce(x)
    same(functional.reduce_scatter_tensor(x, "sum", 0, OURS) + 0, total[2 * RANK : 2 * RANK + 2])
    y = functional.all_to_all_single(x, None, None, OURS) + 0
    z = torch.empty_like(x)
    dist.all_to_all_single(z, x)
    same(y, z)


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.norm(x))))


def train(model, device, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * step + RANK)
        x = torch.randn(2, 6, 32, generator=generator).to(device)
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def make_model(device):
    torch.manual_seed(7)
    return nn.Sequential(Block(), Block()).to(device)


def test_ddp():
    from torch.nn.parallel import DistributedDataParallel

    losses = []
    for group, device in ((OURS, DEVICE), (OTHER, CPU)):
        losses.append(train(DistributedDataParallel(make_model(device), process_group=group), device))
    same(*losses, tolerance=EXACT)


def test_fsdp2():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    losses = []
    for group, device in ((OURS, DEVICE), (OTHER, CPU)):
        mesh = DeviceMesh.from_group(group, device.type)
        model = make_model(device)
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses.append(train(model, device))
    same(*losses, tolerance=EXACT)


def test_tensor_parallel():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 24 * SIZE), nn.ReLU(), nn.Linear(24 * SIZE, 16)).to(DEVICE)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    want = model(x)
    mesh = DeviceMesh.from_group(OURS, DEVICE.type)
    split = parallelize_module(copy.deepcopy(model), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    got = split(x)
    same(got, want, EXACT)
    got.sum().backward()
    want.sum().backward()
    full = split[0].weight.grad.full_tensor()
    same(full, model[0].weight.grad, EXACT)


def test_operators():
    comm = solccl.Communicator.from_store(dist.distributed_c10d._get_default_store(), SIZE, RANK, DEVICE.type,
                                          key="operators")
    x = fill((SIZE * 2, 3))
    total = other_all_reduce(x)

    def model(x):
        y = sol.all_reduce(x * 1, comm)
        return y + 1, sol.all_gather(x, comm), sol.reduce_scatter(x, comm), sol.all_to_all(x, comm)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for run in (model, compiled, compiled):
        y, gathered, scattered, exchanged = run(x)
        same(y, total + 1)
        assert gathered.shape == (SIZE, SIZE * 2, 3) and torch.equal(gathered[RANK], x)
        same(scattered, total[2 * RANK : 2 * RANK + 2])
        assert exchanged.shape == x.shape

    def in_place(x):
        y = x * 2
        sol.all_reduce_(y, comm, "max")
        return y

    same(torch.compile(in_place, fullgraph=True, backend="aot_eager")(x), in_place(x))

    def norm(x, residual, weight):
        return sol.all_reduce_rms_norm(x, residual, weight, 1e-6, comm)

    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        part, residual, weight = (fill((4, 64), dtype=dtype), torch.ones(4, 64, dtype=dtype, device=DEVICE),
                                  torch.linspace(1, 2, 64, dtype=dtype, device=DEVICE))
        h = other_all_reduce(part.float()) + residual.float()
        want = torch.nn.functional.rms_norm(h.to(dtype).float(), (64,), weight.float(), 1e-6)
        for run in (norm, torch.compile(norm, fullgraph=True, backend="aot_eager")):
            y, after = run(part, residual, weight)
            assert y.dtype == dtype and torch.equal(after, h.to(dtype))
            assert (y.float() - want).abs().max() <= error * want.abs().max()

    def shard(x, residual, weight):
        return sol.reduce_scatter_rms_norm(x, residual, weight, 1e-6, comm)

    first, end = comm.tokens_of(4)
    for run in (shard, torch.compile(shard, fullgraph=True, backend="aot_eager")):
        mine, kept = run(part, residual[first:end], weight)
        assert torch.equal(mine, y[first:end]) and torch.equal(kept, after[first:end])

    def linear(x, weight):
        return sol.linear_all_reduce(x, weight, comm)

    few, rows = fill((3, 40), dtype=torch.bfloat16), torch.eye(24, 40, dtype=torch.bfloat16, device=DEVICE)
    for run in (linear, torch.compile(linear, fullgraph=True, backend="aot_eager")):
        assert torch.equal(run(few, rows), other_all_reduce(few[:, :24].contiguous()))

    def quantized(x):
        return sol.all_reduce_quantized(x, comm, "float8_e4m3fn")

    whole_part = fill((300,))
    for run in (quantized, torch.compile(quantized, fullgraph=True, backend="aot_eager")):
        y = run(whole_part)
        assert y.dtype == whole_part.dtype and torch.equal(y, quantized(whole_part))
        assert (y - other_all_reduce(whole_part)).abs().max() <= SIZE * whole_part.abs().max() / 8

    def sample(logits):
        return sol.vocab_topk(logits, 3, comm, None, True)

    whole = (torch.arange(2 * 16 * SIZE, device=DEVICE) * 37 % 19).reshape(2, 16 * SIZE).to(torch.bfloat16)
    want, at = whole.float().sort(dim=-1, descending=True, stable=True)
    for run in (sample, torch.compile(sample, fullgraph=True, backend="aot_eager")):
        values, indices, total = run(whole[:, 16 * RANK : 16 * RANK + 16])
        assert torch.equal(values, want[:, :3]) and torch.equal(indices, at[:, :3])
        assert (total - whole.float().logsumexp(-1)).abs().max() < 1e-4
    moe = solccl.Moe(comm, 8, 64, 2, SIZE + 1, torch.bfloat16)
    idx = torch.tensor([[RANK, SIZE], [0, -1], [SIZE - 1, 0 if SIZE > 1 else -1]], device=DEVICE)
    part, weights = fill((3, 64), dtype=torch.bfloat16), torch.full((3, 2), 0.5, device=DEVICE)
    want = part.float() * (idx >= 0).sum(-1, keepdim=True) * 0.5
    kept = moe.empty(part)

    def experts(x):  # they give back what they get
        got = sol.moe_dispatch(x, idx, weights, moe)
        return sol.moe_combine(got.x, torch.empty_like(x), moe)

    def experts_kept(x):
        sol.moe_dispatch(x, idx, weights, moe, kept)
        return sol.moe_combine(kept.x, torch.empty_like(x), moe)

    for f in (experts, experts_kept):
        for run in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
            assert (run(part).float() - want).abs().max() <= 1e-2 * want.abs().max()
    moe.close()
    torch.library.opcheck(torch.ops.solccl.all_reduce.default, (torch.ones(2, device=DEVICE), 0, comm._index),
                          test_utils=("test_schema", "test_faketensor"))
    comm.close()


def halves_twice(halves, parts, residual, weight):
    """Two halves of the tokens: both under way, then both results."""
    for part in parts:
        halves.start(part * 1)  # (kept by the handle alone)
    return [t for _ in parts for t in halves.wait(residual, weight, 1e-6)]


def test_norm_halves():
    comm = solccl.Communicator.from_store(dist.distributed_c10d._get_default_store(), SIZE, RANK, DEVICE.type,
                                          key="halves")
    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        residual = torch.full((4, 64), 0.5, dtype=dtype, device=DEVICE)
        weight = torch.linspace(1, 2, 64, dtype=dtype, device=DEVICE)
        parts = [fill((4, 64), dtype, seed) for seed in (1, 2)]
        wants = [t for part in parts for t in comm.all_reduce_rms_norm(part, residual, weight, 1e-6)]
        h = (other_all_reduce(parts[1].float()) + 0.5).to(dtype).float()
        y = torch.nn.functional.rms_norm(h, (64,), weight.float(), 1e-6)
        halves = solccl.NormHalves(comm, 4, 64, dtype)
        for _ in range(3):
            got = halves_twice(halves, parts, residual, weight)
            assert all(torch.equal(a, b) and a.dtype == dtype for a, b in zip(got, wants, strict=True))
            assert (got[2].float() - y).abs().max() <= error * y.abs().max() and torch.equal(got[3].float(), h)
        if CUDA:
            halves_on_streams(halves, parts, residual, weight, wants)
        halves.close()
    first, end = comm.tokens_of(4)
    with solccl.NormHalves(comm, 4, 64, torch.bfloat16, shards="both") as halves:
        halves.start(parts[0])
        mine, kept = halves.wait(residual[first:end], weight, 1e-6)
        assert torch.equal(mine, wants[0][first:end]) and torch.equal(kept, wants[1][first:end])
        for call in (lambda: halves.wait(None, weight), lambda: halves.start(parts[0].float())):
            try:
                call()
                raise AssertionError("not refused")
            except solccl.Error as error:
                assert "expected sol_norm_start" in str(error) or "float32" in str(error)
    halves = solccl.NormHalves(comm, 4, 64, torch.bfloat16)
    halves.start(parts[0])
    dist.barrier()
    if RANK == 0:
        del halves  # collected while under way: nobody waits for it
    else:
        assert torch.equal(halves.wait(residual, weight, 1e-6)[0], wants[0])
        halves.close()
    if CUDA:
        torch.cuda.synchronize()
    dist.barrier()
    comm.sleep()  # it is no obstacle
    comm.wake()
    same(sol.all_reduce(fill(9), comm), other_all_reduce(fill(9)))
    comm.close()


def halves_on_streams(halves, parts, residual, weight, wants):
    """Starts on a stream of their own; and both halves in a graph, replayed in turns with eager calls."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    for part in parts:
        halves.start(part, stream=side)
    got = [t for _ in parts for t in halves.wait(residual, weight, 1e-6)]
    assert all(torch.equal(a, b) for a, b in zip(got, wants, strict=True))
    torch.cuda.synchronize()
    graph, x = torch.cuda.CUDAGraph(), [torch.zeros_like(part) for part in parts]
    with torch.cuda.graph(graph):
        in_graph = halves_twice(halves, x, residual, weight)
    for _ in range(3):
        for to, part in zip(x, parts):
            to.copy_(part)
        graph.replay()
        got = halves_twice(halves, parts, residual, weight)
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(got, wants, in_graph, strict=True))


def test_compiled_first():
    """Without an eager call before; and another communicator is another graph, not the same one."""
    whole = solccl.Communicator.from_store(dist.distributed_c10d._get_default_store(), SIZE, RANK, DEVICE.type,
                                           key="whole")
    part = whole.split(RANK // 2)
    run = torch.compile(lambda x, comm: sol.all_gather(sol.all_reduce(x * 2, comm), comm), fullgraph=True,
                        backend="aot_eager")
    x = torch.ones(3, device=DEVICE)
    for comm in (whole, part, whole):
        y = run(x, comm)
        assert y.shape == (comm.size, 3) and y.unique().tolist() == [2.0 * comm.size]
    part.close()
    whole.close()


def test_errors():
    try:
        dist.all_reduce(fill(3), dist.ReduceOp.BAND)
        raise AssertionError("not refused")
    except ValueError as error:
        assert "BAND" in str(error)
    x = fill(3)  # the group is as good as before
    dist.all_reduce(x)


def test_graph():
    """Captured, with a side stream; replayed with other data; eager calls between replays."""
    if not CUDA:
        return
    x, y = torch.zeros(100, device=DEVICE), torch.zeros(200_000, device=DEVICE)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        dist.all_reduce(x)
        work = dist.all_reduce(y, async_op=True)
        x.add_(1)
        work.wait()
        y.add_(x[0])
    for i in range(5):
        x.fill_(i)
        y.fill_(RANK)
        graph.replay()
        z = torch.ones(3, device=DEVICE)
        dist.all_reduce(z)
        assert x[7].item() == i * SIZE + 1 and z[0].item() == SIZE
        assert y[-1].item() == SIZE * (SIZE - 1) / 2 + i * SIZE + 1


CASES = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
failed = 0
for case in CASES:
    try:
        case()
        ok = 1
    except Exception:
        traceback.print_exc()
        ok = 0
    everyone = torch.tensor([ok])
    try:
        dist.all_reduce(everyone, dist.ReduceOp.MIN)
    except Exception:
        traceback.print_exc()
        everyone[0] = 0
    if RANK == 0:
        print("ok      " if everyone.item() else "FAILED  ", case.__name__[5:], flush=True)
    failed += 1 - int(everyone.item())
    if not ok:
        os._exit(1)
if RANK == 0:
    print(f"{len(CASES) - failed} passed, {failed} failed")
dist.destroy_process_group()
sys.exit(failed > 0)
