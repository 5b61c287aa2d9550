// SPDX-License-Identifier: Apache-2.0
// The figures of well-known dense decoders, as their published config.json files state them.
#include "octile/model/model.h"

namespace octile {
namespace {

constexpr ModelPreset kPresets[] = {
    // {name, {hidden size, intermediate size, attention heads, key/value heads, head size}}
    {"qwen3-0.6b", {1024, 3072, 16, 8, 128}},    {"qwen3-1.7b", {2048, 6144, 16, 8, 128}},
    {"qwen3-4b", {2560, 9728, 32, 8, 128}},      {"qwen3-8b", {4096, 12288, 32, 8, 128}},
    {"qwen3-14b", {5120, 17408, 40, 8, 128}},    {"qwen3-32b", {5120, 25600, 64, 8, 128}},
    {"llama-3.2-1b", {2048, 8192, 32, 8, 64}},   {"llama-3.2-3b", {3072, 8192, 24, 8, 128}},
    {"llama-3.1-8b", {4096, 14336, 32, 8, 128}}, {"llama-3.1-70b", {8192, 28672, 64, 8, 128}},
    {"mistral-7b", {4096, 14336, 32, 8, 128}},   {"gemma-3-1b", {1152, 6912, 4, 1, 256}},
    {"gemma-3-4b", {2560, 10240, 8, 4, 256}},    {"gemma-3-12b", {3840, 15360, 16, 8, 256}},
    {"gemma-3-27b", {5376, 21504, 32, 16, 128}}, {"phi-4", {5120, 17920, 40, 10, 128}},
    {"phi-4-mini", {3072, 8192, 24, 8, 128}},
};

}  // namespace

std::span<const ModelPreset> model_presets() { return kPresets; }

}  // namespace octile
