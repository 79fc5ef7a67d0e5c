"""Every network: as large as published, of one signature, at any size it says it takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gausslens import ConfigError, Preconditioned, jacobian_spectrum
from gausslens.nn import build_network, default_options
from gausslens.nn.unet import NCSNPP, HalvedConv

# Each at most half a million parameters, for 8×8 images.
SMALL = {
    "ncsnpp": {"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": (4,)},
    "ddpmpp": {"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": (4,)},
    "adm": {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": (4,)},
    "unet": {"width": 24, "multipliers": (1,), "blocks": 1},
    "linear": {},
    "skipnet": {"width": 16},
    "dit": {"width": 32, "blocks": 2},
}
CONDITIONED = [name for name in SMALL if name not in ("linear", "skipnet")]


def count(*args, **options):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_network(*args, **options).parameters())


def small(name, shape=(1, 8, 8), **options):
    """A network with weights that are nowhere zero, so that every part of it shows in the output."""
    network = build_network(name, shape, **SMALL[name], **options)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)
    return network.double().eval()


def inputs(n=3, shape=(1, 8, 8)):
    return torch.randn(n, *shape, dtype=torch.float64), torch.linspace(-1, 1, max(n, 1), dtype=torch.float64)[:n]


@pytest.mark.parametrize(
    ("width", "plain", "augmented"),
    [
        (4, 64_511, 64_583),
        (8, 251_387, 251_531),
        (16, 992_243, 992_531),
        (32, 3_942_371, 3_942_947),
        (64, 15_716_291, 15_717_443),
        (128, 62_758_787, 62_761_091),
    ],
)
def test_ncsnpp_is_as_large_as_published(width, plain, augmented):
    assert count("ncsnpp", (3, 64, 64), width=width) == plain
    assert count("ncsnpp", (3, 64, 64), width=width, augment_inputs=9) == augmented


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("ncsnpp", 32, 56_395_523),
        ("ddpmpp", 64, 61_804_419),
        ("ddpmpp", 32, 55_732_739),
        ("adm", 64, 295_131_267),
    ],
)
def test_the_defaults_are_as_large_as_published(name, size, expected):
    assert count(name, (3, size, size)) == expected


@pytest.mark.parametrize(
    ("name", "labels", "augment"),
    [
        ("ncsnpp", 10 * 256 + 256, 9 * 256),
        ("ddpmpp", 10 * 128 + 128, 9 * 128),
        ("adm", 10 * 768, 9 * 192),
    ],
)
def test_labels_and_augmentation_cost_one_layer_each(name, labels, augment):
    plain = count(name, (3, 32, 32))
    assert count(name, (3, 32, 32), classes=10) - plain == labels
    assert count(name, (3, 32, 32), augment_inputs=9) - plain == augment


@pytest.mark.parametrize("name", SMALL)
def test_every_network_comes_small(name):
    assert count(name, (1, 8, 8), **SMALL[name]) <= 500_000


@pytest.mark.parametrize("name", SMALL)
def test_output_has_the_shape_and_dtype_of_the_images(name):
    x, noise = inputs()
    network = small(name)
    assert network(x, noise).shape == x.shape
    assert network(x, noise).dtype == torch.float64
    assert network.float()(x.float(), noise.float()).dtype == torch.float32
    assert network(x[:0].float(), noise[:0].float()).shape == (0, 1, 8, 8)


@pytest.mark.parametrize("name", SMALL)
def test_output_is_float32_under_autocast(name):
    network = small(name).float()
    x, noise = (tensor.float() for tensor in inputs())
    exact = network(x, noise)
    with torch.autocast("cpu", torch.bfloat16):
        output = network(x, noise)
    assert output.dtype == torch.float32
    assert not torch.equal(output, exact)
    assert bool((output - exact).norm() < 0.1 * exact.norm())


@pytest.mark.parametrize("name", SMALL)
def test_images_do_not_influence_each_other(name):
    x, noise = inputs(4)
    network = small(name)
    together = network(x, noise)
    for i in range(4):
        torch.testing.assert_close(network(x[i : i + 1], noise[i : i + 1])[0], together[i], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CONDITIONED)
def test_noise_labels_and_augmentation_matter(name):
    x, noise = inputs()
    network = small(name, classes=3, augment_inputs=2)
    labels, augment = torch.tensor([0, 1, 2]), torch.ones(3, 2, dtype=torch.float64)
    base = network(x, noise, labels)
    assert not torch.allclose(network(x, noise + 0.3, labels), base)
    assert not torch.allclose(network(x, noise, labels.flip(0))[0], base[0])
    assert not torch.allclose(network(x, noise, labels, augment), base)
    torch.testing.assert_close(network(x, noise, labels, 0 * augment), base)


@pytest.mark.parametrize("name", ["linear", "skipnet"])
def test_networks_of_one_level_ignore_it_and_refuse_labels(name):
    x, noise = inputs()
    network = small(name)
    assert torch.equal(network(x, noise), network(x, noise + 1))
    with pytest.raises(ConfigError, match="takes no labels"):
        network(x, noise, torch.tensor([0, 1, 2]))
    with pytest.raises(ConfigError, match=f"{name}.* has no option classes"):
        build_network(name, (1, 8, 8), classes=3)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_learns(name):
    network = small(name, classes=3, augment_inputs=2) if name in CONDITIONED else small(name)
    x, noise = inputs(3)
    conditions = [torch.tensor([0, 1, 2]), torch.ones(3, 2, dtype=torch.float64)] if name in CONDITIONED else []
    network.train()(x, noise, *conditions).square().sum().backward()
    assert [key for key, p in network.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)] == []


@pytest.mark.parametrize("name", SMALL)
def test_a_new_network_learns_from_its_first_step(name):
    """Zero-initialised layers must not block each other."""
    network = build_network(name, (1, 8, 8), **SMALL[name])
    x, noise = (tensor.float() for tensor in inputs(8))
    target = x.flip(3)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(12):
        loss = (network(x, noise) - target).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    "name", ["dit", pytest.param("ncsnpp", marks=pytest.mark.slow), pytest.param("adm", marks=pytest.mark.slow)]
)
def test_attention_has_a_jacobian(name):
    x, _ = inputs(2)
    spectrum = jacobian_spectrum(Preconditioned(small(name)), x, 0.7, k=3)
    assert bool(spectrum.singular_values.isfinite().all())


def test_the_residual_encoder_pads_once():
    """A convolution of the image with two more zeros around it, then the filter as a strided convolution."""
    layer = HalvedConv(3, 5, NCSNPP).double()
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64)
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=torch.float64) / 8
    kernel = torch.outer(taps, taps).expand(5, 1, 4, 4)
    expected = F.conv2d(layer.conv(x), kernel, stride=2, groups=5)
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("name", "convolved"), [("ncsnpp", 1), ("ddpmpp", 0), ("adm", 0)])
def test_only_ncsnpp_has_a_residual_encoder(name, convolved):
    assert len(small(name).image) == convolved


def attending(network, part):
    return [
        isinstance(block.attention, nn.Module) and hasattr(block.attention, "qkv") for block in getattr(network, part)
    ]


def test_attention_is_where_the_papers_put_it():
    """Every encoder block at an attention resolution; the decoder's last (NCSN++), or all (ADM); one in the middle."""
    song = build_network("ncsnpp", (1, 8, 8), **{**SMALL["ncsnpp"], "blocks": 2})
    assert attending(song, "encoder") == [False, False, False, True, True]
    assert attending(song, "middle") == [True, False]
    assert attending(song, "decoder") == [False, False, True, False, False, False, False]
    adm = build_network("adm", (1, 8, 8), **SMALL["adm"])
    assert attending(adm, "encoder") == [False, False, True]
    assert attending(adm, "decoder") == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["unet", "skipnet"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 9), (2, 3, 4), (1, 1, 1), (1, 16, 7)])
def test_some_networks_take_any_size(name, shape):
    x, noise = inputs(2, shape)
    assert small(name, shape)(x, noise).shape == x.shape


@pytest.mark.parametrize("name", ["ncsnpp", "ddpmpp", "adm", "dit"])
def test_images_need_not_be_square(name):
    x, noise = inputs(2, (2, 8, 4))
    assert small(name, (2, 8, 4))(x, noise).shape == x.shape


def test_the_small_unet_pads_below_and_right_and_crops():
    x, noise = inputs(2, (1, 9, 7))
    padded = torch.zeros(2, 1, 10, 8, dtype=torch.float64)
    padded[..., :9, :7] = x
    torch.manual_seed(0)
    network = small("unet", (1, 9, 7))
    larger = small("unet", (1, 10, 8))
    larger.load_state_dict(network.state_dict())
    assert torch.equal(network(x, noise), larger(padded, noise)[..., :9, :7])


def dense(**options):
    network = build_network("unet", (1, 8, 8), **options)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    return network.double().eval()


def test_up_to_8_pixels_the_small_network_is_dense_and_ignores_the_noise():
    x, noise = inputs()
    network = dense()
    assert not any(isinstance(module, nn.Conv2d) for module in network.modules())
    assert sum(parameter.numel() for parameter in network.parameters()) <= 650_000
    output = network(x, noise)
    assert torch.equal(output, network(x, noise + 1))
    assert (output.shape, output.dtype) == (x.shape, torch.float64)
    assert any(isinstance(module, nn.Conv2d) for module in build_network("unet", (1, 9, 8)).modules())
    with pytest.raises(ConfigError, match="takes no labels"):
        network(x, noise, torch.tensor([0, 1, 2]))


def test_the_dense_network_is_its_formula():
    x, noise = inputs()
    network = dense(width=6, blocks=2)
    vector = x.flatten(1) @ network.input.weight.T + network.input.bias
    for block in network.blocks:
        norm = F.layer_norm(vector, (6,), block.norm.weight, block.norm.bias)
        hidden = F.silu(norm @ block.first.weight.T + block.first.bias)
        assert hidden.shape == (3, 12)
        vector = vector + hidden @ block.second.weight.T + block.second.bias
    expected = vector @ network.output.weight.T + network.output.bias
    torch.testing.assert_close(network(x, noise).flatten(1), expected)


def test_labels_and_augmentation_matter_to_the_dense_network():
    x, noise = inputs()
    network = dense(classes=3, augment_inputs=2)
    labels, augment = torch.tensor([0, 1, 2]), torch.ones(3, 2, dtype=torch.float64)
    base = network(x, noise, labels)
    assert torch.equal(network(x, noise + 0.3, labels), base)
    assert not torch.allclose(network(x, noise, labels.flip(0))[0], base[0])
    assert not torch.allclose(network(x, noise, labels, augment), base)
    torch.testing.assert_close(network(x, noise, labels, 0 * augment), base)
    network.train()(x, noise, labels, augment).square().sum().backward()
    assert [key for key, p in network.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)] == []


def test_the_dense_network_drops_activations_only_in_training():
    x, noise = inputs()
    network = dense(dropout=0.5)
    assert torch.equal(network(x, noise), network(x, noise))
    assert not torch.equal(network.train()(x, noise), network(x, noise))


def test_the_dense_network_is_float32_under_autocast():
    network = dense().float()
    x, noise = (tensor.float() for tensor in inputs())
    with torch.autocast("cpu", torch.bfloat16):
        assert network(x, noise).dtype == torch.float32


def test_linear_is_an_affine_map_of_all_pixels():
    x, noise = inputs(4)
    network = small("linear")
    rows = x.flatten(1) @ network.map.weight.T + network.map.bias
    torch.testing.assert_close(network(x, noise).flatten(1), rows)
    assert network.map.weight.shape == (64, 64)


def test_a_new_transformer_is_zero_and_knows_positions():
    network = build_network("dit", (1, 8, 8), **SMALL["dit"]).eval()
    x, noise = (tensor.float() for tensor in inputs(2))
    assert bool((network(x, noise) == 0).all())
    assert len(network.position.unique(dim=0)) == 16
    output = small("dit")(torch.ones(1, 1, 8, 8, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert bool(output[0, 0, ::2, ::2].std() > 1e-3)


def test_a_transformer_scales_images_down_to_a_root_mean_square_of_two():
    network = small("dit")
    x, noise = inputs(3)
    x = x / x.square().mean((1, 2, 3), keepdim=True).sqrt()
    torch.testing.assert_close(network(80 * x, noise), network(2 * x, noise))
    assert not torch.allclose(network(2 * x, noise), network(1.9 * x, noise))


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("resnet", (1, 8, 8), {}, "must be one of ncsnpp, .*; got 'resnet'"),
        ("ncsnpp", (3, 30, 30), {}, "multiples of 4; got 30×30"),
        ("adm", (3, 28, 28), {}, "multiples of 8; got 28×28"),
        ("dit", (3, 9, 9), {}, "multiples of 2; got 9×9"),
        ("dit", (3, 8, 8), {"width": 130}, "multiple of 4"),
        ("unet", (8, 8), {}, r"\(channels, height, width\); got \(8, 8\)"),
        ("unet", (1, 16, 16), {"width": 5}, "even"),
        ("unet", (1, 8, 8), {"attention": (4,)}, "no option attention"),
        ("unet", (1, 8, 8), {"blocks": 0}, "blocks must be at least 1"),
        ("unet", (1, 8, 8), {"dropout": 1.0}, "dropout"),
        ("unet", (1, 8, 8), {"classes": -1}, "classes"),
        ("ncsnpp", (1, 8, 8), {"multipliers": ()}, "multipliers"),
        ("linear", (1, 8, 8), {"width": 3}, "no option width"),
    ],
)
def test_what_cannot_be_built_is_refused(name, shape, options, message):
    with pytest.raises(ConfigError, match=message):
        build_network(name, shape, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_network_is_one_graph(name):
    network = small(name)
    x, noise = inputs()
    torch.compiler.reset()  # graphs of other cases count towards the limit of recompilations
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, noise), network(x, noise))


@pytest.mark.parametrize(
    ("name", "shape", "multipliers"),
    [
        *(("skipnet", (3, side, side), (1,) * levels) for side, levels in ((1, 1), (8, 2), (28, 3), (32, 4), (256, 5))),
        *(("unet", (1, side, side), found) for side, found in ((8, ()), (16, (1,)), (32, (1, 2)), (64, (1, 2, 2)))),
        *(
            (name, (3, side, side), (1, 2, 2, 2)[64 // side - 1 :])
            for name in ("ncsnpp", "ddpmpp")
            for side in (32, 64)
        ),
        ("adm", (3, 32, 32), (1, 2, 3, 4)),
    ],
)
def test_the_default_resolutions_are_those_of_recorded_trainings(name, shape, multipliers):
    """A run is found again by its layout: other defaults would be other runs."""
    assert default_options(name, shape)["multipliers"] == multipliers
