"""What each op of a call did, worked out once the call is over: when, and what it has added to the call's time.

The ladder of a call (:mod:`bpusim.cores.ladder`) is climbed op by op: each of its replays says when an op is over, and
what a step adds is by how much later it is then than before. A delay that is made up for before the end of the call (an
op waited for memory while another's compute would have held it up anyway) has cost the call nothing: of each op counts
only what is never made up for. So an op's share is what it has added to the call, never negative, and the shares of all
ops sum to the call, cause by cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bpusim.cores.ladder import CallResult, Setting
from bpusim.cores.tiles import Alone, CallTimes, arrivals
from bpusim.ports import CALL_CAUSES, CallDetail, Flow
from bpusim.trace import CallPart, CallProgram
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Floats, Ints
    from bpusim.trace import CallItems

__all__ = ["Fetch", "detail_of"]

Fetch = tuple[int, Flow]
"""A flow, and the item of the whole call with which it began."""


def detail_of(
    core: str,
    label: str,
    call: CallProgram,
    result: CallResult,
    computed: Ints,
    times: CallTimes,
    best: Setting,
    fetches: Sequence[Fetch],
) -> CallDetail:
    """``computed``: when each item was; ``times``: of the items as the call ended; ``best``: what the machine was made
    for; ``fetches``: the flows of the call, in order."""
    items = call.items
    reads = np.flatnonzero(~items.is_write)
    op = items.op[reads]
    new = np.flatnonzero(op[1:] != op[:-1])  # each op has reads, if only an empty one
    heads, tails = reads[_with(0, new + 1)[: len(op)]], reads[_with(new, len(op) - 1)[-len(op) or 1 :]]
    before = _with(result.start, computed)[:-1]
    begin = np.minimum(np.maximum(computed - times.compute, before), computed)
    arrived = _arrived(call, result.start, fetches)
    arrived[reads] -= arrived[reads] == computed[reads] + 1  # both are rounded to a picosecond, each by itself
    since = _with(result.start, arrived)[:-1]
    for first, flow in fetches:
        at = first - _offset(call)
        if 0 <= at < len(since):
            since[at] = max(since[at], flow.history[0][0])
    rows = items.op[tails]
    compute = np.array((begin[heads], computed[tails])).T
    read = np.array((since[_moving(items, heads, tails)], arrived[tails])).T
    write = np.array((read[:, 1], read[:, 1])).T
    written = np.flatnonzero(items.is_write)
    row = items.op[written] - (rows[0] if len(rows) else 0)
    written, row = written[row >= 0], row[row >= 0]  # of an op that was over before this part there is no row
    write[row, 0], write[row, 1] = since[written], arrived[written]
    causes = _causes(call, result, begin, computed, best, tails)
    return CallDetail(
        core, label, call, result.start, result.end, rows, items.first[heads], causes, compute, read, write
    )


def _moving(items: CallItems, heads: Ints, tails: Ints) -> Ints:
    """The first item with bytes that each op reads, or its first one: its first tiles may have none."""
    n = len(items.bytes)
    with_bytes = np.where(items.is_write | (items.bytes == 0), n, np.arange(n))
    following = np.minimum.accumulate(with_bytes[::-1])[::-1]
    return np.where(following[heads] <= tails, following[heads], heads)


def _with(first: Ints | int, then: Ints | int) -> Ints:
    return np.concatenate((np.atleast_1d(first), np.atleast_1d(then)))


def _offset(call: CallProgram) -> int:
    """Where a part begins in its whole."""
    return call.start if isinstance(call, CallPart) else 0


def _arrived(call: CallProgram, start: Ps, fetches: Sequence[Fetch]) -> Ints:
    """When each item had arrived: an item without bytes when the one before it had."""
    size = call.items.bytes
    out = np.full(len(size), start, dtype=np.int64)
    for first, flow in fetches:
        at = max(first - _offset(call), 0)
        history = flow.history
        moved = np.cumsum(size[at:])
        n = int(np.searchsorted(moved, history[-1][1] + 0.5, side="right"))
        if n:
            out[at : at + n] = arrivals(moved[:n], history) if len(history) > 1 else history[0][0]
    return np.maximum.accumulate(out)


def _causes(call: CallProgram, result: CallResult, begin: Ints, computed: Ints, best: Setting, tails: Ints) -> Ints:
    """Ops x causes; each column sums to the call's."""
    timing = best.timing
    out = np.zeros((len(tails), len(CALL_CAUSES)), dtype=np.int64)
    if not len(tails):
        return out
    times = CallTimes.of(call.items, timing.hz, timing.scratchpad, timing.op_overhead, timing.layer_sync)
    overhead = np.cumsum(call.items.first * timing.op_overhead + call.items.layer_end * timing.layer_sync)
    work = np.cumsum(times.compute)
    latency = best.latency if call.bytes else 0
    unlimited, real = (latency + done for done in Alone(times, best.rate).computed())
    first = result.start + result.wakeup
    # Slower clocks make an item end later than it begins late: both count. On the rungs before they are the same.
    behind = np.array((begin - first - (real - times.compute), computed - first - real)).T.ravel()
    late = _kept(behind[: 2 * tails[-1] + 2], result.contention + result.throttling)[1::2][tails]
    slow = _part(late, result.throttling)
    steps = {
        "compute": _rising(work[tails] - overhead[tails], result.compute),
        "dram": _kept((unlimited - work)[: tails[-1] + 1], result.dram)[tails],
        "scratchpad": _kept((real - unlimited)[: tails[-1] + 1], result.scratchpad)[tails],
        "contention": late - slow,
        "throttling": slow,
        "wakeup": np.full(len(tails), result.wakeup),
        "dispatch": _rising(overhead[tails], result.dispatch),
    }
    until = np.array([steps[cause] for cause in CALL_CAUSES]).T
    out[0], out[1:] = until[0], until[1:] - until[:-1]
    return out


def _rising(until: Ints, total: Ps) -> Ints:
    """What rises to ``total``, but for rounding."""
    out: Ints = np.minimum(until, total)
    out[-1] = total
    return out


def _part(late: Ints, total: Ps) -> Ints:
    """Of delays that rise to ``late[-1]``, a part that rises to ``total``."""
    if not total:
        return np.zeros_like(late)
    whole = int(late[-1])
    return np.array([n * total // whole for n in late.tolist()])  # products of ps are too large for an array


def _kept(late: Ints | Floats, total: Ps) -> Ints:
    """Of delays in the order of time, what is never made up for; it rises to ``total``, that of the call: the last
    writes are the last op's."""
    whole: Ints = np.rint(np.minimum(late, total)).astype(np.int64)
    whole[-1] = total
    return np.maximum(np.minimum.accumulate(whole[::-1])[::-1], 0)
