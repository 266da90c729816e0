# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every mistake of an inventory's variables, found at once and told once."""

import copy
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.validation.hosts import (
    HostVariables,
    PlainSecret,
    Scope,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.validation.variables import (
    known_names,
    validate,
)

ROOT = Path(__file__).parents[3]
ROLES = {
    path.parents[1].name: yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
}
ASKED = {
    "name": "qwen3-235b",
    "model": {
        "name": "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
        "path": "/srv/models/qwen",
    },
    "engine": {"version": "0.33.0"},
    "layout": {"replicas": 2, "tensor_parallel_size": 4},
}
GOOD = {"apiary_deployment": ASKED, "apiary_rack": "a1", "rocm_version": "7.2.4"}


def gpu_host(name, group="gpu_hosts", unresolved=None, secrets=(), **values):
    """A host of a group; None takes a variable away."""
    own = {key: one for key, one in {**GOOD, **values}.items() if one is not None}
    names = frozenset(own) | frozenset(unresolved or ())
    return HostVariables(name, frozenset([group]), names, own, unresolved or {}, secrets)


def asked(**changes):
    return {**copy.deepcopy(ASKED), **changes}


def found(*hosts, **options):
    """Severity, code, subject and message of each finding."""
    return [
        (one.severity, one.code, one.subject, one.message)
        for one in validate(hosts, ROLES, **options)
    ]


def only(*hosts, **options):
    (one,) = found(*hosts, **options)
    return one


def remedy(*hosts):
    (one,) = validate(hosts, ROLES)
    return one.remedy


def test_right_hosts_have_no_findings():
    assert found(*(gpu_host(f"gpu-00{number}") for number in range(5))) == []


def test_the_same_mistake_of_many_hosts_is_told_once():
    hosts = [gpu_host(f"gpu-{number:03}", rocm_profile="all") for number in range(1, 201)]
    severity, code, subject, message = only(*hosts)
    assert (severity, code) == ("error", "INVENTORY-OPTION")
    assert subject == "200 hosts, gpu-[001:200]"
    assert message == "value of rocm_profile must be one of: serving, native, full, got: all"


def test_errors_come_first_then_what_most_hosts_have():
    hosts = [
        gpu_host("a", rocm_profile="x", secrets=(PlainSecret("ansible_password", "all.yml"),)),
        gpu_host("b", secrets=(PlainSecret("ansible_password", "all.yml"),)),
        gpu_host("c", rocm_profile="x", host_tuning_profile="x"),
    ]
    assert [(one[0], one[2]) for one in found(*hosts)] == [
        ("error", "2 hosts, a, c"),
        ("error", "c"),
        ("warning", "2 hosts, a, b"),
    ]


@pytest.mark.parametrize("given", [True, False, "true", "False", "yes", "off", 1])
def test_a_switch_may_come_from_the_command_line(given):
    assert found(gpu_host("a", apiary_remove_other_deployments=given)) == []


class TestNames:
    @pytest.mark.parametrize(
        ("wrong", "meant"),
        [
            ("host_tunning_profile", "host_tuning_profile"),
            ("apiary_deploment", "apiary_deployment"),
            ("apiary_racks", "apiary_rack"),
            ("weights_cache_mounts", "weight_cache_mounts"),
        ],
    )
    def test_a_near_miss_is_an_error(self, wrong, meant):
        host = gpu_host("a", **{wrong: 1})
        assert only(host)[:2] == ("error", "INVENTORY-UNKNOWN")
        assert only(host)[3].endswith(f"; {meant} is perhaps meant")

    def test_a_name_like_ours_that_is_none_of_ours_is_a_warning(self):
        assert only(gpu_host("a", rocm_somewhere_else=1))[:2] == ("warning", "INVENTORY-UNKNOWN")

    def test_a_near_miss_of_what_the_host_does_not_read_is_a_warning(self):
        assert only(gpu_host("a", router_port=1))[:2] == ("warning", "INVENTORY-UNKNOWN")
        assert only(gpu_host("a", "routers", router_port=1))[:2] == ("error", "INVENTORY-UNKNOWN")

    @pytest.mark.parametrize(
        "name",
        [
            "ansible_user",
            "vault_rocm_version",
            "my_rocm_version",
            "lab_ports",
            "row",
            "apiary_facts",
        ],
    )
    def test_names_of_others_are_left_alone(self, name):
        assert found(gpu_host("a", **{name: 1})) == []

    def test_every_variable_of_the_playbooks_is_known(self):
        tasks = [
            *(ROOT / "playbooks").rglob("*.yml"),
            *(ROOT / "roles").glob("*/tasks/*.yml"),
            *(ROOT / "plugins/action").glob("*.py"),
            *(ROOT / "plugins/filter").glob("*.py"),
            *(ROOT / "src/apiary/fleet").glob("*.py"),
        ]
        used = {
            name for path in tasks for name in re.findall(r"\bapiary_[a-z_]+\b", path.read_text())
        }
        assert used - known_names(ROLES) == set()

    def test_every_variable_of_the_table_is_used(self):
        texts = [
            path.read_text()
            for folder in ("playbooks", "plugins", "src", "roles")
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".yml", ".py") and path.name != "variables.yml"
        ]
        unused = {
            name
            for name in knowledge("variables.yml")["variables"]
            # Places are read by "apiary_" and their kind.
            if name not in ("apiary_row", "apiary_site") and not any(name in text for text in texts)
        }
        assert unused == set()


class TestValues:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("apiary_rack", ["a"], "apiary_rack is not text"),
            ("apiary_keep", "perhaps", "apiary_keep is not true or false"),
            ("apiary_deployment", "qwen", "apiary_deployment is not a mapping"),
            ("apiary_deployments", ASKED, "apiary_deployments is not a list of mappings"),
            ("apiary_concerns", "rocm", "apiary_concerns is not a list of texts"),
            (
                "apiary_concerns",
                ["rocm", "tuning"],
                "apiary_concerns has 'tuning', which is no step",
            ),
        ],
    )
    def test_what_playbooks_read_has_its_type(self, name, value, message):
        severity, code, _subject, said = only(gpu_host("a", **{name: value}))
        assert (severity, code) == ("error", "INVENTORY-VALUE")
        assert said.startswith(message)

    def test_a_required_option_that_the_playbook_gives_is_not_asked_for(self):
        assert found(gpu_host("a", replicas_state="present", host_tuning_insecure=[])) == []

    def test_a_secret_option_is_not_shown(self):
        (_severity, code, _subject, message) = only(gpu_host("a", replicas_secrets=["hunter2"]))
        assert code == "INVENTORY-OPTION"
        assert message == "replicas_secrets is not of the form that the role wants"


class TestTemplates:
    def test_one_that_leads_to_no_vault_says_so(self):
        host = gpu_host("a", unresolved={"rocm_key_url": "'vault_key' is undefined"})
        assert only(host)[1] == "INVENTORY-UNRESOLVED"
        assert remedy(host).startswith("Give vault_key a value")

    def test_one_that_waits_for_facts_is_left_alone(self):
        later = {
            "device_plugin_pod_gpus": "'__decided' is undefined",
            "rocm_version": "'ansible_x' is undefined",
        }
        assert found(gpu_host("a", unresolved=later)) == []

    def test_an_unresolved_deployment_is_not_missing_too(self):
        host = gpu_host(
            "a", apiary_deployment=None, unresolved={"apiary_deployment": "'x' is undefined"}
        )
        assert only(host)[1] == "INVENTORY-UNRESOLVED"


class TestDeployments:
    def test_a_gpu_host_without_any(self):
        assert only(gpu_host("a", apiary_deployment=None))[1] == "INVENTORY-NO-DEPLOYMENT"
        assert found(gpu_host("a", "routers", apiary_deployment=None)) == []

    def test_a_host_that_serves_nothing_of_ours_needs_none(self):
        concerns = ["rocm", "host_tuning"]
        assert found(gpu_host("a", apiary_deployment=None, apiary_concerns=concerns)) == []
        early = Scope(("rocm",))
        assert found(gpu_host("a", apiary_deployment=None), scope=early) == []
        pods = asked(secrets=["VLLM_API_KEY"])
        assert found(gpu_host("a", apiary_deployment=pods, apiary_concerns=concerns)) == []

    @pytest.mark.parametrize(
        ("changes", "code", "words"),
        [
            ({"layot": "auto"}, "DOC-UNKNOWN", "apiary_deployment: field layot"),
            ({"engine": {"version": 0.33}}, "DOC-TYPE", "engine.version"),
            ({"base_port": 80}, "DEPLOY-VALUE", "apiary_deployment: base_port"),
            ({"model": {"name": "a/b", "path": "/x"}}, "MODEL-UNKNOWN", "'a/b'"),
            ({"secrets": ["VLLM_API_KEY"]}, "INVENTORY-SECRET-MISSING", "VLLM_API_KEY"),
        ],
    )
    def test_each_is_read_as_a_plan_would(self, changes, code, words):
        _severity, said, subject, message = only(gpu_host("a", apiary_deployment=asked(**changes)))
        assert (said, subject) == (code, "a")
        assert words in message

    def test_a_secret_that_is_given_is_not_missing(self):
        one = asked(secrets=["VLLM_API_KEY"])
        assert (
            found(gpu_host("a", apiary_deployment=one, replicas_secrets={"VLLM_API_KEY": "x"}))
            == []
        )

    def test_a_file_that_cannot_be_read_is_told(self):
        wrong = Finding.from_fields(
            code="FILE-UNREADABLE",
            severity="error",
            subject="x.json",
            message="cannot be read",
            remedy="look",
            source=None,
        )
        one = asked(model={**ASKED["model"], "config": "x.json"})
        assert (
            only(gpu_host("a", apiary_deployment=one), unread={"x.json": wrong})[1]
            == "FILE-UNREADABLE"
        )
        assert found(gpu_host("a", apiary_deployment=one)) == []

    @pytest.mark.parametrize("runtime", ["quadlet", "docker"])
    def test_a10_containers_without_an_engine_for_them_are_reported(self, runtime):
        engine = {
            **ASKED["engine"],
            "runtime": runtime,
            "image": f"a.example/vllm@sha256:{'a' * 64}",
        }
        one = asked(engine=engine)
        severity, code, _subject, message = only(gpu_host("a", apiary_deployment=one))
        assert (severity, code) == ("warning", "INVENTORY-NO-RUNTIME")
        assert runtime in message
        brought = ["rocm", "container_runtime", "replicas"]
        assert found(gpu_host("a", apiary_deployment=one, apiary_concerns=brought)) == []
        concerns = ["rocm"]
        assert found(gpu_host("a", apiary_deployment=one, apiary_concerns=concerns)) == []

    def test_several_must_not_meet(self):
        several = [asked(), asked(name="other", base_port=8001)]
        assert only(gpu_host("a", apiary_deployments=several))[1] == "INVENTORY-PORT-TWICE"
        several = [asked(), asked(base_port=8100)]
        assert only(gpu_host("a", apiary_deployments=several))[1] == "INVENTORY-DEPLOYMENT-TWICE"
        several = [asked(), asked(name="other", base_port=8002)]
        assert found(gpu_host("a", apiary_deployments=several)) == []

    def test_one_name_is_one_model_everywhere(self):
        other = asked(model={"name": "Qwen/Qwen3-235B-A22B-Instruct-2507", "path": "/srv/x"})
        hosts = [gpu_host("a"), gpu_host("b"), gpu_host("c", apiary_deployment=other)]
        routed = [*hosts, gpu_host("r", "routers")]
        assert only(*routed)[:3] == ("error", "INVENTORY-MODELS-DIFFER", "c")
        # Without routers nobody makes one endpoint of them.
        assert only(*hosts)[:3] == ("warning", "INVENTORY-MODELS-DIFFER", "c")


class TestFleet:
    def test_two_names_of_one_host(self):
        _severity, code, subject, _message = only(gpu_host("a", ansible_host="b"), gpu_host("b"))
        assert (code, subject) == ("INVENTORY-ADDRESS-TWICE", "2 hosts, a, b")

    def test_one_address_with_many_ports_is_a_mistake_to_routers_only(self):
        hosts = [
            gpu_host("a", ansible_host="127.0.0.1", ansible_port=2201),
            gpu_host("b", ansible_host="127.0.0.1", ansible_port=2202),
        ]
        assert only(*hosts)[:2] == ("warning", "INVENTORY-ADDRESS-TWICE")
        assert only(*hosts, gpu_host("r", "routers"))[:2] == ("error", "INVENTORY-ADDRESS-TWICE")

    def test_a_virtual_address_is_nobodys_own(self):
        router = {"router_virtual_addresses": ["192.0.2.10/24"]}
        hosts = [gpu_host(name, "routers", **router) for name in ("r1", "r2")]
        assert found(*hosts) == []
        # What is no list is told of its host, and nothing else.
        assert {one[1] for one in found(gpu_host("r", "routers", router_virtual_addresses=5))} <= {
            "INVENTORY-OPTION"
        }
        _severity, code, subject, message = only(*hosts, gpu_host("a", apiary_address="192.0.2.10"))
        assert (code, subject) == ("INVENTORY-ADDRESS-TWICE", "a")
        assert "virtual" in message

    def test_a_gpu_host_that_routes(self):
        both = HostVariables("a", frozenset(["gpu_hosts", "routers"]), values=GOOD)
        assert only(both)[:2] == ("warning", "INVENTORY-TWO-PARTS")

    def test_racks(self):
        assert found(gpu_host("a", apiary_rack=None), gpu_host("b", apiary_rack=None)) == []
        assert only(gpu_host("a", apiary_rack=None), gpu_host("b"))[:3] == (
            "warning",
            "INVENTORY-NO-RACK",
            "a",
        )
        apart = gpu_host("a", apiary_rack=None, apiary_failure_domain="feed-1")
        assert only(apart, gpu_host("b"))[:2] == ("info", "INVENTORY-NO-RACK")

    def test_a_rack_in_two_rows(self):
        hosts = [
            gpu_host("a", apiary_row="1"),
            gpu_host("b", apiary_row="2"),
            gpu_host("c", apiary_row="2"),
        ]
        _severity, code, subject, message = only(*hosts)
        assert (code, subject) == ("INVENTORY-RACK-TWICE", "3 hosts, a, b, c")
        assert "a at 1; b, c at 2" in message

    def test_routers_agree_and_no_value_is_shown(self):
        hosts = [
            gpu_host(f"r{number}", "routers", router_api_keys={"a": f"hunter{number}"})
            for number in (1, 2)
        ]
        _severity, code, subject, message = only(*hosts)
        assert (code, subject) == ("INVENTORY-ROUTERS-DIFFER", "r2")
        assert "hunter" not in message

    def test_replicas_over_several_hosts_have_whole_groups(self):
        wide = asked(layout={"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "nodes": 2})
        four = [gpu_host(name, apiary_deployment=wide) for name in "abcd"]
        assert found(*four) == []
        assert only(*four[:3])[:3] == ("error", "PLAN-NODES-GROUP", "c")
        named = [gpu_host(name, apiary_deployment=wide, apiary_node_group="one") for name in "abc"]
        assert only(*named)[1] == "PLAN-NODES-GROUP"

    def test_others_are_read_and_not_told(self):
        hosts = [gpu_host("a"), gpu_host("b", rocm_profile="x"), gpu_host("c", ansible_host="a")]
        assert [one[1:3] for one in found(*hosts, only={"a"})] == [("INVENTORY-ADDRESS-TWICE", "a")]


class TestScope:
    def test_a_role_that_a_host_does_not_run_need_not_be_right(self):
        host = gpu_host("a", rocm_profile="x", apiary_concerns=["host_tuning", "replicas"])
        assert found(host) == []
        assert found(gpu_host("a", router_first_port="x")) == []
        assert only(gpu_host("a", "routers", router_first_port="x"))[1] == "INVENTORY-OPTION"
        assert only(gpu_host("a", "weights_writers", weights_action="x"))[1] == "INVENTORY-OPTION"

    @pytest.mark.parametrize(
        ("tags", "skipped", "wrong"),
        [
            (("all",), (), {"rocm_profile", "host_tuning_profile", "reboot_allowed"}),
            (("host_tuning",), (), {"host_tuning_profile", "reboot_allowed"}),
            (("all",), ("host_tuning",), {"rocm_profile", "reboot_allowed"}),
            (("replicas",), (), set()),
        ],
    )
    def test_tags_choose_roles(self, tags, skipped, wrong):
        host = gpu_host("a", rocm_profile="x", host_tuning_profile="x", reboot_allowed="x")
        told = found(host, scope=Scope(tags, skipped))
        assert {name for name in wrong if any(name in one[3] for one in told)} == wrong
        assert len(told) == len(wrong)

    def test_a_template_that_only_others_read_may_lead_nowhere(self):
        why = "The lookup plugin 'file' failed: no such file"
        host = gpu_host("a", unresolved={"rocm_key_fingerprint": why})
        assert only(host)[1] == "INVENTORY-UNRESOLVED"
        assert found(host, scope=Scope(("replicas",))) == []
