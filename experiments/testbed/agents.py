"""Every agent by name: labels of problems in, logits at the tests' anchors out.

Agents know d, n, τ, ρ or σ, the number of layers, and that rows are N(0, I). `gpn-true-prior` is
told the prior of the logits, too; `gpn` is told nothing at all.
"""

import dataclasses
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import gpn
from experiments.testbed.networks import SGMCMC, Batch, Dropout, Ensemble, Epinet, NetworkAgent
from experiments.testbed.problems import (
    TAUS,
    WEIGHT_VARIANCE,
    AnchorTests,
    Classification,
    Regression,
    deep_relu,
)
from experiments.testbed.score import gaussian_kl, joint_kl

N_DRAWS = 1000
FEW_LANDMARKS, FEW_DRAWS = 200, 100  # as many functions as an ensemble has members
CHAINS = {"n_chains": 100, "warmup": 150, "draws": 10, "thin": 5, "max_leapfrog": 20}
MAX_EXACT_ON_GPU, LANDMARKS_ON_GPU, LANDMARKS_ON_CPU = 10_000, 5000, 2000
Scores = dict[int, float]  # by τ


@dataclass(frozen=True)
class Outcome:
    """The scores of one problem, and the seconds of its fit and its draws.

    `cpu_seconds` are those of this process's threads, whatever else the machine is doing.
    """

    scores: Scores
    seconds: float
    cpu_seconds: float


class Agent(ABC):
    """Fits the problems of one shape, all at once or one after another."""

    batched = False  # whether seconds are shared by the problems of a batch

    @abstractmethod
    def run(self, problems: Sequence[Classification], device: torch.device) -> list[Outcome]: ...

    @property
    def config(self) -> dict[str, Any]:
        """Its settings, for the result file."""
        return {}


@dataclass(frozen=True)
class Networks(Agent):
    """An agent of networks, all problems in one program."""

    make: Callable[[], NetworkAgent]
    graphs: bool = True
    batched = True

    @property
    def config(self) -> dict[str, Any]:
        return dataclasses.asdict(self.make())  # type: ignore[call-overload]

    def run(self, problems: Sequence[Classification], device: torch.device) -> list[Outcome]:
        tests = {tau: [problem.tests(tau) for problem in problems] for tau in TAUS}
        rng = torch.Generator(device).manual_seed(problems[0].setting.seed)
        watch = Watch(device)
        agent, batch = self.make(), Batch.of(problems, device)
        agent.fit(batch, rng, graphs=self.graphs)
        draws = {
            tau: agent.draws(_anchor_rows([t.anchors for t in tests[tau]], device), N_DRAWS, rng)
            for tau in TAUS
        }
        seconds = [value / len(problems) for value in watch.read()]
        return [
            Outcome({tau: _score(tests[tau][i], draws[tau][i]) for tau in TAUS}, *seconds)
            for i in range(len(problems))
        ]


@dataclass(frozen=True)
class OneByOne(Agent):
    """An agent that fits a problem and returns a sampler: rows in, joint draws of logits out."""

    fit: Callable[[Classification, torch.device], Callable[[Tensor], Tensor]]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return self.settings

    def run(self, problems: Sequence[Classification], device: torch.device) -> list[Outcome]:
        return [self._run_one(problem, device) for problem in problems]

    def _run_one(self, problem: Classification, device: torch.device) -> Outcome:
        tests = {tau: problem.tests(tau) for tau in TAUS}
        watch = Watch(device)
        sampler = self.fit(problem, device)
        draws = {tau: sampler(tests[tau].anchors.flatten(0, 1).to(device)) for tau in TAUS}
        seconds = watch.read()
        return Outcome({tau: _score(tests[tau], draws[tau]) for tau in TAUS}, *seconds)


def fit_true_prior(
    problem: Classification,
    device: torch.device,
    landmarks: int | None = None,
    n_draws: int | None = None,
) -> Callable[[Tensor], Tensor]:
    """A Gaussian process of two classes whose kernel is that of the problems' networks."""
    setting = problem.setting
    prior = deep_relu(setting.n_inputs, WEIGHT_VARIANCE, setting.temperature**-2)
    landmarks = landmarks or landmarks_of(setting.n_labels, device)
    method = gpn.methods.get("gpc", prior=prior, landmarks=landmarks)
    task = gpn.Task(problem.x.double().to(device), problem.y.to(device), n_classes=2)
    posterior = method.fit(task, rng=setting.seed)
    return lambda x: posterior.sample(x, n_draws or N_DRAWS, rng=setting.seed)


def fit_hmc(problem: Classification, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Long Hamiltonian chains over the weights of a network of the true widths and variances."""
    setting = problem.setting
    prior = deep_relu(setting.n_inputs, WEIGHT_VARIANCE, setting.temperature**-2)
    method = gpn.methods.get("mcmc", prior=prior, device=str(device), **CHAINS)
    task = gpn.Task(problem.x.to(device), problem.y.to(device), n_classes=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the chains should have converged")
        posterior = method.fit(task, rng=setting.seed, progress=False)
    return lambda x: posterior.sample(x, N_DRAWS, rng=setting.seed)


def landmarks_of(n_labels: int, device: torch.device) -> int:
    """All labels where that is a matter of seconds."""
    if device.type != "cuda":
        return LANDMARKS_ON_CPU
    return n_labels if n_labels <= MAX_EXACT_ON_GPU else LANDMARKS_ON_GPU


def fit_default(problem: Classification, device: torch.device) -> Callable[[Tensor], Tensor]:
    """`GPNClassifier` with its defaults, on the CPU, told nothing but the labels.

    It refuses labels of one class only; then every row has the same probability of it, from the
    posterior Beta(n + 1, 1) of a coin.
    """
    if len(problem.y.unique()) == 1:
        return lambda x: one_class_logits(problem, len(x))
    model = gpn.GPNClassifier(random_state=problem.setting.seed)
    model.fit(problem.x.numpy(), problem.y.numpy())

    def sampler(x: Tensor) -> Tensor:
        p = model.sample_proba(x.cpu().numpy(), N_DRAWS, random_state=0)
        return torch.from_numpy(p).permute(2, 0, 1).log()

    return sampler


def one_class_logits(problem: Classification, n_rows: int) -> Float[Tensor, "m n c"]:
    rng = torch.Generator().manual_seed(problem.setting.seed)
    uniform = torch.rand(N_DRAWS, 1, generator=rng, dtype=torch.float64)
    p = uniform ** (1 / (len(problem.y) + 1))
    columns = [1 - p, p] if int(problem.y[0]) == 1 else [p, 1 - p]
    return torch.stack(columns, -1).log().expand(-1, n_rows, -1)


AGENTS: dict[str, Agent] = {
    "mlp": Networks(lambda: Ensemble(n_members=1)),
    "dropout": Networks(Dropout),
    "ensemble": Networks(Ensemble),
    "ensemble-plus": Networks(lambda: Ensemble(prior_scale=3.0)),
    "epinet": Networks(Epinet),
    "sgmcmc": Networks(SGMCMC),
    "hmc": OneByOne(fit_hmc, CHAINS),
    "gpn": OneByOne(fit_default),
    "gpn-true-prior": OneByOne(
        fit_true_prior,
        {"method": "gpc", "exact_up_to": MAX_EXACT_ON_GPU, "landmarks": LANDMARKS_ON_GPU},
    ),
}


COST_AGENTS: dict[str, Agent] = {
    "ensemble-plus": AGENTS["ensemble-plus"],
    "gpn-true-prior": OneByOne(partial(fit_true_prior, landmarks=LANDMARKS_ON_CPU)),
    "gpn-true-prior-few": OneByOne(
        partial(fit_true_prior, landmarks=FEW_LANDMARKS, n_draws=FEW_DRAWS)
    ),
}


def true_prior_moments(problem: Regression) -> tuple[Tensor, Tensor]:
    """Mean and variance by the exact Gaussian process with the true kernel and noise."""
    setting = problem.setting
    method = gpn.methods.get("gp", prior=setting.prior, noise_std=setting.noise_std)
    mean, variance = method.fit(gpn.Task(problem.x, problem.y)).moments(problem.x_test)
    return mean[:, 0], variance[:, 0]


def default_moments(problem: Regression) -> tuple[Tensor, Tensor]:
    """Mean and variance of the function by `GPNRegressor` with its defaults, told nothing."""
    model = gpn.GPNRegressor(random_state=problem.setting.seed)
    model.fit(problem.x.cpu().numpy(), problem.y[:, 0].cpu().numpy())
    mean, std = model.predict(problem.x_test.cpu().numpy(), return_std=True)
    return torch.from_numpy(mean), torch.from_numpy(std).square()


REGRESSION_AGENTS: dict[str, Callable[[Regression], tuple[Tensor, Tensor]]] = {
    "gpn": default_moments,
    "gpn-true-prior": true_prior_moments,
}


def run_regression(agent: str, problem: Regression) -> tuple[float, float]:
    """The mean KL divergence at the test rows, and the seconds of the fit."""
    watch = Watch(problem.x.device)
    mean, variance = REGRESSION_AGENTS[agent](problem)
    seconds, _ = watch.read()
    truth = problem.mean.to(mean), problem.std.to(mean)
    return float(gaussian_kl(*truth, mean, variance.sqrt()).mean()), seconds


def _anchor_rows(anchors: Sequence[Tensor], device: torch.device) -> Float[Tensor, "p n d"]:
    return torch.stack([each.flatten(0, 1) for each in anchors]).to(device)


def _score(tests: AnchorTests, draws: Float[Tensor, "m n c"]) -> float:
    return joint_kl(tests, draws.reshape(len(draws), len(tests.anchors), 2, -1))


class Watch:
    """Seconds since it was made: on the wall, and of this process's threads."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.started = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        wall, cpu = self.started
        return time.perf_counter() - wall, time.process_time() - cpu
