# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ansible.cfg that the wheel brings: the clone's, used only where the operator has none."""

import configparser
from pathlib import Path

import pytest

from apiary.app import ansible_config
from apiary.app.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ansible_config, "_said", [])


def settings(path):
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    return {section: dict(parser[section]) for section in parser.sections()}


def test_what_ships_is_the_clones_less_what_only_a_clone_has():
    clone = settings(ROOT / "ansible.cfg")
    del clone["defaults"]["collections_path"], clone["defaults"]["inventory"]
    assert settings(ansible_config.SHIPPED) == clone


@pytest.mark.skipif(Path("/etc/ansible/ansible.cfg").exists(), reason="this machine has settings")
def test_where_nothing_is_configured_ours_is_used_and_said_once(capsys):
    for _again in range(2):
        assert ansible_config.own_config() == {"ANSIBLE_CONFIG": str(ansible_config.SHIPPED)}
    assert capsys.readouterr().err.count(str(ansible_config.SHIPPED)) == 1


@pytest.mark.parametrize("where", ["ansible.cfg", "home/.ansible.cfg", "named.cfg"])
def test_the_operators_own_comes_first(where, tmp_path, monkeypatch, capsys):
    (tmp_path / "home").mkdir()
    (tmp_path / where).write_text("[defaults]\nforks = 3\n")
    if where == "named.cfg":
        monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / where))
    assert ansible_config.own_config() == {}
    assert capsys.readouterr().err == ""


def test_its_path_can_be_asked_for(capsys):
    assert main(["--ansible-config"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text().startswith("[defaults]")
