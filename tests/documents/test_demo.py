"""The demo runs from end to end, if on fewer methods and steps than people see."""

from pathlib import Path

import pytest

import gpn

pytest.importorskip("matplotlib")

from gpn import demo, methods

QUICK = {
    "trunk": gpn.MLPTrunk(widths=(8,)),
    "train": gpn.TrainConfig(steps=3, pool_batch=8),
}


def test_it_prints_a_table_and_leaves_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {
        "gpn": lambda steps: methods.get("gpn", noise_std=0.1, **QUICK),
        "gpn-paper": lambda steps: methods.get("gpn-paper", **QUICK),
    }
    monkeypatch.setattr(demo, "METHODS", few)
    demo.main(tmp_path / "pictures", steps=3)
    printed = capsys.readouterr().out
    for word in ("method", "W2", "exact draws", "gpn-paper", "seconds"):
        assert word in printed
    pictures = list((tmp_path / "pictures").glob("*.png"))
    assert len(pictures) >= 2
    for picture in pictures:
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert picture.stat().st_size > 1000
        assert picture.name in printed.replace("\n", "")


@pytest.mark.parametrize("name", demo.METHODS)
def test_every_method_of_the_demo_can_be_built(name: str) -> None:
    assert callable(demo.METHODS[name](1500).fit)
