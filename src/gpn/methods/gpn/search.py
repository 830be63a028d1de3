"""β from held-out labels, and the labels' noise on the way."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gpn.core.task import Task
from gpn.core.train import Report
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.posterior import GPNPosterior

BETAS = (0.03, 0.1, 0.3, 1.0)
CLASS_BETAS = (0.0003, 0.001, 0.003, 0.01, 0.03)
USUAL_BETA, USUAL_CLASS_BETA = 0.1, 0.001
FEWEST_LABELS = 10
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


def chosen_beta(
    config: GPNConfig, task: Task, seeds: torch.Generator, report: Report, fit: Fit
) -> tuple[GPNConfig, dict[str, Any]]:
    """The largest β whose held-out log score is within one standard error of the best.

    Among settings that predict equally well in distribution, more pull to the prior means more
    caution elsewhere. A given β is kept, and only the noise is learnt. With fewer than ten labels
    there is nothing to hold out: β is a usual one, and noise that was not given stays unknown.
    """
    classes = task.is_classification
    if len(task.x_obs) < FEWEST_LABELS:
        usual = USUAL_CLASS_BETA if classes else USUAL_BETA
        return config.replace(beta=config.beta or usual), {}
    usual_betas = CLASS_BETAS if classes else BETAS
    betas = usual_betas if config.beta is None else (config.beta,)
    kept, held_out = _split(len(task.x_obs), seeds)
    part, rest = (
        task.labels(kept),
        task.labels(held_out.to(task.x_obs.device)),
    )
    trials = [_trial(config, beta, part, rest, seeds, report, fit) for beta in betas]
    best = min(trials, key=lambda trial: trial.score)
    good = [trial for trial in trials if trial.score <= best.score + best.error]
    chosen = max(good, key=lambda trial: trial.beta)
    noise_std = chosen.noise_std if config.noise_std is None else config.noise_std
    story = {"beta_search": [asdict(trial) for trial in trials]}
    return config.replace(beta=chosen.beta, noise_std=noise_std), story


def _split(n_labels: int, seeds: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(n_labels, generator=seeds)
    n_held_out = max(1, min(round(HELD_OUT * n_labels), 2000))
    return order[n_held_out:], order[:n_held_out]


def _trial(
    config: GPNConfig,
    beta: float,
    part: Task,
    rest: Task,
    seeds: torch.Generator,
    report: Report,
    fit: Fit,
) -> Trial:
    """Fit a quarter as long on the kept labels and score the others.

    Without target noise: its size is one of the things that the trial is to find.
    """
    assert config.train is not None
    short = config.train.replace(steps=max(100, config.train.steps // 4))
    quick = config.replace(beta=beta, train=short, target_noise=False)
    posterior = fit(quick, part, seeds, report, {})
    posterior.report["history"].require_finished()
    if rest.is_classification:
        return _class_trial(beta, posterior, rest)
    return _target_trial(beta, posterior, rest, config.noise_std)


def _target_trial(
    beta: float, posterior: GPNPosterior, rest: Task, noise_std: float | None
) -> Trial:
    """Gaussian log score with variance Var[g] + σ_ε², σ_ε from the residuals unless given."""
    mean, variance = posterior.moments(rest.x_obs)
    squared = (rest.y_obs - mean).square()
    if noise_std is None:
        excess = float((squared - variance).mean())
        noise_std = math.sqrt(max(excess, 0.01 * float(squared.mean())))
    total = variance + noise_std**2
    scores = 0.5 * (squared / total + total.log()).sum(1)
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
