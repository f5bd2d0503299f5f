// SPDX-License-Identifier: Apache-2.0
// The op table and the contract of each op. Dimension letters are those of the values' dim names;
// `*` any leading dims; `?` optional. Weights are stored [out dims.., in dims..].
//
// clang-format off
//   embed ids i32[*], w[v d]  -> y[* d]  dtype of w; ids outside 0..v-1 give zeros
//   embed_grad ids[*], dy[* d], acc?[v d]  -> dw[v d]  {rows=v dtype=f32 dim="v": name of v}; deterministic
//   matmul x, w, bias?  -> y  contracts the dims x and w share by name (a
//     leading or trailing group of each, in one order); y = free dims of x, then of w; bias has w's free dims;
//     {dtype: of y; default that of x}
//   matmul_dw dy, x, acc?  -> dw  contracts the shared dims (b s); free dims of
//     dy, then of x; {dtype=f32}
//   fp8_quant x  -> values (dims of x), scales f32 (blocked dims in blocks of 128)  {along="": the last, across="",
//     format=f8e4m3 pow2=false};  fp8_dequant values, scales  -> y  {dtype=f32}
//   fp8_matmul xv, xs, wv, ws, bias?  -> y;  fp8_matmul_dw dyv, dys, xv, xs, acc?  -> dw  as matmul and matmul_dw, of
//     such pairs (ops/fp8.h)  {dtype=f32 pow2=false: scales made in backward}
//   bias_grad dy[* keep..], acc?  -> db[keep..]  {keep: trailing dims kept, dtype=f32}
//   add a, b  -> y  in place on a dead input
//   addn a, b, ...  -> y  sum of any number (>= 1) of equal types, in order
//   cast x  -> y  {dtype}
//   rmsnorm x[* d], g[d]  -> y, rstd f32[*]  {eps=1e-6}; the norm is over the last dim
//   rmsnorm_grad dy, x, g, rstd, acc?  -> dx, dg[d]  {dtype=f32 of dg}; BW
//   layernorm x[* d], g[d], b[d]  -> y, mean f32[*], rstd f32[*]  {eps=1e-5}
//   layernorm_grad dy, x, g, mean, rstd, accg?, accb? -> dx, dg, db  {dtype=f32}; BW
//   rope_table pos i32[b s]  -> cos f32[b s r], sin f32[b s r]
//     {head (= 2r), theta=10000, scaling=0 none|1 linear|2 llama3|3 yarn, factor, low, high, original, gain=1: of cos and sin, dtype=f32: f64 for exact
//     angles in float64 graphs; otherwise angles are float32 products, as the field has them}
//   rope x[b s h k], cos, sin  -> y  {inverse=false skip=0: leading components that stay}; pairs (i, i + k/2), the
//     Hugging Face convention; GGUF's interleaved rows are permuted when read
//   concat a[b s h k], b[b s h k'] or b[b s c1 k']: for all heads  -> y[b s h k+k'];  split y  -> a, b  {first shared}: its gradient
//   attention q[b s h k], k[b s g k], v[b s g u], docs? i32[b s], kdocs? i32[b s] -> o[b s h u], lse f32[b s h]
//     {causal=true window=0 scale=0}; scale 0 = 1/sqrt(k); head i uses kv head i / (h/g); query i sees key j iff
//     docs[i] == kdocs[j] and j <= i (causal) and (window == 0 or i - j < window); i, j are indices along the whole s;
//     kdocs, where absent, are docs; v's last dimension is k's or has a name of its own
//   attention_grad do, q, k, v, o, lse, docs?, kdocs?  -> dq, dk, dv  same attributes; B
//   attention_part q, k, v, docs?, kdocs?, o? f32, lse? f32 -> o f32, lse f32  one block of the keys merged into what
//     blocks before gave; o and lse tied; a row that has seen nothing: o zero, lse minus infinity
//   attention_part_grad do, q, k, v, o, lse, docs?, kdocs?, dq? f32, dk? f32, dv? f32 -> dq, dk, dv f32  accumulators
//   attention_cache q[b s h k], kc[b t g k], vc[b t g u], pos i32[b s] -> o[b s h u]  {window=0 scale=0}; sees
//     cache rows t <= pos and pos - t < window; pos < 0 = padding row, output zero
//   cache_put cache[b t g k], x[b s g k], pos i32[b s] -> cache'  tied; rows with pos < 0 or >= t are skipped
//   swiglu gate[*], up[*]  -> y = silu(gate) * up
//   swiglu_grad dy, gate, up  -> dgate, dup
//   gelu x  -> y  {tanh=true}
//   gelu_grad dy, x  -> dx
//   dropout x[b ..], sample i64[b], batch i64[]  -> y  {p key seed}; kept values times 1/(1-p); mask is a
//     function of (seed, key, sample id, batch counter, index within the whole sample); vjp is dropout of dy
//   head x[* d], w[v d], labels i32[*], seed f32[], acc? f32[]  -> loss f32[]  sum over valid labels (>= 0) of the
//     negative log likelihood, in float32 (float64 inside a row's sum is allowed); labels >= v are a bug of the caller
//   head_grad x, w, labels, seed, accw?, accl?  -> dx[* d], dw[v d], loss f32[]  {dtype=f32 of dw}; d(seed * loss); BW; full logits
//     never exist: rows are taken in tiles
//   head where v is cut over ranks, in pieces (head_parts.c):
//   head_stats x, w, labels  -> max f32[*], parts f32[part * stat3]  {parts=1}; of each row of logits and part of v: its
//     maximum, the sum of exp(z - it), the label's logit (0 where it is elsewhere); max over all parts here; zeros if masked
//   head_merge max, parts  -> sums f32[* sum2]  sum over parts of exp(theirs - max) * sum, and of label's logits
//   head_loss labels, max, sums, acc?  -> loss f32[]  sum over valid labels of max + log(sum) - logit
//   head_part_grad x, w, labels, max, sums, seed, acc?[v d]  -> dx, dw  {dtype=f32 of dw}; BW; through the rows of w here
//   pick x[b s d], at i32[b]  -> y[b d]  row at[b] of each sequence
//   zeros x  -> y  {dtype}; shape of x, reads nothing
//   sqnorm x  -> s f32[]  sum of squares, float64 inside
//   clip sumsq f32[], inv_scale f32[]  -> norm f32[], factor f32[], ok f32[]  {max=0}
//     norm = sqrt(sumsq) * inv_scale; factor = inv_scale * (max > 0 ? min(1, max / (norm + 1e-6)) : 1);
//     ok = 1 if norm is finite else 0
//   adamw p, g, m, v, factor f32[], ok f32[], lr f32[], step i64[]  -> p', m', v'  tied; {beta1 beta2 eps decay
//     stochastic=false seed key}; torch.optim.AdamW: p *= 1 - lr*decay; bias-corrected; step counts from 1
//   sgd p, g, factor, ok, lr  -> p'  {decay}; torch.optim.SGD (decay added to g)
//   sgdm p, g, m, factor, ok, lr, step  -> p', m'  {momentum nesterov decay}; first step m = g
//   muon p, g, m, factor, ok, lr  -> p', m'  {rows: leading dims that form rows; momentum=0.95 nesterov=true
//     ns_steps=5 decay}; torch.optim.Muon with adjust_lr_fn "match_rms_adamw" (0.2 * sqrt(max(rows, cols))), Newton-Schulz
//     coefficients 3.4445, -4.7750, 2.0315, in float32
//   muon where ranks hold parts, in pieces (muon_parts.c):
//   muon_momentum g, m, factor  -> u  {momentum nesterov};  muon_direction u  -> x  {rows ns_steps}, whole
//   muon_apply p, g, m, factor, ok, lr, x  -> p', m'  tied; {rows momentum decay}
//   all_reduce, reduce_scatter, all_gather, all_to_all, shift x -> y  {wire bucket algorithm}; slice, keep_one, place
//     x -> y: the same tensor in another placement, which the types of x and y tell (ops/conversion.h)
//   take x[.. s ..]  -> y[.. s/parts ..]  {part=0 parts=1 groups=1}; a rank's rows are `groups` equal runs, and y has piece
//     `part` of each; weave y, y, ...  -> x  {groups=1}: the inverse
//   accumulate x, acc?  -> y = acc + x
//   conv2d x[b y x c], w[o c i j]  -> y[b y x c]  {stride=1 pad=0}; no bias; y's c is w's o
//   conv2d_dx dy, w  -> dx  {stride pad height width: of the image}
//   conv2d_dw dy, x, acc?  -> dw[o c i j]  {stride pad height width: of a filter; dtype=f32}
//   bn_mean x[b .. c]  -> mean f32[group c]  {groups=1}; samples cut into equal runs; divided by the global count
//   bn_var x, mean  -> var f32[group c]  mean square distance from mean (biased)
//   batchnorm x, mean, var, gain[c], bias[c]  -> y  {eps=1e-5 batch=true: mean and var are those of x, and the
//     gradient goes through them}
//   batchnorm_sums dy, x, mean, var  -> s1 f32[group c], s2 f32[group c]  {eps}; sums over a group of dy and dy * xhat
//   batchnorm_dx dy, x, mean, var, gain, s1?, s2?  -> dx  {eps}; without s1, s2 the statistics are constants
//   sum_groups s[group c], acc?  -> y[c]  {dtype=f32}
//   first_group s[group c]  -> y[c]  the first group's
//   running_stat r, batch  -> r' = (1 - momentum) r + momentum scale batch  tied; {momentum=0.1 scale=1}
//   tick n i64[*]  -> n' = n + 1  tied
//   carry x  -> y  a copy, any dtype;  commit old, new, ok f32[]  -> old'  tied: new if ok is not 0
//   redo factor, inv_scale, ok  -> redo f32[], ok2 f32[]  of a step taken with inv_scale before the norm: undo it? and
//     step with factor?
//   fetch x (host, disk)  -> y (device);  store y (device), x (host, disk)  -> x'  tied to x;  spill y (device)
//     -> x (host, disk): copies on stream `copy`
//   relu x  -> y;  relu_grad dy, y  -> dx
//   maxpool x[b y x c]  -> y  {size=3 stride=2 pad=1}; maxpool_grad dy, x  -> dx  to the first largest value
//   avgpool x[b y x c]  -> y[b c];  avgpool_grad dy[b c]  -> dx  {height width}
//   xent z[* v], labels i32[*], seed f32[], acc? f32[]  -> loss f32[]  as head, of logits that exist
//   xent_grad z, labels, seed, acc?  -> dz, loss  BW
//   route logits[b s n], tokens i32[b s], bias[n]?  -> gates[b s t], ids i32[b s t], probs[b s n]
//     {top sigmoid=false normalize=true scale=1 groups=1 group_limit=1 group_max=false}; equal scores: the lower index;
//     tokens < 0 are padding: ids -1, zeros
//   route_grad logits, ids, dgates?, dprobs?  -> dlogits  the same attributes
//   cap ids i32[b s t], gates  -> kept i32[b s t]  {experts capacity=1 by_score=false}; -1 where there is no room
//   drops ids, kept, acc?  -> f32[]  how many that are
//   loads ids i32[b s t], acc?  -> f32[b n], or f32[n] with samples  {experts samples=false}
//   token_sum x[b s n], tokens[b s]  -> [b n], or [n] with samples;  token_spread dy, tokens  -> dx  {dtype}
//   balance P[* n], load[* n], seed f32[], acc?  -> loss f32[]  {top weight=1}; gradient is of seed * weight * loss
//   balance_grad P, load, seed, acc?  -> dP, loss  BW
//   balance_step bias[n], load[n]  -> bias'  tied; {rate=0.001}; bias + rate * sign(mean load - load)
//   z_sum logits[b s n], tokens[b s]  -> z[b], or z[] with samples;  z_sum_grad dz, logits, tokens  -> dlogits
//   z_loss z[*], load[* n], seed, acc?  -> loss;  z_loss_grad  -> dz, loss  BW; attributes of balance
//   experts x[b s d], ids i32[b s t], gates[b s t], gate[e f d], up[e f d], down[e d f]  -> y[b s d]
//   experts_grad dy, x, ids, gates, gate, up, down, acc?, acc?, acc?  -> dx, dgates, dgate, dup, ddown  {dtype=f32}; BW
//   experts_ep, experts_ep_grad: the same where e is cut on sub-axes that cut b or s  {buffer=2: room in mean loads}
//   blank  -> y[size]  {size dim dtype}; zeros
//   send x ->  {to tag places};  recv  -> y  {from tag places}; between stages of a pipeline
//
// Statistics (rstd, mean, lse, loss) are f32, and f64 beside f64 values. Gradients flow through output 0 of an op; the further
// outputs are statistics for its own backward, and dout of them is GW_NONE.
//
// An optimizer op with ok == 0 leaves its outputs' bytes as they were. g times factor is the gradient. With
// stochastic=true, p (bf16) is rounded by gw_bf16_from_f32_stochastic with bits from (seed, key, index, step).
// clang-format on
#ifndef GW_OPS_OPS_H
#define GW_OPS_OPS_H

#include "ir/opdef.h" /* gw_optable, gw_opdef */

typedef enum gw_opcode {
#define X(name) GW_OP_CODE_##name,
#include "ops/ops.def"
#undef X
    GW_OP_CODE_COUNT
} gw_opcode;

#define X(name) extern const gw_opdef gw_opdef_##name;
#include "ops/ops.def"
#undef X

const gw_optable *gw_ops_table(void);

#endif
