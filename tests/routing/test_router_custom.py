# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routers with every default changed: TLS, keys, a shared address; secrets stay in their files."""

import ssl
import threading
import time

import pytest

from .conftest import ROUTERS, VARIABLES, ask

PORT = 8082
ADDRESS = VARIABLES["router-001"]["lab_virtual_address"]
KEY = {"Authorization": "Bearer planted-key-of-the-lab-1"}
FEW = {"Authorization": "Bearer planted-key-of-the-lab-2"}
# Written apart, so that a search for them does not find this file.
PLANTED = ("planted-key-of" + "-the-lab", "planted" + "8", "PRIVATE" + " KEY")
ENGINES = "planted-key" + "-of-the-engines"


def holders(routers):
    """The routers that have the shared address."""
    return [
        name
        for name, host in routers.items()
        if f" {ADDRESS}/" in host.check_output("ip -oneline address show eth0")
    ]


@pytest.mark.parametrize("name", ROUTERS)
def test_services_take_their_own_configuration(routers, name):
    host = routers[name]
    assert host.run("haproxy -c -q -f /etc/haproxy/haproxy.cfg").rc == 0
    assert host.run("keepalived --config-test --use-file /etc/keepalived/keepalived.conf").rc == 0
    assert host.service("keepalived").is_running


@pytest.mark.parametrize("name", ROUTERS)
def test_secrets_are_roots_alone(routers, name):
    host = routers[name]
    for path in ("/etc/haproxy/apiary/served.pem", "/etc/keepalived/apiary-password.conf"):
        assert (host.file(path).mode, host.file(path).user) == (0o600, "root")
    assert host.file("/etc/haproxy/apiary/keys.map").mode == 0o640
    assert host.file("/etc/haproxy/apiary/router.json").mode == 0o600


@pytest.mark.parametrize("name", ROUTERS)
def test_secrets_are_nowhere_else(routers, name):
    keys, password, private = PLANTED
    host = routers[name]
    assert host.run("grep -rqs %s /etc /var/lib /usr/libexec /run/apiary", keys).rc == 1
    found = host.run("grep -rlsw %s /etc/keepalived /etc/haproxy /etc/systemd", password).stdout
    assert found.split() == ["/etc/keepalived/apiary-password.conf"]
    found = host.run("grep -rls %s /etc/haproxy /var/lib/apiary", private).stdout
    assert found.split() == ["/etc/haproxy/apiary/served.pem"]
    found = host.run("grep -rls %s /etc /var/lib", ENGINES).stdout
    assert found.split() == ["/etc/haproxy/apiary/engines.map"]
    assert host.file("/etc/haproxy/apiary/engines.map").mode == 0o640
    journal = host.check_output("journalctl --no-pager --output=cat --boot")
    arguments = host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert not any(word in journal + arguments for word in (keys, private))
    assert f" {password} " not in f" {arguments} "


@pytest.mark.parametrize("name", ROUTERS)
def test_only_who_has_a_key_is_answered_and_the_key_ends_at_the_router(name):
    assert ask(name, PORT, {}, tls=True)[0] == 401
    status, answer, headers = ask(name, PORT, {}, headers=KEY, tls=True)
    assert status == 200
    assert answer["authorization"] is None
    assert headers["x-apiary-replica"] == answer["replica"]


def test_a_key_has_its_own_rate():
    answers = [ask("router-002", PORT, {}, headers=FEW, tls=True)[0] for _number in range(5)]
    assert answers[:3] == [200] * 3
    assert answers[4] == 429


def test_more_than_replicas_and_queues_take_is_turned_away():
    answers = []
    requests = [
        threading.Thread(
            target=lambda: answers.append(
                ask("router-001", PORT, {"seconds": 1}, headers=KEY, tls=True)[0]
            )
        )
        for _number in range(24)
    ]
    for one in requests:
        one.start()
    for one in requests:
        one.join()
    assert set(answers) == {200, 429}


def test_a_request_that_is_too_large_is_refused():
    """It is answered by its head; who sends on meanwhile may find the connection closed."""
    announced = {**KEY, "Content-Length": "100001"}
    status, answer, _headers = ask("router-001", PORT, headers=announced, tls=True)
    assert (status, answer["error"]["code"]) == (413, "too_large")


def test_a_renewed_certificate_is_taken_without_a_lost_request(routers):
    """The timer's own service is started at once, which it would be within a minute."""
    router, keeper = routers["router-002"], "apiary-router.service"
    served = "/etc/haproxy/apiary/served.pem"
    address = (VARIABLES["router-002"]["apiary_address"], PORT)
    assert router.run("systemctl is-active apiary-router.timer").rc == 0
    assert router.run("systemd-analyze security --threshold=30 %s", keeper).rc == 0
    before, statuses, ending = ssl.get_server_certificate(address), [], threading.Event()

    def load():
        while not ending.is_set():
            statuses.append(ask("router-002", PORT, {}, headers=KEY, tls=True)[0])

    clients = [threading.Thread(target=load) for _number in range(2)]
    for one in clients:
        one.start()
    # What is no certificate is not taken.
    router.check_output("cp %s /root/former.pem; echo nothing > %s", served, served)
    assert router.run("systemctl start %s", keeper).rc != 0
    assert ssl.get_server_certificate(address) == before
    router.check_output("cp /root/renewed.pem %s; systemctl start %s", served, keeper)
    deadline = time.monotonic() + 20
    while ssl.get_server_certificate(address) == before:
        assert time.monotonic() < deadline
    # Nothing is to do until it changes again.
    loaded = router.check_output("stat --format=%%y /run/haproxy/certificate")
    router.check_output("systemctl start %s", keeper)
    assert router.check_output("stat --format=%%y /run/haproxy/certificate") == loaded
    ending.set()
    for one in clients:
        one.join()
    assert set(statuses) == {200}


def test_one_router_has_the_address_and_it_moves_when_its_haproxy_is_gone(routers):
    (first,) = holders(routers)
    (other,) = set(ROUTERS) - {first}
    assert ask(ADDRESS, PORT, {}, headers=KEY, tls=True)[0] == 200
    routers[first].check_output("systemctl stop haproxy")
    stopped = time.monotonic()
    failed = 0
    while True:
        try:
            status = ask(ADDRESS, PORT, {}, headers=KEY, tls=True, seconds=1)[0]
        except OSError:
            failed += 1
            assert time.monotonic() < stopped + 30
            continue
        assert status == 200
        if holders(routers) == [other]:
            break
    assert failed < 200
    routers[first].check_output("systemctl start haproxy")
    # It stays where it is: to move it back would cut connections once more.
    assert ask(ADDRESS, PORT, {}, headers=KEY, tls=True)[0] == 200
    assert holders(routers) == [other]
