"""What calibration takes for the flow model's answer is what the channel of a scenario gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import simpy
from flows import Parts, Watcher

from bpusim.dram import FlowChannel, FlowTable, flow_table
from bpusim.dram.bank.model import Master
from bpusim.dram.bench import parse_streams
from bpusim.dram.calibrate import CASES, flow_answer
from bpusim.hardware import MasterSpec
from bpusim.units import PS_PER_S

TABLE = flow_table("LPDDR4X-3200x16")


def channel_answer(table: FlowTable, masters: Sequence[Master]) -> list[float]:
    """B/s of each master on a :class:`FlowChannel`: those that mix line by line are masters of the machine file."""

    def rate(m: Master) -> int:
        return round(table.line * PS_PER_S / (m.pace * table.clock)) if m.pace else 10**12

    mixing = [
        (str(i), MasterSpec(rate(m), m.write / 100, window=m.out * table.line, latency=m.path * table.clock))
        for i, m in enumerate(masters)
        if 0 < m.write < 100
    ]
    env, watcher = simpy.Environment(), Watcher()
    channel = FlowChannel(env, table, watcher, background=mixing)
    for i, m in enumerate(masters):
        if not 0 < m.write < 100:
            port = channel.port(str(i), m.out * table.line, m.path * table.clock, rate(m))
            port.start(Parts(10**12, 10**12 // 2 if m.kind == "copy" else 10**12 * m.write // 100))
    if len(mixing) == len(masters):
        channel.reshare()
    return [watcher.log[-1][1][str(i)] for i in range(len(masters))]


@pytest.mark.parametrize("text", [c for kind in ("streams", "shares", "mixes") for c in CASES[kind]])
def test_calibration_asks_the_flow_model_that_is_shipped(text: str) -> None:
    masters = parse_streams(text)
    assert channel_answer(TABLE, masters) == pytest.approx(flow_answer(TABLE, masters)[0], rel=0.01)
