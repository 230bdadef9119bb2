"""The one fit loop, for everything that is trained by gradients."""

import copy
import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, ReduceLROnPlateau

from deconflow import ranks
from deconflow.fitting.checkpoint import Checkpoint, identity_of
from deconflow.fitting.settings import History, Training
from deconflow.objectives import Objective, RowData
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.randomness import Draws, RandomState, draws_in_use, own_generator

#: Latent points in one pass: few enough for the processor's cache, enough to hide overhead.
POINTS_AT_ONCE = 10_000

#: Rows whose objective must be finite after an epoch where no others are left out for that.
ROWS_TO_CHECK = 100

#: So many steps in a row without a finite gradient end the fit.
BAD_STEPS_IN_A_ROW = 10

#: What else a checkpoint keeps of a fit.
SAVED = ("best", "best_value", "bad_steps", "seed")

Callback = Callable[[int, History], None]


class NonFiniteError(ArithmeticError, ValueError):
    """The objective was not finite for too many steps in a row."""


def fit(
    objective: Objective,
    train: RowData,
    validation: RowData | None = None,
    training: Training | None = None,
    *,
    checkpoint: str | Path | None = None,
    progress: Progress = SILENT,
    callbacks: Iterable[Callback] = (),
) -> History:
    """Train the models inside ``objective``, in place.

    Inside a group of processes (:mod:`deconflow.ranks`) all of them call this, each with rows of
    its own: gradients and objectives are summed over the group, so all have the same weights after
    every step and take the same decisions.

    Parameters
    ----------
    objective
        Returns a number for each row; their weighted mean is made as large as possible.
    train, validation
        Rows to train on, and rows to choose the best epoch with. Without validation rows the
        last weights are kept. Of several processes each has its share of both.
    training
        Settings.
    checkpoint
        A file to write after every epoch. If it is there already, the fit goes on from it, with as
        many processes as wrote it.
    progress
        Counts the epochs.
    callbacks
        Functions called with the epoch's number and the history after every epoch.

    Returns
    -------
    History
        What happened. The objective holds the best (averaged) weights.
    """
    with draws_in_use() as common, own_draws(common) as draws:
        checkpoint = ranks.from_first(checkpoint)  # the program names it to that one alone
        train, validation = train.to(), None if validation is None else validation.to()
        run = _Fit(objective, train, validation, training or Training(), checkpoint, draws)
        return run.run(progress, tuple(callbacks))


class RunningAverage(nn.Module):
    r"""A copy of an objective whose weights follow :math:`a \leftarrow d a + (1 - d) \theta`.

    The first update copies the weights, so that the start does not linger.
    """

    updates: Tensor

    def __init__(self, objective: Objective, decay: float) -> None:
        super().__init__()
        self.objective, self.decay = copy.deepcopy(objective), decay
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self._mine: list[Tensor] = list(self.objective.requires_grad_(False).parameters())
        self._theirs: list[Tensor] = list(objective.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Take the current weights in."""
        torch._foreach_lerp_(self._mine, self._theirs, 1.0 - self.decay if self.updates else 1.0)
        self.updates += 1


class _Fit:
    """The state of one fit: what a checkpoint saves."""

    def __init__(
        self,
        objective: Objective,
        train: RowData,
        validation: RowData | None,
        training: Training,
        checkpoint: str | Path | None,
        draws: Draws,
    ) -> None:
        self.objective, self.train, self.validation = objective, train, validation
        self.training, self.own = training, draws.generator("cpu")
        self.sizes, self.batches = batch_sizes(len(train), training.batch_size)
        make_alike(objective)
        self.file = (
            None
            if checkpoint is None
            else Checkpoint(checkpoint, identity_of(objective, train, training), ranks.world())
        )
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        self.like = self.parameters[0]
        self.generators = [self.own]
        if self.like.is_cuda:
            self.generators.append(draws.generator(self.like.device))
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
        )
        self.scheduler = self._make_scheduler()
        self.parts: dict[str, Any] = {
            "objective": objective, "optimiser": self.optimiser, "scheduler": self.scheduler,
        }  # fmt: skip
        self.average = None
        if training.averaging is not None:
            self.average = self.parts["average"] = RunningAverage(objective, training.averaging)
        self.best = copy.deepcopy(objective.state_dict())
        self.best_value, self.bad_steps = -math.inf, 0
        self.history = History()
        self.seed = int(torch.randint(2**31, (), generator=self.own))

    def _kept(self) -> dict[str, Tensor]:
        """Copy the weights that would be kept now, with the state of the objective as it is."""
        state = copy.deepcopy(self.objective.state_dict())
        averaged = self.average.objective.named_parameters() if self.average else ()
        state.update((name, weight.detach().clone()) for name, weight in averaged)
        return state

    def run(self, progress: Progress, callbacks: tuple[Callback, ...]) -> History:
        # Free one large block, so that glibc keeps freed activations for the next part of a step.
        # Its thresholds for giving memory back to the system follow the largest block freed so far;
        # at their start every part of a step pays for its pages again (5 to 10 % of a step).
        torch.empty(2**25 - 2**16, dtype=torch.uint8)
        self._resume()
        progress.advance(len(self.history))
        for epoch in range(len(self.history), self.training.epochs):
            if self.history.stopped_early:
                break
            self._epoch(epoch)
            shown = {"train": self.history.train, "validation": self.history.validation}
            words = [f"{name} {values[-1]:.4f}" for name, values in shown.items() if values]
            progress.advance(remark=", ".join(words))
            with ranks.own_work():
                for callback in callbacks:
                    callback(epoch, self.history)
        if self.validation is not None and self.best_value == -math.inf:
            self._give_up("the validation objective was never finite")
        self.objective.load_state_dict(self.best)
        self.objective.eval()
        return ranks.from_first(self.history)

    def _epoch(self, epoch: int) -> None:
        start = time.perf_counter()
        self.history.learning_rate.append(self.optimiser.param_groups[0]["lr"])
        self.objective.train()
        make_alike(self.objective)  # processors may round differently
        order = torch.randperm(len(self.train), generator=self.own)
        values = [
            self._step(rows, n_batch)
            for rows, n_batch in zip(order.split(self.sizes), self.batches, strict=True)
        ]
        finite = [value for value in values if value is not None]
        self.history.train.append(sum(finite) / len(finite) if finite else math.nan)
        candidate = self.average.objective if self.average else self.objective
        if self.validation is not None:
            self._validate(epoch, evaluate(candidate, self.validation, self.seed))
        elif not math.isfinite(evaluate(candidate, self.train[:ROWS_TO_CHECK], self.seed)):
            self._give_up("the objective was not finite after an epoch")
        else:
            self.best = self._kept()
        self.history.seconds.append(time.perf_counter() - start)
        if self.file:
            self.file.save_all(
                {
                    **{name: part.state_dict() for name, part in self.parts.items()},
                    **{name: getattr(self, name) for name in SAVED},
                    "history": self.history.as_dict(),
                    "generators": [generator.get_state() for generator in self.generators],
                }
            )

    def _step(self, rows: Tensor, n_batch: int) -> float | None:
        """Take one step with these rows of a batch, or skip it if a gradient is not finite."""
        self.optimiser.zero_grad(set_to_none=True)
        count = math.ceil(len(rows) * self.objective.draws / POINTS_AT_ONCE)
        parts = rows.chunk(count) if count else ()
        with ranks.own_work():
            value = sum(self._backward(part, n_batch) for part in parts)
        value = add_gradients(self.parameters, value)
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters, self.training.clip_norm or math.inf, foreach=True
        )
        if not (math.isfinite(value) and bool(norm.isfinite())):
            self.history.skipped_steps += 1
            self.bad_steps += 1
            if self.bad_steps >= BAD_STEPS_IN_A_ROW:
                self._give_up(f"{self.bad_steps} steps in a row had no finite gradient")
            return None
        self.bad_steps = 0
        self.optimiser.step()
        if self.average:
            self.average.update()
        if isinstance(self.scheduler, CosineAnnealingLR):
            self.scheduler.step()
        return value

    def _backward(self, rows: Tensor, n_batch: int) -> float:
        """Add a part's share of the batch gradient; parts bound the memory of a step."""
        data = self.train[rows].to(dtype=self.like.dtype, device=self.like.device)
        values = self.objective(data)
        if data.weights is not None:
            values = values * data.weights
        value = values.sum() / n_batch
        (-value).backward()
        return float(value.detach())

    def _give_up(self, reason: str) -> NoReturn:
        self.objective.load_state_dict(self.best)
        self.objective.eval()
        raise NonFiniteError(
            f"Expected finite objectives and gradients; got others: {reason}. "
            "The last good weights are kept. "
            "Try a smaller learning_rate, or look for extreme values in w and noise."
        )

    def _validate(self, epoch: int, value: float) -> None:
        self.history.validation.append(value)
        if value > self.best_value:
            self.best_value, self.history.best_epoch = value, epoch
            self.best = self._kept()
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(-value)
        best, patience = self.history.best_epoch, self.training.patience
        since = epoch - (-1 if best is None else best)
        self.history.stopped_early = since >= (patience or math.inf)

    def _make_scheduler(self) -> ConstantLR | CosineAnnealingLR | ReduceLROnPlateau:
        given = self.training
        if given.schedule == "cosine":
            return CosineAnnealingLR(
                self.optimiser,
                given.epochs * len(self.batches),
                eta_min=given.learning_rate * given.learning_rate_end,
            )
        if given.schedule == "plateau":
            return ReduceLROnPlateau(
                self.optimiser, "min", given.plateau_factor, given.plateau_patience, threshold=0.0
            )
        return ConstantLR(self.optimiser, 1.0)

    def _resume(self) -> None:
        state = self.file.load_own() if self.file else None
        if state is None:
            return
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        for name in SAVED:
            setattr(self, name, state[name])
        self.history = History(**state["history"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)


def share_of(data: Observations) -> Observations:
    """Take this process's rows of a table that all have, by an order that all draw alike."""
    if ranks.world() == 1:
        return data
    order = torch.randperm(len(data), generator=own_generator())
    return data[order[ranks.rank() :: ranks.world()]]


def common_rng(random_state: RandomState) -> AbstractContextManager[Draws]:
    """Draw from ``random_state`` alone, as the first process has it, inside the block."""
    return ranks.from_first(Draws.of(random_state)).in_use()


def own_draws(common: Draws) -> AbstractContextManager[Draws]:
    """Give each process random numbers of its own; those that all have in common stay so."""
    if ranks.world() == 1:
        return nullcontext(common)
    seed = int(torch.randint(2**31, (), generator=common.generator("cpu")))
    return Draws(ranks.from_first(seed) + ranks.rank()).in_use()


def batch_sizes(n_rows: int, batch_size: int) -> tuple[list[int], list[int]]:
    """Return how many rows this process has in each step of an epoch, and how many all have.

    All take the same number of steps, each with a share of every batch that is as large as its
    share of the rows; where these do not divide evenly its last batches are smaller, or empty.
    """
    counts = ranks.gathered(n_rows)
    if min(counts) == 0:
        raise ValueError(
            f"Expected rows to train on in each of {len(counts)} processes; got none in process "
            f"{counts.index(0)}. Start fewer processes."
        )
    sizes = []
    for count in counts:
        size = -(-batch_size * count // sum(counts))
        sizes.append([min(size, count - start) for start in range(0, count, size)])
    steps = list(zip_longest(*sizes, fillvalue=0))
    return [step[ranks.rank()] for step in steps], [sum(step) for step in steps]


def make_alike(model: nn.Module) -> None:
    """Give all processes the first one's weights."""
    weights = ranks.from_first([weight.detach().cpu() for weight in model.parameters()])
    with torch.no_grad():
        for mine, first in zip(model.parameters(), weights, strict=True):
            mine.copy_(first)


def add_gradients(parameters: list[nn.Parameter], value: float) -> float:
    """Sum gradients and the objective over processes, in one message; return the objective."""
    if ranks.world() == 1:
        return value
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([*(grad.flatten() for grad in grads), grads[0].new_tensor([value])])
    ranks.add_up(flat)
    parts = flat[:-1].split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return float(flat[-1])


@torch.no_grad()
def evaluate(objective: Objective, data: RowData, seed: int) -> float:
    """Weighted mean objective over the rows of all processes.

    Every call has the same random numbers.
    """
    like = next(objective.parameters())
    size = max(1, POINTS_AT_ONCE // objective.draws)
    was_training = objective.training
    objective.eval()
    values = [torch.empty(0, dtype=torch.float64)]
    with Draws(seed).in_use(), ranks.own_work():
        for start in range(0, len(data), size):
            part = data[start : start + size].to(dtype=like.dtype, device=like.device)
            values.append(objective(part).double().cpu())
    objective.train(was_training)
    rows = torch.cat(values)
    weights = torch.ones_like(rows) if data.weights is None else data.weights.to(rows)
    sums = torch.stack([(weights * rows).sum(), weights.sum()])
    together, count = ranks.total(sums.numpy())[0].tolist()
    return together / count
