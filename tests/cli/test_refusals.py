"""The command line refuses bad input: one message with file and line, exit 2, nothing written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from desks import LIGHT, SCENARIO, TRACES, Desk


def test_an_unknown_key_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "outptu: 4")
    assert desk.refused() == ("s.yaml:6:35: error: streams.alice: unknown key 'outptu'; did you mean 'output'?\n")


def test_a_wrong_unit_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "output: 4, start: 3 GB")
    message = desk.refused()
    assert re.match(r"s\.yaml:6:\d+: error: streams\.alice\.start: ", message)
    assert message.count("error:") == 1


def test_a_bare_number_for_a_quantity_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "output: 4, start: 3")
    message = desk.refused()
    assert re.match(r"s\.yaml:6:\d+: error: streams\.alice\.start: .*no unit", message)


def test_a_duplicate_key_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("about: A short talk", "about: A short talk\nabout: Another")
    message = desk.refused()
    assert message.startswith("s.yaml:2:1: error: ")
    assert "about" in message


def test_a_missing_scenario_is_refused(desk: Desk) -> None:
    (desk.folder / "s.yaml").unlink()
    message = desk.refused()
    assert message.startswith("s.yaml: error: ")
    assert message.count("error:") == 1


def test_a_missing_trace_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.change("small.trace", "smal.trace")
    message = desk.refused()
    assert message.startswith("s.yaml:4:17: error: models.chat.trace: cannot read trace 'smal.trace': no such file")
    assert "small.trace" in message


def test_a_missing_parent_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.write("s.yaml", "extends: no.yaml\n")
    assert desk.refused().startswith("s.yaml:1:10: error: ")


def test_a_scenario_that_is_a_folder_is_refused(desk: Desk) -> None:
    (desk.folder / "s.yaml").unlink()
    (desk.folder / "s.yaml").mkdir()
    assert "s.yaml" in desk.refused()


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_trace_is_refused_at_the_line_where_it_ends(desk: Desk, keep: float) -> None:
    path = desk.folder / "small.trace"
    text = path.read_text()
    cut = text[: int(len(text) * keep)]
    path.write_text(cut)
    line = cut.count("\n") + 1
    assert desk.refused() == (f"{path}:{line}: error: the trace is cut short in this line; copy or compile it again\n")


def test_a_trace_without_its_last_lines_is_refused(desk: Desk) -> None:
    path = desk.folder / "small.trace"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    message = desk.refused()
    assert message.startswith(f"{path}:{len(lines) - 1}: error: ")
    assert "cut short" in message


def test_an_empty_trace_is_refused(desk: Desk) -> None:
    desk.write("small.trace", "")
    assert desk.refused().startswith(f"{desk.folder / 'small.trace'}:")


def test_a_newer_trace_schema_is_refused(desk: Desk) -> None:
    desk.trace(lambda header: header.update(bpusim_trace=99))
    assert desk.refused() == (
        f"{desk.folder / 'small.trace'}:1: error: trace schema 99 is newer than 1, the newest this bpusim reads; "
        "update bpusim or compile the model again\n"
    )


def test_a_trace_for_another_core_is_refused_where_it_is_named(desk: Desk) -> None:
    message = desk.refused("--set", "machine.cores.mac.rows=64")
    assert message.startswith("s.yaml:4:17: error: the trace of model 'chat' is compiled for another core: ")
    assert "mac.rows 128 where the machine has 64" in message


def test_a_clock_does_not_make_another_core(desk: Desk) -> None:
    """Traces count cycles: they hold at every clock."""
    desk.run("--set", "machine.cores.clock=600 MHz")


@pytest.mark.parametrize(
    "change",
    [
        ("machine.cores.mac.rows=64",),
        ("machine.cores.scratchpad=2 MiB", "machine.cores.vector.lanes=32"),
        ("machine.cores.mac.rate={int8: 1, int16: 1/2}",),
        ("machine.cores.vector.cycles.exp=4", "machine.cores.toolchain='1.2'"),
    ],
)
def test_the_compile_command_in_the_refusal_works(desk: Desk, change: tuple[str, ...]) -> None:
    """Copied to a shell beside the model, it makes the trace that the machine wants."""
    shutil.copy(TRACES / "resnet50-992.trace", desk.folder / "small.trace")
    shutil.copy(LIGHT / "light_resnet50.onnx", desk.folder)
    desk.write(
        "s.yaml",
        "machine: bpu80\nmodels: {eye: {trace: small.trace, cores: bpu0}}\n"
        "streams: {cam: {frames: eye, rate: 10 Hz, count: 2}}\n",
    )
    sets = [word for c in change for word in ("--set", c)]
    message = desk.refused(*sets)
    command = re.search(r"bpusim compile .*", message)
    assert command
    import shlex

    words = shlex.split(command[0])
    done = desk.bpusim(*words[1:])
    assert done.exit_code == 0, done.output
    shutil.move(words[words.index("-o") + 1], "small.trace")
    desk.run(*sets)


def test_a_model_larger_than_memory_is_refused_with_the_table(desk: Desk) -> None:
    desk.write(
        "s.yaml",
        SCENARIO.replace("small.trace", str(TRACES / "qwen2.5-7b-int4.trace")).replace(
            "streams:", f"  more: {{trace: '{TRACES / 'qwen2.5-3b-int8.trace'}', cores: bpu1}}\nstreams:"
        ),
    )
    message = desk.refused()
    assert re.match(r"s\.yaml:4:3: error: the models need [\d.]+ GB and 5\.5 GB are usable; take a smaller", message)
    rows = message.splitlines()[1:]
    assert rows[0].split() == ["model", "weights", "KV", "workspace", "total"]
    assert [row.split()[0] for row in rows[1:]] == ["chat", "more"]


def test_usable_memory_decides_what_fits(desk: Desk) -> None:
    """0.5B: 323 MB of weights and 4096 x 12,288 B of cache need 374 MB and a workspace."""
    assert "are usable" in desk.refused("--set", "machine.dram.usable=373 MB")


def test_an_absent_core_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: bpu2")
    assert desk.refused() == (
        "s.yaml:4:37: error: models.chat.cores: the machine has no core 'bpu2'; did you mean 'bpu1'?\n"
    )


def test_a_prompt_beyond_the_context_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("prompt: 32", "prompt: 4093")
    assert desk.refused() == (
        "s.yaml:6:31: error: prompt 4093 and output 4 exceed the context of 4096 tokens; "
        "shorten them, or compile the model with a longer --context\n"
    )


def test_a_prompt_that_just_fits_the_context_is_taken(desk: Desk) -> None:
    """The model's limit set to 36 = 32 + 4."""
    desk.change("cores: bpu0", "cores: bpu0, context: 36")
    assert desk.run().exit_code == 0


def test_a_context_beyond_the_traces_is_refused(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: bpu0, context: 4097")
    assert desk.refused().startswith("s.yaml:4:52: error: a context of 4097 exceeds the 4096 the trace is compiled for")


def test_a_chat_with_a_model_of_frames_is_refused(desk: Desk) -> None:
    shutil.copy(TRACES / "resnet50-992.trace", desk.folder / "small.trace")
    assert desk.refused().startswith("s.yaml:6:17: error: model 'chat' cannot serve chat")


def test_a_split_of_too_many_layers_is_refused(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: [bpu0, bpu1], split: [20, 20]")
    message = desk.refused()
    assert message.startswith("s.yaml:4:")
    assert "24" in message


def test_all_problems_of_a_scenario_are_reported_at_once(desk: Desk) -> None:
    desk.write("s.yaml", SCENARIO.replace("output: 4", "outptu: 4").replace("bpu0", "bpu7").replace("32", "-1"))
    lines = desk.refused().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("s.yaml:") for line in lines)


def test_a_wrong_override_names_itself(desk: Desk) -> None:
    message = desk.refused("--set", "machine.cores.clok=1 GHz")
    assert message.startswith("--set machine.cores.clok: error: ")
    assert "did you mean 'clock'?" in message


def test_an_unknown_dram_preset_is_refused(desk: Desk) -> None:
    assert "LPDDR4X-3200x64" in desk.refused("--set", "machine.dram.preset=LPDDR4X-3200x46")


def test_a_refusal_in_a_process_of_its_own(desk: Desk) -> None:
    """The real thing: exit code 2, the message on stderr, nothing on stdout."""
    desk.change("output: 4", "outptu: 4")
    done = subprocess.run(
        [sys.executable, "-c", "from bpusim.cli import main; main()", "run", "s.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "s.yaml:6:35: error: streams.alice: unknown key 'outptu'; did you mean 'output'?\n"
