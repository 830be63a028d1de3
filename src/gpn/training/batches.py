"""Which labeled rows a step sees."""

import torch
from torch import Tensor

from gpn.training.state import Stream


class LabelBatches:
    """Indices of labeled rows: all of them if they fit a batch, else shuffled epoch by epoch."""

    def __init__(self, n_labels: int, batch: int, rng: torch.Generator) -> None:
        self.n_labels = n_labels
        self.batch = min(batch, n_labels)
        self.rng = rng
        self.order = torch.arange(n_labels, device=rng.device)
        self.position = n_labels

    def next(self) -> Tensor:
        if self.batch == self.n_labels:
            return self.order
        if self.position + self.batch > self.n_labels:
            self.order = torch.randperm(self.n_labels, generator=self.rng, device=self.rng.device)
            self.position = 0
        self.position += self.batch
        return self.order[self.position - self.batch : self.position]

    @property
    def streams(self) -> list[Stream]:
        """The random sources that `next` advances."""
        return [self, self.rng]

    def get_state(self) -> Tensor:
        return torch.cat([self.order.new_tensor([self.position]), self.order])

    def set_state(self, state: Tensor) -> None:
        self.position, self.order = int(state[0]), state[1:].to(self.order.device)
