# SPDX-License-Identifier: Apache-2.0
"""Context-parallel decode: a long context split over ranks, its partial softmaxes merged.

Each rank holds 1/N of the keys and values of every layer and attends to them with all heads. What
it finds for a head is an output and the logarithm of its sum of exponents; rank r merges those of
its own 1/N of the heads: one all_to_all of batch x heads x (dim + 1) elements in fp32, 33 KB a
sequence at 64 heads of 128. The output projection is split by heads, and an all_reduce follows it.
Those are the two small collectives of a layer; a step of all layers is one CUDA graph.

    torchrun --nproc-per-node 2 bench/apps/context.py --model 70b --context 131072 --ways nccl,solccl
    torchrun --nproc-per-node 2 bench/apps/context.py --device cpu --model tiny --ways gloo,solccl

Writes one JSON line per way and context to stdout on rank 0. `error` is the largest difference of
the first layer's attention from that of one rank with the whole context in fp32, over its largest
element; `wrong` counts elements of the last layer's output that differ in a bit from the first
way's.
"""

import argparse
import datetime
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ways import launched, make_ways, quantile, start, versions

#         hidden heads kv  dim  layers
SHAPES = {
    "tiny": (256, 8, 4, 32, 4),
    "small": (576, 12, 4, 48, 30),
    "8b": (4096, 32, 8, 128, 32),
    "70b": (8192, 64, 8, 128, 80),
}


def partial_attention(q, keys, values):
    """Outputs and log-sum-exps, fp32, of q [batch, kv, group, dim] over this rank's context."""
    if q.device.type == "cuda":
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, keys, values)[:2]
    else:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, keys, values)
    return out.float(), lse.float()


def pack(out, lse, ranks):
    """[ranks, batch, heads / ranks, dim + 1]: what each rank merges, contiguous."""
    both = torch.cat((out, lse.unsqueeze(-1)), -1).flatten(1, 2)
    batch, heads, width = both.shape
    return both.view(batch, ranks, heads // ranks, width).transpose(0, 1).contiguous()


def merge(parts):
    """The softmax over the whole context from [ranks, batch, heads, dim + 1]."""
    out, lse = parts[..., :-1], parts[..., -1:]
    weight = torch.exp(lse - lse.amax(0, keepdim=True))
    return (out * weight).sum(0) / weight.sum(0)


class Model:
    """Queries, this rank's share of the caches, and output projections of all layers."""

    def __init__(self, options, rank, ranks, device):
        hidden, self.heads, self.kv, self.dim, layers = SHAPES[options.model]
        self.ranks, self.layers = ranks, min(options.layers or layers, layers)
        self.published = layers
        if self.heads % ranks or options.context % ranks:
            raise SystemExit(f"heads and context must be multiples of {ranks}")
        self.dtype = getattr(torch, options.dtype)
        make = torch.Generator(device=device)

        def random(seed, *size, scale=1.0):
            make.manual_seed(seed)
            whole = torch.empty(size, device=device, dtype=self.dtype)
            return whole.normal_(0, scale, generator=make)

        mine = self.heads // ranks * self.dim
        self.query, self.project, self.cache = [], [], []
        for layer in range(self.layers):
            self.query.append(random(layer, self.heads * self.dim, hidden, scale=hidden**-0.5))
            o = random(1000 + layer, hidden, self.heads * self.dim, scale=(2 * hidden) ** -0.5)
            self.project.append(o[:, rank * mine : (rank + 1) * mine].contiguous())
            size = (2, options.batch, self.kv, options.context // ranks, self.dim)
            self.cache.append(random(2000 + layer * ranks + rank, *size))
        self.x = random(7, options.batch, hidden)
        self.y = torch.empty_like(self.x)
        self.partial, self.pack, self.merge = partial_attention, pack, merge

    def split(self, layer, x):
        """Queries of all heads, grouped by the head of keys that they share."""
        q = F.linear(x, self.query[layer])
        return q.view(x.shape[0], self.kv, self.heads // self.kv, self.dim)

    def attend(self, way, layer, x):
        """This rank's heads' attention to the whole context: [batch, heads / ranks, dim]."""
        out, lse = self.partial(self.split(layer, x), *self.cache[layer])
        parts = self.pack(out, lse, self.ranks)
        return self.merge(way.all_to_all(parts))

    def step(self, way):
        x = self.x
        for layer in range(self.layers):
            mine = self.attend(way, layer, x).to(self.dtype).flatten(1)
            x = x + way.all_reduce(F.linear(mine, self.project[layer]))
        self.y.copy_(x)

    def error(self, way, group):
        """The first layer's attention against one rank's with the whole context, in fp32."""
        mine = self.attend(way, 0, self.x)
        every = [None] * self.ranks
        dist.all_gather_object(every, self.cache[0].float().cpu(), group=group)
        keys, values = torch.cat(every, 3)
        q = self.split(0, self.x).float().cpu()
        scores = (q @ keys.transpose(-1, -2)) * self.dim**-0.5
        whole = (scores.softmax(-1) @ values).flatten(1, 2)
        per = self.heads // self.ranks
        whole = whole[:, dist.get_rank() * per : (dist.get_rank() + 1) * per]
        return ((mine.cpu() - whole).abs().max() / whole.abs().max()).item()


class Run:
    """One way's step, as a graph where there are GPUs."""

    def __init__(self, way, model, cuda):
        self.way, self.model, self.times, self.graph = way, model, [], None
        if cuda:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    model.step(way)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                model.step(way)
        self.once()
        self.result = model.y.clone()

    def once(self):
        if self.graph:
            self.graph.replay()
        else:
            self.model.step(self.way)

    def sample(self, steps, group):
        dist.barrier(group=group)
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.once()
            if self.graph:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
        slowest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
        self.times += slowest.tolist()


def row(run, first, local, model, options, errors):
    cuda = run.graph is not None
    result = {
        "run": options.run,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": f"{model.ranks} x {torch.cuda.get_device_name()}" if cuda else "CPU",
        "versions": versions(),
        "command": launched("context.py", sys.argv[1:]),
        "library": run.way.name,
        "ranks": model.ranks,
        "processes": model.ranks,
        "op": "app-context",
        "dtype": options.dtype,
        "bytes": options.batch * model.heads * (model.dim + 1) * 4,
        "mode": "graph" if cuda else "eager",
        "us_min": round(min(run.times), 2),
        "us_p50": round(statistics.median(run.times), 2),
        "us_p99": round(quantile(run.times, 0.99), 2),
        "samples": len(run.times),
        "model": options.model,
        "layers": model.layers,
        "layers_published": model.published,
        "batch": options.batch,
        "context": options.context,
    }
    if local is not None and run is not local:
        result["local_us"] = round(statistics.median(local.times), 2)
    if run is not local:
        result["error"] = float(f"{errors[run]:.3g}")
        result["wrong"] = int((run.result != first.result).sum())
    print(json.dumps(result), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="8b")
    parser.add_argument("--layers", type=int, default=0, help="0: as many as published")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int, default=8192, help="tokens, of all ranks together")
    parser.add_argument("--ways", default="nccl,solccl,local")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--steps", type=int, default=30, help="steps a turn")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main():
    options = arguments()
    device, group = start(options.device)
    cuda, rank, ranks = options.device == "cuda", dist.get_rank(), dist.get_world_size()
    options.run = datetime.datetime.now(datetime.timezone.utc).strftime("context-%Y%m%dT%H%M%S")
    with torch.no_grad():
        model = Model(options, rank, ranks, device)
        if cuda:
            model.pack = torch.compile(pack, dynamic=False)
            model.merge = torch.compile(merge, dynamic=False)
        runs = [Run(w, model, cuda) for w in make_ways(options.ways, options.device, ranks)]
        errors = {r: model.error(r.way, group) for r in runs if r.way.name != "local"}
        for turn in range(options.rounds):
            for i in range(len(runs)):
                runs[(turn + i) % len(runs)].sample(options.steps, group)
    if rank == 0:
        local = next((r for r in runs if r.way.name == "local"), None)
        first = next(r for r in runs if r is not local)
        for run in runs:
            row(run, first, local, model, options, errors)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
