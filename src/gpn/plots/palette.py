"""Colours that mean the same in every figure, and can be told apart by colour-blind readers."""

# Okabe and Ito's palette: tells methods apart for colour-blind readers and in print.
PALETTE = {
    "ours": "#0072B2",
    "truth": "#000000",
    "paper": "#D55E00",
    "light": "#56B4E9",
    "green": "#009E73",
    "pink": "#CC79A7",
    "orange": "#E69F00",
    "grey": "#999999",
}
INK = "#222222"
CYCLE = [PALETTE[name] for name in ("ours", "orange", "green", "paper", "pink", "light", "grey")]
METHOD_COLORS = {
    "gpn": "ours",
    "gpn-paper": "paper",
    "truth": "truth",
    "ensemble-or": "green",
    "ensemble-pr": "orange",
    "ensemble": "grey",
    "dropout": "pink",
    "sngp": "light",
}
REST = {"dkl": "#8A6D3B", "gp": "#5A5A8A", "mcmc": "#444444"}


def method_color(name: str) -> str:
    """The colour that a method has in every figure."""
    return PALETTE[METHOD_COLORS[name]] if name in METHOD_COLORS else REST.get(name, INK)
