#!/bin/sh
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Run in a chroot: turn a debootstrap tree into the machine that the disk image holds.
set -eu

useradd --create-home --shell /bin/bash ansible
echo 'ansible ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/ansible
chmod 440 /etc/sudoers.d/ansible

# Each machine gets its own from its seed disk.
rm -f /etc/ssh/ssh_host_*
: > /etc/machine-id
cat > /etc/ssh/sshd_config.d/lab.conf <<'END'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
PermitRootLogin no
UseDNS no
END
if [ -e /lib/systemd/system/ssh.socket ]; then systemctl --quiet disable ssh.socket; fi

echo 'LABEL=apiary / ext4 errors=remount-ro 0 1' > /etc/fstab
echo 'nameserver 10.0.2.3' > /etc/resolv.conf
systemctl --quiet enable ssh.service systemd-networkd.service seed.service
# The server's part is for the machine that is asked to serve.
systemctl --quiet disable nfs-server.service
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
  e2scrub_all.timer e2scrub_reap.service fstrim.timer

# What others set before Apiary came: some of it has to stay, some of it is wrong.
sed -i \
  -e 's/^GRUB_TIMEOUT=.*/GRUB_TIMEOUT=0/' \
  -e 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="console=ttyS0 net.ifnames=0 pci=noats iommu=off foo=\\"a  b\\""/' \
  /etc/default/grub
mkdir -p /etc/default/grub.d
echo 'GRUB_CMDLINE_LINUX_DEFAULT="quiet panic=-1"' > /etc/default/grub.d/50-cloudimg-settings.cfg
echo 'kernel.numa_balancing = 1' > /etc/sysctl.d/99-local.conf

# An initramfs of the few modules that find the disk: unpacking the usual one takes emulation long.
sed -i -e 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
printf '%s\n' virtio_pci virtio_blk ext4 >> /etc/initramfs-tools/modules
update-initramfs -u

apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/bootstrap.log /var/cache/debconf/*-old
