"""`python -m experiments.testbed run | regression | cost | collect | table | figure`."""

import argparse
from pathlib import Path
from typing import Any

from experiments.testbed.agents import AGENTS, REGRESSION_AGENTS
from experiments.testbed.problems import REGRESSION_SEEDS, SEEDS
from experiments.testbed.run import Options, run, run_all_regression, run_cost


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    described = {
        "run": "classification: every problem of these agents",
        "regression": "regression: every problem of these agents",
        "cost": "each problem alone: ensemble-plus, and gpn-true-prior with few landmarks",
    }
    for name, text in described.items():
        command = commands.add_parser(name, help=text)
        known = {"run": AGENTS, "regression": REGRESSION_AGENTS, "cost": {}}[name]
        if known:
            command.add_argument("agents", choices=known, nargs="+")
        seeds = REGRESSION_SEEDS if name == "regression" else SEEDS
        command.add_argument("--folder", type=Path, required=True, help="of finished problems")
        command.add_argument("--device", default="cpu")
        command.add_argument("--seeds", type=int, nargs="+", default=seeds)
        command.add_argument("--shapes", type=_pair, nargs="+", help="as 10x100: d and n/d")
        command.add_argument("--share", type=_pair, default=(0, 1), help="as 0x4: first of four")
        command.add_argument("--deadline", type=float, default=float("inf"), help="in seconds")
        command.add_argument("--no-graphs", action="store_true", help="without CUDA graphs")
    collect = commands.add_parser("collect", help="result files, from finished problems")
    collect.add_argument("--folder", type=Path, required=True)
    commands.add_parser("table", help="print the tables, from the result files")
    commands.add_parser("figure", help="draw the figure, from the result files")
    arguments = parser.parse_args()
    if arguments.command in described:
        _run(arguments)
        return
    from experiments.testbed import report

    if arguments.command == "collect":
        report.collect(arguments.folder)
    else:
        print(report.tables() if arguments.command == "table" else report.figure())


def _run(arguments: argparse.Namespace) -> None:
    options = Options(
        folder=arguments.folder,
        device=arguments.device,
        seeds=tuple(arguments.seeds),
        shapes=None if arguments.shapes is None else tuple(arguments.shapes),
        share=arguments.share,
        deadline=arguments.deadline,
        graphs=not arguments.no_graphs,
    )
    if arguments.command == "cost":
        run_cost(options)
        return
    work = run if arguments.command == "run" else run_all_regression
    for agent in arguments.agents:
        work(agent, options)


def _pair(text: str) -> Any:
    left, _, right = text.partition("x")
    if not (left.isdecimal() and right.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be two whole numbers as in 10x100, got {text!r}")
    return int(left), int(right)


if __name__ == "__main__":
    main()
