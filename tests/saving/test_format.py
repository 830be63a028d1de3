"""One file per posterior: complete or absent, readable without pickle, clear when it is wrong."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import gpn
from gpn.core.files import checksum
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.methods.dropout import Dropout, DropoutConfig, DropoutPosterior
from gpn.methods.ensemble import Ensemble, EnsembleConfig
from gpn.saving import encoding
from gpn.saving.format import load, save
from gpn.saving.validation import AllocationLimit, ModelError

TRAIN = gpn.TrainConfig(steps=5, device="cpu")
CONFIG = DropoutConfig(trunk=gpn.MLPTrunk(widths=(8,), fourier=4), train=TRAIN)
X = torch.linspace(-1, 1, 4)[:, None]


@pytest.fixture
def posterior(line: gpn.Task) -> DropoutPosterior:
    return Dropout(CONFIG).fit(line, rng=0)


def rewrite(path: Path, **changes: str) -> None:
    """The same file with another header, which is signed again."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = {**file.metadata(), **changes}
    save_file(tensors, path, metadata={**header, "checksum": checksum(header, tensors)})


def rewrite_tensors(path: Path, **changes: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The same file with some tensors changed, which is signed again."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    changed = {name: change(tensors[name]).contiguous() for name, change in changes.items()}
    every = {**tensors, **changed}
    save_file(every, path, metadata={**header, "checksum": checksum(header, every)})


def test_a_round_trip_keeps_everything(posterior: DropoutPosterior, tmp_path: Path) -> None:
    save(posterior, tmp_path / "model.gpn")
    loaded: Any = load(tmp_path / "model.gpn")
    assert loaded.config == posterior.config
    assert loaded.signature == posterior.signature
    assert torch.equal(loaded.sample(X, 9, rng=0), posterior.sample(X, 9, rng=0))
    assert [path.name for path in tmp_path.iterdir()] == ["model.gpn"]


def test_a_part_of_an_ensemble_can_be_saved(line: gpn.Task, tmp_path: Path) -> None:
    config = EnsembleConfig(trunk=gpn.MLPTrunk(widths=(8,)), n_members=4, train=TRAIN)
    part = Ensemble(config).fit(line, rng=0).first(2)
    save(part, tmp_path / "part.gpn")
    loaded: Any = load(tmp_path / "part.gpn")
    assert loaded.members == 2
    assert torch.equal(loaded.sample(X, 2, rng=0), part.sample(X, 2, rng=0))


def test_images_come_back(tmp_path: Path) -> None:
    x = torch.rand(6, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    trunk = gpn.ConvTrunk(channels=(3,), widths=(8,))
    config = EnsembleConfig(trunk=trunk, n_members=3, train=TRAIN)
    posterior = Ensemble(config).fit(gpn.Task(x, torch.arange(6) % 2), rng=0)
    save(posterior, tmp_path / "images.gpn")
    assert torch.equal(
        load(tmp_path / "images.gpn").sample(x, 3, rng=0), posterior.sample(x, 3, rng=0)
    )


def test_the_header_is_plain_text(posterior: DropoutPosterior, tmp_path: Path) -> None:
    save(posterior, tmp_path / "model.gpn")
    with safe_open(tmp_path / "model.gpn", framework="pt") as file:
        header = file.metadata()
    assert (header["format"], header["version"], header["method"]) == ("gpn", "1", "dropout")
    assert json.loads(header["config"])["class"] == "DropoutConfig"
    assert json.loads(header["signature"])["n_outputs"] == 1


def test_a_failed_write_leaves_the_old_file(
    posterior: DropoutPosterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gpn"
    path.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        save(posterior, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gpn"]


def test_a_truncated_file_is_named(posterior: DropoutPosterior, tmp_path: Path) -> None:
    path = tmp_path / "model.gpn"
    save(posterior, path)
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="must be a complete file"):
            load(path)


def test_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "other.gpn"
    path.write_bytes(b"PK\x03\x04 something else entirely, and long enough to be read")
    with pytest.raises(ValueError, match=r"must be a complete file that gpn\.save wrote"):
        load(path)
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"must be a file that gpn\.save wrote, got format None"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.gpn")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "2"}, "must have format version 1, .*upgrade gpn"),
        ({"version": "2", "written_by": "7.1"}, r"got 2, which needs gpn 7\.1; upgrade gpn"),
        ({"config": "{}", "written_by": "7.1"}, r"must be opened by gpn 7\.1 or newer, .* upgrade"),
        ({"config": "{}", "written_by": "0.1.9"}, "the file is damaged, save it again"),
        ({"config": "{}", "written_by": "9" * 5000}, "the file is damaged, save it again"),
        ({"method": "droput"}, "did you mean 'dropout'"),
        ({"method": "gp"}, "must fit its method 'gp'"),
        ({"config": "{"}, "header .* must be JSON"),
        ({"signature": "{}"}, "must fit its method"),
        ({"estimator": "0"}, "the estimator must be complete"),
        ({"estimator": "null"}, "the estimator must be complete"),
        ({"estimator": '{"columns": 1}'}, "the estimator must be complete"),
    ],
)
def test_wrong_headers_are_named(
    posterior: DropoutPosterior, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    save(posterior, tmp_path / "model.gpn")
    rewrite(tmp_path / "model.gpn", **changes)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model.gpn")


def test_a_file_that_asks_for_too_much_leaves_gradients_on() -> None:
    with pytest.raises(ModelError, match="far more numbers"), AllocationLimit({}), torch.no_grad():
        torch.empty(1 << 23)
    assert torch.is_grad_enabled()


def test_one_changed_byte_is_named(posterior: DropoutPosterior, tmp_path: Path) -> None:
    path = tmp_path / "model.gpn"
    save(posterior, path)
    whole = path.read_bytes()
    assert whole.count(b"0.2") >= 1, "the header holds the configuration"
    for content in (
        whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        whole.replace(b"0.2", b"0.3", 1),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="its checksum differs, so that some bytes have"):
            load(path)


def test_a_file_of_a_newer_version_opens_as_long_as_it_holds_nothing_new(
    posterior: DropoutPosterior, tmp_path: Path
) -> None:
    save(posterior, tmp_path / "model.gpn")
    rewrite(tmp_path / "model.gpn", written_by="7.1")
    x = torch.zeros(2, 1)
    torch.testing.assert_close(load(tmp_path / "model.gpn").mean(x), posterior.mean(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_file_from_a_gpu_opens_on_a_cpu(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 20)[:, None]
    for config in (gpn.GPNConfig(generator="closed-form", prior=gpn.ARDPrior((1.0,))), None):
        train = gpn.TrainConfig(device="cuda", steps=20)
        there = gpn.GPN((config or gpn.GPNConfig()).replace(train=train)).fit(gpn.Task(x, x), rng=0)
        save(there, tmp_path / "m.gpn")
        here: Any = load(tmp_path / "m.gpn", device="cpu")
        assert here.mean(x).device.type == "cpu"
        torch.testing.assert_close(
            here.mean(x), there.mean(x.cuda()).cpu(), rtol=1e-3, atol=1e-3, check_dtype=False
        )


def test_your_own_module_is_for_pickle(line: gpn.Task, tmp_path: Path) -> None:
    trunk = gpn.ModuleTrunk(module=nn.Linear(1, 4), widths=(8,))
    posterior = Dropout(CONFIG.replace(trunk=trunk)).fit(line, rng=0)
    with pytest.raises(TypeError, match=r"got Linear; use pickle or joblib .* nn\.Module"):
        save(posterior, tmp_path / "model.gpn")
    assert not list(tmp_path.iterdir())


def test_a_posterior_without_tensors_cannot_be_saved(line: gpn.Task, tmp_path: Path) -> None:
    class Bare(Posterior):
        def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
            raise NotImplementedError

    bare = Bare(line.signature, torch.device("cpu"), torch.float32)
    with pytest.raises(TypeError, match="got Bare, which has not"):
        save(bare, tmp_path / "model.gpn")


def test_configurations_survive_json() -> None:
    configs = [
        EnsembleConfig(prior_variance=(40.0, 10.0), prior=gpn.ConvPrior(), beta=None),
        EnsembleConfig(beta=0.1 + 0.2, trunk=gpn.ConvTrunk()),
        gpn.GPNConfig.paper(),
        DropoutConfig(),
    ]
    for config in configs:
        text = json.dumps(encoding.encode(config))
        assert encoding.decode_config(json.loads(text)) == config


def test_fields_that_a_file_lacks_have_the_values_of_its_time() -> None:
    """Files of residual networks from before views were shifted and first layers whitened."""
    made = gpn.ResNetTrunk(channels=(4, 8))
    encoded = encoding.encode(made)
    assert encoding.decode_config(encoded) == made
    for name in ("shift", "whiten"):
        del encoded["settings"][name]
    assert encoding.decode_config(encoded) == made.replace(shift=0, whiten=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "high"}, "must have float here, got 'high'"),
        ({"trunk": {"class": "MLPPrior", "settings": {}}}, "must have a Trunk here"),
        ({"trunk": {"class": "Popen", "settings": {}}}, "known class, got 'Popen'"),
        ({"trunk": 3}, "must have Trunk here, got 3"),
        ({"speed": 1}, "a key of DropoutConfig here, got 'speed'"),
    ],
)
def test_decoding_checks_types(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoding.decode_config({"class": "DropoutConfig", "settings": settings})
