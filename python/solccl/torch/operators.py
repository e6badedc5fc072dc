# SPDX-License-Identifier: Apache-2.0
"""Collectives as PyTorch operators: torch.ops.solccl.*, and functions for them.

An operator's arguments are tensors and numbers, so a communicator is given by a
number that is its for good. Each operator has a fake kernel, so that
torch.compile knows the shape of its result; none has an autograd formula.
As with all collectives, compiled or not, all ranks call the same ones in the
same order.
"""

from __future__ import annotations

from typing import Any

import torch

from .._communicator import OPS, Communicator, _numbered
from .._moe import Moe, Received, _handles

_library = torch.library.Library("solccl", "DEF")


def _of(index: int) -> Communicator:
    comm = _numbered.get(index)
    if comm is None:
        raise ValueError("the communicator of this operator has been closed")
    return comm


def _define(schema: str, real: Any, fake: Any) -> None:
    name = schema.split("(")[0]
    _library.define(schema)
    for key in ("CPU", "CUDA"):
        _library.impl(name, real, key)
    torch.library.register_fake(f"solccl::{name}", fake, lib=_library)


def _all_reduce(x: torch.Tensor, op: int, comm: int) -> torch.Tensor:
    x = x.contiguous()
    return _of(comm).all_reduce(x, torch.empty_like(x), op)


def _all_reduce_(x: torch.Tensor, op: int, comm: int) -> None:
    _of(comm).all_reduce(x, x, op)


def _all_reduce_quantized(x: torch.Tensor, wire: str, steps: int, comm: int) -> torch.Tensor:
    return _of(comm).all_reduce_quantized(x.contiguous(), None, wire, steps)


def _all_reduce_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    weight_bias: float,
    comm: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.contiguous()
    residual = None if residual is None else residual.contiguous()
    return _of(comm).all_reduce_rms_norm(x, residual, weight.contiguous(), eps, weight_bias)


def _reduce_scatter_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    weight_bias: float,
    gather: bool,
    mine: int,
    comm: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    residual = None if residual is None else residual.contiguous()
    return _of(comm).reduce_scatter_rms_norm(
        x.contiguous(), residual, weight.contiguous(), eps, weight_bias, gather
    )


def _linear_all_reduce(
    x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor | None, comm: int
) -> torch.Tensor:
    scales = None if scales is None else scales.contiguous()
    return _of(comm).linear_all_reduce(x.contiguous(), weight.contiguous(), scales)


def _vocab_topk(
    logits: torch.Tensor, k: int, first: int, log_sum_exp: bool, comm: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    values, indices, total = _of(comm).vocab_topk(logits.contiguous(), k, first, log_sum_exp)
    return values, indices, values.new_empty(0) if total is None else total


def _vocab_shapes(
    logits: torch.Tensor, k: int, first: int, log_sum_exp: bool, comm: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = (*logits.shape[:-1], k)
    return (
        logits.new_empty(shape, dtype=torch.float32),
        logits.new_empty(shape, dtype=torch.int64),
        logits.new_empty(logits.shape[:-1] if log_sum_exp else (0,), dtype=torch.float32),
    )


def _all_gather(x: torch.Tensor, size: int, comm: int) -> torch.Tensor:
    return _of(comm).all_gather(x.contiguous())


def _reduce_scatter(x: torch.Tensor, op: int, size: int, comm: int) -> torch.Tensor:
    return _of(comm).reduce_scatter(x.contiguous(), None, op)


def _all_to_all(x: torch.Tensor, comm: int) -> torch.Tensor:
    return _of(comm).all_to_all(x.contiguous())


def _broadcast_(x: torch.Tensor, root: int, comm: int) -> None:
    _of(comm).broadcast(x, root)


def _moe(index: int) -> Moe:
    moe = _handles.get(index)
    if moe is None:
        raise ValueError("the handle of this operator has been closed")
    return moe


def _moe_dispatch_(
    x: torch.Tensor,
    topk_idx: torch.Tensor,
    topk_weights: torch.Tensor | None,
    recv_x: torch.Tensor,
    recv_scales: torch.Tensor | None,
    recv_weights: torch.Tensor,
    recv_counts: torch.Tensor,
    recv_offsets: torch.Tensor,
    moe: int,
) -> None:
    weights = None if topk_weights is None else topk_weights.contiguous()
    _moe(moe).dispatch(x.contiguous(), topk_idx.contiguous(), weights,
                       Received(recv_x, recv_scales, recv_weights, recv_counts, recv_offsets))


def _moe_dispatch(
    x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, moe: int
) -> list[torch.Tensor]:
    weights = None if topk_weights is None else topk_weights.contiguous()
    got = _moe(moe).dispatch(x.contiguous(), topk_idx.contiguous(), weights)
    return [got.x, got.counts, got.offsets, got.weights] + ([] if got.scales is None else [got.scales])


def _moe_shapes(
    x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, moe: int
) -> list[torch.Tensor]:
    got = _moe(moe).empty(x)
    return [got.x, got.counts, got.offsets, got.weights] + ([] if got.scales is None else [got.scales])


def _moe_combine_(y: torch.Tensor, weights: torch.Tensor | None, out: torch.Tensor, moe: int) -> None:
    _moe(moe).combine(y.contiguous(), out, None if weights is None else weights.contiguous())


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_define("all_reduce(Tensor x, int op, int comm) -> Tensor", _all_reduce, lambda x, op, comm: _like(x))
_define("all_reduce_(Tensor(a!) x, int op, int comm) -> ()", _all_reduce_, lambda x, op, comm: None)
_define(
    "all_reduce_quantized(Tensor x, str wire, int steps, int comm) -> Tensor",
    _all_reduce_quantized,
    lambda x, wire, steps, comm: _like(x),
)
_define(
    "all_reduce_rms_norm(Tensor x, Tensor? residual, Tensor weight, float eps, float weight_bias, int comm)"
    " -> (Tensor, Tensor)",
    _all_reduce_rms_norm,
    lambda x, residual, weight, eps, weight_bias, comm: (_like(x), _like(x)),
)
_define(
    "reduce_scatter_rms_norm(Tensor x, Tensor? residual, Tensor weight, float eps, float weight_bias,"
    " bool gather, int mine, int comm) -> (Tensor, Tensor)",
    _reduce_scatter_rms_norm,
    lambda x, residual, weight, eps, weight_bias, gather, mine, comm: (
        x.new_empty((x.shape[0] if gather else mine, x.shape[1])),
        x.new_empty((mine, x.shape[1])),
    ),
)
_define(
    "linear_all_reduce(Tensor x, Tensor weight, Tensor? scales, int comm) -> Tensor",
    _linear_all_reduce,
    lambda x, weight, scales, comm: x.new_empty((x.shape[0], weight.shape[0])),
)
_define(
    "vocab_topk(Tensor logits, int k, int first, bool log_sum_exp, int comm) -> (Tensor, Tensor, Tensor)",
    _vocab_topk,
    _vocab_shapes,
)
_define(
    "all_gather(Tensor x, int size, int comm) -> Tensor",
    _all_gather,
    lambda x, size, comm: x.new_empty((size, *x.shape)),
)
_define(
    "reduce_scatter(Tensor x, int op, int size, int comm) -> Tensor",
    _reduce_scatter,
    lambda x, op, size, comm: x.new_empty((x.shape[0] // size, *x.shape[1:])),
)
_define("all_to_all(Tensor x, int comm) -> Tensor", _all_to_all, lambda x, comm: _like(x))
_define("broadcast_(Tensor(a!) x, int root, int comm) -> ()", _broadcast_, lambda x, root, comm: None)


_define(
    "moe_dispatch_(Tensor x, Tensor topk_idx, Tensor? topk_weights, Tensor(a!) recv_x, Tensor(b!)? recv_scales,"
    " Tensor(c!) recv_weights, Tensor(d!) recv_counts, Tensor(e!) recv_offsets, int moe) -> ()",
    _moe_dispatch_,
    lambda *args: None,
)
_define(
    "moe_dispatch(Tensor x, Tensor topk_idx, Tensor? topk_weights, int moe) -> Tensor[]",
    _moe_dispatch,
    _moe_shapes,
)
_define(
    "moe_combine_(Tensor y, Tensor? weights, Tensor(a!) out, int moe) -> ()", _moe_combine_, lambda *args: None
)


def _plain(x: torch.Tensor) -> bool:
    """Nothing traces this call, so it need not go through PyTorch's dispatcher (4 us)."""
    return (
        type(x) is torch.Tensor
        and not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and x.is_contiguous()
    )


def all_reduce(x: torch.Tensor, comm: Communicator, op: str = "sum") -> torch.Tensor:
    """The reduction of all ranks' `x` [...], as a new tensor [...] on every rank."""
    if _plain(x):
        return comm.all_reduce(x, None, op)
    return torch.ops.solccl.all_reduce(x, OPS[op], comm._index)


def all_reduce_(x: torch.Tensor, comm: Communicator, op: str = "sum") -> torch.Tensor:
    """The reduction of all ranks' `x` [...], contiguous, into `x`. Returns it."""
    if _plain(x):
        return comm.all_reduce(x, x, op)
    torch.ops.solccl.all_reduce_(x, OPS[op], comm._index)
    return x


def all_reduce_quantized(
    x: torch.Tensor, comm: Communicator, wire: str = "int8", steps: int = 0
) -> torch.Tensor:
    """The sum of all ranks' `x` [...] with 8 bits an element on the wire, as a new tensor: see
    Communicator.all_reduce_quantized."""
    if _plain(x):
        return comm.all_reduce_quantized(x, None, wire, steps)
    return torch.ops.solccl.all_reduce_quantized(x, wire, steps, comm._index)


def all_reduce_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    comm: Communicator,
    weight_bias: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of all ranks' `x` [..., hidden] and `residual`, and its RMS norm, in one kernel on GPUs:
    (normed, new residual), as new tensors. See Communicator.all_reduce_rms_norm."""
    if _plain(x) and weight.is_contiguous() and (residual is None or residual.is_contiguous()):
        return comm.all_reduce_rms_norm(x, residual, weight, eps, weight_bias)
    return torch.ops.solccl.all_reduce_rms_norm(x, residual, weight, eps, weight_bias, comm._index)


def reduce_scatter_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    comm: Communicator,
    weight_bias: float = 0.0,
    gather: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """all_reduce_rms_norm of `x` [tokens, hidden], of which each rank keeps its own tokens' rows:
    (normed, new residual). With `gather` the normed rows of all. See
    Communicator.reduce_scatter_rms_norm."""
    first, end = comm.tokens_of(int(x.shape[0]))
    return torch.ops.solccl.reduce_scatter_rms_norm(
        x, residual, weight, eps, weight_bias, gather, end - first, comm._index
    )


def linear_all_reduce(
    x: torch.Tensor, weight: torch.Tensor, comm: Communicator, scales: torch.Tensor | None = None
) -> torch.Tensor:
    """`x` [tokens, inputs], at most 16 tokens, times `weight` [outputs, inputs], transposed, summed over
    the ranks. See Communicator.linear_all_reduce."""
    return torch.ops.solccl.linear_all_reduce(x, weight, scales, comm._index)


def vocab_topk(
    logits: torch.Tensor, k: int, comm: Communicator, first: int | None = None, log_sum_exp: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The k largest logits of each token, of a vocabulary whose columns are divided among the ranks:
    (values, indices, log_sum_exp), as new tensors; the last one empty if not asked for. See
    Communicator.vocab_topk."""
    first = comm.rank * logits.shape[-1] if first is None else first
    return torch.ops.solccl.vocab_topk(logits, k, first, log_sum_exp, comm._index)


def all_gather(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Every rank's `x` [...], as a new tensor [size, ...] on every rank."""
    if _plain(x):
        return comm.all_gather(x)
    return torch.ops.solccl.all_gather(x, comm.size, comm._index)


def reduce_scatter(x: torch.Tensor, comm: Communicator, op: str = "sum") -> torch.Tensor:
    """Block `rank` of the reduction of all ranks' `x` [size * n, ...]: a new tensor [n, ...]."""
    if _plain(x):
        return comm.reduce_scatter(x, None, op)
    return torch.ops.solccl.reduce_scatter(x, OPS[op], comm.size, comm._index)


def all_to_all(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Block p of rank r's `x` [size * n, ...] as block r of rank p's result, of equal shape."""
    if _plain(x):
        return comm.all_to_all(x)
    return torch.ops.solccl.all_to_all(x, comm._index)


def broadcast_(x: torch.Tensor, comm: Communicator, root: int = 0) -> torch.Tensor:
    """Root's `x` [...], contiguous, into `x` on every rank. Returns it."""
    if _plain(x):
        return comm.broadcast(x, root)
    torch.ops.solccl.broadcast_(x, root, comm._index)
    return x


def moe_dispatch(
    x: torch.Tensor,
    topk_idx: torch.Tensor,
    topk_weights: torch.Tensor | None,
    moe: Moe,
    out: Received | None = None,
) -> Received:
    """Tokens `x` [tokens, hidden] to the experts `topk_idx` [tokens, top_k]. See Moe.dispatch. `out`: of
    `moe.empty`, for graphs; else new tensors."""
    if out is not None:
        torch.ops.solccl.moe_dispatch_(x, topk_idx, topk_weights, out.x, out.scales, out.weights, out.counts,
                                       out.offsets, moe._index)
        return out
    got = torch.ops.solccl.moe_dispatch(x, topk_idx, topk_weights, moe._index)
    return Received(got[0], got[4] if len(got) > 4 else None, got[3], got[1], got[2])


def moe_combine(
    y: torch.Tensor, out: torch.Tensor, moe: Moe, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """The experts' outputs `y`, where moe_dispatch put their inputs, as a weighted sum for each token, into
    `out` [tokens, hidden]. Returns it. See Moe.combine."""
    torch.ops.solccl.moe_combine_(y, weights, out, moe._index)
    return out
