"""The bank model's inner loop, compiled: one channel, its banks, its controller, and the masters that drive it.

Time is the command clock. Nothing is done clock by clock: time jumps to the next of two things that can happen: a
master injects a request, or the controller issues a command. When a read's data comes back is known when its command
goes out, so it is written down then and looked at when it matters: by a master that waits for a place in its window.

**Masters.** One request a clock enters the controller. Among those that could send one, ``MODE`` and each master's
``LEVEL`` decide: polled in turn, first come (who has waited longest), or fair (start-time fair queueing by ``COST``).
The same order ranks requests inside the controller. Open-loop masters generate lines at their own pace into a buffer;
what finds it full is dropped, and counted.

**Controller.** First ready, first come: of the commands that are ready at the earliest moment any is, that of the
first request in rank goes (a column access, an activate or a precharge). A request whose row was opened for it goes
before all others, even if the bus must change ranks for it, and its row stays open until it is served. A ready
precharge for another row may close a row whose hits are not ready yet. Writes wait in a queue of their own and are
served between two watermarks, or when there is nothing to read. A refresh that is due goes before all in its rank but
the requests whose rows were opened for them, one of a single bank too; it closes the rows it must and keeps its banks
busy. A per-bank refresh counts as an activate for tRRD and tFAW.

State is a few arrays of records, whose fields are named below; :mod:`bpusim.dram.bank.model` fills them.

NOTE: ``advance`` is one long function on purpose: its scalars stay in registers, and a record's field is one load. An
array for each field costs several times as much, and so does calling a function with arrays in the inner loop. All of
it is in one file on purpose too: numba's cache looks at the file of the compiled function only, and would go on with
what it has inlined from others after they changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["ACT", "COLUMNS", "NEVER", "PRE", "PREA", "RD", "REF", "REFB", "WR", "State", "advance", "fetch"]

NEVER = 1 << 60
_FIRST = 1 << 50
_LEVEL = 44
"""A level is so many bits above the rank within it."""
_CREDIT = 1 << 22
"""How far behind fair queueing's virtual time a master may fall and still catch up: a thousand lines of weight 1."""
_RANK = 51
"""Bits of a rank, with which it and a time make one number."""
_FAR = (1 << 11) - 1
"""Clocks for which such a number has room."""
FINE = 10
"""Paces are fixed-point clocks with so many binary digits."""
RD, WR, ACT, PRE, PREA, REF, REFB = range(7)
_IDLE = 7
POLLED, FIRST_COME, FAIR = range(3)
SEQ, RANDOM, STRIDE, COPY, LIST = range(5)
COLUMN_BITS, BANK_BITS, ROW_BITS, XOR = range(4)


def _record(names: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for name in names.split()])


CONFIG = _record(
    "rcd rp_pb rp_ab ras rc half rrd_s rrd_l faw ccd_s ccd_l rank rd_wr wr_rd_s wr_rd_l rd_pre wr_pre done refi rfc_ab "
    "rfc_pb rank_wr_rd burst busy_act busy_col busy_pre busy_ref banks groups ranks reads writes high low cap age fifo "
    "closed refresh mode"
)
"""Clocks between commands, from first clock to first clock; the device; the controller. ``half``: a refresh comes so
much later than an activate could (:class:`bpusim.dram.timing.Extra`), and counts as an activate so much earlier."""
MASTER = _record(
    "kind base region chunk pitch write count window gap background seed pace path level cost group places open on "
    "period index out ready served last bank row next_write segment offset head tail queued fine tag backlog dropped "
    "written waited waits"
)
"""What a master asks for, and from ``index`` on how far it is: lines injected; places of its window in use; when it may
inject; lines got and the clock of the last (brought up to date when a run stops); its next line; its place in a list of
stretches; the ring of its returns; reads in the queue; fixed-point time of its next line; fair queueing's tag; an
open-loop master's buffer and what it dropped; clock of its last write; sum and number of its reads' latencies.

``group``: the master that keeps fair queueing's tag for it and its like. ``places``: reads of it that the controller
holds at most. ``open``: lines of an open-loop master's buffer (0: closed loop). ``on``, ``period``: clocks of a burst,
and from one to the next (0: no bursts)."""
ENTRY = _record("row bank sequence key master accepted visible after before newer older")
"""A request in the controller, linked to its neighbours in the line for its bank and in its whole queue, by rank."""
LINE = _record("head tail hit miss")
"""Requests of one queue for one bank by rank; the first that wants the open row, the first that wants another."""
BANK = _record("rank part run open_row opened_for act_ready col_ready pre_ready")
SLOT = _record("time key entry gate lead live")
"""What a bank could do next, as far as it alone decides: when, with which rank, for which request, behind which gate.
Each bank has two: a column access, and a row command (or a second column access, of the other queue). ``lead``: 1 and
its rank for a request whose row was opened for it, which may wait for the bus to change ranks and still go first.
``live``: its place in the lists of those that hold something; in the first half are plain column accesses."""
RANK = _record("faw_at refresh_at refresh_due refresh_bank refresh_ok")
RUN = _record(
    "now injected free_cmd sequence turn writing n_read n_write free_r free_w hits served refreshes logged activates "
    "virtual bus turned"
)

U = np.uint64
"""Indices are unsigned in the loop: of a signed one, numba looks whether it counts from the end."""

COLUMNS = ("time", "command", "rank", "bank", "row", "request")


class State(NamedTuple):
    """Everything that changes, so that a run can stop and go on."""

    run: NDArray[np.void]
    masters: NDArray[np.void]
    entries: NDArray[np.void]
    lines: NDArray[np.void]
    banks: NDArray[np.void]
    slots: NDArray[np.void]
    ranks: NDArray[np.void]
    gates: NDArray[np.int64]
    faw: NDArray[np.int64]
    free: NDArray[np.int64]
    live: NDArray[np.int64]
    ends: NDArray[np.int64]
    """First read and write by rank, last read and write."""
    returns: NDArray[np.int64]
    latency: NDArray[np.int64]


@njit(cache=True, error_model="numpy")
def _mix(x):
    """SplitMix64: the generator of the reference streams."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, inline="always", error_model="numpy")
def fetch(m, segments, bits):
    """The next line of a master: its bank, row, and whether it is written."""
    i = m.index
    write = 0
    if m.kind == LIST:
        line = segments[m.segment, 0] + m.offset
        write = segments[m.segment, 2]
        m.offset += 1
        if m.offset == segments[m.segment, 1]:
            m.segment += 1
            m.offset = 0
    elif m.kind == SEQ:
        line = m.base + (i & (m.region - 1) if m.region & (m.region - 1) == 0 else i % m.region)
    elif m.kind == RANDOM:
        x = _mix((np.uint64(m.seed) << np.uint64(40)) + np.uint64(i))
        region = np.uint64(m.region)  # dividing is dear, and most regions are powers of two
        line = m.base + np.int64(x & (region - np.uint64(1)) if m.region & (m.region - 1) == 0 else x % region)
    elif m.kind == STRIDE:
        line = m.base + (i // m.chunk * m.pitch + i % m.chunk) % m.region
    else:
        r = i % (2 * m.chunk)
        write = 1 if r >= m.chunk else 0
        line = m.base + write * m.pitch + (i // (2 * m.chunk) * m.chunk + r % m.chunk) % m.region
    if m.write and m.kind <= RANDOM:
        x = _mix(np.uint64(m.seed) * np.uint64(1000003) + np.uint64(i))
        write = 1 if x % np.uint64(100) < np.uint64(m.write) else 0
    bank, row, have = 0, 0, 0
    for k in range(bits.shape[0]):
        what, n, at = bits[k, 0], bits[k, 1], bits[k, 2]
        if what == XOR:
            bank ^= ((row >> n) & bits[k, 3]) << at
        else:
            part = line & ((1 << n) - 1)
            line >>= n
            if what == BANK_BITS:
                bank |= part << at
            elif what == ROW_BITS:
                row |= part << have
                have += n
    m.bank, m.row, m.next_write = bank, row, write


@njit(cache=True, error_model="numpy")
def _note(log, n, time, command, rank, bank, row, request):
    """Keep a command in the log; returns how many it has."""
    log[n, 0], log[n, 1], log[n, 2] = time, command, rank
    log[n, 3], log[n, 4], log[n, 5] = bank, row, request
    return n + 1


@njit(cache=True, error_model="numpy")
def _generate(m, now):
    """An open-loop master's lines up to ``now``: into its buffer, or dropped."""
    on, period, at = m.on << FINE, m.period << FINE, m.fine
    while at <= now << FINE:
        if m.backlog < m.open:
            m.backlog += 1
        else:
            m.dropped += 1
        at += m.pace
        if period and at % period >= on:
            at += period - at % period
    m.fine = at


@njit(cache=True, error_model="numpy")
def _settle(now, masters, returns):
    """Bring up to date what masters have got by ``now``; drop what open-loop masters cannot hold."""
    ring = returns.shape[1]
    for j in range(masters.shape[0]):
        m = masters[j]
        # Lines that were injected, less those in the queue and those whose data is under way.
        got, i = m.index - m.queued, m.tail
        while i != m.head:
            i = i - 1 if i > 0 else ring - 1
            if returns[j, i] <= now:
                m.last = max(m.last, returns[j, i])
                break
            got -= 1
        m.served = got
        m.last = max(m.last, m.written)
        if m.open and m.index < m.count:
            _generate(m, now)


@njit(cache=True, error_model="numpy")
def _horizon(until, stop_at_end, masters, returns):
    """(clock to stop at, master whose end that is or -1): the first end of a foreground master, or the last one."""
    horizon, who, last, open_, news = until, -1, -1, False, False
    for j in range(masters.shape[0]):
        m = masters[j]
        if m.background:
            continue
        end = NEVER
        if m.index >= m.count and m.queued == 0:
            end = max(m.written, m.last)
            if m.head != m.tail:
                end = max(end, returns[j, (m.tail if m.tail else returns.shape[1]) - 1])
        if stop_at_end:
            if end < horizon and m.served < m.count:
                horizon, who = end, j
        elif end == NEVER:
            open_ = True
        else:
            news = news or m.served < m.count
            if end > last:
                last, who = end, j
    if not stop_at_end:
        return (last, who) if news and not open_ and last < until else (until, -1)
    return horizon, who


@njit(cache=True, error_model="numpy")
def _foremost(slots, gates, live, plain, half, rest, base, switch, bus):
    """The slot whose command goes first, however far they are apart and even if ranks are equal."""
    best, sort, key = -1, NEVER, NEVER
    for k in range(plain + rest):
        i = live[k if k < plain else half + k - plain]
        slot = slots[i]
        t = max(slot.time, gates[slot.gate], base)
        s = t if switch == 0 or slot.lead in (0, bus) else t - switch
        if best < 0 or s < sort or (s == sort and (slot.key < key or (slot.key == key and i < best))):
            best, sort, key = i, s, slot.key
    return best


@njit(cache=True, error_model="numpy")
def advance(until, stop_at_end, config, segments, bits, st, log):
    """Run until clock ``until``, or until a foreground master has all it asked for.

    Returns the master that is done, or -1 when ``until`` came first (or nothing can happen any more). Nothing that
    would happen at or after ``until`` is done.
    """
    c, v = config[0], st.run[0]
    masters, entries, lines, banks, slots, ranks = st.masters, st.entries, st.lines, st.banks, st.slots, st.ranks
    gates, faw, free, live, ends, returns, latency = st.gates, st.faw, st.free, st.live, st.ends, st.returns, st.latency
    now, injected, free_cmd, sequence, turn = v.now, v.injected, v.free_cmd, v.sequence, v.turn
    writing, n_read, n_write, free_r, free_w = v.writing, v.n_read, v.n_write, v.free_r, v.free_w
    logged, virtual, bus, turned = v.logged, v.virtual, v.bus, v.turned
    nm, ring, buckets = masters.shape[0], returns.shape[1], latency.shape[1]
    reads, groups, per_rank, n_ranks = c.reads, c.groups, c.banks, c.ranks
    total, high, low, cap, special = per_rank * n_ranks, c.high, c.low, c.cap, c.fifo or c.age
    batch = c.writes
    switch = c.rank - c.burst if n_ranks > 1 else 0
    mode, per_bank, closed, room = c.mode, c.refresh == 2, c.closed, log.shape[0]
    due = 0
    for r in range(n_ranks):
        due += ranks[U(r)].refresh_due
    horizon, finisher = _horizon(until, stop_at_end, masters, returns)
    # NOTE: what a bank could do next is kept in its slots, and worked out again only for banks that a command or a
    # request touched: ``low_bank`` to ``high_bank``, and ``also``. What it shares with others is behind gates (a time
    # for each command of each bank group), and added when all slots that hold something are compared.
    low_bank, high_bank, also, fresh = 0, total, -1, True
    when, sort, key, command, target = NEVER, NEVER, NEVER, -1, -1
    following = when, command, target
    refresh_next, n_plain, n_rest, holder, half = -1, 0, 0, -1, 2 * total
    one_gate = n_ranks * groups == 1
    for b in range(2 * total):
        slots[U(b)].live = -1
    while True:
        # The next injection: one request a clock.
        earliest = now if now > injected else injected
        inject, who, level, score, issued = NEVER, -1, NEVER, NEVER, 0
        j = turn
        for _ in range(nm):
            m = masters[U(j)]
            if m.index < m.count:
                t = m.ready
                can = free_w > 0 if m.next_write else free_r > 0 and m.queued < m.places
                if m.out >= m.window and (m.path or not m.next_write):
                    if m.head == m.tail:
                        can = False
                    else:
                        t = max(t, returns[U(j), U(m.head)])
                if can:
                    since = t
                    t = max(t, earliest)
                    if mode == POLLED and m.level == 0:
                        if t < inject or (t == inject and level > 0):
                            inject, who, level, score, issued = t, j, 0, 0, since
                        if t == earliest:
                            break
                    elif t <= inject:
                        s = 0
                        if mode == FIRST_COME:
                            s = since
                        elif mode == FAIR:
                            s = max(masters[U(m.group)].tag, virtual - _CREDIT)
                        if t < inject or m.level < level or (m.level == level and s < score):
                            inject, who, level, score, issued = t, j, m.level, s, since
            j += 1
            if j == nm:
                j = 0
        # Which queue is served. But for polled masters, either has its turn after a batch of the other (under fair
        # queueing if it ranks first). Writes of a better level go at once, those of a worse one after four batches.
        waits, outranks, outranked, calm = turned >= batch, False, False, True
        if mode != POLLED and n_read > 0 and n_write > 0:
            mine, theirs = entries[U(ends[U(writing)])].key, entries[U(ends[U(1 - writing)])].key
            calm = mode != FAIR or theirs < mine
            waits = waits and calm
            outranks = theirs >> _LEVEL < mine >> _LEVEL
            outranked = mine >> _LEVEL < theirs >> _LEVEL
        if writing:
            turn_back = mode != POLLED and turned >= batch and (outranks or (waits and not outranked))
            if n_write == 0 or (n_read > 0 and ((n_write < low and calm) or turn_back)):
                writing, turned, fresh, low_bank, high_bank = 0, 0, True, 0, total
        elif (n_read == 0 and n_write > 0) or (
            n_write > high and (mode == POLLED or outranks or (turned >= 4 * batch if outranked else waits))
        ):
            writing, turned, fresh, low_bank, high_bank = 1, 0, True, 0, total
        base = now if now > free_cmd else free_cmd
        if special:
            fresh, low_bank, high_bank = True, 0, total
        if refresh_next <= now:  # becoming due is an event of its own
            refresh_next, fresh = NEVER, True
            for r in range(n_ranks):
                rank = ranks[U(r)]
                if rank.refresh_due:
                    continue
                if rank.refresh_at <= now:
                    rank.refresh_due = 1
                    due += 1
                    low_bank, high_bank = 0, total
                elif rank.refresh_at < refresh_next:
                    refresh_next = rank.refresh_at
        # An age limit, or first come first served, looks at the oldest request alone.
        only, look = -1, NEVER
        if special:
            only = ends[U(writing)]
            if only >= 0 and not c.fifo and base - entries[U(only)].accepted < c.age:
                look = entries[U(only)].accepted + c.age
                only = -1
        # While the command bus is busy nothing but an injection can happen: what it and the command before it touched
        # is looked at together.
        skips = fresh and also < 0 and not special and not closed
        if skips and inject < base and inject < refresh_next and inject < horizon:
            when = NEVER
        else:
            # What could each bank do that something touched?
            for n in range(low_bank, high_bank + (also >= 0)):
                b = n if n < high_bank else also
                bank, line = banks[U(b)], lines[U(writing * total + b)]
                column, other = slots[U(2 * b)], slots[U(2 * b + 1)]
                h, x, y, z = line.head, bank.opened_for, -1, -1
                what = ACT
                if h >= 0 and (only < 0 or entries[U(only)].bank == b):
                    rank = ranks[U(bank.rank)]
                    if not (due and rank.refresh_due):
                        y = line.hit
                        if only >= 0:
                            h = only
                            y = only if entries[U(only)].row == bank.open_row else -1
                        if cap and y >= 0 and y != h and bank.run >= cap:
                            y = -1
                        if x >= 0:
                            pass
                        elif bank.open_row < 0:
                            z, other.time = h, bank.act_ready
                        else:  # a row may be closed for a request of another, older or younger than its hits
                            z, what, other.time = line.miss, PRE, bank.pre_ready
                            if only >= 0:
                                z = only if y < 0 else -1
                if x >= 0:  # a row opened for a request: it goes first, whichever queue it is in
                    w = 1 if x >= reads else 0
                    if y >= 0 and w != writing:
                        z, what, other.time = y, writing, bank.col_ready
                    y = x
                    column.time, column.key, column.gate = bank.col_ready, entries[U(x)].key - _FIRST, 4 * bank.part + w
                    column.lead = 1 + bank.rank
                elif y >= 0:
                    entry = entries[U(y)]
                    column.time, column.key = max(bank.col_ready, entry.visible), entry.key
                    column.gate, column.lead = 4 * bank.part + writing, 0
                if z >= 0:
                    entry = entries[U(z)]
                    other.time, other.key, other.gate = max(other.time, entry.visible), entry.key, 4 * bank.part + what
                column.entry, other.entry = y, z
                for i in range(2 * b, 2 * b + 2):
                    slot = slots[U(i)]
                    place, has, wants = slot.live, -1, -1
                    if place >= 0:
                        has = 0 if place < half else 1
                    if slot.entry >= 0:
                        wants = 0 if i == 2 * b and slot.lead == 0 else 1
                    if has != wants:
                        if has >= 0:
                            if has == 0:
                                n_plain -= 1
                                moves = live[U(n_plain)]
                            else:
                                n_rest -= 1
                                moves = live[U(half + n_rest)]
                            live[U(place)], slots[U(moves)].live = moves, place
                        slot.live = -1
                        if wants == 0:
                            live[U(n_plain)], slot.live = i, n_plain
                            n_plain += 1
                        elif wants == 1:
                            live[U(half + n_rest)], slot.live = i, half + n_rest
                            n_rest += 1
            # The first command of all; after an injection, only its bank can have a new one.
            best = -1
            if fresh:
                when, sort, key, command, target, holder = NEVER, NEVER, NEVER, -1, -1, -1
                if due:
                    for r in range(n_ranks):
                        rank = ranks[U(r)]
                        if not rank.refresh_due:
                            continue
                        b0 = r * per_rank + (rank.refresh_bank if per_bank else 0)
                        b1 = b0 + (1 if per_bank else per_rank)
                        waits, is_open, pre, act = False, False, base, -NEVER
                        for b in range(b0, b1):
                            bank = banks[U(b)]
                            waits = waits or bank.opened_for >= 0
                            if bank.open_row >= 0:
                                is_open = True
                                pre = max(pre, bank.pre_ready)
                            act = max(act, bank.act_ready)
                        if per_bank:
                            act = max(act, rank.refresh_ok - c.half, gates[U(4 * banks[U(b0)].part + ACT)])
                        t = pre if is_open else max(act + c.half, base)
                        if not waits and t < when:
                            when, sort, key, target = t, t, -NEVER, r
                            command = (PRE if per_bank else PREA) if is_open else (REFB if per_bank else REF)
                # Where all columns are behind one gate, the first request of all goes before the others' if its own is
                # there by then.
                first, last = 0, n_plain
                e = ends[U(writing)]
                if one_gate and e >= 0:
                    i = 2 * entries[U(e)].bank
                    slot = slots[U(i)]
                    t = max(gates[U(slot.gate)], base)
                    if slot.entry == e and slot.lead == 0 and slot.time <= t and t <= sort:
                        if t < sort or slot.key < key:
                            when, sort, key, best, holder = t, t, slot.key, i, i
                        last = 0
                if last > 0 or n_rest > 0:
                    # Time and rank as one number, without branches that nobody can predict.
                    near, i = 1 << 62, -1
                    if mode != FAIR:
                        for part in range(2):
                            if part == 1:
                                first, last = half, half + n_rest
                            for k in range(first, last):
                                n = live[U(k)]
                                slot = slots[U(n)]
                                t = max(slot.time, gates[U(slot.gate)], base)
                                s = t if switch == 0 or slot.lead in (0, bus) else t - switch
                                p = (min(s - base + switch, _FAR) << _RANK) + slot.key + _FIRST
                                if p < near:
                                    near, i = p, n
                    if near >> _RANK >= _FAR:
                        i = _foremost(slots, gates, live, n_plain, half, n_rest, base, switch, bus)
                    slot = slots[U(i)]
                    t = max(slot.time, gates[U(slot.gate)], base)
                    s = t if switch == 0 or slot.lead in (0, bus) else t - switch
                    if s < sort or (s == sort and (slot.key < key or (slot.key == key and i < holder))):
                        when, sort, key, best, holder = t, s, slot.key, i, i
            elif low_bank < high_bank:
                for i in range(2 * low_bank, 2 * high_bank):
                    slot = slots[U(i)]
                    if slot.entry >= 0:
                        t = max(slot.time, gates[U(slot.gate)], base)
                        s = t if switch == 0 or slot.lead in (0, bus) else t - switch
                        if s < sort or (s == sort and (slot.key < key or (slot.key == key and i < holder))):
                            when, sort, key, best, holder = t, s, slot.key, i, i
            if best >= 0:
                command, target = slots[U(best)].gate & 3, slots[U(best)].entry
            if closed:  # rows that nobody queued wants are closed as soon as they may be, if that is before all others
                if command == _IDLE:
                    when, command, target = following
                following = when, command, target
                for b in range(total):
                    bank = banks[U(b)]
                    if (
                        bank.open_row >= 0
                        and bank.opened_for < 0
                        and lines[U(b)].hit < 0
                        and lines[U(total + b)].hit < 0
                    ):
                        t = max(bank.pre_ready, base)
                        if t < when:
                            when, command, target = t, _IDLE, b
            low_bank, high_bank, also, fresh = 0, 0, -1, False
        # What comes first?
        if look > refresh_next:
            look = refresh_next
        if when >= look and inject >= look and look < horizon:
            now = look  # nothing happens, but a refresh falls due or a request grows too old to wait
            continue
        if inject <= when:
            if inject >= horizon:
                break
            now = inject
            injected = inject + 1
            turn = who + 1 if who + 1 < nm else 0
            m = masters[U(who)]
            b, w, since = m.bank, m.next_write, issued
            if m.path or not w:
                if m.out < m.window:
                    m.out += 1
                else:  # the place of a line that has come back
                    m.last = returns[U(who), U(m.head)]
                    m.head = m.head + 1 if m.head + 1 < ring else 0
            if w:
                free_w -= 1
                e = free[U(reads + free_w)]
                n_write += 1
                m.written = inject
                if m.path:  # its response, behind those before it
                    t = inject + m.path
                    if m.head != m.tail:
                        t = max(t, returns[U(who), U((m.tail if m.tail else ring) - 1)])
                    returns[U(who), U(m.tail)] = t
                    m.tail = m.tail + 1 if m.tail + 1 < ring else 0
            else:
                free_r -= 1
                e = free[U(free_r)]
                n_read += 1
                m.queued += 1
            s = sequence
            if mode == FAIR:
                s = max(masters[U(m.group)].tag, virtual - _CREDIT)
                masters[U(m.group)].tag = s + m.cost
            s += m.level << _LEVEL
            entry, line = entries[U(e)], lines[U(w * total + b)]
            entry.bank, entry.row, entry.sequence, entry.key, entry.master = b, m.row, sequence, s, who
            entry.accepted = inject if mode == POLLED and (m.gap < 0 or since == 0) else since
            entry.visible = inject + 1
            sequence += 1
            # Into its bank's line and its queue, behind all that rank before it or with it.
            p, n = line.tail, -1
            while p >= 0 and entries[U(p)].key > s:
                p, n = entries[U(p)].before, p
            entry.before, entry.after = p, n
            if p >= 0:
                entries[U(p)].after = e
            else:
                line.head = e
            if n >= 0:
                entries[U(n)].before = e
                fresh = True
            else:
                line.tail = e
            p, n = ends[U(2 + w)], -1
            while p >= 0 and entries[U(p)].key > s:
                p, n = entries[U(p)].older, p
            entry.older, entry.newer = p, n
            if p >= 0:
                entries[U(p)].newer = e
            else:
                ends[U(w)] = e
            if n >= 0:
                entries[U(n)].older = e
            else:
                ends[U(2 + w)] = e
            if banks[U(b)].open_row == m.row:
                if line.hit < 0 or entries[U(line.hit)].key > s:
                    line.hit = e
            elif line.miss < 0 or entries[U(line.miss)].key > s:
                line.miss = e
            if low_bank < high_bank:
                also = b
            else:
                low_bank, high_bank = b, b + 1
            m.index += 1
            if m.open:
                _generate(m, now)
                m.backlog -= 1
                m.ready = now if m.backlog else (m.fine + (1 << FINE) - 1) >> FINE
            elif m.pace > 0:
                # Lines are paced as they leave the master, whenever they enter: what waits outside is in its window.
                # A pace that the window held up starts anew; one that was not keeps the fraction.
                since = inject if w and not m.path else issued
                if since << FINE >= m.fine + (1 << FINE):
                    m.fine = since << FINE
                m.fine += m.pace
                if m.period and m.fine % (m.period << FINE) >= m.on << FINE:
                    m.fine += (m.period << FINE) - m.fine % (m.period << FINE)
                m.ready = max(m.ready, (m.fine + (1 << FINE) - 1) >> FINE)
            if m.index < m.count:
                fetch(m, segments, bits)
            elif not m.background and m.queued == 0:
                horizon, finisher = _horizon(until, stop_at_end, masters, returns)
        elif when >= horizon or when == NEVER:
            break
        elif command <= WR:
            now, fresh = when, True
            e, w = target, command
            entry = entries[U(e)]
            b = entry.bank
            bank, line, m = banks[U(b)], lines[U(w * total + b)], masters[U(entry.master)]
            if logged < room:
                logged = _note(log, logged, when, w, bank.rank, b % per_rank, entry.row, entry.sequence)
            v.served += 1
            turned += 1
            bus = 1 + bank.rank
            if bank.opened_for == e:
                bank.opened_for = -1
            else:
                v.hits += 1
            bank.run += 1
            p, n = entry.before, entry.after
            if p >= 0:
                entries[U(p)].after = n
            else:
                line.head = n
            if n >= 0:
                entries[U(n)].before = p
            else:
                line.tail = p
            if entry.older >= 0:
                entries[U(entry.older)].newer = entry.newer
            else:
                ends[U(w)] = entry.newer
            if entry.newer >= 0:
                entries[U(entry.newer)].older = entry.older
            else:
                ends[U(2 + w)] = entry.older
            if line.hit == e:
                while n >= 0 and entries[U(n)].row != bank.open_row:
                    n = entries[U(n)].after
                line.hit = n
            low_bank, high_bank = b, b + 1
            free_cmd = when + c.busy_col
            for k in range(n_ranks * groups):
                if k == bank.part:
                    same, around = c.ccd_l, (c.wr_rd_l if w else c.rd_wr)
                elif k // groups == bank.rank:
                    same, around = c.ccd_s, (c.wr_rd_s if w else c.rd_wr)
                else:  # another rank: the bus alone is shared
                    same, around = c.rank, (c.rank_wr_rd if w else c.rd_wr + c.rank - c.burst)
                gates[U(4 * k + w)] = max(gates[U(4 * k + w)], when + same)
                gates[U(4 * k + 1 - w)] = max(gates[U(4 * k + 1 - w)], when + around)
            if mode == FAIR:
                virtual = max(virtual, entry.key - (m.level << _LEVEL))
            if w:
                bank.pre_ready = max(bank.pre_ready, when + c.wr_pre)
                free[U(reads + free_w)] = e
                free_w += 1
                n_write -= 1
            else:
                bank.pre_ready = max(bank.pre_ready, when + c.rd_pre)
                free[U(free_r)] = e
                free_r += 1
                n_read -= 1
                m.queued -= 1
                t = when + c.done + m.path
                if m.path and m.head != m.tail:
                    t = max(t, returns[U(entry.master), U((m.tail if m.tail else ring) - 1)])
                returns[U(entry.master), U(m.tail)] = t
                m.tail = m.tail + 1 if m.tail + 1 < ring else 0
                wait = t - entry.accepted
                m.waited += wait
                m.waits += 1
                latency[U(entry.master), U(min(wait, buckets - 1))] += 1
                if m.gap >= 0:
                    m.ready = t + m.gap
                if m.queued == 0 and m.index == m.count and not m.background:
                    horizon, finisher = _horizon(until, stop_at_end, masters, returns)
        elif command == ACT:
            now, fresh = when, True
            entry = entries[U(target)]
            b = entry.bank
            bank = banks[U(b)]
            if logged < room:
                logged = _note(log, logged, when, ACT, bank.rank, b % per_rank, entry.row, entry.sequence)
            v.activates += 1
            bank.open_row, bank.opened_for, bank.run = entry.row, target, 0
            bank.col_ready, bank.pre_ready, bank.act_ready = when + c.rcd, when + c.ras, when + c.rc
            rank = ranks[U(bank.rank)]
            faw[U(4 * bank.rank + rank.faw_at)] = when
            rank.faw_at = (rank.faw_at + 1) & 3
            t = faw[U(4 * bank.rank + rank.faw_at)] + c.faw
            for k in range(bank.rank * groups, (bank.rank + 1) * groups):
                gates[U(4 * k + ACT)] = max(gates[U(4 * k + ACT)], t, when + (c.rrd_l if k == bank.part else c.rrd_s))
            free_cmd = when + c.busy_act
            for k in range(2):  # the first in each line that wants the open row, and the first that wants another
                line = lines[U(k * total + b)]
                n = line.head
                while n >= 0 and entries[U(n)].row != bank.open_row:
                    n = entries[U(n)].after
                line.hit, n = n, line.head
                while n >= 0 and entries[U(n)].row == bank.open_row:
                    n = entries[U(n)].after
                line.miss = n
            low_bank, high_bank = b, b + 1
        elif command in (REF, REFB):
            now, fresh = when, True
            rank = ranks[U(target)]
            b0 = target * per_rank + (rank.refresh_bank if per_bank else 0)
            b1 = b0 + (1 if per_bank else per_rank)
            if logged < room:
                logged = _note(log, logged, when, command, target, b0 % per_rank, -1, -1)
            for b in range(b0, b1):
                banks[U(b)].act_ready = when + (c.rfc_pb if per_bank else c.rfc_ab)
            if per_bank:
                at = when - c.half
                faw[U(4 * target + rank.faw_at)] = at
                rank.faw_at = (rank.faw_at + 1) & 3
                t = faw[U(4 * target + rank.faw_at)] + c.faw
                for k in range(target * groups, (target + 1) * groups):
                    gates[U(4 * k + ACT)] = max(
                        gates[U(4 * k + ACT)], t, at + (c.rrd_l if k == banks[U(b0)].part else c.rrd_s)
                    )
                rank.refresh_ok = when + c.rfc_pb + c.half
                rank.refresh_bank = rank.refresh_bank + 1 if rank.refresh_bank + 1 < per_rank else 0
            rank.refresh_at += c.refi // per_rank if per_bank else c.refi
            rank.refresh_due = 0
            due -= 1
            refresh_next = min(refresh_next, rank.refresh_at)
            low_bank, high_bank = 0, total
            v.refreshes += 1
            free_cmd = when + c.busy_ref
        else:  # a precharge: of a bank for a request, for refresh, of an idle row, or of all banks of a rank
            now, fresh = when, True
            b0, request, kind = target, -1, PRE
            if command == PREA:
                b0, kind = target * per_rank, PREA
            elif command == PRE and key == -NEVER:
                b0 = target * per_rank + ranks[U(target)].refresh_bank
            elif command == PRE:
                b0, request = entries[U(target)].bank, entries[U(target)].sequence
            b1 = b0 + (per_rank if kind == PREA else 1)
            if logged < room:
                logged = _note(
                    log, logged, when, kind, banks[U(b0)].rank, b0 % per_rank, banks[U(b0)].open_row, request
                )
            for b in range(b0, b1):
                bank = banks[U(b)]
                bank.open_row = -1
                bank.act_ready = max(bank.act_ready, when + (c.rp_ab if kind == PREA else c.rp_pb))
                for k in range(2):
                    line = lines[U(k * total + b)]
                    line.hit, line.miss = -1, line.head
            low_bank, high_bank = b0, b1
            free_cmd = when + c.busy_pre
    reached = horizon if horizon < NEVER else now
    v.now = reached if reached > now else now
    v.injected, v.free_cmd, v.sequence, v.turn = injected, free_cmd, sequence, turn
    v.writing, v.n_read, v.n_write, v.free_r, v.free_w = writing, n_read, n_write, free_r, free_w
    v.logged, v.virtual, v.bus, v.turned = logged, virtual, bus, turned
    ended = finisher if horizon == v.now else -1
    _settle(v.now if ended >= 0 else v.now - 1, masters, returns)
    return ended
