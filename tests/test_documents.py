"""YAML documents: plain data, the place of every key and value, and every refusal with its message."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.documents import MAX_DEPTH, Document, file_hint, parse_value, read_document
from bpusim.errors import Place, ScenarioError, TraceError


def write(folder: Path, text: str | bytes, name: str = "a.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes) -> Document:
    return read_document(write(folder, text), error=ScenarioError)


def refusal(folder: Path, text: str | bytes) -> str:
    """The message of the error that ``text`` causes, without the folder."""
    with pytest.raises(ScenarioError) as caught:
        read(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("3", 3),
        ("-3", -3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("17.1 GB/s", "17.1 GB/s"),
        ("1/4", "1/4"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("'3'", "3"),
        ('"1.0"', "1.0"),
        ("[1, a, [b]]", [1, "a", ["b"]]),
        ("{x: 1}", {"x": 1}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_values_are_yaml_1_2_core(tmp_path: Path, text: str, value: object) -> None:
    got = read(tmp_path, f"key: {text}").data["key"]
    assert got == value
    assert type(got) is type(value)


def test_a_yaml_directive_does_not_bring_back_yaml_1_1(tmp_path: Path) -> None:
    assert read(tmp_path, "%YAML 1.1\n---\nkey: on\n").data == {"key": "on"}


@pytest.mark.parametrize(
    ("path", "line", "col"),
    [
        ((), 2, 1),
        (("a",), 2, 4),
        (("b",), 4, 3),
        (("b", "c"), 4, 6),
        (("b", "c", 1), 4, 10),
        (("d", 0, "e"), 6, 8),
    ],
)
def test_every_value_has_its_place(tmp_path: Path, path: tuple[str | int, ...], line: int, col: int) -> None:
    document = read(tmp_path, "# comment\na: 1\nb:\n  c: [x, y]\nd:\n  - e: 3\n")
    assert document.where(*path) == Place(str(tmp_path / "a.yaml"), line, col)


def test_every_key_has_its_place(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 2}\n")
    assert document.key("b", "c") == Place(str(tmp_path / "a.yaml"), 2, 5)


def test_a_path_that_is_not_there_has_the_place_around_it(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 2}\n")
    assert document.where("b", "x", "y") == document.where("b")


@pytest.mark.parametrize("text", ["\ufeffa: 1\nb: 2\n", "a: 1\r\nb: 2\r\n"], ids=["bom", "crlf"])
def test_files_of_other_editors_read_the_same(tmp_path: Path, text: str) -> None:
    document = read(tmp_path, text)
    assert document.data == {"a": 1, "b": 2}
    assert (document.where("b").line, document.where("b").col) == (2, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml: error: the file is empty; write keys such as 'about: ...'"),
        ("# only\n", "a.yaml: error: the file is empty; write keys such as 'about: ...'"),
        ("- a\n", "a.yaml:1:1: error: the top level is not a mapping; write keys such as 'about: ...'"),
        ("a:\n\tb: 1\n", "a.yaml:2:1: error: a tab where only spaces are allowed; replace it with spaces"),
        (
            "a: b: c\n",
            "a.yaml:1:5: error: a ':' that YAML does not allow here; check the indent, or quote the text",
        ),
        (
            "a: [1\n",
            "a.yaml:2:1: error: the text ends while parsing a flow sequence; close the bracket or quote",
        ),
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: error: key 'a' is already at line 1; keep one of the two"),
        ("1: a\n", "a.yaml:1:1: error: a key 1 is not text; quote it or choose a name"),
        ("true: a\n", "a.yaml:1:1: error: a key true is not text; quote it or choose a name"),
        (
            "[a]: b\n",
            "a.yaml:1:1: error: a key that is a list or mapping is not text; quote it or choose a name",
        ),
        (
            "a: &x 1\n",
            "a.yaml:1:4: error: anchor '&x' is not supported; write the value where it is needed",
        ),
        ("a: *x\n", "a.yaml:1:4: error: alias '*x' is not supported; write the value out, or use extends"),
        (
            "<<: {a: 1}\n",
            "a.yaml:1:1: error: merge key '<<' is not supported; write the keys out, or use extends",
        ),
        ("a: !new 1\n", "a.yaml:1:4: error: tag '!new' is not supported; remove it; quotes make text"),
        ("a: 1\n---\nb: 1\n", "a.yaml:2:1: error: a second document; keep one document a file"),
        ("a: .nan\n", "a.yaml:1:4: error: the number .nan is out of range; write a smaller one"),
        ("a: -.inf\n", "a.yaml:1:4: error: the number -.inf is out of range; write a smaller one"),
        ("a: 1e999\n", "a.yaml:1:4: error: the number 1e999 is out of range; write a smaller one"),
        (
            "a: " + "9" * 9000,
            "a.yaml:1:4: error: the number 99999999999999999999... is out of range; write a smaller one",
        ),
        (b"a: 1\nb: \xff\n", "a.yaml:2: error: the file is not UTF-8; save it as UTF-8"),
        ('a: "\\ud800"\n', "a.yaml:1:4: error: half of a surrogate pair; write the character itself"),
    ],
)
def test_refusals_say_where_what_and_what_to_do(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refusal(tmp_path, text) == message


def test_a_control_character_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "a: \x00\n").startswith("a.yaml: error: unacceptable character #x0000")


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "[" * 5000 + "]" * 5000, "a: " + "{b: " * 5000])
def test_deep_nesting_is_an_error_and_not_a_crash(tmp_path: Path, text: str) -> None:
    assert f"nested more than {MAX_DEPTH} deep" in refusal(tmp_path, text)


def test_all_problems_are_raised_at_once(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "a: 1\na: 2\n3: x\nb: &x 1\n").splitlines()
    assert [line.split(" error:")[0] for line in lines] == ["a.yaml:2:1:", "a.yaml:3:1:", "a.yaml:4:4:"]


def test_keys_below_two_refused_keys_are_no_duplicates_of_each_other(tmp_path: Path) -> None:
    assert "already" not in refusal(tmp_path, "1: {a: 1}\n2: {a: 1}\n[x]: {a: {b: 1}}\n[y]: {a: {b: 1}}\n")


def test_a_missing_file_suggests_its_sibling(tmp_path: Path) -> None:
    write(tmp_path, "a: 1", "dual_replica.yaml")
    write(tmp_path, "a: 1", "dual_replicas.txt")
    with pytest.raises(ScenarioError) as caught:
        read_document(tmp_path / "dual_repplica.yaml", error=ScenarioError)
    assert caught.value.problems[0].do == "did you mean 'dual_replica.yaml'?"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert file_hint(tmp_path / "no" / "a.yaml") == f"there is no folder '{tmp_path / 'no'}'"


def test_a_missing_file_is_reported_where_it_is_named(tmp_path: Path) -> None:
    place = Place("child.yaml", 1, 10)
    with pytest.raises(ScenarioError) as caught:
        read_document(tmp_path / "a.yaml", error=ScenarioError, named_at=place)
    assert caught.value.problems[0].place == place


def test_a_folder_is_not_a_document(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="it is a folder; name a file in it"):
        read_document(tmp_path, error=ScenarioError)


def test_a_name_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no file has such a name"):
        read_document(str(tmp_path) + "/a\0b", error=ScenarioError)


def test_the_caller_chooses_the_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        read_document(tmp_path / "a.yaml", error=TraceError)


def test_over_merges_mappings_and_replaces_all_else(tmp_path: Path) -> None:
    base = read_document(write(tmp_path, "a: {x: 1, y: [1, 2], z: {p: 1}}\nb: 1\n", "base.yaml"))
    top = read_document(write(tmp_path, "a: {y: [3], z: {q: 2}}\nb: {c: 1}\n", "top.yaml"))
    assert top.over(base).data == {"a": {"x": 1, "y": [3], "z": {"p": 1, "q": 2}}, "b": {"c": 1}}


def test_over_keeps_the_place_of_each_value_in_its_file(tmp_path: Path) -> None:
    base = read_document(write(tmp_path, "a: {x: 1, y: 2}\n", "base.yaml"))
    top = read_document(write(tmp_path, "a: {y: 3}\n", "top.yaml"))
    merged = top.over(base)
    assert merged.where("a", "x") == base.where("a", "x")
    assert merged.where("a", "y") == top.where("a", "y")


def test_over_changes_neither_document(tmp_path: Path) -> None:
    base = read_document(write(tmp_path, "a: {x: 1}\n", "base.yaml"))
    top = read_document(write(tmp_path, "a: {y: 3}\n", "top.yaml"))
    top.over(base)
    assert (base.data, top.data) == ({"a": {"x": 1}}, {"a": {"y": 3}})


def test_under_moves_data_and_places(tmp_path: Path) -> None:
    document = read(tmp_path, "a: {x: 1}\n")
    moved = document.under("machine")
    assert moved.data == {"machine": {"a": {"x": 1}}}
    assert moved.where("machine", "a", "x") == document.where("a", "x")
    assert moved.key("machine", "a") == document.key("a")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("5 ms", "5 ms"), ("[bpu0, bpu1]", ["bpu0", "bpu1"]), ("", None), ("on", "on")],
)
def test_parse_value_reads_one_yaml_value(text: str, value: object) -> None:
    assert parse_value(text, place=Place("--set x")) == value


def test_parse_value_reports_at_the_place_it_is_given() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_value("[1", place=Place("--set x"), error=ScenarioError)
    assert str(caught.value).startswith("--set x: error: the text ends while parsing a flow sequence")


def test_keys_of_a_refused_key_are_no_duplicates_of_the_entry_before(tmp_path: Path) -> None:
    assert "already" not in refusal(tmp_path, "a: {x: 1}\n{x: 1}: b\n")


def test_a_file_that_is_read_again_is_not_what_somebody_made_of_it(tmp_path: Path) -> None:
    text = "a: {b: [1, {c: 2}]}"
    first = read(tmp_path, text).data
    first["a"]["b"][1]["c"] = 3
    first["a"]["b"].append(4)
    assert read(tmp_path, text).data == {"a": {"b": [1, {"c": 2}]}}
