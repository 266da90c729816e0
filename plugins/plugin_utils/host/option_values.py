# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One value of one role's option, judged as Ansible would judge it when the role begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator


def checked(name: str, option: Mapping[str, Any], value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the value in the option's type, and why it is none of it, without any secret.

    ``option`` is its entry in meta/argument_specs.yml.
    """
    spec = {key: one for key, one in option.items() if key not in ("required", "default")}
    try:
        done = ArgumentSpecValidator({name: spec}).validate({name: value})
    except (AttributeError, TypeError, ValueError):
        # Ansible looks into a mapping before it is sure that there is one.
        kind = option.get("type", "str")
        return value, (f"{name} is not a {kind} of the form that the role wants",)
    messages = done.error_messages
    if messages and option.get("no_log"):
        return value, (f"{name} is not of the form that the role wants",)
    # What class of Ansible's own a value has says nothing to its author.
    shown = (re.sub(r": <class '[^']*'> cannot be converted.*", "", one) for one in messages)
    return done.validated_parameters.get(name, value), tuple(shown)
