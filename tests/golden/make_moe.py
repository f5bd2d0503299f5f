# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of the families with experts: mixtral, qwen3_moe, deepseek (V2, V3).

As make_models.py, whose conventions and helpers these cases use. transformers keeps the experts of
a layer fused in memory and a tensor each in its files; golden tensors are named and cut as the
files are. Routers' choice biases are buffers: they stand in model.safetensors and have no gradient.
Losses have no auxiliary part.

    python make_moe.py [--only CASE] [OUT_DIR]
"""

import argparse
import json
import pathlib

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import make_models as base

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 32}

SMALL = dict(hidden_size=24, num_hidden_layers=2, max_position_embeddings=64,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)

LATENT = dict(SMALL, intermediate_size=20, num_attention_heads=3, num_key_value_heads=3,
              kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=5,
              rms_norm_eps=1e-5, moe_intermediate_size=7, max_position_embeddings=128,
              rope_parameters=YARN)

CONFIGS = {
    "mixtral": dict(SMALL, model_type="mixtral", vocab_size=89, intermediate_size=18,
                    num_attention_heads=4, num_key_value_heads=2, num_local_experts=5,
                    num_experts_per_tok=2, rms_norm_eps=1e-5),
    "qwen3_moe": dict(SMALL, model_type="qwen3_moe", vocab_size=83, intermediate_size=30,
                      num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_experts=6,
                      num_experts_per_tok=3, moe_intermediate_size=10, norm_topk_prob=True,
                      rms_norm_eps=1e-6,
                      rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "deepseek_v3": dict(LATENT, model_type="deepseek_v3", vocab_size=79, num_hidden_layers=3,
                        q_lora_rank=12, n_routed_experts=8, n_shared_experts=1,
                        num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=1,
                        routed_scaling_factor=2.5, norm_topk_prob=True, num_mtp_layers=0),
    "deepseek_v2": dict(LATENT, model_type="deepseek_v2", vocab_size=73, q_lora_rank=None,
                        n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2, n_group=3,
                        topk_group=2, topk_method="group_limited_greedy", first_k_dense_replace=1,
                        routed_scaling_factor=1.5, norm_topk_prob=False),
    "deepseek_v2_lite": dict(LATENT, model_type="deepseek_v2", vocab_size=71, q_lora_rank=None,
                             num_hidden_layers=1, n_routed_experts=4, n_shared_experts=1,
                             num_experts_per_tok=2, topk_method="greedy", first_k_dense_replace=0,
                             norm_topk_prob=False,
                             rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
}

V4_SPELLING = {"deepseek_v3"}

base.DESCRIPTIONS.update({
    "mixtral": "Mixtral: 5 experts of which 2 are chosen, gates normalised, untied head.",
    "qwen3_moe": "Qwen3-MoE: 6 experts of which 3 are chosen, norms on q and k, head_dim 16.",
    "deepseek_v3": "DeepSeek-V3: latent q, k and v, the first layer dense, a shared expert, sigmoid "
                   "scores with a bias in 4 groups, yarn with mscale; config in the v4 spelling.",
    "deepseek_v2": "DeepSeek-V2: q at once, softmax scores in 3 groups, 2 shared experts, gates not "
                   "normalised, yarn.",
    "deepseek_v2_lite": "DeepSeek-V2: all layers with experts, greedy choice, plain rope.",
})


def file_tensors(config, name, tensor):
    """The tensors of a file that hold parameter `name`: (name, tensor) pairs."""
    mixtral = config.model_type == "mixtral"
    if name.endswith("mlp.experts.gate_up_proj") or name.endswith("mlp.experts.down_proj"):
        stem, kind = name.rsplit(".", 1)
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[kind]
        if mixtral:
            stem = stem.replace(".mlp.", ".block_sparse_moe.")
        w = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
        for e in range(tensor.shape[0]):
            for part, piece in zip(parts, tensor[e].chunk(len(parts), dim=0)):
                yield f"{stem}.{e}.{w[part] if mixtral else part}.weight", piece
    elif mixtral and name.endswith(".mlp.gate.weight"):
        yield name.replace(".mlp.", ".block_sparse_moe."), tensor
    else:
        yield name, tensor


def renamed(config, tensors):
    """PREFIX.NAME tensors named and cut as files are."""
    prefixes = ("grad.", "param10.", "exp_avg10.", "exp_avg_sq10.")
    out = {}
    for key, tensor in tensors.items():
        prefix = next((p for p in prefixes if key.startswith(p)), None)
        if prefix is None:
            out[key] = tensor
            continue
        for name, piece in file_tensors(config, key[len(prefix):], tensor):
            out[prefix + name] = piece
    return out


def build(config, dtype, state=None):
    model = base.build(config, dtype, state).to(dtype)
    model.set_experts_implementation("eager")
    return model


def case_state(case):
    index = 100 + sorted(CONFIGS).index(case)
    fields = dict(CONFIGS[case])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    model = build(config, torch.float32)
    base.random_weights(model, base.SEED + index)
    gen = torch.Generator().manual_seed(base.SEED + 500 + index)
    state = {n: p.detach().clone() for n, p in model.named_parameters()}
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            state[name] = 0.2 * torch.randn(b.shape, generator=gen)
    return config, state, base.make_batch(case, config.vocab_size, base.SEED + 300 + index)


def to_v4_spelling(folder):
    """config.json as the published models spell it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = dict(rope, type=rope.pop("rope_type"))
    config["torch_dtype"] = config.pop("dtype")
    for key in ("head_dim", "qk_head_dim", "rope_interleave", "num_mtp_layers",
                "output_router_logits"):
        config.pop(key, None)
    config.update(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, ep_size=1,
                  num_nextn_predict_layers=0, aux_loss_alpha=0.001, seq_aux=True)
    path.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def reload_check(folder, batch, logits):
    """The saved directory, read back by the library, gives the golden logits."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    with torch.no_grad():
        rel = base.relative(base.forward(model, batch)[0], logits)
    if not rel < 5e-6:
        raise SystemExit(f"{folder}: read back, logits differ by {rel:g}")
    return rel


def full_case(root, case):
    config, state, batch = case_state(case)
    folder = root / case
    base.clean(folder)
    base.save_model(build(config, torch.float32, state), folder)
    if case in V4_SPELLING:
        to_v4_spelling(folder)
    with base.Float64():
        model = build(config, torch.float64, state)
        logits, loss = base.backward(model, batch)
        out = dict(batch, logits=logits, loss=loss)
        out.update({f"grad.{n}": p.grad.detach().clone() for n, p in model.named_parameters()})
        steps = base.run_adamw(build(config, torch.float64, state), batch)
    out.update({k: v for k, v in steps.items() if not k.startswith("exp_avg")})
    stock = build(config, torch.float32, state)
    stock_logits, stock_loss = base.backward(stock, batch)
    worst = max(base.relative(p.grad, out[f"grad.{n}"]) for n, p in stock.named_parameters())
    base.write_golden(folder, case, renamed(config, out), dims=base.dims(config, batch),
                      adamw=base.ADAMW,
                      stock_float32={
                          "logits_rel": base.relative(stock_logits, logits),
                          "loss_rel": base.relative(stock_loss, loss),
                          "worst_grad_rel": worst,
                          "reloaded_logits_rel": reload_check(folder, batch, logits)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--only", help="one case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for case in CONFIGS:
        if args.only in (None, case):
            full_case(args.out / "models", case)


if __name__ == "__main__":
    main()
