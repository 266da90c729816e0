# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order replicas are replaced, host by host, so that a deployment never stops serving."""
