# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a model's linears replaced in one call.

    octile.torch.quantize_(model)

The modules that come in their place keep torch.compile (fullgraph, dynamic batch), torch.export, CUDA graphs, state_dict,
deepcopy and pickle. They are for inference: there is no backward.
"""

from octile.torch._checkpoint import load_checkpoint_
from octile.torch._linear import Linear, prepare, quantize_weight
from octile.torch._producers import Quantized, RmsNorm, SwiGlu
from octile.torch._quantize import Report, quantize_

__all__ = [
    "Linear",
    "Quantized",
    "Report",
    "RmsNorm",
    "SwiGlu",
    "load_checkpoint_",
    "prepare",
    "quantize_",
    "quantize_weight",
]
