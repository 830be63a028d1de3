"""Section 4 of the paper, and nothing else."""
