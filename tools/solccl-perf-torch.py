# SPDX-License-Identifier: Apache-2.0
"""PyTorch symmetric memory as `solccl perf --peer torch` measures it.

One rank of it: speaks perf_wire.h's protocol (packets of a line and doubles),
and times as perf_mem_cuda.c does: a CUDA graph of a few calls, an event, the
batch, an event. PyTorch has an all_reduce only (one-shot and two-shot; the
quicker one of the size is taken); everything else is answered "unsupported".
"""
import array
import os
import socket
import sys
import zlib

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LEAD = 4


class Rank:
    def __init__(self):
        self.rank = int(os.environ["SOLCCL_RANK"])
        self.size = int(os.environ["SOLCCL_SIZE"])
        name = os.environ["SOLCCL_PERF_SOCKET"]
        torch.cuda.set_device(self.rank % torch.cuda.device_count())
        self.device = torch.device("cuda", torch.cuda.current_device())
        port = 20000 + zlib.crc32(name.encode()) % 20000
        dist.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank, world_size=self.size,
            device_id=self.device)
        self.group = dist.group.WORLD.group_name
        self.stream = torch.cuda.Stream()
        self.buffer = self.out = self.graph = None
        self.two_shot = False
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wire.connect("\0" + name)
        self.say(f"hello torch {self.rank} {self.size} {os.getpid()} 0 PyTorch {torch.__version__}")

    def say(self, line, samples=None):
        message = line.encode() + b"\0"
        if samples is not None:
            message += array.array("d", samples).tobytes()
        self.wire.send(message)

    def call(self):
        if self.two_shot:
            torch.ops.symm_mem.two_shot_all_reduce_(self.buffer, "sum", self.group)
        else:
            torch.ops.symm_mem.one_shot_all_reduce_out(self.buffer, "sum", self.group, self.out)

    def capture(self, batch):
        begin, end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for _ in range(LEAD):
                self.call()
            begin.record(self.stream)
            for _ in range(batch):
                self.call()
            end.record(self.stream)
        return graph, begin, end

    def time(self, warm, samples, batch):
        graph, begin, end = self.capture(batch)
        times = []
        with torch.cuda.stream(self.stream):
            for i in range(warm + samples):
                graph.replay()
                self.stream.synchronize()
                if i >= warm:
                    times.append(begin.elapsed_time(end) * 1e6)
        return times

    def check(self):
        """Elements that are wrong after one call of each kind."""
        want = self.size * (self.size + 1) / 2
        wrong = 0
        for two_shot in (False, True):
            self.two_shot = two_shot
            self.buffer.fill_(self.rank + 1)
            dist.barrier()
            self.call()
            torch.cuda.synchronize()
            result = self.buffer if two_shot else self.out
            wrong += int((result.float() != want).sum())
            dist.barrier()
        return wrong

    def setup(self, text):
        checks, op, dtype, redop, in_place, _, memory, count, mode = text.split()
        count = int(count)
        if op != "all_reduce" or redop != "sum" or dtype not in DTYPES or int(in_place):
            return "unsupported PyTorch's symmetric memory has only an all_reduce"
        if mode == "graph-pdl":
            return "unsupported PyTorch has no dependent launch: see mode graph"
        if mode == "eager":
            return "unsupported measured in graphs only"
        size = torch.empty((), dtype=DTYPES[dtype]).element_size()
        if count == 0 or count * size % 16:
            return "unsupported sizes are multiples of 16 bytes"
        self.buffer = symm_mem.empty(count, dtype=DTYPES[dtype], device=self.device)
        symm_mem.rendezvous(self.buffer, self.group)
        self.out = torch.empty_like(self.buffer)
        wrong = self.check()
        self.buffer.zero_()
        times = torch.zeros(2, device=self.device)
        for two_shot in (0, 1):
            self.two_shot = bool(two_shot)
            times[two_shot] = min(self.time(2, 5, 20))
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        self.two_shot = bool(times[1] < times[0])
        return f"ok {wrong} {'two_shot' if self.two_shot else 'one_shot'}"

    def obey(self, line):
        name, _, rest = line.partition(" ")
        if name == "setup":
            self.say(self.setup(rest))
        elif name == "time":
            samples, warm, batch, alone = (int(x) for x in rest.split())
            self.say("ok", self.time(warm, samples, 1 if alone else batch))
        elif name == "clear":
            torch.cuda.synchronize()
            self.buffer = self.out = None
            self.say("ok")
        else:
            self.say(f"error '{name}' is not a command here")

    def serve(self):
        while True:
            message = self.wire.recv(1 << 16)
            line = message.split(b"\0")[0].decode()
            if not message or line == "quit":
                return
            try:
                self.obey(line)
            except Exception as error:  # the driver shows it and ends the run
                self.say(f"error {type(error).__name__}: {error}"[:900].replace("\n", " "))


def main():
    rank = Rank()
    rank.serve()
    sys.stdout.flush()
    os._exit(0)  # NCCL's teardown may wait for ranks that have gone


main()
