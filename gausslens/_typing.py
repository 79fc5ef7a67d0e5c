"""Shapes as types: `Float[Tensor, "b *shape"]`.

The tests install jaxtyping, which checks the shapes at every call. Without it they are documentation and cost nothing.
Annotate the mathematics with them. Public functions take plain `Tensor` and raise errors of this package. Arguments that
such a function checks itself have a type for mypy and are `Any` at run time, so that its own error is raised in tests.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, UInt8

    Sigma: TypeAlias = float | Tensor
    Sigmas: TypeAlias = float | Tensor | Iterable[float]
else:
    Sigma = Any
    Sigmas = Any
    try:
        from jaxtyping import Bool, Float, Int, UInt8
    except ImportError:

        class _Shaped:
            """Stands in for a jaxtyping dtype: `_Shaped[Tensor, "b d"]` is `Tensor`."""

            def __class_getitem__(cls, item: tuple[type, str]) -> type:
                return item[0]

        Bool = Float = Int = UInt8 = _Shaped

Images: TypeAlias = Any
"""A tensor, an array, a dataset of images, or an iterable of batches; `gausslens.images` checks which."""

__all__ = ["Bool", "Float", "Images", "Int", "Sigma", "Sigmas", "UInt8"]
