#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Makes configure and the Makefile.in files. Needs autoconf, automake, libtool and pkgconf.
set -e
cd "$(dirname "$0")"
exec autoreconf --install --force --warnings=all,no-portability
