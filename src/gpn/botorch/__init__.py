"""A GPN as a BoTorch model. Needs `pip install gpn[botorch]`."""

from gpn.botorch.model import GPNModel, quick_config

__all__ = ["GPNModel", "quick_config"]
