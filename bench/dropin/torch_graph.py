#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on GPUs: a captured graph, eager calls, and a small model.

    torchrun --nproc-per-node 2 bench/dropin/torch_graph.py --way nccl --json rows.jsonl
    LD_PRELOAD=libsolccl-nccl.so torchrun ... --way dropin
    torchrun ... --way backend        # the "solccl" backend and the operators

Every way runs the same program on the same data. Rank 0 appends rows of bench/results' format: the
time of one all_reduce inside a graph of 20 (the slower rank's median of 60 replays), the host's time
of an eager call, and, of the model, losses and tokens, which `--compare` of another run must equal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--way", choices=("nccl", "dropin", "backend"), required=True)
parser.add_argument("--json", required=True)
parser.add_argument("--model", help="file for the model's losses and tokens")
parser.add_argument("--compare", help="such a file of another way")
args = parser.parse_args()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
if args.way == "backend":
    import solccl
    import solccl.torch

    dist.init_process_group("cpu:solccl,cuda:solccl")
    solccl.torch.connect()
else:
    dist.init_process_group("nccl", device_id=device)
torch.set_grad_enabled(False)

CALLS, REPLAYS = 20, 60
rows = []


def slowest(us: float) -> float:
    """The slower rank's."""
    both = torch.tensor([us], device=device, dtype=torch.float64)
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return both.item()


def row(name: str, mode: str, nbytes: int, us: list[float], wrong: int) -> None:
    us.sort()
    rows.append(
        {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "device": f"{size} x {torch.cuda.get_device_name()}",
            "versions": {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))},
            "command": f"torchrun --nproc-per-node {size} bench/dropin/torch_graph.py --way {args.way}",
            "library": {"nccl": "nccl", "dropin": "solccl", "backend": "solccl-torch"}[args.way],
            "api": name,
            "ranks": size,
            "processes": size,
            "op": "all_reduce",
            "dtype": "bfloat16",
            "redop": "sum",
            "in_place": True,
            "bytes": nbytes,
            "mode": mode,
            "us_min": round(us[0], 3),
            "us_p50": round(slowest(statistics.median(us)), 3),
            "us_p99": round(us[int(len(us) * 0.99)], 3),
            "wrong": wrong,
        }
    )


def in_a_graph(name: str, call, nbytes: int) -> None:
    x = torch.zeros(nbytes // 2, dtype=torch.bfloat16, device=device)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(x)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            call(x)
    x.fill_(1)
    graph.replay()
    # 1 doubles in each call, until bfloat16 is full; both ranks have the same
    wrong = int((x != float(size) ** CALLS).sum().item())
    x.zero_()
    times = []
    for i in range(REPLAYS + 10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 10:
            times.append(begin.elapsed_time(end) * 1000 / CALLS)
    row(name, "graph", nbytes, times, wrong)
    times = []
    for i in range(40):  # the host's part: too few at once to fill the queue
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            call(x)
        times.append((time.perf_counter() - start) * 1e6 / 20)
    row(name, "eager-host", nbytes, times[5:], 0)


ways = {"torch.distributed": lambda x: dist.all_reduce(x)}
if args.way == "backend":
    comm = dist.group.WORLD.comm(device)
    ways["solccl.Communicator"] = lambda x: comm.all_reduce(x, x)
    ways["solccl.torch.all_reduce_"] = lambda x: solccl.torch.all_reduce_(x, comm)
for name, call in ways.items():
    for nbytes in (256, 4096, 16384, 65536, 262144, 1048576):
        in_a_graph(name, call, nbytes)


# ---------------------------------------------------------------- a model that generates, tensor-parallel


class Layer(nn.Module):
    """Half of each matrix on each rank; two all_reduces a token, as in inference engines."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()

        def part(rows: int, columns: int, dim: int) -> nn.Parameter:
            whole = torch.randn(rows, columns, generator=generator) / rows**0.5
            return nn.Parameter(whole.chunk(size, dim)[rank].contiguous().to(device, torch.bfloat16))

        self.a, self.b = part(width, width, 1), part(width, width, 0)
        self.up, self.down = part(width, 4 * width, 1), part(4 * width, width, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.rms_norm(x, x.shape[-1:]) @ self.a @ self.b
        dist.all_reduce(y)
        x = x + y
        y = torch.relu(torch.nn.functional.rms_norm(x, x.shape[-1:]) @ self.up) @ self.down
        dist.all_reduce(y)
        return x + y


def generate() -> list[int]:
    """Greedy tokens of a captured decode step."""
    generator = torch.Generator().manual_seed(5)
    width, vocabulary, batch = 1024, 4096, 4
    layers = [Layer(width, generator) for _ in range(8)]
    embedding = torch.randn(vocabulary, width, generator=generator).to(device, torch.bfloat16)
    token = torch.arange(batch, device=device)
    hidden = torch.zeros(batch, width, dtype=torch.bfloat16, device=device)

    def step() -> None:
        hidden.mul_(0.5).add_(embedding[token])
        x = hidden
        for layer in layers:
            x = layer(x)
        token.copy_((x @ embedding.t()).float().argmax(-1))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
    token.copy_(torch.arange(batch, device=device))
    hidden.zero_()
    tokens, times = [], []
    for _ in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        tokens += token.tolist()
        times.append(begin.elapsed_time(end) * 1000)
    if rank == 0:
        print(f"{args.way}: decode step of 8 layers, batch {batch}: {statistics.median(times[10:]):.1f} us")
    return tokens


def train() -> list[float]:
    """Losses of data-parallel training in float32."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(device)
    parallel = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    losses = []
    for step in range(10):
        generator = torch.Generator().manual_seed(97 * step + rank)
        x = torch.randn(32, 256, generator=generator).to(device)
        loss = ((parallel(x) - x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


result = {"tokens": generate()}
with torch.enable_grad():
    result["losses"] = train()
if rank == 0:
    with open(args.json, "a") as file:
        for r in rows:
            file.write(json.dumps(r) + "\n")
            print(f"{args.way:8} {r['api']:26} {r['mode']:10} {r['bytes']:8} {r['us_p50']:8.2f} us  wrong {r['wrong']}")
    if args.model:
        with open(args.model, "w") as file:
            json.dump(result, file)
    if args.compare:
        other = json.load(open(args.compare))
        tokens = sum(a != b for a, b in zip(other["tokens"], result["tokens"]))
        loss = max(abs(a - b) / abs(b) for a, b in zip(other["losses"], result["losses"]))
        print(f"{args.way}: of {len(result['tokens'])} tokens {tokens} differ; losses differ by {loss:.1e} at most")
dist.destroy_process_group()
