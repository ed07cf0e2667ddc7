"""The bank model's inner loop, compiled: one channel, its banks, its controller, and the masters that drive it.

Time is the command clock. Nothing is done clock by clock: time jumps to the next of three things that can happen: a
read's data is complete, a master injects a request, or the controller issues a command.

**Controller.** First ready, first come: of the commands that are ready at the earliest moment any is, the oldest
request's goes (a column access, an activate or a precharge). A request whose row was opened for it goes before all
others, and its row stays open until it is served. A ready precharge for another row may close a row whose hits are not
ready yet. Writes wait in a queue of their own and are served between two watermarks, or when there is nothing to read.
Refresh waits for the requests whose rows were opened for them, closes the rank's rows, and keeps its banks busy.

Arrays and their columns are named by the constants below; :mod:`bpusim.dram.bank.model` fills them.

NOTE: ``advance`` is one long function with its state in locals, and helpers take plain arrays: reading arrays out of a
tuple inside the loop, or calling a function with many arrays, costs more than all it does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["ACT", "COLUMNS", "NEVER", "PRE", "PREA", "RD", "REF", "REFB", "WR", "State", "advance", "fetch"]

NEVER = 1 << 60
_FIRST = 1 << 50
RD, WR, ACT, PRE, PREA, REF, REFB = range(7)
_IDLE = 7

# Configuration (one int64 row).
(RCD, RPPB, RPAB, RAS, RC, RRD_S, RRD_L, FAW, CCD_S, CCD_L, RANK, RD_WR, WR_RD_S, WR_RD_L, RD_PRE, WR_PRE, DONE, REFI,
 RFCAB, RFCPB, BUSY_ACT, BUSY_COL, BUSY_PRE, BUSY_REF, BANKS, GROUPS, RANKS, READS, WRITES, HIGH, LOW, CAP, AGE, FIFO,
 CLOSED, REFRESH, STRICT, PIECES, XORS, BURST, RANK_WR_RD) = range(41)  # fmt: skip
CONFIG = 41

# What a master asks for (int64 columns): a pattern of lines, its window, its pace.
KIND, BASE, REGION, CHUNK, PITCH, WRITE, COUNT, WINDOW, GAP, BACKGROUND, SEED, PACE, PATH = range(13)
MASTER = 13
SEQ, RANDOM, STRIDE, COPY, LIST = range(5)

# How far a master is (int64 columns).
INDEX, OUT, READY, SERVED, LAST, NEXT_BANK, NEXT_ROW, NEXT_WRITE, SEGMENT, OFFSET, HEAD, TAIL = range(12)
PROGRESS = 12

# Scalars of the run.
(NOW, INJECT, FREE_CMD, SEQUENCE, TURN, WRITING, N_READ, N_WRITE, FREE_R, FREE_W, HITS, SERVED_ALL, REFRESHES, LOGGED,
 ACTIVATES, FORE) = range(16)  # fmt: skip
SCALARS = 16

COLUMNS = ("time", "command", "rank", "bank", "row", "request")


class State(NamedTuple):
    """Everything that changes, so that a run can stop and go on."""

    scalars: NDArray[np.int64]
    progress: NDArray[np.int64]
    latency: NDArray[np.float64]
    row: NDArray[np.int64]
    bank: NDArray[np.int64]
    sequence: NDArray[np.int64]
    master: NDArray[np.int64]
    accepted: NDArray[np.int64]
    visible: NDArray[np.int64]
    after: NDArray[np.int64]
    before: NDArray[np.int64]
    free: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    hit: NDArray[np.int64]
    miss: NDArray[np.int64]
    run: NDArray[np.int64]
    open_row: NDArray[np.int64]
    opened_for: NDArray[np.int64]
    act_ready: NDArray[np.int64]
    col_ready: NDArray[np.int64]
    pre_ready: NDArray[np.int64]
    read_ok: NDArray[np.int64]
    write_ok: NDArray[np.int64]
    rrd_ok: NDArray[np.int64]
    faw: NDArray[np.int64]
    faw_at: NDArray[np.int64]
    refresh_at: NDArray[np.int64]
    refresh_due: NDArray[np.int64]
    refresh_bank: NDArray[np.int64]
    rank_of: NDArray[np.int64]
    part_of: NDArray[np.int64]
    return_at: NDArray[np.int64]
    return_accepted: NDArray[np.int64]


@njit(cache=True, inline="always")
def _mix(x):
    """SplitMix64: the generator of the reference streams."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, inline="always")
def fetch(m, c, masters, segments, pieces, xors, progress):
    """The next line of master ``m``: its bank, row, and whether it is written."""
    i = progress[m, INDEX]
    kind = masters[m, KIND]
    write = 0
    if kind == SEQ:
        line = masters[m, BASE] + i % masters[m, REGION]
    elif kind == RANDOM:
        x = _mix((np.uint64(masters[m, SEED]) << np.uint64(40)) + np.uint64(i))
        line = masters[m, BASE] + np.int64(x % np.uint64(masters[m, REGION]))
    elif kind == STRIDE:
        chunk = masters[m, CHUNK]
        line = masters[m, BASE] + (i // chunk * masters[m, PITCH] + i % chunk) % masters[m, REGION]
    elif kind == COPY:
        chunk = masters[m, CHUNK]
        r = i % (2 * chunk)
        write = 1 if r >= chunk else 0
        place = (i // (2 * chunk) * chunk + r % chunk) % masters[m, REGION]
        line = masters[m, BASE] + write * masters[m, PITCH] + place
    else:
        s = progress[m, SEGMENT]
        line = segments[s, 0] + progress[m, OFFSET]
        write = segments[s, 2]
        progress[m, OFFSET] += 1
        if progress[m, OFFSET] == segments[s, 1]:
            progress[m, SEGMENT] = s + 1
            progress[m, OFFSET] = 0
    if masters[m, WRITE] and kind <= RANDOM:
        x = _mix(np.uint64(masters[m, SEED]) * np.uint64(1000003) + np.uint64(i))
        write = 1 if x % np.uint64(100) < np.uint64(masters[m, WRITE]) else 0
    bank, row, have = 0, 0, 0
    for k in range(c[PIECES]):
        n = pieces[k, 1]
        part = line & ((1 << n) - 1)
        line >>= n
        if pieces[k, 0] == 1:
            bank |= part << pieces[k, 2]
        elif pieces[k, 0] == 2:
            row |= part << have
            have += n
    for k in range(c[XORS]):
        bank ^= ((row >> xors[k, 1]) & xors[k, 2]) << xors[k, 0]
    progress[m, NEXT_BANK] = bank
    progress[m, NEXT_ROW] = row
    progress[m, NEXT_WRITE] = write


@njit(cache=True, inline="always")
def _next_hit(x, wanted, row, after):
    """The first request from ``x`` on, in its bank's line, that wants the open row."""
    while x >= 0 and row[x] != wanted:
        x = after[x]
    return x


@njit(cache=True, inline="always")
def _next_miss(x, wanted, row, after):
    """The first request from ``x`` on, in its bank's line, that wants another row."""
    while x >= 0 and row[x] == wanted:
        x = after[x]
    return x


@njit(cache=True)
def _note(log, n, time, command, rank, bank, row, request):
    """Keep a command in the log while it has room."""
    if n < log.shape[0]:
        log[n, 0], log[n, 1], log[n, 2] = time, command, rank
        log[n, 3], log[n, 4], log[n, 5] = bank, row, request
        return n + 1
    return n


@njit(cache=True)
def advance(until, stop_at_end, c, masters, segments, pieces, xors, st, log):
    """Run until clock ``until``, or until a foreground master has all it asked for.

    Returns the master that is done, or -1 when ``until`` came first (or nothing can happen any more). Nothing that
    would happen at or after ``until`` is done.
    """
    v, progress, latency = st.scalars, st.progress, st.latency
    e_row, e_bank, e_seq, e_master = st.row, st.bank, st.sequence, st.master
    e_accepted, e_visible, after, before, free = st.accepted, st.visible, st.after, st.before, st.free
    head, tail, hit, miss, run = st.head, st.tail, st.hit, st.miss, st.run
    open_row, opened_for = st.open_row, st.opened_for
    act_ready, col_ready, pre_ready = st.act_ready, st.col_ready, st.pre_ready
    read_ok, write_ok, rrd_ok, faw, faw_at = st.read_ok, st.write_ok, st.rrd_ok, st.faw, st.faw_at
    refresh_at, refresh_due, refresh_bank = st.refresh_at, st.refresh_due, st.refresh_bank
    return_at, return_accepted = st.return_at, st.return_accepted
    rank_of, part_of = st.rank_of, st.part_of
    now, injected, free_cmd, sequence, turn = v[NOW], v[INJECT], v[FREE_CMD], v[SEQUENCE], v[TURN]
    writing, n_read, n_write, free_r, free_w = v[WRITING], v[N_READ], v[N_WRITE], v[FREE_R], v[FREE_W]
    logged = v[LOGGED]
    nm, ring, buckets = masters.shape[0], return_at.shape[1], latency.shape[1]
    data, giver = NEVER, -1  # the next read to come back, and to whom
    for m in range(nm):
        if progress[m, HEAD] != progress[m, TAIL] and return_at[m, progress[m, HEAD]] < data:
            data, giver = return_at[m, progress[m, HEAD]], m
    banks, groups, ranks, reads = c[BANKS], c[GROUPS], c[RANKS], c[READS]
    total, high, low, cap, special = banks * ranks, c[HIGH], c[LOW], c[CAP], c[FIFO] or c[AGE]
    per_bank = c[REFRESH] == 2
    due = 0
    for r in range(ranks):
        due += refresh_due[r]
    always = special or c[CLOSED]
    # NOTE: the best command stays best while only data returns, and a new request can only add one for its own bank:
    # all banks are looked at again after a command, a change of queue, or a refresh that falls due.
    low_bank, high_bank, fresh = 0, total, True
    when, key, command, target = NEVER, NEVER, -1, -1
    refresh_next = NEVER
    done = -2
    while done == -2:
        # The next injection: one request a clock, masters polled in turn (or in order, for a strict channel).
        earliest = now if now > injected else injected
        inject, who = NEVER, -1
        m = 0 if c[STRICT] else turn
        for _ in range(nm):
            if progress[m, INDEX] < masters[m, COUNT]:
                reads_on = free_r > 0 and progress[m, OUT] < masters[m, WINDOW]
                can = free_w > 0 if progress[m, NEXT_WRITE] else reads_on
                if can:
                    t = progress[m, READY]
                    if t < earliest:
                        t = earliest
                    if t < inject:
                        inject, who = t, m
                    if t == earliest:
                        break
            m += 1
            if m == nm:
                m = 0
        # Which queue is served.
        if writing:
            if n_write == 0 or (n_write < low and n_read > 0):
                writing, fresh = 0, True
        elif n_write > high or (n_read == 0 and n_write > 0):
            writing, fresh = 1, True
        q = writing
        base = now if now > free_cmd else free_cmd
        if fresh or always or refresh_next <= now:
            when, key, command, target = NEVER, NEVER, -1, -1
            low_bank, high_bank, fresh = 0, total, True
            # Refresh: becoming due is an event of its own.
            refresh_next = NEVER
            for r in range(ranks):
                if refresh_due[r]:
                    continue
                if refresh_at[r] <= now:
                    refresh_due[r] = 1
                    due += 1
                elif refresh_at[r] < refresh_next:
                    refresh_next = refresh_at[r]
        if due and fresh:
            for r in range(ranks):
                if not refresh_due[r]:
                    continue
                b0 = r * banks + (refresh_bank[r] if per_bank else 0)
                b1 = b0 + (1 if per_bank else banks)
                waits, is_open, pre, act = False, False, base, base
                for b in range(b0, b1):
                    waits = waits or opened_for[b] >= 0
                    if open_row[b] >= 0:
                        is_open = True
                        pre = max(pre, pre_ready[b])
                    act = max(act, act_ready[b])
                t = pre if is_open else act
                if not waits and t < when:
                    when, key, target = t, -NEVER, r
                    command = (PRE if per_bank else PREA) if is_open else (REFB if per_bank else REF)
        # An age limit, or first come first served, looks at the oldest request alone.
        only, look = -1, NEVER
        if special:
            oldest = NEVER
            for b in range(total):
                h = head[q, b]
                if h >= 0 and e_seq[h] < oldest:
                    oldest, only = e_seq[h], h
            if only >= 0 and not c[FIFO] and base - e_accepted[only] < c[AGE]:
                look = e_accepted[only] + c[AGE]
                only = -1
        for b in range(low_bank, high_bank):
            h = head[q, b]
            x = opened_for[b]
            if h < 0 and x < 0:
                continue
            part = part_of[b]
            if x >= 0:  # a row opened for a request: it goes first, whichever queue it is in
                w = 1 if x >= reads else 0
                t = write_ok[part] if w else read_ok[part]
                if col_ready[b] > t:
                    t = col_ready[b]
                if base > t:
                    t = base
                s = e_seq[x] - _FIRST
                if t < when or (t == when and s < key):
                    when, key, command, target = t, s, w, x
            if due and refresh_due[rank_of[b]] and (not per_bank or b - rank_of[b] * banks == refresh_bank[rank_of[b]]):
                continue
            if h < 0:
                continue
            y = hit[q, b]
            if only >= 0:
                if e_bank[only] != b:
                    continue
                h = only
                y = only if e_row[only] == open_row[b] else -1
            if cap and y >= 0 and y != h and run[b] >= cap:
                y = -1
            if y >= 0 and y != x:
                t = write_ok[part] if q else read_ok[part]
                if col_ready[b] > t:
                    t = col_ready[b]
                if base > t:
                    t = base
                if e_visible[y] > t:
                    t = e_visible[y]
                s = e_seq[y]
                if t < when or (t == when and s < key):
                    when, key, command, target = t, s, q, y
            if x >= 0:
                continue
            if open_row[b] >= 0:  # a row may be closed for a request of another, older or younger than its hits
                h = miss[q, b] if only < 0 else (only if y < 0 else -1)
                if h < 0:
                    continue
                t = pre_ready[b]
                kind = PRE
            else:
                t = act_ready[b]
                if rrd_ok[part] > t:
                    t = rrd_ok[part]
                r = rank_of[b]
                if faw[r, faw_at[r]] + c[FAW] > t:
                    t = faw[r, faw_at[r]] + c[FAW]
                kind = ACT
            if base > t:
                t = base
            if e_visible[h] > t:
                t = e_visible[h]
            s = e_seq[h]
            if t < when or (t == when and s < key):
                when, key, command, target = t, s, kind, h
        if c[CLOSED]:  # rows that nobody queued wants are closed as soon as they may be
            for b in range(total):
                if open_row[b] >= 0 and opened_for[b] < 0 and hit[0, b] < 0 and hit[1, b] < 0:
                    t = pre_ready[b] if pre_ready[b] > base else base
                    if t < when:
                        when, key, command, target = t, NEVER, _IDLE, b
        low_bank, high_bank, fresh = 0, 0, False
        # What comes first?
        if look > refresh_next:
            look = refresh_next
        if when >= look and data >= look and inject >= look and look < until:
            now = look  # nothing happens, but a refresh falls due or a request grows too old to wait
            continue
        if data <= when and data <= inject:
            if data >= until:
                break
            now, m = data, giver
            at = progress[m, HEAD]
            wait = data - return_accepted[m, at]
            latency[m, 0] += wait
            latency[m, 1] += 1
            latency[m, 2 + (wait if wait < buckets - 3 else buckets - 3)] += 1
            progress[m, HEAD] = at + 1 if at + 1 < ring else 0
            data = NEVER
            for i in range(nm):
                if progress[i, HEAD] != progress[i, TAIL] and return_at[i, progress[i, HEAD]] < data:
                    data, giver = return_at[i, progress[i, HEAD]], i
            progress[m, OUT] -= 1
            progress[m, SERVED] += 1
            progress[m, LAST] = now
            if masters[m, GAP] >= 0:
                progress[m, READY] = now + masters[m, GAP]
            if progress[m, SERVED] == masters[m, COUNT] and not masters[m, BACKGROUND]:
                v[FORE] -= 1
                if stop_at_end or v[FORE] == 0:
                    done = m
        elif inject <= when:
            if inject >= until:
                break
            now = inject
            injected = inject + 1
            turn = who + 1 if who + 1 < nm else 0
            m, b, w = who, progress[who, NEXT_BANK], progress[who, NEXT_WRITE]
            if w:
                free_w -= 1
                e = free[reads + free_w]
                n_write += 1
                progress[m, SERVED] += 1
                progress[m, LAST] = inject
            else:
                free_r -= 1
                e = free[free_r]
                n_read += 1
                progress[m, OUT] += 1
            e_bank[e], e_row[e], e_seq[e], e_master[e] = b, progress[m, NEXT_ROW], sequence, m
            sequence += 1
            e_accepted[e] = progress[m, READY] if masters[m, GAP] >= 0 and progress[m, READY] > 0 else inject
            e_visible[e] = inject + 1
            t = tail[w, b]
            after[e], before[e] = -1, t
            if t >= 0:
                after[t] = e
            else:
                head[w, b] = e
            tail[w, b] = e
            if open_row[b] == e_row[e]:
                if hit[w, b] < 0:
                    hit[w, b] = e
            elif miss[w, b] < 0:
                miss[w, b] = e
            low_bank, high_bank = b, b + 1
            if masters[m, PACE] > 0:
                progress[m, READY] = max(progress[m, READY], inject) + masters[m, PACE]
            progress[m, INDEX] += 1
            if progress[m, INDEX] < masters[m, COUNT]:
                fetch(m, c, masters, segments, pieces, xors, progress)
            if w and progress[m, SERVED] == masters[m, COUNT] and not masters[m, BACKGROUND]:
                v[FORE] -= 1
                if stop_at_end or v[FORE] == 0:
                    done = m
        elif when >= until or when == NEVER:
            break
        elif command <= WR:
            now, fresh = when, True
            e, w = target, command
            b = e_bank[e]
            part = part_of[b]
            logged = _note(log, logged, when, w, rank_of[b], b - rank_of[b] * banks, e_row[e], e_seq[e])
            v[SERVED_ALL] += 1
            if opened_for[b] == e:
                opened_for[b] = -1
            else:
                v[HITS] += 1
            run[b] += 1
            p, n = before[e], after[e]
            if p >= 0:
                after[p] = n
            else:
                head[w, b] = n
            if n >= 0:
                before[n] = p
            else:
                tail[w, b] = p
            if hit[w, b] == e:
                hit[w, b] = _next_hit(n, open_row[b], e_row, after)
            if miss[w, b] == e:
                miss[w, b] = _next_miss(n, open_row[b], e_row, after)
            free_cmd = when + c[BUSY_COL]
            for k in range(ranks * groups):
                if k == part:
                    same, other = c[CCD_L], (c[WR_RD_L] if w else c[RD_WR])
                elif k // groups == part // groups:
                    same, other = c[CCD_S], (c[WR_RD_S] if w else c[RD_WR])
                else:  # another rank: the bus alone is shared
                    same, other = c[RANK], (c[RANK_WR_RD] if w else c[RD_WR] + c[RANK] - c[BURST])
                if w:
                    write_ok[k] = max(write_ok[k], when + same)
                    read_ok[k] = max(read_ok[k], when + other)
                else:
                    read_ok[k] = max(read_ok[k], when + same)
                    write_ok[k] = max(write_ok[k], when + other)
            if w:
                pre_ready[b] = max(pre_ready[b], when + c[WR_PRE])
                free[reads + free_w] = e
                free_w += 1
                n_write -= 1
            else:
                pre_ready[b] = max(pre_ready[b], when + c[RD_PRE])
                m = e_master[e]
                at = progress[m, TAIL]
                t = when + c[DONE] + masters[m, PATH]
                return_at[m, at], return_accepted[m, at] = t, e_accepted[e]
                progress[m, TAIL] = at + 1 if at + 1 < ring else 0
                if t < data:
                    data, giver = t, m
                free[free_r] = e
                free_r += 1
                n_read -= 1
        elif command == ACT:
            now, fresh = when, True
            e = target
            b = e_bank[e]
            r, part = rank_of[b], part_of[b]
            logged = _note(log, logged, when, ACT, r, b - r * banks, e_row[e], e_seq[e])
            v[ACTIVATES] += 1
            open_row[b], opened_for[b], run[b] = e_row[e], e, 0
            col_ready[b], pre_ready[b], act_ready[b] = when + c[RCD], when + c[RAS], when + c[RC]
            for g in range(groups):
                k = r * groups + g
                gap = c[RRD_L] if k == part else c[RRD_S]
                rrd_ok[k] = max(rrd_ok[k], when + gap)
            faw[r, faw_at[r]] = when
            faw_at[r] = (faw_at[r] + 1) & 3
            free_cmd = when + c[BUSY_ACT]
            hit[0, b] = _next_hit(head[0, b], open_row[b], e_row, after)
            hit[1, b] = _next_hit(head[1, b], open_row[b], e_row, after)
            miss[0, b] = _next_miss(head[0, b], open_row[b], e_row, after)
            miss[1, b] = _next_miss(head[1, b], open_row[b], e_row, after)
        elif command in (REF, REFB):
            now, fresh = when, True
            r = target
            b0 = r * banks + (refresh_bank[r] if per_bank else 0)
            b1 = b0 + (1 if per_bank else banks)
            logged = _note(log, logged, when, command, r, b0 - r * banks, -1, -1)
            for b in range(b0, b1):
                act_ready[b] = when + (c[RFCPB] if per_bank else c[RFCAB])
            if per_bank:
                refresh_bank[r] = refresh_bank[r] + 1 if refresh_bank[r] + 1 < banks else 0
            refresh_at[r] += c[REFI] // banks if per_bank else c[REFI]
            refresh_due[r] = 0
            due -= 1
            v[REFRESHES] += 1
            free_cmd = when + c[BUSY_REF]
        else:  # a precharge: of a bank for a request, for refresh, of an idle row, or of all banks of a rank
            now, fresh = when, True
            b0 = target if command == _IDLE else target * banks
            if command == PRE:
                b0 = target * banks + refresh_bank[target] if key == -NEVER else e_bank[target]
            r = rank_of[b0]
            b1 = b0 + (banks if command == PREA else 1)
            request = e_seq[target] if command == PRE and key != -NEVER else -1
            kind = PREA if command == PREA else PRE
            logged = _note(log, logged, when, kind, r, b0 - r * banks, open_row[b0], request)
            for b in range(b0, b1):
                open_row[b], hit[0, b], hit[1, b] = -1, -1, -1
                miss[0, b], miss[1, b] = head[0, b], head[1, b]
                act_ready[b] = max(act_ready[b], when + (c[RPAB] if command == PREA else c[RPPB]))
            free_cmd = when + c[BUSY_PRE]
    v[NOW] = until if done == -2 and until < NEVER and until > now else now
    v[INJECT], v[FREE_CMD], v[SEQUENCE], v[TURN] = injected, free_cmd, sequence, turn
    v[WRITING], v[N_READ], v[N_WRITE], v[FREE_R], v[FREE_W] = writing, n_read, n_write, free_r, free_w
    v[LOGGED] = logged
    return -1 if done == -2 else done
