"""`python -m tests.fuzz.guided MINUTES [GROUP...]`: damaged inputs that coverage guides (atheris).

atheris keeps each input that reaches a new line of gpn, and damages it further, by its own changes
and by those of the reader, which respect the format. The readers share the time equally, each in a
process of its own; one line of JSON per reader. What comes out beside "read" and "refused" is
kept in a folder, with its traceback; the status is then 1. atheris is not needed elsewhere:
`make fuzz` installs it into an environment of its own.
"""

import hashlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".fuzz"  # inputs that did not end as they should
GROUPS = ("images", "models", "pools", "tables")
MAX_BYTES = 1 << 16
OWN_CHANGE_SHARE = 0.5  # of the changes; the others are atheris's
RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
COVERED = re.compile(r"cov: (\d+)")


def main(minutes: float, groups: tuple[str, ...]) -> int:
    names = [(group, name) for group in groups for name in _names(group)]
    seconds = max(1, round(60 * minutes / len(names)))
    results = [_in_child(*pair, seconds) for pair in names]
    print(json.dumps({"inputs": sum(each["inputs"] for each in results)}), flush=True)
    return int(any(each["wrong"] or each["status"] for each in results))


def _names(group: str) -> list[str]:
    """The readers of a group, asked in another process: making their seeds changes this one."""
    listed = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", "--list", group],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names: list[str] = json.loads(listed.stdout.splitlines()[-1])
    return names


def _in_child(group: str, name: str, seconds: int) -> dict[str, Any]:
    """Fuzz one reader for some seconds."""
    before = set(FOUND.glob("*")) if FOUND.is_dir() else set()
    command = [sys.executable, "-m", "tests.fuzz.guided", "--reader", group, name, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    runs, covered = RUNS.search(done.stderr), COVERED.findall(done.stderr)
    new = sorted(path.name for path in set(FOUND.glob("*")) - before if path.suffix == ".txt")
    result = {
        "reader": name,
        "inputs": int(runs[1]) if runs else 0,
        "coverage": [int(covered[0]), int(covered[-1])] if covered else [],
        "seconds": seconds,
        "status": done.returncode,
        "wrong": new,
    }
    print(json.dumps(result), flush=True)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr, flush=True)
    return result


def fuzz_reader(group: str, name: str, seconds: int) -> None:
    """Never returns: atheris ends the process."""
    import atheris

    with atheris.instrument_imports(include=["gpn"]):
        from tests.fuzz import drive
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, drive._alarm)
    folder = Path(tempfile.mkdtemp())
    reader = next(r for r in drive.GROUPS[group](folder) if r.name == name)
    reader.check()
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(reader.seeds):
        assert len(seed) <= MAX_BYTES, "else atheris would cut it"
        (corpus / str(number)).write_bytes(seed)
    seen: set[str] = set()

    def try_one(content: bytes) -> None:
        outcome = drive.outcome_of(reader, content)
        if outcome not in ("read", "refused"):
            _keep(name, content, outcome, seen)

    def change(content: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < OWN_CHANGE_SHARE:
            try:
                return rng.choice(reader.changes)([content, *reader.seeds][: 1 + seed % 2], rng)[
                    :max_size
                ]
            except Exception:  # the input is no longer of the format that the change respects
                pass
        return bytes(atheris.Mutate(content, max_size))

    options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-print_final_stats=1"]
    limits = ["-timeout=600", "-rss_limit_mb=0", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *options, *limits, str(corpus)], try_one, custom_mutator=change)
    atheris.Fuzz()


def _keep(name: str, content: bytes, outcome: str, seen: set[str]) -> None:
    """Write the first input of each outcome beside its traceback."""
    kind = re.sub(r"\d+", "#", outcome[-400:])
    if kind in seen:
        return
    seen.add(kind)
    FOUND.mkdir(exist_ok=True)
    stem = f"{name.replace(' ', '-')}-{hashlib.sha256(content).hexdigest()[:12]}"
    (FOUND / f"{stem}.bin").write_bytes(content)
    (FOUND / f"{stem}.txt").write_text(outcome)


def _list(group: str) -> None:
    from tests.fuzz import drive

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps([reader.name for reader in drive.GROUPS[group](Path(folder))]))


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        _list(sys.argv[2])
    elif sys.argv[1] == "--reader":
        fuzz_reader(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main(float(sys.argv[1]), tuple(sys.argv[2:]) or GROUPS))
