"""The frame round every command: spellings, sources of options, errors, streams, exit codes."""

from __future__ import annotations

import errno
import inspect
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from conftest import Outcome, Run
from typer.main import get_command

from nanogpt_cli import __version__, output
from nanogpt_cli.cli import build_app
from nanogpt_cli.cli.complaints import explain
from nanogpt_cli.commands import COMMANDS
from nanogpt_cli.errors import CheckpointError, NanoGPTError, UsageError
from nanogpt_cli.options.checkpoint import CheckpointArg
from nanogpt_cli.options.general import QuietOpt
from nanogpt_cli.options.model import DtypeOpt, OfflineOpt
from nanogpt_cli.options.output import EchoOpt, JsonOpt
from nanogpt_cli.options.prompt import PromptOpt
from nanogpt_cli.options.sampling import MaxNewTokensOpt


def show(
    checkpoint: CheckpointArg = None,
    prompt: PromptOpt = None,
    max_new_tokens: MaxNewTokensOpt = 500,
    temperature: Annotated[float, typer.Option("--temperature", "-t")] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", "-k")] = 200,
    dtype: DtypeOpt = "auto",
    echo: EchoOpt = True,
    offline: OfflineOpt = False,
    as_json: JsonOpt = False,
    quiet: QuietOpt = False,
    stop: Annotated[list[str] | None, typer.Option("--stop")] = None,
) -> None:
    """Show what [red]it[/red] was given; [/INST] is text too.

    Examples:

        nanogpt show gpt2
    """
    for name, value in sorted(locals().items()):
        output.write_text(f"{name}={value!r}\n")


def fail(kind: str) -> None:
    """Fail in the way that is asked for."""
    output.note("a note")
    output.write_text("so far")
    match kind:
        case "ours":
            raise CheckpointError("the file is [b]odd[/b]", "type something else")
        case "no":
            raise NanoGPTError("they differ", exit_code=3)
        case "exit":
            raise typer.Exit(3)
        case "left":
            raise SystemExit("as a library may")
        case "bug":
            raise KeyError("oops")
        case "interrupt":
            raise KeyboardInterrupt
        case "missing":
            Path("/nonexistent/file").read_text(encoding="utf-8")
        case "memory":
            raise MemoryError
        case "cuda":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 7 GiB")
        case "linux":
            raise RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 b"
            )


APP = build_app((show, fail))


def shown(outcome: Outcome) -> dict[str, str]:
    """Return what `show` printed, by name."""
    assert (outcome.err, outcome.code) == ("", 0)
    return dict(line.split("=", 1) for line in outcome.out.splitlines())


# --- spellings


@pytest.mark.parametrize(
    "words",
    [
        ["--max-new-tokens", "7", "--top-k", "5"],
        ["--max_new_tokens=7", "--top_k", "5"],
        ["--max_new_tokens", "7", "--top_k=5"],
        ["-m7", "-k", "5"],
    ],
)
def test_options_have_hyphens_or_underscores(nanogpt: Run, words: list[str]) -> None:
    got = shown(nanogpt("show", *words, app=APP))
    assert (got["max_new_tokens"], got["top_k"]) == ("7", "5")


@pytest.mark.parametrize(
    ("words", "prompt"),
    [
        (["--prompt", "-x"], "-x"),
        (["--prompt=-x"], "-x"),
        (["--prompt", "--", "-x"], "-x"),
        (["-p", "--", "-x"], "-x"),
        (["--start", "--", "--top-k"], "--top-k"),
        (["-qp", "--", "-x"], "-x"),
        (["-p-x"], "-x"),
        (["--prompt", "--"], "--"),
        (["--prompt=--"], "--"),
        (["--prompt", "123"], "123"),
        (["--prompt", "True"], "True"),
        (["--prompt", ""], ""),
        (["--prompt", "a_b --top_k"], "a_b --top_k"),
        (["--prompt=max_new_tokens=a_b"], "max_new_tokens=a_b"),
    ],
)
def test_a_prompt_is_the_text_that_was_typed(nanogpt: Run, words: list[str], prompt: str) -> None:
    got = shown(nanogpt("show", *words, app=APP))
    assert got["prompt"] == repr(prompt)
    assert got["checkpoint"] == "None"


def test_two_dashes_after_a_value_that_is_joined_on_end_the_options(nanogpt: Run) -> None:
    got = shown(nanogpt("show", "-pp", "--", "-x", app=APP))
    assert (got["prompt"], got["checkpoint"]) == ("'p'", "'-x'")


def test_two_dashes_after_a_flag_end_the_options(nanogpt: Run) -> None:
    got = shown(nanogpt("show", "--json", "--", "-odd-name", app=APP))
    assert (got["as_json"], got["checkpoint"]) == ("True", "'-odd-name'")


@pytest.mark.parametrize("name", ["checkpoint", "prompt", "-"])
def test_an_argument_may_be_called_like_an_option(nanogpt: Run, name: str) -> None:
    got = shown(nanogpt("show", name, "--", app=APP))
    assert got["checkpoint"] == repr(name)


def test_two_dashes_twice(nanogpt: Run) -> None:
    got = shown(nanogpt("show", "--prompt", "--", "-x", "--", "--prompt", app=APP))
    assert (got["prompt"], got["checkpoint"]) == ("'-x'", "'--prompt'")


# --- where a value comes from


def test_a_flag_beats_a_variable_beats_a_file_beats_the_default(
    nanogpt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "o.toml"
    assert shown(nanogpt("show", app=APP))["top_k"] == "200"
    file.write_text("top_k = 3\njson = true\n")
    got = shown(nanogpt("show", "--config", file, app=APP))
    assert (got["top_k"], got["as_json"]) == ("3", "True")
    monkeypatch.setenv("NANOGPT_TOP_K", "4")
    assert shown(nanogpt("show", "--config", file, app=APP))["top_k"] == "4"
    assert shown(nanogpt("show", "--config", file, "--top-k", "0", app=APP))["top_k"] == "0"


def test_a_variable_is_named_after_the_option(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "o.toml"
    file.write_text("echo = true\ntemperature = 1\n")
    for name, value in (("JSON", "1"), ("ECHO", "0"), ("PROMPT", "7"), ("CONFIG", str(file))):
        monkeypatch.setenv(f"NANOGPT_{name}", value)
    got = shown(nanogpt("show", app=APP))
    assert (got["as_json"], got["echo"], got["prompt"]) == ("True", "False", "'7'")
    assert got["temperature"] == "1.0"


@pytest.mark.parametrize("name", ["ZOO", "VERSION", "HELP", "SHOW_TOP_K", "AS_JSON", "CHECKPOINT"])
def test_a_variable_that_is_no_option_changes_nothing(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = shown(nanogpt("show", app=APP))
    monkeypatch.setenv(f"NANOGPT_{name}", "1")
    assert shown(nanogpt("show", app=APP)) == before


def test_the_hub_s_own_switch_is_heard(nanogpt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert shown(nanogpt("show", app=APP))["offline"] == "True"


def test_a_bad_value_is_told_with_its_origin(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "o.toml"
    file.write_text('dtype = "float8"\n')
    got = nanogpt("show", "--top-k", "abc", app=APP)
    assert got.code == 2
    assert got.err.startswith("error: ")
    assert "--top-k" in got.err
    assert "'abc'" in got.err
    got = nanogpt("show", "--config", file, app=APP)
    assert got.code == 2
    assert "'float8'" in got.err
    origin = f"hint: the value comes from the config file {str(file)!r}"
    assert got.err.endswith(f"{origin}; did you mean float32?\n")
    monkeypatch.setenv("NANOGPT_TOP_K", "zz")
    got = nanogpt("show", app=APP)
    assert got.code == 2
    assert got.err.endswith("hint: the value comes from the environment variable NANOGPT_TOP_K\n")


def test_a_list_comes_from_repeated_flags_or_from_a_file(nanogpt: Run, tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    file.write_text('stop = ["a b", "\\n"]\n')
    assert shown(nanogpt("show", "--config", file, app=APP))["stop"] == r"['a b', '\n']"
    assert shown(nanogpt("show", "--stop", "x", "--stop", "y", app=APP))["stop"] == "['x', 'y']"


@pytest.mark.parametrize("text", ["The end", " a  b ", "\n", "x"])
def test_a_variable_gives_a_list_one_text_whole(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("NANOGPT_STOP", text)
    assert shown(nanogpt("show", app=APP))["stop"] == repr([text])


# --- nanoGPT's names for the checkpoint


@pytest.mark.parametrize(
    ("words", "checkpoint"),
    [
        (["--out_dir=out-x"], "out-x/ckpt.pt"),
        (["--init_from=resume", "--out_dir=out-x"], "out-x/ckpt.pt"),
        (["--init-from", "resume"], "out/ckpt.pt"),
        (["--init_from=gpt2-xl", "--out_dir=out-x"], "gpt2-xl"),
        (["demo"], "demo"),
    ],
)
def test_init_from_and_out_dir_name_the_checkpoint(
    nanogpt: Run, words: list[str], checkpoint: str
) -> None:
    assert shown(nanogpt("show", *words, app=APP))["checkpoint"] == repr(checkpoint)


def test_an_argument_outranks_the_out_dir_of_a_file(nanogpt: Run, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("out_dir = 'out-x'\n")
    assert shown(nanogpt("show", "--config", file, app=APP))["checkpoint"] == "'out-x/ckpt.pt'"
    got = shown(nanogpt("show", "demo", "--config", file, app=APP))
    assert got["checkpoint"] == "'demo'"


def test_a_flag_outranks_the_checkpoint_of_a_file(nanogpt: Run, tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    file.write_text("checkpoint = 'demo'\n")
    assert shown(nanogpt("show", "--config", file, app=APP))["checkpoint"] == "'demo'"
    got = shown(nanogpt("show", "--init-from=gpt2", "--config", file, app=APP))
    assert got["checkpoint"] == "'gpt2'"


def test_a_checkpoint_named_twice_is_an_error(nanogpt: Run) -> None:
    got = nanogpt("show", "demo", "--out-dir", "x", app=APP)
    assert (got.code, got.out) == (2, "")
    assert got.err == (
        "error: the checkpoint is named twice: as an argument, and by init_from or out_dir\n"
        "hint: leave one of them out\n"
    )


# --- errors


ROOM = "hint: use a smaller model, fewer at once, or a --device that has more\n"


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("ours", 1, "error: the file is [b]odd[/b]\nhint: type something else\n"),
        ("no", 3, "error: they differ\n"),
        ("exit", 3, ""),
        ("left", 1, ""),
        ("interrupt", 130, "interrupted\n"),
        (
            "missing",
            1,
            "error: '/nonexistent/file': No such file or directory\n"
            "hint: check the spelling of the path\n",
        ),
        ("memory", 1, f"error: not enough memory\n{ROOM}"),
        ("cuda", 1, f"error: not enough memory for another 2.50 GiB\n{ROOM}"),
        ("linux", 1, f"error: not enough memory for another 9 b\n{ROOM}"),
        ("nothing", 0, ""),
    ],
)
def test_how_a_command_ends(nanogpt: Run, kind: str, code: int, told: str) -> None:
    assert nanogpt("fail", kind, app=APP) == Outcome(code, "so far", "note: a note\n" + told)


def test_an_interrupt_on_a_terminal_is_told_on_a_line_of_its_own(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert "note\n\ninterrupted\n" in nanogpt("fail", "interrupt", app=APP).err


def test_a_bug_shows_its_traceback(nanogpt: Run) -> None:
    got = nanogpt("fail", "bug", app=APP)
    assert (got.code, got.out) == (1, "so far")
    assert "Traceback (most recent call last):" in got.err
    assert 'raise KeyError("oops")' in got.err
    last = f"error: this is a bug in nanogpt {__version__}: please report the lines above\n"
    last += "hint: add what nanogpt doctor prints\n"
    assert got.err.endswith(f"KeyError: 'oops'\n{last}")


@pytest.mark.parametrize("words", [["--debug", "fail", "ours"], ["fail", "ours", "--debug"]])
def test_debug_adds_the_traceback(nanogpt: Run, words: list[str]) -> None:
    got = nanogpt(*words, app=APP)
    assert got.code == 1
    assert "Traceback (most recent call last):" in got.err
    assert got.err.endswith("error: the file is [b]odd[/b]\nhint: type something else\n")


def test_debug_is_heard_where_the_command_line_is_wrong(nanogpt: Run) -> None:
    got = nanogpt("fail", "--gone", "--debug", app=APP)
    assert got.code == 2
    assert "Traceback (most recent call last):" in got.err
    assert "error: no such option '--gone'\n" in got.err


@pytest.mark.parametrize("words", [["-q", "fail", "no"], ["fail", "no", "--quiet"]])
def test_quiet_silences_notes_and_not_errors(nanogpt: Run, words: list[str]) -> None:
    assert nanogpt(*words, app=APP).err == "error: they differ\n"
    assert nanogpt("fail", "no", app=APP).err == "note: a note\nerror: they differ\n"


def test_a_command_that_names_a_shared_option_is_passed_it(nanogpt: Run) -> None:
    assert shown(nanogpt("show", "-q", app=APP))["quiet"] == "True"
    assert shown(nanogpt("show", app=APP))["quiet"] == "False"


def test_what_typer_complains_of_is_told_in_our_form(nanogpt: Run) -> None:
    for words, inside in (
        (["fail"], "KIND"),
        (["show", "a", "b c"], "b c"),
        (["show", "--prompt"], "--prompt"),
        (["-q"], "ommand"),
    ):
        got = nanogpt(*words, app=APP)
        assert (got.code, got.out) == (2, "")
        assert got.err.startswith("error: ")
        assert inside.lower() in got.err.lower()
        assert not got.err.splitlines()[0].endswith(".")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "--top_kk", "3"], "no such option '--top-kk'\nhint: did you mean --top-k?"),
        (["show", "--zzz"], "no such option '--zzz'\nhint: see nanogpt show --help"),
        (
            ["--top-k", "3"],
            "no such option '--top-k'\nhint: it follows the command: nanogpt show --top-k",
        ),
        (["shwo"], "no such command 'shwo'\nhint: did you mean show?"),
        (["x.pt"], "no such command 'x.pt'\nhint: the commands are show, fail"),
        (
            ["\x1b[2J"],
            "no such command '\\x1b[2J'\nhint: the commands are show, fail",
        ),
    ],
)
def test_a_wrong_name_is_told_with_the_right_one(nanogpt: Run, words: list[str], told: str) -> None:
    assert nanogpt(*words, app=APP) == Outcome(2, "", f"error: {told}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["show", "--dtype", "flot32"],
            "invalid value for '--dtype': 'flot32' is not one of 'auto', 'float32', 'bfloat16', "
            "'float16'\nhint: did you mean float32?",
        ),
        (
            ["show", "-k", "1.5"],
            "invalid value for '--top-k' / '-k': '1.5' is not a whole number\n"
            "hint: see nanogpt show --help",
        ),
        (
            ["show", "-t", "warm"],
            "invalid value for '--temperature' / '-t': 'warm' is not a number\n"
            "hint: see nanogpt show --help",
        ),
        (["demo"], "no such command 'demo'\nhint: a command comes first: nanogpt show demo"),
        (["."], "no such command '.'\nhint: a command comes first: nanogpt show ."),
        (
            ["fail"],
            "missing argument 'kind'\nhint: add it: nanogpt fail KIND; see nanogpt fail --help",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_to_type(nanogpt: Run, words: list[str], told: str) -> None:
    assert nanogpt(*words, app=APP) == Outcome(2, "", f"error: {told}\n")


def test_only_what_a_user_can_meet_has_an_explanation() -> None:
    assert explain(ValueError("x")) is None
    assert explain(AssertionError("x")) is None
    assert explain(RuntimeError("x")) is None
    full = CheckpointError("cannot write 'x'")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert explain(full) is full
    assert full.hint == "make room on the disk, or write to another"
    own = CheckpointError("cannot write 'x'", "our own hint")
    own.__cause__ = full.__cause__
    assert explain(own) is own
    assert own.hint == "our own hint"
    told = explain(UsageError("no"))
    assert told is not None
    assert told.exit_code == 2


# --- help and version


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_names_the_commands_in_order(nanogpt: Run, words: list[str]) -> None:
    got = nanogpt(*words, app=APP)
    assert (got.code, got.err) == (0, "")
    assert 0 < got.out.index(" show ") < got.out.index(" fail ")


def test_help_keeps_brackets_and_joins_lines(nanogpt: Run) -> None:
    got = nanogpt("show", "-h", app=APP)
    assert got.code == 0
    assert "Show what [red]it[/red] was given; [/INST] is text too." in got.out
    assert "NANOGPT_ECHO" not in got.out
    titles = ["Prompt", "Sampling", "Model", "Output", "General"]
    places = [got.out.index(f" {title} ") for title in titles]
    assert places == sorted(places)


@pytest.mark.parametrize("columns", ["20", "40", "79", "200"])
def test_help_names_every_option_at_any_width(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("show", "fail"):
        got = nanogpt(command, "--help", app=APP)
        assert (got.code, got.err) == (0, "")
        assert "--config" in got.out
    assert "--max-new-tokens" in nanogpt("show", "-h", app=APP).out


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["--version", "show"]])
def test_version(nanogpt: Run, words: list[str]) -> None:
    assert nanogpt(*words, app=APP) == Outcome(0, f"nanogpt {__version__}\n", "")


def test_an_app_without_commands_still_helps(nanogpt: Run) -> None:
    assert nanogpt("--help", app=build_app(())).code == 0
    got = nanogpt("sample", app=build_app(()))
    assert got == Outcome(2, "", "error: no such command 'sample'\n")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.__name__))
def test_narrow_help_keeps_an_example_on_its_line(
    nanogpt: Run, command: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = nanogpt(getattr(command, "__name__", ""), "--help").out.splitlines()
    assert {f"      {example}" for example in examples_of(command)} <= set(lines)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.__name__))
def test_every_command_has_help_with_an_example(nanogpt: Run, command: object) -> None:
    name = getattr(command, "__name__", "")
    got = nanogpt(name, "--help")
    assert (got.code, got.err) == (0, "")
    assert "\nExamples:\n" in (inspect.getdoc(command) or "")
    for example in examples_of(command):
        assert f" {example} " in got.out, "whole on a line"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.__name__))
def test_the_examples_are_command_lines(command: object) -> None:
    examples = examples_of(command)
    assert len(examples) in (2, 3)
    group: Any = get_command(build_app())
    for example in examples:
        program, name, *words = shlex.split(example)
        assert (program, name) == ("nanogpt", getattr(command, "__name__", ""))
        subcommand = group.commands[name]
        with subcommand.make_context(name, words) as context:  # raises where it does not parse
            assert context.params


def examples_of(command: object) -> list[str]:
    text = (getattr(command, "__doc__", None) or "").partition("Examples:")[2]
    return [line.strip() for line in text.splitlines() if line.strip()]


# --- the process and its streams

TALK = """
    import sys
    from nanogpt_cli import output
    from nanogpt_cli.cli import build_app, main

    def talk(lines: int = 1, name: str = "x") -> None:
        "Talk."
        for _ in range(lines):
            output.write_text("caf\\u00e9 \\U0001f600 \\ud800\\n")
        output.note(f"n\\u00e9e {name}")

    sys.exit(main(app=build_app([talk])))
"""


def talk(
    *words: str, out: int = subprocess.PIPE, env: dict[str, str] | None = None
) -> tuple[int, bytes, bytes]:
    """Run the command above in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TALK), "talk", *words],
        stdout=out,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


TEXT = "café 😀 \ufffd\n".encode()


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_output_is_utf_8_whatever_the_locale(locale: str) -> None:
    settings = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert talk(env=settings) == (0, TEXT, "note: née x\n".encode())


def test_an_encoding_that_was_asked_for_escapes_what_it_lacks() -> None:
    code, out, err = talk(env={"PYTHONIOENCODING": "ascii"})
    assert (code, err) == (0, b"note: n\\xe9e x\n")
    assert out == b"caf\\xe9 \\U0001f600 \\ufffd\n"


def test_bytes_that_are_no_text_in_an_argument_do_not_raise() -> None:
    code, out, err = talk("--name", os.fsdecode(b"\xff"))
    assert (code, out, err) == (0, TEXT, "note: née \\udcff\n".encode())


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_ends_it_quietly(unbuffered: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TALK), "talk", "--lines", "200000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == TEXT
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_into_a_closed_pipe_is_quiet(words: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        code, _, err = talk(*words, out=theirs)
    finally:
        os.close(theirs)
    assert code == 0
    assert err in (b"", "note: née x\n".encode())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["--help"], []])
def test_a_full_disk_is_told(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, _, err = talk(*words, out=full.fileno())
    assert code == 1
    said, hint = err.splitlines()
    assert said.startswith(b"error: cannot write")
    assert said.endswith(b"No space left on device")
    assert hint == b"hint: make room on the disk, or write to another"


def test_without_any_stdout() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "nanogpt_cli", "--version"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_an_interrupt_keeps_the_text_so_far() -> None:
    code = TALK.replace('output.note(f"n\\u00e9e {name}")', "import time; time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), "talk"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == TEXT
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("when", "code", "err"),
    [
        ("sys.meta_path.insert(0, Impatient())", 130, b"interrupted\n"),
        ("atexit.register(Impatient().find_spec)", 0, b""),
    ],
    ids=["while it is imported", "while it closes down"],
)
def test_an_interrupt_is_quiet_from_first_to_last(when: str, code: int, err: bytes) -> None:
    script = f"""
        import atexit, os, signal, sys
        from nanogpt_cli.__main__ import run

        class Impatient:
            def find_spec(self, *_):
                os.kill(os.getpid(), signal.SIGINT)

        sys.argv = ["nanogpt", "-V"]
        {when}
        run()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, err)


def test_python_m_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nanogpt_cli", "-V"], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"nanogpt {__version__}\n".encode())


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_wait_politely_unless_the_user_says_how(
    nanogpt: Run, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert nanogpt("params", "gpt2").code == 0
    assert os.environ.get("GOMP_SPINCOUNT") == expected
