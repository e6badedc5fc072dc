# SPDX-License-Identifier: Apache-2.0
"""The ways to communicate that the programs compare, and what their figures have in common."""

import os

import torch
import torch.distributed as dist

EPS = 1e-5


def add_norm(x, residual, weight):
    """residual + x, and its root-mean-square norm, computed in fp32."""
    residual = residual + x
    wide = residual.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    return wide.to(x.dtype) * weight, residual


class Local:
    """No communication: the step without it."""

    name = "local"
    norm = staticmethod(add_norm)

    def all_reduce(self, x):
        return x

    def all_gather(self, x):
        return x.unsqueeze(0)

    def all_to_all(self, x):
        return x

    def reduce_add_norm(self, x, residual, weight):
        return self.norm(self.all_reduce(x), residual, weight)


class Torch(Local):
    """torch.distributed with the process group's own library."""

    def __init__(self, name, ranks):
        self.name, self.ranks = name, ranks

    def all_reduce(self, x):
        dist.all_reduce(x)
        return x

    def all_gather(self, x):
        out = x.new_empty((self.ranks * x.shape[0],) + x.shape[1:])
        dist.all_gather_into_tensor(out, x)
        return out.view((self.ranks,) + x.shape)

    def all_to_all(self, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out


class Solccl(Local):
    """solccl's operators, unfused."""

    name = "solccl"

    def __init__(self, comm):
        import solccl.torch as ops

        self.ops, self.comm = ops, comm

    def all_reduce(self, x):
        return self.ops.all_reduce(x, self.comm)

    def all_gather(self, x):
        return self.ops.all_gather(x, self.comm).view((-1,) + x.shape)

    def all_to_all(self, x):
        return self.ops.all_to_all(x, self.comm)


class Fused(Solccl):
    """all_reduce + residual + norm in one kernel."""

    name = "fused"

    def reduce_add_norm(self, x, residual, weight):
        return self.ops.all_reduce_rms_norm(x, residual, weight, EPS, self.comm)


class Mpi(Local):
    """MPI through mpi4py, on the tensors' memory."""

    name = "mpi"

    def __init__(self, ranks):
        from mpi4py import MPI

        self.mpi, self.ranks = MPI, ranks

    def all_reduce(self, x):
        self.mpi.COMM_WORLD.Allreduce(self.mpi.IN_PLACE, x.numpy())
        return x

    def all_gather(self, x):
        out = x.new_empty((self.ranks,) + x.shape)
        self.mpi.COMM_WORLD.Allgather(x.contiguous().numpy(), out.numpy())
        return out

    def all_to_all(self, x):
        out = torch.empty_like(x)
        self.mpi.COMM_WORLD.Alltoall(x.numpy(), out.numpy())
        return out


def make_ways(names, device, ranks):
    ways = []
    comm = None
    for name in names.split(","):
        if name in ("nccl", "gloo"):
            ways.append(Torch(name, ranks))
        elif name == "local":
            ways.append(Local())
        elif name == "mpi":
            ways.append(Mpi(ranks))
        elif name in ("solccl", "fused"):
            if comm is None:
                import solccl

                comm = solccl.Communicator.from_env(backend=device)
            ways.append((Solccl if name == "solccl" else Fused)(comm))
        else:
            raise SystemExit(f"--ways: {name} is not one of nccl, gloo, mpi, solccl, fused, local")
    return ways


def from_mpirun():
    """torch.distributed's variables from Open MPI's, where mpirun is the launcher."""
    if "OMPI_COMM_WORLD_RANK" in os.environ and "RANK" not in os.environ:
        os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
        os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
        os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29533")


def start(device):
    """torch.distributed for these ranks. Returns this rank's device and a group of the hosts."""
    from_mpirun()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = device == "cuda"
    if cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    return torch.device("cuda", local_rank) if cuda else torch.device("cpu"), dist.new_group(backend="gloo")


def launched(program, arguments):
    """The command that this is, for a row."""
    under_mpi = "OMPI_COMM_WORLD_RANK" in os.environ
    start = "mpirun -n %d --bind-to none python3" if under_mpi else "torchrun --nproc-per-node %d"
    return " ".join([start % dist.get_world_size(), program] + arguments)


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def versions():
    found = {"torch": torch.__version__}
    if torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    try:
        import solccl

        found["solccl"] = solccl.__version__
    except ImportError:
        pass
    return found
