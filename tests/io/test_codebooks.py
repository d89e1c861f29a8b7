"""Codebooks and palettes against the best that brute force finds."""

import numpy as np
import pytest

from jaxsplat.io.codebooks import codebook, palette


def test_few_values_are_kept_exactly():
    values = np.array([[3.0, -1.0], [3.0, 0.5]])
    book, index = codebook(values, size=8)
    assert (book[index] == values).all() and (np.diff(book) >= 0).all() and len(book) == 8


def test_no_values_have_a_codebook_too():
    book, index = codebook(np.zeros((0, 3)))
    assert book.shape == (256,) and index.shape == (0, 3)


def test_many_values_are_near_one_of_the_book_and_each_takes_the_nearest():
    values = np.concatenate([np.random.default_rng(0).normal(size=20_000), [40.0, -40.0]])
    book, index = codebook(values)
    error = np.abs(book[index] - values)
    np.testing.assert_allclose(error, np.abs(values[:, None] - book).min(1), atol=1e-12)
    uniform = np.linspace(-40, 40, 256)
    assert (
        np.square(error).mean() < 0.01 * np.square(values - uniform[np.abs(values[:, None] - uniform).argmin(1)]).mean()
    )
    assert error[-2:].max() < 1.0, "outliers are not forgotten"


@pytest.mark.parametrize("most", [16, 64])
def test_rows_that_are_alike_share_one_that_is_their_mean(most):
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(16, 5))[rng.integers(16, size=500)] + 1e-4 * rng.normal(size=(500, 5))).astype(np.float32)
    chosen, index = palette(rows, most=most)
    assert len(chosen) == most and (np.bincount(index, minlength=most) > 0).all()
    np.testing.assert_allclose(chosen[3], rows[index == 3].mean(0), rtol=1e-5)
    assert np.square(chosen[index] - rows).mean() < 0.25 * rows.var()
    few, index = palette(rows, most=512)
    assert (few[index] == rows).all()
