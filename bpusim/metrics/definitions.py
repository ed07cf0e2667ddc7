"""What each figure of a summary means, with its unit and formula: the one place, for reports and docs alike.

A figure is found by the last part of its path; those of a distribution (``ttft_p99_ms``) by what they are of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CAUSE_MEANINGS", "DEFINITIONS", "Definition", "definition"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A figure: ``key`` in the summary, what it is called, its unit (empty for a plain number) and what it is."""

    key: str
    name: str
    unit: str
    text: str


CAUSE_MEANINGS: Mapping[str, str] = {
    "compute": "The array and the vector unit work, at full clock and with all data at hand.",
    "dram": "Waiting for memory, as if the channel were free: bytes over what this core gets alone.",
    "scratchpad": "Waiting because the on-chip memory is full: a tile is fetched only when there is room for it.",
    "contention": "Waiting for memory longer than alone, because other masters use the channel.",
    "throttling": "What clocks below those the machine was made for cost, whoever lowered them.",
    "wakeup": "A core that had fallen asleep wakes up.",
    "dispatch": "Submitting calls, doorbells, interrupts, cache maintenance, and the overhead of each op.",
    "host": "CPU work: tokenising, sampling, logging, allocation, and stages of a camera or pipeline on the host.",
    "fallback": "Ops that run on the CPU, and the crossings to it and back.",
    "handover": "From one core to the next in a pipeline split.",
    "sync": "At barriers of a tensor split: waiting for the last core, and for the barrier itself.",
    "loading": "Waiting for a model's weights to come from storage.",
    "queueing": "Waiting for a busy core or CPU, for room in the cache, or while interrupted.",
    "batching": "Waiting for the next step of a batch to begin.",
    "camera": "Stages outside the machine, such as exposure and readout.",
    "pacing": "A token held back because its user asked for a slower pace.",
    "other": "What no cause claims; it is 0.",
}
"""By cause, in the order of ``CAUSES``. Each picosecond of a latency has one cause, and they sum to the latency."""

_STATISTICS = {
    "mean": ("mean", "The arithmetic mean."),
    "p50": ("median", "Half are below."),
    "p90": ("p90", "Nine in ten are below (linear between samples)."),
    "p95": ("p95", "95 of 100 are below (linear between samples)."),
    "p99": ("p99", "99 of 100 are below (linear between samples)."),
}
_DISTRIBUTION = re.compile(rf"(?:(?P<of>\w+)_)?(?P<how>{'|'.join(_STATISTICS)})_ms")


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Definition]:
    return {key: Definition(key, name, unit, text) for key, name, unit, text in rows}


DEFINITIONS: Mapping[str, Definition] = _table(
    # Distributions, by what they are of
    (
        "ttft",
        "TTFT",
        "ms",
        "Time to first token: from a request's arrival to its first token. Cold requests are apart.",
    ),
    ("itl", "ITL", "ms", "Inter-token latency: each gap between two tokens of a request."),
    (
        "tpot",
        "TPOT",
        "ms",
        "Time per output token: (E2E - TTFT) / (tokens - 1) of a request. Its mean is over all gaps.",
    ),
    ("e2e", "E2E", "ms", "End to end: from a request's arrival to its last token. Cold requests are apart."),
    (
        "latency",
        "Latency",
        "ms",
        "From the capture of a frame to the end of its last stage; dropped frames have none.",
    ),
    (
        "end",
        "To the end",
        "ms",
        "From a pipeline's trigger to the end of the named stage, along the critical path.",
    ),
    # Streams
    ("tokens", "Tokens", "", "Tokens that came out, first ones included."),
    ("requests", "Answered", "", "Requests that came to their last token."),
    ("arrived", "Arrived", "", "Requests that came and were not rejected."),
    ("rejected", "Rejected", "", "Requests that found the line full."),
    ("restarts", "Restarts", "", "Conversations that outgrew the context and began anew."),
    ("under_way_mean", "Under way", "", "Requests, frames or runs in the system: mean over time."),
    ("under_way_most", "Most under way", "", "The most requests or runs in the system at once."),
    ("under_way_at_end", "Under way at the end", "", "Still in the system when the run ended; in no latency."),
    ("good", "Good", "", "Answered requests that met their limits (slo) of TTFT and TPOT."),
    ("goodput_per_s", "Goodput", "1/s", "Good requests over wall time."),
    ("weight", "Weight", "", "What part a stream should get, against others."),
    ("slo_ttft_ms", "TTFT limit", "ms", "Asked of each request; none if empty."),
    ("slo_tpot_ms", "TPOT limit", "ms", "Asked of each request's mean gap; none if empty."),
    ("decode_tokens_per_s", "Decode rate", "tok/s", "1 / mean TPOT; of several streams, the sum."),
    ("tokens_per_s", "Token rate", "tok/s", "All tokens over wall time, prefill and idle time included."),
    ("captured", "Captured", "", "Frames that a camera took."),
    ("frames", "Frames", "", "Frames that came through."),
    ("dropped", "Dropped", "", "Frames or runs given up because the line was full."),
    ("lost", "Lost", "", "Frames that a blocked camera could not take."),
    ("late", "Late", "", "Took longer than the deadline."),
    ("deadline_ms", "Deadline", "ms", "From capture or trigger to the end; none if empty."),
    ("fps", "Frame rate", "1/s", "Frames that came through, over wall time."),
    ("line_mean", "In line", "", "Frames that wait for the model: mean over time."),
    ("line_most", "Most in line", "", "The most frames that waited for the model at once."),
    ("triggered", "Triggered", "", "Runs of a pipeline that were asked for."),
    ("runs", "Through", "", "Runs of a pipeline that came to their end."),
    ("stages_ms", "Stage", "ms", "Mean time of a pipeline's stage itself."),
    (
        "cold",
        "Cold",
        "",
        "First tokens, frames or runs that waited for weights to load; in no other mean or percentile.",
    ),
    ("cold_mean_ms", "Cold mean", "ms", "Mean time of the cold ones."),
    (
        "fairness",
        "Fairness",
        "",
        "Jain's index of decode rates over weights: 1 if all get what they should, 1/n if one gets all.",
    ),
    # Cores
    ("calls", "Calls", "", "Calls that a core finished. A call is a run of ops between two CPU ops."),
    ("occupied_fraction", "Occupied", "", "Part of the wall time in which a call is in progress on the core."),
    ("mac_busy_fraction", "Array busy", "", "Part of the time in which the MAC array works: a vendor's busy counter."),
    ("mac_issued_fraction", "Array issued", "", "Operations issued to the array, padding counted, over peak x time."),
    ("mac_utilization", "Array useful", "", "Useful operations over peak x time."),
    ("seconds_s", "Time", "s", "Wall time of a phase."),
    (
        "waits",
        "Waits",
        "",
        "Parts of the wall time in which a core stands still: in calls for memory, between calls for the "
        "host or another core, or with no work.",
    ),
    # Memory
    *(
        (f"{kind}_{way}_bytes", f"{name} {way.replace('write', 'written')}", "B", f"Bytes of {what} of finished work.")
        for kind, name, what in (
            ("weights", "Weights", "stored tensors"),
            ("kv", "KV", "the attention caches"),
            ("spill", "Spill", "activations that do not fit on the chip"),
            ("io", "I/O", "a model's inputs and outputs, and of CPU work"),
        )
        for way in ("read", "write")
    ),
    ("read_bytes", "Read", "B", "Bytes read from the channel."),
    ("write_bytes", "Written", "B", "Bytes written to the channel."),
    ("unfinished_bytes", "Unfinished", "B", "Bytes of work that was cut off by the end of the run."),
    ("dropped_bytes", "Lost", "B", "Bytes of open-loop masters for which there was no room."),
    (
        "mean_latency_ns",
        "Line latency",
        "ns",
        "From a master's request to its line of data: mean over the bytes that it moved.",
    ),
    ("achieved_bytes_per_s", "Achieved", "B/s", "All bytes of all masters over wall time."),
    ("peak_bytes_per_s", "Peak", "B/s", "Transfers a second x width of the channel; nobody gets it."),
    ("peak_fraction", "Memory, of peak", "", "Bytes of all masters over wall time, over the peak of the channel."),
    (
        "resident_bytes",
        "Resident",
        "B",
        "Weights once per copy, caches at full context for every sequence, and workspaces.",
    ),
    ("usable_bytes", "Usable", "B", "What the machine file leaves for models."),
    (
        "channel_capacity",
        "Capacity",
        "B/s",
        "What the channel gives all cores that read at once: rows, refresh and turnarounds taken off the peak.",
    ),
    (
        "core_alone",
        "One core alone",
        "B/s",
        "What one core's DMA gets with the channel to itself: its window over its latency, or its port.",
    ),
    # Heat
    ("peak_degc", "Peak temperature", "degC", "The highest temperature of a node at any look."),
    ("end_degc", "At the end", "degC", "The temperature of a node when the run ended."),
    ("ambient_degc", "Air", "degC", "The temperature of the air around."),
    ("time_constants_s", "Time constants", "s", "Of the heat path at the end, the slowest first."),
    ("mean_power_w", "Mean power", "W", "Energy of the whole board over wall time."),
    ("peak_power_w", "Peak power", "W", "The highest mean of a sample."),
    ("energy_j", "Energy", "J", "Of the whole board over the run."),
    ("energy_per_token_j", "Energy a token", "J", "Energy of the whole board, whatever else it did, over tokens."),
    ("energy_per_frame_j", "Energy a frame", "J", "Energy of the whole board, whatever else it did, over frames."),
    ("mean_power_by_component_w", "Power", "W", "Energy of a component over wall time."),
    ("throttled_s", "Slowed down", "s", "Time in which heat held a clock below what it would have had."),
    (
        "tokens_lost",
        "Tokens lost",
        "",
        "An estimate of the tokens that slow clocks cost: each token's throttling taken back.",
    ),
    (
        "initial",
        "Pace at first",
        "ms",
        "Mean time of a decode token or frame that ended in the first tenth of the samples.",
    ),
    ("sustained", "Pace at last", "ms", "The same of the last tenth."),
    ("above_s", "Crossed for", "s", "Time for which a trip was crossed."),
    ("crossings", "Times", "", "How often a trip was crossed."),
    ("first_s", "First at", "s", "When a trip was crossed first; never if empty."),
    ("temp_degc", "Trip", "degC", "The temperature of a trip."),
    # Ops
    ("executions", "Executions", "", "How often an op began: once in every pass over it, repeated layers counted."),
    (
        "op_time",
        "Time",
        "ms",
        "What an op has added to the time of its calls, by cause; over all ops it sums to the time of all calls.",
    ),
    ("macs", "MACs", "", "Useful multiply-accumulates, padding not counted; each is two operations."),
    ("operations_per_byte", "Op/B", "op/B", "Useful operations over bytes moved."),
    ("achieved_ops_per_s", "Achieved", "op/s", "Useful operations over the time that an op added."),
    # Batches, tensor splits
    ("batch", "Batch", "", "The most sequences in one step."),
    ("steps", "Steps", "", "Decode steps of a batch."),
    ("sequences_mean", "Sequences", "", "In one step of a batch, mean over the steps."),
    # The run
    ("simulated_s", "Simulated", "s", "Wall time of the simulated machine."),
    ("events", "Events", "", "Events that the simulator processed."),
    ("seed", "Seed", "", "Of all random draws: the same seed gives the same bytes."),
)  # fmt: skip
"""By key; a distribution's by what it is of."""


def definition(key: str) -> Definition | None:
    """What the figure ``key`` is (a cause's: ``cause.dram``); None of what is no figure."""
    if key in DEFINITIONS:
        return DEFINITIONS[key]
    cause = key.removeprefix("cause.")
    if cause != key and cause in CAUSE_MEANINGS:
        return Definition(key, cause, "ms", CAUSE_MEANINGS[cause])
    found = _DISTRIBUTION.fullmatch(key)
    if found is None:
        return None
    of, (name, what) = DEFINITIONS.get(found["of"] or "end"), _STATISTICS[found["how"]]
    return Definition(key, f"{of.name} {name}", of.unit, f"{of.text} {what}") if of is not None else None
