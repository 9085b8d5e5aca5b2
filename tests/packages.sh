#!/bin/sh
# Installs the Debian packages that tests need and this machine lacks: Chromium, which the tests of pages drive, and
# a C compiler, with which runs are killed at chosen system calls.
# Only root can; for anybody else nothing happens, and those tests say why they are skipped. Safe to run again.
set -eu

missing=""
command -v chromium >/dev/null || missing="$missing chromium"
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Missing, and only root on Debian can install it here:$missing. The tests that need it will be skipped."
    exit 0
fi
echo "Installing$missing, which some tests need (once) ..."
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of packages
apt-get install -qq --yes --no-install-recommends $missing >/dev/null
