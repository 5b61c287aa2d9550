# SPDX-License-Identifier: Apache-2.0
"""Steps of decoding: captured, timed in rounds, generated with, and profiled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import qwen3
import timeline
import torch

Step = Callable[[], object]

_WARM_UPS = 2
_MARKER_CYCLES = 20_000


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Marks on the device's own time line; seconds between them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """From each mark to the next."""
        synchronize(self.device)
        pairs = itertools.pairwise(self.marks)
        if self.device.type == "cuda":
            return [before.elapsed_time(after) / 1e3 for before, after in pairs]
        return [after - before for before, after in pairs]


def step_of(model: torch.nn.Module, sequences: qwen3.Sequences, length: int) -> Step:
    """One step as it will be repeated: a captured graph on a GPU. `length` tokens are in the cache, and there is room for a few
    more."""
    device = sequences.token.device
    sequences.set_length(length)
    if device.type != "cuda":
        sequences.step(model)
        return lambda: sequences.step(model)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            sequences.step(model)
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sequences.step(model)
    torch.cuda.synchronize(device)
    return graph.replay


def rotated(names: list[str], turn: int) -> list[str]:
    """In another order each round, so that no variant is always behind the same one."""
    turn %= len(names)
    order = names[turn:] + names[:turn]
    return order if turn % 2 == 0 else order[::-1]


def step_rounds(
    steps: dict[str, Step], sequences: qwen3.Sequences, length: int, rounds: int, repeats: int
) -> dict[str, list[float]]:
    """Mean microseconds of a step by round, in which every variant has a turn of `repeats` steps from `length` tokens on."""
    device = sequences.token.device
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name in rotated(list(steps), turn):
            sequences.set_length(length)
            steps[name]()  # What the one before left in the caches is not this one's.
            clock = Clock(device)
            clock.mark()
            for _ in range(repeats):
                steps[name]()
            clock.mark()
            found[name].append(clock.seconds()[0] / repeats * 1e6)
    return found


def generate(model: torch.nn.Module, step: Step, sequences: qwen3.Sequences, new: int) -> tuple[float, list[float]]:
    """Seconds to the first token, from a prompt on the device, and seconds between each token and the next."""
    device = sequences.token.device
    synchronize(device)
    start = time.perf_counter()
    sequences.prefill(model)
    synchronize(device)
    first = time.perf_counter() - start
    clock = Clock(device)
    clock.mark()
    for _ in range(new - 1):
        step()
        clock.mark()
    return first, clock.seconds()


def profile(
    steps: dict[str, Step], sequences: qwen3.Sequences, length: int, rounds: int
) -> dict[str, list[list[timeline.Kernel]]]:
    """The kernels of one replay of each variant a round, from CUPTI's activity records."""
    order: list[str] = []
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for turn in range(rounds):
            for name in rotated(list(steps), turn):
                sequences.set_length(length)  # Its kernels are in front of the marker.
                torch.cuda.synchronize()
                torch.cuda._sleep(_MARKER_CYCLES)
                torch.cuda.synchronize()
                steps[name]()
                torch.cuda.synchronize()
                torch.cuda._sleep(_MARKER_CYCLES)  # What comes until the next variant's marker is not this one's.
                torch.cuda.synchronize()
                order.append(name)
    kernels = [
        timeline.Kernel(event.name(), event.start_ns(), event.duration_ns())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    ]
    replays = timeline.split_at_markers(kernels)[::2]
    if len(replays) != len(order):
        raise RuntimeError(f"profile: want {len(order)} replays between markers, got {len(replays)} in {len(kernels)} records")
    found: dict[str, list[list[timeline.Kernel]]] = {name: [] for name in steps}
    for name, replay in zip(order, replays, strict=True):
        found[name].append(replay)
    return found
