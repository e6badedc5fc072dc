#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nccl-tests prints, as rows of bench/results' format.

    rows.py LIBRARY OP MODE COMMAND... < output >> rows.jsonl

LIBRARY is nccl, or solccl for a run with the drop-in. Out-of-place figures only; `#wrong` of both.
A size that failed to verify, or a run that printed no figures, makes the status 1.
"""

import json
import re
import sys
import time

library, op, mode, *command = sys.argv[1:]
versions, ranks, rows, bad = {}, 0, 0, 0
for line in sys.stdin:
    if "nccl-headers" in line or "NCCL version" in line or "nccl-library" in line:
        found = re.search(r"nccl-library=(\d+)", line)
        if found:
            versions["nccl"] = found.group(1)
    ranks += bool(re.match(r"#\s+Rank\s+\d+", line))
    words = line.split()
    if len(words) < 13 or not words[0].isdigit() or not words[1].isdigit():
        continue
    size, count, dtype, redop = int(words[0]), int(words[1]), words[2], words[3]
    us, wrong = float(words[5]), [w for w in (words[8], words[12]) if w != "N/A"]
    wrong_count = sum(int(float(w)) for w in wrong)
    bad += wrong_count > 0
    rows += 1
    print(
        json.dumps(
            {
                "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "device": f"{ranks} x NVIDIA H200",
                "versions": versions,
                "command": " ".join(command),
                "library": library,
                "api": "nccl-tests",
                "ranks": ranks,
                "processes": 1,
                "op": op,
                "dtype": dtype,
                "redop": redop,
                "in_place": False,
                "bytes": size,
                "count": count,
                "mode": mode,
                "us_p50": us,
                "wrong": wrong_count,
            }
        )
    )
sys.exit(0 if rows > 0 and bad == 0 else 1)
