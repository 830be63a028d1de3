"""β from held-out labels, and the labels' noise on the way."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gpn.core.priors.evidence import held_out_noise_std
from gpn.core.task import Task
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.posterior import GPNPosterior
from gpn.training.loop import Report

BETAS = (0.03, 0.1, 0.3, 1.0)

CLASS_BETAS = (0.0003, 0.001, 0.003, 0.01)

CLOSE = 0.05

# Shares of the fit's own steps: enough to compare (what a large β costs classes shows later than
# what it costs targets), and enough for residuals near the final ones.
SHORT, CLASS_SHORT, LONGER = 1 / 16, 1 / 6, 1 / 4

MIN_STEPS = 100

MIN_LABELS = 10

HELD_OUT = 0.15

Fit = Callable[..., GPNPosterior]


@dataclass(frozen=True)
class Trial:
    """One β on the held-out labels: mean negative log score, its standard error, and coverage."""

    beta: float
    score: float
    error: float
    coverage: float
    noise_std: float | None


def select_beta(
    config: GPNConfig, task: Task, seeds: torch.Generator, report: Report, fit: Fit
) -> tuple[GPNConfig, dict[str, Any]]:
    """The largest β whose held-out log score is about as good as the best, and σ_ε given that β.

    Among settings that predict equally well in distribution, more pull to the prior means more
    caution elsewhere. A given β is kept, and only the noise is learnt. With fewer than ten labels
    there is nothing to hold out: β is a usual one, and noise that was not given stays unknown.
    """
    betas, usual, short = BETAS, 0.1, SHORT
    if task.is_classification:
        betas, usual, short = CLASS_BETAS, 0.001, CLASS_SHORT
    if len(task.x_obs) < MIN_LABELS:
        return config.replace(beta=config.beta or usual), {}
    kept, held_out = _split(len(task.x_obs), seeds)
    part, rest = task.subset(kept), task.subset(held_out.to(task.x_obs.device))

    def trial(beta: float, share: float) -> Trial:
        return _trial(config, beta, share, part, rest, seeds, report, fit)

    story: dict[str, Any] = {}
    if config.beta is None:
        trials = [trial(beta, short) for beta in betas]
        config = config.replace(beta=largest_within(trials).beta)
        story["beta_search"] = [asdict(each) for each in trials]
    assert config.beta is not None
    if config.noise_std is None and not task.is_classification:
        config = config.replace(noise_std=trial(config.beta, LONGER).noise_std)
    return config, story


def largest_within(trials: list[Trial]) -> Trial:
    """The largest β within `CLOSE` nats of the best score: as if errors were 5 % larger."""
    most = min(trial.score for trial in trials) + CLOSE
    return max((t for t in trials if t.score <= most), key=lambda t: t.beta)


def _split(n_labels: int, seeds: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(n_labels, generator=seeds)
    n_held_out = max(1, min(round(HELD_OUT * n_labels), 2000))
    return order[n_held_out:], order[:n_held_out]


def _trial(
    config: GPNConfig,
    beta: float,
    share: float,
    part: Task,
    rest: Task,
    seeds: torch.Generator,
    report: Report,
    fit: Fit,
) -> Trial:
    """Fit on the kept labels, for a share of the steps, and score the others.

    Without target noise: its size is one of the things that the trial is to find.
    """
    assert config.train is not None
    short = config.train.replace(steps=max(MIN_STEPS, round(share * config.train.steps)))
    quick = config.replace(beta=beta, train=short, target_noise=False)
    posterior = fit(quick, part, seeds, report, {})
    posterior.report["history"].require_finished()
    if rest.is_classification:
        return _class_trial(beta, posterior, rest)
    return _target_trial(beta, posterior, rest, config.noise_std)


def _target_trial(
    beta: float, posterior: GPNPosterior, rest: Task, noise_std: float | None
) -> Trial:
    """Gaussian log score with variance Var[g] + σ_ε², with the likeliest σ_ε unless given."""
    mean, variance = posterior.moments(rest.x_obs)
    squared = (rest.y_obs - mean).square()
    if noise_std is None:
        noise_std = held_out_noise_std(squared, variance)
    total = variance + noise_std**2
    scores = 0.5 * (squared / total + total.log()).mean(1)
    inside = squared <= 1.96**2 * total
    return Trial(beta, *_mean_and_error(scores), float(inside.double().mean()), noise_std)


def _class_trial(beta: float, posterior: GPNPosterior, rest: Task) -> Trial:
    """Log score of the mean class probabilities; coverage is the share of right classes."""
    probabilities = posterior.probabilities(rest.x_obs, n=100)
    picked = probabilities.gather(1, rest.y_obs[:, None])[:, 0]
    right = probabilities.argmax(1) == rest.y_obs
    scores = -picked.clamp_min(1e-12).log()
    return Trial(beta, *_mean_and_error(scores), float(right.double().mean()), None)


def _mean_and_error(scores: torch.Tensor) -> tuple[float, float]:
    error = float(scores.std() / len(scores) ** 0.5) if len(scores) > 1 else math.inf
    return float(scores.mean()), error
