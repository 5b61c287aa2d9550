#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of hopper_decode's cost model (decode_predict_us in hopper_decode_config.cpp) to recorded timings.

    pip install numpy scipy
    fit_decode_model.py bench/results/NVIDIA_H200/hopper_decode_sweep.json [--seconds 120]

Prints the constants in the order in which they stand there, and for every point what the model's first, first four and first
eight configs lose to the best one timed. What is minimised weighs configs near the best of their point most, since the model
only has to rank those."""
import argparse
import collections
import json
import math
import time

import numpy
from scipy.optimize import minimize

SHAPES = {"qkv": (6144, 4096), "o": (4096, 4096), "down": (4096, 12288), "gate_up": (24576, 4096)}
SMS = 132
SHARED_PER_SM = 228 * 1024
START = {
    "dram_rate": 5.01e6, "sm_rate": 203e3, "latency_us": 2.21, "window_gain": 6.22, "token_share": 0.386,
    "multiply_clocks": 8.2, "column_clocks": 7.8, "stage_clocks": 39.0, "most_together": 1.55, "quiet_kib": 52.6,
    "longest": 0.67, "chain_us": 1.0, "fill": 0.94, "tile_tokens": 0.236, "real_tokens": 0.152, "split_us": 1.0,
    "split_4_us": 2.84, "split_most_us": 1.81, "room_us": 0.084, "uneven_us": 0.285, "queue_us": 1.385e-2, "early_us": 0.135,
    "groups": 0.72,
}


def predict(shape, m, config, p):
    n, k = SHAPES[shape]
    tokens, chunks_of_stage, stages = config["TOKENS"], config["K_CHUNKS"], config["STAGES"]
    split, rows, swap = config.get("SPLIT_K", 1), config.get("ROWS", 64), config.get("SWAP", 0)
    weight_stage, code_stage = 128 * chunks_of_stage * rows, 128 * chunks_of_stage * tokens
    behind = 128 * (64 - rows) if rows < 64 and not swap else 0
    shared = stages * (weight_stage + code_stage + 24) + 8 + behind + 4 * (rows + tokens)
    window = config.get("WINDOW", 0)
    window_bytes = weight_stage * (max(1, min(stages, 1024 * window // weight_stage)) if window else stages)
    blocks = math.ceil(n / rows) * split * math.ceil(m / tokens)
    resident = max(1, SHARED_PER_SM // (shared + 1024))
    most = math.ceil(blocks / SMS)
    together = min(most, resident)
    chunks = k / 128 / split
    real = min(m, tokens)
    in_flight = together * min(p["window_gain"] * window_bytes, stages * (weight_stage + code_stage))
    sm_us = most * chunks * 128 * (rows + p["token_share"] * real) / min(p["sm_rate"], in_flight / p["latency_us"])
    dram_us = n * k / p["dram_rate"]
    clocks = 4 * max(p["multiply_clocks"], 0.5 * (rows if swap else tokens) + p["column_clocks"])
    clocks = clocks * (1 if swap else max(1, rows // 64)) ** p["groups"] + p["stage_clocks"] / chunks_of_stage
    multiply_us = most * chunks * clocks / 1700 / min(together, p["most_together"])
    us = p["longest"] * max(sm_us, dram_us, multiply_us) + (1 - p["longest"]) * (sm_us + dram_us + multiply_us)
    us += p["chain_us"] + p["fill"] * (weight_stage + code_stage) / p["sm_rate"] + 0.7 * (math.ceil(most / resident) - 1)
    us += (p["tile_tokens"] * tokens + p["real_tokens"] * real) / 16
    if split > 1:
        us += p["split_us"] + (p["split_4_us"] if split > 2 else 0) + (p["split_most_us"] if most > 1 else 0)
    if config.get("PDL", 1) == 2:
        us += (p["room_us"] if resident <= together else 0) + p["uneven_us"] * (most - blocks / SMS)
        under_way = min(resident, max(1, blocks / SMS)) * window_bytes
        us += p["queue_us"] * max(0, under_way / 1024 - p["quiet_kib"])
        us -= p["early_us"] if config.get("EARLY", 0) else 0
    return us


def losses(points, p):
    """Of every point: the mean squared logarithm of prediction / time, and what the first 1, 4, 8 lose to the best."""
    result = {}
    for key, rows in points.items():
        ranked = sorted((predict(key[0], key[1], config, p), us) for config, us in rows)
        best = min(us for _, us in ranked)
        weights = [math.exp(-12 * (us / best - 1)) for _, us in ranked]
        error = sum(w * math.log(guess / us) ** 2 for w, (guess, us) in zip(weights, ranked)) / sum(weights)
        result[key] = (error, *(min(us for _, us in ranked[:count]) / best for count in (1, 4, 8)))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", nargs="+")
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args()
    points = collections.defaultdict(list)
    for path in arguments.sweep:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                if row["family"] == "hopper_decode" and row["scope"] == "linear":
                    points[(row["shape"], row["m"])].append((row["config"], row["us"]))
    if not points:
        parser.error("no timing of hopper_decode's whole linear in " + " ".join(arguments.sweep))
    keys, start = list(START), numpy.array(list(START.values()))

    def objective(scaled):
        p = dict(zip(keys, scaled * start))
        if min(p.values()) <= 0 or p["longest"] > 1:
            return math.inf
        found = numpy.array(list(losses(points, p).values()))
        return 30 * found[:, 0].mean() + (found[:, 1] - 1).mean() + 3 * (found[:, 3] - 1).mean() + 0.3 * (found[:, 3].max() - 1)

    best = numpy.ones(len(keys))
    until = time.monotonic() + arguments.seconds
    generator = numpy.random.default_rng(1)
    trial = best
    while time.monotonic() < until:
        found = minimize(objective, trial, method="Nelder-Mead", options={"maxiter": 300, "adaptive": True})
        best = min(best, found.x, key=objective)
        trial = best * (1 + 0.1 * generator.standard_normal(len(keys)))
    p = dict(zip(keys, best * start))
    for key, value in p.items():
        print(f"{key:16} {value:.4g}")
    for (shape, m), (error, first, four, eight) in losses(points, p).items():
        print(f"{shape:8} M={m:<4} {len(points[(shape, m)]):4} timings, off by {math.sqrt(error):5.1%}; first {first:.3f}, "
              f"first four {four:.3f}, first eight {eight:.3f} of the best")


if __name__ == "__main__":
    main()
