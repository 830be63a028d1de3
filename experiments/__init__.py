"""The experiments behind every table and figure; imports gpn, never the reverse.

A suite is one module, or one folder once it needs several: `paper` (the paper's tasks), `fidelity`
(distance to exact posteriors), `tables` (twenty regression tables against other methods),
`active_learning`, `optimisation`, `mcmc_agreement`, `command_line`. New suites get a folder each:
`shifts` and `testbed` are the names agreed on. All of them read and write `results/` through
`harness`.
"""
