"""An audit from Python: known models get the verdict that they deserve, and what was measured can be judged again."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from known_models import smooth_images

import gausslens
from gausslens import ConfigError, DataError, GaussianDenoiser, Moments, MultiDeltaDenoiser
from gausslens.auditing.config import AuditConfig
from gausslens.auditing.evidence import Evidence
from gausslens.auditing.inputs import resolve, validate_inputs
from gausslens.auditing.page import make_page
from gausslens.auditing.summary import SCHEMA, advice, as_json, headline
from gausslens.auditing.verdict import VERDICTS, judge
from gausslens.evaluation.references import RunImages
from gausslens.images import dequantize, quantize
from gausslens.report import ImageGrid
from gausslens.zoo.model import Model

HOW = {"samples": 120, "noises": 4, "count": 60, "sigmas": (4.0, 1.0, 0.3, 0.1)}


@pytest.fixture(scope="module", name="images")
def split_images():
    return smooth_images(40, 0), smooth_images(120, 1)


@pytest.fixture(scope="module", name="law")
def law_of_the_images():
    return GaussianDenoiser(Moments.fit(smooth_images(20_000, 2)))


@pytest.fixture(scope="module", name="lawful")
def audit_of_the_law(images, law):
    return gausslens.audit(law, *images, **HOW)


@pytest.fixture(scope="module", name="unsampled")
def audit_of_the_law_without_samples(images, law):
    return gausslens.audit(law, *images, **{**HOW, "samples": 0})


@pytest.fixture(scope="module", name="copier")
def audit_of_a_copier(images):
    train, held_out = images
    return gausslens.audit(MultiDeltaDenoiser(train), train, held_out, **HOW)


def test_a_perfect_copier_is_found_and_its_copies_are_named(copier, images):
    assert copier.verdict.verdict == "memorizing"
    assert copier.first("copies_exist")["value"] is True
    assert copier.first("copied_share")["low"] > 0.9
    assert copier.first("gaussian_share")["high"] < 0.1
    named = copier.find("copy")
    assert len(named) > 100
    # Each pair names the training image that the sample is: nearer than any other.
    pixels = dequantize(copier.samples)
    for record in named[:10]:
        distances = (images[0] - pixels[record["sample"]]).flatten(1).norm(dim=1)
        assert int(distances.argmin()) == record["image"] == record["original"]
    # By original, how many of the named copies are of it.
    counts = {record["image"]: record["value"] for record in copier.find("copied_original")}
    assert counts == Counter(record["image"] for record in named)
    assert list(counts.values()) == sorted(counts.values(), reverse=True)


def test_the_law_itself_generalises(lawful):
    found = lawful
    assert found.verdict.verdict == "generalizing"
    assert not found.find("copy")
    assert found.first("copies_exist")["value"] is False
    (exact,) = found.find("detectable", kind="exact")
    assert 0 < exact["value"] < 0.5 * exact["count"]


def test_an_audit_without_samples_says_so_and_one_with_them_what_it_may_have_missed(lawful, unsampled):
    without, found = unsampled, lawful
    assert without.verdict.verdict == "generalizing"
    assert "samples were not examined" in headline(without)
    assert "--samples" in advice(without)
    counts = {record["kind"]: record["value"] for record in found.find("smallest_count")}
    assert set(counts) == {"spread", "concentrated"}  # no training image stands there twice
    assert (
        f"no copies were found among 120 samples ({max(counts.values())} copies would have been detected)"
        in headline(found)
    )
    assert "not examined" not in str(found)


def test_the_verdict_follows_from_the_records(copier):
    stored = json.loads(json.dumps(copier.records))
    again = judge(Evidence(stored))
    assert again.verdict == copier.verdict.verdict
    assert again.reasons == copier.verdict.reasons


def test_without_held_out_images_it_says_what_it_cannot_calibrate(images, law):
    train, _ = images
    found = gausslens.audit(law, train, **{**HOW, "samples": 30})
    assert found.verdict.verdict == "cannot tell"
    assert any("held-out" in reason for reason in found.verdict.reasons)
    copier = gausslens.audit(MultiDeltaDenoiser(train), train, **{**HOW, "samples": 30})
    assert copier.verdict.verdict == "memorizing"


def test_a_model_of_other_images_cannot_be_judged(images):
    train, held_out = images
    swapped = GaussianDenoiser(Moments.fit(-smooth_images(5_000, 4).flip(-1) * 0.1 + 0.8))
    assert gausslens.audit(swapped, train, held_out, **{**HOW, "samples": 0}).verdict.verdict == "cannot tell"


def test_json_has_everything_and_names_its_schema(copier):
    told = json.loads(as_json(copier, page="runs/page.html"))
    assert (told["schema"], told["page"]) == (SCHEMA, "runs/page.html") == ("gausslens-audit/2", "runs/page.html")
    assert (told["verdict"], told["headline"], told["advice"]) == ("memorizing", headline(copier), advice(copier))
    copying, membership = told["copying"], told["membership"]
    assert copying["exist"] is True
    assert copying["share"]["low"] <= copying["share"]["value"] <= copying["share"]["high"]
    assert (copying["share"]["count"], len(copying["copies"])) == (120, len(copier.find("copy")))
    assert sum(original["value"] for original in copying["originals"]) == len(copying["copies"])
    assert set(copying["smallest_count"]) == {"spread", "concentrated"}
    assert (membership["leaks"], membership["refused"]) == (True, None)
    assert membership["lean"]["low"] <= membership["lean"]["value"] <= membership["lean"]["high"]
    assert [auc["sigma"] for auc in membership["auc"]] == sorted(HOW["sigmas"], reverse=True)
    assert membership["leaking_images"] == [record["value"] for record in copier.find("leaking_image")]
    assert all(0 <= image < 40 for image in membership["leaking_images"])
    stages = {record["stage"] for record in told["records"]}
    assert stages == {"premises", "losses", "foreignness", "distances", "copies"}


def test_the_table_is_readable(copier):
    told = str(copier)
    assert told.startswith("MultiDeltaDenoiser on images: 40 training and 120 held-out images\n\nMemorizing: ")
    assert max(map(len, told.splitlines())) < 180


@pytest.mark.slow
def test_mirrored_training_images_are_references_too(images):
    train, held_out = images
    both = torch.cat([train, train.flip(-1)])
    found = gausslens.audit(MultiDeltaDenoiser(both), train, held_out, augment="flip", **HOW)
    assert found.verdict.verdict == "memorizing"
    assert max(record["value"] for record in found.find("rmse", reference="multidelta")) < 1e-4


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
    with pytest.raises(DataError, match="these 40 are the training images"):
        gausslens.audit(denoiser, train, train, **HOW)
    with pytest.raises(ConfigError, match="groups are given for training and held-out images, or for neither"):
        gausslens.audit(denoiser, train, held_out, groups=torch.arange(40))
    with pytest.raises(ConfigError, match="labels are given for training and held-out images, or for neither"):
        gausslens.audit(denoiser, train, held_out, held_out_labels=torch.zeros(120, dtype=torch.long))
    with pytest.raises(DataError, match="groups"):
        gausslens.audit(denoiser, train, held_out, groups=torch.arange(39), held_out_groups=torch.arange(120))
    with pytest.raises(DataError, match=r"at least 4 training images; .* 1 different"):
        gausslens.audit(denoiser, train[:1].repeat(9, 1, 1, 1), held_out, **HOW)


@pytest.mark.parametrize("sigmas", [torch.tensor([0.3, 4.0]), np.array([4.0, 0.3]), [4, 0.3], 0.3])
def test_noise_levels_are_given_in_any_form(images, sigmas):
    found = gausslens.audit(MultiDeltaDenoiser(images[0]), *images, **{**HOW, "samples": 0, "sigmas": sigmas})
    assert found.verdict.verdict == "memorizing"
    assert min(record["sigma"] for record in found.find("auc")) == pytest.approx(0.3)


def test_samples_that_are_not_finite_are_refused(images, law):
    train, held_out = images

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
    whole, tried = (validate_inputs(model, both, AuditConfig("model"), trial=trial) for trial in (False, True))
    assert encoded == [40, 120, 2, 2]
    assert resolve(tried) == resolve(whole)
    assert [len(part) for part in tried.pictures] == [40, 120]


def test_the_gallery_shows_decoded_latents(images):
    train, held_out = (quantize(part) for part in images)
    ways = {"encode": lambda x: 0.02 * dequantize(x), "decode": lambda z: quantize(z / 0.02)}
    copier = MultiDeltaDenoiser(ways["encode"](train), bounds=None)
    model = Model(copier, (1, 6, 6), bounds=None, sigma_range=(0.005, 10.0), **ways)
    how = {**HOW, "sigmas": (1.0, 0.1, 0.02, 0.005)}
    context = validate_inputs(
        model, RunImages(train, train, held_out, None, None, "images"), AuditConfig("model", **how)
    )
    page = make_page(gausslens.audit(model, train, held_out, **how), context, {}, "gausslens audit")
    grids = [figure for section in page.sections for figure in section.figures if isinstance(figure, ImageGrid)]
    assert grids
    for grid in grids:  # the samples of this model are training images
        samples, originals, difference = grid.images.astype(int)
        assert abs(samples - originals).mean() < 2
        assert abs(difference - 128).mean() < 2  # grey is none


def test_features_are_told_beside_the_pixels(images, tmp_path, monkeypatch):
    train, held_out = images
    (tmp_path / "feature_module.py").write_text("def flat(images):\n    return images[:, 0].flatten(1)\n")
    monkeypatch.chdir(tmp_path)
    found = gausslens.audit(MultiDeltaDenoiser(train), train, held_out, features="feature_module:flat", **HOW)
    assert found.find("two_set_p_features")[0]["value"] < 0.01
    assert found.find("copied_share_features")[0]["low"] > 0.9
    assert found.find("relative_gl_features")[0]["value"] < 0.1
    told = str(found)
    for name in ("Fréchet distance of features", "p of the two-set test of features", "copies by features"):
        assert name in told


def test_repeats_are_told_without_samples(images):
    train, held_out = images
    repeated, seen = torch.cat([train, train[:2]]), torch.cat([held_out, train[:1]])
    found = gausslens.audit(MultiDeltaDenoiser(repeated), repeated, seen, **{**HOW, "samples": 0})
    assert [found.first(of)["value"] for of in ("train_duplicates", "overlap")] == [2, 1]
    assert "repeated training images" in str(found)
    assert "held-out images not new" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [2, 4])
def test_too_few_held_out_images_for_the_copy_test_do_not_acquit(held_out):
    pool = smooth_images(200 + held_out, 11)
    found = gausslens.audit(MultiDeltaDenoiser(pool[:200]), pool[:200], pool[200:], samples=60, noises=4)
    assert found.verdict.verdict == "memorizing"
    assert found.first("copies_exist")["value"] is True  # training images among one another are controls, too


def test_images_of_which_none_can_be_told_from_its_neighbours_are_audited():
    flat = torch.randint(0, 2, (120, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)) + 100
    found = gausslens.audit(MultiDeltaDenoiser(flat[:60]), flat[:60], flat[60:], **{**HOW, "samples": 60})
    assert found.verdict.verdict in VERDICTS
    assert not found.find("detectable")


@pytest.mark.slow
def test_images_in_other_layouts_and_dtypes_are_audited():
    pool = smooth_images(90, 12)
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
    pool = smooth_images(90, 12).reshape(90, 1, 1, 36)
    found = gausslens.audit(MultiDeltaDenoiser(pool[:60]), pool[:60], pool[60:], **{**HOW, "samples": 30})
    assert found.verdict.verdict == "memorizing"


def test_a_filter_of_its_training_images_depends_on_them_and_the_law_does_not(images, unsampled):
    """Neither copies. But the Wiener filter of 40 images fits these better than others, and the sentence says so."""
    train, held_out = images
    own = GaussianDenoiser(Moments.fit(train))
    audits = [gausslens.audit(own, train, held_out, **{**HOW, "samples": 0}), unsampled]
    assert [audit.verdict.verdict for audit in audits] == ["generalizing", "generalizing"]
    assert [audit.verdict.leaks for audit in audits] == [True, False]
    assert ", but its losses reveal which images it was trained on (AUC 0.9" in headline(audits[0])
    assert "its losses do not clearly reveal which images it was trained on (AUC" in headline(audits[1])
    assert "keep the model private" in advice(audits[0])
    assert "private" not in advice(audits[1])
