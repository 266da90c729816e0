# SPDX-License-Identifier: GPL-3.0-or-later

"""A worker extension of real vLLM that makes its loaded model wrong, and right again."""

import sys

import torch
import vllm.model_executor.layers.utils  # noqa: F401 - before it is used


def plain(layer, remove_weight):
    """Keep a linear layer's weights where they can be changed; the CPU build packs them away."""
    layer.cpu_linear = torch.nn.functional.linear


for module in list(sys.modules.values()):
    if "dispatch_cpu_unquantized_gemm" in getattr(module, "__dict__", ()):
        module.dispatch_cpu_unquantized_gemm = plain


class Wrongs:
    """``wrong(name)`` restores the model, then breaks it; an empty name only restores."""

    def wrong(self, name):
        model = self.model_runner.model
        if not hasattr(self, "_kept"):
            self._kept = {key: value.clone() for key, value in model.state_dict().items()}
            self._buffers = {
                key: value.clone() for key, value in model.named_buffers() if key not in self._kept
            }
            self._plain = [
                (module, key, getattr(module, key))
                for module in model.modules()
                for key in ("variance_epsilon", "is_neox_style")
                if hasattr(module, key)
            ]
            self._impl = [
                (module.impl, key, getattr(module.impl, key))
                for module in model.modules()
                if hasattr(module, "impl")
                for key in ("scale", "sliding_window")
            ]
        with torch.no_grad():
            for key, value in model.state_dict().items():
                value.copy_(self._kept[key])
            for key, value in model.named_buffers():
                if key in self._buffers:
                    value.copy_(self._buffers[key])
            for owner, key, value in (*self._plain, *self._impl):
                setattr(owner, key, value)
            if name:
                getattr(self, "_" + name.partition(":")[0])(model, name.partition(":")[2])
        return name or "right"

    # -- helpers
    def _layers(self, model):
        return model.model.layers

    def _rows(self, layer):
        q = layer.self_attn.q_size
        kv = layer.self_attn.kv_size
        return q, kv

    def _k_scale(self, model, factor):
        for layer in self._layers(model):
            q, kv = self._rows(layer)
            layer.self_attn.qkv_proj.weight[q : q + kv] *= float(factor)

    def _v_scale(self, model, factor):
        for layer in self._layers(model):
            q, kv = self._rows(layer)
            layer.self_attn.qkv_proj.weight[q + kv :] *= float(factor)

    def _v_scale_layer(self, model, number):
        layer = self._layers(model)[int(number)]
        q, kv = self._rows(layer)
        layer.self_attn.qkv_proj.weight[q + kv :] *= 0.5

    def _swap_layers(self, model, numbers):
        a, b = (dict(self._layers(model)[int(n)].named_parameters()) for n in numbers.split(","))
        for key in a:
            kept = a[key].clone()
            a[key].copy_(b[key])
            b[key].copy_(kept)

    def _swap_gate_up(self, model, number):
        weight = self._layers(model)[int(number)].mlp.gate_up_proj.weight
        half = weight.shape[0] // 2
        weight.copy_(torch.cat([weight[half:], weight[:half]]).clone())

    def _swap_heads(self, model, number):
        weight = self._layers(model)[int(number)].self_attn.qkv_proj.weight
        kept = weight[:64].clone()
        weight[:64].copy_(weight[256:320])
        weight[256:320].copy_(kept)

    def _rank_zero(self, model, number):
        weight = self._layers(model)[int(number)].self_attn.o_proj.weight
        weight[:, weight.shape[1] // 3 * 2 :] = 0

    def _rank_noise(self, model, number):
        torch.manual_seed(1)
        weight = self._layers(model)[int(number)].mlp.down_proj.weight
        part = weight[:, : weight.shape[1] // 3]
        part.add_(torch.randn_like(part) * part.std())

    def _rank_vocabulary(self, model, _):
        weight = model.model.embed_tokens.weight
        weight[weight.shape[0] // 3 * 2 :] = 0

    def _cast(self, model, kind):
        dtype = getattr(torch, kind)
        for key, value in model.named_parameters():
            if value.dim() == 2 and "embed" not in key:
                value.copy_(value.to(dtype).to(value.dtype))

    def _int4(self, model, _):
        for key, value in model.named_parameters():
            if value.dim() == 2 and "embed" not in key:
                scale = value.abs().amax(1, keepdim=True) / 7
                value.copy_((value / scale).round() * scale)

    def _scale_layer(self, model, text):
        number, factor = text.split(",")
        self._layers(model)[int(number)].mlp.down_proj.weight.mul_(float(factor))

    def _scale_all(self, model, factor):
        for layer in self._layers(model):
            layer.mlp.down_proj.weight.mul_(float(factor))

    def _scale_blocks(self, model, number):
        torch.manual_seed(2)
        weight = self._layers(model)[int(number)].mlp.gate_up_proj.weight
        for row in range(0, weight.shape[0], 128):
            for column in range(0, weight.shape[1], 128):
                weight[row : row + 128, column : column + 128] *= float(
                    2 ** torch.randint(-1, 2, (1,)).item()
                )

    def _rope(self, model):
        return next(m for m in model.modules() if hasattr(m, "cos_sin_cache"))

    def _rope_theta(self, model, theta):
        self._rope_cache(model, float(theta), 1.0)

    def _rope_linear(self, model, factor):
        self._rope_cache(model, None, float(factor))

    def _rope_cache(self, model, theta, factor):
        rope = self._rope(model)
        theta = theta or float(getattr(rope, "base", 100000))
        size = rope.cos_sin_cache.shape
        inverse = 1.0 / theta ** (torch.arange(0, size[1], 2, dtype=torch.float) / size[1])
        angles = torch.outer(torch.arange(size[0], dtype=torch.float) / factor, inverse)
        rope.cos_sin_cache.copy_(torch.cat([angles.cos(), angles.sin()], -1))

    def _rope_truncated(self, model, length):
        cache = self._rope(model).cos_sin_cache
        cache[int(length) :] = cache[int(length) - 1]

    def _rope_interleaved(self, model, _):
        for module in model.modules():
            if hasattr(module, "is_neox_style"):
                module.is_neox_style = False

    def _norm_missing(self, model, _):
        model.model.norm.weight.fill_(1)

    def _norm_eps(self, model, eps):
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = float(eps)

    def _rows_swapped(self, model, _):
        weight = model.model.embed_tokens.weight
        kept = weight[500:520].clone()
        weight[500:520].copy_(weight[520:540])
        weight[520:540].copy_(kept)

    def _skip(self, model, number):
        layer = self._layers(model)[int(number)]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    def _bit(self, model, number):
        self._layers(model)[int(number)].mlp.down_proj.weight[7, 11] = 64.0

    def _softmax(self, model, factor):
        for module in model.modules():
            if hasattr(module, "impl"):
                module.impl.scale = module.impl.scale * float(factor)

    def _window(self, model, size):
        for module in model.modules():
            if hasattr(module, "impl"):
                module.impl.sliding_window = int(size)  # tokens, as the CPU backend keeps it

    def describe(self):
        model = self.model_runner.model
        return (
            str(
                [
                    (type(m.impl).__name__, m.impl.scale, m.impl.sliding_window)
                    for m in model.modules()
                    if hasattr(m, "impl")
                ][:1]
            )
            + str(
                [
                    (type(m).__name__, tuple(m.cos_sin_cache.shape), getattr(m, "base", None))
                    for m in model.modules()
                    if hasattr(m, "cos_sin_cache")
                ][:2]
            )
            + str([k for k, _ in model.named_parameters()][:12])
        )
