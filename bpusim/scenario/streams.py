"""What a scenario file may say of streams: chat users, cameras, and pipelines of stages."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from bpusim.errors import did_you_mean
from bpusim.scenario.section import Affinity, Count, Name, Parts, Section, is_count
from bpusim.units import Duration, FrameRate

__all__ = [
    "ArrivalSpec",
    "ChatSlo",
    "ChatSpec",
    "FileSpec",
    "FramesSpec",
    "LognormalSpec",
    "PipelineSpec",
    "RegionsSpec",
    "Stage",
    "StageSpec",
    "StreamSpec",
]

Stage = Literal["camera", "cpu"]
"""Where the time before or after a frame's model is spent: outside the machine, or on a CPU core."""


def _requests(value: Any) -> Any:
    if not is_count(value) and value != "forever":
        raise ValueError("not a number of requests; write a whole number of 1 or more, or forever")
    return value


def _kind_known(value: Any) -> Any:
    """Refuses a stream entry that is of no kind or of two, before the union is tried."""
    if not isinstance(value, dict):
        if isinstance(value, BaseModel):
            return value
        raise ValueError("not a stream; write a mapping with a key chat, frames or pipeline")
    kinds = [k for k in _KINDS if k in value]
    if len(kinds) > 1:
        raise ValueError(f"has both {' and '.join(kinds)}; a stream is one of them, so remove the other")
    if not kinds:
        raise ValueError("has neither chat nor frames; add chat: MODEL, frames: MODEL or pipeline: STAGES")
    return value


_KINDS = {"chat": "ChatSpec", "frames": "FramesSpec", "pipeline": "PipelineSpec"}


def _kind(value: Any) -> str:
    """The tag of the union's branch: the name of its class, by which errors find its schema."""
    return next(_KINDS[k] for k in _KINDS if k in value) if isinstance(value, dict) else type(value).__name__


def _after(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise ValueError("not the name of a stage or a list of them; write after: hear or after: [hear, see]")
    return tuple(names)


def _length_known(value: Any) -> Any:
    """Refuses a mapping that is no length, before the union is tried."""
    if isinstance(value, dict) and ("file" in value) + bool(value.keys() & {"median", "sigma", "max"}) != 1:
        raise ValueError("not a length; write tokens, {median: 200, sigma: 0.7, max: 1000} or {file: lengths.csv}")
    return value


def _length_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "FileSpec" if "file" in value else "LognormalSpec"
    return type(value).__name__ if isinstance(value, LognormalSpec | FileSpec) else "Count"


def _regions(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.keys() & {"text", "per_region", "regions"})


def _prompt_known(value: Any) -> Any:
    """The same of a prompt, which may have regions."""
    return value if _regions(value) else _length_known(value)


def _prompt_kind(value: Any) -> str:
    return "RegionsSpec" if _regions(value) or isinstance(value, RegionsSpec) else _length_kind(value)


Weight = Annotated[float, Field(gt=0, le=1e6, strict=False)]


class ChatSlo(Section):
    """What a chat user expects. They are also the deadlines of the calls, for policies that go by deadlines."""

    ttft: Annotated[Duration, Field(gt=0)] | None = Field(None, description="Time to first token")
    tpot: Annotated[Duration, Field(gt=0)] | None = Field(None, description="Mean time of each later token")


class LognormalSpec(Section):
    """A length with a lognormal distribution, as prompts and answers of real users have it."""

    median: Annotated[float, Field(gt=0, le=1e9, strict=False)] = Field(description="Half are longer")
    sigma: Annotated[float, Field(ge=0, le=10, strict=False)] = Field(
        description="Standard deviation of the logarithm: 0.7 puts 95 % within a factor of four"
    )
    max: Count = Field(description="Longest; longer draws are cut to it")
    min: Count = Field(1, description="Shortest; shorter draws are raised to it")

    @model_validator(mode="after")
    def _ordered(self) -> LognormalSpec:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; exchange them")
        return self


class FileSpec(Section):
    """Lengths from a CSV file with columns prompt_tokens and output_tokens, one after the other."""

    file: str = Field(min_length=1, description="Path of the CSV file, from the file that names it")


Length = Annotated[
    Annotated[Count, Tag("Count")]
    | Annotated[LognormalSpec, Tag("LognormalSpec")]
    | Annotated[FileSpec, Tag("FileSpec")],
    Discriminator(_length_kind),
    BeforeValidator(_length_known),
]
"""Tokens: a number, a distribution, or a column of a file."""


class ArrivalSpec(Section):
    """Requests that come from outside, whatever becomes of those before."""

    poisson: Annotated[FrameRate, Field(gt=0, le=1e6)] | None = Field(
        None, description="Mean rate of a Poisson process, such as 0.2 Hz"
    )
    gamma: Annotated[FrameRate, Field(gt=0, le=1e6)] | None = Field(
        None, description="Mean rate, with intervals of a gamma distribution"
    )
    cv: Annotated[float, Field(gt=0, le=100, strict=False)] | None = Field(
        None, description="gamma: standard deviation of an interval over its mean; above 1 in bursts"
    )
    every: Annotated[Duration, Field(gt=0)] | None = Field(None, description="A fixed interval")
    file: str | None = Field(
        None, min_length=1, description="CSV with columns arrival_s, prompt_tokens, output_tokens, from here"
    )

    @model_validator(mode="after")
    def _one(self) -> ArrivalSpec:
        given = [n for n in ("poisson", "gamma", "every", "file") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'nothing'} is given; write one of poisson, gamma, every or file")
        if (self.cv is not None) != (self.gamma is not None):
            raise ValueError("gamma and cv go together; write both, such as {gamma: 0.2 Hz, cv: 2}, or poisson")
        return self


class ChatSpec(Section):
    """Chat users. In a closed loop each asks, reads the answer, thinks and asks again; with ``arrivals`` requests come
    from outside."""

    chat: str = Field(description="Name of the model that answers")
    prompt: Length | None = Field(None, description="Tokens of each prompt, such as 32")
    output: Length | None = Field(None, description="Tokens of each answer, such as 32")
    requests: Annotated[
        int | Literal["forever"],
        PlainValidator(_requests),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "forever"}]}),
    ] = Field(1, description="Number of requests of each user, or of all arrivals, or forever")
    users: Count = Field(1, le=10_000, description="Users at the same time, each with requests of its own")
    arrivals: ArrivalSpec | None = Field(None, description="How requests come from outside; a closed loop if absent")
    waiting: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None, description="Requests that may wait for the KV cache, others are rejected; no limit if absent"
    )
    history: Literal["none", "kept", "reread"] = Field(
        "none", description="Prompts go on from earlier answers: kept in the cache, or read again each time"
    )
    pace: Annotated[FrameRate, Field(gt=0, le=1e6)] | None = Field(
        None, description="Most tokens a second of an answer, such as 10 Hz; as fast as they come if absent"
    )
    start: Duration = Field(0, description="Time of the first request, or from which on they arrive")
    think: Duration = Field(0, description="Time between an answer's last token and the next request")
    think_spread: Literal["none", "exponential"] = Field(
        "none", description="Whether think is the same each time, or the mean of an exponential distribution"
    )
    slo: ChatSlo = Field(ChatSlo(), description="What counts as good: requests that meet all of it")
    weight: Weight = Field(1.0, description="Share of a core by policy: weighted_fair")

    @model_validator(mode="after")
    def _consistent(self) -> ChatSpec:
        by_file = self.arrivals is not None and self.arrivals.file is not None
        missing = [n for n in ("prompt", "output") if getattr(self, n) is None]
        if missing and not by_file:
            of = "prompt" if missing[0] == "prompt" else "answer"
            raise ValueError(f"'{missing[0]}' is missing; add {missing[0]}: tokens of each {of}, such as 32")
        if by_file and len(missing) < 2:
            raise ValueError("the file of arrivals has prompts and outputs; remove prompt and output")
        if self.arrivals is not None and self.think:
            raise ValueError("arrivals do not think; remove think, or arrivals for a closed loop")
        if self.arrivals is not None and (self.users > 1 or self.history != "none"):
            raise ValueError("arrivals are of no user in particular; remove users and history")
        if self.arrivals is None and self.waiting is not None:
            raise ValueError("a closed loop rejects nobody; remove waiting, or add arrivals")
        if self.think_spread != "none" and not self.think:
            raise ValueError("think_spread needs think, its mean; add think: 4 s")
        return self


class FramesSpec(Section):
    """A camera whose frames a model processes."""

    frames: str = Field(description="Name of the model that processes the frames")
    rate: Annotated[FrameRate, Field(gt=0, le=1e6)] = Field(description="Frames per second, such as 30 Hz")
    count: Count | None = Field(None, description="Number of frames; endless if absent")
    jitter: Duration = Field(0, description="How much earlier or later than its turn a frame may come at most")
    queue: Count = Field(1, description="Frames that may wait for the model")
    drop: Literal["oldest", "newest", "block"] = Field(
        "oldest", description="The frame that a full queue loses; block: none, the camera waits"
    )
    threads: Count = Field(1, le=1000, description="Frames that the host may have in the model at a time")
    overlap: Literal["on", "off"] = Field(
        "on", description="Whether the next frame is begun while the CPU does what is after the model"
    )
    before: dict[Stage, Duration] = Field(
        {}, description="Time each frame spends ahead of the queue, by stage (camera, cpu)"
    )
    after: dict[Stage, Duration] = Field(
        {}, description="Time each frame spends behind the model, by stage (camera, cpu)"
    )
    parts: Parts = Field(1, description="Parts that its cpu stages are cut into, each on a core; cores: one for each")
    affinity: Affinity | None = Field(
        None, description="CPU cores that its cpu stages may take; those of host.affinity if absent"
    )
    start: Duration = Field(0, description="Time of the first frame")
    deadline: Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="From capture to the end: later frames are counted, and policies may go by it"
    )
    weight: Weight = Field(1.0, description="Share of a core by policy: weighted_fair")

    @model_validator(mode="after")
    def _on_cores(self) -> FramesSpec:
        laid = [n for n, v in (("parts", self.parts != 1), ("affinity", self.affinity is not None)) if v]
        if laid and "cpu" not in {**self.before, **self.after}:
            raise ValueError(f"{laid[0]} means nothing without a cpu stage; remove it, or add after: {{cpu: 5 ms}}")
        return self

    @model_validator(mode="after")
    def _in_turn(self) -> FramesSpec:
        if 2 * self.jitter * self.rate > 10**12:
            raise ValueError("jitter is more than half the time between frames: they would pass each other; lower it")
        return self


class RegionsSpec(Section):
    """A prompt made of text and of what a detector found."""

    text: Count = Field(description="Tokens of text")
    per_region: Count = Field(description="Tokens of each region")
    regions: Length = Field(description="Regions found: a number, or a distribution of it")


StagePrompt = Annotated[
    Annotated[Count, Tag("Count")]
    | Annotated[LognormalSpec, Tag("LognormalSpec")]
    | Annotated[FileSpec, Tag("FileSpec")]
    | Annotated[RegionsSpec, Tag("RegionsSpec")],
    Discriminator(_prompt_kind),
    BeforeValidator(_prompt_known),
]


class StageSpec(Section):
    """A stage of a pipeline: one of frames, chat, host and wait, once what it waits for is done."""

    frames: str | None = Field(None, description="Name of the model that takes a frame")
    chat: str | None = Field(None, description="Name of the model that answers")
    host: Annotated[Duration, Field(gt=0)] | None = Field(None, description="Time on a CPU core")
    parts: Parts = Field(1, description="host: parts it is cut into, each on a core; cores: one for each")
    affinity: Affinity | None = Field(
        None, description="host: CPU cores that it may take; those of host.affinity if absent"
    )
    wait: Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="Time outside the machine, such as a sensor's"
    )
    after: Annotated[
        tuple[str, ...],
        BeforeValidator(_after),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field((), description="Stages that it waits for, or stage.first_token; the trigger if absent")
    prompt: StagePrompt | None = Field(None, description="chat: tokens of the prompt, or {text, per_region, regions}")
    output: Length | None = Field(None, description="chat: tokens of the answer")

    @model_validator(mode="after")
    def _one(self) -> StageSpec:
        given = [n for n in ("frames", "chat", "host", "wait") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'nothing'} to do; write one of frames, chat, host or wait")
        asked = [n for n in ("prompt", "output") if getattr(self, n) is not None]
        if self.chat is not None and len(asked) < 2:
            raise ValueError("a chat stage needs prompt and output; add them, such as prompt: 32, output: 48")
        if self.chat is None and asked:
            raise ValueError(f"{asked[0]} means nothing to {given[0]}; remove it")
        laid = [n for n, v in (("parts", self.parts != 1), ("affinity", self.affinity is not None)) if v]
        if self.host is None and laid:
            raise ValueError(f"{laid[0]} means nothing to {given[0]}; remove it")
        return self


class TriggerSpec(Section):
    """What starts a pipeline."""

    every: Annotated[Duration, Field(gt=0)] | None = Field(None, description="A fixed interval, such as 4 s")
    poisson: Annotated[FrameRate, Field(gt=0, le=1e6)] | None = Field(
        None, description="Mean rate of a Poisson process"
    )

    @model_validator(mode="after")
    def _one(self) -> TriggerSpec:
        if (self.every is None) == (self.poisson is None):
            raise ValueError("write one of every and poisson, such as {every: 4 s}")
        return self


class PipelineSpec(Section):
    """Stages over several models, started together by a trigger: wake word, detector, language model, speech."""

    pipeline: dict[Name, StageSpec] = Field(min_length=1, description="Stages by name")
    trigger: TriggerSpec = Field(description="What starts a run of all stages")
    count: Count | None = Field(None, description="Number of triggers; endless if absent")
    start: Duration = Field(0, description="From when on it is triggered")
    at_once: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Runs under way beyond which a trigger is dropped; no limit if absent"
    )
    deadline: dict[str, Annotated[Duration, Field(gt=0)]] = Field(
        {}, description="From the trigger to the end of a stage; the last stages are measured if absent"
    )
    weight: Weight = Field(1.0, description="Share of a core by policy: weighted_fair")

    @model_validator(mode="after")
    def _sound(self) -> PipelineSpec:
        dotted = [n for n in self.pipeline if "." in n]
        if dotted:
            raise ValueError(f"'{dotted[0]}' cannot name a stage: a dot parts it from first_token; rename it")
        marks = [*self.pipeline, *(f"{n}.first_token" for n, s in self.pipeline.items() if s.chat is not None)]
        for name, stage in self.pipeline.items():
            for before in stage.after:
                if before not in marks:
                    raise ValueError(f"{name} waits for '{before}', which there is not; {did_you_mean(before, marks)}")
        for name in self.deadline:
            if name not in self.pipeline:
                raise ValueError(f"deadline: no stage is named '{name}'; {did_you_mean(name, list(self.pipeline))}")
        self.order()
        return self

    def order(self) -> list[str]:
        """Stages, each behind those that it waits for. Raises :class:`ValueError` for a circle."""
        waits = {n: {a.removesuffix(".first_token") for a in s.after} for n, s in self.pipeline.items()}
        try:
            return list(TopologicalSorter(waits).static_order())
        except CycleError as e:
            circle = " waits for ".join(reversed(e.args[1]))
            raise ValueError(f"stages wait for each other: {circle}; take one of them out") from None


StreamSpec = Annotated[
    Annotated[ChatSpec, Tag("ChatSpec")]
    | Annotated[FramesSpec, Tag("FramesSpec")]
    | Annotated[PipelineSpec, Tag("PipelineSpec")],
    Discriminator(_kind),
    BeforeValidator(_kind_known),
]
"""A source of work; the key ``chat``, ``frames`` or ``pipeline`` says of which kind."""
