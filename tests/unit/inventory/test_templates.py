# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts may share what a template becomes."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.templates import Templates

MODELS = "{{ apiary_deployments | default([apiary_deployment]) | map(attribute='model') | list }}"
ONE = {"model": {"path": "/srv/one"}}


def key(name="x", **variables):
    return Templates().key(name, variables)


def test_a_value_without_templates_names_nothing():
    look = Templates()
    assert look.names({"a": [1, True, None, "text"], "b": 1.5}) is None
    assert look.names("{{ a }} of {{ b | default(c) }}") == {"a", "b", "c"}
    assert look.names([{"{{ a }}": "{% if b %}{% endif %}"}]) == {"a", "b"}


def test_what_cannot_be_looked_into_is_a_template():
    assert Templates().names(object()) == frozenset()


def test_hosts_share_what_follows_from_the_same_objects():
    look = Templates()
    first = {"x": MODELS, "apiary_deployment": ONE, "ansible_host": "192.0.2.1"}
    second = {"x": MODELS, "apiary_deployment": ONE, "ansible_host": "192.0.2.2"}
    assert look.key("x", first) == look.key("x", second) is not None
    third = {**second, "apiary_deployment": {"model": {"path": "/srv/two"}}}
    assert look.key("x", first) != look.key("x", third)
    assert look.key("x", first) != look.key("x", {**first, "apiary_deployments": [ONE]})


def test_what_a_template_leads_to_counts():
    look = Templates()
    first = {"x": "{{ a }}", "a": "{{ b }}", "b": "one"}
    assert look.key("x", first) != look.key("x", {**first, "b": "two"})


def test_templates_that_lead_to_themselves_end():
    assert key(x="{{ y }}", y="{{ x }}") is not None


@pytest.mark.parametrize(
    "text",
    [
        "gpu-{{ inventory_hostname }}",
        "{{ hostvars['a'].b }}",
        "{{ lookup('ansible.builtin.vars', 'x' ~ 1) }}",
        "{{ lookup(which, 'x') }}",
        "{{ query('first_found', ['x']) }}",
        "{{ 'x' | map(lookup) }}",
        "{{ lookup('env', 'X') ~ lookup('vars', 'y') }}",
        "{{ group_names | first }}",
        "{{ broken",
    ],
)
def test_what_may_differ_by_host_is_shared_by_none(text):
    assert key(x=text) is None
    assert key(x="{{ y }}", y=text) is None


def test_a_lookup_of_a_secret_is_asked_once_for_all_hosts():
    text = (
        "{{ lookup('community.hashi_vault.vault_kv2_get', path, engine_mount_point='kv').secret }}"
    )
    path = "secret/engine"
    look = Templates()
    first, second = ({"x": text, "path": path, "host": host} for host in ("a", "b"))
    assert look.key("x", first) == look.key("x", second) is not None
    assert look.key("x", {**first, "path": "of/one/host"}) != look.key("x", first)
