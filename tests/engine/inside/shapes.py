# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build a model's layers without its weights: tensors that have a shape and no content."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx.experimental._config
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

LAYERS = 5  # the first few of a model show each kind of layer it has, dense ones and experts
VISION_LAYERS = 2
GROUPS = ("WORLD", "TP", "PP", "DP", "EP", "DCP", "PCP", "ETP", "ENGRAM_DP", "EPLB")

_CONSTRUCTORS = _device_constructors()
_MOVE = torch._C._nn._parse_to  # what Module.to and Tensor.to read their arguments with


class ShapesOnly(TorchFunctionMode):
    """Every tensor that is made has a shape and no content, wherever it was to lie.

    Asked for its content, such a tensor says what lets vLLM go on: a number is 0 and a test holds.
    """

    def __enter__(self) -> Any:
        torch.fx.experimental._config.meta_nonzero_assume_all_nonzero = True
        return super().__enter__()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.item and args[0].is_meta:
            return 0
        if function is torch.Tensor.__bool__ and args[0].is_meta:
            return True
        if kwargs.get("pin_memory"):  # host memory that a GPU reads
            kwargs |= {"device": None, "pin_memory": False}
        if function in _CONSTRUCTORS or kwargs.get("device") is not None:
            kwargs["device"] = _place(kwargs.get("device"))
        places = (int, str, torch.device) if function is _MOVE else torch.device
        args = [
            _place(value) if isinstance(value, places) and not isinstance(value, bool) else value
            for value in args
        ]
        return function(*args, **kwargs)


def _place(device: Any) -> Any:
    """Return where a tensor lies that was to lie on ``device``; a number or None is a GPU."""
    if device is None or isinstance(device, int):
        return "meta"
    return "meta" if torch.device(device).type == "cuda" else device


class Group:
    """A group of ranks as the first of them sees it; the others are not there."""

    device_communicator = None
    use_custom_op_call = False
    unique_name = "first rank"
    is_first_rank = True
    local_rank = rank_in_group = first_rank = 0

    def __init__(self, size: int) -> None:
        self.world_size = size
        self.ranks = list(range(size))
        self.last_rank = size - 1
        self.is_last_rank = size == 1
        self.cpu_group = self.device_group = self

    def rank(self) -> int:
        """Return this process's rank, as torch's groups do."""
        return 0

    def size(self) -> int:
        """Return the number of ranks, as torch's groups do."""
        return self.world_size


def form_groups(parallel: Any) -> None:
    """Make this process the first rank of every group that vLLM's parallel configuration asks."""
    from vllm.distributed import parallel_state

    tensor, data = parallel.tensor_parallel_size, parallel.data_parallel_size
    sizes = {"WORLD": tensor, "TP": tensor, "DP": data, "EP": tensor * data}
    for name in GROUPS:
        if hasattr(parallel_state, f"_{name}"):
            setattr(parallel_state, f"_{name}", Group(sizes.get(name, 1)))
    parallel_state._NODE_COUNT = 1


def cut(config: Any) -> None:
    """Leave a model's configuration only its first layers; all of a kind are alike."""
    for part in (config, getattr(config, "text_config", None)):
        _limit(part, ("num_hidden_layers",), LAYERS)
        _limit(part, ("num_kv_shared_layers",), 0)  # the layers that they share with are gone
    vision = getattr(config, "vision_config", None)
    _limit(vision, ("depth", "num_hidden_layers", "vt_num_hidden_layers"), VISION_LAYERS)
    if isinstance(kinds := getattr(vision, "layer_types", None), list):
        vision.layer_types = kinds[:VISION_LAYERS]


def _limit(config: Any, names: tuple[str, ...], most: int) -> None:
    for name in names:
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(most, getattr(config, name)))
