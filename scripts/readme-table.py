#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the README's tables and plots from bench/results, and nothing that is not there.

usage: scripts/readme-table.py    (from the checkout; rewrites README.md between its markers)
"""
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
COLOURS = {"solccl": "#0072b2", "bound": "#777777"}
PEERS = ["#d55e00", "#009e73", "#cc79a7", "#e69f00"]


def load(name):
    path = ROOT / "bench" / "results" / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def placed(row, place=None):
    """Out of place, but for broadcast, which beside an MPI is measured in place."""
    in_place = bool(row.get("in_place"))
    if place is not None:
        return in_place == place
    return not in_place or row["op"] == "broadcast"


def pick(rows, library, op, dtype, mode=None):
    return {r["bytes"]: r for r in rows
            if r["library"] == library and r["op"] == op and r["dtype"] == dtype
            and placed(r) and (mode is None or r["mode"] == mode)}


def size_name(n):
    for unit, name in ((1 << 20, " M"), (1 << 10, " K")):
        if n >= unit:
            return f"{n // unit}{name}"
    return f"{n} B"


def best_peer(rows, op, dtype, size, ours, place):
    found = [(r["us_p50"], r["library"]) for r in rows
             if r["op"] == op and r["dtype"] == dtype and r["bytes"] == size
             and r["library"] != ours and placed(r, place)]
    return min(found) if found else None


def ratios(rows):
    """How many times faster than the better peer, over ranges of sizes."""
    found = {}
    for own in rows:
        if own["library"] == "solccl" and placed(own):
            peer = best_peer(rows, own["op"], own["dtype"], own["bytes"], "solccl", bool(own.get("in_place")))
            found.setdefault(own["bytes"], []).append(peer[0] / own["us_p50"])
    parts = []
    for least, most in ((8, 256), (512, 4096), (8192, 65536), (1 << 17, 1 << 20), (2 << 20, 16 << 20)):
        some = [q for size, qs in found.items() if least <= size <= most for q in qs]
        parts.append(f"{size_name(least)}–{size_name(most)} {min(some):.1f} to {max(some):.1f}×")
    return ", ".join(parts)


def table(rows, dtype, sizes, mode):
    head = "| bytes | " + " | ".join(OPS) + " |\n|" + "---|" * (len(OPS) + 1) + "\n"
    body = ""
    for size in sizes:
        cells = []
        for op in OPS:
            own = pick(rows, "solccl", op, dtype, mode).get(size)
            if own is None:
                cells.append("–")
                continue
            peer = best_peer(rows, op, dtype, size, "solccl", bool(own.get("in_place")))
            ratio = f" ({peer[0] / own['us_p50']:.1f}×)" if peer else ""
            cells.append(f"{own['us_p50']:.3g}{ratio}")
        body += f"| {size_name(size)} | " + " | ".join(cells) + " |\n"
    return head + body


def plot(series, title, path):
    """Latency against size, both logarithmic; series: [(name, colour, {bytes: us})]."""
    width, height, left, right, top, bottom = 720, 400, 56, 130, 34, 40
    xs = [b for _, _, s in series for b in s]
    ys = [v for _, _, s in series for v in s.values()]
    x0, x1 = math.log2(min(xs)), math.log2(max(xs))
    y0, y1 = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def px(b):
        return left + (math.log2(b) - x0) / (x1 - x0) * (width - left - right)

    def py(v):
        return height - bottom - (math.log10(v) - y0) / (y1 - y0) * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{height}" '
           f'fill="white"/><text x="{left}" y="20" font-size="14">{title}</text>']
    for e in range(y0, y1 + 1):
        y = py(10 ** e)
        out.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** e:g}</text>')
    for e in range(math.ceil(x0), math.floor(x1) + 1, 3):
        out.append(f'<text x="{px(2 ** e):.1f}" y="{height - bottom + 18}" '
                   f'text-anchor="middle">{size_name(2 ** e)}</text>')
    last = []
    for name, colour, s in series:
        points = " ".join(f"{px(b):.1f},{py(s[b]):.1f}" for b in sorted(s))
        dash = ' stroke-dasharray="5 4"' if name == "bound" else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                   f'stroke-width="2"{dash}/>')
        last.append([py(s[max(s)]), name, colour])
    last.sort()
    for i in range(1, len(last)):
        last[i][0] = max(last[i][0], last[i - 1][0] + 14)
    for y, name, colour in last:
        out.append(f'<text x="{width - right + 6}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    out.append("</svg>")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def chart(rows, dtype, mode, title, path):
    own = pick(rows, "solccl", "all_reduce", dtype, mode)
    series = [("solccl", COLOURS["solccl"], {b: r["us_p50"] for b, r in own.items()}),
              ("bound", COLOURS["bound"], {b: r["sol_us"] for b, r in own.items()})]
    names = sorted({r["library"] for r in rows if r["op"] == "all_reduce"} - {"solccl"})
    for name, colour in zip(names, PEERS):
        s = {b: r["us_p50"] for b, r in pick(rows, name, "all_reduce", dtype).items()}
        if s:
            series.append((name, colour, s))
    plot(series, title, path)


def main():
    text = ""
    cpu = load("cpu.jsonl")
    if cpu:
        chart(cpu, "float32", None, "all_reduce, fp32, 2 CPU ranks: µs (p50)",
              ROOT / "docs/img/cpu.svg")
        text += (f"## CPU ranks\n\nµs per operation (p50 of the slower rank), fp32, 2 processes on 2 "
                 f"cores of {cpu[0]['machine'].split(',')[0]}; in brackets how many times faster than "
                 "the better of Open MPI and MPICH in the same run. A shared virtual machine: compare "
                 "the ratios. `make bench` makes these rows, "
                 "[bench/results/cpu.jsonl](bench/results/cpu.jsonl).\n\n")
        text += table(cpu, "float32", [8, 64, 512, 4096, 32768, 262144, 2 << 20, 16 << 20], None)
        text += "\n![all_reduce on 2 CPU ranks](docs/img/cpu.svg)\n\n"
    other = load("cpu-emerald-rapids.jsonl")
    if other:
        text += ("The same on 2 cores of Intel Emerald Rapids "
                 "([bench/results/cpu-emerald-rapids.jsonl](bench/results/cpu-emerald-rapids.jsonl)), least and most "
                 f"over the five operations, fp32 and bf16: {ratios(other)}.\n\n")
    gpu = load("h200x2.jsonl")
    if gpu:
        chart(gpu, "bfloat16", "graph", "all_reduce, bf16, 2 × H200, CUDA graph: µs (p50)",
              ROOT / "docs/img/h200x2.svg")
        text += ("## GPU ranks\n\nµs per operation (p50 of the slower rank), bf16, 2 × H200, one process "
                 "a GPU, inside CUDA graphs, without dependent launch; in brackets how many times faster "
                 "than the best peer measured beside it (NCCL, NCCL with symmetric windows; for "
                 "all_reduce also FlashInfer's and vLLM's kernels, with dependent launch). With "
                 "dependent launch between operations ours take 0.3 to 0.5 µs less: "
                 "0.85 to 1.03 times the speed-of-light bound to 4 KB. Rows: "
                 "[bench/results/h200x2.jsonl](bench/results/h200x2.jsonl); what is not at its goal yet: "
                 "[bench/NOTES.md](bench/NOTES.md).\n\n")
        text += table(gpu, "bfloat16", [256, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20,
                                        16 << 20], "graph")
        text += "\n![all_reduce on 2 GPUs](docs/img/h200x2.svg)\n\n"
    readme = ROOT / "README.md"
    begin, end = "<!-- table:begin -->\n", "<!-- table:end -->"
    before, rest = readme.read_text().split(begin)
    after = rest.split(end)[1]
    readme.write_text(before + begin + text + end + after)


if __name__ == "__main__":
    main()
