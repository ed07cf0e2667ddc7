"""Scenario files: what a user may write, and the loader that checks it."""

from bpusim.scenario.loader import load_machine, load_scenario, machine_document
from bpusim.scenario.model import Scenario
from bpusim.scenario.schema import EngineOptions, HostOptions, ModelSpec, RunOptions, ScenarioSpec, json_schema
from bpusim.scenario.streams import (
    ArrivalSpec,
    ChatSpec,
    FileSpec,
    FramesSpec,
    LognormalSpec,
    PipelineSpec,
    RegionsSpec,
    StageSpec,
    StreamSpec,
)

__all__ = [
    "ArrivalSpec",
    "ChatSpec",
    "EngineOptions",
    "FileSpec",
    "FramesSpec",
    "HostOptions",
    "LognormalSpec",
    "ModelSpec",
    "PipelineSpec",
    "RegionsSpec",
    "RunOptions",
    "Scenario",
    "ScenarioSpec",
    "StageSpec",
    "StreamSpec",
    "json_schema",
    "load_machine",
    "load_scenario",
    "machine_document",
]
