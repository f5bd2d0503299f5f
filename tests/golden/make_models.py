# SPDX-License-Identifier: Apache-2.0
"""Make the golden files for whole-model agreement: tests/golden/models/ and schedules.json.

Each case is a tiny model with random weights, saved by Hugging Face transformers, and beside it
what that library and PyTorch compute from it: logits, loss, gradients, and some steps of an
optimizer. The weights are float32; everything computed from them is computed in float64 and
stored as float32, so a golden value carries one rounding and no error of its own.

transformers keeps a few parts in float32 whatever the model's type (norms, softmax, rope). The
mode Float64 below turns those into float64 too. golden.json records how far the stock float32
run of the same library lies from the golden values, which is the natural scale of a tolerance.

    python make_models.py [--only CASE] [OUT_DIR]

README.md in this folder names every tensor and every convention.
"""

import argparse
import json
import math
import pathlib
import platform
import shutil

import numpy as np
import safetensors
import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

SEED = 20240229
VERSIONS = {
    "python": platform.python_version(),
    "torch": torch.__version__.split("+")[0],
    "transformers": transformers.__version__,
    "safetensors": safetensors.__version__,
    "numpy": np.__version__,
}

ADAMW = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
         "weight_decay_on": "parameters with at least 2 dimensions", "clip_norm": 1.0,
         "clip_eps": 1e-6, "steps": 10}
SGD = {"lr": 0.1, "momentum": 0.9, "nesterov": False, "dampening": 0.0, "weight_decay": 0.0,
       "clip_norm": None, "steps": 5}
MUON = {"lr": 2e-3, "momentum": 0.95, "nesterov": True, "ns_steps": 5,
        "ns_coefficients": [3.4445, -4.7750, 2.0315], "ns_eps": 1e-7, "weight_decay": 0.1,
        "clip_norm": None, "steps": 3,
        "rest": {"optimizer": "AdamW", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8,
                 "weight_decay": 0.1,
                 "weight_decay_on": "parameters with at least 2 dimensions"}}


class Float64(TorchFunctionMode):
    """Every request for float32 inside this mode is answered with float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        def widen(x):
            return torch.float64 if x is torch.float32 else x
        args = tuple(widen(a) for a in args)
        kwargs = {k: widen(v) for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


# ------------------------------------------------------------------------------------- models

LLAMA = dict(model_type="llama", vocab_size=97, hidden_size=32, intermediate_size=28,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=1, eos_token_id=2)

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

CONFIGS = {
    "gpt2": dict(model_type="gpt2", vocab_size=101, n_embd=32, n_layer=2, n_head=4, n_positions=24,
                 n_inner=34, activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0, layer_norm_epsilon=1e-5, bos_token_id=100, eos_token_id=100),
    "llama": LLAMA,
    "llama_tied": dict(LLAMA, vocab_size=103, tie_word_embeddings=True, num_key_value_heads=4),
    "llama31_rope": dict(LLAMA, num_attention_heads=2, num_key_value_heads=1,
                         max_position_embeddings=256, rope_parameters=LLAMA3_ROPE),
    "llama_bias": dict(LLAMA, attention_bias=True, mlp_bias=True, vocab_size=107),
    "qwen2": dict(LLAMA, model_type="qwen2", vocab_size=127, tie_word_embeddings=True,
                  rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen3": dict(LLAMA, model_type="qwen3", vocab_size=109, head_dim=16, num_attention_heads=3,
                  num_key_value_heads=1, hidden_size=24, rms_norm_eps=1e-6,
                  rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "mistral": dict(LLAMA, model_type="mistral", head_dim=12, num_attention_heads=2,
                    num_key_value_heads=1, sliding_window=5, vocab_size=113),
    "smollm2": dict(LLAMA, hidden_size=24, intermediate_size=36, num_attention_heads=3,
                    num_key_value_heads=1, num_hidden_layers=3, tie_word_embeddings=True,
                    vocab_size=131, rope_parameters={"rope_type": "default",
                                                     "rope_theta": 100000.0}),
    "packed_llama": LLAMA,
    "packed_mistral": dict(LLAMA, model_type="mistral", sliding_window=5),
}

V4_SPELLING = {"llama31_rope", "qwen2", "smollm2"}

DESCRIPTIONS = {
    "gpt2": "GPT-2: learned positions, fused c_attn stored [in, out], gelu_new, tied head.",
    "llama": "Llama, grouped-query attention (4 heads, 2 kv heads), untied head.",
    "llama_tied": "Llama with the head tied to the embedding, one kv head per head.",
    "llama31_rope": "Llama 3.1 rope scaling, config spelled as in v4 (rope_theta + rope_scaling).",
    "llama31_rope_v5": "The weights of llama31_rope, config in the v5 spelling (rope_parameters).",
    "llama_bias": "Llama with attention_bias and mlp_bias.",
    "qwen2": "Qwen2: biases on q, k, v without a config flag, tied head, rope theta 1e6; "
             "config in the v4 spelling, with a sliding_window that is not in use.",
    "qwen3": "Qwen3: norms on q and k, head_dim 16 that is not hidden/heads, 3 heads, 1 kv head.",
    "mistral": "Mistral: sliding window 5 (a query sees itself and 4 before it), head_dim 12.",
    "smollm2": "SmolLM2-like: Llama, tied, 3 heads and 1 kv head, 3 layers, rope theta 1e5; "
               "config in the v4 spelling.",
    "llama_sharded": "The weights of llama in several safetensors files with an index.",
    "gpt2_noprefix": "The weights of gpt2 named as the original hub file names them: no "
                     "'transformer.' prefix, and causal-mask buffers h.N.attn.bias to be ignored.",
    "packed_llama": "Several documents per row: no attention across them, positions restart, the "
                    "label that crosses into the next document is masked.",
    "packed_mistral": "Packed documents and a sliding window of 5 together.",
    "llama_sgd": "The model and batch of llama: 5 steps of SGD with momentum, no clipping.",
    "llama_muon": "The model and batch of llama: 3 steps of Muon on the 2-D hidden matrices, AdamW "
                  "on the rest, no clipping; both learning-rate adjustments.",
}


def make_config(case):
    fields = dict(CONFIGS[case])
    return AutoConfig.for_model(fields.pop("model_type"), **fields)


def random_weights(model, seed):
    """Fill every parameter with seeded noise: gains around 1, biases around 0, matrices wide
    enough that logits differ clearly between tokens."""
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            if p.dim() >= 2:
                vocabulary = any(s in name for s in ("embed", "wte", "wpe", "lm_head"))
                p.copy_(noise * (0.25 if vocabulary else 0.15))
            elif name.endswith(".weight"):
                p.copy_(1.0 + 0.3 * noise)
            else:
                p.copy_(0.2 * noise)


def build(config, dtype, weights=None):
    """A model in eval mode with eager attention; weights are widened or kept, never rounded."""
    torch.set_default_dtype(dtype)
    try:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
    finally:
        torch.set_default_dtype(torch.float32)
    if weights is not None:
        result = model.load_state_dict({k: v.to(dtype) for k, v in weights.items()}, strict=False)
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        if set(result.missing_keys) - tied or result.unexpected_keys:
            raise SystemExit(f"weights do not fit: {result}")
        model.tie_weights()
    return model.eval()


# -------------------------------------------------------------------------------------- batch

def make_batch(case, vocab, seed):
    """input_ids, labels [b, s], and for packed cases docs and positions [b, s]."""
    rng = np.random.default_rng(seed)
    b, s = (3, 20) if not case.startswith("gpt2") else (2, 24)
    stream = rng.integers(0, vocab, size=(b, s + 1))
    batch = {"input_ids": stream[:, :-1].copy(), "labels": stream[:, 1:].copy()}
    if case.startswith("packed"):
        docs = np.array([[0] * 6 + [1] * 1 + [2] * 9 + [3] * 4,
                         [7] * 12 + [9] * 8,
                         [4] * 20])
        start = np.concatenate([np.ones((b, 1), bool), docs[:, 1:] != docs[:, :-1]], axis=1)
        first = np.maximum.accumulate(np.where(start, np.arange(s), 0), axis=1)
        batch["docs"] = docs
        batch["positions"] = np.arange(s) - first
        batch["labels"][:, :-1][start[:, 1:]] = -100
        batch["labels"][2, :3] = -100
    else:
        batch["labels"][0, :4] = -100           # a prompt that is not trained on
        batch["labels"][1, s - 7:] = -100       # a short row, padded at its end
        batch["labels"][b - 1, 10:12] = -100    # a hole in the middle
    return {k: torch.from_numpy(v).long() for k, v in batch.items()}


def attention_mask(batch, window, dtype):
    """The explicit additive mask [b, 1, s, s] of a packed batch, or None."""
    if "docs" not in batch:
        return None
    docs = batch["docs"]
    at = torch.arange(docs.shape[1])
    distance = at[:, None] - at[None, :]
    seen = (distance >= 0) & ((distance < window) if window else True)
    seen = seen[None] & (docs[:, :, None] == docs[:, None, :])
    mask = torch.zeros(seen.shape, dtype=dtype)
    mask.masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[:, None]


def forward(model, batch):
    dtype = next(model.parameters()).dtype
    window = getattr(model.config, "sliding_window", None)
    extra = {}
    if "docs" in batch:
        extra = {"attention_mask": attention_mask(batch, window, dtype),
                 "position_ids": batch["positions"]}
    logits = model(input_ids=batch["input_ids"], use_cache=False, **extra).logits
    labels = batch["labels"].reshape(-1)
    nll = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels,
                                            ignore_index=-100, reduction="sum")
    return logits, nll / (labels != -100).sum()


def backward(model, batch):
    model.zero_grad(set_to_none=True)
    logits, loss = forward(model, batch)
    loss.backward()
    return logits.detach(), loss.detach()


# --------------------------------------------------------------------------------- optimizers

def run_adamw(model, batch):
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() >= 2],
               "weight_decay": ADAMW["weight_decay"]},
              {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                            foreach=False)
    losses, norms = [], []
    for _ in range(ADAMW["steps"]):
        losses.append(backward(model, batch)[1])
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["clip_norm"]))
        opt.step()
    out = {"losses10": torch.stack(losses), "grad_norms10": torch.stack(norms)}
    for name, p in named:
        out[f"param10.{name}"] = p.detach()
        out[f"exp_avg10.{name}"] = opt.state[p]["exp_avg"]
        out[f"exp_avg_sq10.{name}"] = opt.state[p]["exp_avg_sq"]
    return out


def run_sgd(model, batch):
    opt = torch.optim.SGD(model.parameters(), lr=SGD["lr"], momentum=SGD["momentum"], foreach=False)
    losses, norms = [], []
    for _ in range(SGD["steps"]):
        losses.append(backward(model, batch)[1])
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        opt.step()
    out = {"losses5": torch.stack(losses), "grad_norms5": torch.stack(norms)}
    for name, p in model.named_parameters():
        out[f"param5.{name}"] = p.detach()
        out[f"momentum5.{name}"] = opt.state[p]["momentum_buffer"]
    return out


def newton_schulz(update, coefficients, steps, eps):
    """The orthogonalisation of Muon in the type of its input. torch.optim.Muon does the same
    arithmetic in bfloat16."""
    a, b, c = coefficients
    x = update.T if update.shape[0] > update.shape[1] else update
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if update.shape[0] > update.shape[1] else x


def is_hidden_matrix(name, p):
    return p.dim() == 2 and ".layers." in name


def run_muon(model, batch, adjust, own):
    """own: the formula written out, float64. Otherwise torch.optim.Muon itself."""
    named = list(model.named_parameters())
    hidden = [p for n, p in named if is_hidden_matrix(n, p)]
    rest = [p for n, p in named if not is_hidden_matrix(n, p)]
    r = MUON["rest"]
    adam = torch.optim.AdamW([{"params": [p for p in rest if p.dim() >= 2],
                               "weight_decay": r["weight_decay"]},
                              {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0}],
                             lr=r["lr"], betas=tuple(r["betas"]), eps=r["eps"], foreach=False)
    muon = None
    if not own:
        muon = torch.optim.Muon(hidden, lr=MUON["lr"], weight_decay=MUON["weight_decay"],
                                momentum=MUON["momentum"], nesterov=MUON["nesterov"],
                                ns_coefficients=tuple(MUON["ns_coefficients"]),
                                eps=MUON["ns_eps"], ns_steps=MUON["ns_steps"], adjust_lr_fn=adjust)
    buffers = {p: torch.zeros_like(p) for p in hidden}
    losses = []
    m = MUON["momentum"]
    for _ in range(MUON["steps"]):
        losses.append(backward(model, batch)[1])
        if muon is not None:
            muon.step()
        else:
            with torch.no_grad():
                for p in hidden:
                    buffers[p].mul_(m).add_(p.grad, alpha=1 - m)
                    update = (1 - m) * p.grad + m * buffers[p]
                    update = newton_schulz(update, MUON["ns_coefficients"], MUON["ns_steps"],
                                           MUON["ns_eps"])
                    rows, cols = p.shape
                    ratio = (0.2 * math.sqrt(max(rows, cols)) if adjust == "match_rms_adamw"
                             else math.sqrt(max(1.0, rows / cols)))
                    p.mul_(1 - MUON["lr"] * MUON["weight_decay"])
                    p.sub_(update, alpha=MUON["lr"] * ratio)
        adam.step()
    return torch.stack(losses), {n: p.detach() for n, p in named}, {
        n: buffers[p] for n, p in named if p in buffers}


# --------------------------------------------------------------------------------------- cases

def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def stored(tensors):
    ints = ("input_ids", "labels", "docs", "positions")
    return {k: v.to(torch.int32 if k in ints else torch.float32).contiguous().clone()
            for k, v in tensors.items()}


def write_golden(folder, case, tensors, **facts):
    safetensors.torch.save_file(stored(tensors), folder / "golden.safetensors")
    info = {"case": case, "description": DESCRIPTIONS[case], "versions": VERSIONS,
            "seed": SEED, "computed_in": "float64", "stored_as": "float32", **facts}
    (folder / "golden.json").write_text(json.dumps(info, indent=1) + "\n")


def dims(config, batch):
    b, s = batch["input_ids"].shape
    names = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "n_inner",
             "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
             "sliding_window", "tie_word_embeddings")
    found = {n: getattr(config, n) for n in names if getattr(config, n, None) is not None}
    return {"batch": b, "seq": s, "valid_labels": int((batch["labels"] != -100).sum()), **found}


def clean(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def save_model(model, folder, **how):
    model.save_pretrained(folder, **how)
    (folder / "generation_config.json").unlink(missing_ok=True)


def reload_check(folder, batch, logits):
    """The saved directory, read back by the library, gives the golden logits."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    with torch.no_grad():
        got = forward(model, batch)
    rel = relative(got[0], logits)
    if not rel < 5e-6:
        raise SystemExit(f"{folder}: read back, logits differ by {rel:g}")
    return rel


def to_v4_spelling(folder):
    """Rewrite config.json as transformers before version 5 wrote it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    if config["model_type"] == "llama":
        config.pop("head_dim")
    if config["model_type"] == "qwen2":
        config["sliding_window"] = 5        # not in use: use_sliding_window is false
    path.write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def case_state(case):
    """(config, float32 weights, batch) of a case; the same at every call."""
    index = sorted(CONFIGS).index(case)
    config = make_config(case)
    model = build(config, torch.float32)
    random_weights(model, SEED + index)
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    return config, weights, make_batch(case, config.vocab_size, SEED + 100 + index)


def full_case(root, case, moments):
    config, weights, batch = case_state(case)
    folder = root / case
    clean(folder)
    save_model(build(config, torch.float32, weights), folder)
    if case == "llama31_rope":
        shutil.copytree(folder, root / "llama31_rope_v5", dirs_exist_ok=True)
    if case in V4_SPELLING:
        to_v4_spelling(folder)
    with Float64():
        model = build(config, torch.float64, weights)
        logits, loss = backward(model, batch)
        out = dict(batch, logits=logits, loss=loss)
        out.update({f"grad.{n}": p.grad.detach().clone() for n, p in model.named_parameters()})
        steps = run_adamw(build(config, torch.float64, weights), batch)
    out.update({k: v for k, v in steps.items() if moments or not k.startswith("exp_avg")})
    stock = build(config, torch.float32, weights)
    stock_logits, stock_loss = backward(stock, batch)
    grads = {n: p.grad for n, p in stock.named_parameters()}
    write_golden(folder, case, out, dims=dims(config, batch), adamw=ADAMW,
                 stock_float32={
                     "logits_rel": relative(stock_logits, logits),
                     "loss_rel": relative(stock_loss, loss),
                     "worst_grad_rel": max(relative(g, out[f"grad.{n}"]) for n, g in grads.items()),
                     "reloaded_logits_rel": reload_check(folder, batch, logits)})
    if case == "llama31_rope":
        forward_case(root, "llama31_rope_v5", config, batch, logits, loss)


def forward_case(root, case, config, batch, logits, loss):
    rel = reload_check(root / case, batch, logits)
    write_golden(root / case, case, dict(batch, logits=logits, loss=loss), dims=dims(config, batch),
                 stock_float32={"reloaded_logits_rel": rel})


def derived_case(root, case, parent):
    """Another spelling of the parent's files: forward outputs only."""
    config, weights, batch = case_state(parent)
    clean(root / case)
    model = build(config, torch.float32, weights)
    if case == "llama_sharded":
        save_model(model, root / case, max_shard_size="24KB")
    else:
        save_model(model, root / case)
        path = root / case / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        tensors = {k.removeprefix("transformer."): v for k, v in tensors.items()}
        n = config.n_positions
        for layer in range(config.n_layer):
            tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, n, n))
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    with Float64():
        logits, loss = backward(build(config, torch.float64, weights), batch)
    forward_case(root, case, config, batch, logits, loss)


def sgd_case(root):
    config, weights, batch = case_state("llama")
    clean(root / "llama_sgd")
    with Float64():
        out = run_sgd(build(config, torch.float64, weights), batch)
    write_golden(root / "llama_sgd", "llama_sgd", dict(batch, **out), model="../llama",
                 dims=dims(config, batch), sgd=SGD)


def muon_case(root):
    config, weights, batch = case_state("llama")
    clean(root / "llama_muon")
    out, checks = dict(batch), {}
    for adjust, tag in (("match_rms_adamw", ""), ("original", "_original")):
        with Float64():
            losses, params, buffers = run_muon(build(config, torch.float64, weights), batch, adjust,
                                               own=True)
        out[f"losses3{tag}"] = losses
        out.update({f"param3{tag}.{n}": p for n, p in params.items()})
        if not tag:
            out.update({f"momentum3.{n}": p for n, p in buffers.items()})
        checks[adjust] = muon_check(config, weights, batch, adjust, params)
    named = build(config, torch.float32).named_parameters()
    write_golden(root / "llama_muon", "llama_muon", out, model="../llama", muon=MUON,
                 muon_parameters=[n for n, p in named if is_hidden_matrix(n, p)],
                 adjust_lr_fn={"param3": "match_rms_adamw", "param3_original": "original"},
                 dims=dims(config, batch), against_torch_optim_muon=checks)


def muon_check(config, weights, batch, adjust, params):
    """Compare with torch.optim.Muon twice: as it comes (bfloat16 iterations), where the total
    movement may differ by some percent, and with its iteration replaced by ours, where only
    rounding may remain."""
    import torch.optim._muon as module
    def moved(got):
        worst = 0.0
        for n, p in params.items():
            if ".layers." in n and p.dim() == 2:
                start = weights[n].double()
                worst = max(worst, relative(got[n].double() - start, p - start))
        return worst
    with Float64():
        stock = run_muon(build(config, torch.float64, weights), batch, adjust, own=False)[1]
        original = module._zeropower_via_newtonschulz
        module._zeropower_via_newtonschulz = newton_schulz
        try:
            exact = run_muon(build(config, torch.float64, weights), batch, adjust, own=False)[1]
        finally:
            module._zeropower_via_newtonschulz = original
    rel_stock, rel_exact = moved(stock), moved(exact)
    if not (rel_stock < 0.05 and rel_exact < 1e-10):
        raise SystemExit(f"Muon ({adjust}) disagrees: {rel_stock:g}, {rel_exact:g}")
    return {"movement_rel_bf16_iterations": rel_stock, "movement_rel_same_iterations": rel_exact}


def window_check():
    """sliding_window W means: a query sees itself and the W-1 keys before it."""
    config, weights, batch = case_state("mistral")
    s = batch["input_ids"].shape[1]
    whole = dict(batch, docs=torch.zeros_like(batch["input_ids"]),
                 positions=torch.arange(s).expand_as(batch["input_ids"]))
    with Float64(), torch.no_grad():
        model = build(config, torch.float64, weights)
        rel = relative(forward(model, whole)[0], forward(model, batch)[0])
    if not rel < 1e-12:
        raise SystemExit(f"sliding window means something else: {rel:g}")


def schedules(path):
    """Multipliers of the learning rate at steps 0..49, as transformers defines them."""
    o = transformers.optimization
    settings = [
        ("constant", o.get_constant_schedule_with_warmup, dict(num_warmup_steps=0)),
        ("constant", o.get_constant_schedule_with_warmup, dict(num_warmup_steps=10)),
        ("linear", o.get_linear_schedule_with_warmup,
         dict(num_warmup_steps=5, num_training_steps=50)),
        ("linear", o.get_linear_schedule_with_warmup,
         dict(num_warmup_steps=0, num_training_steps=40)),
        ("cosine", o.get_cosine_schedule_with_warmup,
         dict(num_warmup_steps=5, num_training_steps=50)),
        ("cosine", o.get_cosine_schedule_with_warmup,
         dict(num_warmup_steps=0, num_training_steps=37)),
        ("cosine_with_min_lr", o.get_cosine_with_min_lr_schedule_with_warmup,
         dict(num_warmup_steps=7, num_training_steps=50, min_lr_rate=0.1)),
        ("wsd", o.get_wsd_schedule, dict(num_warmup_steps=5, num_stable_steps=30,
                                         num_decay_steps=15, decay_type="linear")),
        ("wsd", o.get_wsd_schedule, dict(num_warmup_steps=5, num_stable_steps=25,
                                         num_decay_steps=15, decay_type="cosine",
                                         min_lr_ratio=0.1)),
        ("wsd", o.get_wsd_schedule, dict(num_warmup_steps=4, num_stable_steps=20,
                                         num_decay_steps=16, decay_type="1-sqrt",
                                         min_lr_ratio=0.0)),
    ]
    out = []
    for name, make, args in settings:
        opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        multiplier = make(opt, **args).lr_lambdas[0]
        out.append({"schedule": name, "function": make.__name__, "arguments": args,
                    "multiplier": [float(multiplier(step)) for step in range(50)]})
    path.write_text(json.dumps({"versions": VERSIONS, "steps": 50, "schedules": out}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--only", help="one case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    root = args.out / "models"
    with_moments = {"gpt2", "llama", "qwen2", "smollm2"}
    jobs = {case: (lambda c=case: full_case(root, c, c in with_moments)) for case in CONFIGS}
    jobs["llama_sharded"] = lambda: derived_case(root, "llama_sharded", "llama")
    jobs["gpt2_noprefix"] = lambda: derived_case(root, "gpt2_noprefix", "gpt2")
    jobs["llama_sgd"] = lambda: sgd_case(root)
    jobs["llama_muon"] = lambda: muon_case(root)
    window_check()
    for case, job in jobs.items():
        if args.only in (None, case):
            job()
            size = sum(f.stat().st_size for f in (root / case).iterdir())
            print(f"{case:18} {size / 1000:7.0f} kB")
    schedules(args.out / "schedules.json")


if __name__ == "__main__":
    main()
