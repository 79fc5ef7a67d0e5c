"""What claims find: intervals over few seeds end where values can."""

import pytest

from gausslens.paper.axes import CORRELATION, POSITIVE
from gausslens.paper.claims.claim import control
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.claims.inference import ANY

_CLOSE_TO_ONE = Evidence([{"seed": seed, "value": value} for seed, value in enumerate((0.9, 0.99))])
_CLOSE_TO_NONE = Evidence([{"seed": seed, "value": value} for seed, value in enumerate((0.01, 0.1))])


@pytest.mark.parametrize(
    ("records", "possible", "low", "high"),
    [(_CLOSE_TO_ONE, CORRELATION, None, 1.0), (_CLOSE_TO_NONE, POSITIVE, 0.0, None)],
)
def test_a_control_has_the_interval_of_its_seeds_within_what_is_possible(records, possible, low, high):
    (free,) = control("free", records, Evidence.one, ANY)
    (bounded,) = control("bounded", records, Evidence.one, possible)
    assert free.low < 0 or free.high > 1
    assert bounded.value == free.value
    assert bounded.low == (free.low if low is None else low)
    assert bounded.high == (free.high if high is None else high)
