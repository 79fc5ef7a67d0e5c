"""Images to take moments of, and what is asked of the moments."""

import torch
from reference import as_rows, mean_and_covariance
from torch.utils.data import DataLoader, Dataset, TensorDataset

SHAPE = (1, 3, 4)
DIM = 12


def images_of(n, shape=SHAPE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -1.5, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    noise = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return (0.2 * scales * noise + 0.1).clamp(-1, 1)


def bytes_of(n, seed=0):
    return torch.randint(0, 256, (n, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def covariance_of(moments):
    """U diag(λ) Uᵀ + floor (I − U Uᵀ)."""
    projection = moments.eigvecs @ moments.eigvecs.T
    inside = (moments.eigvecs * moments.eigvals) @ moments.eigvecs.T
    return inside + moments.floor * (torch.eye(moments.dim, dtype=torch.float64) - projection)


def assert_equal_moments(found, expected, tolerance=1e-12):
    assert (found.count, found.shape, found.truncated) == (expected.count, expected.shape, expected.truncated)
    size = float(expected.eigvals[:1].sum()) or 1.0
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(found.eigvals, expected.eigvals, rtol=0, atol=tolerance * size)
    torch.testing.assert_close(covariance_of(found), covariance_of(expected), rtol=0, atol=tolerance * size)


def assert_moments_of(found, images, tolerance=1e-12):
    """The moments are those of the images, and in order."""
    mean, covariance = mean_and_covariance(as_rows(images))
    size = float(covariance.diagonal().max()) or 1.0
    assert found.count == len(images)
    assert found.shape == tuple(images.shape[1:])
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=tolerance * max(1.0, float(mean.abs().max())))
    torch.testing.assert_close(covariance_of(found), covariance, rtol=0, atol=tolerance * size)
    identity = torch.eye(len(found.eigvals), dtype=torch.float64)
    torch.testing.assert_close(found.eigvecs.T @ found.eigvecs, identity, rtol=0, atol=1e-12)
    assert bool((found.eigvals.diff() <= 0).all())
    assert bool((found.eigvals >= 0).all())


class Indexed(Dataset):
    """A map-style dataset of (image, label) pairs."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], 7


def reused_buffer(images):
    """Batches that all live in one buffer, as some loaders hand them out."""
    buffer = torch.empty_like(images[:5])
    for batch in images.split(5):
        buffer[: len(batch)] = batch
        yield buffer[: len(batch)]


SOURCES = {
    "tensor": lambda images: images,
    "array": lambda images: images.numpy(),
    "flipped array": lambda images: images.flip(3).numpy()[..., ::-1],
    "permuted tensor": lambda images: images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "list of batches": lambda images: list(images.split(7)),
    "list of images": list,
    "generator": lambda images: (batch for batch in images.split(7)),
    "generator of arrays": lambda images: (batch.numpy() for batch in images.split(7)),
    "generator with one buffer": reused_buffer,
    "dataset": Indexed,
    "loader": lambda images: DataLoader(TensorDataset(images), batch_size=9),
    "iterator of a loader": lambda images: iter(DataLoader(TensorDataset(images), batch_size=9)),
}
