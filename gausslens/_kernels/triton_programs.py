"""The programs behind `kernels`, in Triton.

Activations are in the channels-last layout, so memory is a matrix with a row for each pixel and a column for each
channel; a program works on a block of ROWS × COLUMNS. Sums are in float32 whatever the activations are.

Triton finds `tl` among the globals of a function, so nothing may stand between the two, such as a check of types.
"""

from types import SimpleNamespace
from typing import no_type_check

try:
    import triton
    import triton.language as tl
except ImportError:  # torch brings it along with CUDA, but not everywhere
    triton, tl = SimpleNamespace(jit=lambda function: function), SimpleNamespace(constexpr=None)

AVAILABLE = not isinstance(triton, SimpleNamespace)
"""Whether Triton is installed; without it, no program here runs."""


@triton.jit
@no_type_check
def moments(x, mean, variance, pixels, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and variance over the pixels of one image, for a block of its channels, by distances from the first pixel."""
    image = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = x + image * pixels * channels
    origin = tl.load(first + column, mask=column < channels, other=0.0).to(tl.float32)
    for start in range(0, pixels, ROWS):
        row = start + rows
        inside = (row < pixels)[:, None] & (column < channels)[None, :]
        value = tl.load(first + row[:, None] * channels + column[None, :], mask=inside, other=0.0).to(tl.float32)
        distance = tl.where(inside, value - origin[None, :], 0.0)
        total += distance
        squares += distance * distance
    target = image * channels + column
    shift = tl.sum(total, 0) / pixels
    tl.store(mean + target, origin + shift, mask=column < channels)
    tl.store(variance + target, tl.sum(squares, 0) / pixels - shift * shift, mask=column < channels)


@triton.jit
@no_type_check
def affine(
    mean, variance, offset, weight, center, scale, groups, size, epsilon,
    MOVED: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Center and scale of every channel of one image, with which normalising is (x − center)·scale + bias."""
    group, member = tl.arange(0, GROUPS)[:, None], tl.arange(0, SIZE)[None, :]
    inside = (group < groups) & (member < size)
    channel = group * size + member
    here = tl.program_id(0) * groups * size + channel
    m = tl.load(mean + here, mask=inside, other=0.0)
    v = tl.load(variance + here, mask=inside, other=0.0)
    a = tl.zeros((GROUPS, SIZE), tl.float32)
    if MOVED:  # moments of x + a
        a = tl.load(offset + here, mask=inside, other=0.0)
        m += a
    middle = (tl.sum(m, 1) / size)[:, None]
    between = tl.where(inside, m - middle, 0.0)
    spread = (tl.sum(v + between * between, 1) / size)[:, None]
    factor = tl.load(weight + channel, mask=inside, other=0.0) / tl.sqrt(tl.maximum(spread, 0.0) + epsilon)
    tl.store(scale + here, factor, mask=inside)
    tl.store(center + here, middle - a, mask=inside)


@triton.jit
@no_type_check
def apply_affine(
    x, center, scale, bias, y, pixels, channels,
    ACTIVATE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(x − center)·scale + bias, and SiLU, of some pixels and channels of one image."""
    image = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < pixels)[:, None] & (column < channels)[None, :]
    place = image * pixels * channels + row[:, None] * channels + column[None, :]
    middle = tl.load(center + image * channels + column, mask=column < channels, other=0.0)[None, :]
    factor = tl.load(scale + image * channels + column, mask=column < channels, other=0.0)[None, :]
    term = tl.load(bias + column, mask=column < channels, other=0.0)[None, :]
    value = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - middle) * factor + term
    if ACTIVATE:
        value = value * tl.sigmoid(value)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def add_scaled(p, q, bias, z, rows, channels, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """scale·(p + q) + bias of some pixels and channels."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    place = row[:, None] * channels + column[None, :]
    both = tl.load(p + place, mask=inside, other=0.0).to(tl.float32)
    both += tl.load(q + place, mask=inside, other=0.0).to(tl.float32)
    term = tl.load(bias + column, mask=column < channels, other=0.0)[None, :]
    tl.store(z + place, (scale * both + term).to(z.dtype.element_ty), mask=inside)
