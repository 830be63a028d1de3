"""Where unlabeled rows come from: memory, a sampler, a data set or a file."""
