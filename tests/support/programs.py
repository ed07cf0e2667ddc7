"""Random programs, and random worlds of them: traffic beside them, and changes of clocks and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from worlds import GHZ, KB, NS, RATE, US, Work, World, trace_of

from bpusim.trace import Op, Repeat, Trace

Work_ = st.tuples(
    st.one_of(st.just(0), st.integers(0, 60 * KB)),  # bytes read
    st.sampled_from([0, 0, 3, 40]),  # more for each position
    st.one_of(st.just(0), st.integers(0, 3000), st.integers(0, 25_000)),  # cycles
    st.sampled_from([1, 1, 2, 4]),  # tiles
    st.sampled_from([None, None, None, 0, 3 * KB, 40 * KB]),  # bytes written
    st.booleans(),  # reads what was written last
)


def programs() -> st.SearchStrategy[Trace]:
    return st.builds(program, st.lists(Work_, min_size=1, max_size=16), st.integers(1, 3))


def program(rows: Sequence[tuple[int, int, int, int, int | None, bool]], layers: int) -> Trace:
    """Ops, of which the second half is a layer if there are several."""
    ops: list[Op] = []
    buffer = ""
    for k, (read, more, cycles, tiles, write, after) in enumerate(rows):
        reads: dict[str, tuple[int, ...]] = {"kv": (read, more)} if read or more else {}
        if after and buffer:
            reads[buffer] = (1000,)
        if write is not None:
            buffer = f"{'io' if k % 2 else 'spill'}:x{k}"
        writes = {buffer: (write, more)} if write is not None else {}
        pieces = (tiles, 0, int(k % 5 == 0))
        ops.append(Op(f"o{k}", "A", "mac", cycles=(cycles, more // 3), tiles=pieces, read=reads, write=writes))
    half = len(ops) // 2
    return trace_of(*ops[:half], Repeat(layers, "l", tuple(ops[half:]))) if layers > 1 else trace_of(*ops)


@st.composite
def worlds(
    draw: Any, traces: st.SearchStrategy[Trace], cores: tuple[int, int] = (2, 4), *, disturbed: bool = True
) -> World:
    """Cores that begin at different times on two programs, some of them stalling for room."""
    known = draw(st.lists(traces, min_size=1, max_size=2))
    works = []
    for _ in range(draw(st.integers(*cores))):
        kv, step, n = draw(
            st.tuples(st.sampled_from([0, 1, 255, 1000]), st.sampled_from([0, 1, 50]), st.integers(1, 3))
        )
        work = Work(
            draw(st.sampled_from(known)),
            tuple(kv + step * i for i in range(n)),
            start=draw(st.integers(0, 100 * US)),
            op_overhead=draw(st.sampled_from([0, 300 * NS, 2 * US])),
            layer_sync=draw(st.sampled_from([0, US])),
            window=draw(st.sampled_from([10**6, 10**6, 2 * 10**6])),
            limit=draw(st.sampled_from([RATE, RATE, RATE // 2, RATE // 3])),
        )
        factor = draw(st.sampled_from([1.0, 1.3, 2.0, 4.0, 20.0]))
        works.append(replace(work, room=max(1, int(work.largest_read * factor))))
    if not disturbed:
        return World(tuple(works))
    when, which = st.integers(0, 1000 * US), st.integers(0, len(works) - 1)
    hz = st.sampled_from([GHZ // 2, GHZ * 7 // 10, GHZ, 2 * GHZ])
    rate = st.sampled_from([RATE // 4, RATE // 3, RATE // 2, RATE])
    part = st.sampled_from([0.3, 0.5, 0.9, 1.0])
    return World(
        tuple(works),
        tuple(draw(st.lists(st.tuples(when, st.integers(1, 400 * KB)), max_size=4))),
        tuple(draw(st.lists(st.tuples(when, which, hz), max_size=3))),
        tuple(draw(st.lists(st.tuples(when, which, rate), max_size=3))),
        speeds=tuple(draw(st.lists(st.tuples(when, part), max_size=3))),
    )
