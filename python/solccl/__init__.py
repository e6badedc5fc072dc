# SPDX-License-Identifier: Apache-2.0
"""solccl: collectives at the hardware's speed of light, for CPU and GPU ranks.

    import numpy, solccl

    with solccl.Communicator.from_env() as comm:       # solccl run, torchrun, mpirun, srun
        total = comm.all_reduce(numpy.ones(4))         # on every rank

`solccl.torch` has the backend of torch.distributed and operators for
torch.compile.
"""

from ._communicator import Communicator, PremulSum, group
from ._library import (
    AbortedError,
    ArgumentError,
    DeviceError,
    Error,
    InternalError,
    MAX_RANKS,
    MemoryRefusedError,
    MismatchError,
    PeerError,
    StateError,
    SystemCallError,
    TimedOutError,
    UnsupportedError,
    machine_info,
    unique_id,
    version,
)
from ._transfer import Transfer
from ._moe import Moe, Received
from ._norm_halves import NormHalves

__version__ = version()
__all__ = [
    "AbortedError",
    "ArgumentError",
    "Communicator",
    "DeviceError",
    "Error",
    "InternalError",
    "MAX_RANKS",
    "MemoryRefusedError",
    "MismatchError",
    "Moe",
    "NormHalves",
    "PeerError",
    "PremulSum",
    "Received",
    "StateError",
    "SystemCallError",
    "TimedOutError",
    "Transfer",
    "UnsupportedError",
    "group",
    "machine_info",
    "unique_id",
    "version",
]
