#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on CPU ranks: the "solccl" backend against Gloo, in turns.

    torchrun --nproc-per-node 2 bench/dropin/torch_cpu.py --json rows.jsonl

Of each operation and size: median of 5 rounds' medians of the slower rank, microseconds a call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import solccl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--json")
args = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("cpu:solccl")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"solccl-torch": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}


def calls(op: str, group: dist.ProcessGroup, n: int):
    """A call that moves `n` floats, nccl-tests' count of bytes."""
    x, y = torch.ones(n), torch.ones(n)
    if op == "all_reduce":
        return lambda: dist.all_reduce(x.zero_(), group=group)
    if op == "all_gather":
        part = x[: n // size]
        return lambda: dist.all_gather_into_tensor(y, part, group=group)
    if op == "broadcast":
        return lambda: dist.broadcast(x, 0, group=group)
    return lambda: dist.all_to_all_single(y, x, group=group)


def measure(call, repeat: int) -> float:
    samples = []
    for _ in range(3):
        call()
    for _ in range(9):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(repeat):
            call()
        samples.append((time.perf_counter() - begin) * 1e6 / repeat)
    slow = torch.tensor([statistics.median(samples)], dtype=torch.float64)
    dist.all_reduce(slow, dist.ReduceOp.MAX)
    return slow.item()


for op in ("all_reduce", "all_gather", "broadcast", "all_to_all"):
    for nbytes in (64, 1024, 16384, 65536, 262144, 2097152):
        repeat = 40 if nbytes <= 65536 else 8
        times: dict[str, list[float]] = {name: [] for name in groups}
        for turn in range(5):
            for name in list(groups)[:: 1 if turn % 2 == 0 else -1]:
                times[name].append(measure(calls(op, groups[name], nbytes // 4), repeat))
        if rank == 0:
            us = {name: statistics.median(t) for name, t in times.items()}
            print(f"{op:12} {nbytes:8} solccl {us['solccl-torch']:8.1f} us  gloo {us['gloo']:8.1f} us  "
                  f"{us['gloo'] / us['solccl-torch']:.1f}x", flush=True)
            for name in groups:
                row = {
                    "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "device": f"{os.cpu_count()} CPUs",
                    "versions": {"torch": torch.__version__},
                    "command": f"torchrun --nproc-per-node {size} bench/dropin/torch_cpu.py",
                    "library": name,
                    "api": "torch.distributed",
                    "ranks": size,
                    "processes": size,
                    "op": op,
                    "dtype": "float32",
                    "bytes": nbytes,
                    "mode": "cpu",
                    "us_min": round(min(times[name]), 3),
                    "us_p50": round(us[name], 3),
                }
                if args.json:
                    with open(args.json, "a") as file:
                        file.write(json.dumps(row) + "\n")
dist.destroy_process_group()
