"""Student's t and the rank test, against values of SciPy 1.17."""

import pytest

from edgekit.results.distributions import rank_test, student_quantile


@pytest.mark.parametrize(
    ("freedom", "share", "value"),
    [
        (1, 0.975, 12.706204736174694), (2, 0.95, 2.9199855803537242),
        (3.7, 0.975, 2.8675207071911895), (14, 0.975, 2.144786687917804),
        (0.8, 0.995, 174.49791196608206), (250.5, 0.9, 1.2849402597357715),
        (40000, 0.9995, 3.290769991092476), (5, 0.2, -0.9195437802408267),
    ],
)  # fmt: skip
def test_quantiles_of_students_t(freedom, share, value):
    assert student_quantile(freedom, share) == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        ([1.1, 2.2, 3.3, 4.4], [5, 6, 7, 8], 0.02857142857142857),
        ([1.0, 4.0, 2.5, 9.0, 3.0], [2.0, 6.0, 7.0, 8.0, 11.0, 12.0], 0.17748917748917747),
        ([1, 2, 2, 3, 5], [2, 3, 4, 4, 6, 7], 0.13862587987892763),  # equal ones: approximated
        (range(0, 24, 2), [1.5 * i + 7.25 for i in range(10)], 0.33902086286986766),  # many
        ([1, 1, 1, 1], [1, 1, 1, 1], 1.0),
    ],
)
def test_rank_test(one, other, p):
    assert rank_test(one, other) == pytest.approx(p, rel=1e-12)
    assert rank_test(other, one) == pytest.approx(p, rel=1e-12)
