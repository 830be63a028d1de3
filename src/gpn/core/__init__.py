"""What every method speaks: tasks, pools, networks, priors and posteriors. No training."""
