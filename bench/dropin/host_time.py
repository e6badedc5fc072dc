#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs the host in Python, layer by layer.

    python3 bench/dropin/host_time.py                  # one CPU rank: nobody to wait for
    torchrun --nproc-per-node 2 bench/dropin/host_time.py --device cuda

An 8-byte all_reduce: the library's function through ctypes, the Communicator's method, the
operators with and without PyTorch's dispatcher, torch.distributed over the "solccl" backend, and
over Gloo or NCCL beside it. Ways take turns; a figure is the least of the rounds' means, in us:
on CPU ranks of the whole call, on GPUs of the enqueueing alone (each round ends with a wait that is
not timed).
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

import solccl
import solccl.torch as ops
from solccl._library import lib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--calls", type=int, default=500, help="calls a round")
parser.add_argument("--rounds", type=int, default=40)
options = parser.parse_args()
for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"),
                    ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29541")):
    os.environ.setdefault(name, value)
cuda = options.device == "cuda"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
torch.set_num_threads(1)
dist.init_process_group("cpu:solccl,cuda:solccl")
ops.connect(device=device)
other_name = "nccl" if cuda else "gloo"
other = dist.new_group(backend=other_name)
comm = solccl.Communicator.from_store(
    dist.distributed_c10d._get_default_store(), dist.get_world_size(), dist.get_rank(), options.device)
x, y = torch.ones(2, device=device), torch.empty(2, device=device)
rows = torch.ones(2, 2, device=device)
stream = torch.cuda.current_stream().cuda_stream if cuda else None
handle, send, recv = comm._handle, x.data_ptr(), y.data_ptr()
index = comm._index
world = dist.group.WORLD

WAYS = {
    "sol_all_reduce, through ctypes": lambda: lib.sol_all_reduce(send, recv, 2, 8, 0, handle, stream),
    "Communicator.all_reduce(x, y)": lambda: comm.all_reduce(x, y),
    "Communicator.all_reduce(x), a new tensor": lambda: comm.all_reduce(x),
    "Communicator.all_gather(x)": lambda: comm.all_gather(x),
    "solccl.torch.all_reduce(x)": lambda: ops.all_reduce(x, comm),
    "solccl.torch.all_reduce_(x)": lambda: ops.all_reduce_(x, comm),
    "solccl.torch.all_gather(x)": lambda: ops.all_gather(x, comm),
    "torch.ops.solccl.all_reduce(x)": lambda: torch.ops.solccl.all_reduce(x, 0, index),
    "torch.distributed.all_reduce, solccl": lambda: dist.all_reduce(x, group=world),
    "torch.distributed.all_reduce async, solccl": lambda: dist.all_reduce(x, group=world, async_op=True).wait(),
    "torch.distributed.all_gather_into_tensor, solccl":
        lambda: dist.all_gather_into_tensor(rows[: dist.get_world_size()], x[None], group=world),
    f"torch.distributed.all_reduce, {other_name}": lambda: dist.all_reduce(x, group=other),
}
if dist.get_world_size() != 2:
    del WAYS["torch.distributed.all_gather_into_tensor, solccl"]
best = dict.fromkeys(WAYS, float("inf"))
with torch.no_grad():
    for turn in range(options.rounds):
        for name, call in WAYS.items():
            calls = options.calls if turn else 20
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            took = (time.perf_counter() - begin) / calls
            if cuda:
                torch.cuda.synchronize()
            if turn:
                best[name] = min(best[name], took * 1e6)
if dist.get_rank() == 0:
    for name, us in best.items():
        print(f"{us:8.2f}  {name}")
comm.close()
dist.destroy_process_group()
