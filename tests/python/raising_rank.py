# SPDX-License-Identifier: Apache-2.0
"""One rank raises an exception in the middle of a program: the others must end soon, with an error that
names it, and not hang in the collective that it never comes to. With torch.distributed if PyTorch is there
("torch" as argument), else with NumPy arrays.

    python3 raising_rank.py [torch]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

SIZE = 3
USE_TORCH = sys.argv[1:] == ["torch"]


def all_reduce_of(rank: int, folder: str):
    """A function that makes one all_reduce among the ranks."""
    if USE_TORCH:
        import torch
        import torch.distributed as dist

        import solccl.torch  # noqa: F401

        dist.init_process_group("cpu:solccl", init_method=f"file://{folder}/rv", rank=rank, world_size=SIZE)
        return lambda: dist.all_reduce(torch.ones(3))
    import numpy

    import solccl

    os.environ.update(SOLCCL_JOB=folder, SOLCCL_RANK=str(rank), SOLCCL_SIZE=str(SIZE))
    comm = solccl.Communicator.from_env(backend="cpu")
    return lambda: comm.all_reduce(numpy.ones(3))


def run_rank(rank: int, folder: str) -> int:
    all_reduce = all_reduce_of(rank, folder)
    all_reduce()
    if rank == 1:
        raise KeyError("the error that a person wants to see")
    begin = time.monotonic()
    try:
        all_reduce()
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}: {error}")
        return 0 if "rank 1" in str(error) and time.monotonic() - begin < 20 else 1
    return 1


with tempfile.TemporaryDirectory() as folder:
    children = []
    for rank in range(SIZE):
        pid = os.fork()
        if pid == 0:
            try:
                status = run_rank(rank, folder)
            except KeyError as error:
                print(f"rank {rank}: {error}")
                status = 9
            sys.stdout.flush()
            os._exit(status)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
right = sum(code == (9 if rank == 1 else 0) for rank, code in enumerate(codes))
print(f"{right} passed, {SIZE - right} failed")
sys.exit(right != SIZE)
