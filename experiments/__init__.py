"""The experiments behind every table and figure; imports gpn, never the reverse.

A suite is one module, or one folder once it needs several: `paper` (the paper's tasks), `fidelity`
(distance to exact posteriors), `active_learning`, `optimisation`, `mcmc_agreement`, `command_line`.
New suites get a folder each: `tables`, `shifts` and `testbed` are the names agreed on. All of them
read and write `results/` through `harness`.
"""
