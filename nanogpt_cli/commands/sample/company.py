"""Which options of `nanogpt sample` leave nothing to do for each other."""

from __future__ import annotations

from nanogpt_cli.errors import UsageError


def refuse_odd_company(
    *,
    color: str,
    interactive: bool,
    json: bool,
    logprobs: int | None,
    prompt: str | None,
    prompts: str | None,
    quantize: str | None,
    rng: str,
) -> None:
    """Refuse options that cannot be meant together; those of a batch are for `batch_plan`.

    Raises:
        UsageError: which, and which of them to leave out.
    """
    if logprobs is not None and not json and prompts is None:
        raise UsageError("--logprobs are printed in JSON alone", hint="add --json")
    if color != "off" and json:
        raise UsageError(
            f"--color {color} is for text, and --json prints none",
            hint="--logprobs 0 adds the probabilities to the JSON",
        )
    if color != "off" and rng == "nanogpt":
        raise UsageError(
            f"--rng nanogpt is sample.py's own loop, which gives no --color {color}",
            hint="leave one of them out",
        )
    if interactive and json:
        raise UsageError(
            "--interactive prints text, and --json asks for rows",
            hint="--prompts FILE reads many prompts and writes rows",
        )
    if interactive and prompt == "-":
        raise UsageError(
            "--interactive reads standard input itself, and --prompt - would leave it nothing",
            hint="leave out --prompt -",
        )
    if quantize is not None and rng == "nanogpt":
        raise UsageError(
            "--rng nanogpt is sample.py's own loop, which has no --quantize",
            hint="leave one of them out",
        )
