"""Whether an optimizer's state is that of the weights beside it: resuming depends on it."""

from __future__ import annotations

from nanogpt_cli.checkpoints import Checkpoint, TensorInfo
from nanogpt_cli.errors import count_of
from nanogpt_cli.inspection.checks import FAULT, OK, WARN, Check
from nanogpt_cli.inspection.checks.values import check_finite
from nanogpt_cli.inspection.measures import measure, read
from nanogpt_cli.inspection.optimizer import MOMENTS, OptimizerState, read_optimizer


def check_optimizer(checkpoint: Checkpoint) -> list[Check]:
    """Check indices, shapes, steps and values of the optimizer's state."""
    state = read_optimizer(checkpoint)
    if state is None:
        return [Check("optimizer", OK, "none is in the file")]
    checks = [_check_entries(checkpoint, state)]
    if state.entries:
        checks += [_check_steps(checkpoint, state), *_check_moments(state)]
    return checks


def _check_entries(checkpoint: Checkpoint, state: OptimizerState) -> Check:
    weights = checkpoint.architecture.weights
    if not state.owners:
        detail = (
            f"its groups list {len(state.indices):,} parameters, the model has {len(weights):,}"
        )
        return Check("optimizer", FAULT, detail)
    stray = tuple(f"no parameter has index {i}" for i in state.entries if i not in state.owners)
    wrong = tuple(
        f"{owner}: {name} is {list(moment.shape)}, the weight is {list(weights[owner].info.shape)}"
        for index, owner in state.owners.items()
        for name in MOMENTS
        if (moment := state.moment(index, name)) is not None
        and moment.shape != weights[owner].info.shape
    )
    if stray or wrong:
        detail = f"it is not these weights' own: {len(wrong) + len(stray):,} entries do not fit"
        return Check("optimizer", FAULT, detail, (*wrong, *stray))
    if not state.entries:
        return Check("optimizer", WARN, "it has no state: training would begin its moments anew")
    lacking = tuple(
        f"{owner} has no {' and no '.join(names)}"
        for index, owner in state.owners.items()
        if (names := [name for name in MOMENTS if state.moment(index, name) is None])
    )
    if lacking:
        return Check("optimizer", WARN, f"{len(lacking):,} weights lack moments", lacking)
    detail = f"moments for all {len(state.owners):,} weights, in the order of {state.order}"
    return Check("optimizer", OK, detail)


def _check_steps(checkpoint: Checkpoint, state: OptimizerState) -> Check:
    steps = state.steps()
    counts = sorted(set(steps.values()))
    if not counts:
        return Check("step", OK, "the optimizer does not say how many steps it took")
    if len(counts) > 1:
        last = counts[-1]
        behind = tuple(
            f"{state.owners.get(index, index)} is at {step:,}"
            for index, step in steps.items()
            if step != last
        )
        detail = f"the weights are between {counts[0]:,} and {last:,} steps"
        return Check("step", FAULT, detail, behind)
    taken, iter_num = counts[0], checkpoint.iter_num
    if iter_num is None or checkpoint.architecture.envelope.family != "nanogpt":
        return Check("step", OK, count_of(taken, "step"))
    if taken == iter_num:
        return Check("step", OK, f"{count_of(taken, 'step')}, as many as iter_num")
    found = f"the optimizer took {count_of(taken, 'step')} and iter_num is {iter_num:,}"
    if taken < iter_num and checkpoint.train_config.get("dtype") == "float16":
        return Check("step", OK, f"{found}: training in float16 skips steps that overflow")
    return Check("step", FAULT, f"{found}: it is stale, not the state of these weights")


def _check_moments(state: OptimizerState) -> list[Check]:
    moments: dict[str, TensorInfo] = {}
    for index, owner in state.owners.items():
        for name in MOMENTS:
            moment = state.moment(index, name)
            if moment is not None:
                moments[f"{owner} {name}"] = moment
    measured = {name: measure(read(info)) for name, info in moments.items()}
    negative = tuple(
        f"{name} goes down to {each.min:g}"
        for name, each in measured.items()
        if name.endswith(MOMENTS[1]) and each.min is not None and each.min < 0
    )
    finite = check_finite("moments", measured)
    if finite.status == OK and negative:
        return [Check("moments", FAULT, "squares below zero", negative)]
    return [finite]
