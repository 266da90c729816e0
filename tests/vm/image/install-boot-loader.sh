#!/bin/sh
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Run once by the machine itself, on its first boot: only there is the disk a disk.
set -eu
grub-install --target=i386-pc /dev/vda
update-grub
sync
echo BOOT-LOADER-INSTALLED > /dev/console
