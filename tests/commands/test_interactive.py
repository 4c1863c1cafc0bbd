"""`nanogpt sample -i` with its lines piped in; how it is on a terminal is in test_sample_shells."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Outcome, Run
from model_files import build, save_meta, save_nanogpt

from nanogpt_cli.checkpoints import open_checkpoint
from nanogpt_cli.commands.sample.conversation import Conversation
from nanogpt_cli.commands.sample.interactive import take
from nanogpt_cli.commands.sample.interactive_lines import TerminalLines, history_path, open_lines
from nanogpt_cli.commands.sample.slash_commands import SLASH_COMMANDS
from nanogpt_cli.commands.sample.text import Manner
from nanogpt_cli.generation.session import Session
from nanogpt_cli.generation.settings import SampleSettings
from nanogpt_cli.sampling import DEFAULTS

Talk = Callable[..., Outcome]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    save_meta(tmp_path)
    return save_nanogpt(tmp_path / "ckpt.pt", build())


@pytest.fixture
def talk(nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Return a function that pipes lines into `nanogpt sample -i`, 12 tokens a text."""

    def run(*lines: str | bytes, options: tuple[Any, ...] = (), path: Path = letters) -> Outcome:
        data = b"".join(
            (line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        return nanogpt("sample", path, "-i", "-m", 12, *options)

    return run


@pytest.fixture
def alone(nanogpt: Run, letters: Path) -> Callable[..., str]:
    """Return a function that samples one prompt without -i, and gives stdout."""

    def run(prompt: str, *options: object) -> str:
        result = nanogpt("sample", letters, "-p", prompt, "-m", 12, *options)
        assert result.code == 0
        return result.out

    return run


def test_each_line_is_continued_as_it_is_alone(talk: Talk, alone: Callable[..., str]) -> None:
    """And stdout has no marks, no blank lines, nothing but texts."""
    result = talk("AB", "", "  ", "HELLO THERE", "AB", options=("-n", 2))
    both = ("-n", 2)
    expected = alone("AB", *both) + alone("HELLO THERE", *both) + alone("AB", *both)
    assert (result.code, result.out) == (0, expected)
    assert result.err.count("finished by length") == 3
    bare = talk("AB", options=("--no-echo", "--no-stream"))
    assert "AB" + bare.out == alone("AB")


def test_lines_end_as_anybody_ends_them_and_bad_bytes_are_replaced(
    talk: Talk, alone: Callable[..., str]
) -> None:
    assert talk(b"\xef\xbb\xbfAB\r").out == alone("AB")
    result = talk(b"A\xff", "AB")
    assert (result.code, result.out) == (3, alone("AB"))
    assert "'\ufffd' U+FFFD" in result.err


def test_nothing_to_read_is_no_failure(
    talk: Talk, nanogpt: Run, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (talk().code, talk().out) == (0, "")
    monkeypatch.setattr(sys, "stdin", None)
    assert nanogpt("sample", letters, "-i").code == 0


def test_a_prompt_on_the_command_line_is_the_first(talk: Talk, alone: Callable[..., str]) -> None:
    assert talk("/again", options=("-p", "AB")).out == alone("AB") + alone("AB", "-s", 1338)


def test_a_prompt_may_begin_with_a_slash(talk: Talk, alone: Callable[..., str]) -> None:
    assert talk("//SET", "///").out == alone("/SET") + alone("//")


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("/set temperature 0", ["-t", 0]),
        ("/set temperature=0.5", ["-t", 0.5]),
        ("/set --top-k 3", ["-k", 3]),
        ("/set top_k = 3", ["-k", 3]),
        ("/set top-p 0.5", ["--top-p", 0.5]),
        ("/set min_p 0.2", ["--min-p", 0.2]),
        ("/set repetition_penalty\t1.5", ["--repetition-penalty", 1.5]),
        ("/set num-samples 3", ["-n", 3]),
        ("/set max-new-tokens 3", ["-m", 3]),
        ("/set seed 5", ["-s", 5]),
        ("/seed 5", ["-s", 5]),
        ("/set stop E", ["--stop", "E"]),
        ("/set stop 'E '", ["--stop", "E "]),
        ("/set stop \\n", ["--stop", "\n"]),
        ("/set ignore_eos on", ["--ignore-eos"]),
        ("/set special off", ["--no-special"]),
        ("/set window-stride 4", ["--window-stride", 4]),
    ],
)
def test_a_setting_is_that_of_the_flag(
    talk: Talk, alone: Callable[..., str], line: str, options: list[object]
) -> None:
    changed = talk(line, "AB")
    assert (changed.code, changed.out) == (0, alone("AB", *options))
    name = line.replace("--", "").replace("=", " ").replace("/seed", "/set seed").split()[1]
    name = name.replace("-", "_")
    assert talk(line, f"/unset {name}", "AB").out == alone("AB")


def test_settings_are_listed_as_they_are_set(talk: Talk) -> None:
    result = talk("/set top-k 7", "/set stop a b\\n", "/set", "/seed", options=("-q",))
    assert result.out == ""
    assert result.err.splitlines() == [
        "num_samples 1",
        "max_new_tokens 12",
        "seed 1337",
        "stop 'a b\\n'",
        "ignore_eos off",
        "special on",
        "window_stride 1",
        *(f"{option} {7 if option == 'top_k' else value}" for option, value in DEFAULTS.items()),
        "seed 1337",
    ]


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("/sett x", "no such command '/sett'", "did you mean /set?"),
        ("/xyzzy", "no such command '/xyzzy'", "/help lists the commands"),
        ("/", "no such command '/'", "/help lists the commands"),
        ("/again now", "/again takes nothing after it: 'now'", "see /help"),
        ("/set temprature 1", "no such setting 'temprature'", "did you mean temperature?"),
        ("/set logprobs 1", "no such setting 'logprobs'", "the settings are num_samples, "),
        ("/set temperature", "/set temperature needs a value; it is 0.8", "/unset temperature"),
        ("/set temperature hot", "temperature 'hot': it must be a number", None),
        ("/set top_k 1.5", "top_k '1.5': it must be a whole number", "it is 200 now"),
        ("/set special maybe", "special 'maybe': it must be on or off", "it is on now"),
        ("/set temperature -1", "--temperature -1: it must be a number of at least 0", None),
        ("/set num_samples 0", "--num-samples 0: it must be 1 to 1,000,000,000", None),
        ("/set stop ''", "--stop '': a stop text must have at least one character", None),
        ("/unset warmth", "no such setting 'warmth'", "the settings are"),
        ("/seed x", "seed 'x': it must be a whole number", None),
        ("/again", "there is no text yet that could be continued again", "type a prompt"),
        ("/more", "there is no text yet that could be gone on with", "type a prompt"),
        ("/undo", "there is no text yet that could be undone", "type a prompt"),
        ("/save x", "there is no text yet that could be saved", "type a prompt"),
        ("AéB", "1 character of the prompt not among the 65 tokens", None),
    ],
)
def test_a_line_that_cannot_be_obeyed_is_told_and_the_next_one_read(
    talk: Talk, alone: Callable[..., str], line: str, error: str, hint: str | None
) -> None:
    result = talk(line, "AB")
    assert (result.code, result.out) == (3, alone("AB"))
    told = result.err.splitlines()
    (place,) = [place for place, said in enumerate(told) if said.startswith("error: ")]
    assert told[place].startswith(f"error: {error}")
    if hint is not None:
        assert told[place + 1].startswith(f"hint: {hint}")


def test_again_is_the_same_prompt_under_the_next_seed(
    talk: Talk, alone: Callable[..., str]
) -> None:
    result = talk("AB", "/again", "/again", "HELLO")
    texts = [alone("AB"), alone("AB", "-s", 1338), alone("AB", "-s", 1339)]
    assert result.out == "".join(texts) + alone("HELLO", "-s", 1339)
    assert len(set(texts)) == 3
    assert "seed 1338, finished by length" in result.err
    cool = talk("AB", "/set temperature 0", "/again")
    assert cool.out == texts[0] + alone("AB", "-t", 0)
    assert "--seed 1338 has no effect: a temperature of 0 draws nothing" in cool.err


def test_more_goes_on_as_if_the_text_had_never_ended(
    talk: Talk, nanogpt: Run, letters: Path
) -> None:
    """Beyond block_size, too; only what is new is printed."""
    result = talk("AB", "/more", "/more", options=("-t", 0))
    long = nanogpt("sample", letters, "-p", "AB", "-t", 0, "-m", 36).out
    parts = result.out.splitlines(keepends=False)
    assert result.code == 0
    assert "\n" not in long.strip("\n")
    assert "".join(parts) + "\n" == long
    assert [len(part) for part in parts] == [14, 12, 12]


def test_more_goes_on_by_tokens_and_not_by_their_spelling(talk: Talk, tmp_path: Path) -> None:
    """Ids that spell a text in an odd way stay the ids they are."""
    path = save_nanogpt(tmp_path / "bpe" / "ckpt.pt", build(vocab_size=50257, n_embd=6))
    result = talk("a", "/more", options=("-t", 2, "-k", 0, "--no-special"), path=path)
    assert result.code == 0
    ids = talk("1 2", "/more", "/more", options=("--tokenizer", "ids", "-t", 0))
    expected = build().generate(torch.tensor([[1, 2]]), 36, temperature=0)[0].tolist()
    assert ids.out.split() == [str(token) for token in expected]


def test_more_after_a_text_that_was_cut_inside_a_token_goes_on_from_what_is_seen(
    tmp_path: Path,
) -> None:
    """` world` is one token, and ` w` is all of it that stands there."""
    model = build(vocab_size=50257, n_embd=6, n_layer=1)
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.bias")[0] = 50.0
        model.lm_head.weight[995, 0] = 50.0
    session = Session(open_checkpoint(str(save_nanogpt(tmp_path / "w" / "ckpt.pt", model))))
    settings = SampleSettings(max_new_tokens=2, filters={"temperature": 0}, stop=("orl",))
    talk = Conversation(session, settings, settings, Manner())
    for line in ("hello", "/more", "/set stop x", "/more", "/more"):
        take(talk, line)
    prompts = [exchange.prompt for exchange in talk.exchanges]
    texts = ["hello", "hello w", "hello w w", "hello w w world world"]
    assert [prompt.text for prompt in prompts] == texts
    assert prompts[2].ids == (*session.tokenizer.encode("hello w w"),)
    assert prompts[3].ids == (*prompts[2].ids, 995, 995)


def test_undo_takes_the_last_text_back(talk: Talk, alone: Callable[..., str]) -> None:
    result = talk("AB", "HELLO", "/undo", "/again", "/undo", "/undo", "/again")
    assert result.out == alone("AB") + alone("HELLO") + alone("AB", "-s", 1338)
    assert result.code == 3
    said = [line for line in result.err.splitlines() if "forgotten" in line]
    left = ["1 is left", "1 is left", "0 are left"]
    assert said == [f"the last text is forgotten, {each}" for each in left]


def test_the_texts_are_saved_under_their_settings(
    talk: Talk, alone: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "my texts.txt"
    result = talk("AB", "/set num_samples 2", "HELLO", "A", "/undo", "/more", f"/save {path}")
    assert result.code == 0
    assert f"saved 3 to {str(path)!r}" in result.err
    first, second, third = path.read_text(encoding="utf-8").split("# num_samples ")[1:]
    settings = "max_new_tokens 12, seed 1337, stop none, ignore_eos off, special on, "
    settings += "window_stride 1, "
    settings += ", ".join(f"{option} {value}" for option, value in DEFAULTS.items()) + "\n"
    assert first == f"1, {settings}{alone('AB')}\n"
    both = alone("HELLO", "-n", 2)
    assert second == f"2, {settings}{both}\n"
    before = both.split("-" * 15 + "\n")[1][:-1]
    start = f"2, {settings}{before}"
    assert third.startswith(start)
    assert third.count(before) == 2, "the text before stands before both"


def test_a_file_is_replaced_only_when_that_is_meant(talk: Talk, tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_text("precious")
    result = talk("AB", f"/save {path}")
    assert (result.code, path.read_text()) == (3, "precious")
    assert f"error: {str(path)!r} exists already\nhint: /save! {path} replaces it" in result.err
    assert talk("AB", f"/save! {path}").code == 0
    assert path.read_text().startswith("# num_samples 1")
    for line in ("/save", f"/save! {tmp_path}", f"/save {tmp_path}/none/texts"):
        assert talk("AB", line).code == 3


def test_quit_leaves_the_rest_unread(talk: Talk, alone: Callable[..., str]) -> None:
    result = talk("AB", "/quit", "HELLO")
    assert (result.code, result.out) == (0, alone("AB"))


def test_help_knows_every_command(talk: Talk) -> None:
    result = talk("/help", options=("-q",))
    assert (result.code, result.out) == (0, "")
    lines = result.err.splitlines()
    assert len(lines) == len(SLASH_COMMANDS) + 1
    for command, line in zip(SLASH_COMMANDS, lines, strict=False):
        assert line.startswith(f"/{command.name} {command.usage}".rstrip())
        assert line.endswith(command.help)
        assert command.help
        assert len(line) < 100
    assert len({command.name for command in SLASH_COMMANDS}) == len(SLASH_COMMANDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--json",), "--interactive prints text, and --json asks for rows"),
        (("-p", "-"), "--interactive reads standard input itself"),
    ],
)
def test_what_it_does_not_go_with(talk: Talk, options: tuple[str, ...], message: str) -> None:
    result = talk("AB", options=options)
    assert (result.code, result.out) == (2, "")
    assert f"error: {message}" in result.err


def test_sample_pys_own_loop_answers_too(talk: Talk, alone: Callable[..., str]) -> None:
    result = talk("AB", "/set top_p 0.5", "AB", options=("--rng", "nanogpt"))
    assert (result.code, result.out) == (3, alone("AB", "--rng", "nanogpt") * 2)


def test_texts_that_loop_are_told_of(talk: Talk, tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        model.get_parameter("transformer.ln_f.bias")[0] = 50.0
        model.lm_head.weight[40, 0] = 50.0
    save_meta(tmp_path / "loops")
    path = save_nanogpt(tmp_path / "loops" / "ckpt.pt", model)
    result = talk("/set max_new_tokens 130", "AB", options=("-t", 0), path=path)
    note = "note: the text ends in a loop, in one token, 130 times over: try --repetition-penalty"
    assert note in result.err


def test_the_history_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert history_path() == Path("/home/ada/.local/state/nanogpt/history")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert history_path() == Path("/state/nanogpt/history")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_with_stdout_elsewhere_the_marks_are_on_stderr(
    nanogpt: Run, letters: Path, alone: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody sits there and has read what went wrong: the code is 0."""
    monkeypatch.setattr(sys, "stdin", Tty("AB\n/wrong\nHELLO"))
    result = nanogpt("sample", letters, "-i", "-m", 12)
    assert (result.code, result.out) == (0, alone("AB") + alone("HELLO"))
    assert "/help lists the commands, Ctrl-D leaves\n> " in result.err
    assert result.err.endswith("> \n")


@contextlib.contextmanager
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have lines read as on a terminal, from an empty history; give readline."""
    readline = pytest.importorskip("readline")
    monkeypatch.setattr(sys, "stdin", Tty())
    monkeypatch.setattr(sys, "stdout", Tty())
    readline.clear_history()
    with open_lines() as lines:
        assert type(lines) is TerminalLines
        yield readline
    readline.clear_history()


def test_the_history_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "nanogpt" / "history"
    for lines in (["one", "two"], ["three"]):
        with at_a_terminal(monkeypatch) as readline:
            for line in lines:
                readline.add_history(line)
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
    assert path.read_text().splitlines()[-3:] == ["one", "two", "three"]


def test_a_history_that_cannot_be_kept_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with at_a_terminal(monkeypatch) as readline:
        readline.add_history("one")
    assert (tmp_path / "state").read_text() == "a file where the folder should be"
