#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of hopper_wgmma's cost model (wgmma_predict_us in hopper_wgmma_search.cpp) to recorded timings.

    pip install numpy scipy
    fit_wgmma_model.py bench/results/NVIDIA_H200/hopper_wgmma_sweep.json [--seconds 120]

Prints the constants in the order in which they stand there, and for every point what the model's first, first four and first
sixteen configs lose to the best one timed. What is minimised weighs configs near the best of their point most, since the
model only has to rank those."""
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
OUT_BYTES = 2
# Rates in bytes a microsecond, times in microseconds, the rest in clocks or without a unit.
START = {
    "dram_rate": 4.2e6, "l2_rate": 90e3, "sm_rate": 153e3, "clocks_per_us": 1700.0, "clock_loss": 0.195,
    "shared_bytes_clock": 105.0, "column_clocks": 4.0, "alone": 1.125, "stage_clocks": 10.0, "start_us": 1.46,
    "output_rate": 34.5e3, "longest": 0.6, "cluster_us": 0.2, "swap_loss": 1.0, "stages_us": 1.0, "held_stages": 1.0,
    "latency_us": 1.0, "cluster_latency": 1.1, "longest_of_chunk": 0.9,
}


def columns_rows(config):
    swap = config.get("SWAP", 0)
    tokens, channels = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]
    return (channels, tokens) if swap else (tokens, channels)


def shared_bytes(config):
    tokens, channels, swap = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"], config.get("SWAP", 0)
    groups = config.get("WARPGROUPS", 2)
    _, rows = columns_rows(config)
    group_rows = rows // (1 if config.get("PINGPONG", 0) else groups)
    slab_tokens = group_rows if swap else 16
    slabs = 2 * slab_tokens * ((64 if swap else group_rows * OUT_BYTES) + 16)
    scales = 4 * (2 * channels + group_rows if swap else 2 * group_rows + tokens)
    stage = config.get("BLOCK_SIZE_K", 128) * (channels + tokens)
    return config["num_stages"] * (stage + 16) + groups * (slabs + scales)


def resident_blocks(config):
    groups = config.get("WARPGROUPS", 2)
    columns, rows = columns_rows(config)
    row_blocks = rows // 64 // (1 if config.get("PINGPONG", 0) else groups)
    registers = row_blocks * columns // 2 + 36 + 2 * row_blocks
    fits = 2 * (shared_bytes(config) + 1024) <= SHARED_PER_SM and 2 * 192 * (registers + 8) <= 65536
    return 2 if groups == 1 and fits else 1


def predict(shape, m, config, p):
    n, k = SHAPES[shape]
    tokens, channels = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]
    columns, rows = columns_rows(config)
    groups, in_turn = config.get("WARPGROUPS", 2), config.get("PINGPONG", 0)
    cluster_m, cluster_n = config.get("CLUSTER_M", 1), config.get("CLUSTER_N", 1)
    cluster = cluster_m * cluster_n
    block_k = config.get("BLOCK_SIZE_K", 128)
    tiles = math.ceil(m / (tokens * cluster_m)) * math.ceil(n / (channels * cluster_n))
    rounds = math.ceil(tiles / max(1, SMS // cluster))
    chunks = math.ceil(k / block_k) * block_k / 128
    resident = resident_blocks(config)
    overlapped = (groups > 1 or resident > 1) and rounds > (0 if groups > 1 and not in_turn else 1)
    instruction = max(columns / 2 + p["column_clocks"], (64 * 32 + 32 * columns) / p["shared_bytes_clock"])
    clocks = 4 * rows / 64 * instruction * (1 if overlapped else p["alone"]) + p["stage_clocks"] * 128 / block_k
    work = 2 * m * n * k
    rate = p["clocks_per_us"] * (1 - p["clock_loss"] * min(1, work / 2e11))
    # What an SM has under way bounds what lands in it; a stage that is being read, or will be once the other half of its
    # bytes is there, is not under way.
    landed = 128 * (channels + tokens)
    together = min(resident, math.ceil(tiles * cluster / SMS))
    in_flight = together * max(config["num_stages"] - p["held_stages"], 0.3) * block_k * (channels + tokens)
    latency = p["latency_us"] * (p["cluster_latency"] if cluster > 1 else 1)
    requested = 128 * (channels / cluster_m + tokens / cluster_n)
    land_us = max(landed / p["sm_rate"], requested / p["l2_rate"], landed * latency / in_flight)
    chunk_us = p["longest_of_chunk"] * max(clocks / rate, land_us) + (1 - p["longest_of_chunk"]) * (clocks / rate + land_us)
    chunk_us *= p["swap_loss"] if config.get("SWAP", 0) else 1
    output_us = channels * tokens * OUT_BYTES / p["output_rate"]
    exposed = 1 if in_turn or resident > 1 else rounds
    sm_us = rounds * chunks * chunk_us + exposed * output_us
    dram_us = (n * k + m * k + m * n * OUT_BYTES) / p["dram_rate"]
    us = p["start_us"] + p["longest"] * max(sm_us, dram_us) + (1 - p["longest"]) * (sm_us + dram_us)
    return us + (p["cluster_us"] if cluster > 1 else 0) + p["stages_us"] * landed * block_k / 128 / 1e5


def read(paths):
    points = collections.defaultdict(list)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                if row["family"] == "hopper_wgmma" and row["scope"] == "gemm":
                    points[(row["shape"], row["m"])].append((row["config"], row["us"]))
    return points


def losses(points, p, first):
    result = {}
    for (shape, m), rows in points.items():
        best = min(us for _, us in rows)
        order = sorted(rows, key=lambda row: predict(shape, m, row[0], p))
        result[(shape, m)] = min(us for _, us in order[:first]) / best - 1
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", nargs="+")
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    points = read(args.sweep)
    names = list(START)

    def cost(logs):
        p = dict(zip(names, (START[name] * math.exp(v) for name, v in zip(names, logs))))
        p["longest"], p["longest_of_chunk"] = min(p["longest"], 1.0), min(p["longest_of_chunk"], 1.0)
        total = weights = 0.0
        for (shape, m), rows in points.items():
            best = min(us for _, us in rows)
            for config, us in rows:
                weight = math.exp(-8 * (us / best - 1))
                total += weight * math.log(predict(shape, m, config, p) / us) ** 2
                weights += weight
        return total / weights

    generator = numpy.random.default_rng(1)
    end = time.monotonic() + args.seconds
    best = numpy.zeros(len(names))
    best_cost = cost(best)
    while time.monotonic() < end:
        start = best + generator.normal(0, 0.15, len(names))
        found = minimize(cost, start, method="Powell", options={"maxiter": 3, "xtol": 1e-3, "ftol": 1e-4})
        if found.fun < best_cost:
            best, best_cost = found.x, found.fun
            print(f"mean error {math.sqrt(best_cost):.4f}", flush=True)
    p = dict(zip(names, (START[name] * math.exp(v) for name, v in zip(names, best))))
    p["longest"], p["longest_of_chunk"] = min(p["longest"], 1.0), min(p["longest_of_chunk"], 1.0)
    for name, value in p.items():
        print(f"{name:20} {value:.5g}")
    for first in (1, 4, 16):
        lost = losses(points, p, first)
        mean = math.exp(sum(math.log1p(x) for x in lost.values()) / len(lost)) - 1
        print(f"first {first:2}: lose {100 * mean:.2f} % on average, {100 * max(lost.values()):.1f} % at most, "
              f"more than 3 % at {sum(x > 0.03 for x in lost.values())} of {len(lost)}")
        if first == 1:
            print("   ", {f"{s} {m}": round(100 * x, 1) for (s, m), x in lost.items() if x > 0.03})


if __name__ == "__main__":
    main()
