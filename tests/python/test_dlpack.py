# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries, through DLPack alone."""

import numpy as np
import pytest
import support

import octile

CPU, CUDA, ROCM = 1, 2, 10


class Exported:
    """Memory that can be had by DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Elsewhere(Exported):
    """Claims to be on another device, and notes the streams that it is asked to be ready for."""

    def __init__(self, array, device_type, old=False):
        super().__init__(array)
        self.device_type = device_type
        self.old = old
        self.streams = []

    def __dlpack__(self, stream=None, **arguments):
        if self.old and arguments:
            raise TypeError("unexpected keyword arguments")
        self.streams.append(stream)
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return (self.device_type, 0)


def make_linear(rng):
    codes, scales = support.random_weight(rng, 24, 40)
    return codes, scales, octile.Linear(octile.Weight(codes, scales, out_dtype="fp32"), x_dtype="fp16", max_m=8)


def test_any_exporter_is_read_and_written_in_place(rng):
    codes, scales, linear = make_linear(rng)
    x = rng.standard_normal((5, 64)).astype(np.float16)[:, 3:43]
    out = np.full((5, 24), np.nan, np.float32)
    target = Exported(out)
    assert linear(Exported(x), out=target) is target
    support.assert_close(out, support.product(*support.quantize(x.astype(np.float32)), codes, scales), "fp32", 40)
    np.testing.assert_array_equal(linear(Exported(x)), out)


def test_weights_come_by_dlpack_too(rng):
    codes, scales, linear = make_linear(rng)
    x = np.ones((1, 40), np.float16)
    exported = octile.Weight(Exported(codes), Exported(scales), out_dtype="fp32")
    np.testing.assert_array_equal(octile.Linear(exported, x_dtype="fp16", max_m=1)(x), linear(x))


def test_memory_of_a_gpu_is_made_ready_for_the_calls_stream(rng):
    # The linear is on the CPU, so the call is refused, after the array was asked for.
    from octile import _arrays

    x = np.zeros((2, 40), np.float16)
    for stream, wanted in ((None, 1), (0, 1), (2, 2), (0x7F00, 0x7F00)):
        for old in (False, True):
            there = Elsewhere(x, CUDA, old)
            _arrays.read(there, "x", stream=stream)
            assert there.streams[-1] == wanted


def test_memory_in_ordinary_places_is_asked_for_no_stream(rng):
    _, _, linear = make_linear(rng)
    here = Elsewhere(np.zeros((2, 40), np.float16), CPU)
    linear(here)
    assert set(here.streams) == {None}


def test_no_gpu_no_gpu_weight(rng):
    if any(device["kind"] == "cuda" for device in octile.devices()):
        pytest.skip("this machine has a CUDA device")
    codes, scales, _ = make_linear(rng)
    with pytest.raises(RuntimeError, match="cuda:0"):
        octile.Weight(codes, scales, device="cuda:0")


def test_arrays_that_may_not_be_written_are_read_only(rng):
    _, _, linear = make_linear(rng)
    x = rng.standard_normal((2, 40)).astype(np.float16)
    want = linear(x)
    x.flags.writeable = False
    np.testing.assert_array_equal(linear(x), want)
    out = np.zeros((2, 24), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: want an array that may be written"):
        linear(x, out=out)


def test_what_is_no_array_is_a_type_error(rng):
    _, _, linear = make_linear(rng)
    for thing in (None, 3, "x", object(), [1, 2]):
        with pytest.raises(TypeError, match="want an array"):
            linear(thing)


def test_jax_arrays_go_in_without_a_copy(rng):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    codes, scales, linear = make_linear(rng)
    x = rng.standard_normal((3, 40)).astype(np.float16)
    np.testing.assert_array_equal(linear(jax.numpy.asarray(x)), linear(x))
