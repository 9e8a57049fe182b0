"""Weights that PyTorch writes, in models of Belfry: scripts/compare_with_torch weights.

Each model has random weights, which its own library saves. A program of Belfry starts from them
(--load=FILE --names=NAME) and writes one step. PyTorch computes the same step in f64. Gradients get
PyTorch's names by `belfry checkpoint export --names=NAME`, so that rules are checked in both ways.
"""
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch_step import Step, distance

# Phi-3 is a Llama with joined matrices. Belfry has no rules for it: these are all that it takes.
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


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=65, n_positions=64, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0,
                                      embd_pdrop=0, attn_pdrop=0, initializer_range=0.1, bos_token_id=0, eos_token_id=0))


LLAMA = dict(vocab_size=65, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.1)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**LLAMA))


def phi3():
    from transformers import Phi3Config, Phi3ForCausalLM

    return Phi3ForCausalLM(Phi3Config(**LLAMA, pad_token_id=None, bos_token_id=1, eos_token_id=2))


def resnet(depth):
    import torchvision

    return getattr(torchvision.models, f"resnet{depth}")()


def vit():
    from torchvision.models import VisionTransformer

    model = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=256,
                              num_classes=10)
    torch.nn.init.normal_(model.heads.head.weight, std=0.1)  # torchvision starts it at zero
    return model


OF_GPT2 = ["--layers=4", "--heads=4", "--width=128", "--sequence_length=64", "--gelu=tanh"]
OF_LLAMA = ["--architecture=llama", "--layers=4", "--heads=8", "--kv_heads=2", "--width=128", "--mlp_width=352",
            "--sequence_length=64", "--tie_embeddings=false"]
OF_RESNET = ["--padding=torch", "--image_size=64"]
OF_VIT = ["--patch=8", "--layers=2", "--heads=4", "--width=64", "--norm_epsilon=1e-6"]
CASES = {
    "gpt2": Case("gpt", "gpt2", OF_GPT2, gpt2),
    "llama": Case("gpt", "llama", OF_LLAMA, llama),
    "llama in shards of bf16": Case("gpt", "llama", OF_LLAMA, llama, {"max_shard_size": "400KB"}, torch.bfloat16),
    "phi3 by a new file of names": Case("gpt", "phi3.names", OF_LLAMA, phi3, rules=PHI3_NAMES),
    "resnet18": Case("resnet", "torchvision-resnet", [*OF_RESNET, "--depth=18"], lambda: resnet(18)),
    "resnet50": Case("resnet", "torchvision-resnet", [*OF_RESNET, "--depth=50"], lambda: resnet(50)),
    "vit": Case("vit", "vit", OF_VIT, vit),
}
BATCH = 8


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


def compare(case, programs, folder):
    """Returns a line for people, and the largest difference beside that of PyTorch's own f32."""

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

    run(case.program, *case.flags, f"--global_batch_size={BATCH}", f"--load={path}", f"--names={names}",
        f"--write_step={at('step')}")
    run("belfry", "checkpoint", "import", path, at("ours"), f"--names={names}")
    run("belfry", "checkpoint", "export", at("ours"), at("back"), f"--names={names}")
    file, back = stored(path), load_file(at("back"))
    left = [name for name in file if name not in back and not name.endswith("num_batches_tracked")]
    equal = all(torch.equal(back[name], file[name].to(back[name].dtype)) for name in back)

    step = Step(at("step"))
    gradients = {name: torch.zeros_like(t) for name, t in load_file(at("ours/model.safetensors")).items()}
    gradients |= {n[len("gradient/"):]: t for n, t in step.tensors.items() if n.startswith("gradient/")}
    save_file({name: t.contiguous() for name, t in gradients.items()}, at("gradients"))
    run("belfry", "checkpoint", "import", at("gradients"), f"--like={at('ours')}", at("of_ours"))
    run("belfry", "checkpoint", "export", at("of_ours"), at("of_theirs"), f"--names={names}")
    ours = load_file(at("of_theirs"))

    def distances(logits, loss, gradients, right):
        return (distance(logits, right[0]), distance(loss, right[1]),
                max(distance(gradients[name], right[2][name]) for name in right[2]))

    own = [t if isinstance(t, dict) else t.detach().clone() for t in step_of(model, step, torch.float)]
    right = step_of(model, step, torch.double)
    left += [f"the gradient of {name}" for name in right[2] if name not in ours]
    if left:
        return f"{len(left)} do NOT COME BACK: {', '.join(left[:3])}", float("inf"), 0.0
    logits = step.tensors["output/logits"]
    apart = distances(logits, step.losses[""], ours, right)
    own = distances(*own, right)
    text = (f"logits {apart[0]:.1e}, loss {apart[1]:.1e}, {len(right[2])} gradients at most {apart[2]:.1e}; "
            f"PyTorch in f32 {max(own):.1e}; {len(back)} tensors back {'to the byte' if equal else 'CHANGED'}")
    return text, max(apart) if equal else float("inf"), max(own)
