# SPDX-License-Identifier: Apache-2.0
"""all_reduce + residual + RMS norm in halves (solccl/fused.h: sol_norm_start, sol_norm_wait).

Python's part is what a half must not lose: the contribution of each start under way, which wait reads
again. Must never: free a handle that a GPU's kernel may still be using.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from ctypes import byref, c_void_p, sizeof
from typing import Any

from ._arrays import Buffer, _product, buffer_of, dtype_code, like, shape_of
from ._communicator import Communicator, _int
from ._library import NormArgs, NormConfig, check, lib

# name: SOL_NORM_SHARD_*. The form follows: one hop without shards, two with them.
SHARDS = {None: 0, "residual": 1, "both": 3}
DEFAULT_DEPTH = 2


def _finish_device(device: int) -> bool:
    """Wait until a GPU has done what it was given; False: there is nobody to ask."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize(device)
    elif cupy is not None:
        cupy.cuda.Device(device).synchronize()
    else:
        return False
    return True


class NormHalves:
    """A handle for `Communicator.all_reduce_rms_norm` in halves, for what is computed between them:

        with solccl.NormHalves(comm, 64, 8192) as halves:
            a = product(x[:64]); halves.start(a)             # a's partial sums leave
            b = product(x[64:]); halves.start(b)
            y, residual = halves.wait(residual, weight)      # of a, the first that was started
            ...

    Made by all ranks, with equal arguments (but start_ctas); all the library's memory for it is taken
    here. max_tokens: rows of one start, at most. hidden: elements of a row. dtype: float32, float16 or
    bfloat16. shards: None: results of all tokens on all ranks. "both": of each rank's own tokens, as
    `reduce_scatter_rms_norm` gives them; "residual": the same with `gather`. depth: starts under way,
    1 to 8 (0: 2). start_ctas: CTAs of a start on GPU ranks, at most (0: 16).

    First in, first out. All ranks make the same calls on a handle in the same order; other calls on the
    communicator may lie between them. The bits are those of the one call. One thread at a time.

    Use it as a context manager, or close it. A handle that is collected as garbage waits for nobody;
    what was started on it is dropped, and has reached the others.
    """

    def __init__(
        self,
        comm: Communicator,
        max_tokens: int,
        hidden: int,
        dtype: Any = "bfloat16",
        shards: str | None = None,
        depth: int = 0,
        start_ctas: int = 0,
    ) -> None:
        self._handle: int | None = None
        self._pid = os.getpid()
        self._comm = comm  # (lives as long as this)
        self._under_way: deque[tuple[Any, Buffer]] = deque()
        if shards not in SHARDS:
            raise ValueError(f"shards is {shards!r}: expected one of {', '.join(map(str, SHARDS))}")
        config = NormConfig(
            size=sizeof(NormConfig),
            max_tokens=_int(max_tokens, "max_tokens"),
            hidden=_int(hidden, "hidden"),
            dtype=dtype_code(dtype),
            form=int(shards is not None),
            shards=SHARDS[shards],
            depth=_int(depth, "depth"),
            start_ctas=_int(start_ctas, "start_ctas"),
        )
        handle = c_void_p()
        check(lib.sol_norm_create(byref(handle), byref(config), comm._h()), comm._handle)
        self._handle = handle.value
        self.max_tokens, self.hidden, self.dtype, self.shards = max_tokens, hidden, config.dtype, shards
        self.depth = depth or DEFAULT_DEPTH

    # ------------------------------------------------------------------ the end

    def _give_up(self, finish: bool) -> None:
        """`finish`: wait for this GPU first. Else, and where that cannot be done, a GPU rank's memory
        goes with the communicator, which waits for its last kernel."""
        handle, self._handle = self._handle, None
        under_way, self._under_way = self._under_way, deque()
        comm = self._comm
        if handle is None or self._pid != os.getpid() or comm._handle is None:
            return
        if comm._blocking or (finish and _finish_device(comm.device)):
            check(comm._give_back(lib.sol_norm_destroy, handle), comm._handle)
        else:
            comm._left.append((handle, under_way))

    def close(self) -> None:
        """Free it. CPU ranks: local. GPU ranks: waits for what this GPU has been given, and so up to its
        last `wait`. Starts that were not waited for are dropped. Before the communicator is closed; not
        in a capture. Twice is fine."""
        self._give_up(True)

    def __del__(self) -> None:
        try:
            self._give_up(False)
        except Exception:  # (nobody could be told)
            pass

    def __enter__(self) -> NormHalves:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._give_up(kind is None)  # (an exception does not wait for a GPU)

    def _h(self) -> int:
        if self._handle is None or self._comm._closed:
            raise ValueError("the handle, or its communicator, has been closed")
        return self._handle

    # ------------------------------------------------------------------ the halves

    @property
    def under_way(self) -> int:
        """Starts that were not waited for."""
        return len(self._under_way)

    def _args(self, x: Any, send: Buffer) -> NormArgs:
        """What both halves have to say."""
        hidden = int(shape_of(x)[-1])
        return NormArgs(
            size=sizeof(NormArgs),
            tokens=send[1] // hidden if hidden else 0,
            hidden=hidden,
            dtype=send[2],
            input=send[0],
            shards=SHARDS[self.shards],
        )

    def start(self, x: Any, stream: Any = None) -> None:
        """This rank's contribution `x` [..., hidden] (with shards: [tokens, hidden]) leaves; waits for no
        rank. The handle keeps `x`, which must not change, until its `wait`. GPU ranks: a kernel on
        `stream`, which may be one of its own behind the product: then it pushes beside the next."""
        send = buffer_of(x)
        status = lib.sol_norm_start(self._h(), byref(self._args(x, send)), self._comm._stream(stream, x))
        check(status, self._comm._handle)
        self._under_way.append((x, send))

    def _shapes(self, x: Any, tokens: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of out and residual_out."""
        whole = tuple(int(n) for n in shape_of(x))
        if self.shards is None:
            return whole, whole
        first, end = self._comm.tokens_of(tokens)
        mine = (end - first, self.hidden)
        return whole if self.shards == "residual" else mine, mine

    def wait(
        self,
        residual: Any,
        weight: Any,
        eps: float = 1e-6,
        weight_bias: float = 0.0,
        out: Any = None,
        residual_out: Any = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """The rest, for the oldest start: (out, residual_out), as the one call returns them.

        residual: [..., hidden] as that start's `x`, equal on all ranks; with shards this rank's own
        tokens' rows, [mine, hidden]; None: zeros. weight: [hidden]. out: [..., hidden], may be that
        `x`; shards "both": [mine, hidden]. residual_out: as residual, may be `residual`. New ones by
        default. weight_bias: added to the weights. StateError: nothing was started."""
        if not self._under_way:  # (the library says so in its words)
            self._refuse_wait(stream)
        x, send = self._under_way[0]
        args = self._args(x, send)
        out_shape, after_shape = self._shapes(x, args.tokens)
        out = like(x, out_shape) if out is None else out
        residual_out = like(x, after_shape) if residual_out is None else residual_out
        recv, after = buffer_of(out, True), buffer_of(residual_out, True)
        scale = buffer_of(weight)
        before = None if residual is None else buffer_of(residual, residual is residual_out)
        fits = self._comm._fits
        for what, buffer, shape in (("out", recv, out_shape), ("residual_out", after, after_shape),
                                    ("weight", scale, (self.hidden,)), ("residual", before, after_shape)):
            if buffer is not None:
                fits(what, buffer, _product(shape), send[2])
        args.residual, args.residual_out = before and before[0], after[0]
        args.weight, args.weight_bias, args.epsilon = scale[0], weight_bias, eps
        args.output, args.output_dtype = recv[0], send[2]
        check(lib.sol_norm_wait(self._h(), byref(args), self._comm._stream(stream, x)), self._comm._handle)
        self._under_way.popleft()
        return out, residual_out

    def _refuse_wait(self, stream: Any) -> None:
        args = NormArgs(size=sizeof(NormArgs), hidden=self.hidden, dtype=self.dtype, shards=SHARDS[self.shards])
        check(lib.sol_norm_wait(self._h(), byref(args), self._comm._stream(stream, None)), self._comm._handle)


__all__ = ["NormHalves"]
