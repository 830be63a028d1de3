"""The temperature T of the mean logits, g(x, z) = b(x) / T + A(x) z, from held-out labels.

Smoothed labels teach a network to stop short of certainty, so that its probabilities are too
cautious on new rows. T maximises the likelihood of labels that training has not seen. A(x) stays,
and with it the prior: where rows are unlike the labeled ones, b(x) is about 0 whatever T is.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from gpn.core.task import Task
from gpn.core.types import Draws, Labels, Outputs
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.problem import TrainingProblem
from gpn.methods.gpn.model.generator import AffineGenerator

DRAWS = 100
MAX_LOG_TEMPERATURE = 1.5
MIN_PROBABILITY = 1e-12


def hold_out(context: FitContext) -> tuple[FitContext, Task | None]:
    """The context without the labels that are to choose T, and those; all of it where none are."""
    task, share = context.task, context.config.calibration_share
    count = round(share * len(task.x_obs))
    if count == 0:
        return context, None
    order = torch.randperm(len(task.x_obs), generator=context.seeds)
    return replace(context, task=task.subset(order[count:])), task.subset(order[:count])


def calibrate(problem: TrainingProblem, held_out: Task) -> TrainingProblem:
    """The trained problem with the likeliest temperature, which its report names."""
    generator, group = problem.objective.generator, problem.context.group
    assert isinstance(generator, AffineGenerator)
    posterior = problem.posterior_of_inputs()
    mean = posterior.mean(held_out.x_obs)
    draws = posterior.sample(held_out.x_obs, DRAWS, rng=0)
    temperature = likeliest_temperature(mean.cpu(), draws.cpu(), held_out.y_obs.cpu())
    if group is not None:
        temperature = group.broadcast(temperature)
    generator.divide_mean(temperature)
    return replace(problem, report=replace(problem.report, temperature=temperature))


def likeliest_temperature(mean: Outputs, draws: Draws, y: Labels) -> float:
    """argmin_T −Σ_i log E_z softmax(b(x_i) / T + A(x_i) z)[y_i]."""
    centred = (draws - mean).double()

    def loss(log_temperature: float) -> float:
        tempered: Float[Tensor, "s n o"] = mean.double() * torch.e**-log_temperature + centred
        p = tempered.softmax(-1).mean(0).gather(1, y[:, None])
        return -float(p.clamp_min(MIN_PROBABILITY).log().mean())

    limits = -MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE
    found = minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-3})
    return float(torch.e**found.x)
