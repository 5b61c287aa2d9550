#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of hopper_wgmma's cost model (wgmma_predict_us in hopper_wgmma_search.cpp) to recorded timings.

    pip install numpy scipy
    fit_wgmma_model.py bench/results/NVIDIA_H200/hopper_wgmma_{sweep,neighbours}.json [--seconds 120]

Prints the constants, and what the model's first, first four and first sixteen configs lose to the best one timed at every
point. What is minimised weighs configs near the best of their point most, since the model only has to rank those. Times of
different runs are different points: an absolute time of one is not compared with one of another. Rows of the product alone
(scope gemm) are those of early starts; rows of the whole linear tell what the launch modes do."""
import argparse
import json
import time

import numpy as np
from scipy.optimize import differential_evolution

SHAPES = {"qkv": (6144, 4096), "o": (4096, 4096), "down": (4096, 12288), "gate_up": (24576, 4096)}
SMS = 132
SHARED_PER_SM = 228 * 1024
OUT_BYTES = 2
# Constant: what it may be. Bytes a microsecond, microseconds, clocks, or without a unit.
BOUNDS = {
    "dram_rate": (3.5e6, 5e6), "sm_rate": (85e3, 250e3), "l2_rate": (60e3, 250e3), "clocks_per_us": (1300, 1850),
    "clock_loss": (0.0, 0.35), "shared_bytes_clock": (90, 140), "alone": (1.0, 1.3),
    "stage_clocks": (0, 60), "start_us": (0.5, 3.0), "output_rate": (8e3, 80e3), "held_stages": (0.5, 2.5),
    "latency_us": (0.5, 1.5), "cluster_latency": (1.0, 1.5), "cluster_us": (0.0, 0.8), "swap_loss": (0.95, 1.15),
    "norm_of_chunk": (2, 16), "norm": (1.5, 12), "round_us": (0.0, 1.0), "reread": (0.0, 0.6), "codes_shared": (1, 8),
    # Blocks whose requests for the same weights are one; then the linear's quantiser and what a late start costs.
    "by_cluster": (1.2, 2), "by_chance": (1, 1.8), "in_pairs": (1, 2), "two_in_order": (1, 2), "more_in_order": (1, 4.2),
    "quantise_us": (0.3, 3), "quantise_rate": (0.8e6, 6e6), "late_us": (0.5, 2.5), "consume_us": (0, 1.5),
}
SHARED = ["by_cluster", "by_chance", "in_pairs", "two_in_order", "more_in_order"]


def shared_by(config, m):
    """Which constant says how weights are shared; None: no neighbour asks for the same ones."""
    if config.get("CLUSTER_M", 1) > 1:
        return "by_cluster"
    side_by_side = min(config.get("GROUP_SIZE_M", 8), -(-m // config["BLOCK_SIZE_M"]))
    if side_by_side < 2 or config.get("CLUSTER_N", 1) > 1:
        return None
    if config.get("PAIRS", 0):
        return "in_pairs" if side_by_side % 2 == 0 else None
    if config.get("PDL", 1) > 0:
        return "by_chance"
    return "two_in_order" if side_by_side == 2 else "more_in_order"


def features(shape, m, config):
    n, k = SHAPES[shape]
    swap, in_turn = config.get("SWAP", 0), config.get("PINGPONG", 0)
    tokens, channels = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]
    columns, rows = (channels, tokens) if swap else (tokens, channels)
    groups, stages, block_k = config.get("WARPGROUPS", 2), config["num_stages"], config.get("BLOCK_SIZE_K", 128)
    cluster_m, cluster_n = config.get("CLUSTER_M", 1), config.get("CLUSTER_N", 1)
    cluster = cluster_m * cluster_n
    row_blocks = rows // 64 // (1 if in_turn else groups)
    group_rows = 64 * row_blocks
    slabs = 2 * (group_rows if swap else 16) * ((64 if swap else group_rows * OUT_BYTES) + 16)
    scales = 4 * (2 * channels + group_rows if swap else 2 * group_rows + tokens)
    shared = stages * (block_k * (channels + tokens) + 16) + groups * (slabs + scales)
    registers = row_blocks * columns // 2 + 36 + 2 * row_blocks
    fits = 2 * (shared + 1024) <= SHARED_PER_SM and 2 * 192 * (registers + 8) <= 65536
    resident = 2 if groups == 1 and fits else 1
    tiles = -(-m // (tokens * cluster_m)) * -(-n // (channels * cluster_n))
    rounds = -(-tiles // max(1, SMS // cluster))
    together = min(resident, -(-tiles * cluster // SMS))
    overlapped = groups > 1 and (not in_turn or rounds > 1) or together > 1
    window = config.get("WINDOW", 0)
    return {
        "rows": rows, "columns": columns, "swap": swap, "cluster": cluster > 1, "rounds": rounds, "block_k": block_k,
        "chunks": -(-k // block_k) * block_k / 128, "overlapped": overlapped, "work": 2.0 * m * n * k,
        "landed": 128.0 * (channels + tokens), "weights_asked": 128.0 * channels, "codes_asked": 128.0 * tokens / cluster_n,
        **{name: shared_by(config, m) == name for name in SHARED}, "pdl": config.get("PDL", 1), "codes": 2.0 * m * k,
        "stages": stages, "window": max(1, 1024 * window // (block_k * channels)) if window else stages,
        "weights_of_stage": together * block_k * channels, "codes_of_stage": together * block_k * tokens,
        "output": channels * tokens * OUT_BYTES, "exposed": 1 if in_turn or resident > 1 else rounds,
        "dram": n * k + m * k + m * n * OUT_BYTES, "reread": n * k * min(-(-m // (tokens * cluster_m)) - 1, 3),
    }


def predict(f, p):
    instruction = np.maximum(f["columns"] / 2, (64 * 32 + 32 * f["columns"]) / p["shared_bytes_clock"])
    clocks = 4 * f["rows"] / 64 * instruction * np.where(f["overlapped"], 1, p["alone"])
    clocks = clocks + p["stage_clocks"] * 128 / f["block_k"]
    multiply_us = clocks / (p["clocks_per_us"] * (1 - p["clock_loss"] * np.minimum(1, f["work"] / 2e11)))
    under_way = np.maximum(f["stages"] - p["held_stages"], 0.3)
    in_flight = np.minimum(under_way, f["window"]) * f["weights_of_stage"] + under_way * f["codes_of_stage"]
    latency = p["latency_us"] * np.where(f["cluster"], p["cluster_latency"], 1)
    shared = np.select([f[name] for name in SHARED], [p[name] for name in SHARED], 1.0)
    requested = f["weights_asked"] / shared + f["codes_asked"] / p["codes_shared"]
    land_us = np.maximum(np.maximum(f["landed"] / p["sm_rate"], requested / p["l2_rate"]),
                         f["landed"] * latency / in_flight)
    a = p["norm_of_chunk"]
    chunk_us = (multiply_us**a + land_us**a) ** (1 / a) * np.where(f["swap"], p["swap_loss"], 1)
    sm_us = f["rounds"] * (f["chunks"] * chunk_us + p["round_us"]) + f["exposed"] * f["output"] / p["output_rate"]
    dram_us = (f["dram"] + p["reread"] * f["reread"]) / p["dram_rate"]
    b = p["norm"]
    start_us = np.select([f["pdl"] == 0, f["pdl"] == 1], [p["late_us"], p["consume_us"]], 0.0)
    linear_us = np.where(f["linear"], p["quantise_us"] + f["codes"] / p["quantise_rate"] + start_us, 0)
    return p["start_us"] + (sm_us**b + dram_us**b) ** (1 / b) + np.where(f["cluster"], p["cluster_us"], 0) + linear_us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", nargs="+")
    parser.add_argument("--runs", default="1,2", help="runs of a record with several that are taken (default 1,2)")
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    points, rows, times, configs = {}, [], [], []
    index = []
    for path in args.sweep:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                taken = str(row.get("run", 1)) in args.runs.split(",")
                if taken and row["family"] == "hopper_wgmma":
                    run = (path, row.get("run", 0))
                    index.append(points.setdefault((row["shape"], row["m"], run), len(points)))
                    rows.append(features(row["shape"], row["m"], row["config"]) | {"linear": row["scope"] == "linear"})
                    times.append(row["us"])
                    configs.append(row["config"])
    f = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    times, index = np.array(times), np.array(index)
    best = np.full(len(points), np.inf)
    np.minimum.at(best, index, times)
    weight = np.exp(-6 * (times / best[index] - 1))
    names = list(BOUNDS)

    def cost(values):
        error = np.log(predict(f, dict(zip(names, values))) / times)
        # Of a point all times may be off by as much: only their order counts, and a little their size.
        mean = np.bincount(index, weight * error) / np.bincount(index, weight)
        return (np.sum(weight * (error - mean[index]) ** 2) + 0.2 * np.sum(weight * error**2)) / np.sum(weight)

    end = time.monotonic() + args.seconds
    found = differential_evolution(cost, list(BOUNDS.values()), seed=1, maxiter=100000, popsize=12, tol=0, polish=True,
                                   callback=lambda *_: time.monotonic() > end)
    p = dict(zip(names, found.x))
    print(f"cost {found.fun:.5f}")
    for name, value in p.items():
        print(f"{name:20} {value:.5g}")
    predicted = predict(f, p)
    for first in (1, 4, 16):
        lost = {}
        for point, number in points.items():
            of_point = np.flatnonzero(index == number)
            order = of_point[np.argsort(predicted[of_point], kind="stable")]
            lost[point] = times[order[:first]].min() / best[number] - 1
        values = np.array(list(lost.values()))
        print(f"first {first:2}: lose {100 * np.expm1(np.mean(np.log1p(values))):.2f} % on average, "
              f"{100 * values.max():.1f} % at most, more than 3 % at {np.sum(values > 0.03)} of {len(values)}")
        if first < 16:
            print("   ", {f"{s} {m}": round(100 * float(x), 1) for (s, m, _), x in lost.items() if x > 0.05})


if __name__ == "__main__":
    main()
