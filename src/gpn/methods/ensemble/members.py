"""m networks in one module, and the Gaussian prior over their parameters.

The first axis of every parameter runs over the members.
"""

import copy
import itertools
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional

from gpn.core.networks.layers import ACTIVATIONS
from gpn.core.networks.trunks import Trunk, require_plain_trunk
from gpn.core.priors.prior import FixedFunctions, PriorSpec
from gpn.core.task import Signature
from gpn.core.types import Functions, Inputs, normal

MemberFeatures = Float[Tensor, "#k n h"]
Variances = float | tuple[float, ...]


class Members(nn.Module):
    """`members(x)[j]` is member j at the rows of x; each member is a trunk and an output layer."""

    def __init__(self, trunk: Trunk, signature: Signature, n: int, rng: torch.Generator) -> None:
        super().__init__()
        require_plain_trunk(trunk, "an ensemble")
        built = [trunk.features(signature.input_shape, rng) for _ in range(n)]
        sizes = (built[0][1], *trunk.widths, signature.n_outputs)
        self.features = StackedFeatures([module for module, _ in built])
        self.layers = nn.ModuleList(
            StackedLinear(n, *pair, rng) for pair in itertools.pairwise(sizes)
        )
        self.activation = ACTIVATIONS[trunk.activation]()

    def forward(self, x: Inputs) -> Functions:
        hidden = self.features(x)
        for layer in self.layers[:-1]:
            hidden = self.activation(layer(hidden))
        return self.layers[-1](hidden)

    def pick(self, which: Int[Tensor, "s"]) -> "Members":
        """A copy with only the members `which`, in that order."""
        chosen = copy.deepcopy(self)
        for tensor in itertools.chain(chosen.parameters(), chosen.buffers()):
            tensor.data = tensor.data[which]
        return chosen


class MembersWithPrior(Members):
    """f_j = g_j + scale · p_j: the prior function p_j of each member is not learnt."""

    def __init__(
        self,
        trunk: Trunk,
        signature: Signature,
        n: int,
        rng: torch.Generator,
        prior: PriorSpec,
        scale: float,
    ) -> None:
        super().__init__(trunk, signature, n, rng)
        drawn = prior.sample(signature.input_shape, signature.n_outputs, n, rng)
        self.prior, self.scale = FixedFunctions(drawn), scale

    def forward(self, x: Inputs) -> Functions:
        return super().forward(x) + self.scale * self.prior(x)


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


@dataclass(frozen=True)
class ParameterGaussian:
    """A stacked parameter ``(m, ...)`` with prior N(centre, variance); its anchors have `std`."""

    parameter: nn.Parameter
    centre: Tensor
    variance: float
    std: float

    def sample(self, rng: torch.Generator) -> Tensor:
        return self.centre + self.std * normal(tuple(self.centre.shape), rng, self.centre)


class ParameterPrior:
    """A layer's weights ~ N(0, v / fan-in) and its biases ~ N(0, v_bias), for every member.

    A parameter with zero prior variance is fixed at 0. The scales of normalisation layers are
    anchored at their initial values. Frozen parameters have no prior.
    """

    def __init__(self, members: Members, weights: Variances, biases: Variances) -> None:
        named = [(n, p) for n, p in members.named_parameters() if p.requires_grad]
        n_layers = sum(parameter.ndim > 2 for _, parameter in named)
        per_layer = [_per_layer(variances, n_layers) for variances in (weights, biases)]
        layer, self.gaussians = -1, []
        for name, parameter in named:
            layer += parameter.ndim > 2  # a layer begins with its weight
            variances = [values[max(layer, 0)] for values in per_layer]
            self.gaussians.append(_gaussian(name, parameter, *variances))

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Set the members to a draw of the prior; parameters without variance stop training."""
        for gaussian in self.gaussians:
            gaussian.parameter.copy_(gaussian.sample(rng)).requires_grad_(gaussian.variance > 0)

    def sample(self, rng: torch.Generator) -> list[Tensor]:
        """One draw of every member's parameters."""
        return [gaussian.sample(rng) for gaussian in self.gaussians]

    def distance(self, anchors: list[Tensor]) -> Float[Tensor, ""]:
        """Σ_j ‖Σ_prior^−½ (θ_j − θ_anc,j)‖²."""
        gaps = [
            functional.mse_loss(gaussian.parameter, anchor, reduction="sum") / gaussian.variance
            for gaussian, anchor in zip(self.gaussians, anchors, strict=True)
            if gaussian.variance > 0
        ]
        return torch.stack(gaps).sum()


def _gaussian(
    name: str, parameter: nn.Parameter, weight_variance: float, bias_variance: float
) -> ParameterGaussian:
    if parameter.ndim == 2 and name.endswith("weight"):  # the scale of a normalisation layer
        return ParameterGaussian(parameter, parameter.detach().clone(), variance=1.0, std=0.0)
    variance = weight_variance / parameter[0, 0].numel() if parameter.ndim > 2 else bias_variance
    return ParameterGaussian(parameter, torch.zeros_like(parameter), variance, variance**0.5)


def _per_layer(values: Variances, n_layers: int) -> tuple[float, ...]:
    every = values if isinstance(values, tuple) else (values,) * n_layers
    if len(every) != n_layers or min(every) < 0:
        raise ValueError(
            "prior_variance and bias_variance must be one non-negative number, or one per layer, "
            f"{n_layers} here, got {values}."
        )
    return every
