// SPDX-License-Identifier: Apache-2.0
// The fields of a row of `bench --json`, in order, as the guide lists them.
#pragma once

#include <string>
#include <vector>

namespace octile::test {

inline const std::vector<std::string> kRowFields = {"shape",
                                                    "n",
                                                    "k",
                                                    "m",
                                                    "scope",
                                                    "chained",
                                                    "layout",
                                                    "accumulate",
                                                    "out_dtype",
                                                    "baseline_us",
                                                    "baseline_kernel",
                                                    "best_vendor_us",
                                                    "best_vendor_kernel",
                                                    "chosen_us",
                                                    "chosen_kernel",
                                                    "choice",
                                                    "ratio",
                                                    "ratio_lo",
                                                    "ratio_hi",
                                                    "rounds",
                                                    "vs_vendor",
                                                    "vs_vendor_lo",
                                                    "vs_vendor_hi",
                                                    "floor_us",
                                                    "floor_share",
                                                    "tflops",
                                                    "gbps",
                                                    "rel_error",
                                                    "max_sms",
                                                    "chosen_config",
                                                    "best_vendor_config",
                                                    "best_vendor_source_hash",
                                                    "best_vendor_version",
                                                    "best_vendor_rel_error",
                                                    "conditions"};

}  // namespace octile::test
