# SPDX-License-Identifier: Apache-2.0
"""Does Hugging Face transformers read an exported directory and compute the golden logits?

    python check_export.py DIR GOLDEN.safetensors [--tolerance 1e-5]

Prints the largest absolute and the relative difference (|a - b| / |b|, Euclidean norms) of the
logits, float32, eager attention. Exit 0 within the tolerance, 1 beyond it or if weights are
missing, left over or of the wrong shape.
"""

import argparse
import sys

import safetensors.torch
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging


def mask_of(docs, window):
    """Additive mask [b, 1, s, s]: causal, inside one document, inside the window."""
    at = torch.arange(docs.shape[1])
    distance = at[:, None] - at[None, :]
    seen = (distance >= 0) & ((distance < window) if window else True)
    seen = seen[None] & (docs[:, :, None] == docs[:, None, :])
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("golden")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()

    logging.disable_progress_bar()
    golden = safetensors.torch.load_file(args.golden)
    model, info = AutoModelForCausalLM.from_pretrained(
        args.directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if hasattr(model, "set_experts_implementation") and model._can_set_experts_implementation():
        model.set_experts_implementation("eager")   # grouped products want widths of 16 bytes
    model.eval()
    wrong = {k: sorted(map(str, v)) for k, v in info.items() if v}
    if wrong:
        print(f"loading was not clean: {wrong}")

    extra = {}
    if "docs" in golden:
        window = getattr(model.config, "sliding_window", None)
        extra = {"attention_mask": mask_of(golden["docs"].long(), window),
                 "position_ids": golden["positions"].long()}
    with torch.no_grad():
        logits = model(input_ids=golden["input_ids"].long(), use_cache=False, **extra).logits
    if logits.shape != golden["logits"].shape:
        print(f"logits have shape {list(logits.shape)}, golden {list(golden['logits'].shape)}")
        return 1
    difference = logits.double() - golden["logits"].double()
    relative = float(difference.norm() / golden["logits"].double().norm())
    print(f"max abs {float(difference.abs().max()):.3e}  relative {relative:.3e}  "
          f"tolerance {args.tolerance:g}")
    return 0 if relative <= args.tolerance and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
