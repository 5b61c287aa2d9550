# SPDX-License-Identifier: Apache-2.0
"""bench/cpu_torch on small layers: pairs, what they are a record of, and the interval of a median."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-python TORCH=install` brings it")
sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
import cpu_torch  # noqa: E402


def test_a_small_run_records_pairs_of_the_same_results(tmp_path, capsys):
    cpu_torch.main(["--tiny", "--m", "1,5", "--layers", "2", "--seconds", "0.05", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*/cpu_torch.json")
    record = json.loads(path.read_text())
    assert path.parent.name == record["device_name"] and [row["m"] for row in record["rows"]] == [1, 5]
    for row in record["rows"]:
        assert set(row["kernels"]) == {"qkv", "o", "gate_up", "down"}
        assert 0 < row["rel_error"] < 0.1
        for part in ("model", "linears"):
            found = row[part]
            assert found["ratio_lo"] <= found["ratio"] <= found["ratio_hi"] and found["rounds"] >= 6
            assert found["octile_us"] > 0 and found["torch_bf16_us"] > 0
    assert capsys.readouterr().out.count("geometric mean") == 2


def test_a_tune_time_that_is_none_is_refused():
    with pytest.raises(SystemExit, match="want whole seconds, such as 60s, got 1m"):
        cpu_torch.main(["--tiny", "--m", "1", "--tune", "1m"])


def test_the_interval_of_a_median_is_that_of_order_statistics():
    # Of 6 values the least and the largest hold the median with 1 - 2 / 64; of 10 the second and the ninth with 1 - 22 / 1024.
    assert cpu_torch.median_interval([6, 5, 4, 3, 2, 1]) == (3.5, 1, 6)
    assert cpu_torch.median_interval(list(range(10))) == (4.5, 1, 8)
