# SPDX-License-Identifier: Apache-2.0
"""solccl for PyTorch: a backend of torch.distributed, and operators.

The backend, for programs that use torch.distributed (DDP, FSDP2, DTensor):

    import solccl.torch
    torch.distributed.init_process_group("cpu:solccl,cuda:solccl")

The operators, on a `solccl.Communicator`, which `torch.compile` and CUDA graphs
take without a break:

    comm = solccl.Communicator.from_env(backend="cuda")
    y = solccl.torch.all_reduce(x, comm)
"""

from .operators import (
    all_gather,
    all_reduce,
    all_reduce_,
    all_reduce_quantized,
    all_reduce_rms_norm,
    all_to_all,
    broadcast_,
    linear_all_reduce,
    moe_combine,
    moe_dispatch,
    reduce_scatter,
    reduce_scatter_rms_norm,
    vocab_topk,
)
from .process_group import ProcessGroup, connect, register

register()

__all__ = [
    "ProcessGroup",
    "all_gather",
    "all_reduce",
    "all_reduce_",
    "all_reduce_quantized",
    "all_reduce_rms_norm",
    "all_to_all",
    "broadcast_",
    "connect",
    "linear_all_reduce",
    "moe_combine",
    "moe_dispatch",
    "reduce_scatter",
    "reduce_scatter_rms_norm",
    "register",
    "vocab_topk",
]
