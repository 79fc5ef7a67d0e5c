"""EDM's networks answer here as they do there, and what is not one of them is refused by name."""

import dataclasses
import json

import pytest
import torch
from edm_files import CASES, VECTORS, Case, Persistent, edm_pickle, network, pickled, seeded_weights
from safetensors.torch import load_file

from gausslens import CheckpointError, ConfigError, load_denoiser
from gausslens.cli import GlobalOptions
from gausslens.cli import convert as converting
from gausslens.store.weights import build_denoiser
from gausslens.zoo.edm import load_edm, read_edm, translate_weights
from gausslens.zoo.loading import load_model

TINY = {"model_channels": 4, "channel_mult": [1, 1], "augment_dim": 2, "attn_resolutions": []}
SMALL = Case(50, size=4, arguments=TINY, own={"sigma_data": 0.3})
ANSWERS = load_file(VECTORS)


@pytest.fixture
def write(tmp_path):
    """Writes bytes, or a pickle of the entry `ema`, and gives the path."""

    def path_of(content):
        path = tmp_path / "model.pkl"
        path.write_bytes(content if isinstance(content, bytes) else pickled({"ema": content}))
        return path

    return path_of


def assert_agree(found, expected):
    """To 1e-5 of the largest pixel or 1; pixels are up to 4·80 where D is x plus a correction."""
    scale = expected.abs().amax((1, 2, 3), keepdim=True).clamp_min(1)
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", list(CASES))
def test_outputs_are_those_of_the_original_network(name, write):
    case = CASES[name]
    model = load_edm(write(edm_pickle(case)))
    assert_agree(model.denoiser(*case.inputs), ANSWERS[name])
    assert model.shape == (case.channels, case.size, case.size)
    assert model.classes == case.classes
    assert model.bounds == (-1.0, 1.0)
    assert not model.denoiser.training
    assert not any(parameter.requires_grad for parameter in model.denoiser.parameters())


def test_there_is_an_answer_for_every_case():
    assert ANSWERS.keys() == CASES.keys()


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_the_protocol_does_not_matter(protocol, write):
    models = [load_edm(write(edm_pickle(SMALL, chosen))) for chosen in (4, protocol)]
    assert models[0].identity == models[1].identity


def test_identity_is_of_weights_and_settings(write):
    def identity(case):
        return load_edm(write(edm_pickle(case))).identity

    others = [dataclasses.replace(SMALL, seed=77), dataclasses.replace(SMALL, own={"sigma_data": 0.5})]
    assert len({identity(SMALL), identity(SMALL), *map(identity, others)}) == 3


def test_half_precision_is_read(write):
    weights = {name: value.half() for name, value in seeded_weights(SMALL).items()}
    denoiser = load_edm(write(network(SMALL, weights))).denoiser
    assert next(denoiser.parameters()).dtype == torch.float32
    expected = load_edm(write(network(SMALL))).denoiser
    torch.testing.assert_close(denoiser(*SMALL.inputs), expected(*SMALL.inputs), rtol=0, atol=0.02)


def test_defaults_of_constructors_need_not_be_written_down(write):
    """A network of DDPM++ whose every size is the default, of which one tensor is looked at."""
    module = network(Case(0, arguments={**TINY, "channel_mult": [1, 2, 2, 2], "num_blocks": 4}))
    module.model._init_kwargs = {"img_resolution": 8, "in_channels": 3, "out_channels": 3}
    with pytest.raises(CheckpointError, match=r"map_layer0.weight of shape \(16, 4\).* \(512, 128\)"):
        load_edm(write(module))


def test_arguments_by_position_count(write):
    module = network(SMALL)
    names = ["img_resolution", "in_channels", "out_channels", "label_dim", "augment_dim"]
    keywords = dict(module.model._init_kwargs)
    module.model._init_args = tuple(keywords.pop(name) for name in names)
    module.model._init_kwargs = keywords
    assert load_edm(write(module)).identity == load_edm(write(network(SMALL))).identity


def test_rows_of_attention_are_sorted_by_query_key_and_value():
    """(head, channel, which) becomes (which, head, channel)."""
    wanted = {"encoder.0.attention.qkv.bias": torch.empty(3 * 128)}
    heads, channels = torch.arange(2)[:, None, None], torch.arange(64)[None, :, None]
    rows = (1000 * heads + 10 * channels + torch.arange(3)).flatten().float()
    layout_of_one_block = {"name": "adm", "shape": (3, 8, 8), "multipliers": (1,), "blocks": 1}
    found = translate_weights({"enc.8x8_block0.qkv.bias": rows}, wanted, layout_of_one_block)[
        "encoder.0.attention.qkv.bias"
    ]
    assert found.reshape(3, 2, 64)[1, 1, :3].tolist() == [1001, 1011, 1021]
    assert found.reshape(3, 2, 64)[:, 0, 5].tolist() == [50, 51, 52]


def without(case, name):
    return network(case, {other: value for other, value in seeded_weights(case).items() if other != name})


def changed(**arguments):
    """The small network that claims to have been made with other arguments."""
    module = network(SMALL)
    module.model._init_kwargs = {**module.model._init_kwargs, **arguments}
    return module


def renamed(outer="EDMPrecond", inner="SongUNet", **own):
    module = network(SMALL)
    module._class_name, module.model._class_name = outer, inner
    module._init_kwargs = {**module._init_kwargs, **own}
    return module


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: pickled({"G": 1, "D": 2}), "under the name ema; the file holds the entries 'D', 'G'"),
        (lambda: pickled([1]), "under the name ema; the file holds a value of type list"),
        (lambda: {"weight": 1}, "EDMPrecond or VPPrecond or VEPrecond; got a value of type dict"),
        (lambda: renamed("iDDPMPrecond"), "got 'iDDPMPrecond'"),
        (lambda: renamed(inner="StyleUNet"), "SongUNet or DhariwalUNet inside EDMPrecond; got 'StyleUNet'"),
        (lambda: renamed("VPPrecond", beta_d=10.0), r"expected beta_d = 19\.9; got 10\.0"),
        (lambda: renamed(sigma_data="half"), "a number for sigma_data; got a value of type str"),
        (lambda: renamed(sigma_data=0.0), "sigma_data must be positive"),
        (lambda: renamed(sigma_data=float("nan")), "a number for sigma_data"),
        (lambda: changed(encoder_type="skip"), "neither NCSN.*'s nor DDPM.*'s"),
        (lambda: changed(channel_mult_emb=2), "channel_mult_emb = 4; got 2"),
        (lambda: changed(out_channels=6), "3 channels going in and 6 coming out"),
        (lambda: changed(groups=8), "an argument 'groups'"),
        (lambda: changed(model_channels=16.0), "whole numbers .* for model_channels; got a value of type float"),
        (lambda: changed(model_channels=-2), "for model_channels; got -2"),
        (lambda: changed(model_channels=0), "width must be at least 1"),
        (lambda: changed(channel_mult=4), "a short list for channel_mult"),
        (lambda: changed(channel_mult=[]), "multipliers must be at least one number"),
        (lambda: changed(embedding_type=7), "a short text for embedding_type"),
        (lambda: changed(dropout=None), "a number for dropout"),
        (lambda: changed(img_resolution=5), "multiples of 2; got 5×5"),
        (lambda: changed(model_channels=8), r"map_layer0.weight of shape \(16, 4\)"),
        (lambda: changed(num_blocks=2), "it has no weights enc.4x4_block1"),
        (lambda: changed(augment_dim=0), "1 tensors too many, such as 'map_augment.weight'"),
        (lambda: without(SMALL, "dec.2x2_in0.qkv.bias"), "no weights dec.2x2_in0.qkv.bias"),
        (
            lambda: network(SMALL, {**seeded_weights(SMALL), "map_layer0.bias": torch.full((16,), torch.nan)}),
            "map_layer0.bias have values that are not finite",
        ),
        (
            lambda: network(SMALL, {**seeded_weights(SMALL), "map_layer0.bias": torch.zeros(16).long()}),
            "map_layer0.bias of shape .* torch.int64",
        ),
        (lambda: Persistent("EDMPrecond"), "inside EDMPrecond; got a value of type NoneType"),
    ],
)
def test_what_is_no_network_of_ours_is_refused_by_name(content, message, write):
    with pytest.raises(CheckpointError, match=message) as caught:
        load_edm(write(content()))
    assert "package.module:object" in str(caught.value)
    assert ".." not in str(caught.value)


def test_attention_is_left_out_only_where_adm_leaves_it_out(write):
    case = CASES["adm-edm-classes-heads"]
    missing = {name: value for name, value in seeded_weights(case).items() if "dec.4x4_in0.qkv" not in name}
    with pytest.raises(CheckpointError, match=r"no weights dec\.4x4_in0\.qkv\.weight"):
        load_edm(write(network(case, missing)))


def test_tensors_that_share_memory_do_not_multiply(write):
    """A file that names one large tensor often would need many times its size."""
    module, first = network(Case(0, arguments={"model_channels": 32, "num_blocks": 4})), {}
    for layer in module.modules():
        for name, value in list(layer._parameters.items()):
            layer._parameters[name] = first.setdefault(value.shape, value)
    with pytest.raises(CheckpointError, match="more memory than the file has"):
        load_edm(write(module))


def test_converted_networks_answer_the_same(write, tmp_path, capsys):
    case = CASES["ncsnpp-ve-classes-augment"]
    options = converting.Options(str(write(edm_pickle(case))), str(tmp_path / "model.safetensors"))
    converting.run(options, GlobalOptions())
    said = capsys.readouterr().out
    count = sum(value.numel() for name, value in seeded_weights(case).items() if name.endswith(("weight", "bias")))
    assert f"{options.out}: ncsnpp for 3×8×8, 4 classes, {count:,} weights." in said
    assert load_model(options.out).sigma_range == load_edm(options.source).sigma_range == (0.02, 100.0)
    converted, original = load_denoiser(options.out), load_edm(options.source).denoiser
    for name, value in original.state_dict().items():
        torch.testing.assert_close(converted.state_dict()[name], value, rtol=0, atol=0)
    assert_agree(converted(*case.inputs), original(*case.inputs))
    with pytest.raises(CheckpointError, match="it has no raw ones"):
        load_denoiser(options.out, ema=False)
    with pytest.raises(ConfigError, match="exists already"):
        converting.run(options, GlobalOptions())


def test_a_dry_conversion_says_what_it_would_write(write, tmp_path, capsys):
    options = converting.Options(str(write(edm_pickle(SMALL))), str(tmp_path / "model.safetensors"))
    converting.run(options, GlobalOptions(dry_run=True))
    printed = json.loads(capsys.readouterr().out)
    description, _ = read_edm(options.source)
    assert printed == {"source": options.source, "out": options.out, **description}
    assert build_denoiser(printed).sigma_data == 0.3
    assert not (tmp_path / "model.safetensors").exists()


def test_what_cannot_be_converted_is_bad_input(write, tmp_path):
    options = converting.Options(str(write(b"\x80\x04cos\nsystem\n.")), str(tmp_path / "model.safetensors"))
    with pytest.raises(ConfigError, match=r"it asks for 'os\.system'"):
        converting.run(options, GlobalOptions())
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(("source", "out"), [("model.pt", "model.safetensors"), ("model.pkl", "model.pkl")])
def test_names_of_files_must_fit(source, out):
    with pytest.raises(ConfigError, match="must be a file whose name ends in"):
        converting.Options(source, out)
