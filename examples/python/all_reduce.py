#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sum a NumPy array over ranks.

    solccl run -n 4 python3 examples/python/all_reduce.py
    torchrun --no-python --nproc-per-node 4 python3 examples/python/all_reduce.py
"""

import numpy

import solccl

with solccl.Communicator.from_env(backend="cpu") as comm:
    mine = numpy.full(4, comm.rank + 1, dtype=numpy.float32)
    total = comm.all_reduce(mine)
    expected = comm.size * (comm.size + 1) / 2
    assert (total == expected).all(), total
    if comm.rank == 0:
        print(f"{comm.size} ranks: {total}")
