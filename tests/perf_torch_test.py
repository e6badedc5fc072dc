#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch peer of `solccl perf`, spoken to as the driver does (tools/perf_wire.h), over a torch that
computes nothing: packets, commands, refusals, and that it ends when told to."""
import os
import socket
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "..", "tools", "solccl-perf-torch.py")
NAME = f"solccl-perf-torch-test-{os.getpid()}"
FAKE_TORCH = '''
import sys
from unittest.mock import MagicMock
class Tensor:
    def __ne__(self, other):
        return MagicMock(sum=lambda: 0)
torch = MagicMock()
torch.__version__ = "0.fake"
torch.__path__ = []
torch.cuda.device_count.return_value = 2
torch.cuda.current_device.return_value = 0
torch.cuda.Event.return_value.elapsed_time.return_value = 0.25
torch.empty.return_value.element_size.return_value = 4
torch.zeros.return_value = [0.0, 0.0]
torch.empty_like.return_value.float.return_value = Tensor()
symmetric = MagicMock()
symmetric.empty.return_value.float.return_value = Tensor()
torch.distributed.__path__ = []
torch.distributed._symmetric_memory = symmetric
sys.modules.update({"torch": torch, "torch.distributed": torch.distributed,
                    "torch.distributed._symmetric_memory": symmetric})
'''
outcomes = []


def check(what, good):
    print(("ok      " if good else "FAILED  ") + what)
    outcomes.append(bool(good))


def parse(packet):
    """As perf_wire_receive does: the line, the doubles; None if it would refuse the packet."""
    end = packet.find(b"\0")
    if end < 0 or (len(packet) - end - 1) % 8:
        return None
    rest = packet[end + 1:]
    return packet[:end].decode(), struct.unpack(f"{len(rest) // 8}d", rest)


def ask(wire, line):
    wire.send(line.encode() + b"\0")
    return parse(wire.recv(1 << 16))


def converse(wire, process):
    hello = parse(wire.recv(1 << 16))
    check("hello is a packet that the driver takes", hello is not None)
    words = hello[0].split() if hello else []
    check("hello says library, rank, ranks, pid",
          words[:4] == ["hello", "torch", "1", "2"] and words[4] == str(process.pid))
    answer = ask(wire, "setup 2 all_reduce float32 sum 0 -1 0 1024 graph")
    check(f"setup of an all_reduce: {answer}", answer and answer[0].startswith("ok 0 "))
    answer = ask(wire, "time 5 2 10 0")
    check("five samples in ns", answer == ("ok", (0.25e6,) * 5))
    for case in ("all_gather float32 sum 0 -1 0 1024 graph", "all_reduce int8 sum 0 -1 0 1024 graph",
                 "all_reduce float32 sum 0 -1 0 1023 graph", "all_reduce float32 sum 1 -1 0 1024 graph",
                 "all_reduce float32 sum 0 -1 0 1024 eager"):
        answer = ask(wire, "setup 2 " + case)
        check(f"refused: {case}", answer and answer[0].startswith("unsupported "))
    answer = ask(wire, "dance")
    check("an unknown command is an error", answer and answer[0].startswith("error "))
    check("clear", ask(wire, "clear") == ("ok", ()))
    wire.send(b"quit\0")
    check("it ends when told to", process.wait(timeout=20) == 0)


def main():
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + NAME)
    listener.listen(1)
    listener.settimeout(30)
    with tempfile.TemporaryDirectory() as place:
        os.mkdir(os.path.join(place, "torch"))
        with open(os.path.join(place, "torch", "__init__.py"), "w", encoding="ascii") as file:
            file.write(FAKE_TORCH)
        environment = {**os.environ, "PYTHONPATH": place, "SOLCCL_PERF_SOCKET": NAME,
                       "SOLCCL_RANK": "1", "SOLCCL_SIZE": "2"}
        with subprocess.Popen([sys.executable, PEER], env=environment) as process:
            try:
                wire, _ = listener.accept()
                wire.settimeout(30)
                converse(wire, process)
            finally:
                process.kill()
    print(f"{sum(outcomes)} passed, {len(outcomes) - sum(outcomes)} failed")
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
