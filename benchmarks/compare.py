"""One comparison: every engine made ready, held to the reference, then timed round by round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.agreement import Gap, compare_ids
from benchmarks.bandwidth import Probe
from benchmarks.figures import QUIET_SHARE, FirstUse, Outcome, Sample
from benchmarks.neighbours import Watch, wait_for_quiet
from benchmarks.participants import Participant, Place
from benchmarks.shapes import Workload, weight_bytes
from benchmarks.variants import REFERENCE, YARDSTICK, Variant, find_variants
from benchmarks.venvs import InstallError
from benchmarks.worker_process import NotOfferedError, WorkerError
from nanogpt_cli.config import GPTConfig

PAUSE_SECONDS = 0.3
"""Some libraries' threads go on spinning for 0.2 seconds after a job, at the next one's cost."""


def say(text: str) -> None:
    """Tell how far the run is."""
    print(text, file=sys.stderr, flush=True)


def describe(sample: Sample) -> str:
    """Return a sample in a few words."""
    others = "unknown" if sample.others_share is None else f"{sample.others_share:.0%}"
    return (
        f"{sample.tokens_per_second:.1f} tokens/s, first token after "
        f"{sample.first_token_seconds * 1e3:.0f} ms, bandwidth "
        f"{sample.bytes_per_second / 1e9:.1f} GB/s, others {others}"
    )


@dataclass
class Comparison:
    """A comparison under way.

    Args:
        config: of the model.
        workload: what each engine does.
        variants: who takes part.
        place: where their files are.
        rounds: how often each is timed.
        tries: how often a sample is taken while other processes disturb it.
        patience: seconds to wait, before each try, for other processes to be quiet.
        one_at_a_time: close an engine after each sample, for models of which memory holds few.
    """

    config: GPTConfig
    workload: Workload
    variants: Sequence[Variant]
    place: Place
    rounds: int
    tries: int = 1
    patience: float = 0.0
    one_at_a_time: bool = False

    def __post_init__(self) -> None:
        self.prompts = self.workload.prompts(self.config)
        self.rates: list[float] = []
        self.running: dict[str, Participant] = {}
        self.first_seconds: dict[str, float] = {}
        self.outcomes = [self._blank(variant) for variant in self.variants]

    def _blank(self, variant: Variant) -> Outcome:
        return Outcome(variant.name, weight_bytes(self.config, variant.bits), self.workload.batch)

    def run(self, probe: Probe) -> list[Outcome]:
        """Return what came of every variant, in the order given."""
        try:
            self._check_all()
            for number in range(self.rounds):
                self._time_all(number, probe)
        finally:
            for participant in self.running.values():
                participant.close()
        for outcome in self.outcomes:
            self._add_first_use(outcome)
        return self.outcomes

    def settings(self) -> dict[str, object]:
        """Return what the figures depend on, beside the machine."""
        return {
            "model": asdict(self.config),
            "workload": asdict(self.workload),
            "rounds": self.rounds,
            "threads": self.place.threads,
            "tries": self.tries,
            "patience": self.patience,
            "one_at_a_time": self.one_at_a_time,
        }

    def _check_all(self) -> None:
        """Start every engine and hold its ids to the reference's, before anything is timed."""
        answers = {
            variant.name: answer
            for variant, outcome in zip(self.variants, self.outcomes, strict=True)
            if (answer := self._first_answer(variant, outcome)) is not None
        }
        expected = next((answers[n]["ids"] for n in (REFERENCE, YARDSTICK) if n in answers), None)
        if expected is None:
            reference = find_variants(REFERENCE)[0]
            answer = self._first_answer(reference, self._blank(reference))
            assert answer is not None, "the reference is our own model, and runs"
            self.running.pop(REFERENCE).close()
            expected = answer["ids"]
        for variant, outcome in zip(self.variants, self.outcomes, strict=True):
            if variant.name in answers:
                self._judge(variant, outcome, expected, answers[variant.name]["ids"])

    def _first_answer(self, variant: Variant, outcome: Outcome) -> dict[str, Any] | None:
        """Return a variant's answer to the first job, or note why there is none."""
        say(f"{variant.name}: starting")
        try:
            participant = Participant(variant, self.place)
            self.running[variant.name] = participant
            outcome.version = participant.version
            answer = participant.generate(self.prompts, self.workload.new_tokens)
        except (InstallError, NotOfferedError, WorkerError) as error:
            outcome.fault, outcome.fatal = str(error), not isinstance(error, NotOfferedError)
            self._drop(variant.name)
            say(f"{variant.name}: {error}")
            return None
        self.first_seconds[variant.name] = answer["total_seconds"]
        if self.one_at_a_time:
            participant.close()
        return answer

    def _judge(
        self, variant: Variant, outcome: Outcome, expected: list[list[int]], ids: list[list[int]]
    ) -> None:
        agreement = compare_ids(self.prompts, expected, ids)
        if variant.exact and not agreement.holds:
            agreement = self._with_reference(
                lambda gap: compare_ids(self.prompts, expected, ids, gap)
            )
        outcome.agreement = str(agreement)
        whole = len(ids) == len(self.prompts)
        if not whole or any(len(row) != self.workload.new_tokens for row in ids):
            outcome.fault = f"made {[len(row) for row in ids]} tokens instead of "
            outcome.fault += f"{self.workload.new_tokens} a row"
        elif variant.exact and not agreement.holds:
            outcome.fault = f"its float32 ids are the reference's for {agreement}"
        if outcome.fault is not None:
            say(f"{variant.name}: {outcome.fault}")
            self._drop(variant.name)

    def _with_reference(self, judge: Callable[[Gap], Any]) -> Any:
        """Ask the reference how near a tie was, in a worker of its own."""
        reference = Participant(find_variants(REFERENCE)[0], self.place)
        try:
            return judge(lambda ids, one, other: reference.call("logit_gap", ids, one, other))
        finally:
            reference.close()

    def _time_all(self, number: int, probe: Probe) -> None:
        """Time every engine once, each between two looks at the bandwidth; who begins rotates."""
        names = [outcome.name for outcome in self.outcomes if outcome.name in self.running]
        turn = number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            outcome = next(one for one in self.outcomes if one.name == name)
            try:
                sample = self._take(outcome, probe)
            except WorkerError as error:
                outcome.fault = f"failed in round {number + 1}: {error}"
                self._drop(name)
                continue
            outcome.samples[number] = sample
            say(f"round {number + 1}: {name}: {describe(sample)}")
            if self.one_at_a_time:
                self.running[name].close()

    def _take(self, outcome: Outcome, probe: Probe) -> Sample:
        """Return the first sample that nobody disturbed, or of all tries the least disturbed."""
        taken: list[Sample] = []
        for _ in range(self.tries):
            taken.append(self._take_once(outcome, probe))
            if not taken[-1].disturbed:
                break
        return min(taken, key=lambda sample: sample.others_share or 0.0)

    def _take_once(self, outcome: Outcome, probe: Probe) -> Sample:
        runs = self.running[outcome.name]
        worker = runs.ready(self.prompts)
        if self.patience:
            wait_for_quiet(self.patience, QUIET_SHARE)
        before = self._measure(probe)
        watch = Watch(worker.pid)
        answer = runs.generate(self.prompts, self.workload.new_tokens)
        others = watch.share()
        after = self._measure(probe)
        outcome.peak_bytes = answer.get("peak_bytes")
        outcome.anonymous_bytes = answer.get("anonymous_bytes")
        return Sample(
            answer["decode_tokens_per_second"],
            answer["first_token_seconds"],
            answer["total_seconds"],
            (before + after) / 2,
            others,
        )

    def _measure(self, probe: Probe) -> float:
        time.sleep(PAUSE_SECONDS)
        self.rates.append(probe.measure())
        return self.rates[-1]

    def _add_first_use(self, outcome: Outcome) -> None:
        if outcome.name in self.running and outcome.samples:
            runs = self.running[outcome.name]
            later = outcome.median_of("total_seconds")
            outcome.first_use = FirstUse(
                runs.convert_seconds,
                runs.start_seconds,
                max(0.0, self.first_seconds[outcome.name] - later),
            )

    def _drop(self, name: str) -> None:
        if name in self.running:
            self.running.pop(name).close()
