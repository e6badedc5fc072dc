# SPDX-License-Identifier: Apache-2.0
"""Experts that are split over the ranks of a communicator (solccl/moe.h)."""

from __future__ import annotations

import os
import weakref
from ctypes import byref, c_void_p, sizeof
from typing import Any

from ._arrays import buffer_of, dtype_code, like
from ._communicator import Communicator
from ._library import MoeCombineArgs, MoeConfig, MoeDispatchArgs, MoeInfo, check, lib

QUANTS = {None: 0, "group": 3, "group_pow2": 4}
LAYOUTS = {"padded": 0, "packed": 1}

_handles: weakref.WeakValueDictionary[int, Moe] = weakref.WeakValueDictionary()


class Received:
    """What a dispatch has brought: `x` [local_experts, rows_per_expert, hidden] (packed: [rows, hidden]),
    `scales` [..., scales_per_row] or None, `weights` [...], `counts` [local_experts] and `offsets`
    [local_experts + 1]. Rows beyond the counts hold nothing."""

    __slots__ = ("x", "scales", "weights", "counts", "offsets")

    def __init__(self, x: Any, scales: Any, weights: Any, counts: Any, offsets: Any) -> None:
        self.x, self.scales, self.weights, self.counts, self.offsets = x, scales, weights, counts, offsets


class Moe:
    """A handle for dispatch and combine of tokens to experts that are split over `comm`'s ranks.

    Made by all ranks, with equal arguments; all its memory is taken here. Rank r has the experts
    first_expert to first_expert + local_experts - 1. quant: None, "group" or "group_pow2": rows
    arrive as float8_e4m3fn (NumPy: uint8) with a scale for every 128 columns. layout: "padded" for
    masked grouped products, "packed" (each expert at a multiple of `align` rows) for those with
    offsets. dispatch, then the experts, then combine; two handles for two halves of a batch.
    """

    def __init__(
        self,
        comm: Communicator,
        max_tokens: int,
        hidden: int,
        top_k: int,
        experts: int,
        dtype: Any = "bfloat16",
        quant: str | None = None,
        layout: str = "padded",
        align: int = 0,
    ) -> None:
        if quant not in QUANTS or layout not in LAYOUTS:
            raise ValueError(f"quant is {quant!r}, layout {layout!r}: expected one of "
                             f"{', '.join(map(str, QUANTS))}, and {', '.join(LAYOUTS)}")
        config = MoeConfig(
            size=sizeof(MoeConfig),
            max_tokens=max_tokens,
            hidden=hidden,
            top_k=top_k,
            experts=experts,
            dtype=dtype_code(dtype),
            quant=QUANTS[quant],
            layout=LAYOUTS[layout],
            align=align,
        )
        handle, info = c_void_p(), MoeInfo(size=sizeof(MoeInfo))
        self._handle: int | None = None
        check(lib.sol_moe_create(byref(handle), byref(config), comm._h()), comm._h())
        self._handle = handle.value
        self._pid = os.getpid()
        self._comm = comm  # (lives as long as this)
        check(lib.sol_moe_query(self._handle, byref(info)), comm._h())
        self.max_tokens, self.hidden, self.top_k = max_tokens, hidden, top_k
        self.dtype, self.quant, self.layout = config.dtype, quant, layout
        self.first_expert, self.local_experts = info.first_expert, info.local_experts
        self.rows, self.rows_per_expert = info.rows, info.rows_per_expert
        self.scales_per_row, self.memory_bytes = info.scales_per_row, info.memory_bytes
        self._index = len(_handles) and max(_handles) + 1
        _handles[self._index] = self

    def close(self) -> None:
        """Free it; local. Before the communicator is closed. Twice is fine."""
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid() and self._comm._handle is not None:
            check(self._comm._give_back(lib.sol_moe_destroy, handle))

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # (nobody could be told)
            pass

    def _h(self) -> int:
        if self._handle is None or self._comm._closed:
            raise ValueError("the handle, or its communicator, has been closed")
        return self._handle

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of what holds one thing for each row."""
        return (self.rows,) if self.layout == "packed" else (self.local_experts, self.rows_per_expert)

    def empty(self, x: Any) -> Received:
        """Arrays for what a dispatch brings, like tokens `x`; for use again and again."""
        torch_like = type(x).__module__.split(".")[0] == "torch"
        small = ("float8_e4m3fn" if torch_like else "uint8") if self.quant else None
        return Received(
            like(x, (*self.row_shape, self.hidden), small),
            like(x, (*self.row_shape, self.scales_per_row), "float32") if self.quant else None,
            like(x, self.row_shape, "float32"),
            like(x, (self.local_experts,), "int32"),
            like(x, (self.local_experts + 1,), "int32"),
        )

    def _tokens(self, what: str, x: Any) -> tuple[int, int]:
        address, count, dtype, _ = buffer_of(x)
        if dtype != self.dtype or count % self.hidden != 0:
            raise ValueError(f"{what} is not of the handle's type, or its last dimension not {self.hidden}")
        return address, count // self.hidden

    def _check(self, status: int) -> None:
        if status != 0:
            check(status, self._comm._handle)

    def _sent(self, x: Any, topk_idx: Any, topk_weights: Any) -> dict[str, Any]:
        address, tokens = self._tokens("x", x)
        idx = buffer_of(topk_idx)
        weights = None if topk_weights is None else buffer_of(topk_weights)
        for what, buffer in (("topk_idx", idx), ("topk_weights", weights)):
            if buffer is not None and buffer[1] != tokens * self.top_k:
                raise ValueError(f"{what} has {buffer[1]} elements: expected {tokens} x {self.top_k}")
        if weights is not None and weights[2] != 8:
            raise ValueError("topk_weights is not float32")
        return {"tokens": tokens, "x": address, "topk_idx": idx[0], "idx_dtype": idx[2],
                "topk_weights": weights and weights[0]}

    def _into(self, out: Received) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, field in (("x", "recv_x"), ("scales", "recv_scales"), ("weights", "recv_weights"),
                            ("counts", "recv_counts"), ("offsets", "recv_offsets")):
            array = getattr(out, name)
            fields[field] = None if array is None else buffer_of(array, True)[0]
        if buffer_of(out.x)[1] < self.rows * self.hidden:
            raise ValueError(f"out.x has room for fewer than {self.rows} rows")
        return fields

    def dispatch(self, x: Any, topk_idx: Any, topk_weights: Any = None, out: Received | None = None,
                 stream: Any = None) -> Received:
        """Tokens `x` [tokens, hidden] to the experts `topk_idx` [tokens, top_k] (int32 or int64; -1:
        none), with their weights [tokens, top_k] (float32; None: ones). `out`: of `empty`, or new."""
        out = self.empty(x) if out is None else out
        args = MoeDispatchArgs(size=sizeof(MoeDispatchArgs), **self._sent(x, topk_idx, topk_weights),
                               **self._into(out))
        self._check(lib.sol_moe_dispatch(self._h(), byref(args), self._comm._stream(stream, x)))
        return out

    def dispatch_send(self, x: Any, topk_idx: Any, topk_weights: Any = None, stream: Any = None) -> int:
        """The first half, which waits for no rank. Returns the number of tokens, for the second."""
        args = MoeDispatchArgs(size=sizeof(MoeDispatchArgs), **self._sent(x, topk_idx, topk_weights))
        self._check(lib.sol_moe_dispatch_send(self._h(), byref(args), self._comm._stream(stream, x)))
        return args.tokens

    def dispatch_recv(self, tokens: int, out: Received, stream: Any = None) -> Received:
        """The second half."""
        args = MoeDispatchArgs(size=sizeof(MoeDispatchArgs), tokens=tokens, **self._into(out))
        self._check(lib.sol_moe_dispatch_recv(self._h(), byref(args), self._comm._stream(stream, out.x)))
        return out

    def _combine(self, y: Any, weights: Any, out: Any) -> MoeCombineArgs:
        args = MoeCombineArgs(size=sizeof(MoeCombineArgs))
        if y is not None:
            address, rows = self._tokens("y", y)
            if rows < self.rows:
                raise ValueError(f"y has {rows} rows: expected {self.rows}")
            args.y = address
            args.weights = None if weights is None else buffer_of(weights)[0]
        if out is not None:
            args.out, args.tokens = self._tokens("out", out)
        return args

    def combine(self, y: Any, out: Any, weights: Any = None, stream: Any = None) -> Any:
        """The experts' outputs `y`, where dispatch put their inputs, as a weighted sum for each token,
        to `out` [tokens, hidden]. weights: for each row; None: those of the dispatch."""
        args = self._combine(y, weights, out)
        self._check(lib.sol_moe_combine(self._h(), byref(args), self._comm._stream(stream, out)))
        return out

    def combine_send(self, y: Any, tokens: int, weights: Any = None, stream: Any = None) -> None:
        """The first half, which waits for no rank."""
        args = self._combine(y, weights, None)
        args.tokens = tokens
        self._check(lib.sol_moe_combine_send(self._h(), byref(args), self._comm._stream(stream, y)))

    def combine_recv(self, out: Any, stream: Any = None) -> Any:
        """The second half."""
        args = self._combine(None, None, out)
        self._check(lib.sol_moe_combine_recv(self._h(), byref(args), self._comm._stream(stream, out)))
        return out
