# SPDX-License-Identifier: Apache-2.0
"""One-sided transfer: writes into other ranks' memory, with counters there of what has come."""

from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import TYPE_CHECKING, Any

from ._arrays import Buffer, buffer_of, itemsize
from ._library import Pages, Region, TransferConfig, Write, check, lib

if TYPE_CHECKING:
    from ._communicator import Communicator

_COUNTS = {"writes": 0, "bytes": 1}


def _count_of(count: str) -> int:
    if count not in _COUNTS:
        raise ValueError(f"count is {count!r}: expected 'writes' or 'bytes'")
    return _COUNTS[count]


def _numbers(pages: Any) -> tuple[Any, int, Any]:
    """Page numbers in host memory: pointer, how many, what keeps them alive."""
    if pages is None:
        return None, -1, None
    if not getattr(pages, "is_cuda", False) and not isinstance(pages, (list, tuple, range)):
        try:
            buffer = buffer_of(pages)
            if itemsize(buffer[2]) == 4 and buffer[2] in (2, 3):
                return buffer[0], buffer[1], pages
        except (TypeError, ValueError):
            pass
    numbers = array.array("I", pages.tolist() if hasattr(pages, "tolist") else pages)
    return numbers.buffer_info()[0], len(numbers), numbers


class Transfer:
    """Memory of every rank that the others may write to; of `Communicator.transfer`.

    `regions` are this rank's. Counters begin at 0 and only grow. Use it as a context
    manager, or close it when everything that others write to it has come.
    """

    def __init__(self, comm: Communicator, regions: Sequence[Any], counters: int) -> None:
        self._comm = comm
        self._handle: int | None = None
        self.regions = list(regions)
        buffers = [buffer_of(x, True) for x in self.regions]
        table = (Region * max(1, len(buffers)))()
        for region, b in zip(table, buffers):
            region.memory, region.bytes = b[0], b[1] * itemsize(b[2])
        config = TransferConfig(
            size=sizeof(TransferConfig), regions=table, nregions=len(buffers), counters=counters
        )
        handle = c_void_p()
        check(lib.sol_transfer_create(comm._h(), byref(config), byref(handle)), comm._handle)
        self._handle = handle.value

    def _h(self) -> int:
        if self._handle is None or self._comm._handle is None:
            raise ValueError("the transfer has been closed")
        return self._handle

    def close(self) -> None:
        """Give it up. Local. Twice is fine; closing the communicator does it too."""
        if self._handle is not None and self._comm._handle is not None and not self._comm._closed:
            check(lib.sol_transfer_destroy(self._handle), self._comm._handle)
        self._handle = None

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(
        self,
        writes: Iterable[tuple[Any, int, int] | tuple[Any, int, int, int]],
        counter: int = -1,
        count: str = "writes",
        stream: Any = None,
    ) -> None:
        """Write a list of (array, peer, offset in bytes[, region = 0]).

        At each peer its `counter` (-1: none) grows, in this rank's name, by the writes that have
        come, or by their bytes. CPU ranks: done on return. GPU ranks: ordered on the stream."""
        entries = [(w[0], w[1], w[2], w[3] if len(w) > 3 else 0) for w in writes]
        buffers: list[Buffer] = [buffer_of(e[0]) for e in entries]
        table = (Write * max(1, len(entries)))()
        for slot, b, (_, peer, offset, region) in zip(table, buffers, entries):
            slot.source, slot.bytes = b[0], b[1] * itemsize(b[2])
            slot.peer, slot.offset, slot.region = peer, offset, region
        at = self._comm._stream(stream, entries[0][0] if entries else None)
        status = lib.sol_transfer_write(table, len(entries), counter, _count_of(count), self._h(), at)
        check(status, self._comm._handle)

    def write_pages(
        self,
        source: Any,
        peer: int,
        page_bytes: int,
        from_pages: Any = None,
        to_pages: Any = None,
        *,
        npages: int | None = None,
        region: int = 0,
        offset: int = 0,
        from_stride: int = 0,
        to_stride: int = 0,
        counter: int = -1,
        count: str = "writes",
        stream: Any = None,
    ) -> None:
        """Page from_pages[i] of `source` becomes page to_pages[i] of the peer's region.

        from_pages, to_pages: page numbers (a list, or an array of 32-bit integers in host memory is
        fastest); None: 0, 1, 2, ... Strides are bytes from a page to the next, by default page_bytes.
        """
        a, n, keep_a = _numbers(from_pages)
        b, m, keep_b = _numbers(to_pages)
        total = n if n >= 0 else m
        if (n >= 0 and m >= 0 and n != m) or (npages is not None and total >= 0 and npages > total):
            raise ValueError(f"from_pages has {n} numbers, to_pages {m}, npages is {npages}")
        pages = Pages(
            size=sizeof(Pages),
            source=buffer_of(source)[0],
            from_stride=from_stride,
            from_pages=a,
            offset=offset,
            to_stride=to_stride,
            to_pages=b,
            npages=npages if npages is not None else max(total, 0),
            page_bytes=page_bytes,
            peer=peer,
            region=region,
        )
        at = self._comm._stream(stream, source)
        status = lib.sol_transfer_write_pages(byref(pages), 1, counter, _count_of(count), self._h(), at)
        del keep_a, keep_b
        check(status, self._comm._handle)

    def wait_on_stream(
        self, counter: int, value: int, source: int | None = None, stream: Any = None
    ) -> None:
        """What follows on the stream begins when `counter` has reached `value`, as far as rank
        `source` counted (None: all together). Bounded by the communicator's timeout. CPU ranks wait.
        """
        rank = -1 if source is None else source
        at = self._comm._stream(stream, None)
        check(lib.sol_transfer_await(self._h(), counter, rank, value, at), self._comm._handle)

    def wait(
        self, counter: int, value: int, source: int | None = None, timeout: float | None = None
    ) -> None:
        """The same on the host. Raises TimedOutError after `timeout` seconds (None: the
        communicator's), after which everything can still be used. Any thread."""
        ms = -1 if timeout is None else max(0, int(timeout * 1000))
        rank = -1 if source is None else source
        check(lib.sol_transfer_wait(self._h(), counter, rank, value, ms), self._comm._handle)

    def count(self, counter: int, source: int | None = None) -> int:
        """How far `counter` has come, as far as rank `source` counted (None: all together)."""
        value = c_uint64()
        rank = -1 if source is None else source
        check(lib.sol_transfer_count(self._h(), counter, rank, byref(value)), self._comm._handle)
        return value.value


__all__ = ["Transfer"]
