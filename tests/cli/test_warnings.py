"""What a run warns of, each time with what to do."""

from __future__ import annotations

from desks import LIGHT, SCENARIO, Desk


def _warnings(desk: Desk, *arguments: str) -> dict[str, str]:
    return {w["code"]: w["text"] for w in desk.json(*arguments)["warnings"]}


def test_an_idle_core_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    text = _warnings(desk)["idle-core"]
    assert "core bpu1 has no model" in text
    assert "cores: bpu1" in text


def test_a_model_that_no_stream_uses_is_a_warning(desk: Desk) -> None:
    desk.change("models:\n", "models:\n  spare: {trace: small.trace, cores: bpu1}\n")
    assert _warnings(desk) == {
        "unused-model": "no stream uses model 'spare'; it takes memory and its cores wait for nothing"
    }


def test_two_busy_cores_are_no_warning(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: [bpu0, bpu1], split: even")
    assert _warnings(desk) == {}


def _pinned(desk: Desk, cores: str) -> None:
    """SqueezeNet compiled for ``cores``, asked to run on bpu1."""
    done = desk.bpusim("compile", str(LIGHT / "light_squeezenet.onnx"), "--cores", cores, "-o", "small.trace")
    assert done.exit_code == 0
    desk.write(
        "s.yaml",
        "machine: bpu80\nmodels: {eye: {trace: small.trace, cores: bpu1}}\n"
        "streams: {cam: {frames: eye, rate: 10 Hz, count: 2}}\n",
    )


def test_a_trace_pinned_elsewhere_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    _pinned(desk, "0")
    text = _warnings(desk)["pinned-trace"]
    assert "model 'eye' asks for bpu1, but its trace is compiled for cores [0] and stays there" in text
    assert "--cores 1" in text


def test_a_pinned_trace_stays_where_it_is_pinned(desk: Desk) -> None:
    """The field's surprise: both models end up on core 0."""
    _pinned(desk, "0")
    cores = desk.json()["cores"]
    assert (cores["bpu0"]["calls"], cores["bpu1"]["calls"]) == (2, 0)


def test_a_trace_pinned_where_it_is_asked_is_no_warning(desk: Desk) -> None:
    _pinned(desk, "1")
    assert "pinned-trace" not in _warnings(desk)


def test_a_trace_pinned_to_a_core_that_is_not_there_is_refused(desk: Desk) -> None:
    _pinned(desk, "3")
    assert "pinned to a core this machine lacks" in desk.refused()


def test_a_trace_that_may_run_on_either_core_is_no_warning(desk: Desk) -> None:
    """Compiled for 0,1 and asked on bpu1: it can go there, and does."""
    _pinned(desk, "0,1")
    data = desk.json()
    assert [w["code"] for w in data["warnings"]] == ["idle-core"]
    assert data["cores"]["bpu1"]["calls"] == 2


def test_a_dash_in_a_models_name_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    desk.write("s.yaml", SCENARIO.replace("  chat: {", "  my-chat: {").replace("chat: chat", "chat: my-chat"))
    text = _warnings(desk)["model-name"]
    assert "model name 'my-chat' is dropped" in text
    assert "my_chat" in text


def test_warnings_are_printed_with_the_table(desk: Desk) -> None:
    assert "idle-core" in desk.run().output
