#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights go out and come in again, every bit: as a Hugging Face directory, as a GGUF file, as what
# torch.save writes; a run that is made of them trains in any layout. What is wrong is named.
set -euo pipefail
cd "$TMPDIR"
fail() { echo "$*" >&2; exit 1; }
command -v python3 >/dev/null || { echo "python3 is not here"; exit 77; }

for _ in $(seq 400); do echo 'a wright makes ships of wood and time.'; done >text.txt
"$GW_BIN" tokenizer train text.txt --vocab-size 300 --out tok.json --quiet >/dev/null
"$GW_BIN" tokenizer encode tok.json text.txt --out data --quiet >/dev/null

run_of() { # FAMILY SIZES
    cat >run.yaml <<END
model: {family: $1, layers: 2, hidden: 32, heads: 4, $2ffn: 64, max_positions: 64}
data: {train: data, tokenizer: tok.json}
train: {steps: 2, seq_len: 16, micro_batch: 2, seed: 3}
END
}

for family in llama qwen2 qwen3 gpt2; do
    sizes="kv_heads: 2, "
    [ $family != gpt2 ] || sizes=""
    run_of $family "$sizes"
    "$GW_BIN" train run.yaml --out r-$family --quiet
    "$GW_BIN" export r-$family --out hf-$family >/dev/null
    "$GW_BIN" export r-$family --to gguf --out $family.gguf >/dev/null
    # From each form a run, and from it the directory again.
    "$GW_BIN" import hf-$family --out from-hf-$family >/dev/null
    "$GW_BIN" import $family.gguf --out from-gguf-$family --set data.tokenizer=tok.json >/dev/null
    mkdir torch-$family
    cp hf-$family/* torch-$family
    python3 "$GW_TESTS_DIR/cli/torch_save.py" torch-$family
    rm torch-$family/model.safetensors
    "$GW_BIN" import torch-$family --out from-torch-$family >/dev/null
    for form in hf gguf torch; do
        "$GW_BIN" export from-$form-$family --out again-$form-$family >/dev/null
        cmp hf-$family/model.safetensors again-$form-$family/model.safetensors ||
            fail "$family: what came by $form is not what went out"
    done
    # The tokenizer within: the same text from both.
    a=$("$GW_BIN" generate r-$family --prompt 'a wright' --max-tokens 6 --temperature 0)
    b=$("$GW_BIN" generate $family.gguf --prompt 'a wright' --max-tokens 6 --temperature 0)
    [ "$a" = "$b" ] || fail "$family: the file says '$b', the run '$a'"
done

# A run of it trains, cut in two ways.
for layout in tp=2 zero=3; do
    cp -r from-hf-llama cut-$layout
    "$GW_BIN" train cut-$layout/config.yaml --out cut-$layout --resume --quiet --ranks 2 \
        --set data.train=data --set train.steps=2 --set train.seq_len=16 \
        --set train.global_batch=4 --set layout.$layout
    [ -e cut-$layout/checkpoints/step-00000002/manifest.json ] || fail "$layout: no step"
done

# Half the bytes, nearly the same weights.
"$GW_BIN" export r-llama --to gguf --dtype q8_0 --out small.gguf >/dev/null
"$GW_BIN" import small.gguf --out from-small --set data.tokenizer=tok.json >/dev/null
"$GW_BIN" export from-small --out again-small >/dev/null
python3 - <<'END'
import json, struct
def read(path):
    f = open(path, 'rb')
    h = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    d = f.read()
    return {k: struct.unpack('<%df' % ((v['data_offsets'][1] - v['data_offsets'][0]) // 4),
            d[v['data_offsets'][0]:v['data_offsets'][1]]) for k, v in h.items() if k != '__metadata__'}
a, b = read('hf-llama/model.safetensors'), read('again-small/model.safetensors')
for k in a:
    bound = max(map(abs, a[k])) / 127 * 0.51 + 1e-6  # half a step of a block of 32, and float16
    worst = max(abs(x - y) for x, y in zip(a[k], b[k]))
    assert worst <= bound, (k, worst, bound)
END

says() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >out.txt 2>&1 && fail "$* succeeded"
    grep -qF -- "$words" out.txt || fail "$*: nowhere '$words' in: $(cat out.txt)"
}
says 'already holds' "$GW_BIN" import hf-llama --out from-hf-llama
says 'is there already' "$GW_BIN" export r-llama --to gguf --out llama.gguf
says 'q8_0 is for --to gguf' "$GW_BIN" export r-llama --dtype q8_0 --out x
cp "$GW_TESTS_DIR/golden/pytorch/called.pt" torch-llama/pytorch_model.bin
says 'posix system' "$GW_BIN" import torch-llama --out x
[ ! -e x/checkpoints ] || fail 'something was imported'
# A layer too few, and one too many: both named.
python3 - <<'END'
import json
c = json.load(open('hf-llama/config.json'))
c['num_hidden_layers'] = 3
json.dump(c, open('hf-llama/config.json', 'w'))
END
says "model.layers.2." "$GW_BIN" import hf-llama --out x
sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 1/' hf-llama/config.json
says "model.layers.1." "$GW_BIN" import hf-llama --out x
says 'nothing is imported' "$GW_BIN" import hf-llama --out x

# A config that ties the head to the embedding, and another head in the file.
sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/; s/"tie_word_embeddings": false/"tie_word_embeddings": true/' hf-llama/config.json
says 'lm_head.weight' "$GW_BIN" import hf-llama --out x
[ ! -e x/checkpoints ] || fail 'a model without its head was imported'

# Typed URLs make no folders.
says 'is no directory' "$GW_BIN" train run.yaml --out s3://bucket/x
says 'are not written to' "$GW_BIN" train run.yaml --out y --set checkpoint.dir=http://host/x
if [ -e s3: ] || [ -e http: ]; then fail 'a folder of a URL'; fi
