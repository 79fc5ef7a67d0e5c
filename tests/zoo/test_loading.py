"""One function loads any model, and says what it expected when there is none."""

import sys

import pytest
import torch
from torch import nn

from gausslens import CheckpointError, ConfigError, DataError, GaussianDenoiser, Moments, Run, TrainConfig, gap
from gausslens.denoisers.schedules import Discrete
from gausslens.nn import build_network
from gausslens.store.run import load_trained
from gausslens.store.weights import build_denoiser
from gausslens.zoo import edm
from gausslens.zoo.loading import load_denoiser, load_model
from gausslens.zoo.model import Model, fingerprint
from gausslens.zoo.parametrizations import from_eps

MODULE = """
import warnings

import torch
from gausslens.zoo.model import Model

def shrink(x, sigma):
    return x / (1 + sigma.reshape(-1, 1, 1, 1) ** 2)

def shift(x, sigma, labels):
    return x + labels.reshape(-1, 1, 1, 1)

class Scale(torch.nn.Module):
    def __init__(self, value=0.5):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, sigma):
        return self.dropout(self.value * x)

network = Scale()

def make(value=0.25):
    return Scale(value)

def make_function():
    return shrink

def make_model():
    return Model(Scale(2.0), (1, 4, 4), classes=3, bounds=None)

def fail():
    raise RuntimeError("no weights here")

def fail_at_length():
    raise RuntimeError("missing keys:\\n\\tfirst\\n\\tsecond")

def leave():
    raise SystemExit(0)

def make_without_values():
    return torch.nn.Linear(4, 4, device="meta")

class Lazy:
    @property
    def part(self):
        raise ImportError("a package is missing")

lazy = Lazy()

class Unusual(Scale):
    def __init__(self):
        super().__init__()
        self.register_buffer("thin", torch.eye(3).to_sparse())

    def get_extra_state(self):
        return {"version": 3}

    def set_extra_state(self, state):
        pass

def script():
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(Scale())

class Names:
    inner = network

number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a module, and nothing of it known to Python."""
    (tmp_path / "my_models.py").write_text(MODULE)
    (tmp_path / "broken_models.py").write_text("import nowhere_to_be_found")
    (tmp_path / "leaving_models.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield tmp_path
    sys.modules.pop("my_models", None)


@pytest.fixture
def run(tmp_path):
    network = {"name": "unet", "shape": (1, 4, 4), "width": 8, "multipliers": (1,), "classes": 3}
    run = Run.create(tmp_path / "runs", "train", "digits", "0123abcd", TrainConfig(data="digits").__dict__)
    for kimg in (1, 2):
        description = {"network": network, "kind": "edm", "sigma_data": 0.5}
        raw, ema = (build_denoiser(description).state_dict() for _ in range(2))
        run.save_snapshot(kimg, raw, ema, description)
    return run


X = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
SIGMA = torch.tensor([0.5, 2.0])
LABELS = torch.tensor([2, 0])


def test_runs_are_loaded_as_before(run):
    for source, options in ((run, {}), (run.path, {"kimg": 1}), (str(run.path), {"kimg": 1, "ema": False})):
        found = load_denoiser(source, **options)
        assert torch.equal(found(X, SIGMA, LABELS), load_trained(run, **options)(X, SIGMA, LABELS))
        assert not found.training
    model = load_model(run.snapshot_path(1))
    assert torch.equal(model.denoiser(X, SIGMA, LABELS), load_trained(run, kimg=1)(X, SIGMA, LABELS))
    assert (model.shape, model.classes, model.bounds, model.encode) == ((1, 4, 4), 3, (-1.0, 1.0), None)
    assert model.source == str(run.snapshot_path(1))


def test_identity_is_that_of_the_weights(run):
    last = load_model(run)
    assert last.identity == load_model(run.snapshot_path(2)).identity
    assert len({last.identity, load_model(run, kimg=1).identity, load_model(run, ema=False).identity}) == 3


def test_a_fingerprint_sees_names_shapes_dtypes_values_and_settings():
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones((), dtype=torch.bfloat16), "c": torch.zeros(0)}
    others = [
        {"A": tensors["a"], "b": tensors["b"], "c": tensors["c"]},
        tensors | {"a": torch.zeros(3, 2)},
        tensors | {"a": torch.zeros(2, 3, dtype=torch.int32)},
        tensors | {"a": torch.tensor([[0, 0, 0], [0, 0, 1e-30]])},
    ]
    same = fingerprint(dict(reversed(tensors.items())), kind="edm")
    assert same == fingerprint(tensors, kind="edm")
    assert len({same, fingerprint(tensors, kind="vp"), *(fingerprint(other, kind="edm") for other in others)}) == 6


@pytest.mark.parametrize("name", ["network.pkl", "NETWORK.PKL", "network.pickle"])
def test_pickles_go_to_their_reader(name, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(b"not looked at here")
    expected = Model(nn.Identity(), (3, 32, 32), source=str(path))
    monkeypatch.setattr(edm, "load_edm", lambda given, device: expected if given == path else None)
    assert load_denoiser(str(path)) is expected.denoiser


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("shrink", lambda: X / (1 + SIGMA.reshape(2, 1, 1, 1) ** 2)),
        ("network", lambda: X / 2),
        ("Names.inner", lambda: X / 2),
        ("Scale", lambda: X / 2),
        ("make", lambda: X / 4),
        ("make_function", lambda: X / (1 + SIGMA.reshape(2, 1, 1, 1) ** 2)),
        ("make_model", lambda: X * 2),
        ("Unusual", lambda: X / 2),
        ("script", lambda: X / 2),
    ],
)
def test_objects_are_found_by_name_from_the_current_directory(here, name, answer):
    model = load_model(f"my_models:{name}")
    assert torch.equal(model.denoiser(X, SIGMA), answer())
    assert model.source == f"my_models:{name}"
    assert str(here) not in sys.path


def test_a_conditional_function_is_given_its_labels(here):
    model = load_model("my_models:shift", classes=3, shape=(1, 4, 4))
    assert (model.classes, model.shape) == (3, (1, 4, 4))
    assert torch.equal(model.denoiser(X, SIGMA, LABELS), X + LABELS.reshape(2, 1, 1, 1))


def test_a_factory_may_say_all_about_its_model(here):
    model = load_model("my_models:make_model")
    assert (model.shape, model.classes, model.bounds) == ((1, 4, 4), 3, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my_models:nothing", "could not load my_models:nothing: AttributeError: .*no attribute 'nothing'"),
        ("my_models:number", "expected a denoiser .* got int"),
        ("my_models:fail", "RuntimeError: no weights here"),
        ("my_models:fail_at_length", "RuntimeError: missing keys: first second"),
        ("my_models:leave", "the factory my_models:leave failed: SystemExit: 0"),
        ("my_models:make_without_values", "the weights of my_models:make_without_values cannot be read"),
        ("my_models:lazy.part", "could not load my_models:lazy.part: ImportError: a package is missing"),
        ("leaving_models:network", "could not load leaving_models:network: SystemExit: 0"),
        ("broken_models:network", "could not load broken_models:network: .*nowhere_to_be_found"),
        ("no_such_models:network", "could not load no_such_models:network"),
        ("no_such_folder", "expected a model at no_such_folder"),
        ("no/such/file.safetensors", "expected a model at no/such/file.safetensors"),
        ("C:/models/net:work", "expected a model at"),
        ("", "expected"),
        ("x" * 5000, "which cannot be opened: .*File name too long"),
        ("x" * 5000 + ".pkl", "which cannot be opened: .*File name too long"),
    ],
)
def test_what_is_no_model_is_refused(here, source, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(source)
    assert "\n" not in str(caught.value)


def test_folders_and_files_of_others_are_refused(tmp_path):
    for name, told in (
        ("weights.safetensors", "not a readable safetensors file"),
        ("weights.pt", "pickle of PyTorch, which may run anything"),
        ("mine.py", "name the object in it, mine:OBJECT"),
        ("README.md", r"expected a model at .*README\.md: the directory of a run, .* This file is none of these\.$"),
    ):
        (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(100))
        with pytest.raises(CheckpointError, match=told):
            load_model(tmp_path / name)
    with pytest.raises(CheckpointError, match="this one has neither"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model(tmp_path)


def test_modules_and_functions_are_taken_as_they_are(here):
    images = torch.rand(30, 1, 4, 4) * 2 - 1
    gaussian = GaussianDenoiser(Moments.fit(images))
    assert load_denoiser(gaussian) is gaussian
    network = build_network("unet", (1, 4, 4), width=8, multipliers=(1,)).train()
    assert load_denoiser(network) is network
    assert network.training  # a model in training stays so
    assert all(parameter.requires_grad for parameter in network.parameters())
    function = load_model(lambda x, sigma: gaussian(x, sigma))
    assert torch.equal(function.denoiser(images, 1.0), gaussian(images, 1.0))
    assert function.identity == ""
    with pytest.raises(CheckpointError, match="got int"):
        load_model(3)
    with pytest.raises(DataError, match="must return"):
        gap(load_denoiser(lambda x, sigma: None), gaussian, images, [1.0])


def test_a_model_may_be_of_a_function():
    model = Model(nn.Identity(), (1, 4, 4))
    object.__setattr__(model, "denoiser", lambda x, sigma: x / 2)  # past the check of types that tests have
    assert torch.equal(load_denoiser(model)(X, SIGMA), X / 2)
    object.__setattr__(model, "denoiser", 3)
    with pytest.raises(CheckpointError, match="got int"):
        load_denoiser(model)


def test_what_a_module_knows_is_kept():
    network = build_network("unet", (1, 4, 4), width=8, multipliers=(1,), classes=5)
    alphas = torch.linspace(0.99, 0.01, 100)
    model = load_model(from_eps(network, Discrete.from_alphas(alphas)))
    assert (model.shape, model.classes) == ((1, 4, 4), 5)
    assert model.sigma_range == pytest.approx((0.1005, 9.95), rel=1e-3)
    again = load_model(from_eps(network, Discrete.from_alphas(alphas)))
    other = load_model(from_eps(network, Discrete.from_alphas(alphas**1.01)))
    assert model.identity == again.identity != other.identity


@pytest.mark.parametrize("said", ["all", True, (1.0,), (80.0, 0.002), (-1.0, 1.0), ("a", "b")])
def test_a_range_that_cannot_be_is_refused(said):
    module = nn.Identity()
    module.sigma_range = said
    with pytest.raises(CheckpointError, match=r"the least and the greatest noise level.* sigma_range"):
        load_model(module)


def test_code_is_part_of_the_identity(here):
    before = load_model("my_models:shrink").identity
    assert before == load_model("my_models:shrink").identity != load_model("my_models:shift").identity
    (here / "my_models.py").write_text(MODULE + "\n# changed\n")
    assert load_model("my_models:shrink").identity != before


def test_options_that_cannot_be_meant_are_refused(here):
    with pytest.raises(ConfigError, match="among shape, classes, bounds, encode; got colour"):
        load_model("my_models:make", colour=3)
    for options in ({"kimg": 1}, {"ema": False}):
        with pytest.raises(ConfigError, match="'my_models:make' has none"):
            load_model("my_models:make", **options)
