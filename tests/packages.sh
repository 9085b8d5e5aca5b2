#!/bin/sh
# Installs the Debian packages that tests need and this machine lacks: Chromium, which the tests of pages drive.
# Only root can; for anybody else nothing happens, and those tests say why they are skipped. Safe to run again.
set -eu

command -v chromium >/dev/null && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Chromium is missing, and only root on Debian can install it here; tests of pages will be skipped."
    exit 0
fi
echo "Installing Chromium, which the tests of pages drive (once) ..."
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --yes --no-install-recommends chromium >/dev/null
