# SPDX-License-Identifier: Apache-2.0
"""What one rank of a test does with its cases; part of numpy_ranks.py and fast_ranks.py."""

import os
import sys
import traceback

import numpy as np


def run_cases(comm, cases):
    """Runs the functions of `cases` on all ranks and exits. A case has passed where it has on every
    rank; a rank whose case failed ends at once, which ends the others. Rank 0 prints the sum."""
    failed = 0
    for case in cases:
        try:
            case()
            ok = 1
        except Exception:
            traceback.print_exc()
            ok = 0
        everyone = int(comm.all_reduce(np.array([ok]), op="min")[0]) if ok else 0
        if comm.rank == 0:
            print("ok      " if everyone else "FAILED  ", case.__name__[5:], flush=True)
        failed += 1 - everyone
        if not ok:
            os._exit(1)
    if comm.rank == 0:
        print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
