# SPDX-License-Identifier: GPL-3.0-or-later

"""Loaded by every process of the engine under test: makes its prefix cache wrong where asked to."""

import os

if os.environ.get("APIARY_WRONG_CACHE"):
    import importlib.abc
    import importlib.machinery
    import sys

    NAME = "vllm.v1.core.kv_cache_utils"

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != NAME:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                right = module.hash_block_tokens

                def wrong(function, parent, tokens, extra=None):
                    # Blocks are looked up from the first on, so that one has to be taken wrongly.
                    return right(function, parent, tokens[len(tokens) // 2 :], extra)

                module.hash_block_tokens = wrong

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
