"""One file per method; each has the same order inside: config, fit, posterior."""
