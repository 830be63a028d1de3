"""β from held-out labels, and σ_ε, where the configuration leaves them open."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from gpn.core.priors.evidence import feature_noise_std, held_out_noise_std
from gpn.core.priors.spectral import spectral_axes
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.methods.gpn.fit_report import Trial
from gpn.methods.gpn.fitting.build import build
from gpn.methods.gpn.fitting.context import FitContext, TrialCache
from gpn.methods.gpn.posterior import GPNPosterior

BETAS = (0.03, 0.1, 0.3, 1.0)
CLASS_BETAS = (0.0003, 0.001, 0.003, 0.01)
FALLBACK_BETA, CLASS_FALLBACK_BETA = 0.1, 0.001
MAX_SCORE_LOSS = 0.05  # nats: as if errors were 5 % larger
# Shares of the fit's own steps: enough to compare β (what a large one costs classes shows later
# than what it costs targets), and enough for residuals near the final ones.
TRIAL_SHARE, CLASS_TRIAL_SHARE, NOISE_TRIAL_SHARE = 1 / 16, 1 / 6, 1 / 4
MIN_TRIAL_STEPS = 100
MIN_LABELS = 10
HELD_OUT_SHARE, MAX_HELD_OUT = 0.15, 2000
MAX_EVIDENCE_LABELS = 2000


def select(context: FitContext) -> FitContext:
    """The context with β and σ_ε chosen; the same ones in all processes."""
    selected = _select(context)
    if context.group is not None:
        config = selected.config
        beta, noise_std = context.group.broadcast((config.beta, config.noise_std))
        selected = replace(selected, config=config.replace(beta=beta, noise_std=noise_std))
    return replace(selected, cache=TrialCache(context.cache.basis))  # weights depend on the labels


def _select(context: FitContext) -> FitContext:
    config, task = context.config, context.task
    needs_noise = not task.is_classification and not config.noise_std
    if config.anchor != "independent":
        return _with_noise(context) if needs_noise else context
    if config.beta and not (needs_noise and config.target_noise):
        return context
    if config.target_noise and needs_noise and len(task.x_obs) < MIN_LABELS:
        context = _with_noise(context)
    return select_beta(context)


def _with_noise(context: FitContext) -> FitContext:
    """σ_ε by marginal likelihood, from the prior's features at (at most 2,000) labels."""
    task = context.task
    picked = torch.randperm(len(task.x_obs), generator=as_generator(0))[:MAX_EVIDENCE_LABELS]
    some = task.subset(picked)
    axes = spectral_axes(
        context.config.prior, some.x_obs, task.n_outputs, len(some.x_obs), 1.0, as_generator(0)
    )
    noise_std = feature_noise_std(axes(some.x_obs), some.y_obs)
    return replace(context, config=context.config.replace(noise_std=noise_std))


def select_beta(context: FitContext) -> FitContext:
    """The largest β whose held-out log score is about as good as the best, and σ_ε given that β.

    Among settings that predict equally well in distribution, a stronger pull to the prior means
    more caution elsewhere. A given β stays, and only the noise is learnt. With fewer than ten
    labels nothing can be held out: β is a usual one, and noise that was not given stays unknown.
    """
    config, task = context.config, context.task
    betas, fallback, share = BETAS, FALLBACK_BETA, TRIAL_SHARE
    if task.is_classification:
        betas, fallback, share = CLASS_BETAS, CLASS_FALLBACK_BETA, CLASS_TRIAL_SHARE
    if len(task.x_obs) < MIN_LABELS:
        return replace(context, config=config.replace(beta=config.beta or fallback))
    trial = _trials(context)
    if not config.beta:
        trials = tuple(trial(beta, share) for beta in betas)
        config = config.replace(beta=largest_within(trials).beta)
        context = replace(context, beta_search=trials)
    if not config.noise_std and not task.is_classification:
        config = config.replace(noise_std=trial(config.beta, NOISE_TRIAL_SHARE).noise_std or 0.0)
    return replace(context, config=config)


def largest_within(trials: tuple[Trial, ...]) -> Trial:
    """The largest β within `MAX_SCORE_LOSS` nats of the best score."""
    most = min(trial.score for trial in trials) + MAX_SCORE_LOSS
    return max((t for t in trials if t.score <= most), key=lambda t: t.beta)


def _trials(context: FitContext) -> Callable[[float, float], Trial]:
    """A function that tries a β: it fits without the held-out labels, then scores their prediction.

    Without target noise: its size is one of the things that a trial is to find.
    """
    config, task = context.config, context.task
    order = torch.randperm(len(task.x_obs), generator=context.seeds)
    n_held_out = max(1, min(round(HELD_OUT_SHARE * len(order)), MAX_HELD_OUT))
    rest, held_out = task.subset(order[n_held_out:]), task.subset(order[:n_held_out])

    def trial(beta: float, share: float) -> Trial:
        steps = max(MIN_TRIAL_STEPS, round(share * config.train.steps))
        train = config.train.replace(steps=steps)
        short = config.replace(beta=beta, train=train, target_noise=False)
        problem = build(context.for_trial(short, rest))
        posterior = problem.posterior_of_inputs(problem.train())
        if held_out.is_classification:
            return _class_trial(beta, posterior, held_out)
        return _target_trial(beta, posterior, held_out, config.noise_std)

    return trial


def _target_trial(beta: float, posterior: GPNPosterior, held_out: Task, noise_std: float) -> Trial:
    """Gaussian log score with variance Var[g] + σ_ε², with the likeliest σ_ε unless it is known."""
    mean, variance = posterior.moments(held_out.x_obs)
    squared = (held_out.y_obs - mean).square()
    noise_std = noise_std or held_out_noise_std(squared, variance)
    total = variance + noise_std**2
    scores = 0.5 * (squared / total + total.log()).mean(1)
    inside = squared <= 1.96**2 * total
    return Trial(beta, *_mean_and_error(scores), float(inside.double().mean()), noise_std)


def _class_trial(beta: float, posterior: GPNPosterior, held_out: Task) -> Trial:
    """Log score of the mean class probabilities; coverage is the accuracy."""
    probabilities = posterior.probabilities(held_out.x_obs, n=100)
    picked = probabilities.gather(1, held_out.y_obs[:, None])[:, 0]
    right = probabilities.argmax(1) == held_out.y_obs
    scores = -picked.clamp_min(1e-12).log()
    return Trial(beta, *_mean_and_error(scores), float(right.double().mean()), None)


def _mean_and_error(scores: torch.Tensor) -> tuple[float, float]:
    error = float(scores.std() / len(scores) ** 0.5) if len(scores) > 1 else math.inf
    return float(scores.mean()), error
