"""Colours with one meaning in all figures (Okabe and Ito's, distinct to colour-blind readers)."""

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
OTHER_COLORS = {
    "dkl": "#8A6D3B",
    "gp": "#5A5A8A",
    "gpc": "#8C8CC0",
    "mcmc": "#444444",
    "ensemble-plus": "#6B8E23",
    "epinet": "#9B5DE5",
}


def method_color(name: str) -> str:
    """The colour of a method in all figures."""
    return PALETTE[METHOD_COLORS[name]] if name in METHOD_COLORS else OTHER_COLORS.get(name, INK)
