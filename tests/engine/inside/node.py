# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM asks of a node with Instinct GPUs, answered without one.

Stands in for what such a node has and this machine has not: the answers of torch.cuda and amdsmi,
and the packages that hold GPU kernels (aiter, triton, flash_attn). No kernel can run. vLLM itself
stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
# Operators that vLLM builds for CUDA alone have one of these in their names.
CUDA_ONLY = ("fp4", "cutlass", "marlin", "machete", "allspark", "minimax")
# Packages of a ROCm image that this machine has not; vLLM asks whether they are there.
KERNEL_PACKAGES = (
    "aiter",
    "flash_attn",
    "kaldi_native_fbank",
    "quark",
    "tilelang",
    "torchaudio",
    "triton",
    "triton_kernels",
)
# Transformers asks for it once, when it is imported; of the version that goes with our torch.
VISION = ("torchvision", "0.28.0")
HOST_MEMORY_GIB = 1536  # more than any vLLM check of pinned host memory asks for


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU; ``gfx`` as in gfx942, ``device_id`` as in 0x74a5."""

    name: str
    gfx: str
    device_id: str
    memory_gib: int
    compute_units: int

    @property
    def capability(self) -> tuple[int, int]:
        """Return what torch calls the compute capability: gfx942 is (9, 4)."""
        return int(self.gfx[3:-2]), int(self.gfx[-2])


def have_vision() -> None:
    """Make this process have torchvision; before Transformers is imported."""
    name, version = VISION
    sys.meta_path.append(_Absent((name,)))
    importlib.import_module(name).__dict__["__version__"] = version


def install(gpu: Gpu, count: int) -> None:
    """Make this process see ``count`` such GPUs; before vLLM is imported."""
    _torch(gpu, count)
    _amdsmi(gpu, count)
    sys.meta_path.append(_Absent(KERNEL_PACKAGES))
    _aiter(gpu)
    _triton(gpu)
    _host_memory()


def _torch(gpu: Gpu, count: int) -> None:
    import torch

    class Properties:
        name = f"AMD Instinct {gpu.name}"
        gcnArchName = f"{gpu.gfx}:sramecc+:xnack-"  # noqa: N815 - torch's name
        total_memory = gpu.memory_gib * GIB
        multi_processor_count = gpu.compute_units
        major, minor = gpu.capability
        warp_size = 64
        L2_cache_size = 4 << 20
        shared_memory_per_block = 64 << 10
        shared_memory_per_block_optin = 64 << 10
        shared_memory_per_multiprocessor = 64 << 10
        uuid = "0"

    torch.version.hip = "7.2.26015"
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": False,
        "_is_compiled": True,
        "device_count": count,
        "_device_count_amdsmi": count,
        "current_device": 0,
        "get_device_name": Properties.name,
        "get_device_properties": Properties(),
        "get_device_capability": gpu.capability,
        "mem_get_info": (Properties.total_memory, Properties.total_memory),
        "set_device": None,
        "synchronize": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _always(answer))
    for name, answer in {
        "is_available": True,
        "device_count": count,
        "current_device_index": 0,
        "current_accelerator": torch.device("cuda"),
        "empty_cache": None,
        "synchronize": None,
    }.items():
        setattr(torch.accelerator, name, _always(answer))
    torch.cuda.Stream = torch.cuda.Event = _Hollow("torch.cuda").Stream
    for name in ("_C", "_C_cache_ops", "_C_custom_ar", "_moe_C", "_rocm_C"):
        setattr(torch.ops, name, _Kernels(name))
    register_fake = torch.library.register_fake

    def register(operator: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(operator, str):  # its look-up makes it exist
            namespace, _, name = operator.partition("::")
            getattr(getattr(torch.ops, namespace), name, None)
        return register_fake(operator, *args, **kwargs)

    torch.library.register_fake = register


def _amdsmi(gpu: Gpu, count: int) -> None:
    handles = [f"gpu{index}" for index in range(count)]
    asic = {
        "market_name": f"AMD Instinct {gpu.name}",
        "device_id": gpu.device_id,
        "target_graphics_version": gpu.gfx,
    }
    module = _module(
        "amdsmi",
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0, VIS_VRAM=1, GTT=2),
        amdsmi_get_processor_handles=lambda: list(handles),
        amdsmi_get_gpu_asic_info=_always(asic),
        amdsmi_get_gpu_device_uuid=lambda handle: f"uuid-{handle}",
        amdsmi_get_gpu_memory_total=_always(gpu.memory_gib * GIB),
        amdsmi_topo_get_link_type=_always({"hops": 1, "type": 2}),  # xGMI
        amdsmi_topo_get_numa_node_number=lambda handle: handles.index(handle) * 2 // count,
    )
    module.__getattr__ = _any_function(module)


def _aiter(gpu: Gpu) -> None:
    import torch

    fp8 = torch.float8_e4m3fnuz if gpu.gfx == "gfx942" else torch.float8_e4m3fn
    aiter = _module("aiter", dtypes=_module("aiter.dtypes", fp8=fp8))
    aiter.ActivationType, aiter.QuantType = _Anything("ActivationType"), _Anything("QuantType")
    aiter.__getattr__ = _any_function(aiter)
    sources: Any = importlib.import_module("aiter.jit.core")
    sources.AITER_CSRC_DIR = ""  # vLLM reads there which heads a kernel has; there are none
    tuning: Any = importlib.import_module("aiter.ops.triton.utils.gemm_config_utils")
    tuning.get_gemm_config = _always(({}, False))


def _triton(gpu: Gpu) -> None:
    triton: Any = importlib.import_module("triton")
    backends: Any = importlib.import_module("triton.backends")
    runtime: Any = importlib.import_module("triton.runtime")
    target = types.SimpleNamespace(backend="hip", arch=gpu.gfx, warp_size=64)
    runtime.driver.active.get_current_target = _always(target)
    driver = types.SimpleNamespace(is_active=_always(True))
    backends.backends = {"amd": types.SimpleNamespace(driver=driver, compiler=None)}
    triton.__version__ = "3.5.0"
    triton.cdiv = lambda number, step: -(-number // step)
    triton.next_power_of_2 = lambda number: 1 << (number - 1).bit_length()
    for name in ("jit", "autotune", "heuristics"):
        setattr(triton, name, _decorator)
    tilelang: Any = importlib.import_module("tilelang")
    tilelang.jit = _decorator


def _host_memory() -> None:
    import psutil

    real = psutil.virtual_memory()
    size = HOST_MEMORY_GIB * GIB
    psutil.virtual_memory = _always(real._replace(total=size, available=size * 9 // 10))


def _always(answer: Any) -> Any:
    return lambda *args, **kwargs: answer


def _decorator(*args: Any, **kwargs: Any) -> Any:
    """Leave a kernel's function as it is, used as `@jit` or as `@jit(...)`."""
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return lambda function: function


def _module(name: str, **content: Any) -> Any:
    module: Any = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    for key, value in content.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def _any_function(module: types.ModuleType) -> Any:
    """Return a module __getattr__ that has a do-nothing function for every name."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _always(None)

    return get


class _Anything:
    """An object that has every attribute, each of them the name it was asked by."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{self._name}.{name}"


class _Kernels(types.ModuleType):
    """A namespace of torch operators in which each one exists once it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        import torch

        self._registered = getattr(torch.ops, name)
        self._defining = False

    def __getattr__(self, name: str) -> Any:
        import torch

        if name.startswith("__") or any(part in name for part in CUDA_ONLY):
            raise AttributeError(name)
        # torch asks for the operator itself while it is being defined.
        if not self._defining and not hasattr(self._registered, name):
            self._defining = True
            torch.library.define(f"{self.__name__}::{name}", "() -> ()")
            self._defining = False
        return getattr(self._registered, name)


class _Name(type):
    """The type of a hollow module's names: a class that has every attribute, such classes too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, _name(f"{cls.__name__}.{name}"))
        return getattr(cls, name)


def _name(name: str) -> Any:
    return _Name(name, (), {"__init__": _always(None), "__class_getitem__": _always(None)})


class _Hollow(types.ModuleType):
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__file__ = f"{name.replace('.', '/')}/__init__.py"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _name(name))
        return getattr(self, name)


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds hollow modules for packages that this machine has not."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".")[0] in self._packages:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it hollow."""
