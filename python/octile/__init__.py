# SPDX-License-Identifier: Apache-2.0
"""FP8 linear layers, tuned and proven.

Activations [M, K] in bf16 or fp16 are quantised to e4m3 with one scale a token, multiplied with e4m3 weights [N, K] that
carry one scale an output channel, and come back as [M, N]. Arrays are numpy's, torch's or any library's that speaks DLPack;
they are read and written in place. `octile.torch` holds what is PyTorch's own.
"""

from octile._checkpoint import Checkpoint, CheckpointLinear, load_checkpoint
from octile._command import CommandFailed, explain, tune
from octile._core import CheckpointEntry, QuantizeOptions
from octile._core import version as _version
from octile._devices import devices
from octile._linear import Linear, Weight
from octile._producers import RmsNorm, SwiGlu
from octile._quantize import quantize_per_token
from octile._scaled_mm import pack_b, scaled_mm

__version__ = _version()

__all__ = [
    "Checkpoint",
    "CheckpointEntry",
    "CheckpointLinear",
    "CommandFailed",
    "Linear",
    "QuantizeOptions",
    "RmsNorm",
    "SwiGlu",
    "Weight",
    "__version__",
    "devices",
    "explain",
    "load_checkpoint",
    "pack_b",
    "quantize_per_token",
    "scaled_mm",
    "tune",
]
