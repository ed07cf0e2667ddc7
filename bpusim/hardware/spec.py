"""What a machine is: frozen descriptions, read from presets and scenario files, every quantity with its unit.

These are pydantic dataclasses, so one definition serves the program (typed, frozen, slotted), the check of users'
files (unknown keys are refused) and the JSON Schema. No class here knows how its unit behaves in time.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.dataclasses import dataclass

from bpusim.hardware.heat import ClocksSpec, CoolingSpec, PowerSpec
from bpusim.units import Bandwidth, Duration, Frequency, PerByte, Size, format_quantity

__all__ = [
    "VECTOR_CLASSES",
    "ActivationType",
    "CoreSpec",
    "CoresSpec",
    "DmaSpec",
    "DramSpec",
    "HostSpec",
    "MacSpec",
    "MachineSpec",
    "MasterSpec",
    "SlowSpec",
    "VectorSpec",
    "named",
    "toolchain_name",
]

ActivationType = Literal["int8", "int16"]
VECTOR_CLASSES = ("add", "mul", "exp", "div", "reduce", "convert")
"""Classes of vector work; ``add`` also stands for compare, select and max, ``convert`` for any copy or cast."""

STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=1)]
CpuCores = Annotated[int, Field(ge=1, le=1000)]
Clock = Annotated[Frequency, Field(gt=0)]
Capacity = Annotated[Size, Field(gt=0)]
Window = Annotated[Size, Field(ge=64)]
"""A window of less than a line of memory would move nothing."""
Limit = Annotated[Bandwidth, Field(gt=0)]
Latency = Annotated[Duration, Field(gt=0)]


def _about(text: str) -> Any:
    """A field's meaning, for the scenario reference and for editors."""
    return Field(description=text)


def named(name: str) -> str:
    """``name`` itself; raises :class:`ValueError` for what cannot be told apart in figures and labels."""
    if not name.strip() or "/" in name or not name.isprintable():
        raise ValueError(f"{name!r} cannot be a name; write one without '/' that can be printed")
    return name


def _rate(value: Any) -> Fraction:
    """``1`` or ``1/4``: rows a cycle. A row must take a whole number of cycles."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a rate; write 1 or a fraction such as 1/4")
    try:
        rate = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{value!r} is not a rate; write 1 or a fraction such as 1/4") from None
    if rate <= 0 or rate.numerator != 1:
        raise ValueError(f"{value} is not one over a whole number; write 1 or a fraction such as 1/4")
    return rate


Rate = Annotated[
    Fraction,
    BeforeValidator(_rate),
    WithJsonSchema({"anyOf": [{"const": 1}, {"type": "string", "pattern": r"^1/[1-9]\d*$"}], "examples": ["1/4"]}),
]


def _version(value: Any) -> Any:
    """A version without quotes is a number to YAML."""
    return str(value) if isinstance(value, float) else value


def toolchain_name(toolchain: str) -> str:
    """What a toolchain is called: a file by its name without folder and ending."""
    path = Path(toolchain)
    return path.stem if path.suffix in (".yaml", ".yml") else toolchain


@dataclass(frozen=True, slots=True, config=STRICT)
class MacSpec:
    """A systolic array of ``rows`` x ``cols`` multiply-accumulate units (1 MAC = 2 operations)."""

    rows: Annotated[Count, _about("Rows of the array: inputs at a time")]
    cols: Annotated[Count, _about("Columns of the array: outputs at a time")]
    load_rows_per_cycle: Annotated[Count, _about("Weight rows that load in a cycle")]
    rate: Annotated[dict[ActivationType, Rate], _about("Rows of activations a cycle by their type, such as 1/4")]
    dataflow: Annotated[Literal["weight_stationary"], _about("What stays in the array")] = "weight_stationary"

    def cycles_per_row(self, activation: ActivationType) -> int:
        """Cycles that one row of activations occupies the array: 1 over the rate."""
        return self.rate[activation].denominator


@dataclass(frozen=True, slots=True, config=STRICT)
class VectorSpec:
    """A vector unit: ``lanes`` elements at a time, each taking the cycles of its class."""

    lanes: Annotated[Count, _about("Elements at a time")]
    cycles: Annotated[
        dict[Literal["add", "mul", "exp", "div", "reduce", "convert"], Count],
        _about("Cycles an element takes, by class of operation"),
    ]

    def cost(self, kind: str) -> int:
        """Cycles of one element of a class."""
        return self.cycles[kind]  # type: ignore[index]  # the classes are checked when the spec is made

    @model_validator(mode="after")
    def _complete(self) -> VectorSpec:
        missing = [c for c in VECTOR_CLASSES if c not in self.cycles]
        if missing:
            raise ValueError(f"cycles lacks {', '.join(missing)}; every class needs its cost, or it would be free")
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class DmaSpec:
    """A port into the DRAM channel: alone it reads ``min(port, window / (latency + the channel's latency))``."""

    window: Annotated[Window, _about("Bytes in flight")]
    latency: Annotated[Latency, _about("From the master to the channel and back, without the channel's own")]
    port: Annotated[Limit, _about("Bytes a second that the port takes at most")]


@dataclass(frozen=True, slots=True, config=STRICT)
class CoreSpec:
    """One BPU core. ``scratchpad`` streams weights and spilled tensors; ``activations`` holds what stays on chip."""

    clock: Annotated[Clock, _about("Clock of the core")]
    mac: Annotated[MacSpec, _about("The array")]
    vector: Annotated[VectorSpec, _about("The vector unit")]
    scratchpad: Annotated[Capacity, _about("Memory that weights and spilled tensors stream through")]
    activations: Annotated[Capacity, _about("Memory for tensors that stay on chip")]
    dma: Annotated[DmaSpec, _about("Its port into the DRAM channel")]
    op_overhead: Annotated[Duration, _about("Fetch and start of an op")]
    layer_sync: Annotated[Duration, _about("Synchronisation at the end of each layer")]
    toolchain: Annotated[
        str, BeforeValidator(_version), _about("The compiler's rules: 1.0, 1.2, or a .yaml file of your own")
    ]
    weights_sram: Annotated[
        Capacity | None, _about("Memory of each core for weights that stay there between calls; none if absent")
    ] = None

    def fingerprint(self) -> dict[str, Any]:
        """What a trace is compiled for, by path in the machine file: what shapes its ops, no more."""
        return {
            "mac.rows": self.mac.rows,
            "mac.cols": self.mac.cols,
            "mac.dataflow": self.mac.dataflow,
            "mac.load_rows_per_cycle": self.mac.load_rows_per_cycle,
            **{f"mac.rate.{k}": str(v) for k, v in sorted(self.mac.rate.items())},
            "vector.lanes": self.vector.lanes,
            **{f"vector.cycles.{c}": self.vector.cost(c) for c in VECTOR_CLASSES},
            "scratchpad": f"{self.scratchpad} B",
            "activations": f"{self.activations} B",
            "toolchain": toolchain_name(self.toolchain),
        }

    @property
    def peak_macs_per_s(self) -> int:
        """MACs a second with the fastest activation type."""
        best = max(self.mac.rate.values())
        return int(self.mac.rows * self.mac.cols * self.clock * best)


@dataclass(frozen=True, slots=True, config=STRICT)
class CoresSpec(CoreSpec):
    """The BPU cores, all alike, named ``bpu0``, ``bpu1``, ..."""

    count: Count = Field(kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the cores in order."""
        return tuple(f"bpu{i}" for i in range(self.count))


Positive = Annotated[float, Field(gt=0, le=1e6, strict=False)]
Part = Annotated[float, Field(ge=0, le=1, strict=False)]
Speed = Annotated[float, Field(ge=0.25, le=4, strict=False)]


@dataclass(frozen=True, slots=True, config=STRICT)
class DramSpec:
    """The channel all masters share, and who wins when they ask for more than it gives.

    Each arbitration but proportional and equal needs a key of its own: ``order``, ``weights``, ``limits``.
    """

    preset: Annotated[str, _about("Timing set and width, such as LPDDR4X-3200x64")]
    capacity: Annotated[Capacity, _about("Size of the memory")]
    usable: Annotated[Capacity, _about("What models may take of it")]
    channels: Annotated[int, Field(ge=1, le=64), _about("So many of the preset side by side, lines taking turns")] = 1
    mapping: Annotated[str | None, _about("Address mapping; the timing set's own if absent")] = None
    speed: Annotated[Speed, _about("Its clock as a part of the preset's, for what-ifs (flow model)")] = 1.0
    arbitration: Annotated[
        Literal["proportional", "equal", "strict", "weighted", "regulated"],
        _about("Who gets how much when masters ask for too much"),
    ] = "proportional"
    order: Annotated[
        list[str] | None, _about("strict: masters from the first served to the last; others come last, together")
    ] = None
    weights: Annotated[dict[str, Positive] | None, _about("weighted: weight by master; others weigh 1")] = None
    limits: Annotated[
        dict[str, Annotated[Bandwidth, Field(ge=10**6)]] | None,
        _about("regulated: bytes a second by master; others have no limit"),
    ] = None
    heaps: Annotated[
        dict[Annotated[str, AfterValidator(named)], Capacity] | None,
        _about("Reserved stretches by name, which never merge; each block of a model lies in one"),
    ] = None

    @model_validator(mode="after")
    def _consistent(self) -> DramSpec:
        if self.usable > self.capacity:
            raise ValueError("usable exceeds capacity; lower usable or raise capacity")
        if self.heaps is not None and not self.heaps:
            raise ValueError("heaps lists none; write heaps: {npu: 1 GB}, or leave it out for one memory")
        reserved = sum((self.heaps or {}).values())
        if reserved > self.usable:
            sizes = " exceed the usable ".join(format_quantity(n, "size") for n in (reserved, self.usable))
            raise ValueError(f"heaps of {sizes}; lower them or raise usable")
        if self.arbitration == "strict" and not self.order:
            raise ValueError("strict arbitration needs an order; write order: [bpu0, bpu1]")
        if self.order and len(set(self.order)) != len(self.order):
            raise ValueError("order names a master twice; name each once, from the first served to the last")
        for key, policy, example in (
            ("order", "strict", "[bpu0, bpu1]"),
            ("weights", "weighted", "{bpu0: 3, bpu1: 1}"),
            ("limits", "regulated", "{bpu1: 6 GB/s}"),
        ):
            if self.arbitration == policy and not getattr(self, key):
                raise ValueError(f"{policy} arbitration needs {key}; write {key}: {example}")
            if self.arbitration != policy and getattr(self, key):
                raise ValueError(
                    f"{key} means nothing to {self.arbitration} arbitration; remove it or write arbitration: {policy}"
                )
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class MasterSpec:
    """A master with traffic of its own: a camera, a display, a codec, a GPU.

    It moves ``rate``, ``written`` (0 to 1) of it as writes, all the time or for ``on`` of every ``period``. Without a
    ``window`` it is open-loop: it takes its rate first, its FIFO holds ``buffer``, and what finds that full is dropped.
    With a ``window`` it keeps so many bytes in flight, a ``latency`` of its own away, and shares like a core.
    """

    rate: Annotated[Limit, _about("Bytes a second it moves while it is on")]
    written: Annotated[Part, _about("Part of its bytes that is written, 0 to 1")]
    on: Annotated[Latency | None, _about("Length of a burst; always on if absent")] = None
    period: Annotated[Latency | None, _about("From one burst to the next")] = None
    buffer: Annotated[Size, _about("Open loop: bytes its FIFO holds before it drops")] = 32768
    window: Annotated[
        Window | None, _about("Closed loop: bytes in flight; it waits for the channel and drops nothing")
    ] = None
    latency: Annotated[Duration, _about("Closed loop: from the master to the channel and back")] = 0

    @model_validator(mode="before")
    @classmethod
    def _one_loop(cls, given: Any) -> Any:
        keys = given if isinstance(given, dict) else getattr(given, "kwargs", None) or {}
        if keys.get("window") is not None and "buffer" in keys:
            raise ValueError("buffer means nothing beside a window: a closed-loop master waits and drops nothing")
        return given

    @model_validator(mode="after")
    def _consistent(self) -> MasterSpec:
        if (self.on is None) != (self.period is None):
            raise ValueError("on and period go together; write on: 4 ms and period: 33 ms, or neither")
        if self.on is not None and self.period is not None and self.on > self.period:
            raise ValueError("on exceeds period; lower it, or leave both out for traffic without a break")
        if self.window is None and self.latency:
            raise ValueError("latency means nothing without a window: an open-loop master does not wait")
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class SlowSpec:
    """CPU cores that are slower than the others, on the same clock domain and with ports like theirs."""

    cores: Annotated[CpuCores, _about("Slow CPU cores, besides the others")]
    speed: Annotated[float, Field(ge=0.01, lt=1, strict=False), _about("Their speed, as a part of a fast core's")]


@dataclass(frozen=True, slots=True, config=STRICT)
class HostSpec:
    """The CPU cluster and what its runtime work costs."""

    cores: Annotated[CpuCores, _about("CPU cores")]
    clock: Annotated[Clock, _about("Their clock")]
    dma: Annotated[DmaSpec, _about("Port of each core into the DRAM channel")]
    per_request: Annotated[Duration, _about("Work at the start of a request")]
    tokenize_per_token: Annotated[Duration, _about("Tokenising a token of a prompt")]
    per_token: Annotated[Duration, _about("Work after each token")]
    sample_per_entry: Annotated[Duration, _about("Sampling, by entry of the vocabulary")]
    per_frame: Annotated[Duration, _about("Work of a frame's call")]
    dispatch: Annotated[Duration, _about("Preparing a call")]
    dispatch_per_layer: Annotated[Duration, _about("Preparing a layer of a call")]
    doorbell: Annotated[Duration, _about("The part of dispatch that async submit cannot do ahead")]
    interrupt: Annotated[Duration, _about("From the end of a call to the host's next step")]
    cache_per_byte: Annotated[PerByte, _about("Cache maintenance on shared memory")]
    allocate_per_tensor: Annotated[Duration, _about("Allocating a tensor when no pool keeps it")]
    log_per_op: Annotated[Duration, _about("Logging an op")]
    fallback_op: Annotated[Duration, _about("Entry into a CPU kernel")]
    fallback_cycles: Annotated[
        dict[Literal["add", "mul", "exp", "div", "reduce", "convert", "mac"], Count],
        _about("CPU cycles an element takes, by class of operation"),
    ]
    slow: Annotated[SlowSpec | None, _about("Slow CPU cores; none if absent")] = None
    join_per_part: Annotated[Duration, _about("Starting and joining each part of work that is cut over cores")] = 0

    def cost(self, kind: str) -> int:
        """CPU cycles of one element of a class."""
        return self.fallback_cycles[kind]  # type: ignore[index]  # the classes are checked when the spec is made

    @model_validator(mode="after")
    def _complete(self) -> HostSpec:
        missing = [c for c in (*VECTOR_CLASSES, "mac") if c not in self.fallback_cycles]
        if missing:
            raise ValueError(
                f"fallback_cycles lacks {', '.join(missing)}; every class needs its cost, or it would be free"
            )
        return self


_SHORTEST = 10**6
"""Bursts that come more often than every 1 us are below what the channel resolves."""


@dataclass(frozen=True, slots=True, config=STRICT)
class MachineSpec:
    """A board: BPU cores, DRAM, a host, and other masters of the DRAM by name."""

    name: Annotated[str, _about("Name of the machine")]
    cores: Annotated[CoresSpec, _about("The BPU cores")]
    dram: Annotated[DramSpec, _about("The memory")]
    host: Annotated[HostSpec, _about("The CPU cluster and its runtime")]
    masters: Annotated[
        dict[Annotated[str, AfterValidator(named)], MasterSpec],
        _about("Other masters of the memory by name: cameras, displays, codecs"),
    ] = Field(default_factory=dict)
    clocks: Annotated[ClocksSpec, _about("Clocks that may change")] = Field(default_factory=ClocksSpec)
    power: Annotated[PowerSpec | None, _about("Where the board's power goes")] = None
    cooling: Annotated[
        CoolingSpec | None, _about("The heat path: a preset, {preset: NAME, ...changes}, or all of it; none if absent")
    ] = None

    @model_validator(mode="after")
    def _names(self) -> MachineSpec:
        taken = [n for n in self.masters if n in (*self.cores.names, "cpu")]
        if taken:
            raise ValueError(f"masters: {taken[0]} is the name of another master; choose another")
        fast = [n for n, m in self.masters.items() if m.period is not None and m.period < _SHORTEST]
        if fast:
            raise ValueError(f"masters: bursts of {fast[0]} come faster than every microsecond; write their mean rate")
        if self.power is not None and self.power.host.slow is not None and self.host.slow is None:
            raise ValueError("power.host.slow is of no core; remove it, or add host.slow: {cores: 4, speed: 0.45}")
        if self.cooling is not None and self.power is None:
            raise ValueError("cooling needs power: nothing says what heats the machine")
        return self
