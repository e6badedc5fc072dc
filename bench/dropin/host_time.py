#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs the host in Python, layer by layer.

    python3 bench/dropin/host_time.py                  # one CPU rank: nobody to wait for
    torchrun --nproc-per-node 2 bench/dropin/host_time.py --device cuda
    python3 bench/dropin/host_time.py --device cuda --one-gpu    # one process, one GPU

An 8-byte all_reduce: the library's function through ctypes, the Communicator's method, the
operators with and without PyTorch's dispatcher, torch.distributed over the "solccl" backend, and
over Gloo or NCCL beside it. Ways take turns; a figure is the least of the rounds' means, in us:
on CPU ranks of the whole call, on GPUs of the enqueueing alone (each round ends with a wait that is
not timed).

With --one-gpu this process has both ranks of a communicator on its GPU: a round's calls of rank 0 are
enqueued and timed, then those of rank 1 are enqueued, and both waited for. So rank 0's kernels queue up
behind one that waits. torch.distributed has one rank a process: there it is a group of one. The floor is
timed beside it: launches of an empty kernel and of PyTorch's own, behind a waiting kernel too.
"""

import argparse
import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist

import solccl
import solccl.torch as ops
from solccl._library import fast, lib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--calls", type=int, default=500, help="calls a round")
parser.add_argument("--rounds", type=int, default=40)
parser.add_argument("--one-gpu", action="store_true", help="both ranks in this process, on one GPU")
options = parser.parse_args()
if options.one_gpu:
    if options.device != "cuda" or int(os.environ.get("WORLD_SIZE", "1")) != 1:
        parser.error("--one-gpu wants --device cuda, and no launcher")
    options.calls = min(options.calls, 200)  # the driver's queue takes about 1000 launches: no more fit
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


def two_ranks():
    """Both ranks of a communicator on this device. Rank 1 joins on a thread of its own."""
    id, made = solccl.unique_id(), []

    def join():
        torch.cuda.set_device(device)
        made.append(solccl.Communicator.from_id(id, 2, 1, "cuda", timeout=20))

    thread = threading.Thread(target=join)
    thread.start()
    comm = solccl.Communicator.from_id(id, 2, 0, "cuda", timeout=20)
    thread.join()
    return comm, made[0]


EMPTY = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n\0"


def launch_empty():
    """What launches an empty kernel, as plainly as ctypes can: cuLaunchKernel, its arguments made before."""
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    for error in (driver.cuModuleLoadData(ctypes.byref(module), EMPTY),
                  driver.cuModuleGetFunction(ctypes.byref(function), module, b"empty")):
        assert error == 0, f"error {error} of the driver"
    one, zero, none = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_void_p()
    arguments = (function, one, one, one, one, one, one, zero, ctypes.c_void_p(stream), none, none)
    return lambda: driver.cuLaunchKernel(*arguments)


if options.one_gpu:
    torch.cuda.set_stream(torch.cuda.Stream())  # (the default stream waits for all others)
    comm, other_rank = two_ranks()
else:
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
if options.one_gpu:
    there = torch.cuda.Stream().cuda_stream
    far_x, far_y = torch.ones(2, device=device), torch.empty(4, device=device)
    far = (far_x.data_ptr(), far_y.data_ptr(), 2, 8)

    def partner(name, calls):
        """Rank 1's part of what rank 0 has enqueued; of a group of one nothing is left to do."""
        for _ in range(0 if "distributed" in name or "idle" in name else 1 if "behind" in name else calls):
            if "all_gather" in name:
                status = lib.sol_all_gather(*far, other_rank._handle, there)
            else:
                status = lib.sol_all_reduce(*far, 0, other_rank._handle, there)
            assert status == 0, name

    empty = launch_empty()
    WAYS.update({
        "no launch: sol_version, through ctypes": lib.sol_version,
        "an empty kernel through ctypes, idle stream": empty,
        "an empty kernel through ctypes, behind a wait": empty,
        "x.zero_(), idle stream": x.zero_,
        "x.zero_(), behind a wait": x.zero_,
    })
    torch.cuda.synchronize()
best = dict.fromkeys(WAYS, float("inf"))
with torch.no_grad():
    for turn in range(options.rounds):
        for name, call in WAYS.items():
            calls = options.calls if turn else 20
            if "behind" in name:
                lib.sol_all_reduce(send, recv, 2, 8, 0, handle, stream)
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            took = (time.perf_counter() - begin) / calls
            if options.one_gpu and "no launch" not in name:
                partner(name, calls)
            if cuda:
                torch.cuda.synchronize()
            if turn:
                best[name] = min(best[name], took * 1e6)
if dist.get_rank() == 0:
    print(f"# torch {torch.__version__}, {torch.cuda.get_device_name() if cuda else 'CPU'}, "
          f"{'with' if fast else 'without'} the extension")
    for name, us in best.items():
        alone = options.one_gpu and "distributed" in name
        print(f"{us:8.2f}  {name}{', a group of one' if alone else ''}")
comm.close()
if options.one_gpu:
    other_rank.close()
dist.destroy_process_group()
