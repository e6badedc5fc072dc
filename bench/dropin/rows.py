#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nccl-tests prints, as rows of bench/results' format.

    rows.py LIBRARY OP MODE COMMAND... < output >> rows.jsonl

LIBRARY is nccl, or solccl for a run with the drop-in. Out-of-place figures only; `#wrong` of both.
A size that failed to verify, or a run that printed no figures, makes the status 1.

    rows.py --compare rows.jsonl

prints, for each operation and mode that both libraries have, the least and the mean of NCCL's time
over ours, and every size at which ours took more than 3% longer.
"""

import json
import math
import re
import sys
import time



def compare(path):
    took = {}
    with open(path) as file:
        for line in file:
            r = json.loads(line)
            if r.get("api") == "nccl-tests":
                took.setdefault((r["op"], r["mode"]), {}).setdefault(r["bytes"], {})[r["library"]] = r["us_p50"]
    for (op, mode), sizes in sorted(took.items()):
        ratios = {b: t["nccl"] / t["solccl"] for b, t in sizes.items() if len(t) == 2}
        if ratios:
            mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
            slower = [f"{b} bytes {r:.2f}x" for b, r in sorted(ratios.items()) if r < 0.97]
            print(f"{op} {mode}: {min(ratios.values()):.2f}x at least, {mean:.2f}x in the mean"
                  + (f"; SLOWER: {', '.join(slower)}" if slower else ""))


if sys.argv[1] == "--compare":
    compare(sys.argv[2])
    sys.exit(0)
library, op, mode, *command = sys.argv[1:]
versions, processes, ranks, rows, bad = {}, set(), 0, 0, 0
for line in sys.stdin:
    if "nccl-headers" in line or "NCCL version" in line or "nccl-library" in line:
        found = re.search(r"nccl-library=(\d+)", line)
        if found:
            versions["nccl"] = found.group(1)
    found = re.match(r"#\s+Rank\s+\d+.*\bPid\s+(\d+)", line)
    ranks += bool(found)
    processes.update(found.groups() if found else ())
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
                "processes": len(processes),
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
