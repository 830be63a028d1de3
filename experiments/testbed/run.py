"""Runs agents on problems; a finished problem is one line of `<agent>.jsonl`.

A run that is stopped, or ends at its deadline, resumes with the problems that have no line yet.
Several processes may share the work: each takes every n-th problem.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from experiments.harness import hardware, versions
from experiments.testbed.agents import AGENTS, COST_AGENTS, Agent, Networks, run_regression
from experiments.testbed.problems import (
    SEEDS,
    TAUS,
    RegressionSetting,
    Setting,
    classification,
    classification_settings,
    regression,
    regression_settings,
)

Line = dict[str, Any]
Shape = tuple[int, int]  # d and n/d


@dataclass(frozen=True)
class Options:
    """Where results go, and which part of the work is this process's.

    share
        (i, n): problems i, i + n, …
    deadline
        Seconds after which no further problem is begun.
    """

    folder: Path
    device: str = "cpu"
    seeds: tuple[int, ...] = SEEDS
    shapes: tuple[Shape, ...] | None = None
    share: tuple[int, int] = (0, 1)
    deadline: float = float("inf")
    graphs: bool = True

    def mine(self, settings: Sequence[Any]) -> list[Any]:
        """Settings of the wanted shapes, small ones first, of which this process has a share."""
        wanted = [
            s for s in settings if self.shapes is None or (s.n_inputs, s.ratio) in self.shapes
        ]
        number, count = self.share
        return sorted(wanted, key=lambda s: s.n_labels)[number::count]

    def place(self) -> Line:
        return {"device": hardware(torch.device(self.device)), "versions": versions()}


def run(name: str, options: Options) -> None:
    """Every classification problem without a line."""
    started, path, agent = time.perf_counter(), options.folder / f"{name}.jsonl", AGENTS[name]
    if isinstance(agent, Networks):
        agent = replace(agent, graphs=options.graphs)
    done = {setting_of(line) for line in read(path)}
    settings = options.mine(classification_settings(options.seeds))
    left = [setting for setting in settings if setting not in done]
    for batch in batches(left, one_by_one=not agent.batched):
        if time.perf_counter() - started > options.deadline:
            break
        run_batch(agent, batch, path, options)


def run_batch(agent: Agent, batch: Sequence[Setting], path: Path, options: Options) -> None:
    problems = [classification(setting) for setting in batch]
    outcomes = agent.run(problems, torch.device(options.device))
    for setting, outcome in zip(batch, outcomes, strict=True):
        scores = {f"kl_tau_{tau}": outcome.scores[tau] for tau in TAUS}
        seconds = {"seconds": outcome.seconds, "cpu_seconds": outcome.cpu_seconds}
        line = {**asdict(setting), **scores, **seconds, "shared_by": len(batch)}
        append(path, {**line, **options.place()})


def run_cost(options: Options) -> None:
    """Each problem alone, by one agent after the other."""
    started, device = time.perf_counter(), torch.device(options.device)
    agents = {
        name: replace(agent, graphs=options.graphs) if isinstance(agent, Networks) else agent
        for name, agent in COST_AGENTS.items()
    }
    for agent in agents.values():  # what the first fit of a process loads is nobody's cost
        agent.run([classification(Setting(2, 1, 0.1, 0))], device)
    for setting in options.mine(classification_settings(options.seeds)):
        for name, agent in agents.items():
            path = options.folder / f"cost-{name}.jsonl"
            is_done = setting in {setting_of(line) for line in read(path)}
            if not is_done and time.perf_counter() - started < options.deadline:
                run_batch(agent, [setting], path, options)


def run_all_regression(name: str, options: Options) -> None:
    """Every regression problem without a line."""
    started, path = time.perf_counter(), options.folder / f"{name}-regression.jsonl"
    done = {regression_setting_of(line) for line in read(path)}
    for setting in options.mine(regression_settings(options.seeds)):
        if setting in done or time.perf_counter() - started > options.deadline:
            continue
        kl, seconds = run_regression(name, regression(setting, options.device))
        append(path, {**asdict(setting), "kl": kl, "seconds": seconds, **options.place()})


def batches(settings: Sequence[Setting], *, one_by_one: bool) -> list[list[Setting]]:
    """Those of one shape together, or one by one."""
    if one_by_one:
        return [[setting] for setting in settings]
    by_shape: dict[Shape, list[Setting]] = {}
    for setting in settings:
        by_shape.setdefault((setting.n_inputs, setting.ratio), []).append(setting)
    return list(by_shape.values())


def setting_of(line: Line) -> Setting:
    return Setting(line["n_inputs"], line["ratio"], line["temperature"], line["seed"])


def regression_setting_of(line: Line) -> RegressionSetting:
    return RegressionSetting(line["n_inputs"], line["ratio"], line["noise_std"], line["seed"])


def append(path: Path, line: Line) -> None:
    """Whole lines only, so that several processes may share a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> list[Line]:
    """The finished problems; a torn line is dropped."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
