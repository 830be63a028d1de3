"""The one training loop and what may surround it; it knows no model."""
