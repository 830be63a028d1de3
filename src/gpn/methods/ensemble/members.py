"""m networks in one module: the first axis of every parameter runs over the members."""

import copy
import itertools

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from gpn.core.networks.layers import ACTIVATIONS
from gpn.core.networks.trunks import Trunk, refuse_extras
from gpn.core.task import Signature
from gpn.core.types import Functions, Inputs

MemberFeatures = Float[Tensor, "#k n h"]


class Members(nn.Module):
    """`members(x)[j]` is member j at the rows of x; each member is a trunk and an output layer."""

    def __init__(self, trunk: Trunk, signature: Signature, n: int, rng: torch.Generator) -> None:
        super().__init__()
        refuse_extras(trunk, "an ensemble")
        built = [trunk.features(signature.input_shape, rng) for _ in range(n)]
        sizes = (built[0][1], *trunk.widths, signature.n_outputs)
        self.features = StackedFeatures([module for module, _ in built])
        self.layers = nn.ModuleList(
            StackedLinear(n, *pair, rng) for pair in itertools.pairwise(sizes)
        )
        self.activation = ACTIVATIONS[trunk.activation]()

    def forward(self, x: Inputs) -> Functions:
        *inner, last = self.layers
        hidden = self.features(x)
        for layer in inner:
            hidden = self.activation(layer(hidden))
        return last(hidden)

    def pick(self, which: Int[Tensor, "s"]) -> "Members":
        """A copy with only the members `which`, in that order."""
        chosen = copy.deepcopy(self)
        for tensor in itertools.chain(chosen.parameters(), chosen.buffers()):
            tensor.data = tensor.data[which]
        return chosen

    @property
    def example(self) -> Tensor:
        """A parameter, for the number of members, the device and the dtype."""
        return next(self.layers.parameters())

    def __len__(self) -> int:
        return len(self.example)


class StackedLinear(nn.Module):
    """W_j h + c_j for every member j in one batched product; initialised like `nn.Linear`."""

    def __init__(self, n: int, fan_in: int, fan_out: int, rng: torch.Generator) -> None:
        super().__init__()
        bound = fan_in**-0.5
        weight = torch.empty(n, fan_out, fan_in).uniform_(-bound, bound, generator=rng)
        bias = torch.empty(n, fan_out).uniform_(-bound, bound, generator=rng)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, hidden: MemberFeatures) -> Float[Tensor, "k n o"]:
        expanded = hidden.expand(len(self.weight), -1, -1)
        return torch.baddbmm(self.bias[:, None, :], expanded, self.weight.mT)


class StackedFeatures(nn.Module):
    """The members' feature modules as one; features without state are computed only once.

    Parameter names have slashes for dots, which torch does not allow in a name.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        parameters, buffers = stack_module_state(modules)
        for name, tensor in parameters.items():
            stacked = nn.Parameter(tensor.detach().clone(), requires_grad=tensor.requires_grad)
            self.register_parameter(name.replace(".", "/"), stacked)
        for name, tensor in buffers.items():
            self.register_buffer(name.replace(".", "/"), tensor.clone())
        # in a tuple, so that torch does not register the template's parameters
        self.template = (modules[0].to("meta"),)

    def forward(self, x: Inputs) -> MemberFeatures:
        x = x.contiguous()  # grouped convolutions are slow with channels last
        template = self.template[0].train(self.training)
        named = itertools.chain(self.named_parameters(), self.named_buffers())
        states = {name.replace("/", "."): tensor for name, tensor in named}
        if not states:
            return template(x)[None]
        return torch.vmap(lambda state: functional_call(template, state, (x,)))(states)
