"""What all methods share: tasks, pools, networks, priors and posteriors. No training."""
