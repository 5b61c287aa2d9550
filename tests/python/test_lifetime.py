# SPDX-License-Identifier: Apache-2.0
"""Threads, the GIL, and memory over many cycles."""

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import support

import octile


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_threads_that_share_a_linear_get_their_own_results(rng):
    codes, scales = support.random_weight(rng, 96, 128)
    linear = octile.Linear(octile.Weight(codes, scales, out_dtype="fp32"), x_dtype="fp16", max_m=16)
    inputs = [rng.standard_normal((m, 128)).astype(np.float16) for m in (1, 3, 8, 16)]
    wanted = [linear(x) for x in inputs]
    failures = []

    def work(i):
        for _ in range(100):
            if not np.array_equal(linear(inputs[i]), wanted[i]):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_prepare_may_run_beside_calls(rng):
    codes, scales = support.random_weight(rng, 64, 64)
    linear = octile.Linear(octile.Weight(codes, scales, out_dtype="fp32"), x_dtype="fp16", max_m=2)
    x = rng.standard_normal((2, 64)).astype(np.float16)
    wanted = support.product(*support.quantize(x.astype(np.float32)), codes, scales)
    results = []
    thread = threading.Thread(target=lambda: results.extend(linear(x) for _ in range(50)))
    thread.start()
    for max_m in (4, 8, 16, 32):
        linear.prepare(max_m)
    thread.join()
    assert len(results) == 50
    for y in results:
        support.assert_close(y, wanted, "fp32", 64)


def test_the_gil_is_released_while_the_library_works():
    # The library's plain quantiser takes long over so many elements; with the GIL held this thread would not wake at all
    # between `started` and `ended`.
    x = np.ones((4096, 8192), np.float32)
    out = (np.empty(x.shape, np.uint8), np.empty(x.shape[0], np.float32))
    started, ended = threading.Event(), threading.Event()

    def work():
        started.set()
        octile.quantize_per_token(x, out=out)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    wakes = 0
    while not ended.is_set():
        time.sleep(0.001)
        wakes += 1
    thread.join()
    assert wakes >= 5, f"this thread woke {wakes} times while another was in the library"
    assert (out[0] == support.encode(np.float32([448]))[0]).all()


def test_weights_and_linears_leave_no_memory_behind(rng):
    codes, scales = support.random_weight(rng, 1024, 1024)
    x = rng.standard_normal((4, 1024)).astype(np.float16)

    def cycle():
        linear = octile.Linear(octile.Weight(codes, scales), scales[:, 0], x_dtype="fp16", max_m=4)
        linear(x)
        linear(x, out=np.empty((4, 1024), np.uint16))

    for _ in range(15):
        cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(150):
        cycle()
    gc.collect()
    grown = resident_bytes() - before
    # A cycle that kept its weight would have added 150 MiB or more.
    assert grown < 30 << 20, f"resident memory grew by {grown} bytes in 150 cycles"


def test_failing_calls_leave_no_references_behind(rng):
    codes, scales = support.random_weight(rng, 8, 16)
    linear = octile.Linear(octile.Weight(codes, scales), x_dtype="fp16", max_m=4)
    x = np.zeros((3, 16), np.float16)
    wrong = np.zeros((3, 5), np.float32)
    before = [sys.getrefcount(thing) for thing in (x, wrong, codes, scales)]
    for _ in range(100):
        for call in (
            lambda: linear(x, out=wrong),
            lambda: linear(wrong),
            lambda: octile.Weight(codes, -scales),
            lambda: octile.Weight(codes[:, ::2], scales),
            lambda: octile.quantize_per_token(x, out=(wrong, wrong)),
        ):
            try:
                call()
            except ValueError:
                continue
            raise AssertionError("want a ValueError, got none")
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (x, wrong, codes, scales)] == before


def test_the_module_reports_no_leak_when_the_interpreter_ends():
    script = (
        "import numpy as np, octile\n"
        "octile._core.set_leak_warnings(True)\n"
        "w = octile.Weight(np.ones((8, 16), np.uint8), np.ones(8, np.float32))\n"
        "l = octile.Linear(w, x_dtype='fp16', max_m=2)\n"
        "y = l(np.ones((2, 16), np.float16))\n"
        "try:\n    l(np.ones((2, 5), np.float16))\nexcept ValueError:\n    pass\n"
        "print(y.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 8)\n"
    assert "leak" not in done.stderr, done.stderr
