# SPDX-License-Identifier: Apache-2.0
"""Token generation, tensor parallel: what a collective is worth in time between tokens.

A Llama-shaped decoder (grouped-query attention, gated feed-forward), its weights split over the
ranks as engines split them: two all_reduces a layer, one small all_gather for the next token. The
models with experts (8x7b, 30b-a3b) choose top_k of them for each token; every rank has its share of
every expert, so that communication is the same and tokens stay where they are. A whole step, sampling included, is one CUDA graph. The same weights and the same step run with each
way to communicate, in turns, and the tokens must be equal:

    nccl      torch.distributed over NCCL (label it with --label when another library stands before)
    solccl    solccl's operators
    fused     solccl's all_reduce + residual + norm as one operator
    local     no communication at all: what is left if it took no time (its tokens mean nothing)

On CPU ranks (--device cpu) `gloo` takes nccl's place and steps run eagerly; `mpi` is the MPI that
mpi4py was built for, if mpirun has started this.

    torchrun --nproc-per-node 2 bench/apps/decode.py --model 70b --batch 1,8,64 --ways nccl,solccl
    mpirun -n 2 python3 bench/apps/decode.py --device cpu --model 1b --ways gloo,mpi,solccl

--trace looks for the first place where two ways differ in a bit, in place of timing them: it keeps
what goes into and comes out of every reduction. A difference between what went in says that the
model's own kernels differ (--no-compile leaves torch.compile out of it); one between what came out
of equal inputs is the library's.

Writes one JSON line per way, batch and context to stdout on rank 0.
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
from ways import Local, launched, make_ways, quantile, start, versions

#         hidden heads kv  dim  inner  layers vocab
SHAPES = {
    "tiny": (256, 8, 4, 32, 704, 4, 1024),
    "small": (576, 12, 4, 48, 1536, 30, 49152),
    "1b": (2048, 32, 8, 64, 8192, 16, 128256),
    "8b": (4096, 32, 8, 128, 14336, 32, 128256),
    "70b": (8192, 64, 8, 128, 28672, 80, 128256),
    "tiny-moe": (256, 8, 4, 32, 96, 4, 1024),
    "8x7b": (4096, 32, 8, 128, 14336, 32, 32000),
    "30b-a3b": (2048, 32, 4, 128, 768, 48, 151936),
}
EXPERTS = {"tiny-moe": (8, 2), "8x7b": (8, 2), "30b-a3b": (128, 8)}  # of a layer, and of a token
ROPE_BASE = 500000.0


class Shape:
    """The published shape of a model and this rank's share of it."""

    def __init__(self, name, layers, ranks):
        self.name = name
        hidden, heads, kv, self.dim, inner, published, vocab = SHAPES[name]
        self.hidden, self.published = hidden, published
        self.layers = min(layers, published) if layers else published
        for what, value in (("heads", heads), ("kv heads", kv), ("inner", inner), ("vocab", vocab)):
            if value % ranks:
                raise SystemExit(f"{name}: {value} {what} cannot be split over {ranks} ranks")
        self.heads, self.kv = heads // ranks, kv // ranks
        self.inner, self.vocab = inner // ranks, vocab // ranks
        self.experts, self.top_k = EXPERTS.get(name, (0, 0))


def gate(both):
    """The gated activation of a feed-forward layer."""
    left, right = both.chunk(2, -1)
    return F.silu(left) * right


def route(x, router, top_k):
    """Which experts each token goes to, and with which weights: [tokens, top_k] twice."""
    scores = F.linear(x, router).float().softmax(-1)
    weights, chosen = scores.topk(top_k, -1)
    return chosen, weights / weights.sum(-1, keepdim=True)


def mix(rows, weights, order):
    """The weighted sum of each token's rows, which come in the order of their experts: [tokens, h]."""
    back = torch.empty_like(rows).index_copy_(0, order, rows).view(weights.shape + rows.shape[-1:])
    return (back.float() * weights.unsqueeze(-1)).sum(1).to(rows.dtype)


def rotate(x, cos, sin):
    """Rotary position embedding; x is batch, heads, dim."""
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Traced:
    """A way, and what its reductions of one step were given and gave."""

    def __init__(self, way):
        self.way, self.name, self.kept = way, way.name, []
        self.norm, self.all_gather = way.norm, way.all_gather

    def reduce_add_norm(self, x, residual, weight):
        given = (x.clone(), residual.clone())
        gave = self.way.reduce_add_norm(x, residual, weight)
        self.kept.append(given + tuple(t.clone() for t in gave))
        return gave

    def take(self):
        """What was kept, on the host. A graph's tensors stay the same from replay to replay."""
        return [[t.cpu() for t in call] for call in self.kept]


# ------------------------------------------------------------------------------- model


class Decoder:
    """One rank's weights and caches, and a step over them with a given way to communicate."""

    def __init__(self, shape, rank, device, dtype, seed):
        self.shape, self.rank, self.device, self.dtype = shape, rank, device, dtype
        make = torch.Generator(device=device)
        make.manual_seed(seed)  # the same on all ranks: embedding and norms are whole everywhere
        h = shape.hidden

        def random(*size, scale):
            return torch.empty(size, device=device, dtype=dtype).normal_(0, scale, generator=make)

        self.embedding = random(shape.vocab * dist.get_world_size(), h, scale=1.0)
        make.manual_seed(seed + 1 + rank)
        qkv = (shape.heads + 2 * shape.kv) * shape.dim
        many = (shape.experts,) if shape.experts else ()
        self.layers = [
            {
                "qkv": random(qkv, h, scale=h**-0.5),
                "o": random(h, shape.heads * shape.dim, scale=h**-0.5),
                "up": random(*many, 2 * shape.inner, h, scale=h**-0.5),
                "down": random(*many, h, shape.inner, scale=(4 * h) ** -0.5),
                "norm1": torch.ones(h, device=device, dtype=dtype),
                "norm2": torch.ones(h, device=device, dtype=dtype),
            }
            for _ in range(shape.layers)
        ]
        self.norm = torch.ones(h, device=device, dtype=dtype)
        self.head = random(shape.vocab, h, scale=h**-0.5)
        make.manual_seed(seed + 1000)  # as whole as the embedding: ranks must choose alike
        for layer in self.layers if shape.experts else ():
            layer["router"] = random(shape.experts, h, scale=h**-0.5)
        self.every = torch.arange(shape.experts, device=device)
        self.gate, self.rotate, self.route, self.mix = gate, rotate, route, mix

    def caches(self, batch, context):
        """Fill the caches of a context that has been read, the same at every call."""
        make = torch.Generator(device=self.device)
        make.manual_seed(99 + self.rank)
        size = (self.shape.layers, 2, batch, self.shape.kv, context, self.shape.dim)
        self.context = context
        self.cache = torch.empty(size, device=self.device, dtype=self.dtype)
        self.cache.normal_(0, 1, generator=make)
        self.position = torch.zeros(1, device=self.device, dtype=torch.int64)
        self.token = torch.arange(batch, device=self.device)

    def attend(self, layer, qkv):
        """Attention of one new token a sequence over a window of `context` tokens."""
        s, batch = self.shape, qkv.shape[0]
        q, k, v = qkv.view(batch, -1, s.dim).split((s.heads, s.kv, s.kv), 1)
        q, k = self.rotate(q, self.cos, self.sin), self.rotate(k, self.cos, self.sin)
        keys, values = self.cache[layer]
        slot = self.position % self.context  # the oldest token leaves the window
        keys.index_copy_(2, slot, k.unsqueeze(2))
        values.index_copy_(2, slot, v.unsqueeze(2))
        out = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, enable_gqa=True)
        return out.reshape(batch, -1)

    def feed_forward(self, layer, x):
        """This rank's share of the feed-forward layer's result, to be summed over the ranks."""
        if not self.shape.experts:
            return F.linear(self.gate(F.linear(x, layer["up"])), layer["down"])
        chosen, weights = self.route(x, layer["router"], self.shape.top_k)
        by_expert, order = chosen.flatten().sort(stable=True)
        ends = torch.searchsorted(by_expert, self.every, right=True).int()  # of each expert's rows
        rows = x[order // self.shape.top_k]
        rows = self.gate(F.grouped_mm(rows, layer["up"].transpose(-2, -1), offs=ends))
        return self.mix(F.grouped_mm(rows, layer["down"].transpose(-2, -1), offs=ends), weights, order)

    def angles(self):
        half = self.shape.dim // 2
        steps = torch.arange(half, device=self.device, dtype=torch.float32) / half
        angle = (self.position + self.context) * ROPE_BASE**-steps
        self.cos, self.sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)

    def sample(self, way, logits):
        """The greatest logit's token over all ranks: one pair a row from each."""
        value, index = logits.float().max(-1)
        pairs = torch.stack((value.double(), (index + self.rank * self.shape.vocab).double()), -1)
        every = way.all_gather(pairs)
        best = every[..., 0].argmax(0, keepdim=True)
        return every[..., 1].gather(0, best)[0].long()

    def step(self, way):
        """One token for every sequence: self.token and the caches move on."""
        self.angles()
        residual = F.embedding(self.token, self.embedding)
        x, residual = way.norm(torch.zeros_like(residual), residual, self.layers[0]["norm1"])
        for i, layer in enumerate(self.layers):
            x = F.linear(self.attend(i, F.linear(x, layer["qkv"])), layer["o"])
            x, residual = way.reduce_add_norm(x, residual, layer["norm2"])
            x = self.feed_forward(layer, x)
            after = self.layers[i + 1]["norm1"] if i + 1 < len(self.layers) else self.norm
            x, residual = way.reduce_add_norm(x, residual, after)
        self.token.copy_(self.sample(way, F.linear(x, self.head)))
        self.position.add_(1)


# ----------------------------------------------------------------------------- figures


class Run:
    """One way's step, ready to be repeated, and what it took."""

    def __init__(self, way, model, graph):
        self.way, self.model, self.graph, self.times, self.tokens = way, model, None, [], None
        if graph:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())  # the caches are filled on this one
            with torch.cuda.stream(side), torch.no_grad():
                for _ in range(3):
                    model.step(way)
            torch.cuda.synchronize()
            if isinstance(way, Traced):
                way.kept.clear()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph), torch.no_grad():
                model.step(way)

    def once(self):
        if self.graph:
            self.graph.replay()
            return
        if isinstance(self.way, Traced):
            self.way.kept.clear()
        with torch.no_grad():
            self.model.step(self.way)

    def trace(self, count):
        """What each reduction of `count` steps after a fresh start was given and gave."""
        self.traces = []
        for _ in range(count):
            self.once()
            self.traces.append(self.way.take())

    def generate(self, count):
        """The tokens of `count` steps after a fresh start, to compare."""
        tokens = []
        for _ in range(count):
            self.once()
            tokens.append(self.model.token.tolist())
        self.tokens = tokens

    def sample(self, steps, cuda):
        if cuda:
            torch.cuda.synchronize()
        dist.barrier(group=HOST)
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.once()
            if cuda:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
        slowest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=HOST)
        self.times += slowest.tolist()


def row(run, runs, shape, batch, options, first):
    local = next((r for r in runs if r.way.name == "local"), None)
    command = launched("decode.py", sys.argv[1:])
    result = {
        "run": options.run,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": options.device_name,
        "versions": versions(),
        "command": command,
        "library": options.label if run.way.name in ("nccl", "gloo") and options.label else run.way.name,
        "ranks": dist.get_world_size(),
        "processes": dist.get_world_size(),
        "op": "app-decode",
        "dtype": options.dtype,
        "bytes": batch * shape.hidden * getattr(torch, options.dtype).itemsize,
        "mode": "graph" if run.graph else "eager",
        "us_min": round(min(run.times), 2),
        "us_p50": round(statistics.median(run.times), 2),
        "us_p99": round(quantile(run.times, 0.99), 2),
        "samples": len(run.times),
        "model": shape.name,
        "layers": shape.layers,
        "layers_published": shape.published,
        "batch": batch,
        "context": options.context,
        **({"experts": shape.experts, "top_k": shape.top_k} if shape.experts else {}),
        "tokens_per_s": round(batch * 1e6 / statistics.median(run.times), 1),
    }
    if local is not None and run is not local:
        result["local_us"] = round(statistics.median(local.times), 2)
    if run.way.name != "local":
        result["wrong"] = sum(
            a != b for mine, theirs in zip(run.tokens, first.tokens) for a, b in zip(mine, theirs)
        )
    print(json.dumps(result), flush=True)


TRACED = ("input", "residual before", "norm's output", "residual after")


def first_difference(one, two):
    """Where two runs' traces differ first, in words."""
    for step, (mine, theirs) in enumerate(zip(one, two)):
        for call, (a, b) in enumerate(zip(mine, theirs)):
            for what, x, y in zip(TRACED, a, b):
                if not torch.equal(x.view(torch.uint8), y.view(torch.uint8)):
                    where = (x != y).flatten().nonzero().flatten()
                    most = (x.float() - y.float()).abs().max().item()
                    return (
                        f"step {step}, layer {call // 2}, {('attention', 'feed-forward')[call % 2]}: "
                        f"{what} differs in {len(where)} of {x.numel()} elements from "
                        f"{where[:1].tolist()} on, by {most:g} at most"
                    )
    return "no difference"


def compare_traces(runs, options):
    """Every way against the first, and every rank's outputs against rank 0's."""
    for run in runs[1:]:
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, first_difference(runs[0].traces, run.traces), group=HOST)
        if dist.get_rank() == 0:
            for rank, text in enumerate(found):
                print(f"{run.way.name} against {runs[0].way.name}, rank {rank}: {text}", flush=True)
    for run in runs:
        outputs = [[call[2:] for call in step] for step in run.traces]
        every = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(outputs, every, dst=0, group=HOST)
        if dist.get_rank() == 0:
            same = all(
                torch.equal(x, y)
                for other in every[1:]
                for mine, theirs in zip(every[0], other)
                for a, b in zip(mine, theirs)
                for x, y in zip(a, b)
            )
            print(f"{run.way.name}: ranks {'agree' if same else 'DIFFER'}", flush=True)


def measure(options, shape, model, ways, batch):
    cuda = options.device == "cuda"
    runs = []
    for way in ways:
        if options.trace:
            way = Traced(way)
        model.caches(batch, options.context)
        runs.append(Run(way, model, cuda))
        # the same caches for the next way: a graph keeps the memory that it was captured with
        runs[-1].state = (model.cache, model.position, model.token)
        model.cache.normal_(0, 1, generator=seeded(options, model))
        model.position.zero_()
        model.token.copy_(torch.arange(batch, device=model.device))
        if options.trace:
            runs[-1].trace(options.compare)
        else:
            runs[-1].generate(options.compare)
    if options.trace:
        compare_traces(runs, options)
        return
    for turn in range(options.rounds):
        for i in range(len(runs)):
            run = runs[(turn + i) % len(runs)]
            model.cache, model.position, model.token = run.state
            run.sample(options.steps, cuda)
    if dist.get_rank() == 0:
        first = next(r for r in runs if r.way.name != "local")
        for run in runs:
            row(run, runs, shape, batch, options, first)


def seeded(options, model):
    make = torch.Generator(device=model.device)
    make.manual_seed(options.seed + 500 + model.rank)
    return make


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="8b")
    parser.add_argument("--layers", type=int, default=0, help="0: as many as published")
    parser.add_argument("--batch", default="1", help="sequences, a list")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the window")
    parser.add_argument("--ways", default="nccl,solccl,local")
    parser.add_argument("--label", default="", help="library name of the torch.distributed rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--steps", type=int, default=30, help="steps a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compare", type=int, default=16, help="tokens compared a sequence")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--trace", action="store_true", help="find the first difference; no timing")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    return parser.parse_args()


HOST = None


def main():
    global HOST
    options = arguments()
    cuda = options.device == "cuda"
    device, HOST = start(options.device)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    options.run = datetime.datetime.now(datetime.timezone.utc).strftime("decode-%Y%m%dT%H%M%S")
    options.device_name = f"{ranks} x {torch.cuda.get_device_name()}" if cuda else "CPU"
    compiled = cuda and not options.no_compile
    if compiled:  # one kernel each, as engines have them
        Local.norm = staticmethod(torch.compile(Local.norm, dynamic=False))
    shape = Shape(options.model, options.layers, ranks)
    with torch.no_grad():
        model = Decoder(shape, rank, device, getattr(torch, options.dtype), options.seed)
        if compiled:
            model.gate = torch.compile(gate, dynamic=False)
            model.rotate = torch.compile(rotate, dynamic=False)
            model.route = torch.compile(route, dynamic=False)
            model.mix = torch.compile(mix, dynamic=False)
        ways = make_ways(options.ways, options.device, ranks)
        for batch in map(int, options.batch.split(",")):
            measure(options, shape, model, ways, batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
