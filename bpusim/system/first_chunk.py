"""What a model can be asked whose prefill holds over an empty cache only: prompts of one chunk, that start anew."""

from __future__ import annotations

from collections.abc import Iterator

from bpusim.errors import Problem
from bpusim.runtime import PlacedModel
from bpusim.scenario import ChatSpec, Scenario, StageSpec
from bpusim.system.streams import Lengths, Where

__all__ = ["beyond_first_chunk"]


def beyond_first_chunk(
    scenario: Scenario, where: Where, spec: ChatSpec | StageSpec, model: PlacedModel, lengths: Lengths
) -> Iterator[Problem]:
    """What a chat would prefill behind entries that are in the cache, if its model cannot do that."""
    prefill = model.trace.phase("prefill")
    if not prefill.empty_cache:
        return
    chunk, history = prefill.tokens, spec.history if isinstance(spec, ChatSpec) else "none"
    whole = f"model '{model.name}' reads a prompt over an empty cache only, in one chunk of at most {chunk} tokens"
    if history == "kept":
        yield Problem(f"{whole}, not behind a kept conversation", scenario.where(*where, "history"), "remove history")
    elif history == "reread" and model.context > chunk:
        what = f"{whole}, and conversations grow to its context of {model.context}"
        yield Problem(what, scenario.where(*where, "history"), f"compile the model with --chunk {model.context}")
    elif lengths.most("prompt") > chunk:
        what, do = f"{whole}, and prompts have up to {lengths.most('prompt')}", "shorten them"
        yield Problem(what, scenario.where(*where, "prompt"), f"{do}, or compile the model with a longer --chunk")
