import resource

import numpy as np
import pytest
import torch
from reference_posteriors import NoiseKernel
from torch import nn

from deconflow import Observations
from deconflow.densities import MixtureDensity
from deconflow.fitting import NonFiniteError, Training, evaluate, fit
from deconflow.fitting.checkpoint import Checkpoint, FullDiskWarning
from deconflow.fitting.loop import RunningAverage
from deconflow.objectives import ImportanceWeighted, MaximumLikelihood, Objective


def clean(rng, n=400, weights=None):
    w = rng.normal(size=(n, 2)) * [2.0, 0.5] + [1.0, -1.0]
    return Observations.from_arrays(w, 0.1, weights=weights).to()


def single():
    return MixtureDensity.spread(2, 1)


def parameters(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


SCHEDULES = {
    "constant": {"schedule": "constant"},
    "plateau": {"schedule": "plateau", "plateau_patience": 1},
    "cosine": {"schedule": "cosine"},
    "averaged": {"averaging": 0.9},
    "unclipped": {"clip_norm": None},
    "decay": {"weight_decay": 0.01},
}


@pytest.mark.parametrize("settings", SCHEDULES.values(), ids=SCHEDULES)
def test_finds_the_maximum_likelihood(settings, rng):
    data = clean(rng)
    density = single()
    training = Training(epochs=20, batch_size=100, learning_rate=0.1, **settings)
    history = fit(MaximumLikelihood(density), data, None, training)
    assert torch.allclose(density.means[0], data.w.mean(0).float(), atol=0.15)
    assert len(history) == 20
    assert history.train[-1] > history.train[0]
    if training.schedule == "cosine":
        assert history.learning_rate[0] == pytest.approx(0.1)
        assert history.learning_rate[-1] < 0.001


@pytest.mark.parametrize("settings", SCHEDULES.values(), ids=SCHEDULES)
def test_resumes_to_the_same_result(settings, rng, tmp_path):
    data, held_out = clean(rng).split(0.2)
    training = Training(epochs=6, batch_size=50, learning_rate=0.05, **settings)

    def stop(epoch, history):
        if epoch == 2:
            raise RuntimeError

    def run(**options):
        torch.manual_seed(3)
        objective = ImportanceWeighted(single(), NoiseKernel(), 3)
        history = fit(objective, data, held_out, training, **options)
        return parameters(objective), history

    whole, history = run()
    path = tmp_path / "fit.ckpt"
    with pytest.raises(RuntimeError):
        run(checkpoint=path, callbacks=[stop])
    resumed, resumed_history = run(checkpoint=path)
    assert torch.equal(whole, resumed)
    assert history.validation == resumed_history.validation
    assert history.train == resumed_history.train
    again, _ = run(checkpoint=path)  # a finished fit is not repeated
    assert torch.equal(whole, again)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    checkpoint = Checkpoint(tmp_path / "fit.ckpt", "a fit")
    checkpoint.save({"epoch": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.warns(FullDiskWarning, match=r"no room for the checkpoint .*fit\.ckpt"):
            checkpoint.save({"epoch": 2, "weights": torch.zeros(10_000)})
        checkpoint.save({"epoch": 3, "weights": torch.zeros(10_000)})  # and is told no more
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.load() == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [tmp_path / "fit.ckpt"]


def test_checkpoints_that_are_damaged_or_of_another_fit_are_refused(rng, tmp_path):
    path = tmp_path / "fit.ckpt"
    data = clean(rng)
    fit(MaximumLikelihood(single()), data, None, Training(epochs=1), checkpoint=path)
    other = clean(np.random.default_rng(1))
    for rows, epochs in ((data, 2), (other, 1)):
        with pytest.raises(ValueError, match="another fit"):
            fit(MaximumLikelihood(single()), rows, None, Training(epochs=epochs), checkpoint=path)
    for content in (b"", b"nonsense", b"\x80\x04cos\nsystem\n(S'true'\ntR."):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="Delete it"):
            fit(MaximumLikelihood(single()), data, None, Training(epochs=1), checkpoint=path)


def test_early_stopping_keeps_the_best_weights(rng):
    train, held_out = clean(rng, 60).split(0.5)
    density = MixtureDensity.spread(2, 12)  # far too many components: it overfits
    training = Training(
        epochs=300, learning_rate=0.1, batch_size=30, patience=5, schedule="constant"
    )
    history = fit(MaximumLikelihood(density), train, held_out, training)
    assert history.stopped_early
    assert len(history) == history.best_epoch + 1 + 5
    assert history.best_epoch == int(np.argmax(history.validation))
    found = float(density.log_prob(held_out.w.float()).mean().detach())
    assert found == pytest.approx(max(history.validation), abs=1e-5)


def test_weights_count_as_repeated_rows(rng):
    weights = rng.integers(1, 4, size=200)
    data = clean(rng, 200)
    weighted = Observations.from_arrays(data.w, 0.1, weights=weights).to()
    repeated = data[torch.from_numpy(np.repeat(np.arange(200), weights))]
    training = Training(epochs=30, batch_size=10_000, learning_rate=0.05, clip_norm=None)
    means = []
    for rows in (weighted, repeated):
        density = single()
        fit(MaximumLikelihood(density), rows, None, training)
        means.append(density.means.detach())
    assert torch.allclose(*means, atol=1e-4)
    assert evaluate(MaximumLikelihood(single()), weighted, 0) == pytest.approx(
        evaluate(MaximumLikelihood(single()), repeated, 0), rel=1e-5
    )


class Sometimes(Objective):
    """An objective that is not finite at chosen calls, and counts them."""

    def __init__(self, bad_calls):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.bad_calls, self.calls = bad_calls, 0

    def forward(self, data):
        self.calls += 1
        bad = self.calls in self.bad_calls
        return -((self.weight - 3) ** 2) * (float("nan") if bad else 1.0) * data.w[:, 0].exp()


def test_non_finite_steps_are_skipped_and_counted(rng):
    objective = Sometimes({2, 3, 7})
    history = fit(objective, clean(rng), None, Training(epochs=2, batch_size=100))
    assert history.skipped_steps == 3
    assert objective.weight > 1
    skipped = fit(Sometimes({1}), clean(rng), None, Training(epochs=1, batch_size=400))
    assert np.isnan(skipped.train[0])


def test_many_non_finite_steps_end_the_fit_with_good_weights(rng):
    objective = Sometimes(range(5, 1000))
    with pytest.raises(NonFiniteError, match="learning_rate"):
        fit(objective, clean(rng), None, Training(epochs=50, batch_size=10))
    assert objective.weight.isfinite().all()
    assert objective.calls == 4 + 10


@pytest.mark.parametrize("validated", [True, False])
def test_weights_that_end_up_broken_are_not_kept(validated, rng):
    data = clean(rng)
    density = single()
    start = parameters(density)
    wild = Training(epochs=1, batch_size=400, learning_rate=1e30, clip_norm=None)
    with pytest.raises(NonFiniteError, match="last good weights"):
        fit(MaximumLikelihood(density), data, data if validated else None, wild)
    assert torch.equal(parameters(density), start)


def test_infinite_gradient_is_skipped_too(rng):
    class Root(Sometimes):
        def forward(self, data):
            value = super().forward(data)
            return value + (self.weight - self.weight.detach()).abs().sqrt()  # gradient inf at 0

    objective = Root(set())
    with pytest.raises(NonFiniteError):
        fit(objective, clean(rng), None, Training(epochs=50))
    assert float(objective.weight.detach()) == 1.0


def test_parts_of_a_step_add_up_to_the_whole(rng, monkeypatch):
    """However many rows a step or an evaluation has, its memory is bounded."""
    largest = []

    class Watching(MaximumLikelihood):
        def forward(self, data):
            largest.append(len(data))
            return super().forward(data)

    data = clean(rng)
    results = []
    for points in (10**6, 64):
        monkeypatch.setattr("deconflow.fitting.loop.POINTS_AT_ONCE", points)
        largest.clear()
        density = single().double()
        training = Training(epochs=3, batch_size=200, learning_rate=0.05)
        torch.manual_seed(0)
        fit(Watching(density), data, data, training)
        results.append(parameters(density))
    assert torch.allclose(*results, atol=1e-9)
    assert max(largest) <= 64


def test_running_average_follows_the_weights():
    objective = MaximumLikelihood(single())
    average = RunningAverage(objective, 0.5)
    for value in (1.0, 2.0, 4.0):
        with torch.no_grad():
            objective.density.means.fill_(value)
        average.update()
    assert torch.allclose(average.objective.density.means, torch.tensor(2.75))
