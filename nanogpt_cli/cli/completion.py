"""Shell completion: which words can come next, and the scripts that let a shell ask.

A script runs `nanogpt` with ASKED set and the words so far as arguments, the one that is being
typed last. The answer is a line for each candidate: the word, a tab, and what it is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import typer

from nanogpt_cli import candidates

ASKED = "_NANOGPT_COMPLETE"
"""The variable that makes a call a question; "bash" where the words still have their quotes."""

Shell = Literal["bash", "zsh", "fish"]

SCRIPTS: dict[Shell, str] = {
    "bash": r"""
# Completion of nanogpt for bash; to have it in every shell:
#   nanogpt --show-completion bash >> ~/.bashrc
_nanogpt_completion() {
    local line value
    COMPREPLY=()
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        COMPREPLY+=("${value%/}")
    done < <(_NANOGPT_COMPLETE=bash "${1/#\~/$HOME}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o filenames -F _nanogpt_completion nanogpt
""",
    "zsh": r"""
#compdef nanogpt
# Completion of nanogpt for zsh; to have it in every shell:
#   nanogpt --show-completion zsh >> ~/.zshrc
_nanogpt() {
    local line value tilde
    local -a others folders
    for line in "${(@f)$(_NANOGPT_COMPLETE=1 "${words[1]/#\~/$HOME}" \
            "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        value=${line%%$'\t'*}
        tilde=${(M)value#\~/}
        value=$tilde${(q)value#\~/}
        case $value in
            ('') ;;
            (*/) folders+=("$value") ;;
            (*) others+=("${value//:/\\:}:${line#*$'\t'}") ;;
        esac
    done
    (( $#others )) && _describe nanogpt others -Q
    (( $#folders )) && compadd -Q -S '' -- "${folders[@]}"
}
if [[ $funcstack[1] == _nanogpt ]]; then
    _nanogpt "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _nanogpt nanogpt
fi
""",
    "fish": r"""
# Completion of nanogpt for fish; to have it in every shell:
#   nanogpt --show-completion fish > ~/.config/fish/completions/nanogpt.fish
function __nanogpt_completion
    set -lx _NANOGPT_COMPLETE 1
    set -l words (commandline -opc)
    set -l current (string unescape -- (commandline -ct)); or set current (commandline -ct)
    eval $words[1] (string escape -- $words[2..-1] "$current") 2>/dev/null
end
complete --command nanogpt --no-files --arguments "(__nanogpt_completion)"
""",
}


def is_asked() -> bool:
    """Return whether a shell asks for candidates."""
    return ASKED in os.environ


def answer(group: Any, words: list[str]) -> str:
    """Return the candidates for the last of the words after `nanogpt`, a line each."""
    if os.environ.get(ASKED) == "bash":
        words = [_unquoted(word) for word in words]
    *before, typed = words or [""]
    found = dict(_complete(group, before, typed))  # which drops what is offered twice
    return "".join(f"{word}\t{_one_line(text)}\n" for word, text in found.items())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _unquoted(word: str) -> str:
    """Return a word of bash's without its quoting, be it unfinished."""
    for closed in (word, f"{word}'", f'{word}"'):
        try:
            return "".join(shlex.split(closed))
        except ValueError:
            continue
    return word


def _complete(group: Any, before: list[str], typed: str) -> Iterable[tuple[str, str]]:
    names = [place for place, word in enumerate(before) if not word.startswith("-")]
    if names and before[names[0] - 1 : names[0]] != ["--show-completion"]:
        command = group.commands.get(before[names[0]].replace("_", "-"))
        return [] if command is None else _after(command, before[names[0] + 1 :], typed)
    if before[-1:] == ["--show-completion"] or typed.startswith("-"):
        return _after(group, before, typed)
    return _start_so(
        ((name, each.get_short_help_str(200)) for name, each in group.commands.items()), typed
    )


def _after(command: Any, before: list[str], typed: str) -> Iterable[tuple[str, str]]:
    """Return the candidates after a command and more words."""
    if typed == "=":  # as bash splits --option=value
        typed = ""
    elif before[-1:] == ["="]:
        before = before[:-1]
    elif typed.startswith("--") and "=" in typed:
        name, _, value = typed.partition("=")
        option = _option(command, name)
        return [(f"{name}={word}", text) for word, text in _values(command, option, value)]
    option = _option(command, before[-1]) if before and "--" not in before else None
    if option is not None and not option.is_flag:
        return _values(command, option, typed)
    if typed.startswith("-") and "--" not in before:
        return _start_so(_options(command, before), typed.replace("_", "-"))
    return _values(command, _next_argument(command, before), typed)


def _start_so(pairs: Iterable[tuple[str, str]], typed: str) -> list[tuple[str, str]]:
    return [(word, text) for word, text in pairs if word.startswith(typed)]


def _option(command: Any, word: str) -> Any:
    """Return the option that a word names, be it the last of several letters, or None."""
    name = word.partition("=")[0].replace("_", "-")
    if name[:1] == "-" and name[1:2] != "-":
        name = f"-{word[-1]}"
    names = {name: param for param in _all_options(command) for name in param.opts}
    return names.get(name)


def _all_options(command: Any) -> list[Any]:
    context = typer.Context(command)
    params = command.get_params(context)  # with --help
    return [param for param in params if param.param_type_name == "option"]


def _options(command: Any, before: list[str]) -> Iterator[tuple[str, str]]:
    """Give the long options that were not given yet, or that may be given again."""
    given = [_option(command, word) for word in before if word.startswith("-")]
    for param in _all_options(command):
        if not param.hidden and (param not in given or param.multiple):
            for name in (*param.opts, *param.secondary_opts):
                if name.startswith("--"):
                    yield name, param.help or ""


def _next_argument(command: Any, before: list[str]) -> Any:
    """Return the argument that the next word is, or None."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [
        word
        for previous, word in zip(["", *before], before, strict=False)
        if not word.startswith("-") and not _takes(command, previous)
    ]
    for param in arguments:
        if param.nargs == -1 or not words:
            return param
        del words[0]
    return None


def _takes(command: Any, word: str) -> bool:
    option = _option(command, word) if word.startswith("-") and "=" not in word else None
    return option is not None and not option.is_flag


def _values(command: Any, param: Any, typed: str) -> list[tuple[str, str]]:
    """Return what a parameter can be: its own candidates, its choices, or files for a path."""
    if param is None:
        return []
    found = param.shell_complete(typer.Context(command), typed)
    if not found and param.type.name == "path":
        return candidates.files(typed)
    return [(item.value, item.help or "") for item in found]
