# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role on a host that it has much to do on: present, changed and absent."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from support.demo import VARIABLES, demo_plan
from support.killed import Case

ROOT = Path(__file__).parents[2]
PLAN = json.loads(dumps(demo_plan()))
DEPLOYMENT = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))["apiary_deployment"]


def _write(path: str, text: str, mode: str = "0644") -> str:
    quoted = shlex.quote(text)
    folder = shlex.quote(path.rpartition("/")[0])
    return f"mkdir -p {folder} && printf %s {quoted} > {path} && chmod {mode} {path}\n"


def _bring(path: str, source: str, mode: str = "0755") -> str:
    return _write(path, (ROOT / source).read_text(encoding="utf-8"), mode)


def _service(name: str, command: str = "/usr/bin/sleep infinity", more: str = "") -> str:
    text = f"[Service]\n{more}ExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"
    return _write(f"/etc/systemd/system/{name}", text)


def _later(case: Case, **variables: Any) -> Case:
    """Return what follows a case: the same host with other variables."""
    return replace(case, then={**case.variables, **variables})


# What any case may have made; the next begins without it.
CLEAN = """
for unit in $(systemctl list-units --plain --no-legend 'apiary*' 'srv-*' | cut -d ' ' -f 1); do
  case $unit in srv-models.mount) ;; *) systemctl stop -- "$unit" ;; esac
done
for unit in haproxy keepalived kubelet docker containerd nfs-server prometheus \\
  prometheus-alertmanager prometheus-node-exporter; do
  systemctl disable --now $unit.service 2> /dev/null || true
  rm -rf /etc/systemd/system/$unit.service /etc/systemd/system/$unit.service.d
done
cd /etc
rm -rf systemd/system/apiary* systemd/system/*.wants/apiary* systemd/system/*/*apiary* apiary cdi
rm -rf systemd/system/srv-* systemd/system/*.wants/srv-* default/grub* fstab haproxy/apiary docker
rm -rf keepalived/keepalived.conf kubernetes sysctl.d/*apiary* security/limits.d/*apiary*
rm -rf prometheus containers exports.d default/prometheus-node-exporter
rm -rf /var/lib/apiary /run/apiary /run/effects /usr/libexec/apiary /boot/grub /var/lib/kubelet
rm -f apt/sources.list.d/amdgpu* apt/sources.list.d/rocm* apt/preferences.d/*rocm* apt/keyrings/amd*
rm -f apt/apt.conf.d/90killed
of_amd=$(dpkg-query -W -f '${Package} ' 'amdgpu-*' 'rocm*' 'amd-smi*' dkms 'linux-headers-*' \\
  2> /dev/null) || true
if [ "$of_amd" ]; then dpkg --purge --force-all $of_amd > /dev/null 2>&1 || true; fi
rm -rf /var/lib/dkms /usr/lib/modules/*/updates /boot/initrd.img-* udev/rules.d/*apiary*
systemctl daemon-reload
systemctl reset-failed
"""

HOST_TUNING = Case(
    "host_tuning",
    {
        "host_tuning_profile": "full",
        "host_tuning_settings": {"swappiness": 20, "amdgpu_later": True},
    },
    scopes=("gpu", "tuning"),
    setup=_bring("/usr/sbin/update-grub", "tests/lab/update-grub")
    + _write("/etc/default/grub", 'GRUB_CMDLINE_LINUX="pci=noats iommu=off"\n')
    + _write("/etc/sysctl.d/99-local.conf", "kernel.numa_balancing = 1\n")
    + _service("docker.service", more="LimitNOFILE=1024\n")
    + """
systemctl daemon-reload
systemctl start docker.service
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
  mkdir -p $cpu/cpuidle/state1 $cpu/cpufreq
  echo C2 > $cpu/cpuidle/state1/name
  echo 0 > $cpu/cpuidle/state1/disable
  echo schedutil > $cpu/cpufreq/scaling_governor
done
echo 1 > /proc/sys/kernel/numa_balancing
update-grub
""",
    values=(
        *("/proc/sys/kernel/numa_balancing", "/proc/sys/vm/swappiness"),
        *("/proc/sys/vm/zone_reclaim_mode", "/proc/sys/vm/max_map_count"),
        "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "/sys/devices/system/cpu/cpu*/cpuidle/state1/disable",
    ),
)

_MOUNT = {"path": "/srv/weights", "source": "/opt/weights", "type": "bind"}
WEIGHT_CACHE = Case(
    "weight_cache",
    {
        "weight_cache_mounts": [{**_MOUNT, "options": {"noexec": True}}],
        "weight_cache_mount_timeout_seconds": 30,
        "weight_cache_session_slots": 0,
    },
    scopes=("weights",),
    setup="""
umount /srv/weights /srv/old 2> /dev/null || true
mkdir -p /opt/weights /srv/weights
echo /opt/weights /srv/weights none bind,rw 0 0 > /etc/fstab
"""
    + _write(
        "/etc/apiary/weights.json",
        '{"mounts": [{"path": "/srv/old", "type": "tmpfs", "readahead_kib": null}]}\n',
    )
    + _write(
        "/etc/systemd/system/srv-old.mount",
        "[Mount]\nWhat=tmpfs\nWhere=/srv/old\nType=tmpfs\n[Install]\nWantedBy=local-fs.target\n",
    )
    + "systemctl daemon-reload\nsystemctl enable --now srv-old.mount srv-weights.mount || true\n"
    + "systemctl start srv-weights.mount\n",
)

DEVICE_PLUGIN = Case(
    "device_plugin",
    {"device_plugin_pod_gpus": [4, 4], "device_plugin_system_memory": "2Gi"},
    scopes=("gpu", "kubernetes"),
    setup=_bring("/usr/bin/kubelet", "extensions/molecule/device_plugin/files/kubelet")
    + _write("/etc/kubelet-version", "1.32.4\n")
    + _write("/usr/bin/crictl", "#!/bin/sh\nexec cat /run/pods\n", "0755")
    + _write(
        "/run/pods",
        "POD ID         CREATED       STATE   NAME           NAMESPACE    ATTEMPT   RUNTIME\n",
    )
    + _write(
        "/var/lib/kubelet/config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
    )
    + _write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-ip=192.0.2.7\n")
    + _service(
        "kubelet.service",
        "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_EXTRA_ARGS",
        "EnvironmentFile=-/etc/default/kubelet\n",
    )
    + _write(
        "/etc/kubernetes/kubelet.conf.d/90-apiary.conf",
        "kind: KubeletConfiguration\ntopologyManagerPolicy: best-effort\n",
    )
    + """
mkdir -p /var/lib/kubelet/device-plugins
systemctl daemon-reload
systemctl restart kubelet.service
# Its state is part of what the case begins with, and written after the start returns.
timeout 120 sh -c 'until [ -s /var/lib/kubelet/cpu_manager_state ] \\
  && [ -s /var/lib/kubelet/memory_manager_state ]; do sleep 0.1; done'
""",
    values=("/proc/sys/fs/inotify/max_*",),
    reads={
        "kubelet.service": (
            *("/etc/default/kubelet", "/etc/kubernetes/kubelet.conf.d/*.conf"),
            "/var/lib/kubelet/config.yaml",
        )
    },
)

REBOOT = Case("reboot", scopes=("reboot",), settings={"reasons": ["the kernel has changed"]})

REPLICAS = Case("replicas", deployment=DEPLOYMENT)
_LIMITS = {**DEPLOYMENT["limits"], "max_model_len": 16384}

_STAND_IN = [{"host": "gpu-001", "address": "127.0.0.1", "plan": PLAN}]
ROUTER = Case(
    "router",
    {
        "router_plans": _STAND_IN,
        "router_connections": 4000,
        "router_api_keys": {"team": "a-key-that-only-a-test-has"},
        "router_virtual_addresses": ["10.222.250.9/32"],
        "router_virtual_password": "secret",
        "router_peers": [{"host": "gpu-001", "address": "127.0.0.1"}],
    },
    scopes=("router",),
    secrets={"virtual_password": "secret"},
    setup=_write(
        "/etc/haproxy/haproxy.cfg",
        "defaults\n  mode http\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\n"
        "frontend other\n  bind 127.0.0.1:9999\n  http-request return status 200\n",
    )
    + "systemctl restart haproxy.service\n",
    reads={
        "haproxy.service": ("/etc/haproxy/haproxy.cfg", "/etc/haproxy/apiary/*"),
        "keepalived.service": ("/etc/keepalived/*",),
    },
)

_DOCKER = """#!/bin/sh
case $1 in --version) echo 'Docker version 27.3.1, build 0000000' ;; esac
"""
CONTAINER_RUNTIME = Case(
    "container_runtime",
    {"container_runtime_engine": "docker"},
    scopes=("gpu", "container"),
    setup=_write("/usr/bin/docker", _DOCKER, "0755")
    + _write("/usr/bin/dockerd", "#!/bin/sh\n", "0755")
    + _write("/etc/docker/daemon.json", '{"dns": ["192.0.2.1"]}\n')
    + _service("docker.service")
    + _service("containerd.service")
    + "systemctl daemon-reload\nsystemctl start docker.service containerd.service\n",
    reads={"docker.service": ("/etc/docker/daemon.json",)},
)

# What the NFS server exports is what it last read.
_EXPORTFS = """#!/bin/sh
mkdir -p /run/effects
cat /etc/exports.d/*.exports > /run/effects/exports 2> /dev/null
exit 0
"""
WEIGHTS = Case(
    "weights",
    {"weights_store": "/export/models", "weights_export_clients": ["192.0.2.0/24"]},
    scopes=("exports",),
    setup=_write("/usr/sbin/exportfs", _EXPORTFS, "0755")
    + _service("nfs-server.service")
    + "mkdir -p /export\nsystemctl daemon-reload\n",
)

TELEMETRY = Case(
    "telemetry",
    {"telemetry_amd_method": "none", "telemetry_driver": False, "telemetry_arguments": []},
    scopes=("gpu", "tuning", "rocm", "telemetry"),
    setup=_write("/usr/bin/prometheus-node-exporter", "#!/bin/sh\nexec sleep infinity\n", "0755")
    + _write("/etc/default/prometheus-node-exporter", 'ARGS="--of-somebody"\n')
    + _service("prometheus-node-exporter.service", "/usr/bin/prometheus-node-exporter")
    + "systemctl daemon-reload\nsystemctl start prometheus-node-exporter.service\n",
    reads={"prometheus-node-exporter.service": ("/etc/default/prometheus-node-exporter",)},
)

_PROMETHEUS = """#!/usr/bin/python3
import http.server, json, signal, sys
if "--version" in sys.argv:
    sys.exit(print(sys.argv[0].rpartition("/")[2] + ", version 2.53.0"))
signal.signal(signal.SIGHUP, lambda *_: None)
where = [word for word in sys.argv if word.startswith("--web.listen-address=")][0]
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"reloadConfigSuccess": True}}).encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(where.rpartition(":")[2])), Answer).serve_forever()
"""
_RELOADED = "ExecReload=/bin/kill -HUP $MAINPID\n"
MONITORING = Case(
    "monitoring",
    {
        "monitoring_hosts": [{"host": "gpu-001", "address": "127.0.0.1", "plans": [PLAN]}],
        "monitoring_user": "root",
        # Its stand-in of Prometheus speaks HTTP.
        "monitoring_web_enabled": False,
        "monitoring_secrets": {"on-call": "a-secret-of-a-test"},
        "monitoring_receivers": [
            {
                "name": "on-call",
                "kind": "webhook",
                "url": "http://127.0.0.1:9099/",
                "secret_file": "/etc/prometheus/apiary/secrets/on-call",
            }
        ],
        "monitoring_routes": {"critical": ["on-call"]},
    },
    programs=("/usr/bin/prometheus", "/usr/bin/prometheus-alertmanager"),
    secrets={"on-call": "a-secret-of-a-test"},
    setup="".join(
        _write(f"/usr/bin/{name}", _PROMETHEUS, "0755")
        + _service(f"{name}.service", f"/usr/bin/{name}", _RELOADED)
        for name in ("prometheus", "prometheus-alertmanager")
    )
    + "".join(_write(f"/usr/bin/{name}", "#!/bin/sh\n", "0755") for name in ("promtool", "amtool"))
    + "systemctl daemon-reload\n",
    reads={"prometheus.service": ("/etc/prometheus/apiary/*.yml",)},
)

# What another has left: an installer's files, and an older driver that did not build and is held.
_MIRROR = "/opt/lab-repository/mirror"
_OLDER = f"{_MIRROR}/amdgpu/30.20.1/ubuntu/pool/jammy/amdgpu-dkms*.deb"
_FINGERPRINT = """python3 -c 'import json
print(json.load(open("/opt/lab-repository/facts.json"))["fingerprint"])'"""
ROCM = Case(
    "rocm",
    {
        "rocm_repository_url": f"file://{_MIRROR}/rocm",
        "rocm_driver_repository_url": f"file://{_MIRROR}/amdgpu",
        "rocm_key_url": f"file://{_MIRROR}/rocm/rocm.gpg.key",
        "rocm_driver_key_url": f"file://{_MIRROR}/rocm/rocm.gpg.key",
        "rocm_allow_unsupported": True,
    },
    scopes=("rocm",),
    printed={
        "rocm_key_fingerprint": _FINGERPRINT,
        "rocm_driver_key_fingerprint": _FINGERPRINT,
    },
    setup=_write(
        "/etc/apt/preferences.d/rocm-pin-600",
        "Package: *\nPin: release o=x\nPin-Priority: 600\n",
    )
    + _write("/etc/apt/keyrings/amdgpu.gpg", "<html>404</html>\n")
    + f"""
headers=linux-headers-6.1.0-28-amd64
# What takes long to have: the distribution's own.
apt-get -qq -y -o Dir::Etc::sourceparts=/dev/null install python3-setuptools python3-wheel
echo 'Dir::Etc::sourcelist "/dev/null";' > /etc/apt/apt.conf.d/90killed
apt-get -qq update
apt-get -qq -y install dkms $headers
update-initramfs -u
echo does not compile > /usr/src/$headers/Broken
dpkg -i {_OLDER} 2> /dev/null || true
rm /usr/src/$headers/Broken
apt-mark hold amdgpu-dkms
echo deb https://repo.radeon.com/amdgpu/30.30.2/ubuntu jammy main \\
  > /etc/apt/sources.list.d/amdgpu.list
dpkg-query -W -f '${{db:Status-Abbrev}}' amdgpu-dkms | grep hF
""",
    trees=(
        *("/var/lib/dpkg", "/var/lib/apt", "/var/lib/dkms", "/usr/src", "/usr/lib/modules"),
        *("/opt/rocm*", "/usr/lib/systemd/system/amdgpu*", "/usr/sbin/dkms"),
        "/usr/lib/systemd/system/sysinit.target.wants/amdgpu*",
    ),
    unsteady=(
        # Which packages came as another's dependency apt writes at its very end.
        *("/var/lib/dpkg/*-old", "/var/lib/dpkg/*lock*", "/var/lib/apt/extended_states"),
        *("/var/lib/dpkg/triggers/Lock", "/var/lib/apt/lists/lock"),
    ),
)

CASES = {
    "host_tuning": HOST_TUNING,
    "host_tuning absent": _later(HOST_TUNING, host_tuning_state="absent"),
    "weight_cache": WEIGHT_CACHE,
    "weight_cache changed": _later(
        WEIGHT_CACHE, weight_cache_mounts=[{**_MOUNT, "options": {"nodev": True}}]
    ),
    "weight_cache absent": _later(WEIGHT_CACHE, weight_cache_state="absent"),
    "device_plugin": DEVICE_PLUGIN,
    "device_plugin absent": _later(DEVICE_PLUGIN, device_plugin_state="absent"),
    "reboot": REBOOT,
    "replicas": REPLICAS,
    "replicas changed": replace(REPLICAS, deployment_then={**DEPLOYMENT, "limits": _LIMITS}),
    "replicas absent": _later(REPLICAS, replicas_state="absent"),
    "container_runtime": CONTAINER_RUNTIME,
    "container_runtime absent": _later(CONTAINER_RUNTIME, container_runtime_state="absent"),
    "weights": WEIGHTS,
    "weights absent": _later(WEIGHTS, weights_export_clients=[]),
    "telemetry": TELEMETRY,
    "telemetry absent": _later(TELEMETRY, telemetry_state="absent"),
    "monitoring": MONITORING,
    "monitoring absent": _later(MONITORING, monitoring_state="absent"),
    "router": ROUTER,
    "router changed": _later(ROUTER, router_connections=3000),
    "router absent": _later(ROUTER, router_state="absent"),
    "rocm": ROCM,
    "rocm absent": _later(ROCM, rocm_state="absent"),
}
