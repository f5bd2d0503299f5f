# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of bench/train_step: a process that takes training steps when it is told to.

    python torch_peer.py '{"model": {...}, "batch": 4, "seq": 1024, "dtype": "f32", ...}'

The models are written from their public definitions, as a user who cares for speed writes them:
fused causal attention (F.scaled_dot_product_attention), one product for GPT-2's q, k and v, a tied
head, cross-entropy over all tokens, fused AdamW where this PyTorch has it on CPUs, gradients set to
none. bf16 is torch.autocast over float32 weights. With "library" the model is the class of the
transformers library, with random weights of the same shape.

Protocol: one JSON object a line. Out, once ready: {"ready": ...}. In: {"steps": n}. Out: {"times":
[seconds of each step], "loss": of the last}. Closing stdin ends the process.
"""

import contextlib
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["hidden"]
        self.heads = c["heads"]
        self.norm1, self.norm2 = (nn.LayerNorm(d, eps=c["norm_eps"]) for _ in range(2))
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, c["ffn"]), nn.Linear(c["ffn"], d)

    def forward(self, x, rope):
        b, s, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["hidden"])
        self.positions = nn.Embedding(c["max_positions"], c["hidden"])
        self.blocks = nn.ModuleList(GPT2Block(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["hidden"], eps=c["norm_eps"])

    def forward(self, tokens, labels):
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, None)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def rotate(x, rope):
    cos, sin = rope
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.size = c["hidden"], c["head_dim"]
        q, kv = c["heads"] * self.size, c["kv_heads"] * self.size
        self.grouped = c["heads"] != c["kv_heads"]
        self.norm1, self.norm2 = (nn.RMSNorm(d, eps=c["norm_eps"]) for _ in range(2))
        self.q, self.k, self.v, self.out = (
            nn.Linear(i, o, bias=False) for i, o in ((d, q), (d, kv), (d, kv), (q, d)))
        self.gate, self.up, self.down = (
            nn.Linear(i, o, bias=False) for i, o in ((d, c["ffn"]), (d, c["ffn"]), (c["ffn"], d)))

    def forward(self, x, rope):
        b, s, _ = x.shape
        n = self.norm1(x)
        q, k, v = (f(n).view(b, s, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, rope), rotate(k, rope), v, is_causal=True,
                                           enable_gqa=self.grouped)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, -1))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, c, seq):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["hidden"])
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden"], eps=c["norm_eps"])
        half = torch.arange(0, c["head_dim"], 2, dtype=torch.float32) / c["head_dim"]
        angle = torch.outer(torch.arange(seq, dtype=torch.float32), c["rope_theta"] ** -half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Library(nn.Module):
    """The transformers library's own class, and the same loss over the same labels."""

    def __init__(self, c, seq):
        super().__init__()
        import transformers
        common = dict(vocab_size=c["vocab"], tie_word_embeddings=True, use_cache=False,
                      bos_token_id=0, eos_token_id=0)
        if c["family"] == "gpt2":
            config = transformers.GPT2Config(
                n_embd=c["hidden"], n_layer=c["layers"], n_head=c["heads"],
                n_positions=c["max_positions"], activation_function="gelu_new", resid_pdrop=0.0,
                embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=c["norm_eps"], **common)
        else:
            config = transformers.LlamaConfig(
                hidden_size=c["hidden"], intermediate_size=c["ffn"], head_dim=c["head_dim"],
                num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
                num_key_value_heads=c["kv_heads"], rms_norm_eps=c["norm_eps"],
                max_position_embeddings=max(seq, c["max_positions"]),
                rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]}, **common)
        self.model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32)

    def forward(self, tokens, labels):
        logits = self.model(input_ids=tokens).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def initialise(model):
    for p in model.parameters():
        if p.dim() >= 2:
            nn.init.normal_(p, std=0.02)


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    for how in ("fused", "foreach"):
        try:
            return how, torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8,
                                          **{how: True})
        except RuntimeError:
            continue
    raise SystemExit("this PyTorch has neither a fused nor a foreach AdamW on CPUs")


def clip(parameters):
    try:
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    except RuntimeError:  # older versions know no foreach form on CPUs
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0)


def main():
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    c, batch, seq = job["model"], job["batch"], job["seq"]
    if job["library"]:
        model = Library(c, seq)
    else:
        model = GPT2(c) if c["family"] == "gpt2" else Llama(c, seq)
    initialise(model)
    how, optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    run = torch.compile(model) if job["compile"] else model
    ids = torch.randint(0, c["vocab"], (16, batch, seq + 1))

    def step(i):
        cast = (torch.autocast("cpu", torch.bfloat16) if job["dtype"] == "bf16"
                else contextlib.nullcontext())
        row = ids[i % len(ids)]
        with cast:
            loss = run(row[:, :-1], row[:, 1:])
        loss.backward()
        clip(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    count = sum(p.numel() for p in parameters)
    print(json.dumps({"ready": True, "version": torch.__version__, "parameters": count,
                      "adamw": how}), file=answers)
    taken = 0
    for line in sys.stdin:
        times = []
        for _ in range(json.loads(line)["steps"]):
            begun = time.perf_counter()
            loss = step(taken)
            times.append(time.perf_counter() - begun)
            taken += 1
        print(json.dumps({"times": times, "loss": loss}), file=answers)


if __name__ == "__main__":
    main()
