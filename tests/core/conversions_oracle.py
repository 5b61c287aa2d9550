# SPDX-License-Identifier: Apache-2.0
"""Compares every conversion with ml_dtypes and numpy, independent implementations of the same formats.

usage: conversions_oracle.py PROGRAM, where PROGRAM is conversions_dump.
ml_dtypes turns overflow into NaN where the contract saturates: magnitudes above 464 (which round past 448) differ by that rule.
"""

import subprocess
import sys
import unittest

import ml_dtypes
import numpy as np

ALL16 = np.arange(65536, dtype=np.uint16)
RAW = None


class Conversions(unittest.TestCase):
    def take(self, index):
        layout = [("f4", 256), ("f4", 65536), ("f4", 65536), ("u1", 65536), ("u1", 65536), ("u2", 65536), ("u2", 65536)]
        offset = sum(np.dtype(t).itemsize * n for t, n in layout[:index])
        kind, count = layout[index]
        return np.frombuffer(RAW, dtype="<" + kind, count=count, offset=offset)

    def same_floats(self, got, want):
        nan = np.isnan(want)
        self.assertTrue(np.array_equal(np.isnan(got), nan))
        self.assertTrue(np.array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32)))

    def test_output_is_whole(self):
        self.assertEqual(len(RAW), 4 * 256 + 2 * 4 * 65536 + 2 * 65536 + 2 * 2 * 65536)

    def test_all_256_e4m3_codes(self):
        want = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        self.same_floats(self.take(0), want)

    def test_all_bf16_values(self):
        self.same_floats(self.take(1), ALL16.view(ml_dtypes.bfloat16).astype(np.float32))

    def test_all_fp16_values(self):
        self.same_floats(self.take(2), ALL16.view(np.float16).astype(np.float32))

    def check_e4m3(self, codes, values):
        with np.errstate(all="ignore"):
            want = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        saturated = np.abs(values) > 448
        expect_saturated = np.where(np.signbit(values), 0xFE, 0x7E)
        want = np.where(saturated, expect_saturated, want)
        nan = np.isnan(values)
        self.assertTrue(np.all((codes[nan] & 0x7F) == 0x7F))
        self.assertTrue(np.array_equal(codes[~nan], want[~nan]))
        self.assertGreater(int(saturated.sum()), 1000)

    def test_all_bf16_values_to_e4m3(self):
        self.check_e4m3(self.take(3), ALL16.view(ml_dtypes.bfloat16).astype(np.float32))

    def test_all_fp16_values_to_e4m3(self):
        self.check_e4m3(self.take(4), ALL16.view(np.float16).astype(np.float32))

    def same_halves(self, got, want, nan):
        self.assertTrue(np.array_equal(got[~nan], want[~nan]))

    def test_bf16_to_fp16_and_back(self):
        with np.errstate(all="ignore"):
            bf16 = ALL16.view(ml_dtypes.bfloat16).astype(np.float32)
            fp16 = ALL16.view(np.float16).astype(np.float32)
            self.same_halves(self.take(5), bf16.astype(np.float16).view(np.uint16), np.isnan(bf16))
            self.same_halves(self.take(6), fp16.astype(ml_dtypes.bfloat16).view(np.uint16), np.isnan(fp16))


if __name__ == "__main__":
    RAW = subprocess.run([sys.argv.pop(1)], check=True, stdout=subprocess.PIPE, timeout=60).stdout
    unittest.main()
