# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Transformers' own tensor-parallel path, unchanged, over any library.

A Llama of random weights is saved and loaded as the library's documentation says for tensor
parallelism; it generates greedily. Nothing here knows which library communicates: stand the
drop-in before NCCL, or ask for another backend of torch.distributed.

    torchrun --nproc-per-node 2 bench/apps/transformers_tp.py --keep nccl.json
    LD_PRELOAD=libsolccl-nccl.so torchrun --nproc-per-node 2 bench/apps/transformers_tp.py \\
        --label dropin --compare nccl.json
    torchrun --nproc-per-node 2 bench/apps/transformers_tp.py --device cpu --backend solccl

Writes one JSON line to stdout on rank 0: milliseconds a token (median, slowest rank) and, with
--compare, how many tokens differ. Exit status 77 where Transformers is not installed.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

try:
    import transformers
except ImportError as error:
    print(f"transformers_tp: skipped: Transformers cannot be imported ({error})")
    sys.exit(77)

#         hidden inner heads kv  layers vocab
SHAPES = {
    "tiny": (64, 160, 4, 2, 2, 256),
    "1b": (2048, 8192, 32, 8, 16, 128256),
    "8b": (4096, 14336, 32, 8, 32, 128256),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backend", help="of torch.distributed (nccl or gloo)")
    parser.add_argument("--label", default="", help="name of the library in the row")
    parser.add_argument("--model", choices=SHAPES, help="(1b on GPUs, tiny on CPUs)")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", help="file for the tokens")
    parser.add_argument("--compare", help="such a file of another library")
    return parser.parse_args()


def save(options, folder):
    """A model of random weights, as a checkpoint."""
    hidden, inner, heads, kv, layers, vocab = SHAPES[options.model]
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=kv,
        num_hidden_layers=layers, vocab_size=vocab, max_position_embeddings=4096, bos_token_id=1,
        eos_token_id=None, pad_token_id=0, tie_word_embeddings=False, initializer_range=0.05)
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, options.dtype))
    model.save_pretrained(folder)


def load(options, folder):
    """With the tensor-parallel plan that the model brings; how to ask for it has changed."""
    dtype = getattr(torch, options.dtype)
    try:
        from transformers.distributed import DistributedConfig

        plan = {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):
        plan = {"tp_plan": "auto"}
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **plan)
    except TypeError:  # the type was called by another name once
        return transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=dtype, **plan)


def generate(options, model, prompt):
    """The new tokens, and the milliseconds of one."""
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                             max_new_tokens=options.tokens, min_new_tokens=options.tokens)
    new = out[:, prompt.shape[1]:].cpu()
    return new.tolist(), (time.perf_counter() - begin) * 1e3 / options.tokens


def main():
    options = arguments()
    cuda = options.device == "cuda"
    rank = int(os.environ["RANK"])
    options.model = options.model or ("1b" if cuda else "tiny")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if options.backend == "solccl":
        import solccl.torch  # noqa: F401: makes the backend known

        options.label, options.backend = options.label or "solccl", "cpu:solccl,cuda:solccl"
    dist.init_process_group(options.backend or ("nccl" if cuda else "gloo"))
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    if rank == 0:
        save(options, folder[0])
    dist.broadcast_object_list(folder, src=0, device=device)
    model = load(options, folder[0])
    prompt = torch.arange(options.batch * 8, device=device).view(options.batch, 8) % 100 + 2
    tokens, times = None, []
    for _ in range(options.rounds + 1):
        tokens, ms = generate(options, model, prompt)
        slowest = torch.tensor([ms], dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.append(slowest.item())
    if rank == 0:
        for file in os.listdir(folder[0]):
            os.unlink(os.path.join(folder[0], file))
        os.rmdir(folder[0])
        result = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "device": f"{dist.get_world_size()} x {torch.cuda.get_device_name()}" if cuda else "CPU",
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "command": "torchrun --nproc-per-node %d transformers_tp.py" % dist.get_world_size(),
            "library": options.label or options.backend or ("nccl" if cuda else "gloo"),
            "op": "app-transformers-tp", "mode": "eager", "ranks": dist.get_world_size(),
            "processes": dist.get_world_size(), "model": options.model, "dtype": options.dtype,
            "batch": options.batch, "us_p50": round(statistics.median(times[1:]) * 1e3, 1),
            "samples": options.rounds,
        }
        if options.compare:
            with open(options.compare) as file:
                other = json.load(file)
            result["wrong"] = sum(a != b for x, y in zip(tokens, other) for a, b in zip(x, y))
        if options.keep:
            with open(options.keep, "w") as file:
                json.dump(tokens, file)
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


main()
