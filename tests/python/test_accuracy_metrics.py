# SPDX-License-Identifier: Apache-2.0
"""bench/accuracy/metrics.py against values worked out by hand, by another formula or by statistics of the standard library."""

import json
import math
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "accuracy"))
import metrics
import table
import texts


def test_log_probabilities_sum_to_one_and_do_not_overflow(rng):
    logits = rng.standard_normal((5, 40)).astype(np.float32) * 30 + 1e4
    found = metrics.log_softmax(logits)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(found[:, 3] - found[:, 7], logits[:, 3].astype(float) - logits[:, 7], rtol=1e-9)


def test_perplexity_of_a_uniform_guess_is_the_size_of_the_vocabulary():
    log_p = metrics.log_softmax(np.zeros((6, 37)))
    nll = metrics.negative_log_likelihood(log_p, np.arange(6))
    assert metrics.perplexity(nll) == pytest.approx(37)


def test_likelihoods_are_those_of_the_tokens():
    log_p = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    nll = metrics.negative_log_likelihood(log_p, np.array([0, 2]))
    assert metrics.perplexity(nll) == pytest.approx(1 / math.sqrt(0.5 * 0.7))


def test_kl_divergence_of_two_coins():
    p, q = np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])
    assert metrics.kl_divergence(p, q)[0] == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert metrics.kl_divergence(q, p)[0] == pytest.approx(0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5))


def test_kl_divergence_is_zero_for_equals_and_positive_else(rng):
    p = metrics.log_softmax(rng.standard_normal((8, 50)))
    q = metrics.log_softmax(rng.standard_normal((8, 50)))
    assert np.abs(metrics.kl_divergence(p, p)).max() == 0
    assert metrics.kl_divergence(p, q).min() > 0


def test_relative_error_is_a_share_of_the_norm_of_what_was_wanted():
    assert metrics.relative_error(np.array([3.0, 4.0]), np.array([0.0, 4.0])) == pytest.approx(0.75)
    assert metrics.relative_error(np.array([2.0]), np.array([0.0])) == 2


def test_equal_values_share_the_mean_of_their_ranks():
    assert metrics.ranks(np.array([10, 30, 20, 30, 30])).tolist() == [1, 4, 2, 4, 4]


def test_spearman_is_that_of_statistics_with_and_without_ties(rng):
    for a, b in (
        (rng.standard_normal(60), rng.standard_normal(60)),
        (rng.integers(5, size=60).astype(float), rng.integers(4, size=60).astype(float)),
    ):
        expected = statistics.correlation(metrics.ranks(a).tolist(), metrics.ranks(b).tolist())
        assert metrics.spearman(a, b) == pytest.approx(expected, abs=1e-12)


def test_spearman_sees_the_order_alone():
    a = np.arange(1.0, 20)
    assert metrics.spearman(a, np.exp(a)) == pytest.approx(1)
    assert metrics.spearman(a, -(a**3)) == pytest.approx(-1)
    assert math.isnan(metrics.spearman(a, np.ones_like(a)))
    with pytest.raises(ValueError, match="got \\(19,\\) and \\(2,\\)"):
        metrics.spearman(a, a[:2])


def test_a_bootstrap_interval_of_a_mean_is_near_the_normal_one(rng):
    values = rng.standard_normal(400)
    found = metrics.bootstrap_interval(400, lambda i: float(values[i].mean()))
    half = 1.96 * values.std(ddof=1) / 20
    assert found["value"] == pytest.approx(values.mean())
    assert found["lo"] == pytest.approx(values.mean() - half, abs=0.25 * half)
    assert found["hi"] == pytest.approx(values.mean() + half, abs=0.25 * half)


def test_a_bootstrap_repeats_by_its_seed_and_wants_two_units(rng):
    values = rng.standard_normal(30)

    def interval(seed):
        return metrics.bootstrap_interval(30, lambda i: float(values[i].mean()), resamples=200, seed=seed)

    assert interval(1) == interval(1) and interval(1) != interval(2)
    with pytest.raises(ValueError, match="got 1"):
        metrics.bootstrap_interval(1, lambda i: 0.0)


def test_blocks_are_spread_over_the_text_and_do_not_overlap():
    found = texts.blocks(list(range(100)), 4, 10)
    assert found[:, 0].tolist() == [0, 30, 60, 90] and (np.diff(found, axis=1) == 1).all()
    with pytest.raises(ValueError, match="want 4 blocks of 30 tokens, got 100"):
        texts.blocks(list(range(100)), 4, 30)


def test_sentences_are_whole_different_and_of_the_manual():
    found = texts.sentences(texts.read(None), 50)
    assert len(set(found)) == 50
    assert all(40 <= len(sentence) <= 200 and sentence[-1] in ".?!" for sentence in found)


def test_another_text_is_read_and_named(tmp_path):
    path = tmp_path / "their-manual.txt"
    path.write_text("Caf\u00e9s are open.\n", encoding="utf-8")
    assert texts.read(path) == "Caf\u00e9s are open.\n"
    assert texts.provenance("x", path)["source"] == "their-manual.txt"
    assert "of Python 3." in texts.provenance("x", None)["source"]


def test_the_tables_of_the_guide_are_the_records():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    records = sorted((root / "bench" / "results").glob("*/accuracy_*.json"))
    assert records
    for path in records:
        record = json.loads(path.read_text(encoding="utf-8"))
        for row in (*table.variants_table(record), *table.layers_table(record, "octile_fast")):
            assert row in page, f"{path}: docs/accuracy.md lacks {row}"
