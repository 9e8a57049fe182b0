"""Weights that PyTorch writes, in models of Belfry: scripts/compare_with_torch weights.

Each model has random weights, which its own library saves. A program of Belfry starts from them
(--load=FILE --names=NAME) and writes one step. PyTorch computes the same step in f64. Gradients get
PyTorch's names by `belfry checkpoint export --names=NAME`, so that rules are checked in both ways. Some
models then train for several steps in both.
"""
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch_step import Step, distance, gradient_distances

# Belfry has no rules for these models of transformers: a file of names is all that each takes.
# Phi-3 is a Llama with joined matrices.
PHI3_NAMES = """
needs architecture=llama
let width = block0/attention/out/W[0]
model.embed_tokens.weight = tokens/table
model.layers.{i}.input_layernorm.weight = block{i}/norm0/gamma
model.layers.{i}.self_attn.qkv_proj.weight = block{i}/attention/qkv/W : out in -> in out
model.layers.{i}.self_attn.o_proj.weight = block{i}/attention/out/W : out in -> in out
model.layers.{i}.post_attention_layernorm.weight = block{i}/norm1/gamma
model.layers.{i}.mlp.gate_up_proj.weight = block{i}/[gate up]/W : out in -> in out, along out
model.layers.{i}.mlp.down_proj.weight = block{i}/down/W : out in -> in out
model.norm.weight = norm/gamma
lm_head.weight = head/W : out in -> in out
"""
# GPTBigCode (StarCoder) is a GPT-2 whose heads share one of keys and values, with matrices of Linear.
BIGCODE_NAMES = """
needs architecture=gpt2
needs gelu=tanh
transformer.wte.weight = tokens/table
transformer.wpe.weight = positions
transformer.h.{i}.ln_1.weight = block{i}/norm0/gamma
transformer.h.{i}.ln_1.bias = block{i}/norm0/beta
transformer.h.{i}.attn.c_attn.weight = block{i}/attention/qkv/W : out in -> in out
transformer.h.{i}.attn.c_attn.bias = block{i}/attention/qkv/b
transformer.h.{i}.attn.c_proj.weight = block{i}/attention/out/W : out in -> in out
transformer.h.{i}.attn.c_proj.bias = block{i}/attention/out/b
transformer.h.{i}.ln_2.weight = block{i}/norm1/gamma
transformer.h.{i}.ln_2.bias = block{i}/norm1/beta
transformer.h.{i}.mlp.c_fc.weight = block{i}/fc0/W : out in -> in out
transformer.h.{i}.mlp.c_fc.bias = block{i}/fc0/b
transformer.h.{i}.mlp.c_proj.weight = block{i}/fc1/W : out in -> in out
transformer.h.{i}.mlp.c_proj.bias = block{i}/fc1/b
transformer.ln_f.weight = norm/gamma
transformer.ln_f.bias = norm/beta
"""
# The ViT of transformers keeps queries, keys and values apart. The names are those in memory; older files
# have others.
HF_VIT_NAMES = """
needs norm_epsilon=1e-12
vit.embeddings.cls_token = class_token
vit.embeddings.position_embeddings = places : 1 patches width -> patches width
vit.embeddings.patch_embeddings.projection.weight = patches/W : out in height width -> out height width in
vit.embeddings.patch_embeddings.projection.bias = patches/b
vit.layers.{i}.layernorm_before.weight = block{i}/norm0/gamma
vit.layers.{i}.layernorm_before.bias = block{i}/norm0/beta
vit.layers.{i}.attention.[q k v]_proj.weight = block{i}/attention/qkv/W : out in -> in out, along out
vit.layers.{i}.attention.[q k v]_proj.bias = block{i}/attention/qkv/b : out -> out, along out
vit.layers.{i}.attention.o_proj.weight = block{i}/attention/out/W : out in -> in out
vit.layers.{i}.attention.o_proj.bias = block{i}/attention/out/b
vit.layers.{i}.layernorm_after.weight = block{i}/norm1/gamma
vit.layers.{i}.layernorm_after.bias = block{i}/norm1/beta
vit.layers.{i}.mlp.fc1.weight = block{i}/fc0/W : out in -> in out
vit.layers.{i}.mlp.fc1.bias = block{i}/fc0/b
vit.layers.{i}.mlp.fc2.weight = block{i}/fc1/W : out in -> in out
vit.layers.{i}.mlp.fc2.bias = block{i}/fc1/b
vit.layernorm.weight = norm/gamma
vit.layernorm.bias = norm/beta
classifier.weight = head/W : out in -> in out
classifier.bias = head/b
"""


@dataclasses.dataclass
class Case:
    """`make` returns the model; `flags` are those of the program that has the same."""

    program: str
    names: str
    flags: list[str]
    make: Callable[[], torch.nn.Module]
    saving: dict = dataclasses.field(default_factory=dict)  # arguments of save_pretrained()
    dtype: torch.dtype = torch.float32
    rules: str | None = None  # the text of a file of names
    batch: int = 8
    steps: int = 0  # of AdamW, of which the losses are compared, too
    tokens: int = 0  # of a sample in these; the model may take more


NO_DROPOUT = dict(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
SMALL_GPT2 = dict(vocab_size=65, n_positions=64, n_embd=128, n_layer=4, n_head=4, initializer_range=0.1,
                  bos_token_id=0, eos_token_id=0, **NO_DROPOUT)


def gpt2(**sizes):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(**sizes))


def bigcode():
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    return GPTBigCodeForCausalLM(GPTBigCodeConfig(**SMALL_GPT2))


LLAMA = dict(vocab_size=65, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.1)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**LLAMA))


def phi3():
    from transformers import Phi3Config, Phi3ForCausalLM

    return Phi3ForCausalLM(Phi3Config(**LLAMA, pad_token_id=None, bos_token_id=1, eos_token_id=2))


def resnet(depth, **options):
    import torchvision

    return getattr(torchvision.models, f"resnet{depth}")(**options)


def vit(**sizes):
    from torchvision.models import VisionTransformer

    model = VisionTransformer(**sizes)
    torch.nn.init.normal_(model.heads.head.weight, std=0.1)  # torchvision starts it at zero
    return model


def hf_vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_hidden_layers=2, num_attention_heads=4,
                                               hidden_size=64, intermediate_size=256, num_labels=10))


OF_GPT2 = ["--layers=4", "--heads=4", "--width=128", "--sequence_length=48", "--positions=64", "--gelu=tanh"]
OF_LLAMA = ["--architecture=llama", "--layers=4", "--heads=8", "--kv_heads=2", "--width=128", "--mlp_width=352",
            "--sequence_length=64", "--tie_embeddings=false"]
OF_RESNET = ["--padding=torch", "--image_size=64"]
SMALL_VIT = dict(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=256, num_classes=10)
VIT_TI = dict(image_size=224, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
OF_VIT = ["--patch=8", "--layers=2", "--heads=4", "--width=64"]
CASES = {
    "gpt2": Case("gpt", "gpt2", OF_GPT2, lambda: gpt2(**SMALL_GPT2), steps=10, tokens=48),
    "gpt2-124m": Case("gpt", "gpt2", ["--preset=gpt2-124m", "--sequence_length=128"],
                      lambda: gpt2(**NO_DROPOUT), batch=4, steps=10, tokens=128),
    "llama": Case("gpt", "llama", OF_LLAMA, llama),
    "llama in shards of bf16": Case("gpt", "llama", OF_LLAMA, llama, {"max_shard_size": "400KB"}, torch.bfloat16),
    "phi3 by a new file of names": Case("gpt", "phi3.names", OF_LLAMA, phi3, rules=PHI3_NAMES),
    "bigcode by a new file of names": Case("gpt", "bigcode.names", [*OF_GPT2, "--kv_heads=1"], bigcode,
                                           rules=BIGCODE_NAMES),
    "resnet18": Case("resnet", "torchvision-resnet", [*OF_RESNET, "--depth=18"], lambda: resnet(18)),
    # With larger sums of its shortcuts, even PyTorch's own f32 has no digit of some gradients.
    "resnet50": Case("resnet", "torchvision-resnet", [*OF_RESNET, "--depth=50"],
                     lambda: resnet(50, zero_init_residual=True), batch=4),
    "vit": Case("vit", "vit", [*OF_VIT, "--norm_epsilon=1e-6"], lambda: vit(**SMALL_VIT)),
    "vit-ti16": Case("vit", "vit", ["--preset=ti16"], lambda: vit(**VIT_TI), batch=2),
    "vit of transformers by a new file of names": Case("vit", "hf_vit.names", [*OF_VIT, "--norm_epsilon=1e-12"], hf_vit,
                                                       {"save_original_format": False}, rules=HF_VIT_NAMES),
}


def randomise(model):
    """No weight is zero or one, so that none can be taken for another."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and tensor.dim() == 1 and "inv_freq" not in name:
                tensor.add_(0.1 * torch.rand_like(tensor))


def save(model, case, folder):
    """As the library of the model saves it."""
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder, **case.saving)
        return folder
    path = os.path.join(folder, "model.safetensors")
    save_file(model.state_dict(), path)
    return path


@dataclasses.dataclass
class Apart:
    """The largest differences from PyTorch in f64."""

    most: float
    own: float  # of PyTorch's own f32
    text: str  # for people


def step_of(model, step, dtype):
    """Logits, loss and gradients by PyTorch's names."""
    model.to(dtype).train()
    x, label = (t.to(dtype) if t.is_floating_point() else t.long() for t in step.inputs)
    out = model(x)
    logits = (out if torch.is_tensor(out) else out.logits).flatten(0, -2)
    loss = F.cross_entropy(logits, label.flatten())
    names, parameters = zip(*model.named_parameters())
    return logits, loss, dict(zip(names, torch.autograd.grad(loss, parameters)))


def stored(path):
    """All tensors of a file, or of the files of a folder."""
    if os.path.isfile(path):
        return load_file(path)
    tensors = {}
    for file in os.listdir(path):
        if file.endswith(".safetensors"):
            tensors |= load_file(os.path.join(path, file))
    return tensors


# The random numbers of trainers/util/counter_random.h.
GOLDEN, ALL_BITS = 0x9E3779B97F4A7C15, 2**64 - 1


def mixed(x):
    x = (x + GOLDEN) & ALL_BITS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL_BITS
    return x ^ x >> 31


def combined(a, b):
    return mixed(mixed(a) ^ (b * 0xD1342543DE82EF95 + 1) & ALL_BITS)


def random_numbers(key):
    return (mixed(key + GOLDEN * counter) for counter in itertools.count())


def windows_of_steps(tokens, length, batch, seed=1, per_epoch=3000):
    """What gpt takes of these tokens in each step of its first epoch: [batch, length + 1]."""
    of_epoch = combined(seed, 0)
    order, random = list(range(per_epoch)), random_numbers(of_epoch)
    for i in range(per_epoch, 1, -1):
        at = next(random) % i
        order[i - 1], order[at] = order[at], order[i - 1]
    for first in range(0, per_epoch - batch + 1, batch):
        places = [next(random_numbers(combined(of_epoch, sample))) % (len(tokens) - length)
                  for sample in order[first:first + batch]]
        yield torch.stack([tokens[place:place + length + 1] for place in places])


ADAMW = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)


def losses_of_steps(model, case, tokens, dtype):
    """The losses of steps of AdamW, which leaves biases and norms without decay."""
    model.to(dtype).train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}], **ADAMW)
    losses = []
    for _, windows in zip(range(case.steps), windows_of_steps(tokens, case.tokens, case.batch)):
        loss = F.cross_entropy(model(windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.double)


def compare_steps(case, model, run, at, flags):
    """The largest difference of the loss of a step, as a part of it, and that of PyTorch's own f32."""
    tokens = torch.randint(model.config.vocab_size, (20000,))
    os.mkdir(at("data"))
    for name in "train", "val":
        with open(at(f"data/{name}.bin"), "wb") as file:
            header = np.zeros(256, np.int32)
            header[:3] = 20240520, 1, len(tokens)
            file.write(header.tobytes() + tokens.numpy().astype(np.uint16).tobytes())
    run(case.program, *flags, "--devices=cpu:1", "--tokens=llmc", f"--vocabulary={model.config.vocab_size}",
        f"--data_dir={at('data')}", f"--run_dir={at('run')}", f"--max_steps={case.steps}", "--eval_every_epochs=0",
        "--optimizer=adamw", f"--learning_rate={ADAMW['lr']}", f"--beta1={ADAMW['betas'][0]}",
        f"--beta2={ADAMW['betas'][1]}", f"--weight_decay={ADAMW['weight_decay']}")
    with open(at("run/stats.jsonl")) as file:
        lines = map(json.loads, file)
        ours = torch.tensor([line["loss"] for line in lines if "loss" in line], dtype=torch.double)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    own = losses_of_steps(model, case, tokens, torch.float)
    model.load_state_dict(start)
    right = losses_of_steps(model, case, tokens, torch.double)
    return ((ours / right - 1).abs().max().item() if len(ours) == len(right) else float("inf"),
            (own / right - 1).abs().max().item())


def named_by_pytorch(gradients, names, run, at):
    """Gradients, from Belfry's names to PyTorch's."""
    tensors = {name: torch.zeros_like(t) for name, t in load_file(at("ours/model.safetensors")).items()}
    save_file({name: t.contiguous() for name, t in (tensors | gradients).items()}, at("gradients"))
    run("belfry", "checkpoint", "import", at("gradients"), f"--like={at('ours')}", at("of_ours"))
    run("belfry", "checkpoint", "export", at("of_ours"), at("of_theirs.safetensors"), f"--names={names}")
    return load_file(at("of_theirs.safetensors"))


def compare_step(model, step, renamed):
    gradients = {n[len("gradient/"):]: t for n, t in step.tensors.items() if n.startswith("gradient/")}
    ours = renamed(gradients)

    def distances(logits, loss, gradients, right):
        return (distance(logits, right[0]), distance(loss, right[1]),
                max(gradient_distances(gradients, right[2]).values()))

    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    own = [t if isinstance(t, dict) else t.detach().clone() for t in step_of(model, step, torch.float)]
    model.load_state_dict(start)  # batch norm moves its moments
    right = step_of(model, step, torch.double)
    model.to(torch.float).load_state_dict(start)
    left = [name for name in right[2] if name not in ours]
    if left:
        return Apart(float("inf"), 0.0, f"no gradient of {', '.join(left[:3])}")
    apart = distances(step.tensors["output/logits"], step.losses[""], ours, right)
    own = max(distances(*own, right))
    return Apart(max(apart), own, f"logits {apart[0]:.1e}, loss {apart[1]:.1e}, {len(right[2])} gradients at most "
                                  f"{apart[2]:.1e}; PyTorch in f32 {own:.1e}")


def compare(case, programs, folder):
    """One step, and then the case's steps."""

    def run(program, *arguments):
        done = subprocess.run([os.path.join(programs, program), *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{program} {' '.join(arguments)}:\n{done.stderr}{done.stdout}")

    def at(name):
        return os.path.join(folder, name)

    torch.manual_seed(1)
    model = case.make()
    randomise(model)
    os.mkdir(at("theirs"))
    path = save(model.to(case.dtype), case, at("theirs"))
    fresh = case.make()  # its tables of rotations were never rounded
    fresh.load_state_dict(model.state_dict())
    model = fresh
    names = case.names
    if case.rules:
        names = at(case.names)
        with open(names, "w") as file:
            file.write(case.rules)

    run("belfry", "checkpoint", "import", path, at("ours"), f"--names={names}")
    run("belfry", "checkpoint", "export", at("ours"), at("back.safetensors"), f"--names={names}")
    file, back = stored(path), load_file(at("back.safetensors"))
    left = [name for name in file if name not in back and not name.endswith("num_batches_tracked")]
    if left:
        return Apart(float("inf"), 0.0, f"{len(left)} tensors do NOT COME BACK: {', '.join(left[:3])}")
    changed = [name for name in back if not torch.equal(back[name], file[name].to(back[name].dtype))]
    if changed:
        return Apart(float("inf"), 0.0, f"{len(changed)} tensors come back CHANGED: {', '.join(changed[:3])}")
    flags = [*case.flags, f"--global_batch_size={case.batch}", f"--load={path}", f"--names={names}"]

    run(case.program, *flags, f"--write_step={at('step')}")
    apart = compare_step(model, Step(at("step")), lambda tensors: named_by_pytorch(tensors, names, run, at))
    apart.text += f"; {len(back)} tensors back to the byte"
    if case.steps:
        ours, own = compare_steps(case, model, run, at, flags)
        apart = Apart(max(apart.most, ours), max(apart.own, own),
                      f"{apart.text}; losses of {case.steps} steps {ours:.1e}, PyTorch in f32 {own:.1e}")
    return apart
