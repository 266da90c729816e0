# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses
import re

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.kubernetes import (
    KubernetesOptions,
    literal,
    render_kubernetes,
)
from hypothesis import given
from hypothesis import strategies as st

from support.demo import demo_deployment, demo_plan
from support.host.kubernetes import check_schema, supported_versions
from support.planned import build_plan
from support.topology.topologies import mi325x

IMAGE = "docker.io/vllm/vllm-openai-rocm:v0.33.0@sha256:" + "0" * 64


def planned(image=IMAGE, engine=None, **changes):
    asked = demo_deployment()
    spec = dataclasses.replace(asked.engine, image=image, **(engine or {}))
    deployment = dataclasses.replace(asked, engine=spec, **changes)
    return build_plan(deployment, mi325x(), architecture_of(deployment, "demo"))


def rendered(plan=None, **options):
    return render_kubernetes(plan or planned(), KubernetesOptions(render_gid=109, **options))


def texts(cluster):
    return {one.path.rpartition("/")[2]: one.content for one in cluster.files}


def deployments(cluster, host="gpu-001"):
    return list(yaml.safe_load_all(texts(cluster)[f"{host}.yml"]))


def pod(cluster, index=0):
    return deployments(cluster)[index]["spec"]["template"]["spec"]


def engine(cluster, index=0):
    return pod(cluster, index)["containers"][0]


def codes(cluster, severity):
    return [one.code for one in cluster.findings if one.severity == severity]


def refusals(plan=None, **options):
    with pytest.raises(ApiaryError) as refused:
        rendered(plan, **options)
    return [one.code for one in refused.value.findings]


@pytest.mark.parametrize("name", ["00-shared.yml", "gpu-001.yml"])
def test_golden(golden, name):
    golden(f"demo/kubernetes/qwen3-235b/{name}", texts(rendered())[name])


@pytest.mark.parametrize("version", supported_versions())
@pytest.mark.parametrize(
    "options", [{}, {"user": 2000, "weights_claim": "weights", "secret": "hub"}]
)
def test_every_supported_kubernetes_takes_the_objects(version, options):
    files = texts(rendered(**options))
    assert check_schema(files["00-shared.yml"], version) == 5
    assert check_schema(files["gpu-001.yml"], version) == 2


def test_the_command_is_the_plans_own():
    plan = planned()
    for index, replica in enumerate(plan.replicas):
        container = engine(rendered(plan), index)
        assert container["command"] == ["vllm"]
        assert container["args"] == list(replica.argv[1:])


def test_the_environment_is_the_plans_but_for_where_it_was_placed():
    plan = planned()
    given_env = {one["name"]: one["value"] for one in engine(rendered(plan))["env"]}
    placed = {"APIARY_GPUS", "APIARY_CPUS", "APIARY_MEMORY_NODES"}
    assert given_env == {k: v for k, v in plan.replicas[0].env.items() if k not in placed}
    assert not [name for name in given_env if "VISIBLE_DEVICES" in name]


def test_gpus_are_requested_by_number_and_the_pod_is_guaranteed():
    resources = engine(rendered())["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["amd.com/gpu"] == "4"
    assert re.fullmatch(r"\d+", resources["limits"]["cpu"])


def test_cpus_are_whole_cores_and_leave_some_for_others():
    assert engine(rendered())["resources"]["limits"]["cpu"] == "120"


@pytest.mark.parametrize(
    ("cpus", "asked"), [("0-64", "60"), ("0-2", "2"), ("0-1", "2"), ("7", "1")]
)
def test_an_odd_share_gives_whole_cores(cpus, asked):
    plan = planned()
    first = dataclasses.replace(plan.replicas[0], cpus=cpus)
    cluster = rendered(dataclasses.replace(plan, replicas=(first,)))
    assert engine(cluster)["resources"]["limits"]["cpu"] == asked


def test_given_sizes_stand():
    limits = engine(rendered(cpus=64, memory="500G"))["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("64", "466Gi")


def test_memory_is_the_weights_the_workers_and_shared_memory():
    plan = planned()
    weights = plan.memory.weights_bytes_per_gpu * 4 / 2**30
    asked = int(engine(rendered(plan))["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert weights + 4 * 16 + 16 <= asked < weights + 4 * 16 + 17


def test_another_resource_name_is_used():
    limits = engine(rendered(resource="amd.com/spx_nps1"))["resources"]["limits"]
    assert limits["amd.com/spx_nps1"] == "4"


def test_a_replica_stays_on_its_host_and_is_replaced_not_doubled():
    first = deployments(rendered())[0]
    assert first["spec"]["strategy"] == {"type": "Recreate"}
    assert first["spec"]["template"]["spec"]["nodeSelector"] == {
        "kubernetes.io/hostname": "gpu-001"
    }


def test_a_pod_has_the_time_that_the_unit_has_to_drain():
    plan = planned()
    drain = plan.deployment.limits.drain_timeout_seconds
    assert pod(rendered(plan))["terminationGracePeriodSeconds"] == drain + 30 + 10


def test_start_up_may_take_as_long_as_the_unit_may():
    probe = engine(rendered())["startupProbe"]
    asked = demo_deployment().limits.start_timeout_seconds
    assert probe["periodSeconds"] * probe["failureThreshold"] == asked


def test_services_do_not_become_environment():
    assert pod(rendered())["enableServiceLinks"] is False


def test_the_pod_waits_for_mounted_weights():
    path = demo_deployment().model.path
    volumes = {one["name"]: one for one in pod(rendered())["volumes"]}
    assert volumes["weights-are-there"]["hostPath"] == {
        "path": f"{path}/config.json",
        "type": "File",
    }
    mounted = [one["name"] for one in engine(rendered())["volumeMounts"]]
    assert set(volumes) == set(mounted)


def test_weights_can_come_from_a_claim():
    cluster = rendered(weights_claim="weights")
    assert pod(cluster)["volumes"][0] == {
        "name": "weights",
        "persistentVolumeClaim": {"claimName": "weights", "readOnly": True},
    }
    assert {one["name"] for one in pod(cluster)["volumes"]} == {
        one["name"] for one in engine(cluster)["volumeMounts"]
    }


def test_another_user_gets_caches_he_may_write():
    cluster = rendered(user=2000)
    assert pod(cluster)["securityContext"]["fsGroup"] == 2000
    assert pod(cluster)["securityContext"]["supplementalGroups"] == [109]
    caches = next(one for one in pod(cluster)["volumes"] if one["name"] == "caches")
    assert caches == {"name": "caches", "emptyDir": {}}
    assert {"name": "USER", "value": "vllm"} in engine(cluster)["env"]


def test_a_secret_is_referred_to():
    told = engine(rendered(**{"secret": "hub"}))
    assert told["envFrom"] == [{"secretRef": {"name": "hub"}}]


def test_services_select_the_pods_of_every_host():
    objects = list(yaml.safe_load_all(texts(rendered())["00-shared.yml"]))
    labels = deployments(rendered())[0]["spec"]["template"]["metadata"]["labels"]
    for one in objects:
        if one["kind"] == "Service":
            assert one["spec"]["selector"].items() <= labels.items()
    assert [one["kind"] for one in objects] == [
        "Namespace",
        "PriorityClass",
        "Service",
        "Service",
        "PodDisruptionBudget",
    ]


def test_selectors_of_replicas_are_disjoint():
    selectors = [
        tuple(sorted(one["spec"]["selector"]["matchLabels"].items()))
        for one in deployments(rendered())
    ]
    assert len(set(selectors)) == 2


def test_hosts_share_what_they_share():
    plan = planned()
    other = dataclasses.replace(plan, host="gpu-002.example")
    first, second = texts(rendered(plan)), texts(rendered(other))
    assert first["00-shared.yml"] == second["00-shared.yml"]
    names = {one["metadata"]["name"] for one in deployments(rendered(plan))}
    others = {one["metadata"]["name"] for one in deployments(rendered(other), "gpu-002.example")}
    assert not names & others
    # A pod is called after them, and its own host name has no dots.
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names | others)


def test_the_default_namespace_is_not_made():
    assert "kind: Namespace" not in texts(rendered(namespace="default"))["00-shared.yml"]


def test_who_chooses_the_gpus_is_told():
    cluster = rendered()
    assert codes(cluster, "info") == ["KUBE-SUBSET"]
    assert "0000:05:00.0 0000:26:00.0 0000:46:00.0 0000:65:00.0" in texts(cluster)["gpu-001.yml"]


def test_a_tag_is_told():
    assert codes(rendered(planned(image="vllm/vllm-openai-rocm:v1")), "warning") == [
        "KUBE-UNPINNED"
    ]


def test_a_missing_group_is_told():
    found = render_kubernetes(planned(), KubernetesOptions())
    assert [one.code for one in found.findings if one.severity == "warning"] == ["KUBE-RENDER-GID"]


def test_a_replica_over_both_sockets_is_told():
    whole = dataclasses.replace(demo_deployment().decided, replicas=1, tensor_parallel_size=8)
    found = rendered(planned(layout=whole))
    assert "KUBE-SPANS-NODES" in codes(found, "warning")


@pytest.mark.parametrize(
    ("plan", "options", "expected"),
    [
        (demo_plan, {}, ["KUBE-NO-IMAGE"]),
        (lambda: planned(listen_address="10.0.0.7"), {}, ["KUBE-LISTEN"]),
        (
            lambda: dataclasses.replace(planned(), host="GPU_1"),
            {},
            ["KUBE-NAME"],
        ),
        (planned, {"namespace": "Serving"}, ["KUBE-NAME"]),
        (lambda: planned(name="3-large"), {}, ["KUBE-NAME"]),
        (lambda: planned(name="a" * 56), {}, ["KUBE-NAME"]),
        (planned, {"secret": "a" * 64}, ["KUBE-NAME"]),
        (planned, {"weights_claim": "-x"}, ["KUBE-NAME"]),
        (planned, {"memory": "lots"}, ["KUBE-AMOUNT"]),
        (planned, {"memory": "0Gi"}, ["KUBE-AMOUNT"]),
        (planned, {"cpus": 0}, ["KUBE-AMOUNT"]),
    ],
)
def test_refusals(plan, options, expected):
    assert refusals(plan(), **options) == expected


def test_a_plan_without_cpus_needs_a_number():
    plan = planned()
    unbound = dataclasses.replace(
        plan, replicas=tuple(dataclasses.replace(one, cpus=None) for one in plan.replicas)
    )
    assert refusals(unbound) == ["KUBE-AMOUNT", "KUBE-AMOUNT"]
    assert engine(rendered(unbound, cpus=32))["resources"]["limits"]["cpu"] == "32"


def test_a_plan_without_weights_needs_an_amount():
    plan = planned()
    memory = dataclasses.replace(plan.memory, weights_bytes_per_gpu=None)
    assert refusals(dataclasses.replace(plan, memory=memory)) == ["KUBE-AMOUNT"]


def test_a_choice_of_devices_is_refused():
    plan = planned()
    env = {**plan.replicas[0].env, "HIP_VISIBLE_DEVICES": "0,1,2,3"}
    chosen = dataclasses.replace(plan.replicas[0], env=env)
    assert refusals(dataclasses.replace(plan, replicas=(chosen,))) == ["KUBE-VISIBLE-DEVICES"]


def expanded(text):
    """What Kubernetes makes of a word when the container has no variables.

    Source: k8s.io/kubernetes third_party/forked/golang/expansion: `$$` is `$`, `$(A)` the value
    of A or itself, and any other `$` stands.
    """
    return re.sub(r"\$\$|\$\([^)]*\)", lambda m: "$" if m[0] == "$$" else "<value>", text)


@given(st.text(alphabet="$()Aa {}\\", max_size=12))
def test_kubernetes_expands_nothing_in_a_literal_word(word):
    assert expanded(literal(word)) == word


@pytest.mark.parametrize(
    "image",
    ["vllm", "a/b:c", "registry.example:5000/rocm/vllm:v1.0_x@sha256:" + "f" * 64, IMAGE],
)
def test_images(image):
    assert engine(rendered(planned(image=image)))["image"] == image


@pytest.mark.parametrize(
    "image", ["", "a b", "A/B", "x:", "x@sha256:1", "x;y", "-x", "x\n", "a//b?"]
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ApiaryError, match=r"engine\.image"):
        planned(image=image)
