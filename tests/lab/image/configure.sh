#!/bin/sh
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Run in a chroot: turn a debootstrap tree into the bare host of the lab.
set -eu

useradd --create-home --shell /bin/bash ansible
echo 'ansible ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/ansible
chmod 440 /etc/sudoers.d/ansible

# Every host gets its own keys when it is created.
rm -f /etc/ssh/ssh_host_*
cat > /etc/ssh/sshd_config.d/lab.conf <<'EOF'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
PermitRootLogin no
UseDNS no
# A fleet run opens many sessions at once.
MaxStartups 200:30:400
MaxSessions 100
EOF
if [ -e /lib/systemd/system/ssh.socket ]; then systemctl --quiet disable ssh.socket; fi
systemctl --quiet enable ssh.service

# Installed, and nothing else done: serving is the role's to begin.
systemctl --quiet disable haproxy.service keepalived.service

# Docker mounts it, and a shutdown would take it away first: that sudo then does not know its host is to
# Ansible's reboot, which reads its words, another boot.
mkdir /etc/systemd/system/etc-hosts.mount.d
printf '[Unit]\nDefaultDependencies=no\n' > /etc/systemd/system/etc-hosts.mount.d/lab.conf

# What a container cannot do, and what would only cost the machine time.
systemctl --quiet mask \
  systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket \
  systemd-udev-trigger.service systemd-modules-load.service \
  getty.target console-getty.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer

apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/bootstrap.log /var/cache/debconf/*-old
# Each host makes its own identity at its first boot.
: > /etc/machine-id
