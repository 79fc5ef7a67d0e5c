"""An audit from Python: known models get the verdict that they deserve, and what was measured can be judged again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import gausslens
from gausslens import ConfigError, DataError, GaussianDenoiser, Moments, MultiDeltaDenoiser
from gausslens.auditing.auditee import fit
from gausslens.auditing.config import AuditConfig
from gausslens.auditing.pages import make_page
from gausslens.auditing.rules import VERDICTS, Verdict, judge
from gausslens.auditing.running import Audit
from gausslens.auditing.stages import evidence_of
from gausslens.auditing.telling import SCHEMA, advice, as_json, title
from gausslens.images import dequantize, quantize
from gausslens.measures.intervals import Estimate
from gausslens.measuring.references import RunImages
from gausslens.report import ImageGrid
from gausslens.zoo.model import Model

HOW = {"samples": 120, "noises": 4, "count": 60, "sigmas": (4.0, 1.0, 0.3, 0.1)}


def mixture(n, seed):
    """Smooth 6×6 images: three patterns with random weights."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij")
    patterns = torch.stack([x, y, x * y, x**2, y**2])
    weights = torch.randn(n, 5, generator=generator) * torch.tensor([0.4, 0.4, 0.3, 0.2, 0.2])
    rough = 0.05 * torch.randn(n, 1, 6, 6, generator=generator)
    return (torch.einsum("nk,kij->nij", weights, patterns)[:, None] + rough).clamp(-1, 1)


@pytest.fixture(scope="module", name="images")
def split_images():
    return mixture(40, 0), mixture(120, 1)


@pytest.fixture(scope="module", name="copier")
def audit_of_a_copier(images):
    train, held_out = images
    return gausslens.audit(MultiDeltaDenoiser(train), train, held_out, **HOW)


def test_a_perfect_copier_is_found_and_its_copies_are_named(copier, images):
    assert copier.verdict.verdict == "memorizing"
    assert copier.find("memorized_fraction")[0]["value"] > 0.9
    named = copier.find("copy")
    assert len(named) > 100
    # Each pair names the training image that the sample is: nearer than any other.
    pixels = dequantize(copier.samples)
    for record in named[:10]:
        distances = (images[0] - pixels[record["sample"]]).flatten(1).norm(dim=1)
        assert int(distances.argmin()) == record["image"]


def test_the_law_itself_generalises(images):
    train, held_out = images
    law = GaussianDenoiser(Moments.fit(mixture(20_000, 2)))
    found = gausslens.audit(law, train, held_out, **HOW)
    assert found.verdict.verdict == "generalizing"
    assert not found.find("copy")
    assert found.find("detectable", kind="exact", probability=0.8)[0]["value"] < 0.5


def test_an_audit_without_samples_says_what_it_may_have_missed(images):
    law = GaussianDenoiser(Moments.fit(mixture(5_000, 2)))
    assert "no sample was looked at" in str(gausslens.audit(law, *images, **{**HOW, "samples": 0}))
    told = str(gausslens.audit(law, *images, **HOW))
    assert "said by its power, below" in told
    assert "copies this audit would find" in told


def test_the_verdict_follows_from_the_records(copier):
    stored = json.loads(json.dumps(copier.records))
    again = judge(evidence_of(stored))
    assert again.verdict == copier.verdict.verdict
    assert again.reasons == copier.verdict.reasons


def test_without_held_out_images_it_says_what_it_cannot_calibrate(images):
    train, _ = images
    found = gausslens.audit(GaussianDenoiser(Moments.fit(mixture(5_000, 3))), train, **HOW)
    assert found.verdict.verdict == "cannot tell"
    assert any("held-out" in reason for reason in found.verdict.reasons)
    copier = gausslens.audit(MultiDeltaDenoiser(train), train, **HOW)
    assert copier.verdict.verdict == "memorizing"


def test_a_model_of_other_images_cannot_be_judged(images):
    train, held_out = images
    swapped = GaussianDenoiser(Moments.fit(-mixture(5_000, 4).flip(-1) * 0.1 + 0.8))
    assert gausslens.audit(swapped, train, held_out, **{**HOW, "samples": 0}).verdict.verdict == "cannot tell"


def test_json_has_everything_and_names_its_schema(copier):
    told = json.loads(as_json(copier))
    assert told["schema"] == SCHEMA
    assert told["verdict"] == "memorizing"
    assert told["lean"]["low"] <= told["lean"]["value"] <= told["lean"]["high"]
    assert len(told["copies"]) == len(copier.find("copy"))
    stages = {record["stage"] for record in told["records"]}
    assert stages == {"duplicates", "losses", "foreignness", "distances", "copies", "power"}


def test_the_table_is_readable(copier):
    told = str(copier)
    assert "MEMORIZING. This model memorises its training images." in told
    assert "40 training and 120 held-out images" in told
    assert max(map(len, told.splitlines())) < 180


def test_mirrored_training_images_are_references_too(images):
    train, held_out = images
    both = torch.cat([train, train.flip(-1)])
    found = gausslens.audit(MultiDeltaDenoiser(both), train, held_out, augment="flip", **HOW)
    assert found.verdict.verdict == "memorizing"
    assert max(record["value"] for record in found.find("distance_multidelta")) < 1e-4


def test_what_does_not_fit_is_refused(images):
    train, held_out = images
    denoiser = GaussianDenoiser(Moments.fit(train))
    with pytest.raises(DataError, match="shape"):
        gausslens.audit(denoiser, train, held_out[..., :5], **HOW)
    with pytest.raises(ConfigError, match="noises"):
        gausslens.audit(denoiser, train, held_out, noises=0)
    with pytest.raises(ConfigError, match="sigmas must lie"):
        gausslens.audit(denoiser, train, held_out, sigmas=(100.0,))
    with pytest.raises(ConfigError, match=r"expected options among sigmas, .* got size"):
        gausslens.audit(denoiser, train, held_out, size=6)
    with pytest.raises(DataError, match=r"got tuple.* pass a function that picks them out"):
        gausslens.audit(lambda x, sigma: (x, None), train, held_out, **HOW)
    with pytest.raises(DataError, match="40 of these 40 are among the training"):
        gausslens.audit(denoiser, train, train, **HOW)
    with pytest.raises(DataError, match=r"at least 4 training images; .* 1 different"):
        gausslens.audit(denoiser, train[:1].repeat(9, 1, 1, 1), held_out, **HOW)


@pytest.mark.parametrize("sigmas", [torch.tensor([0.3, 4.0]), np.array([4.0, 0.3]), [4, 0.3], 0.3])
def test_noise_levels_are_given_in_any_form(images, sigmas):
    found = gausslens.audit(MultiDeltaDenoiser(images[0]), *images, **{**HOW, "samples": 0, "sigmas": sigmas})
    assert found.verdict.verdict == "memorizing"
    assert min(record["sigma"] for record in found.find("auc")) == pytest.approx(0.3)


def test_samples_that_are_not_finite_are_refused(images):
    train, held_out = images
    law = GaussianDenoiser(Moments.fit(mixture(5_000, 2)))

    def broken(x, sigma):  # below all levels that are looked at, and not below all that are sampled with
        return torch.where(sigma[:, None, None, None] < 0.01, torch.nan, law(x, sigma))

    with pytest.raises(DataError, match="samples must be finite"):
        gausslens.audit(broken, train, held_out, **HOW)
    assert gausslens.audit(broken, train, held_out, **{**HOW, "samples": 0}).verdict.verdict == "generalizing"


def test_what_is_undefined_is_told_as_such(images):
    train, _ = images
    # Held-out images as near to training images as can be, but for rounding: samples have no novelty beside them.
    found = gausslens.audit(MultiDeltaDenoiser(train), train, train[:2] + 1e-6, **HOW)
    assert found.verdict.verdict in VERDICTS
    told = str(found)
    assert "None" not in told
    assert "nan" not in told
    json.loads(as_json(found), parse_constant=pytest.fail)


def test_nothing_is_said_of_copies_to_be_found_where_all_samples_are(copier):
    assert copier.find("detectable")[0]["samples"] == 0
    assert "would find" not in str(copier)


@pytest.mark.slow
def test_the_example_in_the_docs_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    found = {}
    exec(block, found)
    assert capsys.readouterr().out.startswith("memorizing\n")
    assert len(found["copies"]) > 150


def test_a_model_of_latents_is_audited_in_its_latents(images):
    train, held_out = images
    grown = MultiDeltaDenoiser(5 * train, bounds=None)  # latents need not lie in [-1, 1]
    model = Model(grown, (1, 6, 6), bounds=None, encode=lambda x: 5 * dequantize(x), sigma_range=(0.05, 80.0))
    how = {**HOW, "sigmas": (20.0, 5.0, 1.5, 0.5)}
    found = gausslens.audit(model, train, held_out, **how)
    assert found.verdict.verdict == "memorizing"
    assert found.samples.dtype == torch.float32
    with pytest.raises(ConfigError, match="features must be left out"):
        gausslens.audit(model, train, held_out, features="efficientnet-lite0", **how)


def test_a_trial_makes_few_latents_and_resolves_the_same(images):
    train, held_out = (quantize(part) for part in images)
    encoded = []

    def encode(x):
        encoded.append(len(x))
        return 5 * dequantize(x)

    model = Model(MultiDeltaDenoiser(5 * images[0], bounds=None), (1, 6, 6), bounds=None, encode=encode)
    both = RunImages(train, train, held_out, None, None, "images")
    whole, tried = (fit(model, both, AuditConfig("model"), trial=trial) for trial in (False, True))
    assert encoded == [40, 120, 2, 2]
    assert tried.resolved == whole.resolved
    assert [len(part) for part in tried.pictures] == [40, 120]


def test_the_gallery_shows_decoded_latents(images):
    train, held_out = (quantize(part) for part in images)
    ways = {"encode": lambda x: 0.02 * dequantize(x), "decode": lambda z: quantize(z / 0.02)}
    copier = MultiDeltaDenoiser(ways["encode"](train), bounds=None)
    model = Model(copier, (1, 6, 6), bounds=None, sigma_range=(0.005, 10.0), **ways)
    how = {**HOW, "sigmas": (1.0, 0.1, 0.02, 0.005)}
    who = fit(model, RunImages(train, train, held_out, None, None, "images"), AuditConfig("model", **how))
    page = make_page(gausslens.audit(model, train, held_out, **how), who, {}, "gausslens audit")
    grids = [figure for section in page.sections for figure in section.figures if isinstance(figure, ImageGrid)]
    assert grids
    for grid in grids:  # the samples of this model are training images
        samples, originals = grid.images.astype(int)
        assert abs(samples - originals).mean() < 2


def test_features_are_told_beside_the_pixels(images, tmp_path, monkeypatch):
    train, held_out = images
    (tmp_path / "feature_module.py").write_text("def flat(images):\n    return images[:, 0].flatten(1)\n")
    monkeypatch.chdir(tmp_path)
    found = gausslens.audit(MultiDeltaDenoiser(train), train, held_out, features="feature_module:flat", **HOW)
    assert found.find("copy_p_features")[0]["value"] < 0.01
    assert found.find("relative_gl_features")[0]["value"] < 0.1
    told = str(found)
    for name in ("Fréchet distance of features", "p of the copy test of features", "that of held-out images is"):
        assert name in told


def test_repeats_are_told_without_samples(images):
    train, held_out = images
    repeated, seen = torch.cat([train, train[:2]]), torch.cat([held_out, train[:1]])
    found = gausslens.audit(MultiDeltaDenoiser(repeated), repeated, seen, **{**HOW, "samples": 0})
    assert [found.find(of)[0]["value"] for of in ("train_duplicates", "shared_duplicates")] == [2, 1]
    assert "held-out images trained on" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [2, 4])
def test_too_few_held_out_images_for_the_copy_test_do_not_acquit(held_out):
    pool = mixture(200 + held_out, 11)
    found = gausslens.audit(MultiDeltaDenoiser(pool[:200]), pool[:200], pool[200:], samples=60, noises=4)
    assert found.verdict.verdict == "memorizing"
    assert not found.find("copy_p")  # no number of copies among 60 samples could have ruled chance out


def test_images_of_which_none_can_be_told_from_its_neighbours_are_audited():
    flat = torch.randint(0, 2, (120, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)) + 100
    found = gausslens.audit(MultiDeltaDenoiser(flat[:60]), flat[:60], flat[60:], samples=60, noises=4)
    assert not found.find("detectable")


@pytest.mark.slow
def test_images_in_other_layouts_and_dtypes_are_audited():
    pool = mixture(90, 12)
    for given in (pool.bfloat16(), pool.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)):
        found = gausslens.audit(MultiDeltaDenoiser(pool[:60]), given[:60], given[60:], samples=30, noises=4)
        assert found.verdict.verdict == "memorizing"


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_models_of_any_precision_are_audited(images, dtype):
    train, held_out = images

    class Copier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.images = torch.nn.Parameter(train.flatten(1).to(dtype))

        def forward(self, x, sigma):
            assert x.dtype == sigma.dtype == dtype
            distances = torch.cdist(x.flatten(1).float(), self.images.float()) ** 2
            weights = (-distances / (2 * sigma.float()[:, None] ** 2)).softmax(1)
            return (weights.to(dtype) @ self.images).reshape(x.shape)

    assert gausslens.audit(Copier(), train, held_out, **HOW).verdict.verdict == "memorizing"


def test_images_of_one_row_are_audited():
    pool = mixture(90, 12).reshape(90, 1, 1, 36)
    found = gausslens.audit(MultiDeltaDenoiser(pool[:60]), pool[:60], pool[60:], samples=30, noises=4)
    assert found.verdict.verdict == "memorizing"


@pytest.mark.parametrize(("unseen", "told"), [(0.0, "Look at the closest pairs"), (0.03, "Nothing needs to be done")])
def test_samples_like_few_images_are_to_be_looked_at(unseen, told):
    """Where more of them than of new images are like one training image, and no test of many originals says so."""
    records = [
        {"quantity": "memorized_fraction", "value": 0.02, "low": 0.012, "high": 0.03},
        {"quantity": "memorized_fraction_held_out", "value": unseen, "low": unseen, "high": unseen + 0.004},
        {"quantity": "detectable", "value": 0.01},
    ]
    verdict = Verdict("generalizing", ("nothing shows",))
    assert told in advice(Audit(verdict, records, "model", "images", 400, 800, None))


def generalizing(*, lean=0.0, reach=0.02, **values):
    """An audit with this verdict and these records; an AUC's p-values are of three levels."""
    p_values = [
        {"quantity": "p_values", "sigma": sigma, "value": p}
        for sigma, p in zip((5.0, 1.0, 0.2), values.pop("p_values", (0.5, 0.5, 0.5)), strict=True)
    ]
    records = [{"quantity": name, "value": v, "low": v, "high": v} for name, v in values.items()]
    verdict = Verdict("generalizing", ("a reason",), Estimate(lean, lean - reach, lean + reach, 200), 1.0)
    return Audit(verdict, [*p_values, *records], "model", "images", 400, 800, None)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, "nothing shows that it treats its training images otherwise than new ones"),
        ({"p_values": (0.5, 0.02, 0.5)}, "nothing shows"),  # by chance at one of three levels
        ({"p_values": (0.5, 0.016, 0.5)}, "denoises its training images somewhat better than new ones, but is"),
        ({"lean": 0.2}, "leans a little toward its training images, but is far from retrieving them"),
        ({"lean": 0.2, "p_values": (0.5, 1e-4, 0.5)}, "somewhat better than new ones"),
        ({"lean": -0.2}, "nothing shows"),
        ({"copied_fraction": 0.004, "copy_p": 1e-4}, "but look at its samples"),
        ({"copied_fraction": 0.004, "copy_p": 0.01}, "nothing shows"),
        ({"memorized_fraction": 0.02, "memorized_fraction_held_out": 0.0}, "but look at its samples"),
        ({"memorized_fraction": 0.02, "memorized_fraction_held_out": 0.03}, "nothing shows"),
    ],
)
def test_the_sentence_denies_nothing_that_the_numbers_show(known, told):
    audit = generalizing(**known)
    assert told in title(audit)
    assert f"GENERALIZING. {title(audit)}" in str(audit)
    assert ("Look at the" in advice(audit)) == ("look at its samples" in told)


def test_a_filter_of_its_training_images_depends_on_them_and_the_law_does_not(images):
    """Neither copies. But of 40 images the Wiener filter fits these better than others, and the sentence says so."""
    train, held_out = images
    own, law = (GaussianDenoiser(Moments.fit(known)) for known in (train, mixture(20_000, 2)))
    audits = [gausslens.audit(model, train, held_out, **{**HOW, "samples": 0}) for model in (own, law)]
    assert [audit.verdict.verdict for audit in audits] == ["generalizing", "generalizing"]
    assert "somewhat better than new ones" in title(audits[0])
    assert "nothing shows" in title(audits[1])
