"""The testbed's network agents, with all members of all problems of one shape in one program.

Settings are those published with the testbed: Adam with rate 1e-3, batches of 100, 1,000 steps and
five times as many where n/d > 500 (ten times for the epinet).

    ensemble          λ = √ρ d/n, each member minimises  mean NLL + λ ‖θ‖²
    mlp               an ensemble of one
    ensemble-plus     member j is g_j + (3/√ρ) p_j, p_j a random network that stays as it was drawn
    dropout           hidden layers of 100 units, rate 0.1, one mask for all rows of a draw
    epinet            z ~ N(0, I₈): base network + learnt part of z + (0.3/ρ) Σ_i z_i p_i
    sgmcmc            stochastic-gradient HMC, prior precision in the place of λ
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from experiments.testbed.problems import N_CLASSES, Classification, Setting, truncated_normal

BATCH, STEPS, LONG_RATIO, WARM_UP = 100, 1000, 500, 3
CHUNK_ROWS = 500
Rows = Float[Tensor, "p n d"]
Logits = Float[Tensor, "p k n c"]
Stack = list[tuple[Tensor, Tensor]]  # weights (p, k, i, o) and biases (p, k, 1, o) of each layer


@dataclass(frozen=True)
class Batch:
    """Problems of one shape: d inputs and n labels each."""

    settings: Sequence[Setting]
    x: Float[Tensor, "p n d"]
    y: Tensor

    @classmethod
    def of(cls, problems: Sequence[Classification], device: torch.device) -> "Batch":
        x = torch.stack([problem.x for problem in problems]).to(device)
        y = torch.stack([problem.y for problem in problems]).to(device)
        return cls([problem.setting for problem in problems], x, y)

    def of_each(self, value: Callable[[Setting], float]) -> Tensor:
        """A number for each problem, to be multiplied with parameters or logits."""
        numbers = [value(setting) for setting in self.settings]
        return self.x.new_tensor(numbers)[:, None, None, None]

    def minibatches(self, rng: torch.Generator) -> Iterator[tuple[Rows, Tensor]]:
        """Rows and labels; every label once per epoch, in an order of its own in each problem."""
        p, n = self.y.shape
        while n <= BATCH:
            yield self.x, self.y
        problems = torch.arange(p, device=self.x.device)[:, None]
        while True:
            order = torch.rand(p, n, generator=rng, device=self.x.device).argsort(1)
            for picked in order.split(BATCH, dim=1):
                yield self.x[problems, picked], self.y[problems, picked]


def random_stack(
    p: int, k: int, sizes: Sequence[int], rng: torch.Generator, *, first_bias: bool
) -> Stack:
    """p · k networks; with `first_bias` the first layer has random biases, the others none."""
    stack = []
    for number, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        bias = torch.zeros(p, k, 1, fan_out, device=rng.device)
        if first_bias and number == 0:
            bias = truncated_normal((p, k, 1, fan_out), fan_in, rng)
        stack.append((truncated_normal((p, k, fan_in, fan_out), fan_in, rng), bias))
    return stack


def forward(stack: Stack, x: Float[Tensor, "p #k n d"]) -> Logits:
    return hidden_and_logits(stack, x)[1]


def hidden_and_logits(stack: Stack, x: Float[Tensor, "p #k n d"]) -> tuple[Tensor, Logits]:
    """The last hidden layer, and the output."""
    for weight, bias in stack[:-1]:
        x = torch.relu(x @ weight + bias)
    weight, bias = stack[-1]
    return x, x @ weight + bias


def squares(stack: Stack) -> Float[Tensor, "p 1 1 1"]:
    """‖θ‖² of each problem, over all members."""
    totals = [tensor.square().sum((1, 2, 3)) for layer in stack for tensor in layer]
    return torch.stack(totals).sum(0)[:, None, None, None]


class NetworkAgent(ABC):
    """Parameters for every problem of a batch, and logits of its functions."""

    steps_where_long = 5

    @abstractmethod
    def start(self, batch: Batch, rng: torch.Generator) -> None:
        """Draw the initial parameters."""

    @property
    @abstractmethod
    def stacks(self) -> list[Stack]:
        """What is learnt."""

    @abstractmethod
    def train_logits(self, x: Rows, rng: torch.Generator) -> Logits:
        """Logits of the functions that one step trains."""

    @abstractmethod
    def decay(self, batch: Batch) -> Tensor:
        """λ for the squares of one function's parameters, one for each problem."""

    @abstractmethod
    def draws(self, x: Rows, n: int, rng: torch.Generator) -> Logits:
        """Logits of up to `n` functions at rows of each problem: all members of an ensemble."""

    def fit(self, batch: Batch, rng: torch.Generator, *, graphs: bool = True) -> None:
        """Train all problems of the batch; on a GPU a step is replayed as one CUDA graph."""
        self.start(batch, rng)
        parameters = [t.requires_grad_() for s in self.stacks for layer in s for t in layer]
        update = self.optimiser(parameters, batch, rng)
        decay = self.decay(batch)
        minibatches = batch.minibatches(rng)
        x, y = (tensor.clone() for tensor in next(minibatches))

        def step() -> None:
            loss = self.loss(x, y, decay, rng)
            update(torch.autograd.grad(loss, parameters))

        n_steps = self.n_steps(batch.settings[0])
        repeat = replayed(step, rng) if graphs and x.is_cuda else step
        for number, rows in enumerate(itertools.islice(minibatches, n_steps)):
            for buffer, part in zip((x, y), rows, strict=True):
                buffer.copy_(part)
            repeat()
            self.after(number)
        for parameter in parameters:
            parameter.requires_grad_(requires_grad=False)

    def n_steps(self, setting: Setting) -> int:
        return STEPS * (self.steps_where_long if setting.ratio > LONG_RATIO else 1)

    def loss(self, x: Rows, y: Tensor, decay: Tensor, rng: torch.Generator) -> Tensor:
        """Mean NLL over functions, plus λ ‖θ‖²; the sum over problems, each with its parameters."""
        logits = self.train_logits(x, rng)
        labels = y[:, None].expand(-1, logits.shape[1], -1)
        nll = functional.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")
        penalties = [(decay * squares(stack)).sum() for stack in self.stacks]
        return nll.mean((1, 2)).sum() + torch.stack(penalties).sum()

    def optimiser(
        self, parameters: list[Tensor], batch: Batch, rng: torch.Generator
    ) -> Callable[[Sequence[Tensor]], None]:
        """What moves the parameters, given gradients: Adam."""
        on_gpu = batch.x.is_cuda
        adam = torch.optim.Adam(parameters, lr=1e-3, fused=on_gpu, capturable=on_gpu)

        def update(gradients: Sequence[Tensor]) -> None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            adam.step()

        return update

    def after(self, number: int) -> None:  # noqa: B027  # most agents keep the last state alone
        """Called after each step."""


def replayed(step: Callable[[], None], rng: torch.Generator) -> Callable[[], None]:
    """The step as a CUDA graph, after a few steps on the first rows, which torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(rng)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@dataclass
class Ensemble(NetworkAgent):
    """Members that differ in their initial weights and, where `prior_scale`, in their priors."""

    n_members: int = 100
    prior_scale: float = 0.0
    widths: tuple[int, ...] = (50, 50)

    def start(self, batch: Batch, rng: torch.Generator) -> None:
        p, sizes = len(batch.settings), (batch.x.shape[2], *self.widths, N_CLASSES)
        has_prior = self.prior_scale > 0
        self.members = random_stack(p, self.n_members, sizes, rng, first_bias=has_prior)
        self.prior = random_stack(p, self.n_members, sizes, rng, first_bias=True)
        self.scale = batch.of_each(lambda setting: self.prior_scale / setting.temperature**0.5)

    @property
    def stacks(self) -> list[Stack]:
        return [self.members]

    def train_logits(self, x: Rows, rng: torch.Generator) -> Logits:
        rows = x[:, None]
        logits = forward(self.members, rows)
        if self.prior_scale == 0:
            return logits
        with torch.no_grad():
            prior = self.scale * forward(self.prior, rows)
        return logits + prior

    def decay(self, batch: Batch) -> Tensor:
        return batch.of_each(l2_weight) / self.n_members

    def draws(self, x: Rows, n: int, rng: torch.Generator) -> Logits:
        with torch.no_grad():
            chunks = [self.train_logits(chunk, rng) for chunk in x.split(CHUNK_ROWS, dim=1)]
            return torch.cat(chunks, dim=2)


@dataclass
class Dropout(NetworkAgent):
    """One network; a function is one mask on the units of its hidden layers."""

    rate: float = 0.1
    widths: tuple[int, ...] = (100, 100)

    def start(self, batch: Batch, rng: torch.Generator) -> None:
        p, sizes = len(batch.settings), (batch.x.shape[2], *self.widths, N_CLASSES)
        self.network = random_stack(p, 1, sizes, rng, first_bias=True)

    @property
    def stacks(self) -> list[Stack]:
        return [self.network]

    def train_logits(self, x: Rows, rng: torch.Generator) -> Logits:
        return self._masked(x, self._masks(len(x), 1, rng))

    def decay(self, batch: Batch) -> Tensor:
        return batch.of_each(l2_weight)

    def draws(self, x: Rows, n: int, rng: torch.Generator) -> Logits:
        masks = self._masks(len(x), n, rng)
        return torch.cat([self._masked(chunk, masks) for chunk in x.split(CHUNK_ROWS, 1)], dim=2)

    def _masks(self, p: int, n: int, rng: torch.Generator) -> list[Tensor]:
        shapes = [(p, n, 1, width) for width in self.widths]
        uniform = [torch.rand(shape, generator=rng, device=rng.device) for shape in shapes]
        return [(values > self.rate).float() / (1 - self.rate) for values in uniform]

    def _masked(self, x: Rows, masks: list[Tensor]) -> Logits:
        hidden = x[:, None]
        for (weight, bias), mask in zip(self.network[:-1], masks, strict=True):
            hidden = torch.relu((hidden @ weight + bias) * mask)
        weight, bias = self.network[-1]
        return hidden @ weight + bias


@dataclass
class Epinet(NetworkAgent):
    """A base network, and an epinet of its last hidden layer, the row and an index z ~ N(0, I)."""

    index_dim: int = 8
    prior_scale: float = 0.3
    widths: tuple[int, ...] = (50, 50)
    epinet_widths: tuple[int, ...] = (15, 15)
    prior_widths: tuple[int, ...] = (5, 5)
    steps_where_long = 10

    def start(self, batch: Batch, rng: torch.Generator) -> None:
        p, d, q = len(batch.settings), batch.x.shape[2], self.index_dim
        sizes = (d, *self.widths, N_CLASSES)
        epinet_sizes = (q + d + self.widths[-1], *self.epinet_widths, N_CLASSES * q)
        self.base = random_stack(p, 1, sizes, rng, first_bias=False)
        self.epinet = random_stack(p, 1, epinet_sizes, rng, first_bias=False)
        prior_sizes = (d, *self.prior_widths, N_CLASSES)
        self.prior = random_stack(p, q, prior_sizes, rng, first_bias=False)
        self.scale = batch.of_each(lambda setting: self.prior_scale / setting.temperature)

    @property
    def stacks(self) -> list[Stack]:
        return [self.base, self.epinet]

    def train_logits(self, x: Rows, rng: torch.Generator) -> Logits:
        return self._at_indices(x, self._indices(len(x), self.index_dim, rng))

    def decay(self, batch: Batch) -> Tensor:
        return batch.of_each(lambda setting: 0.2 / setting.ratio**0.7)

    def draws(self, x: Rows, n: int, rng: torch.Generator) -> Logits:
        z = self._indices(len(x), n, rng)
        with torch.no_grad():
            chunks = [self._at_indices(chunk, z) for chunk in x.split(CHUNK_ROWS // 5, dim=1)]
        return torch.cat(chunks, dim=2)

    def _indices(self, p: int, n: int, rng: torch.Generator) -> Float[Tensor, "p m q"]:
        return torch.randn(p, n, self.index_dim, generator=rng, device=rng.device)

    def _at_indices(self, x: Rows, z: Float[Tensor, "p m q"]) -> Logits:
        rows, (p, m, q) = x[:, None], z.shape
        hidden, logits = hidden_and_logits(self.base, rows)
        inputs = torch.cat([rows, hidden.detach()], dim=-1).expand(-1, m, -1, -1)
        repeated = z[:, :, None].expand(-1, -1, x.shape[1], -1)
        learnt = forward(self.epinet, torch.cat([repeated, inputs], dim=-1))
        learnt = learnt.reshape(p, m, x.shape[1], N_CLASSES, q) @ z[:, :, None, :, None]
        prior = torch.einsum("pqnc,pmq->pmnc", forward(self.prior, rows), z)
        return logits + learnt[..., 0] + self.scale * prior


@dataclass
class SGMCMC(NetworkAgent):
    """Stochastic-gradient HMC with momentum 0.9 (Chen et al. 2014): one chain per problem.

    States are kept every thousand steps after a warm-up. The prior precision takes the place of λ.
    """

    steps: int = 500_000
    warm_up: int = 100_000
    keep_every: int = 1000
    prior_variance: float = 0.1
    rate: float = 1e-4
    momentum: float = 0.9
    widths: tuple[int, ...] = (50, 50)

    def start(self, batch: Batch, rng: torch.Generator) -> None:
        sizes = (batch.x.shape[2], *self.widths, N_CLASSES)
        self.chain = random_stack(len(batch.settings), 1, sizes, rng, first_bias=False)
        self.kept: list[Stack] = []

    @property
    def stacks(self) -> list[Stack]:
        return [self.chain]

    def n_steps(self, setting: Setting) -> int:
        return self.steps

    def train_logits(self, x: Rows, rng: torch.Generator) -> Logits:
        return forward(self.chain, x[:, None])

    def decay(self, batch: Batch) -> Tensor:
        return batch.of_each(l2_weight) / self.prior_variance

    def optimiser(
        self, parameters: list[Tensor], batch: Batch, rng: torch.Generator
    ) -> Callable[[Sequence[Tensor]], None]:
        """m ← 0.9 m + √rate ∇ − √(2 · 0.1 / n) ξ,   θ ← θ − √rate m."""
        speeds = [torch.zeros_like(parameter) for parameter in parameters]
        noise_std = (2 * (1 - self.momentum) / batch.settings[0].n_labels) ** 0.5

        @torch.no_grad()
        def update(gradients: Sequence[Tensor]) -> None:
            for parameter, speed, gradient in zip(parameters, speeds, gradients, strict=True):
                noise = torch.randn(parameter.shape, generator=rng, device=parameter.device)
                speed.mul_(self.momentum).add_(gradient, alpha=self.rate**0.5)
                speed.sub_(noise, alpha=noise_std)
                parameter.sub_(speed, alpha=self.rate**0.5)

        return update

    def after(self, number: int) -> None:
        if number >= self.warm_up and number % self.keep_every == 0:
            self.kept.append([(w.detach().clone(), b.detach().clone()) for w, b in self.chain])

    def draws(self, x: Rows, n: int, rng: torch.Generator) -> Logits:
        """The states that were kept, each once."""
        rows = x[:, None]
        return torch.cat([forward(state, rows) for state in self.kept], dim=1)


def l2_weight(setting: Setting) -> float:
    """λ = √ρ d/n."""
    return setting.temperature**0.5 / setting.ratio
